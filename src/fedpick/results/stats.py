"""Statistics over seeds: means, medians, standard deviations and confidence intervals."""

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy import special  # type: ignore[import-untyped]

from fedpick.text import shown
from fedpick.validation import natural, require


class Spread(NamedTuple):
    """A mean over seeds and the standard deviation, NaN for a single seed.

    >>> f"{Spread.of([1.0, 2.0, 3.0]):.1f}", f"{Spread.of([2.0]):.1f}"
    ('2.0 ± 1.0', '2.0')
    """

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Any) -> "Spread":
        """The mean and standard deviation of values, one per seed."""
        numbers = np.asarray(values, float)
        with np.errstate(invalid="ignore"):  # some may be infinite
            return cls(float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else float("nan"))

    def __format__(self, form: str) -> str:
        if np.isnan(self.mean):
            return "-"
        return f"{self.mean:{form}}" + ("" if np.isnan(self.deviation) else f" ± {self.deviation:{form}}")


class Interval(NamedTuple):
    """A mean over seeds and its confidence interval, infinite for a single seed."""

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
    """The mean over seeds with Student's confidence interval.

    Args:
        values: One value per seed.
        level: The confidence level.
        least: A lower bound for the standard deviation.

    >>> print(interval([1.0, 2.0, 3.0]))
    +2.0 [-0.5, +4.5]
    """
    _check_level("interval", level)
    number, (mean, deviation) = len(values), Spread.of(values)
    if number < 2:
        return Interval(mean, -np.inf, np.inf)
    half = float(special.stdtrit(number - 1, (1 + level) / 2) * max(deviation, least) / np.sqrt(number))
    return Interval(mean, mean - half, mean + half)


def sign_test(gained: int, lost: int) -> float:
    """The two-sided probability of so uneven a split by chance, where either side of each pair is as likely.

    Args:
        gained: Pairs that go one way.
        lost: Pairs that go the other way.

    >>> sign_test(9, 0)
    0.00390625
    """
    for name, pairs in (("gained", gained), ("lost", lost)):
        require("sign_test", name, pairs, "at least 0", lambda number: number >= 0, whole=True, one=True)
    return min(1.0, 2 * float(special.bdtr(min(gained, lost), gained + lost, 0.5)))


def median_interval(
    values: Any, *, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """The median over seeds and a bootstrap confidence interval; between a number and inf, the median is inf.

    Args:
        values: One value per seed; inf where a target was not reached.
        level: The confidence level.
        draws: The number of bootstrap samples.
        seed: The seed of the bootstrap.

    >>> median_interval([3.0, 4.0, 5.0, 4.0, float("inf")])
    (4.0, 3.0, inf)
    >>> median_interval([3.0, float("nan")])
    (nan, nan, nan)
    """
    _check_level("median_interval", level)
    natural("median_interval", "draws", draws)
    require("median_interval", "seed", seed, "at least 0", lambda number: number >= 0, whole=True, one=True)
    numbers = np.sort(_numbers(values))
    if np.isnan(numbers[-1]):  # of which no median is known
        return (float("nan"),) * 3
    medians = np.sort(numbers[_middles(len(numbers), draws, seed)].sum(axis=0) / 2)
    low, high = (medians[round(q * (draws - 1))] for q in ((1 - level) / 2, (1 + level) / 2))
    return float(_middle(numbers)), float(low), float(high)


def _check_level(owner: str, level: Any) -> None:
    require(owner, "level", level, "above 0 and below 1", lambda part: (part > 0) & (part < 1), one=True)


def _numbers(values: Any) -> Any:
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim != 1 or not numbers.size:
        rule = "one number per seed, inf where a target was not reached"
        raise ValueError(f"median_interval: values must be {rule}, got {shown(values)}")
    return numbers


def median_text(rounds: tuple[float, float, float], played: int, seeds: int) -> str:
    """A median of rounds to a target with its interval; "> 20" where that is not reached in the 20 that were played.

    Args:
        rounds: As ``median_interval`` gives them.
        played: The rounds played.
        seeds: The number of seeds: of one there is no interval.

    >>> median_text((12.0, 10.0, float("inf")), 20, 5), median_text((float("inf"),) * 3, 20, 5)
    ('12 [10, > 20]', '> 20')
    """
    middle, *ends = (f"{n:g}" if np.isfinite(n) else f"> {played}" for n in rounds)
    return f"{middle} [{', '.join(ends)}]" if seeds > 1 and {middle, *ends} != {f"> {played}"} else middle


@functools.cache
def _middles(number: int, draws: int, seed: int) -> Any:
    """Which of so many sorted values are the two in the middle of each bootstrap sample, [2, draws]."""
    picks = np.sort(np.random.default_rng(seed).integers(0, number, (draws, number)), axis=1)
    return np.stack([picks[:, (number - 1) // 2], picks[:, number // 2]])


def _middle(ordered: Any) -> Any:
    """The median of sorted values."""
    number = ordered.shape[-1]
    return (ordered[..., (number - 1) // 2] + ordered[..., number // 2]) / 2
