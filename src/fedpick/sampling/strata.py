"""Stratified draws: one client from each of m strata of equal weight, in O(K) and without a sort of all clients."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt

from fedpick.sampling._order import FEW, table
from fedpick.sampling.draws import integers
from fedpick.sampling.inclusion import LARGEST, WHOLE, line

DIGIT = 10  # bits: three digits hold a float32 in [2^-126, 2)
DIGITS = 1 << DIGIT
SMALLEST = 2.0**-126


def stratified(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    """m draws, one from each m-th of the total weight along the clients in descending order of weight.

    With c_k = m (w_1 + ... + w_k) / sum w in that order, seat j has the client of the interval [c_{k-1}, c_k) that
    holds j + u_j, u_j uniform on [0, 1). On average client k has m w_k / sum w seats, as with ``draw``, and always
    fewer than two more or less. Equal weights are in the order of the clients.

    Args:
        key: Random key.
        weight: Weights, at least 0; a client without weight is never drawn.
        m: Number of draws; static.

    >>> stratified(jax.random.key(0), jnp.array([1.0, 2.0, 1.0]), 4)[:2]
    Array([1, 1], dtype=int32)
    """
    drawn: Int[Array, " m"] = _stratified(key, weight, m)
    return drawn


@functools.partial(jax.jit, static_argnums=2)
def _stratified(key: PRNGKeyArray, weight: Float[Array, " K"], m: int) -> Int[Array, " m"]:
    tiny = jnp.float32(SMALLEST)
    finite = jnp.minimum(weight, jnp.float32(LARGEST))
    able = jnp.where(weight > 0, jnp.maximum(finite, tiny), jnp.float32(0))
    # By a power of two, which keeps the order: the largest comes to lie in [1, 2).
    scaled = able / _power_of_two(_bits(jnp.max(able, initial=tiny)))
    scaled = jnp.where(weight > 0, jnp.maximum(scaled, tiny), jnp.float32(0))
    edges = (jnp.arange(m + 1, dtype=jnp.float32) * jnp.float32(WHOLE / m)).astype(jnp.int32)
    strata = edges[:-1], edges[1:]
    if weight.shape[0] <= FEW:
        falling, order = lax.sort((-scaled, lax.iota(jnp.int32, weight.shape[0])), num_keys=1)
        place, _ = _part(key, -falling[None, :], strata)
        return order[place]
    return _by_digits(key, scaled, strata)


Strata = tuple[Int[Array, " m"], Int[Array, " m"]]  # what of the line belongs to each seat: from, to


def _by_digits(key: PRNGKeyArray, weight: Float[Array, " K"], strata: Strata) -> Int[Array, " m"]:
    """Digit by digit from the top, each seat finds the weight of its client; then the client among its equals.

    Seats with the same digits so far form a group, named by one of them. A pass over the clients counts those of each
    group by their next digit, and sums their weights in whole numbers, whose order of addition does not matter.
    """
    K, m = weight.shape[0], strata[0].shape[0]
    keys = jax.random.split(key, 5)
    bits, seats = _bits(weight), lax.iota(jnp.int32, m)
    group_of_seat, digits = jnp.zeros(m, jnp.int32), jnp.zeros(m, jnp.uint32)
    group = jnp.where(weight > 0, jnp.int32(0), m)  # m: none, and dropped
    for number, shift in enumerate((2 * DIGIT, DIGIT, 0)):
        digit = DIGITS - 1 - ((bits >> jnp.uint32(shift)) & jnp.uint32(DIGITS - 1)).astype(jnp.int32)  # descending
        cell = group * DIGITS + digit
        value = digits[:, None] | (lax.iota(jnp.uint32, DIGITS)[::-1] << jnp.uint32(shift))[None, :]
        sums = _sums(cell, bits & jnp.uint32((1 << shift) - 1), shift, value)
        place, strata = _part(keys[number], sums[group_of_seat], strata)
        digits |= (DIGITS - 1 - place).astype(jnp.uint32) << jnp.uint32(shift)
        cell_of_seat = group_of_seat * DIGITS + place
        name = jnp.full(m * DIGITS, m, jnp.int32).at[cell_of_seat].min(seats)
        group, group_of_seat = name.at[cell].get(mode="fill", fill_value=m), name[cell_of_seat]

    # Equals are found by rows of the square table; what has no weight has no bits, and no seat looks for that.
    square = table(bits)
    rows, width = square.shape
    cell = group * rows + lax.iota(jnp.int32, K) // width
    in_rows = jnp.zeros(m * rows, jnp.int32).at[cell].add(1, mode="drop").reshape(m, rows)[group_of_seat]
    row, strata = _part(keys[3], in_rows.astype(jnp.float32), strata)
    equals = jnp.take_along_axis(in_rows, row[:, None], axis=1)[:, 0]
    point = _points(keys[4], strata).astype(jnp.float32) / jnp.float32(WHOLE)
    rank = jnp.minimum((point * equals.astype(jnp.float32)).astype(jnp.int32), equals - 1)
    reached = jnp.cumsum(square[row] == digits[:, None], axis=1, dtype=jnp.int32) > rank[:, None]
    return row * width + lax.argmax(reached, 1, jnp.int32)


def _part(key: PRNGKeyArray, parts: Float[Array, "n parts"], strata: Strata) -> tuple[Int[Array, " m"], Strata]:
    """A part of the line for each seat, drawn within its stratum, and what of that part belongs to the stratum.

    Two strata that meet inside a part compute the same border: nothing between them is lost or drawn by both.
    """
    length, ends = line(parts)
    point = jnp.minimum(_points(key, strata), ends[:, -1] - 1)
    place = jnp.sum(ends <= point[:, None], axis=1, dtype=jnp.int32)
    row = jnp.minimum(lax.iota(jnp.int32, point.shape[0]), parts.shape[0] - 1)
    size, end = jnp.maximum(length[row, place], 1), ends[row, place]

    def inside(edge: Int[Array, " m"]) -> Int[Array, " m"]:
        share = jnp.clip(edge - (end - size), 0, size).astype(jnp.float32) / size.astype(jnp.float32)
        whole: Int[Array, " m"] = (share * jnp.float32(WHOLE)).astype(jnp.int32)
        return whole

    return place, (inside(strata[0]), inside(strata[1]))


def _points(key: PRNGKeyArray, strata: Strata) -> Int[Array, " m"]:
    low, high = strata
    points: Int[Array, " m"] = low + integers(key, low.shape, jnp.maximum(high - low, 1))
    return points


def _sums(
    cell: Int[Array, " K"], low: UInt[Array, " K"], width: int, value: UInt[Array, "m digits"]
) -> Float[Array, "m digits"]:
    """The sum of the weights in each cell: how many there are times their common bits, plus the lower bits."""
    K, cells = cell.shape[0], value.size
    word = 32 - K.bit_length()  # so many bits of K numbers add up without overflow

    def count(numbers: UInt[Array, " K"]) -> Float[Array, "m digits"]:
        return jnp.zeros(cells, jnp.uint32).at[cell].add(numbers, mode="drop").reshape(value.shape).astype(jnp.float32)

    sums = count(jnp.ones(K, jnp.uint32)) * lax.bitcast_convert_type(value, jnp.float32)
    for shift in range(0, width, word):
        part = (low >> jnp.uint32(shift)) & jnp.uint32((1 << word) - 1)
        sums += count(part) * (_power_of_two(value) * jnp.float32(2.0 ** (shift - 23)))
    return sums


def _bits(x: Float[Array, "..."]) -> UInt[Array, "..."]:
    return lax.bitcast_convert_type(x, jnp.uint32)


def _power_of_two(bits: UInt[Array, "..."]) -> Float[Array, "..."]:
    """The largest power of two that is not above a positive number, from its bits."""
    return lax.bitcast_convert_type(bits & jnp.uint32(0x7F800000), jnp.float32)
