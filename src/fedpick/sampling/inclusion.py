"""Draws of fixed size with given inclusion probabilities: how likely each client is to be drawn, and the draw."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.sampling._order import FEW, Number, count, int32, places, table
from fedpick.sampling.draws import integers, uniforms

SMALLEST, LARGEST = 1e-30, 3e38  # of the largest weight, and of all: beyond, float32 could not hold the factor
CERTAIN = 1 - 2.0**-20
WHOLE = 2.0**30  # cumulative sums are whole numbers, exact however many there are

# The number of passes, c, who is capped, and whether that is all.
Passes = tuple[Int[Array, ""], Float[Array, ""], Bool[Array, " K"], Bool[Array, ""]]


def inclusion_probabilities(weight: Float[Array, " K"], n: Number, passes: int | None = None) -> Float[Array, " K"]:
    """pi_k = min(1, c w_k), with c such that they sum to n: who is to be drawn how often, nobody more than once.

    Of all probabilities that sum to n these have the smallest sum of w_k^2 / pi_k. c is n / sum w at first; whoever
    exceeds 1 is capped, and the others are scaled up to what is left, until nobody new is capped. If ``passes`` ends
    this early, the rest is spread in proportion to 1 - pi_k.

    Args:
        weight: Weights w_k, at least 0; a client without weight has probability 0.
        n: Number of clients to draw; everybody of weight, if they are no more. It may be traced.
        passes: Number of times the others are scaled up at most; static. None for as often as needed.

    >>> inclusion_probabilities(jnp.array([1.0, 1.0, 1.0, 100.0]), 2)
    Array([0.33333334, 0.33333334, 0.33333334, 1.        ], dtype=float32)
    """
    probability: Float[Array, " K"] = _inclusion_probabilities(weight, int32(n), passes)
    return probability


@functools.partial(jax.jit, static_argnums=2)
def _inclusion_probabilities(weight: Float[Array, " K"], n: Int[Array, ""], passes: int | None) -> Float[Array, " K"]:
    able = weight > 0
    finite = jnp.minimum(weight, jnp.float32(LARGEST))
    largest = jnp.max(finite, where=able, initial=2.0**-126)
    w = jnp.where(able, jnp.maximum(finite / largest, jnp.float32(SMALLEST)), jnp.float32(0))
    seats = jnp.minimum(n, count(able))

    # A step of Newton's method on the concave function sum min(1, c w): c rises to the solution, in a few passes.
    def scale(capped: Bool[Array, " K"]) -> Float[Array, ""]:
        rest = total(jnp.where(capped, jnp.float32(0), w))
        return (seats - count(capped)).astype(jnp.float32) / jnp.where(rest > 0, rest, jnp.float32(1))

    def step(now: Passes) -> Passes:
        i, c, capped, _ = now
        more = capped | (c * w >= 1)
        done = count(more) == count(capped)
        return i + 1, jnp.where(done, c, scale(more)), more, done

    def again(now: Passes) -> Bool[Array, ""]:
        return ~now[3] if passes is None else ~now[3] & (now[0] < passes)

    nobody = jnp.zeros_like(able)
    _, c, capped, _ = lax.while_loop(again, step, (jnp.int32(0), scale(nobody), nobody, jnp.bool_(False)))
    probability = jnp.where(capped, jnp.float32(1), jnp.minimum(c * w, jnp.float32(1)))
    room = jnp.where(able, 1 - probability, jnp.float32(0))
    left, free = seats.astype(jnp.float32) - total(probability), total(room)
    probability += room * jnp.clip(left / jnp.where(free > 0, free, jnp.float32(1)), 0, 1)
    return jnp.where(count(able) <= n, able.astype(jnp.float32), probability)


def systematic(
    key: PRNGKeyArray, probability: Float[Array, " K"], m: int, shuffle: bool = False
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """Draw distinct clients with these inclusion probabilities, always as many as they sum to (Madow 1949).

    The clients lie end to end on a line, each as long as its probability, and those are drawn that hold one of the
    points u, u + 1, u + 2, ... with u uniform on (0, 1). Also given are the seats, of m, that are filled.

    Args:
        key: Random key.
        probability: Probabilities, whose sum should be a whole number of at most m; else they are scaled to one.
        m: Number of seats; static.
        shuffle: Whether the clients lie in a random order, and not in their own: neighbours are then drawn together as
            often as others. It is for up to 1,024 clients; of more, neighbours are hardly ever drawn together.

    >>> clients, filled = systematic(jax.random.key(0), jnp.array([1.0, 0.0, 0.5, 0.5]), 3)
    >>> int(clients[0]), int(filled.sum())
    (0, 2)
    """
    if not shuffle or probability.shape[0] > FEW:
        drawn: tuple[Int[Array, " m"], Bool[Array, " m"]] = _systematic(key, probability, m)
        return drawn
    order_key, key = jax.random.split(key)
    order = jnp.argsort(uniforms(order_key, probability.shape)).astype(jnp.int32)
    places, filled = _systematic(key, probability[order], m)
    return order[places], filled


@functools.partial(jax.jit, static_argnums=2)
def _systematic(
    key: PRNGKeyArray, probability: Float[Array, " K"], m: int
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    # Those who are certain are seated first: rounding on the line can then neither miss nor repeat them.
    certain = probability > jnp.float32(CERTAIN)
    sure = count(certain)
    filled = jnp.minimum(jnp.round(total(probability)).astype(jnp.int32), m)
    others = jnp.maximum(filled - sure, 1)

    # The line in whole numbers, by rows of the square table of clients: in float32 the points would miss small clients.
    square = table(jnp.where(certain, jnp.float32(0), probability))
    length, ends = line(square.sum(axis=1))
    step_key, rest_key = jax.random.split(key)
    step = ends[-1] // others
    start = integers(step_key, (), jnp.maximum(step, 1))
    seats = lax.iota(jnp.int32, m)
    number = jnp.clip(seats - sure, 0, others - 1)
    left_over = (ends[-1] % others).astype(jnp.float32) / others.astype(jnp.float32)
    point = number * step + (number.astype(jnp.float32) * left_over).astype(jnp.int32) + start

    row = jnp.minimum(jnp.searchsorted(ends, point, side="right", method="scan_unrolled"), ends.shape[0] - 1)
    within = (point - (ends[row] - length[row])).astype(jnp.float32) + uniforms(rest_key, ())
    so_far = jnp.cumsum(square[row], axis=1)
    in_row = so_far[:, -1] * jnp.minimum(
        within / jnp.maximum(length[row], 1).astype(jnp.float32), jnp.float32(1 - 2.0**-23)
    )
    column = lax.argmax(so_far > in_row[:, None], 1, jnp.int32)
    clients = row.astype(jnp.int32) * square.shape[1] + column
    return jnp.where(seats < sure, places(certain, seats + 1), clients), seats < filled


def line(parts: Float[Array, "... n"]) -> tuple[Int[Array, "... n"], Int[Array, "... n"]]:
    """Parts in a row on a line of length 2^30, in whole numbers: the length of each, and where it ends."""
    sums = parts.sum(axis=-1, keepdims=True)
    length = jnp.round(parts / jnp.where(sums > 0, sums, jnp.float32(1)) * jnp.float32(WHOLE)).astype(jnp.int32)
    return length, jnp.cumsum(length, axis=-1, dtype=jnp.int32)


def total(x: Float[Array, " K"]) -> Float[Array, ""]:
    """The sum, by rows of the square table: accurate for a million clients."""
    return table(x).sum(axis=1).sum()
