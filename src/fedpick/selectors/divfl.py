"""DivFL (Balakrishnan et al. 2022): the clients whose updates stand for those of all."""

import functools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import enter, fits, visit
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural

GRID = 2.0**16  # of squared distances: copies of one update are exactly 0 apart, however a product is summed


class Gradients(NamedTuple):
    """What is known of the clients' updates: the last sketch of each, 0 until it sent one, and who has had a seat."""

    sketch: Float[Array, "K s"]
    visited: Bool[Array, " K"]


@pytree
class DivFL:
    """Diverse selection: m distinct clients S that minimise sum_k min_(i in S) |g_k - g_i|, greedily.

    g_k is the sketch of the last update of client k. Starting from nobody, each seat goes to the client i of smallest
    sum_k min(c_k, |g_k - g_i|), where c_k is the distance to the nearest selected so far, ties to the smallest number.
    The decrease is submodular: S decreases the sum by at least 1 - 1/e of what the best m clients would. The average is
    weighted by size over S. Clients that have never had a seat come first, in random order.

    Above ``pool`` clients, only so many, drawn at random in each round, can be selected; k still runs over everybody.

    Args:
        m: Seats; static.
        sketch_size: Length of the sketches; static.
        pool: Number of clients among which the greedy search chooses, exact up to as many clients; at least m are used.

    >>> DivFL(m=3).needs
    frozenset({'sketch'})
    """

    m: int = static()
    sketch_size: int = static(default=64)
    pool: int = static(default=128)

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"sketch"})
    work: ClassVar[str] = "K s"

    def __post_init__(self) -> None:
        for name in ("m", "sketch_size", "pool"):
            object.__setattr__(self, name, natural(self, name, getattr(self, name)))

    def init(self, num_clients: int) -> Gradients:
        at_most_clients(self, "m", self.m, num_clients)
        return Gradients(jnp.zeros((num_clients, self.sketch_size), jnp.float32), jnp.zeros(num_clients, bool))

    def propose(self, key: PRNGKeyArray, state: Gradients, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(
        self, key: PRNGKeyArray, state: Gradients, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        fits(self, state.visited, clients)
        chosen, filled = _greedy(key, state, candidates, self.m, max(self.m, self.pool))
        return sampling.seat_by_size(chosen, filled, clients.size)

    def observe(self, state: Gradients, selection: Selection, report: Report) -> Gradients:
        assert report.sketch is not None
        return Gradients(enter(state.sketch, selection, report.sketch), visit(state.visited, selection))


@functools.partial(jax.jit, static_argnums=(3, 4))
def _greedy(
    key: PRNGKeyArray, state: Gradients, candidates: Mask, m: int, pool: int
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    lots = sampling.uniform_keys(key, candidates)
    lots = jnp.where(state.visited, lots, lots - 1)  # newcomers first
    K = candidates.shape[0]
    member, filled = (jnp.arange(K, dtype=jnp.int32), candidates) if pool >= K else sampling.first_k(lots, pool)
    distance = jnp.where(candidates[None, :], distances(state.sketch[member], state.sketch), jnp.float32(0))
    new = filled & ~state.visited[member]

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        nearest, left = carry
        after = jnp.sum(jnp.minimum(nearest[None, :], distance), axis=1)
        score = jnp.where((left & new).any(), jnp.where(new, lots[member], jnp.inf), after)
        i = lax.argmin(jnp.where(left, score, jnp.inf), 0, jnp.int32)
        carry = jnp.minimum(nearest, distance[i]), left & (jnp.arange(left.shape[0], dtype=jnp.int32) != i)
        return carry, (member[i], left.any())

    return lax.scan(step, (jnp.full(K, jnp.inf, jnp.float32), filled), None, length=m)[1]


def distances(one: Float[Array, "P s"], other: Float[Array, "K s"]) -> Float[Array, "P K"]:
    """Euclidean distances, from products of matrices."""
    scale = jnp.max(jnp.abs(other), where=jnp.isfinite(other), initial=0)
    one, other = (jnp.where(jnp.isfinite(x), x / jnp.maximum(scale, 1e-30), jnp.float32(0)) for x in (one, other))
    norm, norms = jnp.sum(one * one, axis=1), jnp.sum(other * other, axis=1)
    square = norm[:, None] + norms[None, :] - 2 * jnp.matmul(one, other.T, precision=lax.Precision.HIGHEST)
    return scale * jnp.sqrt(jnp.maximum(jnp.round(square * GRID) / GRID, 0))
