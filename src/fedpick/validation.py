"""What may be passed in: each rule is one sentence that names the parameter, the rule and the value.

Values that JAX is tracing cannot be looked at; the strategies then clip them or leave the client out, so that a bad
number never becomes a wrong pick.
"""

import operator
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpick.metrics import Numbers
from fedpick.text import shown

MOST_SEEDS = 100_000  # where their number is given


def known(value: Any) -> Numbers | None:
    """The value as numbers, or None where there is nothing to look at: a traced value, a schedule, a placeholder."""
    if isinstance(value, jax.core.Tracer) or not isinstance(
        value, bool | int | float | np.generic | np.ndarray | jax.Array
    ):
        return None
    return np.asarray(value)


def natural(owner: object, name: str, value: Any) -> int:
    """A number that sets a shape, such as m, as a plain int."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{owner_name(owner)}: {name} must be a whole number, got {shown(value)}") from None
    if number < 1:
        raise ValueError(f"{owner_name(owner)}: {name} must be at least 1, got {number}")
    return number


def require(
    owner: object,
    name: str,
    value: Any,
    rule: str,
    holds: Callable[[Numbers], Any],
    whole: bool = False,
    one: bool = False,
) -> None:
    """Raise unless every number in ``value`` keeps the rule; traced values pass. ``one`` refuses arrays."""
    if isinstance(value, jax.core.Tracer):
        return
    numbers = known(value)
    if numbers is None or numbers.dtype.kind not in ("iu" if whole else "iuf") or (one and numbers.ndim):
        raise ValueError(f"{owner_name(owner)}: {name} must be a {'whole ' if whole else ''}number, got {shown(value)}")
    if not np.all(holds(numbers)):
        found = shown(numbers.item() if numbers.ndim == 0 else value)
        raise ValueError(f"{owner_name(owner)}: {name} must be {rule}, got {found}")


def check_kind(owner: object, name: str, value: Any, kind: type[Any], hint: str = "") -> None:
    """Raise unless ``value`` is of this class; the hint follows the name of the class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ValueError(f"{owner_name(owner)}: {name} must be {article} {kind.__name__}{hint}, got {shown(value)}")


def flag(owner: object, name: str, value: Any) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{owner_name(owner)}: {name} must be True or False, got {shown(value)}")


def check_function(owner: object, name: str, value: Any, example: str) -> None:
    """Raise unless ``value`` can be called, and is no class."""
    if isinstance(value, type) or not callable(value):
        raise ValueError(f"{owner_name(owner)}: {name} must be one such as {example}, got {shown(value)}")


def check_texts(owner: object, **texts: Any) -> None:
    """Raise unless each of these is a text."""
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{owner_name(owner)}: {name} must be a text, got {shown(value)}")


def check_path(owner: object, name: str, value: Any) -> None:
    """Raise unless ``value`` can be the path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(value):
        raise ValueError(f"{owner_name(owner)}: {name} must be a path, got {shown(value)}")


def one_of(owner: object, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the words."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(map(repr, choices))
        raise ValueError(f"{owner_name(owner)}: {name} must be one of {words}, got {shown(value)}")


def at_most_clients(owner: object, name: str, value: Any, num_clients: int) -> None:
    """Raise unless a strategy's number (m, d) is a single one, and at most K; traced values and schedules pass."""
    if known(value) is not None:
        K = natural(owner, "num_clients", num_clients)
        require(owner, name, value, f"at most K={K}", lambda n: (n <= K) & (np.ndim(n) == 0), whole=True)


def owner_name(owner: object) -> str:
    """How an owner is called in an error: a text as it is, a class or an object by the name of its class."""
    return owner if isinstance(owner, str) else getattr(owner, "__name__", type(owner).__name__)
