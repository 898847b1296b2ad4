"""Polls: what the candidates answer about a given model, by kind."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.protocol import client_key, seat_key
from fedpick.sim.blocks import block_size
from fedpick.sim.federation import Federation
from fedpick.sim.local import Local, train_seats
from fedpick.sim.minibatches import distinct
from fedpick.sim.models import Model, Params, barrier
from fedpick.sim.parts import finite, holder, means, samples_of, so_far
from fedpick.updates import norm

POLL_BLOCK = 2048  # samples at a time in a poll, at most
MOST_PARTS = 256  # of them, since each is compared with each
ASKED_BLOCK = 8  # clients at a time in a poll by mini-batch


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
    K, size = federation.num_clients, federation.part_size
    counts = jnp.where(asked, federation.count, 0)
    parts = -(-counts // size)
    ends = so_far(parts)
    lanes = block_size(federation, model, params, POLL_BLOCK) // size
    lane = jnp.arange(min(MOST_PARTS, max(1, lanes)), dtype=jnp.int32)

    def block(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        first, shift, total = carry
        client = holder(ends, first + lane)
        nth = first + lane - (ends[client] - parts[client])  # of the client's parts
        sample, real = samples_of(federation, client, nth, size)
        real &= (first + lane < ends[-1])[:, None]
        x, y = federation.prepare(federation.inputs(sample)), federation.y[sample]
        mean, number = means(barrier(model.losses(params, x, y, None)).reshape(real.shape), real)
        shift = shift.at[jnp.where((nth == 0) & (number > 0), client, K)].set(finite(mean), mode="drop")
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
        sample = federation.locate(federation.start[client] + index[0])
        losses = model.losses(params, federation.prepare(federation.inputs(sample)), federation.y[sample], None)
        return means(losses[None], used)[0][0]

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
    rank = so_far(asked.astype(jnp.int32))

    def block(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        first, answers = carry
        place = first + jnp.arange(ASKED_BLOCK, dtype=jnp.int32)
        client = holder(rank, place)
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
