"""Optimal client sampling (Chen, Horvath, Richtarik 2022): those whose updates matter most send them."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, flag, natural, require

Empty = tuple[()]
RESCALINGS = 4  # the authors' number


@pytree
class OptimalSampling:
    """OCS and AOCS: all candidates train and say the norm of their update, and m of them send it.

    1. The candidates train and answer the norm of their update Delta_k; u_k = p_k |Delta_k|.
    2. Client k is selected with probability pi_k = min(1, c u_k), c such that they sum to m. Of all probabilities that
       do, these give the sum of the updates the smallest variance. With ``exact=False`` (AOCS) the capped
       probabilities are rescaled at most four times, for which the server need know only sums.
    3. m distinct clients are drawn with these probabilities (systematic sampling); weights p_k / pi_k, with which the
       average is right in expectation.

    With d candidates, drawn uniformly, p_k stands for p_k K / d. A candidate that does not answer is not eligible, and
    the others stand for it.

    Args:
        m: Seats, the clients that send their update in a round.
        d: Candidates, the clients that train in a round; None for everyone available.
        exact: Whether the probabilities are optimal (OCS) or approximate (AOCS).
        floor: A norm below this part of the mean norm counts as this, so that everybody can be drawn.

    >>> OptimalSampling(m=3).poll
    'norm'
    """

    m: int = static()
    d: int | Int[Array, ""] | None = None
    exact: bool = static(default=True)
    floor: float | Float[Array, ""] = 0.01

    poll: ClassVar[Poll] = "norm"
    unbiased: ClassVar[bool] = True
    weights_sum_to_1: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        if self.d is not None:
            require(self, "d", self.d, f"at least m={self.m}", lambda d: d >= self.m, whole=True)
        flag(self, "exact", self.exact)
        require(self, "floor", self.floor, "above 0 and at most 1", lambda x: (x > 0) & (x <= 1))

    def init(self, num_clients: int) -> Empty:
        at_most_clients(self, "m", self.m, num_clients)
        at_most_clients(self, "d", self.d, num_clients)
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        able = clients.available & (clients.size > 0)
        if self.d is None:
            return able
        d = jnp.clip(jnp.asarray(self.d, jnp.int32), self.m, able.shape[0])
        return sampling.first_k_mask(sampling.uniform_keys(key, able), d)

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        eligible = candidates & (clients.size > 0) & ~jnp.isnan(losses)
        share = self._share(clients, eligible)
        norm = jnp.where(eligible, jnp.clip(losses, 0, 1e30), jnp.float32(0))
        number = jnp.maximum(jnp.sum(eligible, dtype=jnp.float32), 1)
        least = jnp.asarray(self.floor, jnp.float32) * jnp.sum(norm / number)
        # With no norm at all the shares decide.
        norm = jnp.where(least > 0, jnp.maximum(norm, least), jnp.float32(1))

        passes = None if self.exact else RESCALINGS
        probability = sampling.inclusion_probabilities(share * norm, self.m, passes)
        chosen, filled = sampling.systematic(key, probability, self.m)
        return sampling.weighted(chosen, jnp.where(filled, share[chosen] / probability[chosen], jnp.float32(0)))

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
        return ()

    def _share(self, clients: Clients, eligible: Mask) -> Float[Array, " K"]:
        """What each eligible client stands for: p_k, and with d candidates also those who were not asked."""
        if self.d is None:
            return sampling.shares(jnp.where(eligible, clients.size, jnp.float32(0)))
        able = clients.available & (clients.size > 0)
        share = sampling.shares(jnp.where(able, clients.size, jnp.float32(0)))
        asked = jnp.maximum(jnp.sum(eligible, dtype=jnp.float32), 1)
        return jnp.where(eligible, share * (jnp.sum(able, dtype=jnp.float32) / asked), jnp.float32(0))
