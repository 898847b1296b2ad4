"""Active Federated Learning (Goetz et al. 2019), the baseline that the paper compares with."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import Ledger
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, one_of, require

Fraction = float | Float[Array, ""]


@pytree
class AFL:
    """pi_afl: most seats by a softmax over the clients' valuations, a few uniformly.

    1. The floor(alpha1 K) clients of smallest valuation v_k are left out, ties broken at random.
    2. floor((1 - alpha3) m) seats are drawn from the rest without replacement, in proportion to exp(alpha2 v_k).
    3. The other seats are drawn uniformly from everybody not yet chosen.

    A client that has never trained has v_k = -inf: it enters through the uniform seats. Where too few can be drawn in
    step 2, all of them are taken and step 3 fills up. K counts the clients that are available and hold data.

    Args:
        m: Number of seats; static.
        alpha1: Fraction of the clients, those of smallest valuation, that step 1 leaves out.
        alpha2: Inverse temperature of the softmax; 0 draws uniformly.
        alpha3: Fraction of the seats that are filled uniformly.
        valuation: "loss", the mean training loss of the last participation, as the paper's baseline was run; or
            "sqrt-size", the AFL paper's own sqrt(D_k) times that loss.

    >>> AFL(m=3)
    AFL(m=3, alpha1=0.75, alpha2=0.01, alpha3=0.1, valuation='loss')
    """

    m: int = static()
    alpha1: Fraction = 0.75
    alpha2: Fraction = 0.01
    alpha3: Fraction = 0.1
    valuation: Literal["loss", "sqrt-size"] = static(default="loss")

    poll: ClassVar[Poll] = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        require(self, "alpha1", self.alpha1, "at least 0 and below 1", lambda x: (x >= 0) & (x < 1))
        require(self, "alpha2", self.alpha2, "finite and at least 0", lambda x: (x >= 0) & (x < float("inf")))
        require(self, "alpha3", self.alpha3, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))
        one_of(self, "valuation", self.valuation, ("loss", "sqrt-size"))

    @property
    def nonnegative_losses(self) -> bool:
        return self.valuation == "sqrt-size"

    def init(self, num_clients: int) -> Ledger:
        at_most_clients(self, "m", self.m, num_clients)
        return Ledger.init(num_clients)

    def propose(self, key: PRNGKeyArray, state: Ledger, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(self, key: PRNGKeyArray, state: Ledger, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        state.fits(clients)
        cut_key, softmax_key, uniform_key = jax.random.split(key, 3)

        value = state.loss * jnp.sqrt(clients.size) if self.valuation == "sqrt-size" else state.loss
        trained = ~jnp.isnan(value)
        value = jnp.where(trained, value, -jnp.inf)

        K = jnp.sum(candidates, dtype=jnp.int32)
        kept = sampling.top_k_mask(cut_key, value, candidates, K - sampling.portion(self.alpha1, K))
        eligible = kept & trained
        # The race by exp(alpha2 v) in logarithms and from the largest v down, where no valuation overflows.
        finite = jnp.clip(value, -1e30, 1e30)
        pull = jnp.asarray(self.alpha2, jnp.float32) * (finite - jnp.max(finite, where=eligible, initial=-1e30))
        arrival = jnp.log(sampling.exponentials(softmax_key, value.shape)) - pull
        drawn = sampling.first_k_mask(
            jnp.where(eligible, arrival, jnp.inf),
            sampling.portion(1 - jnp.asarray(self.alpha3, jnp.float32), self.m),
        )
        uniform = sampling.uniform_keys(uniform_key, candidates)
        return sampling.seat(*sampling.first_k(jnp.where(drawn, jnp.float32(0), uniform), self.m))

    def observe(self, state: Ledger, selection: Selection, report: Report) -> Ledger:
        return state.observe(selection, report)
