"""Selection that looks at no loss: the paper's baseline, and the schemes of its appendix on other averages."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, flag, natural

Empty = tuple[()]


@pytree
class Rand:
    """pi_rand: m seats by share p_k = D_k / sum D, averaged plainly; unbiased when drawn with replacement.

    With replacement (the paper's scheme) a client may hold several seats, which train independently. Without, the m
    clients are distinct: successive sampling by p_k, which is also pow-d at d = m.

    Args:
        m: Seats, the clients that train in a round.
        replace: Whether the seats are drawn with replacement.

    >>> Rand(m=3).unbiased, Rand(m=3, replace=False).unbiased
    (True, False)
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

    def init(self, num_clients: int) -> Empty:
        if not self.replace:
            at_most_clients(self, "m", self.m, num_clients)
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        return clients.available

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        weight = jnp.where(candidates, clients.size, jnp.float32(0))
        if not self.replace:
            return sampling.seat(*sampling.first_k(sampling.arrivals(key, weight), self.m))
        return sampling.seat(sampling.draw(key, weight, self.m), jnp.broadcast_to(jnp.any(weight > 0), (self.m,)))

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
        return ()


@pytree
class Uniform:
    """m distinct clients uniformly, averaged with q_k = p_k K / m (Li et al. 2020; the paper's appendix).

    The weights make the average right in expectation; in a given round they need not sum to 1. p_k and K are those of
    the clients that are available, and the m of the weights is the number of seats that could be filled.

    Args:
        m: Number of seats; static.

    >>> Uniform(m=2)
    Uniform(m=2)
    """

    m: int = static()

    poll: ClassVar[Poll] = "none"
    unbiased: ClassVar[bool] = True
    weights_sum_to_1: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))

    def init(self, num_clients: int) -> Empty:
        at_most_clients(self, "m", self.m, num_clients)
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        return clients.available

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        chosen, filled = sampling.first_k(sampling.uniform_keys(key, candidates), self.m)
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        ratio = jnp.sum(candidates, dtype=jnp.float32) / jnp.maximum(jnp.sum(filled, dtype=jnp.float32), 1)
        return sampling.weighted(chosen, jnp.where(filled, share[chosen] * ratio, jnp.float32(0)))

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
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

    def init(self, num_clients: int) -> Empty:
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        return clients.available

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        return sampling.weighted(jnp.arange(share.shape[0], dtype=jnp.int32), share)

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
        return ()
