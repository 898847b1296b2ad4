"""Checks that compare the results of two strategies, seed by seed: accuracy, rounds, time and losses."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from fedpick.paper.claims import (
    AS_WELL,
    Check,
    Met,
    about,
    above_bound,
    above_zero,
    as_much,
    at_least,
    factor_text,
    fewer_rounds,
    geometric_mean,
    number_text,
)
from fedpick.report import ChartRow, dot
from fedpick.results import Interval, Result, Spread, interval, median_interval

FEWEST = 6  # values whose least and largest hold the median with 95 %: 1 - 2 / 2^6


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
    size = f"about {points:g}" if most is None else f"about {points:g} to {most:g}"
    size = f"at least about {points:g}" if most == np.inf else size
    return Check(f"{what}: {size} points more", about(difference, points, most=most), f"{difference} points")


def gain_of_at_least(what: str, better: Result, base: Result, points: float) -> Check:
    """Whether ``better`` surely ends this many points of accuracy above ``base``, or more."""
    difference = interval(accuracy(better) - accuracy(base))
    return Check(f"{what}: at least {points:g} points more", at_least(difference, points), f"{difference} points")


def slightly_above(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` ends with a higher accuracy than ``base``, by two points at most."""
    difference = interval(accuracy(better) - accuracy(base))
    met = above_zero(difference)
    met = "partly" if met == "yes" and difference.mean > AS_WELL else met
    return Check(f"{what}, slightly", met, f"{difference} points")


def above(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` ends with a higher accuracy than ``base``."""
    return positive(what, accuracy(better) - accuracy(base), "points")


def positive(what: str, differences: Any, unit: str, bound: str = "") -> Check:
    """Whether differences over seeds are above 0; the evidence begins with ``bound``, such as "at most "."""
    difference = interval(differences)
    return Check(what, above_zero(difference), f"{bound}{difference} {unit}")


def as_well(what: str, one: Result, other: Result) -> Check:
    """Whether two strategies end within two points of accuracy of each other."""
    difference = interval(accuracy(one) - accuracy(other))
    return Check(what, as_much(difference), f"{difference} points")


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
    own, difference = Spread.of(ours).mean, mean_difference(ours, mean, deviation, seeds)
    return Check(what, as_much(difference), f"{own:.1f} against {mean:.1f}: {difference} points")


def mean_difference(ours: NDArray[Any], mean: float, deviation: float, seeds: int) -> Interval:
    """The mean of our runs less a published one, with Welch's 95 % interval; the arguments are ``equal_means``'."""
    own, spread = Spread.of(ours)
    parts = [spread**2 / len(ours), deviation**2 / seeds]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / max(1, len(ours) - 1) + parts[1] ** 2 / (seeds - 1))
    half = float(special.stdtrit(freedom, 0.975) * np.sqrt(sum(parts))) if len(ours) > 1 else np.inf
    return Interval(own - mean, own - mean - half, own - mean + half)


def factor_above_one(what: str, factors: Any, claimed: float | None = None) -> Check:
    """Whether the geometric mean of factors over seeds is above 1, and about what is claimed."""
    found = geometric_mean(factors)
    met = above_bound(found, 1.0) if claimed is None else about(found, claimed, none=1.0)
    return Check(what, met, factor_text(found, len(factors)))


def rounds_until(result: Result, share: float = 0.6) -> float:
    """The first evaluated round at which the test accuracy, averaged over the seeds, reaches the share: R60 for 0.6."""
    return first(result.evaluated, result.metric("test_accuracy").mean(axis=0) >= share)


def first(rounds: Any, reached: Any) -> float:
    """The round of the first True, or inf."""
    return float(rounds[np.argmax(reached)]) if np.any(reached) else float("inf")


def sooner(what: str, better: Result, base: Result, share: float = 0.6) -> Check:
    """Whether ``better`` reaches the accuracy in fewer rounds than ``base``, by the mean over the seeds."""
    ours, theirs = rounds_until(better, share), rounds_until(base, share)
    numbers = f"{number_text(ours)} against {number_text(theirs)} rounds to {share:.0%}"
    return Check(what, fewer_rounds(ours, theirs, len(base.runs)), numbers)


def much_lower_loss(what: str, better: Result, base: Result, times: float = 2.0) -> Check:
    """Whether ``better`` reaches the last loss of ``base`` in this many times fewer rounds, by the mean curves."""
    ours, theirs = (result.metric("loss").mean(axis=0) for result in (better, base))
    reached = first(better.evaluated, ours <= theirs[-1])
    last = float(base.evaluated[-1])
    numbers = f"{number_text(reached)} against {number_text(last)} rounds to a loss of {theirs[-1]:.3f}"
    return Check(what, fewer_rounds(reached, last, len(base.runs), times=times), numbers)


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
    found, counted = speed_up(better, base, "test_accuracy", share, clock=True)
    return Check(what, above_bound(found, 1.0), speed_up_text(found, counted, len(base.runs)))


def speed_up(better: Result, base: Result, metric: str, value: float, *, clock: bool = False) -> tuple[Interval, int]:
    """Rounds to the value, ``base`` over ``better``: median over seeds, its interval, and the number of seeds counted.

    A seed counts where at least one of the two reaches it; inf where only ``better`` does, 0 where only ``base``. With
    ``clock`` it is the simulated time instead of the rounds. Fewer than six seeds leave the median anywhere.
    """
    ours, theirs = (
        result.seconds_to(metric, value) if clock else result.rounds_to(metric, value) for result in (better, base)
    )
    counts = np.isfinite(ours) | np.isfinite(theirs)
    if not counts.any():
        return Interval(float("nan"), 0.0, float("inf")), 0
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isinf(ours), 0.0, theirs / np.maximum(ours, 1e-9 if clock else 1))[counts]
    median, low, high = median_interval(ratios)
    counted = len(ratios)
    return (Interval(median, low, high) if counted >= FEWEST else Interval(median, 0.0, float("inf"))), counted


def speed_up_text(found: Interval, counted: int, draws: int) -> str:
    """A speed-up, its interval, and the draws that have none."""
    if counted == 0:
        return f"neither gets there in any of {draws} draws"
    few = "one draw" if counted == 1 else f"{counted} draws"
    numbers = f"{number_text(found.mean, 2)} times ({few})" if counted < FEWEST else factor_text(found, counted)
    left = draws - counted
    return numbers + (f"; neither gets there in {left} of {draws} draws" if left else "")
