"""The target of a comparison that is given none: what runs of the baseline reach, and most do not begin with."""

from collections.abc import Callable, Sequence

import numpy as np

from fedpick.metrics import Numbers
from fedpick.text import counted


def default_target(values: Numbers, rises: bool, says_nothing: Callable[[float], bool]) -> float:
    """What every run of the baseline reaches, rounded to three digits; runs in which nothing was measured say nothing.

    Where most runs begin with it, it is the easiest that one of them reaches and most do not begin with, if there is
    any.

    Args:
        values: The metric of the baseline's runs at each evaluation, [R, E]; NaN where it was not measured, as
            federations may measure another one more often.
        rises: Whether higher is better.
        says_nothing: Whether most runs begin with a value.

    >>> default_target(np.array([[1.0, 0.5], [1.0, 0.7001]]), False, lambda value: value >= 1)
    0.701
    >>> default_target(np.array([[1.0, 0.5], [3.0, 2.0]]), False, lambda value: value >= 1)
    0.5
    >>> stays = np.full((1, 61), np.float32(0.9347826))  # as of a model that always gives the most frequent label
    >>> bool(default_target(stays, True, lambda value: value <= stays[0, 0]) <= stays[0, 0])
    True
    >>> default_target(np.array([[0.1, 0.4, np.nan, 0.6, np.nan]]), True, lambda value: value <= 0.1)
    0.6
    """
    sign = -1 if rises else 1
    signed = sign * np.asarray(values, float)  # better the lower it is; in float32 the mean of equal values is another
    measured = [run[np.isfinite(run)] for run in signed if np.isfinite(run).any()]
    # The best of many noisy accuracies is luck, and the baseline's luck must not be the target: its last quarter.
    ends = [float(run[-max(1, len(run) // 4) :].mean() if rises else run.min()) for run in measured]
    easiest = sorted(set(ends), reverse=True) or [np.inf]
    found = [sign * _rounded(end, signed[:, 0].min()) + 0.0 for end in easiest]  # not -0
    return next((each for each in found if not says_nothing(each)), found[0])


def _rounded(end: float, first: float) -> float:
    """A value that is no lower, of as few digits as lie below the best of the first models."""
    if not np.isfinite(end) or end == 0:
        return end
    for digits in range(2, 7):
        unit = 10.0 ** (np.floor(np.log10(abs(end))) - digits)
        rounded = float(f"{np.ceil(end / unit) * unit:.{digits + 4}g}")
        if not rounded >= first:
            return rounded
    return end


def says_nothing(rounds: Sequence[Numbers]) -> bool:
    """Whether most runs are at a target before any training.

    Args:
        rounds: Rounds to the target of each strategy, one for each of its runs.

    >>> says_nothing([np.array([0.0, 0.0]), np.array([0.0, 5.0])]), says_nothing([np.array([0.0, 5.0])])
    (True, False)
    """
    return bool(2 * begun(rounds) > sum(map(len, rounds)))


def at_once(rounds: Sequence[Numbers], first: int) -> str:
    """That all runs get there by their first evaluation, and no sooner, so that nothing tells them apart; else "".

    Args:
        rounds: Rounds to the target of each strategy, one for each of its runs.
        first: The round of the first evaluation after training.

    >>> at_once([np.array([2.0, 4.0])], 2)
    ''
    """
    if not all(bool((each == first).all()) for each in rounds):
        return ""
    when = f"by the first evaluation, after {counted(first, 'round')}"
    return f" Every run gets there {when}, which tells nothing apart: give a target that is farther off."


def begun(rounds: Sequence[Numbers]) -> int:
    """How many runs are there."""
    return sum(int((each == 0).sum()) for each in rounds)
