"""Values of runs: the labels by which they differ, and numbers that some of them have in common."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from fedpick.metrics import Numbers
from fedpick.text import shown
from fedpick.validation import one_of


def named_metrics(metrics: Sequence[Any], known: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics to plot, each one of those that are known."""
    for metric in metrics:
        one_of("Result", "metric", metric, known)
    return tuple(metrics)


def counted_evaluations(where: Any, number: int) -> Numbers:
    """Which of so many evaluations count; all of them for None."""
    chosen = np.ones(number, bool) if where is None else np.asarray(where)
    if chosen.dtype != bool or chosen.shape != (number,):
        rule = f"True or False for each of the {number} evaluations"
        raise ValueError(f"Result: where must be {rule}, got {shown(where)}")
    return chosen


def is_value(known: Any, value: Any) -> bool:
    """Whether a run has this value: whole numbers and texts are the same, others to the digits of a float32.

    >>> is_value(20240101, 20240102), is_value(0.1, np.float32(0.1)), is_value("rand", 6)
    (False, True, False)
    """
    if isinstance(known, float | np.floating) or isinstance(value, float | np.floating):
        return isinstance(known, Real) and isinstance(value, Real) and math.isclose(known, value, rel_tol=1e-6)
    return bool(np.array_equal(known, value))


def has_values(run: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a run has all of these values.

    >>> has_values({"seed": 0, "d": 6}, {"d": 6}), has_values({"seed": 0}, {"d": 6})
    (True, False)
    """
    return all(name in run and is_value(run[name], value) for name, value in values.items())


def as_table(runs: Sequence[Mapping[str, Any]], rounds: Numbers, measured: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """What was measured, [R, rounds], as columns of one table, with the labels of each run beside it.

    Args:
        runs: The labels of each run.
        rounds: The rounds in which it was measured.
        measured: A table for each metric.
    """
    columns = {"round": np.tile(rounds, len(runs))} | {name: x.ravel() for name, x in measured.items()}
    named = {
        f"run.{name}" if name in columns else name: np.repeat(labels(run[name] for run in runs), len(rounds))
        for name in runs[0]
    }
    return named | columns


def labels(values: Iterable[Any]) -> list[Any]:
    """Values of a column; lists as texts.

    >>> labels([6, [1, 2]])
    [6, '[1, 2]']
    """
    return [str(value) if isinstance(value, list | tuple) else value for value in values]


def of_rows(value: Any, keep: list[int]) -> Any:
    """What these rows have of a number, or of one for each row; one number where it is the same for all.

    >>> of_rows(np.array([8, 8, 40]), [0, 1]), of_rows(8, [0])
    (8, 8)
    """
    if np.ndim(value) == 0:
        return value
    found = np.unique(value[keep])
    return found[0].item() if len(found) == 1 else value[keep]
