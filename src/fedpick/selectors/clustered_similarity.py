"""Clustered sampling by similarity of updates (Fraboni et al. 2021, algorithm 2)."""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import enter, fits
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import natural

Sketches = Float[Array, "K s"]
SLACK = 1e-5  # of a mass that is 1 but for the rounding of its sum


@pytree
class ClusteredSimilarity:
    """Clustered sampling, algorithm 2: a seat for every cluster of clients whose last updates point the same way.

    1. Client k brings the mass m p_k to be poured into m urns of capacity 1. One with m p_k >= 1 fills floor(m p_k)
       urns alone and goes on with the rest.
    2. Ward's clustering on the angles arccos <u_k, u_l> between the sketches of the last updates; two that were never
       seen are 0 apart, and at a right angle to everybody else. The tree is cut so that no cluster has a mass above 1.
    3. The heaviest clusters become the urns that are left, one each. The others are poured into the room of the urns,
       the lightest cluster into the lightest urn first, its clients in random order.
    4. Seat j draws a client from urn j by mass; the average is plain, 1/m each.

    A client's mass is in the urns whatever the clusters are: the strategy is unbiased, and its weights vary no more
    than those of ``Rand``. Above ``groups`` clients, those are clustered in groups around random landmarks.

    Args:
        m: Seats; static.
        sketch_size: Length of the sketches; static.
        groups: Number of groups that Ward's clustering works on, exact up to as many clients; at least 2 m are used.

    >>> ClusteredSimilarity(m=3).unbiased
    True
    """

    m: int = static()
    sketch_size: int = static(default=64)
    groups: int = static(default=256)

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"sketch"})
    work: ClassVar[str] = "K s"
    unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("m", "sketch_size", "groups"):
            object.__setattr__(self, name, natural(self, name, getattr(self, name)))

    def init(self, num_clients: int) -> Sketches:
        return jnp.zeros((natural(self, "num_clients", num_clients), self.sketch_size), jnp.float32)

    def propose(self, key: PRNGKeyArray, state: Sketches, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(
        self, key: PRNGKeyArray, state: Sketches, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        fits(self, state, clients)
        weight = jnp.where(candidates, clients.size, jnp.float32(0))
        seated: Int[Array, " m"] = _seats(key, state, weight, self.m, max(self.groups, 2 * self.m))
        return sampling.seat(seated, jnp.broadcast_to(jnp.any(weight > 0), (self.m,)))

    def observe(self, state: Sketches, selection: Selection, report: Report) -> Sketches:
        assert report.sketch is not None
        return enter(state, selection, report.sketch)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _seats(key: PRNGKeyArray, sketches: Sketches, weight: Float[Array, " K"], m: int, groups: int) -> Int[Array, " m"]:
    group_key, race_key, order_key, urn_key, room_key = jax.random.split(key, 5)
    K = weight.shape[0]
    mass = sampling.shares(weight) * m
    whole = jnp.floor(mass)
    mass = mass - whole
    alone = jnp.cumsum(whole.astype(jnp.int32), dtype=jnp.int32)
    urns = m - alone[-1]

    rows = sampling.directions(sketches)
    group, landmark, number = sampling.gather(group_key, rows, jnp.zeros(K, jnp.float32), mass > 0, groups=groups)
    tree = sampling.ward(jnp.arccos(sampling.cosines(rows[landmark], rows[landmark])), number)
    G = number.shape[0]
    names = sampling.cut_by_mass(tree, jax.ops.segment_sum(mass, group, num_segments=G), 1 + SLACK)
    cluster = names[group]
    total = jax.ops.segment_sum(mass, cluster, num_segments=G)

    # From the heaviest down; rounded, so that equal masses are equal however they were summed.
    heavy = lax.sort((-jnp.round(total * 2**16), jnp.arange(G, dtype=jnp.int32)), num_keys=2)[1]
    rank = jnp.zeros(G, jnp.int32).at[heavy].set(jnp.arange(G, dtype=jnp.int32))
    kept = jnp.where(rank < urns, 1 / jnp.maximum(total, 1), jnp.float32(0))  # a group may be heavier than an urn

    seat = jnp.arange(m, dtype=jnp.int32)
    urn = heavy[jnp.clip(alone[-1] + urns - 1 - seat, 0, G - 1)]  # seats of whole urns come first, then by rising mass
    filled = jnp.minimum(total[urn], 1)
    clustered = seat >= alone[-1]

    # A draw by mass from each cluster: the first of a race among its clients.
    arrival = sampling.arrivals(race_key, mass)
    first = jax.ops.segment_min(arrival, cluster, num_segments=G)
    winner = jax.ops.segment_max(
        jnp.where(arrival == first[cluster], jnp.arange(K, dtype=jnp.int32), -1), cluster, num_segments=G
    )

    # A draw from what was poured in: a place in the line of the rest, where each urn has as much as it had room.
    rest = jnp.where(mass > 0, mass * (1 - kept[cluster]), jnp.float32(0))
    order = lax.sort(
        (
            jnp.where(rest > 0, -rank[cluster], G),
            sampling.uniforms(order_key, (K,)),
            jnp.arange(K, dtype=jnp.int32),
        ),
        num_keys=2,
    )[2]
    line = jnp.cumsum(rest[order])
    room = jnp.where(clustered, 1 - filled, jnp.float32(0))
    place = jnp.cumsum(room) - room * sampling.uniforms(room_key, (m,))
    poured = jnp.sum(rest > 0, dtype=jnp.int32)
    found = jnp.searchsorted(line, place, side="right").astype(jnp.int32)
    guest = order[jnp.minimum(found, jnp.maximum(poured - 1, 0))]

    inside = (sampling.uniforms(urn_key, (m,)) < filled) | (poured == 0)
    owner = jnp.searchsorted(alone, seat, side="right").astype(jnp.int32)
    return jnp.where(clustered, jnp.where(inside, winner[urn], guest), jnp.minimum(owner, K - 1))
