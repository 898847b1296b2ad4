"""Selection that looks at no loss: the paper's baseline, and the schemes of its appendix on other averages."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from fedpick import sampling
from fedpick.arguments import answers, facts, flag, natural
from fedpick.protocol import Clients, Poll, Report, Selection
from fedpick.pytrees import pytree, static

Nothing = tuple[()]


@pytree
class Rand:
    """pi_rand: m seats by share p_k = D_k / sum D, averaged plainly; unbiased when drawn with replacement.

    With replacement (the paper's scheme) a client may hold several seats, which train independently. Without, the m
    clients are distinct: successive sampling by p_k, which is also pow-d at d = m.

    >>> from fedpick import Clients, round_keys
    >>> selector = Rand(m=3)
    >>> clients = Clients(size=jnp.array([1, 0, 8]), available=jnp.ones(3, bool))
    >>> keys, nothing = round_keys(seed=0, t=0), selector.init(3)
    >>> candidates = selector.propose(keys.propose, nothing, clients)
    >>> selector.select(keys.select, nothing, clients, candidates, jnp.full(3, jnp.nan)).clients
    Array([2, 2, 2], dtype=int32)
    """

    m: int = static()
    replace: bool = static(default=True)

    poll: ClassVar[Poll] = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        flag(self, "replace", self.replace)

    @property
    def unbiased(self) -> bool:
        return self.replace

    def init(self, num_clients: int) -> Nothing:
        return ()

    def propose(self, key: PRNGKeyArray, state: Nothing, clients: Clients) -> Bool[Array, " K"]:
        return self._facts(clients).available

    def select(
        self,
        key: PRNGKeyArray,
        state: Nothing,
        clients: Clients,
        candidates: Bool[Array, " K"],
        losses: Float[Array, " K"],
    ) -> Selection:
        clients = self._facts(clients)
        candidates, _ = answers(self, clients, candidates, losses)
        weight = jnp.where(candidates, clients.size, jnp.float32(0))
        if not self.replace:
            return sampling.seat(*sampling.first(sampling.arrivals(key, weight), self.m))
        return sampling.seat(sampling.draw(key, weight, self.m), jnp.broadcast_to(jnp.any(weight > 0), (self.m,)))

    def observe(self, state: Nothing, selection: Selection, report: Report) -> Nothing:
        return ()

    def _facts(self, clients: Clients) -> Clients:
        return facts(self, clients, distinct=1 if self.replace else self.m)


@pytree
class Uniform:
    """m distinct clients uniformly, averaged with q_k = p_k K / m (Li et al. 2020; the paper's appendix).

    The weights make the average right in expectation; in a given round they need not sum to 1. p_k and K are those of
    the clients that are available, and m is the number of seats that could be filled.

    >>> Uniform(m=2)
    Uniform(m=2)
    """

    m: int = static()

    poll: ClassVar[Poll] = "none"
    unbiased: ClassVar[bool] = True
    weights_sum_to_1: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))

    def init(self, num_clients: int) -> Nothing:
        return ()

    def propose(self, key: PRNGKeyArray, state: Nothing, clients: Clients) -> Bool[Array, " K"]:
        return facts(self, clients, distinct=self.m).available

    def select(
        self,
        key: PRNGKeyArray,
        state: Nothing,
        clients: Clients,
        candidates: Bool[Array, " K"],
        losses: Float[Array, " K"],
    ) -> Selection:
        clients = facts(self, clients, distinct=self.m)
        candidates, _ = answers(self, clients, candidates, losses)
        chosen, filled = sampling.first(sampling.lots(key, candidates), self.m)
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        ratio = jnp.sum(candidates, dtype=jnp.float32) / jnp.maximum(jnp.sum(filled, dtype=jnp.float32), 1)
        return sampling.weighted(chosen, jnp.where(filled, share[chosen] * ratio, jnp.float32(0)))

    def observe(self, state: Nothing, selection: Selection, report: Report) -> Nothing:
        return ()


@pytree
class Full:
    """Everybody, weighted by share p_k: full participation, the reference that costs K trainings a round.

    >>> Full().m is None
    True
    """

    m: ClassVar[None] = None
    poll: ClassVar[Poll] = "none"
    unbiased: ClassVar[bool] = True

    def init(self, num_clients: int) -> Nothing:
        return ()

    def propose(self, key: PRNGKeyArray, state: Nothing, clients: Clients) -> Bool[Array, " K"]:
        return facts(self, clients).available

    def select(
        self,
        key: PRNGKeyArray,
        state: Nothing,
        clients: Clients,
        candidates: Bool[Array, " K"],
        losses: Float[Array, " K"],
    ) -> Selection:
        clients = facts(self, clients)
        candidates, _ = answers(self, clients, candidates, losses)
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        return sampling.weighted(jnp.arange(share.shape[0], dtype=jnp.int32), share)

    def observe(self, state: Nothing, selection: Selection, report: Report) -> Nothing:
        return ()
