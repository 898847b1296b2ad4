"""Losses of clients at a given model: of the candidates only (a poll), or of everybody (a metric)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.protocol import client_key
from fedpick.sim.federation import Federation
from fedpick.sim.local import distinct
from fedpick.sim.models import Model, Params

POLL_BLOCK = 1024  # samples at a time in a poll
ASKED_BLOCK = 8  # clients at a time in a poll by mini-batch
SUM_PART = 256  # samples added up at a time
TEST_BLOCK = 8192  # samples at a time in an evaluation of everything


class Evaluation(NamedTuple):
    """How good a model is. ``skew`` is explained in ``fedpick.sim.loop.evaluate``."""

    loss: Float[Array, ""]
    client_loss: Float[Array, " K"]
    client_accuracy: Float[Array, " K"]
    test_loss: Float[Array, ""]
    test_accuracy: Float[Array, ""]
    skew: Float[Array, ""]


def full_losses(federation: Federation, model: Model, params: Params, asked: Bool[Array, " K"]) -> Float[Array, " K"]:
    """F_k(w), the mean over all local data, of the clients asked; NaN for the others.

    The samples of those asked are lined up and taken in blocks, in a loop as long as they need: the cost grows with the
    number of samples asked for, not with K.
    """
    K = federation.num_clients
    clients = jnp.flatnonzero(asked, size=K, fill_value=0).astype(jnp.int32)
    counts = jnp.where(jnp.arange(K, dtype=jnp.int32) < jnp.sum(asked, dtype=jnp.int32), federation.count[clients], 0)
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    starts = ends - counts

    def block(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        first, shift, total = carry
        place = first + jnp.arange(POLL_BLOCK, dtype=jnp.int32)
        row = jnp.minimum(jnp.searchsorted(ends, place, side="right").astype(jnp.int32), K - 1)
        real = place < ends[-1]
        sample = jnp.where(real, federation.start[clients[row]] + place - starts[row], 0)
        x, y = federation.prepare(federation.x[sample]), federation.y[sample]
        losses = _settled(model.losses(params, x, y, None))
        shift = shift.at[jnp.where(real & (place == starts[row]), row, K)].set(_finite(losses), mode="drop")
        here = jnp.zeros(K, jnp.float32).at[row].add(jnp.where(real, losses - shift[row], jnp.float32(0)))
        return first + POLL_BLOCK, shift, total + here

    none = jnp.zeros(K, jnp.float32)
    _, shift, total = lax.while_loop(lambda carry: carry[0] < ends[-1], block, (jnp.int32(0), none, none))
    mean = shift + total / jnp.maximum(counts, 1).astype(jnp.float32)
    return jnp.full(K, jnp.nan, jnp.float32).at[jnp.where(counts > 0, clients, K)].set(mean, mode="drop")


def batch_losses(
    federation: Federation, model: Model, params: Params, asked: Bool[Array, " K"], b: int, key: PRNGKeyArray
) -> Float[Array, " K"]:
    """The mean over one fresh mini-batch of min(b, D_k) samples of the clients asked; NaN for the others."""
    K = federation.num_clients
    clients = jnp.flatnonzero(asked, size=K, fill_value=0).astype(jnp.int32)
    number = jnp.sum(asked, dtype=jnp.int32)

    def one(client: Int[Array, ""]) -> Float[Array, ""]:
        index, used = distinct(client_key(key, client), federation.count[client], (1, b))
        sample = federation.start[client] + index[0]
        losses = model.losses(params, federation.prepare(federation.x[sample]), federation.y[sample], None)
        shift = _finite(losses[0])
        return shift + jnp.where(used[0], losses - shift, jnp.float32(0)).sum() / used[0].sum(dtype=jnp.float32)

    def block(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        first, answers = carry
        place = first + jnp.arange(ASKED_BLOCK, dtype=jnp.int32)
        client = clients[jnp.minimum(place, K - 1)]
        losses = _settled(jax.vmap(one)(client))
        return first + ASKED_BLOCK, answers.at[jnp.where(place < number, client, K)].set(losses, mode="drop")

    start = (jnp.int32(0), jnp.full(K, jnp.nan, jnp.float32))
    answers: Float[Array, " K"] = lax.while_loop(lambda carry: carry[0] < number, block, start)[1]
    return answers


def everybody(federation: Federation, model: Model, params: Params) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Loss and accuracy of every client over all its data."""
    losses, right = _by_sample(federation, model, params, federation.x, federation.y)
    client = jnp.repeat(
        jnp.arange(federation.num_clients, dtype=jnp.int32), federation.count, total_repeat_length=len(federation.y)
    )
    # Sums of sums: a float32 that adds up a hundred thousand numbers one by one would be wrong in the fourth digit.
    place = jnp.arange(len(federation.y), dtype=jnp.int32) - federation.start[client]
    parts = -(-federation.count // SUM_PART)
    first_part = jnp.cumsum(parts, dtype=jnp.int32) - parts
    number = len(federation.y) // SUM_PART + federation.num_clients
    owner = jnp.repeat(jnp.arange(federation.num_clients, dtype=jnp.int32), parts, total_repeat_length=number)

    def mean(x: Float[Array, " N"]) -> Float[Array, " K"]:
        shift = _finite(x[federation.start])
        part = jax.ops.segment_sum(x - shift[client], first_part[client] + place // SUM_PART, number)
        real = jnp.arange(number, dtype=jnp.int32) < parts.sum(dtype=jnp.int32)
        total = jax.ops.segment_sum(jnp.where(real, part, jnp.float32(0)), owner, federation.num_clients)
        return shift + total / federation.count.astype(jnp.float32)

    return mean(losses), mean(right)


def on_test_set(federation: Federation, model: Model, params: Params) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean loss and accuracy on the test set; NaN where there is none."""
    if federation.test_y.shape[0] == 0:
        return jnp.float32(jnp.nan), jnp.float32(jnp.nan)
    losses, right = _by_sample(federation, model, params, federation.test_x, federation.test_y)
    return losses.mean(), right.mean()


def _finite(shift: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """A client's first loss, from which the differences of its others are added up; 0 where it is not finite.

    Where all losses are equal, as at a model of zeros, so are then their means. Otherwise rounding would rank clients
    that are tied, and no lot would be drawn.
    """
    return jnp.where(jnp.isfinite(shift), shift, jnp.float32(0))


def _settled(x: Any) -> Any:
    """The same numbers, computed once: without it XLA may compute them again for every element of a sum over them."""
    return lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


def _by_sample(
    federation: Federation, model: Model, params: Params, x: Array, y: Array
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Loss and whether the label is right, by sample, in blocks."""
    number = y.shape[0]
    size = min(TEST_BLOCK, number)
    firsts = jnp.minimum(jnp.arange(0, number, size, dtype=jnp.int32), number - size)  # the last block overlaps

    def block(first: Int[Array, ""]) -> tuple[Array, Array]:
        xs = federation.prepare(lax.dynamic_slice_in_dim(x, first, size))
        ys = lax.dynamic_slice_in_dim(y, first, size)
        return model.losses(params, xs, ys, None), (model.predict(params, xs) == ys).astype(jnp.float32)

    blocks: tuple[Array, Array] = lax.map(block, firsts)

    def whole(parts: Array) -> Array:
        head = parts[:-1].reshape(-1)
        return jnp.concatenate([head, parts[-1][size - (number - head.shape[0]) :]])

    return _settled(whole(blocks[0])), _settled(whole(blocks[1]))
