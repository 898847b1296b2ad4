"""Losses of clients at a given model: of the candidates (a poll), or of all clients (an evaluation)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.protocol import client_key, seat_key
from fedpick.sim.batches import distinct
from fedpick.sim.blocks import block_size
from fedpick.sim.federation import Federation
from fedpick.sim.local import Local, train_seats
from fedpick.sim.models import Model, Params, barrier
from fedpick.updates import norm

POLL_BLOCK = 2048  # samples at a time in a poll, at most
MOST_PARTS = 256  # of them, since each is compared with each
TRIANGLE = 256  # clients, up to which a table of all pairs is small
ASKED_BLOCK = 8  # clients at a time in a poll by mini-batch
EVALUATION_BLOCK = 4096  # samples at a time in an evaluation of everything


class Evaluation(NamedTuple):
    """The metrics of a model; ``fedpick.sim.round.evaluate`` defines ``skew``."""

    loss: Float[Array, ""]
    client_loss: Float[Array, " K"]
    client_accuracy: Float[Array, " K"]
    test_loss: Float[Array, ""]
    test_accuracy: Float[Array, ""]
    skew: Float[Array, ""]


def full_losses(
    federation: Federation, model: Model, params: Params, *, asked: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """F_k(w), the mean over all local data, of the clients asked; NaN for the others.

    Their data are evaluated in blocks of parts, in a loop whose length is traced: the cost grows with the number of
    samples asked for, not with K.

    Args:
        federation: The clients and their data.
        model: The model.
        params: The global model's parameters w.
        asked: The clients that are polled.

    >>> from fedpick.sim import Quadratic, QuadraticModel
    >>> federation = Quadratic(K=3).federation()
    >>> model = QuadraticModel().build(federation)
    >>> losses = full_losses(federation, model, model.init(jax.random.key(0)), asked=jnp.array([True, False, True]))
    >>> jnp.isnan(losses).tolist()
    [False, True, False]
    """
    K, size = federation.num_clients, _part(federation)
    counts = jnp.where(asked, federation.count, 0)
    parts = -(-counts // size)
    ends = _so_far(parts)
    lanes = block_size(federation, model, params, POLL_BLOCK) // size
    lane = jnp.arange(min(MOST_PARTS, max(1, lanes)), dtype=jnp.int32)

    def block(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        first, shift, total = carry
        client = _holder(ends, first + lane)
        nth = first + lane - (ends[client] - parts[client])  # of the client's parts
        sample, real = _samples(federation, client, nth, size)
        real &= (first + lane < ends[-1])[:, None]
        x, y = federation.prepare(federation.x[sample]), federation.y[sample]
        mean, number = _means(barrier(model.losses(params, x, y, None)).reshape(real.shape), real)
        shift = shift.at[jnp.where((nth == 0) & (number > 0), client, K)].set(_finite(mean), mode="drop")
        off = number.astype(jnp.float32) * (mean - shift[client])
        # One sum per client, added at its first place in the block: an order of addition that is always the same.
        same = client[:, None] == client[None, :]
        here = jnp.where(same, jnp.where(number > 0, off, jnp.float32(0))[None, :], jnp.float32(0)).sum(axis=1)
        leads = ~jnp.any(same & (lane[:, None] > lane[None, :]), axis=1)
        return first + lane.shape[0], shift, total.at[jnp.where(leads, client, K)].add(here, mode="drop")

    none = jnp.zeros(K, jnp.float32)
    _, shift, total = lax.while_loop(lambda carry: carry[0] < ends[-1], block, (jnp.int32(0), none, none))
    return jnp.where(asked, shift + total / jnp.maximum(counts, 1).astype(jnp.float32), jnp.nan)


def batch_losses(
    federation: Federation, model: Model, params: Params, *, asked: Bool[Array, " K"], b: int, key: PRNGKeyArray
) -> Float[Array, " K"]:
    """The mean over one fresh mini-batch of min(b, D_k) samples of the clients asked; NaN for the others.

    Args:
        federation: The clients and their data.
        model: The model.
        params: The global model's parameters w.
        asked: The clients that are polled.
        b: The size of the mini-batch.
        key: The round's key for polls.
    """

    def one(client: Int[Array, ""]) -> Float[Array, ""]:
        index, used = distinct(client_key(key, client), federation.count[client], (1, b))
        sample = federation.start[client] + index[0]
        losses = model.losses(params, federation.prepare(federation.x[sample]), federation.y[sample], None)
        return _means(losses[None], used)[0][0]

    return _ask_each(asked, jax.vmap(one))


def update_norms(
    federation: Federation,
    model: Model,
    local: Local,
    *,
    params: Params,
    asked: Bool[Array, " K"],
    key: PRNGKeyArray,
    t: Int[Array, ""],
) -> Float[Array, " K"]:
    """The norms of the updates of the clients asked, each of which trains for its answer; NaN for the others.

    Args:
        federation: The clients and their data.
        model: The model.
        local: Local training.
        params: The global model's parameters w.
        asked: The clients that are polled.
        key: The round's key for training: in seat 0, a client trains to the same model.
        t: The round, for the learning rate.
    """

    def some(clients: Int[Array, " n"]) -> Float[Array, " n"]:
        own = jax.vmap(lambda client: seat_key(key, 0, client))(clients)
        trained = train_seats(federation, model, local, params=params, clients=clients, keys=own, t=t)
        return jax.vmap(lambda new: norm(jax.tree.leaves(jax.tree.map(jnp.subtract, new, params))))(trained.params)

    return _ask_each(asked, some)


def _ask_each(asked: Bool[Array, " K"], some: Callable[[Any], Float[Array, " n"]]) -> Float[Array, " K"]:
    """The answer of each client asked, a few at a time, in a loop whose length is traced; NaN for the others."""
    K = asked.shape[0]
    rank = _so_far(asked.astype(jnp.int32))

    def block(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        first, answers = carry
        place = first + jnp.arange(ASKED_BLOCK, dtype=jnp.int32)
        client = _holder(rank, place)
        losses = barrier(some(client))
        return first + ASKED_BLOCK, answers.at[jnp.where(place < rank[-1], client, K)].set(losses, mode="drop")

    start = (jnp.int32(0), jnp.full(K, jnp.nan, jnp.float32))
    answers: Float[Array, " K"] = lax.while_loop(lambda carry: carry[0] < rank[-1], block, start)[1]
    return answers


class PollKind(NamedTuple):
    """A kind of poll: the answers of the clients asked, and the number of samples that each evaluates for it.

    Where it ``trains``, these are samples to train on, and a client that is selected sends what it has trained.
    """

    answers: Callable[..., Float[Array, " K"]]  # as update_norms
    samples: Callable[[Int[Array, " K"], Local], Int[Array, " K"]]
    trains: bool = False


POLLS = {
    "full": PollKind(
        lambda federation, model, local, *, params, asked, key, t: full_losses(federation, model, params, asked=asked),
        samples=lambda count, local: count,
    ),
    "batch": PollKind(
        lambda federation, model, local, *, params, asked, key, t: batch_losses(
            federation, model, params, asked=asked, b=local.b, key=key
        ),
        samples=lambda count, local: jnp.minimum(count, local.b),
    ),
    "norm": PollKind(update_norms, samples=lambda count, local: local.samples(count), trains=True),
}


def evaluate_clients(
    federation: Federation, model: Model, params: Params
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """The loss and accuracy of every client over all its data."""
    K, count, size, samples = federation.num_clients, federation.count, _part(federation), federation.y.shape[0]
    parts = -(-count // size)
    ends = _so_far(parts)
    at_once = block_size(federation, model, params, EVALUATION_BLOCK) // size
    number, lanes = _even(samples if size == 1 else samples // size + K, at_once)
    owner = jnp.repeat(jnp.arange(K, dtype=jnp.int32), parts, total_repeat_length=number * lanes)
    nth = jnp.arange(number * lanes, dtype=jnp.int32) - (ends - parts)[owner]

    def block(part: tuple[Int[Array, " n"], Int[Array, " n"]]) -> tuple[Array, Array, Array]:
        client, nth = part
        sample, real = _samples(federation, client, nth, size)
        losses, right = _outcomes(model, params, federation.prepare(federation.x[sample]), federation.y[sample])
        loss, used = _means(losses.reshape(real.shape), real)
        return loss, _means(right.reshape(real.shape), real)[0], used

    by_part = lax.map(block, (owner.reshape(number, lanes), nth.reshape(number, lanes)))
    loss, accuracy, used = jax.tree.map(lambda x: x.reshape(-1), by_part)

    def mean(x: Float[Array, " parts"]) -> Float[Array, " K"]:
        # Sums of sums: a float32 that adds up a hundred thousand numbers one by one is wrong in the fourth digit.
        shift = _finite(x[ends - parts])
        off = jnp.where(used > 0, used.astype(jnp.float32) * (x - shift[owner]), jnp.float32(0))
        total = jax.ops.segment_sum(barrier(off), owner, K, indices_are_sorted=True)
        return shift + total / count.astype(jnp.float32)

    return mean(loss), mean(accuracy)


def evaluate_test_set(
    federation: Federation, model: Model, params: Params
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean loss and accuracy on the test set; NaN where there is none."""
    samples = federation.test_y.shape[0]
    if samples == 0:
        return jnp.float32(jnp.nan), jnp.float32(jnp.nan)
    number, size = _even(samples, block_size(federation, model, params, EVALUATION_BLOCK))

    def block(first: Int[Array, ""]) -> tuple[Array, Array]:
        start = jnp.minimum(first, samples - size)  # the last block overlaps; only its new samples count
        x = federation.prepare(lax.dynamic_slice_in_dim(federation.test_x, start, size))
        losses, right = _outcomes(model, params, x, lax.dynamic_slice_in_dim(federation.test_y, start, size))
        new = start + jnp.arange(size, dtype=jnp.int32) >= first
        return jnp.where(new, losses, jnp.float32(0)).sum(), jnp.where(new, right, jnp.float32(0)).sum()

    loss, right = lax.map(block, size * jnp.arange(number, dtype=jnp.int32))
    return loss.sum() / samples, right.sum() / samples


def _outcomes(model: Model, params: Params, x: Array, y: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The loss of each sample, and 1 where its label is predicted."""
    losses, right = model.losses(params, x, y, None), (model.predict(params, x) == y).astype(jnp.float32)
    outcomes: tuple[Array, Array] = barrier((losses, right))
    return outcomes


def _even(number: int, at_once: int) -> tuple[int, int]:
    """The number and size of blocks of about ``at_once``, such that the last one is nearly full."""
    blocks = -(-number // max(1, at_once))
    return blocks, -(-number // blocks)


def _part(federation: Federation) -> int:
    """The number of samples of a client that are summed at a time: a power of two, small against what it holds."""
    mean = federation.y.shape[0] // federation.num_clients
    exponent = mean.bit_length() - 1 if mean < 8 else max(3, (mean // 32).bit_length() - 1)
    return 1 << min(6, exponent)


def _samples(
    federation: Federation, client: Int[Array, " n"], nth: Int[Array, " n"], size: int
) -> tuple[Int[Array, " samples"], Bool[Array, "n size"]]:
    """The indices of the samples in the nth part of each client, and which of them are not beyond its last."""
    place = (nth * size)[:, None] + jnp.arange(size, dtype=jnp.int32)[None, :]
    real = place < federation.count[client][:, None]
    return jnp.where(real, federation.start[client][:, None] + place, 0).reshape(-1), real


def _so_far(x: Int[Array, " K"]) -> Int[Array, " K"]:
    """The cumulative sum; of few numbers by a table of all pairs, which on a GPU is one pass instead of many."""
    K = x.shape[0]
    if K > TRIANGLE:
        return jnp.cumsum(x, dtype=jnp.int32)
    order = jnp.arange(K, dtype=jnp.int32)
    total: Int[Array, " K"] = jnp.where(order[:, None] >= order[None, :], x[None, :], 0).sum(axis=1, dtype=jnp.int32)
    return total


def _holder(ends: Int[Array, " K"], place: Int[Array, " n"]) -> Int[Array, " n"]:
    """The client at each place of a line on which client k's places end before ends[k]; the last one beyond it."""
    client = jnp.searchsorted(ends, place, side="right", method="scan_unrolled")
    return jnp.minimum(client.astype(jnp.int32), ends.shape[0] - 1)


def _means(x: Float[Array, "n part"], real: Bool[Array, "n part"]) -> tuple[Float[Array, " n"], Int[Array, " n"]]:
    """Means over the real entries of each row, as the first plus the mean difference from it; and their number.

    Equal losses, as at a model of zeros, then have equal means. Rounding would rank clients that are tied.
    """
    number = real.sum(axis=1, dtype=jnp.int32)
    first = _finite(x[:, 0])
    off = jnp.where(real, x - first[:, None], jnp.float32(0)).sum(axis=1)
    return first + off / jnp.maximum(number, 1).astype(jnp.float32), number


def _finite(x: Float[Array, " ..."]) -> Float[Array, " ..."]:
    """The value, or 0 where it is not finite."""
    return jnp.where(jnp.isfinite(x), x, jnp.float32(0))
