"""How sure one can be of what a few seeds say: intervals for medians and for means."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats  # type: ignore[import-untyped]


class Interval(NamedTuple):
    """A mean over seeds and its interval; infinite where a single seed says nothing of the spread."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        size = max(abs(self.mean), self.high - self.mean if np.isfinite(self.high) else 0.0)
        digits = 1 if size >= 1 else 2 if size >= 0.1 else 4
        if not np.isfinite(self.high):
            return f"{self.mean:+.{digits}f} (one seed)"
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def interval(values: Any, level: float = 0.95, least: float = 0.0) -> Interval:
    """The mean of values over seeds with Student's interval; the standard deviation counts as ``least`` at the least.

    >>> print(interval([1.0, 2.0, 3.0]))
    +2.0 [-0.5, +4.5]
    """
    numbers = np.asarray(values, float)
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return Interval(mean, -np.inf, np.inf)
    quantile = stats.t.ppf((1 + level) / 2, len(numbers) - 1)
    half = float(quantile * max(numbers.std(ddof=1), least) / np.sqrt(len(numbers)))
    return Interval(mean, mean - half, mean + half)


def confidence(values: Any, level: float = 0.95, draws: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """The median of values over seeds, and a bootstrap interval for it; inf counts as later than everything.

    Between a number and inf it is inf.

    >>> confidence([3.0, 4.0, 5.0, 4.0, float("inf")])
    (4.0, 3.0, inf)
    """
    numbers = np.sort(np.asarray(values, float))
    picks = np.random.default_rng(seed).integers(0, len(numbers), (draws, len(numbers)))
    medians = np.sort(_middle(np.sort(numbers[picks], axis=1)))
    low, high = (medians[round(q * (draws - 1))] for q in ((1 - level) / 2, (1 + level) / 2))
    return float(_middle(numbers)), float(low), float(high)


def _middle(ordered: Any) -> Any:
    """The median of what is in order already."""
    number = ordered.shape[-1]
    return (ordered[..., (number - 1) // 2] + ordered[..., number // 2]) / 2
