"""What may be passed in: each rule is one sentence that names the parameter, the rule and the value.

Values that JAX is tracing cannot be looked at; the strategies then clip them or leave the client out, so that a bad
number never becomes a wrong pick.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedpick.protocol import Clients


def known(value: Any) -> np.ndarray[Any, Any] | None:
    """The value as numbers, or None where there is nothing to look at: a traced value, a schedule, a placeholder."""
    if isinstance(value, jax.core.Tracer) or not isinstance(
        value, bool | int | float | np.generic | np.ndarray | Array
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
        raise ValueError(f"{_name(owner)}: {name} must be a whole number, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{_name(owner)}: {name} must be at least 1, got {number}")
    return number


def require(
    owner: object, name: str, value: Any, rule: str, holds: Callable[[np.ndarray[Any, Any]], Any], whole: bool = False
) -> None:
    """Raise unless every number in ``value`` keeps the rule; traced values pass."""
    if isinstance(value, jax.core.Tracer):
        return
    numbers = known(value)
    if numbers is None or numbers.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"{_name(owner)}: {name} must be a {'whole ' if whole else ''}number, got {value!r}")
    if not np.all(holds(numbers)):
        shown = numbers.item() if numbers.ndim == 0 else value
        raise ValueError(f"{_name(owner)}: {name} must be {rule}, got {shown!r}")


def flag(owner: object, name: str, value: Any) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{_name(owner)}: {name} must be True or False, got {value!r}")


def one_of(owner: object, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of the words."""
    if value not in choices:
        words = ", ".join(map(repr, choices))
        raise ValueError(f"{_name(owner)}: {name} must be one of {words}, got {value!r}")


def facts(owner: object, clients: Clients, distinct: int = 1) -> Clients:
    """The facts, checked and in pinned dtypes; ``distinct`` is how many different clients the strategy needs."""
    name = _name(owner)
    size, available = (x if hasattr(x, "shape") else np.asarray(x) for x in clients)
    if size.ndim != 1 or size.shape[0] < 1:
        raise ValueError(f"{name}: size must have shape (K,) with K at least 1, got shape {size.shape}")
    if available.shape != size.shape:
        raise ValueError(f"{name}: available must have shape (K,) = {size.shape}, got shape {available.shape}")
    if available.dtype != bool:
        raise ValueError(f"{name}: available must be Bool[K], got dtype {available.dtype}")
    if size.shape[0] < distinct:
        raise ValueError(f"{name}: m must be at most K={size.shape[0]}, got {distinct}")
    numbers = known(size)
    if numbers is not None:
        if not jnp.issubdtype(numbers.dtype, jnp.number):
            raise ValueError(f"{name}: size must be numbers, got dtype {numbers.dtype}")
        bad = ~((numbers == 0) | ((numbers >= 1e-30) & (numbers <= 1e30)))
        if bad.any():
            k = int(bad.argmax())
            raise ValueError(f"{name}: size must be 0 or between 1e-30 and 1e30, got {numbers[k]} for client {k}")
        if not numbers.any():
            raise ValueError(f"{name}: size must be above 0 for at least one client, got all zero")
        size = numbers.astype(np.float32)  # before JAX, which would cut 64 bits to 32
    size = jnp.asarray(size).astype(jnp.float32)
    usable = (size >= 1e-30) & (size <= 1e30)
    return Clients(jnp.where(usable, size, jnp.float32(0)), jnp.asarray(available))


def answers(
    owner: object, clients: Clients, candidates: Bool[Array, " K"], losses: Float[Array, " K"]
) -> tuple[Bool[Array, " K"], Float[Array, " K"]]:
    """The candidates who are available and what they answered, checked and in pinned dtypes."""
    for name, value in (("candidates", candidates), ("losses", losses)):
        if jnp.shape(value) != clients.size.shape:
            expected = f"must have shape (K,) = {clients.size.shape}"
            raise ValueError(f"{_name(owner)}: {name} {expected}, got shape {jnp.shape(value)}")
    if jnp.asarray(candidates).dtype != bool:
        raise ValueError(f"{_name(owner)}: candidates must be Bool[K], got dtype {jnp.asarray(candidates).dtype}")
    return jnp.asarray(candidates, bool) & clients.available, jnp.asarray(losses, jnp.float32)


def _name(owner: object) -> str:
    return owner if isinstance(owner, str) else getattr(owner, "__name__", type(owner).__name__)
