"""The n smallest of K numbers and the places of a mask, in O(K)."""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

Number = int | Int[Array, ""]
FEW = 1024  # up to here a sort costs less than 32 passes


def cut(order: UInt[Array, " K"], n: Int[Array, ""]) -> tuple[Bool[Array, " K"], Bool[Array, " K"], Int[Array, ""]]:
    """The n smallest: who is surely among them, who is tied at the border, and how many of the tied still belong."""
    border = _nth_smallest(order, n)
    before, at = order < border, order == border
    return before, at, n - count(before)


@jax.jit
def _nth_smallest(order: UInt[Array, " K"], n: Int[Array, ""]) -> UInt[Array, ""]:
    """Found bit by bit from the top: 32 passes that count. A few clients are sorted instead, in one go."""
    if order.shape[0] <= FEW:
        return jnp.where(n > 0, jnp.sort(order)[jnp.maximum(n, 1) - 1], jnp.uint32(0))

    def step(i: int | Int[Array, ""], border: UInt[Array, ""]) -> UInt[Array, ""]:
        higher = border | (jnp.uint32(1 << 31) >> jnp.asarray(i, jnp.uint32))
        return jnp.where(count(order < higher) < n, higher, border)

    border: UInt[Array, ""] = lax.fori_loop(0, 32, step, jnp.uint32(0))
    return border


@jax.jit
def places(mask: Bool[Array, " K"], ranks: Int[Array, " n"]) -> Int[Array, " n"]:
    """Where the first, second, ... True stands, for each rank asked; -1 for rank 0.

    Counts by row of the square table, then within the row: one pass over K, and no cumulative sum of all of it.
    """
    square = table(mask)
    rows, width = square.shape
    in_row = square.sum(axis=1, dtype=jnp.int32)
    so_far = jnp.cumsum(in_row, dtype=jnp.int32)
    row = jnp.minimum(jnp.searchsorted(so_far, ranks, method="scan_unrolled").astype(jnp.int32), rows - 1)
    rank_in_row = ranks - (so_far[row] - in_row[row])
    reached = jnp.cumsum(square[row], axis=1, dtype=jnp.int32) >= rank_in_row[:, None]
    return jnp.where(ranks > 0, row * width + lax.argmax(reached, 1, jnp.int32), -1)


def table(x: Array) -> Array:
    """The clients in rows of a square table, filled up with zeros."""
    K = x.shape[0]
    width = math.isqrt(K - 1) + 1
    rows = -(-K // width)
    return jnp.pad(x, (0, rows * width - K)).reshape(rows, width)


def ascending(x: Float[Array, " K"]) -> UInt[Array, " K"]:
    """Unsigned integers in the order of the floats, -0 equal to 0, NaN last."""
    x = jnp.asarray(x, jnp.float32)  # with x64, a score that names no dtype has 64 bits
    x = jnp.where(x == 0, jnp.float32(0), jnp.where(jnp.isnan(x), jnp.float32(jnp.nan), x))
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> jnp.uint32(31) == 1, ~bits, bits | jnp.uint32(1 << 31))


def count(mask: Bool[Array, " K"]) -> Int[Array, ""]:
    return jnp.sum(mask, dtype=jnp.int32)


def int32(n: Number) -> Int[Array, ""]:
    return jnp.asarray(n, jnp.int32)
