"""Claims, checks and verdicts: the rules by which our runs decide a claim of the paper."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fedpick.results import Interval, interval, sign_test

Met = Literal["yes", "partly", "unclear", "no"]
Verdict = Literal["reproduced", "partly reproduced", "undecided", "not reproduced"]

RULES = (
    'Checks compare runs of the same seeds in pairs, with a 95 % interval (Student\'s t). "About x" is held to mean a '
    'mean (a median of speed-ups per seed, as in Figure 3) between four fifths and five fourths of x, "at least about '
    'x" a mean of four fifths of x or more, "at least x" an interval that is nowhere below x, "as well as" one within '
    'two points of accuracy, "slightly" a mean within them. Rounds to an accuracy or a loss are those of the mean over '
    "the seeds, and have no interval. A check is met (yes), met in its direction but not, or not surely, in its size "
    "(partly), not decided by our runs (unclear), or contradicted (no), as where the direction is not sure and the "
    "interval has nothing of the claimed size. One seed decides nothing, nor does a median of fewer than six. A claim "
    "is reproduced if all its checks are met, partly reproduced if some are, at least partly, undecided if our runs "
    "decide none, and not reproduced otherwise."
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


def before_the_end(checks: Iterable[Check], rounds: int, all_rounds: int) -> list[Check]:
    """Checks of what holds after all rounds: fewer do not contradict it, so that a "no" is unclear.

    >>> before_the_end([Check("a gain", "no", "+1 points")], 30, 500)
    [Check(what='a gain', met='unclear', evidence='+1 points after 30 of 500 rounds')]
    """
    few = f" after {rounds} of {all_rounds} rounds"
    return [
        check._replace(met="unclear", evidence=check.evidence + few)
        if check.met == "no" and rounds < all_rounds
        else check
        for check in checks
    ]


def above_zero(difference: Interval) -> Met:
    """Whether the mean of a difference is above 0."""
    return above_bound(difference, 0.0)


def above_bound(found: Interval, bound: float) -> Met:
    """Whether a mean is above a bound."""
    return "yes" if found.low > bound else "no" if found.high <= bound and found.low < bound else "unclear"


def at_most(found: Interval, bound: float) -> Met:
    """Whether a mean is no more than a bound: unclear where the interval has it inside.

    >>> at_most(Interval(1.0, 0.5, 1.1), 1.1), at_most(Interval(9.0, 8.0, 10.0), 1.1)
    ('yes', 'no')
    """
    return "yes" if found.high <= bound else "no" if found.low > bound else "unclear"


def about(found: Interval, claimed: float, *, most: float | None = None, none: float = 0.0) -> Met:
    """Whether a number has the claimed direction and about the claimed size; or a size between two.

    Args:
        found: The number and its interval.
        claimed: The claimed size.
        most: The largest claimed size.
        none: What it would be without any effect: 0 for a difference, 1 for a factor.

    >>> about(Interval(4.5, 2, 7), 5), about(Interval(11, 9, 13), 5), about(Interval(1.4, 0.3, 1.9), 3, none=1)
    ('yes', 'partly', 'no')
    """
    direction = above_bound(found, none)
    if direction == "yes":
        return "yes" if ABOUT * claimed <= found.mean <= (most or claimed) / ABOUT else "partly"
    return "no" if found.high < ABOUT * claimed else direction


def at_least(found: Interval, claimed: float) -> Met:
    """Whether a difference is of the claimed size or more, with its whole interval.

    >>> at_least(Interval(15, 11, 19), 10), at_least(Interval(12, 8, 16), 10), at_least(Interval(2, -1, 5), 10)
    ('yes', 'partly', 'no')
    """
    if found.low >= claimed:
        return "yes"
    return "partly" if found.low > 0 else "no" if found.high < claimed else "unclear"


def as_much(difference: Interval) -> Met:
    """Whether a difference lies within two points of accuracy."""
    within = difference.low >= -AS_WELL and difference.high <= AS_WELL
    outside = difference.low > AS_WELL or difference.high < -AS_WELL
    return "yes" if within else "no" if outside else "unclear"


def fewer_rounds(ours: float, theirs: float, seeds: int, *, times: float = 1.0) -> Met:
    """Whether ours are fewer rounds than theirs, by a factor of ``times`` at least; both of mean curves.

    >>> fewer_rounds(80, 200, 10, times=2), fewer_rounds(80, 100, 10, times=2), fewer_rounds(80, 200, 1)
    ('yes', 'partly', 'unclear')
    """
    if seeds == 1 or (np.isinf(ours) and np.isinf(theirs)):
        return "unclear"
    return "no" if ours >= theirs else "yes" if ours * times <= theirs else "partly"


def usually(what: str, happens: Any) -> Check:
    """Whether it happens in more than half of the draws, by the sign test."""
    number = int(np.sum(happens))
    sure = sign_test(number, len(happens) - number) <= 0.05
    met: Met = "unclear" if not sure else "yes" if 2 * number > len(happens) else "no"
    return Check(what, met, f"in {number} of {len(happens)} draws")


def geometric_mean(factors: Any) -> Interval:
    """The geometric mean of factors over seeds, and its interval: 0 to inf for one seed."""
    return Interval(*map(float, np.exp(interval(np.log(factors)))))


def factor_text(found: Interval, seeds: int, digits: int = 2) -> str:
    """A factor and its interval over so many seeds."""
    mean, low, high = (number_text(number, digits) for number in found)
    return f"{mean} times (one seed)" if seeds == 1 else f"{mean} [{low}, {high}] times"


def number_text(number: float, digits: int = 0) -> str:
    """A number as text; "never" for inf and "-" for NaN."""
    return f"{number:.{digits}f}" if np.isfinite(number) else "never" if number > 0 else "-"
