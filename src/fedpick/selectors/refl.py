"""REFL's choice of clients (Abdelmoniem et al. 2023): first those that are about to leave."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import Ledger
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require


@pytree
class REFL:
    """pi_refl: m distinct clients uniformly among those about to leave, then among the others; then they rest.

    A client that trained in round t is selected again from round t + ``rest`` on. Seats go to, in this order and
    uniformly within each group,

    1. those that are expected to be gone in the next round, and are not resting;
    2. the others that are not resting;
    3. those that are resting, where nobody else is there.

    Averaged plainly, as the authors do. A seat that stays silent does not count as training.

    This is REFL's *intelligent participant selection*. Its other half needs an asynchronous server: late updates that
    enter a later round with a weight of their own, and a number of participants that depends on how many of them are
    expected.

    Args:
        m: Seats, the clients that train in a round.
        rest: Rounds from one training of a client to the next; 1 is no rest.

    >>> REFL(m=3)
    REFL(m=3, rest=5)
    """

    m: int = static()
    rest: int | Int[Array, ""] = 5

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"leaving"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        require(self, "rest", self.rest, "at least 1 and below 2**31", lambda x: (x >= 1) & (x < 2**31), whole=True)

    def init(self, num_clients: int) -> Ledger:
        at_most_clients(self, "m", self.m, num_clients)
        return Ledger.init(num_clients)

    def propose(self, key: PRNGKeyArray, state: Ledger, clients: Clients) -> Mask:
        return clients.available

    def select(self, key: PRNGKeyArray, state: Ledger, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        state.fits(clients)
        assert clients.leaving is not None
        rested = (state.last < 0) | (state.round - state.last >= jnp.asarray(self.rest, jnp.int32))
        first = jnp.where(rested, jnp.where(clients.leaving, jnp.float32(2), jnp.float32(1)), jnp.float32(0))
        return sampling.seat(*sampling.top_k(key, first, candidates, self.m))

    def observe(self, state: Ledger, selection: Selection, report: Report) -> Ledger:
        return state.observe(selection, report)
