"""Order statistics and whole parts of a number of clients."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedpick.sampling._order import Number, ascending, count, cut, int32


def nth_smallest(values: Float[Array, " K"], among: Bool[Array, " K"], n: Number) -> Float[Array, ""]:
    """The n-th smallest value of some of the clients, NaN left out; the largest if there are fewer, NaN if none.

    Args:
        values: A number per client.
        among: Whose values count.
        n: The rank, from 1; it may be traced.

    >>> nth_smallest(jnp.array([4.0, 1.0, 3.0, 2.0]), jnp.array([True, False, True, True]), 2)
    Array(3., dtype=float32)
    """
    found: Float[Array, ""] = _nth_smallest(values, among, int32(n))
    return found


@jax.jit
def _nth_smallest(values: Float[Array, " K"], among: Bool[Array, " K"], n: Int[Array, ""]) -> Float[Array, ""]:
    among = among & ~jnp.isnan(values)
    number = count(among)
    order = ascending(jnp.where(among, values, jnp.nan))
    _, at, _ = cut(order, jnp.clip(n, 1, jnp.maximum(number, 1)))
    return jnp.where(number > 0, jnp.max(values, where=at & among, initial=-jnp.inf), jnp.nan)


def fill_unknown(values: Float[Array, " K"]) -> Float[Array, " K"]:
    """Facts with every NaN replaced by the (lower) median of the known ones, or by 0 where none is known.

    Args:
        values: A number per client.

    >>> fill_unknown(jnp.array([4.0, jnp.nan, 1.0, 2.0]))
    Array([4., 2., 1., 2.], dtype=float32)
    """
    filled: Float[Array, " K"] = _fill_unknown(values)
    return filled


@jax.jit
def _fill_unknown(values: Float[Array, " K"]) -> Float[Array, " K"]:
    known = ~jnp.isnan(values)
    number = count(known)
    filled: Float[Array, " K"] = lax.cond(
        known.all(),
        lambda: values,
        lambda: jnp.where(known, values, jnp.nan_to_num(nth_smallest(values, known, (number + 1) // 2), nan=0.0)),
    )
    return filled


def portion(fraction: float | Float[Array, ""], n: Number) -> Int[Array, ""]:
    """floor(fraction * n), not one less where float32 falls just short of a whole number.

    Args:
        fraction: A number of at least 0; it may be traced.
        n: How many there are; it may be traced.

    >>> portion(0.7, 10)
    Array(7, dtype=int32)
    """
    exact = jnp.asarray(fraction, jnp.float32) * int32(n).astype(jnp.float32)
    nearest = jnp.round(exact)
    slack = jnp.maximum(jnp.float32(1e-5), exact * jnp.float32(2.0**-23))
    return jnp.where(jnp.abs(exact - nearest) <= slack, nearest, jnp.floor(exact)).astype(jnp.int32)


def size_bound(
    size: Float[Array, " K"], factor: float | Float[Array, ""] = 2.0, liars: float = 0.1
) -> Float[Array, ""]:
    """The most that a client's claim of its size may count: ``factor`` times the largest size that is surely honest.

    That is the largest one but for a share ``liars`` of the clients, and at least one of them, who may claim anything:
    whatever they claim, no client counts more than ``factor`` times the largest honest one. With fewer than three
    clients nobody can be told from the others, and the bound is infinite.

    Args:
        size: What each client claims; 0 for those that do not count.
        factor: Times the largest size that is surely honest.
        liars: The share of clients that may claim anything.

    >>> size_bound(jnp.array([10.0, 1e12, 40.0, 20.0]))
    Array(80., dtype=float32)
    """
    has = size > 0
    n = count(has)
    rank = n - jnp.maximum(portion(liars, n), 1)
    bound = jnp.asarray(factor, jnp.float32) * nth_smallest(size, has, rank)
    return jnp.where(n >= 3, bound, jnp.float32(jnp.inf))
