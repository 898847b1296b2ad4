"""What a server measures of an update, the local model less the global one: its norm, a sketch, its head."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedpick.protocol import Selector, needs
from fedpick.validation import owner_name

SKETCH_SEED = 20_210_612  # one projection for all: sketches of different rounds, runs and servers compare


def norm(update: Sequence[Array]) -> Float[Array, ""]:
    """The Euclidean norm over all parameters.

    >>> norm([jnp.array([3.0]), jnp.array([[4.0]])])
    Array(5., dtype=float32)
    """
    total: Float[Array, ""] = sum((jnp.sum(jnp.square(part)) for part in update), start=jnp.float32(0))
    return jnp.sqrt(total)


def sketch(update: Sequence[Array], size: int) -> Float[Array, " size"]:
    """A random projection that keeps inner products on average: a count sketch.

    Every parameter has a random sign and one of ``size`` equally filled buckets, and each bucket sums what it holds.

    Args:
        update: The arrays of the update.
        size: Length of the sketch.

    >>> sketch([jnp.ones((10, 10))], size=4).shape
    (4,)
    """
    flat = jnp.concatenate([jnp.ravel(part) for part in update])
    P = flat.shape[0]
    rng = np.random.Generator(np.random.PCG64(SKETCH_SEED))
    order = rng.permutation(P).astype(np.int32)
    sign = jnp.asarray(rng.integers(0, 2, P, np.int8) * np.int8(2) - np.int8(1)).astype(jnp.float32)
    # A sum over rows and not a scatter, whose order of addition a GPU does not fix.
    rows = jnp.pad(flat[order] * sign, (0, -P % size)).reshape(-1, size)
    return jnp.sum(rows, axis=0)


def head(update: Sequence[Array]) -> Float[Array, " C"]:
    """The update of the output bias: the last array with one axis.

    >>> head([jnp.zeros(3), jnp.zeros((3, 2)), jnp.array([1.0, 2.0])])
    Array([1., 2.], dtype=float32)
    """
    vectors = [part for part in update if part.ndim == 1]
    if not vectors:
        shapes = [part.shape for part in update]
        raise ValueError(f"updates: the model must have an output bias, an array with one axis, got shapes {shapes}")
    return vectors[-1]


def measure(selector: Selector[Any], update: Sequence[Array], bias: Array | None = None) -> dict[str, Array]:
    """What a strategy needs of an update.

    Args:
        selector: The strategy.
        update: The arrays of the update, in the order of their names: a sketch depends on it.
        bias: The update of the output bias; by default the last array with one axis.
    """
    wanted, found = needs(selector), {}
    if "norm" in wanted:
        found["norm"] = norm(update)
    if "sketch" in wanted:
        found["sketch"] = sketch(update, lengths(selector)["sketch"])
    if "head" in wanted:
        found["head"] = head(update) if bias is None else bias
        expected = lengths(selector)["head"]
        if found["head"].shape != (expected,):
            length = found["head"].shape[0]
            raise ValueError(
                f"{owner_name(selector)}: classes must be {length}, the model's output biases, got {expected}"
            )
    return found


def lengths(selector: Any) -> dict[str, int]:
    """The length of each measured vector that a strategy needs: a sketch, a head."""
    declared = {"sketch": "sketch_size", "head": "classes"}
    return {name: int(getattr(selector, field)) for name, field in declared.items() if name in needs(selector)}
