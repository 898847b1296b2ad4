"""Means over clients' data, which are evaluated in parts of a few samples: in an order that is always the same."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedpick.sim.federation import Federation

TRIANGLE = 256  # clients, up to which a table of all pairs is small


def samples_of(
    federation: Federation, client: Int[Array, " n"], nth: Int[Array, " n"], size: int
) -> tuple[Int[Array, " samples"], Bool[Array, "n size"]]:
    """The rows of the samples in the nth part of each client, and which of them are not beyond its last."""
    place = (nth * size)[:, None] + jnp.arange(size, dtype=jnp.int32)[None, :]
    real = place < federation.count[client][:, None]
    return federation.locate(jnp.where(real, federation.start[client][:, None] + place, 0)).reshape(-1), real


def so_far(x: Int[Array, " K"]) -> Int[Array, " K"]:
    """The cumulative sum; of few numbers by a table of all pairs, which on a GPU is one pass instead of many."""
    K = x.shape[0]
    if K > TRIANGLE:
        return jnp.cumsum(x, dtype=jnp.int32)
    order = jnp.arange(K, dtype=jnp.int32)
    total: Int[Array, " K"] = jnp.where(order[:, None] >= order[None, :], x[None, :], 0).sum(axis=1, dtype=jnp.int32)
    return total


def holder(ends: Int[Array, " K"], place: Int[Array, " n"]) -> Int[Array, " n"]:
    """The client at each place of a line on which client k's places end before ends[k]; the last one beyond it."""
    client = jnp.searchsorted(ends, place, side="right", method="scan_unrolled")
    return jnp.minimum(client.astype(jnp.int32), ends.shape[0] - 1)


def means(x: Float[Array, "n part"], real: Bool[Array, "n part"]) -> tuple[Float[Array, " n"], Int[Array, " n"]]:
    """Means over the real entries of each row, as the first plus the mean difference from it; and their number.

    Equal losses, as at a model of zeros, then have equal means. Rounding would rank clients that are tied.
    """
    number = real.sum(axis=1, dtype=jnp.int32)
    first = finite(x[:, 0])
    off = jnp.where(real, x - first[:, None], jnp.float32(0)).sum(axis=1)
    return first + off / jnp.maximum(number, 1).astype(jnp.float32), number


def finite(x: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """The value, or 0 where it is not finite."""
    return jnp.where(jnp.isfinite(x), x, jnp.float32(0))
