"""Values of runs: the labels by which they differ, and numbers that some of them have in common."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np


def is_value(known: Any, value: Any) -> bool:
    """Whether a run has this value: whole numbers and texts are the same, others to the digits of a float32.

    >>> is_value(20240101, 20240102), is_value(0.1, np.float32(0.1)), is_value("rand", 6)
    (False, True, False)
    """
    if isinstance(known, float | np.floating) or isinstance(value, float | np.floating):
        return isinstance(known, Real) and isinstance(value, Real) and math.isclose(known, value, rel_tol=1e-6)
    return bool(np.array_equal(known, value))


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
