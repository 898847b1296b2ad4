"""Mini-batches: which of its own samples a client takes in each step."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from fedpick import sampling

Batches = Literal["distinct", "replace", "epochs"]


def draw_batches(
    key: PRNGKeyArray, count: Int[Array, ""], shape: tuple[int, int], batches: Batches, largest: int
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    """Places within a client's own data for each step, and which of the b slots hold a sample.

    Args:
        key: Random key.
        count: Number of samples of the client.
        shape: (tau, b).
        batches: As for ``Local``.
        largest: The largest number of samples of any client.
    """
    if batches == "replace":
        return sampling.integers(key, shape, count), jnp.ones(shape, bool)
    if batches == "epochs":
        return _epochs(key, count, shape, largest)
    return distinct(key, count, shape)


def distinct(
    key: PRNGKeyArray, count: Int[Array, ""], shape: tuple[int, int]
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    """min(b, count) different places per row, every subset equally likely.

    Floyd's algorithm: slot i draws from 0..last[i], and takes last[i] itself where the draw is taken.

    Args:
        key: Random key.
        count: Number of samples of the client.
        shape: (tau, b).
    """
    b = shape[1]
    number = jnp.minimum(count, b)
    slot = jnp.arange(b, dtype=jnp.int32)
    last = count - number + slot
    drawn = sampling.integers(key, shape, jnp.broadcast_to(jnp.maximum(last, 0)[None, :] + 1, shape))
    # A loop is many kernels on a GPU, and a table of all pairs of slots three times slower than a loop on a CPU.
    chosen = lax.platform_dependent(drawn, last, cpu=_slot_by_slot, default=_all_slots)
    used = jnp.broadcast_to((slot < number)[None, :], shape)
    return jnp.where(used, chosen, 0), used


def _slot_by_slot(drawn: Int[Array, "tau b"], last: Int[Array, " b"]) -> Int[Array, "tau b"]:
    def choose(i: int | Int[Array, ""], chosen: Int[Array, "tau b"]) -> Int[Array, "tau b"]:
        taken = jnp.any(chosen == drawn[:, i][:, None], axis=1)
        return chosen.at[:, i].set(jnp.where(taken, last[i], drawn[:, i]))

    chosen: Int[Array, "tau b"] = lax.fori_loop(0, last.shape[0], choose, jnp.full_like(drawn, -1))
    return chosen


def _all_slots(drawn: Int[Array, "tau b"], last: Int[Array, " b"]) -> Int[Array, "tau b"]:
    """The same at once. A draw is taken when an earlier slot drew it too, or when it is the ``last`` of an earlier slot
    that had to take that: a chain of earlier and earlier slots, followed for all of them in log2(b) doublings."""
    slot = jnp.arange(last.shape[0], dtype=jnp.int32)
    earlier = (slot[:, None] > slot[None, :])[None]
    taken = jnp.any((drawn[:, :, None] == drawn[:, None, :]) & earlier, axis=2)
    owner = drawn - last[0]  # the slot whose ``last`` was drawn
    before = jnp.where((owner >= 0) & (owner < slot[None, :]), owner, slot[None, :])
    for _ in range((last.shape[0] - 1).bit_length()):
        taken |= jnp.take_along_axis(taken, before, axis=1)
        before = jnp.take_along_axis(before, before, axis=1)
    return jnp.where(taken, last[None, :], drawn)


def _epochs(
    key: PRNGKeyArray, count: Int[Array, ""], shape: tuple[int, int], largest: int
) -> tuple[Int[Array, "tau b"], Bool[Array, "tau b"]]:
    tau, b = shape
    per_epoch = -(-count // b)
    step = jnp.arange(tau, dtype=jnp.int32)
    epoch, within = step // per_epoch, step % per_epoch

    def order(epoch: Int[Array, ""]) -> Int[Array, " largest"]:
        lot = sampling.uniforms(jax.random.fold_in(key, epoch), (largest,))
        own = jnp.arange(largest, dtype=jnp.int32) < count
        return jnp.argsort(jnp.where(own, lot, jnp.inf)).astype(jnp.int32)

    place = within[:, None] * b + jnp.arange(b, dtype=jnp.int32)[None, :]
    used = place < count
    index = lax.map(lambda now: order(now[0])[now[1]], (epoch, jnp.where(used, place, 0)))
    return jnp.where(used, index, 0), used
