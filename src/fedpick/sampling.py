"""The moves that strategies are made of: run a race, draw with replacement, take the top, break ties, fill seats.

**The race.** Client k arrives after E_k / w_k, with E_k a standard exponential. The first d to arrive are d draws
without replacement with probability proportional to w: successive sampling, the law of
``numpy.random.Generator.choice(replace=False, p=w)``. Every function costs O(K), and d may be traced.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from fedpick.protocol import Selection

Number = int | Int[Array, ""]
FEW = 1024  # up to here a sort costs less than 32 passes


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, " ..."]:
    """Uniform on (0, 1), on a grid of 2^-31 near zero, where the race is decided.

    The usual float32 uniform has a grid of 2^-23: among a million clients the front runners would share a few values,
    and a zero would win whatever its weight.

    >>> bool((uniforms(jax.random.key(0), (1000,)) > 0).all())
    True
    """
    numbers: Float[Array, " ..."] = _uniforms(key, shape)
    return numbers


# What is jitted here is one program in a plain Python loop over rounds, and traced once for all strategies.
@functools.partial(jax.jit, static_argnums=1)
def _uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, " ..."]:
    # Via int32, because CPUs convert signed integers to float in one vector instruction.
    whole = (jax.random.bits(key, shape, jnp.uint32) >> jnp.uint32(1)).astype(jnp.int32).astype(jnp.float32)
    return jnp.minimum((whole + jnp.float32(0.5)) * jnp.float32(2.0**-31), jnp.float32(1 - 2.0**-24))


def integers(key: PRNGKeyArray, shape: tuple[int, ...], below: Int[Array, " ..."]) -> Int[Array, " ..."]:
    """Uniform whole numbers in 0..below-1, each within below / 2^32 of its probability; ``below`` may be traced.

    >>> bool((integers(jax.random.key(0), (1000,), jnp.int32(3)) == jnp.arange(1000) % 3).any())
    True
    """
    # The high word of bits * below, from products of 16-bit halves, which fit in 32 bits.
    bits, n = jax.random.bits(key, shape, jnp.uint32), below.astype(jnp.uint32)
    half, low = jnp.uint32(16), jnp.uint32(0xFFFF)
    middle = (bits >> half) * (n & low) + (((bits & low) * (n & low)) >> half)
    carry = (middle & low) + (bits & low) * (n >> half)
    high: UInt[Array, " ..."] = (bits >> half) * (n >> half) + (middle >> half) + (carry >> half)
    return high.astype(jnp.int32)


def exponentials(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, " ..."]:
    """Standard exponentials, never 0 and never infinite.

    >>> bool(abs(exponentials(jax.random.key(0), (10_000,)).mean() - 1) < 0.05)
    True
    """
    return -jnp.log1p(-uniforms(key, shape))


def arrivals(key: PRNGKeyArray, weight: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """When each client arrives in a race by weight; without weight it never does (+inf).

    >>> arrivals(jax.random.key(0), jnp.array([1.0, 0.0]))[1]
    Array(inf, dtype=float32)
    """
    arrival: Float[Array, "... K"] = _arrivals(key, weight)
    return arrival


@jax.jit
def _arrivals(key: PRNGKeyArray, weight: Float[Array, "... K"]) -> Float[Array, "... K"]:
    return jnp.where(weight > 0, exponentials(key, weight.shape) / weight, jnp.inf)


def uniform_keys(key: PRNGKeyArray, eligible: Bool[Array, " K"]) -> Float[Array, " K"]:
    """A lot for everyone eligible, for a race with equal chances; the others never arrive (+inf).

    >>> uniform_keys(jax.random.key(0), jnp.array([True, False]))[1]
    Array(inf, dtype=float32)
    """
    return jnp.where(eligible, uniforms(key, eligible.shape), jnp.inf)


def first_k_mask(arrival: Float[Array, " K"], d: Number) -> Bool[Array, " K"]:
    """The first d to arrive, fewer if fewer ever do.

    >>> first_k_mask(jnp.array([0.3, 0.1, jnp.inf, 0.2]), 2)
    Array([False,  True, False,  True], dtype=bool)
    """
    first: Bool[Array, " K"] = _first_k_mask(arrival, _int32(d))
    return first


@jax.jit
def _first_k_mask(arrival: Float[Array, " K"], d: Int[Array, ""]) -> Bool[Array, " K"]:
    runs = arrival < jnp.inf
    before, at, left = _cut(_ascending(arrival), jnp.minimum(d, _count(runs)))
    last = _places(at, left[None])[0]
    mask: Bool[Array, " K"] = before | (at & (lax.iota(jnp.int32, at.shape[0]) <= last))
    return mask


def race(key: PRNGKeyArray, weight: Float[Array, " K"], d: Number) -> Bool[Array, " K"]:
    """d draws without replacement with probability proportional to weight, as a mask.

    >>> race(jax.random.key(0), jnp.array([5.0, 1.0, 0.0]), 2)
    Array([ True,  True, False], dtype=bool)
    """
    return first_k_mask(arrivals(key, weight), d)


def draw(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    """m draws with replacement with probability proportional to weight.

    Two races each, over about sqrt(K) runners: for the row of a square table of clients by its total, then for the
    client in that row. A cumulative sum in float32 would be off by a tenth at a million clients.

    >>> draw(jax.random.key(0), jnp.array([0.0, 1.0, 0.0]), 4)
    Array([1, 1, 1, 1], dtype=int32)
    """
    drawn: Int[Array, " m"] = _draw(key, weight, m)
    return drawn


@functools.partial(jax.jit, static_argnums=2)
def _draw(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    table = _table(weight)
    rows, width = table.shape
    row_key, column_key = jax.random.split(key)
    totals = jnp.broadcast_to(table.sum(axis=1), (m, rows))
    row: Int[Array, " m"] = lax.argmin(arrivals(row_key, totals), 1, jnp.int32)
    column: Int[Array, " m"] = lax.argmin(arrivals(column_key, table[row]), 1, jnp.int32)
    return row * width + column


def top_k_mask(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], n: Number
) -> Bool[Array, " K"]:
    """The n eligible clients of largest score, ties broken at random, as a mask; n may be traced. NaN is no score.

    >>> top_k_mask(jax.random.key(0), jnp.array([1.0, 9.0, 3.0]), jnp.array([True, False, True]), 1)
    Array([False, False,  True], dtype=bool)
    """
    chosen: Bool[Array, " K"] = _top_k_mask(key, score, eligible, _int32(n))
    return chosen


@jax.jit
def _top_k_mask(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], n: Int[Array, ""]
) -> Bool[Array, " K"]:
    # NaN marks the ineligible: in the total order of `_ascending` it comes after every number.
    eligible = eligible & ~jnp.isnan(score)
    order = _ascending(jnp.where(eligible, -score, jnp.nan))
    before, at, left = _cut(order, jnp.minimum(n, _count(eligible)))
    tied: Bool[Array, " K"] = lax.cond(
        _count(at) == left,
        lambda: at,  # the common case: no lots to draw
        lambda: first_k_mask(uniform_keys(key, at), left),
    )
    return before | tied


def top_k(
    key: PRNGKeyArray, score: Float[Array, " K"], eligible: Bool[Array, " K"], m: int
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The m eligible clients of largest score, ties at random, and which of the m seats they fill. NaN is no score.

    >>> clients, filled = top_k(jax.random.key(0), jnp.array([1.0, 9.0, 3.0]), jnp.array([True, False, True]), 3)
    >>> sorted(clients[filled].tolist())
    [0, 2]
    """
    # Not lax.top_k: on a CPU it takes twenty times as long when the scores happen to be sorted by client.
    chosen = top_k_mask(key, score, eligible, m)
    seats = jnp.arange(1, m + 1, dtype=jnp.int32)
    places: Int[Array, " m"] = _places(chosen, seats)
    return places, seats <= _count(chosen)


def first_k(arrival: Float[Array, " K"], m: int) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The first m to arrive, in order, and which of the m seats they fill.

    >>> first_k(jnp.array([0.3, 0.1, jnp.inf, 0.2]), 2)[0]
    Array([1, 3], dtype=int32)
    """
    rank, clients = lax.top_k(-arrival, m)
    return clients, rank > -jnp.inf


def seat(clients: Int[Array, " m"], filled: Bool[Array, " m"]) -> Selection:
    """A selection that averages its filled seats plainly, as the paper does: the draw already went by size.

    >>> seat(jnp.array([4, 1]), jnp.array([True, False]))
    Selection(clients=Array([ 4, -1], dtype=int32), weights=Array([1., 0.], dtype=float32))
    """
    selection: Selection = _seat(clients, filled)
    return selection


@jax.jit
def _seat(clients: Int[Array, " m"], filled: Bool[Array, " m"]) -> Selection:
    share = jnp.float32(1) / jnp.maximum(_count(filled), 1).astype(jnp.float32)
    return weighted(clients, jnp.where(filled, share, jnp.float32(0)))


def weighted(clients: Int[Array, " m"], weights: Float[Array, " m"]) -> Selection:
    """A selection with these weights; a seat of weight 0 is empty.

    >>> weighted(jnp.array([4, 1]), jnp.array([0.0, 0.7])).clients
    Array([-1,  1], dtype=int32)
    """
    return Selection(jnp.where(weights > 0, clients, -1).astype(jnp.int32), weights)


def shares(clients_weight: Float[Array, " K"]) -> Float[Array, " K"]:
    """p_k: each client's part of the total, all 0 where there is nothing.

    >>> shares(jnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    total = clients_weight.sum()
    return clients_weight / jnp.where(total > 0, total, jnp.float32(1))


def _cut(order: UInt[Array, " K"], n: Int[Array, ""]) -> tuple[Bool[Array, " K"], Bool[Array, " K"], Int[Array, ""]]:
    """The n smallest: who is surely among them, who is tied at the border, and how many of the tied still belong."""
    border = _nth_smallest(order, n)
    before, at = order < border, order == border
    return before, at, n - _count(before)


@jax.jit
def _nth_smallest(order: UInt[Array, " K"], n: Int[Array, ""]) -> UInt[Array, ""]:
    """Found bit by bit from the top: 32 passes that count. A few clients are sorted instead, in one go."""
    if order.shape[0] <= FEW:
        return jnp.where(n > 0, jnp.sort(order)[jnp.maximum(n, 1) - 1], jnp.uint32(0))

    def step(i: int | Int[Array, ""], border: UInt[Array, ""]) -> UInt[Array, ""]:
        higher = border | (jnp.uint32(1 << 31) >> jnp.asarray(i, jnp.uint32))
        return jnp.where(_count(order < higher) < n, higher, border)

    border: UInt[Array, ""] = lax.fori_loop(0, 32, step, jnp.uint32(0))
    return border


@jax.jit
def _places(mask: Bool[Array, " K"], ranks: Int[Array, " n"]) -> Int[Array, " n"]:
    """Where the first, second, ... True stands, for each rank asked; -1 for rank 0.

    Counts by row of the square table, then within the row: one pass over K, and no cumulative sum of all of it.
    """
    table = _table(mask)
    rows, width = table.shape
    in_row = table.sum(axis=1, dtype=jnp.int32)
    so_far = jnp.cumsum(in_row, dtype=jnp.int32)
    row = jnp.minimum(jnp.searchsorted(so_far, ranks, method="scan_unrolled").astype(jnp.int32), rows - 1)
    rank_in_row = ranks - (so_far[row] - in_row[row])
    reached = jnp.cumsum(table[row], axis=1, dtype=jnp.int32) >= rank_in_row[:, None]
    return jnp.where(ranks > 0, row * width + lax.argmax(reached, 1, jnp.int32), -1)


def _table(x: Array) -> Array:
    """The clients in rows of a square table, filled up with zeros."""
    K = x.shape[0]
    width = math.isqrt(K - 1) + 1
    rows = -(-K // width)
    return jnp.pad(x, (0, rows * width - K)).reshape(rows, width)


def _ascending(x: Float[Array, " K"]) -> UInt[Array, " K"]:
    """Unsigned integers in the order of the floats, -0 equal to 0, NaN last."""
    x = jnp.where(x == 0, jnp.float32(0), jnp.where(jnp.isnan(x), jnp.float32(jnp.nan), x))
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> jnp.uint32(31) == 1, ~bits, bits | jnp.uint32(1 << 31))


def _count(mask: Bool[Array, " K"]) -> Int[Array, ""]:
    return jnp.sum(mask, dtype=jnp.int32)


def _int32(n: Number) -> Int[Array, ""]:
    return jnp.asarray(n, jnp.int32)
