"""Clustered sampling (Fraboni, Vidal, Kameni, Lorenzi 2021): each seat draws from a group of clients of its own."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import natural

Empty = tuple[()]


@pytree
class ClusteredSize:
    """Clustered sampling by size (algorithm 1): rand with less chance in how often a client is drawn.

    1. Pour the mass m p_k of each client, in descending order of size, into m urns of capacity 1, one after another; a
       client may be in several urns.
    2. Seat j draws one client from urn j, in proportion to its mass there; average plainly, 1/m each.

    Client k has m p_k seats on average, as in ``Rand``, and always fewer than two seats more or less: the draw is
    unbiased, and the variance of a client's weight is never above rand's. A client with m p_k > 1 may hold several
    seats, which train independently.

    Args:
        m: Seats, the clients that train in a round.

    >>> ClusteredSize(m=3).unbiased
    True
    """

    m: int = static()

    poll: ClassVar[Poll] = "none"
    unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))

    def init(self, num_clients: int) -> Empty:
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        return clients.available

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        weight = jnp.where(candidates, clients.size, jnp.float32(0))
        return sampling.seat(sampling.stratified(key, weight, self.m), jnp.broadcast_to(jnp.any(weight > 0), (self.m,)))

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
        return ()
