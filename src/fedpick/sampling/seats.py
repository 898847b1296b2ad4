"""From scores to seats: the top, ties broken at random, and selections."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.protocol import Selection
from fedpick.sampling._order import Number, ascending, count, cut, int32, places
from fedpick.sampling.draws import first_k_mask, uniform_keys


def top_k_mask(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], n: Number
) -> Bool[Array, " K"]:
    """The n eligible clients of largest score, ties broken at random, as a mask.

    Args:
        key: Random key, for ties.
        score: Scores; NaN is none.
        eligible: Who may be chosen.
        n: Number of clients; it may be traced.

    >>> top_k_mask(jax.random.key(0), jnp.array([1.0, 9.0, 3.0]), jnp.array([True, False, True]), 1)
    Array([False, False,  True], dtype=bool)
    """
    chosen: Bool[Array, " K"] = _top_k_mask(key, score, eligible, int32(n))
    return chosen


@jax.jit
def _top_k_mask(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], n: Int[Array, ""]
) -> Bool[Array, " K"]:
    # NaN marks the ineligible: in the total order of `ascending` it comes after every number.
    eligible = eligible & ~jnp.isnan(score)
    order = ascending(jnp.where(eligible, -score, jnp.nan))
    before, at, left = cut(order, jnp.minimum(n, count(eligible)))
    tied: Bool[Array, " K"] = lax.cond(
        count(at) == left,
        lambda: at,  # the common case: no lots to draw
        lambda: first_k_mask(uniform_keys(key, at), left),
    )
    return before | tied


def top_k(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], m: int
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The m eligible clients of largest score, ties broken at random, and which of the m seats they fill.

    Args:
        key: Random key, for ties.
        score: Scores; NaN is none.
        eligible: Who may be chosen.
        m: Number of seats; static.

    >>> clients, filled = top_k(jax.random.key(0), jnp.array([1.0, 9.0, 3.0]), jnp.array([True, False, True]), 3)
    >>> sorted(clients[filled].tolist())
    [0, 2]
    """
    # Not lax.top_k: on a CPU it takes twenty times as long when the scores happen to be sorted by client.
    chosen = top_k_mask(key, score, eligible, m)
    seats = jnp.arange(1, m + 1, dtype=jnp.int32)
    clients: Int[Array, " m"] = places(chosen, seats)
    return clients, seats <= count(chosen)


def in_turn(groups: tuple[Bool[Array, " K"], ...], m: int) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The seats of several groups, the first group's before the second's, and which of the m seats they fill.

    Args:
        groups: Who has a seat, as masks that have no client in common.
        m: Number of seats; static.

    >>> in_turn((jnp.array([False, False, True]), jnp.array([True, False, False])), 3)[0]
    Array([ 2,  0, -1], dtype=int32)
    """
    chosen = functools.reduce(jnp.logical_or, groups)
    seats = jnp.arange(1, m + 1, dtype=jnp.int32)
    clients = places(chosen, jnp.where(seats <= count(chosen), seats, 0))
    turn = jnp.where(clients < 0, len(groups), 0)
    for number, group in enumerate(groups):
        turn = turn + jnp.where((clients >= 0) & group[clients], number, 0)
    return clients[jnp.argsort(turn, stable=True)], seats <= count(chosen)


def seat(clients: Int[Array, " m"], filled: Bool[Array, " m"]) -> Selection:
    """A selection that averages its filled seats plainly, as the paper does: the draw already went by size.

    Args:
        clients: The client of each seat.
        filled: Which seats have one.

    >>> seat(jnp.array([4, 1]), jnp.array([True, False]))
    Selection(clients=Array([ 4, -1], dtype=int32), weights=Array([1., 0.], dtype=float32))
    """
    selection: Selection = _seat(clients, filled)
    return selection


@jax.jit
def _seat(clients: Int[Array, " m"], filled: Bool[Array, " m"]) -> Selection:
    share = jnp.float32(1) / jnp.maximum(count(filled), 1).astype(jnp.float32)
    return weighted(clients, jnp.where(filled, share, jnp.float32(0)))


def weighted(clients: Int[Array, " m"], weights: Float[Array, " m"]) -> Selection:
    """A selection with these weights.

    Args:
        clients: The client of each seat.
        weights: Its weight in the average; a seat of weight 0 is empty.

    >>> weighted(jnp.array([4, 1]), jnp.array([0.0, 0.7])).clients
    Array([-1,  1], dtype=int32)
    """
    return Selection(jnp.where(weights > 0, clients, -1).astype(jnp.int32), weights)


def seat_by_size(clients: Int[Array, " m"], filled: Bool[Array, " m"], size: Float[Array, " K"]) -> Selection:
    """A selection that averages its filled seats by size, as federated averaging does after a uniform draw.

    Args:
        clients: The client of each seat.
        filled: Which seats have one.
        size: D_k of all clients.

    >>> seat_by_size(jnp.array([2, 0, 1]), jnp.array([True, True, False]), jnp.array([1.0, 5.0, 3.0])).weights
    Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    return weighted(clients, shares(jnp.where(filled, size[clients], jnp.float32(0))))


def shares(clients_weight: Float[Array, " K"]) -> Float[Array, " K"]:
    """p_k: each client's part of the total, all 0 where there is nothing.

    >>> shares(jnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    total = clients_weight.sum()
    return clients_weight / jnp.where(total > 0, total, jnp.float32(1))
