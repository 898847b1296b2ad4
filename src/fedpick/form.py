"""The form of what a strategy gives: a mask from ``propose``, a Selection of m seats from ``select``."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.text import shown
from fedpick.validation import known, owner_name

WEIGHTS = "weights that are finite and at least 0"


class FormError(ValueError):
    """A strategy has not the form of one: the sentence names the class, the part, the rule and what was given."""


def check_mask(owner: str, mask: Any, K: int) -> Any:
    """A mask of K clients, which it must be: the numbers of some clients are none.

    Args:
        owner: Who gives it, such as "Mine.propose".
        mask: What was given.
        K: The number of clients.

    >>> check_mask("Mine.propose", np.array([True, False]), 2)
    array([ True, False])
    """
    if getattr(mask, "shape", None) != (K,) or mask.dtype != bool:
        raise FormError(f"{owner} must give a mask bool[{K}], True for each client that is meant, got {form_of(mask)}")
    return mask


def check_selection(selector: Any, selection: Any, K: int) -> Any:
    """The Selection of m seats that ``select`` gave, which it must be.

    Args:
        selector: The strategy.
        selection: What it gave.
        K: The number of clients.
    """
    m = K if selector.m is None else selector.m
    rule = f"{owner_name(selector)}.select must give a Selection of m={m} clients and weights"
    if getattr(selection, "_fields", None) != ("clients", "weights"):
        raise FormError(f"{rule}, got {form_of(selection)}")
    shapes = [getattr(part, "shape", None) for part in selection]
    if None in shapes:
        raise FormError(f"{rule}, which are arrays, got {form_of(selection)}")
    if shapes != [(m,), (m,)]:
        raise FormError(f"{rule}, got shapes {shapes[0]} and {shapes[1]}")
    clients, weights = (part.dtype for part in selection)
    if not (jnp.issubdtype(clients, jnp.integer) and jnp.issubdtype(weights, jnp.floating)):
        raise FormError(f"{rule}, int32 and float32, got {clients} and {weights}")
    return selection


@contextlib.contextmanager
def state_errors(selector: Any, state: Any, K: int) -> Iterator[None]:
    """Where a strategy fails on a state of another form than ``init`` gives, such as another strategy's, say so.

    Args:
        selector: The strategy.
        state: What it is given.
        K: The number of clients.
    """
    try:
        yield
    except (AttributeError, TypeError, LookupError) as error:
        first = selector.init(K)
        structures: list[Any] = [jax.tree.structure(first), jax.tree.structure(state)]
        if structures[0] == structures[1]:
            raise
        rule = f"state must be of the form that init gives, {form_of(first)}"
        raise FormError(f"{owner_name(selector)}: {rule}, got {form_of(state)}") from error


def check_answers(selector: Any, answers: Any, K: int) -> Any:
    """The answers to a poll as float32: a number for each of K clients, which they must be.

    Args:
        selector: The strategy.
        answers: What the poll gave.
        K: The number of clients.
    """
    name = owner_name(selector)
    try:
        losses = jnp.asarray(answers, jnp.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: losses must be numbers, NaN for silence, got {shown(answers)}") from None
    if losses.shape != (K,):
        raise ValueError(f"{name}: losses must have shape (K,) = {(K,)}, got shape {losses.shape}")
    return losses


def check_weights(selector: Any, weights: Any) -> None:
    """Raise where a weight is negative or not finite; those that JAX is tracing cannot be looked at.

    Args:
        selector: The strategy.
        weights: Those of its seats.
    """
    numbers = known(weights)
    if numbers is not None and not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise FormError(f"{owner_name(selector)}.select must give {WEIGHTS}, got {shown(numbers)}")


def form_of(value: Any) -> str:
    """What a value is, in short: the dtype and shape of an array, the parts of a tuple.

    >>> form_of((np.zeros(3, np.float32), None))
    '(float32[3], None)'
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, tuple | list):
        names = [f"{name}=" for name in getattr(value, "_fields", ())] or [""] * len(value)
        inside = ", ".join(name + form_of(part) for name, part in zip(names, value, strict=True))
        kind = "" if type(value) in (tuple, list) else type(value).__name__
        return f"{kind}[{inside}]" if isinstance(value, list) else f"{kind}({inside})"
    return shown(value)
