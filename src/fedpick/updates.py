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


def head(update: Sequence[Array], classes: int) -> Float[Array, " C"]:
    """The update of the output bias: the array with one axis that has a number for each class.

    Args:
        update: The arrays of the update.
        classes: Number of labels.

    >>> head([jnp.zeros(3), jnp.zeros((3, 2)), jnp.array([1.0, 2.0])], classes=2)
    Array([1., 2.], dtype=float32)
    """
    biases = [part for part in update if part.shape == (classes,)]
    if len(biases) != 1:
        shapes = ", ".join(str(part.shape) for part in update)
        rule = f"have one array of shape ({classes},), its output bias"
        why = "; another layer must have another width" if biases else ""
        raise ValueError(f"updates: the model must {rule}{why}, got shapes {shapes}")
    return biases[0]


def measure(
    selector: Selector[Any], update: Sequence[Array], bias: Array | None = None, labels: int | None = None
) -> dict[str, Array]:
    """What a strategy needs of an update.

    Args:
        selector: The strategy.
        update: The arrays of the update, in the order of their names: a sketch depends on it.
        bias: The update of the output bias, where it is known; by default it is found by its length.
        labels: The number of labels, where it is known.
    """
    wanted, found = needs(selector), {}
    if "norm" in wanted:
        found["norm"] = norm(update)
    if "sketch" in wanted:
        found["sketch"] = sketch(update, lengths(selector)["sketch"])
    if "head" in wanted:
        classes = lengths(selector)["head"]
        if labels not in (None, classes):
            raise ValueError(f"{owner_name(selector)}: classes must be {labels}, the labels of the data, got {classes}")
        found["head"] = head(update if bias is None else [bias], classes)
    return found


def lengths(selector: Any) -> dict[str, int]:
    """The length of each measured vector that a strategy needs: a sketch, a head."""
    declared = {"sketch": "sketch_size", "head": "classes"}
    return {name: int(getattr(selector, field)) for name, field in declared.items() if name in needs(selector)}
