"""HiCS-FL (Chen and Vikalo 2024): clusters of clients by the update of the output bias, balanced labels first."""

import functools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import enter, fits, visit
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

Real = float | Float[Array, ""]


class Heads(NamedTuple):
    """The last update of each client's output bias, 0 until it sent one, who has had a seat, and the round."""

    head: Float[Array, "K C"]
    visited: Bool[Array, " K"]
    round: Int[Array, ""]


@pytree
class HiCS:
    """Hierarchical clustered sampling: clusters by heterogeneity, those of balanced labels first, less so later.

    The update of the output bias b tells how balanced the labels of a client are: H_k is the entropy of
    softmax(b_k / temperature).

    1. Ward's clustering into M clusters by the distance arccos(b_k, b_l) + lambda |H_k - H_l|.
    2. A cluster has the probability exp(gamma_t mean H) / sum, with gamma_t = gamma (1 - t / rounds), from 0 on 0; in
       it, a client has its share of the cluster's data.
    3. Draws are repeated until m clients are distinct; the average is plain, 1/m each.

    Before that everybody has a seat once: clients that never had one come first, in random order. One whose update
    never arrived counts as of mean entropy, at a right angle to the others. Above ``groups`` clients, those are
    clustered in groups around random landmarks.

    Args:
        m: Seats; static.
        rounds: Rounds until clusters are equally likely.
        classes: Number of labels, the length of the output bias; static.
        temperature: Temperature of the softmax, in proportion to the learning rate and the number of local steps.
        scale: lambda, the weight of the difference of entropies.
        gamma: How much balanced clusters are preferred at the start; 0 not at all.
        clusters: M, the number of clusters; None is m.
        groups: Number of groups that Ward's clustering works on, exact up to as many clients; at least 2 m are used.

    >>> HiCS(m=3, rounds=100).classes
    10
    """

    m: int = static()
    rounds: int | Int[Array, ""]
    classes: int = static(default=10)
    temperature: Real = 0.0025
    scale: Real = 10.0
    gamma: Real = 4.0
    clusters: int | Int[Array, ""] | None = None
    groups: int = static(default=256)

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"head"})
    work: ClassVar[str] = "K s"

    def __post_init__(self) -> None:
        for name in ("m", "classes", "groups"):
            object.__setattr__(self, name, natural(self, name, getattr(self, name)))
        require(self, "rounds", self.rounds, "at least 1", lambda n: n >= 1, whole=True)
        if self.clusters is not None:
            require(self, "clusters", self.clusters, "at least 1", lambda n: n >= 1, whole=True)
        require(self, "temperature", self.temperature, "finite and above 0", lambda x: (x > 0) & (x < float("inf")))
        for name in ("scale", "gamma"):
            rule = "finite and at least 0"
            require(self, name, getattr(self, name), rule, lambda x: (x >= 0) & (x < float("inf")))

    def init(self, num_clients: int) -> Heads:
        at_most_clients(self, "m", self.m, num_clients)
        head = jnp.zeros((num_clients, self.classes), jnp.float32)
        return Heads(head, jnp.zeros(num_clients, bool), jnp.int32(0))

    def propose(self, key: PRNGKeyArray, state: Heads, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(self, key: PRNGKeyArray, state: Heads, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        fits(self, state.visited, clients)
        weight = jnp.where(candidates, clients.size, jnp.float32(0))
        left = 1 - state.round.astype(jnp.float32) / jnp.asarray(self.rounds, jnp.float32)
        numbers = (self.temperature, self.scale, self.gamma * jnp.maximum(left, 0))
        temperature, scale, gamma = (jnp.asarray(x, jnp.float32) for x in numbers)
        group_key, race_key, new_key = jax.random.split(key, 3)
        clusters = jnp.asarray(self.m if self.clusters is None else self.clusters, jnp.int32)
        pull = _pull(group_key, state, weight, temperature, scale, gamma, clusters, max(self.groups, 2 * self.m))
        # The race in logarithms, where no preference is so small that it becomes 0.
        arrival = jnp.log(sampling.exponentials(race_key, weight.shape)) - pull
        newcomers, new = sampling.first_k(sampling.uniform_keys(new_key, candidates & ~state.visited), self.m)
        others, filled = sampling.first_k(jnp.where(pull > -jnp.inf, arrival, jnp.inf), self.m)
        seat, number = jnp.arange(self.m, dtype=jnp.int32), jnp.sum(new, dtype=jnp.int32)
        later = jnp.maximum(seat - number, 0)
        return sampling.seat(jnp.where(new, newcomers, others[later]), new | filled[later])

    def observe(self, state: Heads, selection: Selection, report: Report) -> Heads:
        assert report.head is not None
        return Heads(enter(state.head, selection, report.head), visit(state.visited, selection), state.round + 1)


@functools.partial(jax.jit, static_argnums=7)
def _pull(
    key: PRNGKeyArray,
    state: Heads,
    weight: Float[Array, " K"],
    temperature: Float[Array, ""],
    scale: Float[Array, ""],
    gamma: Float[Array, ""],
    clusters: Int[Array, ""],
    groups: int,
) -> Float[Array, " K"]:
    """The logarithm of each client's chance: that of its cluster times its share of it; -inf where never visited."""
    weight = jnp.where(state.visited, weight, jnp.float32(0))
    present = weight > 0
    rows = sampling.directions(state.head)
    entropy = entropies(state.head, (rows != 0).any(axis=1), present, temperature)

    group, landmark, number = sampling.gather(key, rows, scale * entropy, present, groups=groups)
    there, level = rows[landmark], scale * entropy[landmark]
    angle = jnp.arccos(sampling.cosines(there, there))
    tree = sampling.ward(angle + jnp.abs(level[:, None] - level[None, :]), number)
    cluster = sampling.cut_by_number(tree, clusters)[group]

    def totals(values: Float[Array, " K"]) -> Float[Array, " G"]:
        found: Float[Array, " G"] = jax.ops.segment_sum(
            jnp.where(present, values, jnp.float32(0)), cluster, num_segments=number.shape[0]
        )
        return found

    size, members = totals(weight), totals(jnp.ones_like(weight))
    preference = gamma * totals(entropy) / jnp.maximum(members, 1) - jnp.log(jnp.where(size > 0, size, jnp.float32(1)))
    return jnp.where(present, preference[cluster] + jnp.log(jnp.where(present, weight, jnp.float32(1))), -jnp.inf)


def entropies(
    head: Float[Array, "K C"], known: Bool[Array, " K"], present: Bool[Array, " K"], temperature: Float[Array, ""]
) -> Float[Array, " K"]:
    """Entropy of softmax(b_k / temperature); for who never sent b_k, the mean of those present."""
    finite = jnp.where(known[:, None], jnp.clip(head, -1e30, 1e30), jnp.float32(0))
    logits = jax.nn.log_softmax(finite / temperature, axis=1)
    entropy = -jnp.sum(jnp.exp(logits) * logits, axis=1)
    told = known & present
    mean = jnp.sum(jnp.where(told, entropy, jnp.float32(0))) / jnp.maximum(jnp.sum(told, dtype=jnp.float32), 1)
    return jnp.where(known, entropy, mean)
