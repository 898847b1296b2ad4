"""Claims, checks and verdicts: the rules by which our runs decide a claim of the paper."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from fedpick.report import ChartRow, dot
from fedpick.results import Interval, Result, Spread, interval, median_interval

Met = Literal["yes", "partly", "unclear", "no"]
Verdict = Literal["reproduced", "partly reproduced", "undecided", "not reproduced"]

RULES = (
    'Checks compare runs of the same seeds in pairs, with a 95 % interval (Student\'s t). "About x" is held to mean a '
    'mean (a median of speed-ups per seed, as in Figure 3) between four fifths and five fourths of x, "as well as" '
    "that the interval lies within two points of accuracy. Rounds to an accuracy are those of the mean over the seeds, "
    "and have no interval. A check is met (yes), met in its direction but not in its size (partly), not decided by our "
    "runs (unclear), or contradicted (no). A claim is reproduced if all its checks are met, partly reproduced if some "
    "are, at least partly, undecided if our runs decide none, and not reproduced otherwise."
)
ABOUT = 0.8  # of what is claimed, or the inverse
AS_WELL = 2.0  # points of accuracy


class Check(NamedTuple):
    """One condition of a claim, whether it is met, and the numbers."""

    what: str
    met: Met
    evidence: str


class Claim(NamedTuple):
    """A statement of the paper and the checks that decide it."""

    statement: str
    source: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return overall(check.met for check in self.checks)

    @property
    def reason(self) -> str:
        """The checks that were not met."""
        short = [f"{check.what} ({check.evidence})" for check in self.checks if check.met != "yes"]
        met = f"{len(self.checks) - len(short)} of {len(self.checks)} checks are met"
        return f"{met}; not, or not surely: {'; '.join(short)}" if short else met


def claims_of(source: str, statements: Mapping[str, Iterable[Check]]) -> tuple[Claim, ...]:
    """The claims of one figure or section: their statements, each with its checks."""
    return tuple(Claim(statement, source, tuple(checks)) for statement, checks in statements.items())


def overall(met: Iterable[Met]) -> Verdict:
    """The verdict of several checks together.

    >>> overall(["yes", "no"])
    'partly reproduced'
    """
    kinds = set(met)
    if kinds == {"yes"}:
        return "reproduced"
    if kinds & {"yes", "partly"}:
        return "partly reproduced"
    return "undecided" if kinds == {"unclear"} else "not reproduced"


def about(number: float, claimed: float, most: float | None = None) -> Met:
    """Whether a number that has the claimed direction has about the claimed size, too; or lies between two.

    >>> about(4.5, 5), about(11, 5), about(5, 1.3, most=9.8)
    ('yes', 'partly', 'yes')
    """
    return "yes" if ABOUT * claimed <= number <= (most or claimed) / ABOUT else "partly"


def above_zero(difference: Interval) -> Met:
    """Whether the mean of a difference is above 0."""
    return "yes" if difference.low > 0 else "no" if difference.high <= 0 and difference.low < 0 else "unclear"


def dot_with_spread(name: str, panel: str, x: str, values: NDArray[Any]) -> ChartRow:
    """A chart's dot for the mean over seeds, with one standard deviation."""
    mean, deviation = Spread.of(values)
    deviation = float(np.nan_to_num(deviation))
    return dot(name, panel, x, value=mean, low=mean - deviation, high=mean + deviation)


def accuracy(result: Result) -> NDArray[Any]:
    """Test accuracy after the last round in percent, one per seed."""
    return np.asarray(100 * result.metric("test_accuracy")[:, -1])


def gain(what: str, better: Result, base: Result, points: float, *, most: float | None = None) -> Check:
    """Whether ``better`` ends about this many points of accuracy above ``base``, or from these to ``most``."""
    difference = interval(accuracy(better) - accuracy(base))
    met = above_zero(difference)
    met = about(difference.mean, points, most) if met == "yes" else met
    size = f"{points:g}" if most is None else f"{points:g} to {most:g}"
    return Check(f"{what}: about {size} points more", met, f"{difference} points")


def above(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` ends with a higher accuracy than ``base``."""
    return positive(what, accuracy(better) - accuracy(base), "points")


def positive(what: str, differences: Any, unit: str) -> Check:
    """Whether differences over seeds are above 0."""
    difference = interval(differences)
    return Check(what, above_zero(difference), f"{difference} {unit}")


def as_well(what: str, one: Result, other: Result) -> Check:
    """Whether two strategies end within two points of accuracy of each other."""
    difference = interval(accuracy(one) - accuracy(other))
    return Check(what, _within(difference), f"{difference} points")


def _within(difference: Interval) -> Met:
    within = difference.low >= -AS_WELL and difference.high <= AS_WELL
    outside = difference.low > AS_WELL or difference.high < -AS_WELL
    return "yes" if within else "no" if outside else "unclear"


def equal_means(what: str, ours: NDArray[Any], mean: float, deviation: float, seeds: int) -> Check:
    """Whether the mean of our runs and a published one are within two points of accuracy of each other.

    It is so where Welch's 95 % interval of the difference lies within two points: a larger spread decides less.

    Args:
        what: What is compared.
        ours: Our accuracies in percent, one per seed.
        mean: The published mean.
        deviation: The published standard deviation.
        seeds: The number of runs it is over.
    """
    own, spread = Spread.of(ours)
    parts = [spread**2 / len(ours), deviation**2 / seeds]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / max(1, len(ours) - 1) + parts[1] ** 2 / (seeds - 1))
    half = float(special.stdtrit(freedom, 0.975) * np.sqrt(sum(parts))) if len(ours) > 1 else np.inf
    difference = Interval(own - mean, own - mean - half, own - mean + half)
    return Check(what, _within(difference), f"{own:.1f} against {mean:.1f}: {difference} points")


def factor_above_one(what: str, factors: Any, claimed: float | None = None) -> Check:
    """Whether the geometric mean of factors over seeds is above 1, and about what is claimed."""
    logarithm = interval(np.log(factors))
    mean, low, high = np.exp(logarithm)
    met = above_zero(logarithm)
    met = about(mean, claimed) if met == "yes" and claimed is not None else met
    return Check(what, met, f"{mean:.2f} [{low:.2f}, {high:.2f}] times")


def rounds_until(result: Result, share: float = 0.6) -> float:
    """The first evaluated round at which the test accuracy, averaged over the seeds, reaches the share: R60 for 0.6."""
    return first(result.evaluated, result.metric("test_accuracy").mean(axis=0) >= share)


def first(rounds: Any, reached: Any) -> float:
    """The round of the first True, or inf."""
    return float(rounds[np.argmax(reached)]) if np.any(reached) else float("inf")


def sooner(what: str, better: Result, base: Result, share: float = 0.6) -> Check:
    """Whether ``better`` reaches the accuracy in fewer rounds than ``base``, by the mean over the seeds."""
    ours, theirs = rounds_until(better, share), rounds_until(base, share)
    met: Met = "yes" if ours < theirs else "no"
    return Check(what, met, f"{number_text(ours)} against {number_text(theirs)} rounds to {share:.0%}")


def area(result: Result, metric: str) -> NDArray[Any]:
    """The mean of a metric over all rounds, one per seed; a lower loss is faster or better."""
    return np.asarray(result.metric(metric).mean(axis=1))


def no_worse(what: str, one: Result, other: Result) -> Check:
    """Whether ``one`` ends with an accuracy of ``other``'s or more, less two points at most."""
    difference = interval(accuracy(one) - accuracy(other))
    met: Met = "yes" if difference.low >= -AS_WELL else "no" if difference.high < -AS_WELL else "unclear"
    return Check(what, met, f"{difference} points")


def less_time(what: str, better: Result, base: Result, share: float) -> Check:
    """Whether ``better`` reaches the accuracy in less simulated time than ``base``, by the median over the seeds."""
    median, low, high, counted = speed_up(better, base, "test_accuracy", share, clock=True)
    met: Met = "yes" if low > 1 else "no" if high <= 1 else "unclear"
    if counted == 0:
        return Check(what, "unclear", f"neither gets to {share:.0%}")
    numbers = f"{number_text(median, 2)} [{number_text(low, 2)}, {number_text(high, 2)}] times"
    left = len(base.runs) - counted
    return Check(what, met, numbers + (f"; neither gets there in {left} of {len(base.runs)} draws" if left else ""))


def speed_up(
    better: Result, base: Result, metric: str, value: float, *, clock: bool = False
) -> tuple[float, float, float, int]:
    """Rounds to the value, ``base`` over ``better``: median over seeds, its interval, and the number of seeds counted.

    A seed counts where at least one of the two reaches it; inf where only ``better`` does, 0 where only ``base``. With
    ``clock`` it is the simulated time instead of the rounds.
    """
    ours, theirs = (
        result.seconds_to(metric, value) if clock else result.rounds_to(metric, value) for result in (better, base)
    )
    counts = np.isfinite(ours) | np.isfinite(theirs)
    if not counts.any():
        return float("nan"), float("nan"), float("nan"), 0
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isinf(ours), 0.0, theirs / np.maximum(ours, 1e-9 if clock else 1))[counts]
    return *median_interval(ratios), int(counts.sum())


def number_text(number: float, digits: int = 0) -> str:
    """A number as text; "never" for inf and "-" for NaN."""
    return f"{number:.{digits}f}" if np.isfinite(number) else "never" if number > 0 else "-"
