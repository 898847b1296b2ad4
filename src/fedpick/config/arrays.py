"""Fields that hold an array, as lists of numbers in files."""

from typing import Any, get_origin

import jax
import numpy as np
from jaxtyping import AbstractArray

from fedpick.config.errors import WrongValueError
from fedpick.text import shown

# What the type names, the array's own type, the kinds of NumPy that it is made from, and the word for them.
FORMS: tuple[tuple[str, Any, str, str], ...] = (
    ("bool", np.bool_, "b", "true or false"),
    ("float", np.float32, "iuf", "numbers"),
    ("int", np.int32, "iu", "whole numbers"),
    ("", np.float32, "iuf", "numbers"),
)


def is_array(annotation: Any) -> bool:
    """Whether a field holds an array: ``Float[Array, " K"]``; ``jax.Array`` and ``np.ndarray`` name no axes."""
    return _names_axes(annotation) or annotation in (jax.Array, np.ndarray) or get_origin(annotation) is np.ndarray


def axes_of(annotation: Any) -> int:
    """The number of axes of such a field; a type that names none is of a vector.

    >>> axes_of(jax.Array)
    1
    """
    return len(annotation.dim_str.split()) if _names_axes(annotation) else 1


def read_array(value: Any, annotation: Any) -> Any:
    """The array of a list.

    Args:
        value: What a file has.
        annotation: The type of the field.

    >>> read_array([1, 2], jax.Array)
    array([1., 2.], dtype=float32)
    >>> from jaxtyping import Int
    >>> read_array([1, 2], Int[jax.Array, " K"])
    array([1, 2], dtype=int32)
    """
    try:
        array = np.asarray(value) if isinstance(value, list) else None
    except ValueError:  # rows of different lengths
        array = None
    types, axes = str(getattr(annotation, "dtypes", "")), axes_of(annotation)
    dtype, kinds, what = next(form for name, *form in FORMS if name in types)
    if array is None or array.dtype.kind not in kinds or array.ndim != axes:
        raise WrongValueError(f"must be {axes}-dimensional, a list of {what}, got {shown(value)}")
    return array.astype(dtype)


def _names_axes(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, AbstractArray)
