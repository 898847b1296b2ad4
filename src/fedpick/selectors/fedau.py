"""FedAU (Wang, Ji 2024): weights that make up for how seldom a client takes part."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Report, Selection, Selector
from fedpick.pytrees import pytree
from fedpick.selectors.wrappers import Around, check_held, seated_mask
from fedpick.validation import require


class Intervals(NamedTuple):
    """The memory of ``Unbiased``: its strategy's, and the rounds between the participations of each client.

    ``away`` is the length of the interval that is open, ``number`` and ``total`` are those that are closed.
    """

    inner: Any
    away: Int[Array, " K"]
    number: Int[Array, " K"]
    total: Int[Array, " K"]


@pytree
class Unbiased(Around):
    """FedAU: the seats of another strategy, weighted by p_k omega_k, where omega_k estimates 1 / pi_k.

    pi_k is the unknown probability that client k takes part in a round, because of its availability and of the strategy
    alike. omega_k is the mean of its intervals between participations so far, each closed at ``cutoff`` rounds, and 1
    before the first is closed. The sum of the weights is 1 only in the mean over rounds. A client with several seats
    has its weight divided among them.

    It assumes that who takes part does not depend on the model. Around a strategy that looks at losses it is a
    heuristic.

    Args:
        selector: The strategy whose seats are weighted; ``Full()`` for everybody who is available.
        cutoff: K_cut, the number of rounds at which an interval is closed, at least 1; a larger one has less bias and
            more variance.

    >>> from fedpick import Full
    >>> Unbiased(Full()).cutoff
    50
    """

    selector: Selector[Any]
    cutoff: int | Int[Array, ""] = 50

    weights_sum_to_1: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector)
        require(self, "cutoff", self.cutoff, "at least 1", lambda n: n >= 1, whole=True)

    @property
    def candidates_by_share(self) -> bool:
        return bool(getattr(self.selector, "candidates_by_share", False))

    def init(self, num_clients: int) -> Intervals:
        zeros = jnp.zeros(num_clients, jnp.int32)
        return Intervals(self.selector.init(num_clients), zeros, zeros, zeros)

    def propose(self, key: PRNGKeyArray, state: Intervals, clients: Clients) -> Mask:
        return self.selector.propose(key, state.inner, clients)

    def select(
        self, key: PRNGKeyArray, state: Intervals, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        chosen = self.selector.select(key, state.inner, clients, candidates, losses)
        mean = state.total.astype(jnp.float32) / jnp.maximum(state.number, 1).astype(jnp.float32)
        omega = jnp.where(state.number > 0, mean, jnp.float32(1))
        filled, K = chosen.weights > 0, clients.size.shape[0]
        seats = jnp.zeros(K, jnp.int32).at[jnp.where(filled, chosen.clients, K)].add(1, mode="drop")
        each = sampling.shares(clients.size) * omega / jnp.maximum(seats, 1).astype(jnp.float32)
        return sampling.weighted(chosen.clients, jnp.where(filled, each[chosen.clients], jnp.float32(0)))

    def observe(self, state: Intervals, selection: Selection, report: Report) -> Intervals:
        away = state.away + 1
        closed = seated_mask(selection, away.shape[0]) | (away >= jnp.asarray(self.cutoff, jnp.int32))
        return Intervals(
            self.selector.observe(state.inner, selection, report),
            away=jnp.where(closed, 0, away),
            number=state.number + closed.astype(jnp.int32),
            total=state.total + jnp.where(closed, away, 0),
        )
