"""What the paper claims, what we found, and the rules that turn the two into a verdict.

Every rule looks at the runs of the same seeds in pairs and gives a 95 % interval (Student's t). "About x" is held to
mean a mean of at least four fifths of x; "as well as" that the interval lies within two points of accuracy. A check is
met ("yes"), met in its direction but not in its size ("partly"), not decided by our runs ("unclear": the interval
allows both), or contradicted ("no"). A claim is reproduced if all of its checks are met, not reproduced if none is
even partly, and partly reproduced otherwise.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.results import Interval, Result, confidence, interval

Met = Literal["yes", "partly", "unclear", "no"]
Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]

ABOUT = 0.8  # of what is claimed
AS_WELL = 2.0  # points of accuracy


class Check(NamedTuple):
    """One thing that must be true, whether it is, and the numbers."""

    what: str
    met: Met
    found: str


class Claim(NamedTuple):
    """A sentence of the paper and the checks that decide it."""

    words: str
    source: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return overall(check.met for check in self.checks)

    @property
    def reason(self) -> str:
        """Why it is not more than that: the checks that were not met."""
        short = [f"{check.what} ({check.found})" for check in self.checks if check.met != "yes"]
        met = f"{len(self.checks) - len(short)} of {len(self.checks)} checks are met"
        return f"{met}; not, or not surely: {'; '.join(short)}" if short else met


def overall(met: Iterable[Met]) -> Verdict:
    """What several checks say together.

    >>> overall(["yes", "no"])
    'partly reproduced'
    """
    found = set(met)
    if found == {"yes"}:
        return "reproduced"
    return "partly reproduced" if found & {"yes", "partly"} else "not reproduced"


def accuracy(result: Result) -> Numbers:
    """Test accuracy after the last round in percent, one per seed."""
    return np.asarray(100 * result.metric("test_accuracy")[:, -1])


def gain(what: str, better: Result, base: Result, points: float) -> Check:
    """Whether ``better`` ends about so many points of accuracy above ``base``, or more."""
    found = interval(accuracy(better) - accuracy(base))
    met = _above_zero(found)
    if met == "yes" and found.mean < ABOUT * points:
        met = "partly"
    return Check(f"{what}: about {points:g} points more", met, f"{found} points")


def above(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` ends with a higher accuracy than ``base``."""
    return more(what, accuracy(better) - accuracy(base), "points")


def more(what: str, differences: Any, unit: str) -> Check:
    """Whether differences over seeds are above 0."""
    found = interval(differences)
    return Check(what, _above_zero(found), f"{found} {unit}")


def _above_zero(found: Interval) -> Met:
    return "yes" if found.low > 0 else "no" if found.high <= 0 else "unclear"


def as_well(what: str, one: Result, other: Result) -> Check:
    """Whether two strategies end within two points of each other."""
    found = interval(accuracy(one) - accuracy(other))
    within = found.low >= -AS_WELL and found.high <= AS_WELL
    outside = found.low > AS_WELL or found.high < -AS_WELL
    return Check(what, "yes" if within else "no" if outside else "unclear", f"{found} points")


def times(what: str, factors: Any, claimed: float = 1.0) -> Check:
    """Whether factors over seeds are above 1, and about what is claimed or more; their geometric mean is shown."""
    found = interval(np.log(factors))
    mean, low, high = np.exp(found)
    met = _above_zero(found)
    if met == "yes" and mean < ABOUT * claimed:
        met = "partly"
    return Check(what, met, f"{mean:.2f} [{low:.2f}, {high:.2f}] times")


def rounds_until(result: Result, share: float = 0.6) -> float:
    """The first evaluated round at which the test accuracy, averaged over the seeds, reaches the share: R60 for 0.6."""
    return first(result.evaluated, result.metric("test_accuracy").mean(axis=0) >= share)


def first(rounds: Any, reached: Any) -> float:
    """The round of the first True; inf where there is none."""
    return float(rounds[np.argmax(reached)]) if np.any(reached) else float("inf")


def sooner(what: str, better: Result, base: Result, share: float = 0.6) -> Check:
    """Whether ``better`` reaches the accuracy in fewer rounds than ``base``, by the mean over the seeds."""
    ours, theirs = rounds_until(better, share), rounds_until(base, share)
    met: Met = "yes" if ours < theirs else "no"
    return Check(what, met, f"{shown(ours)} against {shown(theirs)} rounds to {share:.0%}")


def area(result: Result, metric: str) -> Numbers:
    """The mean of a metric over all rounds, one per seed: of a loss, lower means faster or better."""
    return np.asarray(result.metric(metric).mean(axis=1))


def speed_up(better: Result, base: Result, metric: str, value: float) -> tuple[float, float, float, int]:
    """How many times fewer rounds ``better`` takes to the value: median over seeds, its interval, and how many count.

    A seed counts where at least one of the two gets there; inf where only ``better`` does, 0 where only ``base``.
    """
    ours, theirs = better.rounds_to(metric, value), base.rounds_to(metric, value)
    counts = np.isfinite(ours) | np.isfinite(theirs)
    if not counts.any():
        return float("nan"), float("nan"), float("nan"), 0
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isinf(ours), 0.0, theirs / np.maximum(ours, 1))[counts]
    return *confidence(ratios), int(counts.sum())


def shown(number: float, digits: int = 0) -> str:
    """A number for people; a dash where it was not reached."""
    return f"{number:.{digits}f}" if np.isfinite(number) else "never" if number > 0 else "-"
