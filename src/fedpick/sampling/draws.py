"""Random draws: uniforms and integers, the race, draws with replacement."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from fedpick.sampling._order import Number, ascending, count, cut, int32, places, table


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, " ..."]:
    """Uniform on (0, 1), on a grid of 2^-31 near zero, where the race is decided.

    The usual float32 uniform has a grid of 2^-23: among a million clients the front runners would share a few values,
    and a zero would win whatever its weight.

    Args:
        key: Random key.
        shape: Shape of the array.

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
    """Uniform whole numbers in 0..below-1, each within below / 2^32 of its probability.

    Args:
        key: Random key.
        shape: Shape of the array.
        below: Upper bound, exclusive: one, or one per entry; it may be traced.

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

    Args:
        key: Random key.
        shape: Shape of the array.

    >>> bool(abs(exponentials(jax.random.key(0), (10_000,)).mean() - 1) < 0.05)
    True
    """
    return -jnp.log1p(-uniforms(key, shape))


def arrivals(key: PRNGKeyArray, weight: Float[Array, "... K"]) -> Float[Array, "... K"]:
    """When each client arrives in a race by weight; without weight it never does (+inf).

    Args:
        key: Random key.
        weight: Weights, at least 0.

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

    Args:
        key: Random key.
        eligible: Who takes part.

    >>> uniform_keys(jax.random.key(0), jnp.array([True, False]))[1]
    Array(inf, dtype=float32)
    """
    return jnp.where(eligible, uniforms(key, eligible.shape), jnp.inf)


def first_k_mask(arrival: Float[Array, " K"], d: Number) -> Bool[Array, " K"]:
    """The first d to arrive, fewer if fewer ever do, as a mask.

    Args:
        arrival: Times of arrival, +inf for never.
        d: Number of clients; it may be traced.

    >>> first_k_mask(jnp.array([0.3, 0.1, jnp.inf, 0.2]), 2)
    Array([False,  True, False,  True], dtype=bool)
    """
    first: Bool[Array, " K"] = _first_k_mask(arrival, int32(d))
    return first


@jax.jit
def _first_k_mask(arrival: Float[Array, " K"], d: Int[Array, ""]) -> Bool[Array, " K"]:
    runs = arrival < jnp.inf
    before, at, left = cut(ascending(arrival), jnp.minimum(d, count(runs)))
    last = places(at, left[None])[0]
    mask: Bool[Array, " K"] = before | (at & (lax.iota(jnp.int32, at.shape[0]) <= last))
    return mask


def race(key: PRNGKeyArray, weight: Float[Array, " K"], d: Number) -> Bool[Array, " K"]:
    """d draws without replacement with probability proportional to weight, as a mask.

    Args:
        key: Random key.
        weight: Weights, at least 0; a client without weight is never drawn.
        d: Number of draws; it may be traced.

    >>> race(jax.random.key(0), jnp.array([5.0, 1.0, 0.0]), 2)
    Array([ True,  True, False], dtype=bool)
    """
    return first_k_mask(arrivals(key, weight), d)


def draw(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    """m draws with replacement with probability proportional to weight.

    Two races each, over about sqrt(K) runners: for the row of a square table of clients by its total, then for the
    client in that row. A cumulative sum in float32 would be off by a tenth at a million clients.

    Args:
        key: Random key.
        weight: Weights, at least 0; a client without weight is never drawn.
        m: Number of draws; static.

    >>> draw(jax.random.key(0), jnp.array([0.0, 1.0, 0.0]), 4)
    Array([1, 1, 1, 1], dtype=int32)
    """
    drawn: Int[Array, " m"] = _draw(key, weight, m)
    return drawn


@functools.partial(jax.jit, static_argnums=2)
def _draw(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    square = table(weight)
    rows, width = square.shape
    row_key, column_key = jax.random.split(key)
    totals = jnp.broadcast_to(square.sum(axis=1), (m, rows))
    row: Int[Array, " m"] = lax.argmin(arrivals(row_key, totals), 1, jnp.int32)
    column: Int[Array, " m"] = lax.argmin(arrivals(column_key, square[row]), 1, jnp.int32)
    return row * width + column


def first_k(arrival: Float[Array, " K"], m: int) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The first m to arrive, in order, and which of the m seats they fill.

    Args:
        arrival: Times of arrival, +inf for never.
        m: Number of seats; static.

    >>> first_k(jnp.array([0.3, 0.1, jnp.inf, 0.2]), 2)[0]
    Array([1, 3], dtype=int32)
    """
    rank, clients = lax.top_k(-arrival, m)
    return clients, rank > -jnp.inf
