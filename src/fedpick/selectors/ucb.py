"""UCB-CS (Cho, Gupta, Joshi, Yagan 2020): the highest discounted mean loss, and the benefit of the doubt."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import enter, rounded
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

FAR = 60.0  # beyond exp(60) the index grows with its logarithm: the same order, and no overflow


class UCBState(NamedTuple):
    """What UCB-CS remembers: mean L_k / N_k, number N_k and round of each client's last participation.

    ``mean`` is NaN and ``last`` is -1 until a client has reported. ``total`` is T and ``sigma`` the largest standard
    deviation that a seat of the last round has reported.
    """

    mean: Float[Array, " K"]
    number: Float[Array, " K"]
    last: Int[Array, " K"]
    round: Int[Array, ""]
    total: Float[Array, ""]
    sigma: Float[Array, ""]


@pytree
class UCBCS:
    """The m clients of largest index A_k = p_k (L_k / N_k + sqrt(2 sigma^2 ln T / N_k)), ties broken at random.

    Over the rounds t' in which client k has trained, L_k = sum gamma^(t - t') l_k(t') is the discounted sum of its
    training losses and N_k = sum gamma^(t - t') their discounted number; T = sum_(j < t) gamma^j counts all t rounds.
    sigma is the largest standard deviation, over the clients of the last round, of the losses of a client's samples.
    A client that has never reported comes first.

    Args:
        m: Seats, the clients that train in a round.
        gamma: Discount of a round, above 0 and at most 1; the smaller, the sooner an old loss is forgotten.

    >>> UCBCS(m=3)
    UCBCS(m=3, gamma=0.7)
    """

    m: int = static()
    gamma: float | Float[Array, ""] = 0.7

    poll: ClassVar[Poll] = "none"
    nonnegative_losses: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"square_loss"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        require(self, "gamma", self.gamma, "above 0 and at most 1", lambda x: (x > 0) & (x <= 1))

    def init(self, num_clients: int) -> UCBState:
        at_most_clients(self, "m", self.m, num_clients)
        return UCBState(
            mean=jnp.full(num_clients, jnp.nan, jnp.float32),
            number=jnp.zeros(num_clients, jnp.float32),
            last=jnp.full(num_clients, -1, jnp.int32),
            round=jnp.int32(0),
            total=jnp.float32(0),
            sigma=jnp.float32(0),
        )

    def propose(self, key: PRNGKeyArray, state: UCBState, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(
        self, key: PRNGKeyArray, state: UCBState, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        if clients.size.shape != state.mean.shape:
            raise ValueError(f"UCBCS: K must be {clients.size.shape[0]} as in size, got a state of {len(state.mean)}")
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        # In logarithms: gamma^-age would overflow for a client that has not trained for long.
        age = (state.round - 1 - state.last).astype(jnp.float32)
        spread = state.sigma * jnp.sqrt(2 * jnp.log(jnp.maximum(state.total, 1)))
        bonus = jnp.log(spread) - 0.5 * (jnp.log(state.number) + age * self._log_gamma())
        far = jnp.log(share) + bonus - FAR
        near = share * (state.mean + jnp.exp(jnp.minimum(bonus, 85)))
        index = jnp.where(far > 0, jnp.exp(jnp.float32(FAR)) * (1 + far), near)
        index = jnp.where(jnp.isnan(state.mean), jnp.inf, index)
        return sampling.seat(*sampling.top_k(key, index, candidates, self.m))

    def observe(self, state: UCBState, selection: Selection, report: Report) -> UCBState:
        assert report.square_loss is not None
        loss = jnp.clip(jnp.asarray(report.loss, jnp.float32), -1e15, 1e15)  # NaN stays
        line = jnp.maximum(selection.clients, 0)
        spoke = (selection.weights > 0) & ~jnp.isnan(loss)
        age = (state.round - state.last[line]).astype(jnp.float32)
        before = rounded(state.number[line] * jnp.exp(rounded(age * self._log_gamma())))
        number = before + 1
        known = jnp.where(before > 0, state.mean[line], loss)
        mean = known + (loss - known) / number
        variance = jnp.where(spoke, rounded(report.square_loss) - rounded(jnp.square(loss)), jnp.nan)
        sigma = jnp.sqrt(jnp.clip(jnp.nanmax(variance, initial=-1.0), 0, 1e30))
        silent = jnp.isnan(variance).all()
        now = jnp.broadcast_to(state.round, line.shape).astype(jnp.int32)
        return UCBState(
            mean=enter(state.mean, selection, mean),
            number=enter(state.number, selection, jnp.where(spoke, number, jnp.nan)),
            last=state.last.at[jnp.where(spoke, line, len(state.last))].set(now, mode="drop"),
            round=state.round + 1,
            total=1 + rounded(jnp.asarray(self.gamma, jnp.float32) * state.total),
            sigma=jnp.where(silent, state.sigma, sigma),
        )

    def _log_gamma(self) -> Float[Array, ""]:
        return jnp.log(jnp.asarray(self.gamma, jnp.float32))
