"""TiFL (Chai et al. 2020): clients in tiers of like speed, and one tier trains in a round."""

import functools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import Ledger
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

Tiers = Int[Array, " K"]


class TiFLState(NamedTuple):
    """What TiFL remembers: the ledger, who held the first seat how often, and both as they were at the last refresh.

    The first seat belongs to the tier that was drawn, so that the sum of ``led`` over a tier is what it has spent.
    """

    ledger: Ledger
    led: Int[Array, " K"]
    loss_then: Float[Array, " K"]
    led_then: Int[Array, " K"]


@pytree
class TiFL:
    """pi_tifl: a tier of clients of like speed is drawn, those of high loss more often, and m of its clients train.

    1. Order the clients by expected duration and cut them into T tiers of equal numbers.
    2. Draw a tier that has credits. Every ``interval`` rounds the tiers are ranked by the mean loss that their clients
       last reported, the highest first; of n tiers with credits, that of rank i = 0, 1, ... has probability
       2 (n - i) / (n (n + 1)). Tiers that are tied share their ranks: until the first ranking all are equally likely.
    3. The tier pays one of its ceil(rounds / T) credits; m of its clients are drawn uniformly, and averaged by size.

    The paper ranks by accuracy on test data of each tier; the training loss takes its place, and asks for no data. A
    tier of which nobody has reported yet ranks first. Where a tier has fewer than m clients available, the nearest
    tiers fill up, the faster of two first; a tier without any is not drawn, and where no tier can pay, credits are
    ignored. An unknown duration counts as the median. A client without data takes no part.

    Args:
        m: Seats, the clients that train in a round.
        tiers: Number of tiers T; static.
        interval: Rounds between two rankings.
        rounds: Rounds of the whole training, which set the credits; None gives unlimited credits.

    >>> TiFL(m=3)
    TiFL(m=3, tiers=5, interval=10, rounds=None)
    """

    m: int = static()
    tiers: int = static(default=5)
    interval: int | Int[Array, ""] = 10
    rounds: int | Int[Array, ""] | None = None

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"expected_duration"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        object.__setattr__(self, "tiers", natural(self, "tiers", self.tiers))
        rule = "at least 1 and below 2**31"
        require(self, "interval", self.interval, rule, lambda x: (x >= 1) & (x < 2**31), whole=True)
        if self.rounds is not None:
            require(self, "rounds", self.rounds, rule, lambda x: (x >= 1) & (x < 2**31), whole=True)

    def init(self, num_clients: int) -> TiFLState:
        at_most_clients(self, "m", self.m, num_clients)
        at_most_clients(self, "tiers", self.tiers, num_clients)
        ledger, nothing = Ledger.init(num_clients), jnp.zeros(num_clients, jnp.int32)
        return TiFLState(ledger, nothing, ledger.loss, nothing)

    def propose(self, key: PRNGKeyArray, state: TiFLState, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(
        self, key: PRNGKeyArray, state: TiFLState, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        state.ledger.fits(clients)
        assert clients.expected_duration is not None
        tier_key, client_key = jax.random.split(key)
        tier = tiers_of(clients.expected_duration, clients.size > 0, self.tiers)
        chance = self._chances(state, tier, candidates)
        drawn = jnp.argmin(sampling.arrivals(tier_key, chance)).astype(jnp.int32)
        away = 2 * jnp.abs(tier - drawn) - (tier < drawn).astype(
            jnp.int32
        )  # of two tiers equally near, the faster is nearer
        chosen, filled = sampling.top_k(client_key, -away.astype(jnp.float32), candidates, self.m)
        order = jnp.argsort(jnp.where(filled, away[chosen], 2 * self.tiers))  # the first seat is of the tier drawn
        return sampling.seat_by_size(chosen[order], filled[order], clients.size)

    def _chances(self, state: TiFLState, tier: Tiers, candidates: Mask) -> Float[Array, " T"]:
        """What the draw of the tier goes by."""
        there, loss, paid, paid_then = _by_tier(tier, candidates, state, self.tiers)
        if self.rounds is None:
            able = able_then = jnp.ones(self.tiers, bool)
        else:
            credits = -(-jnp.asarray(self.rounds, jnp.int32) // self.tiers)
            able, able_then = paid < credits, paid_then < credits
        chance: Float[Array, " T"] = _drawable(_rank_weights(loss, able_then), able, there)
        return chance

    def observe(self, state: TiFLState, selection: Selection, report: Report) -> TiFLState:
        ledger = state.ledger.observe(selection, report)
        first = jnp.where(selection.weights[0] > 0, selection.clients[0], state.led.shape[0])
        led = state.led.at[first].add(1, mode="drop")
        refresh = ledger.round % jnp.asarray(self.interval, jnp.int32) == 0
        loss_then = jnp.where(refresh, ledger.loss, state.loss_then)
        return TiFLState(ledger, led, loss_then, jnp.where(refresh, led, state.led_then))


def tiers_of(duration: Float[Array, " K"], able: Bool[Array, " K"], number: int) -> Tiers:
    """The tier of each client, 0 the fastest: equal numbers of those able, ties by client, found without a sort.

    >>> tiers_of(jnp.array([3.0, 1.0, jnp.nan, 2.0]), jnp.ones(4, bool), 2)
    Array([1, 0, 0, 1], dtype=int32)
    """
    seconds = jnp.clip(sampling.fill_unknown(jnp.where(able, duration, jnp.nan)), 0, 1e30)
    seconds = jnp.where(able, seconds, jnp.inf)
    K = jnp.sum(able, dtype=jnp.int32)
    tier = jnp.full(duration.shape, number - 1, jnp.int32)
    for t in range(1, number):
        tier -= sampling.first_k_mask(seconds, K // number * t + K % number * t // number).astype(jnp.int32)
    return tier


@jax.jit
def _rank_weights(loss: Float[Array, " T"], able: Bool[Array, " T"]) -> Float[Array, " T"]:
    """n - i for the tier of rank i by loss among the n that are able, 0 for the others; tied tiers share."""
    higher = jnp.sum((loss[None, :] > loss[:, None]) & able[None, :], axis=1, dtype=jnp.float32)
    tied = jnp.sum((loss[None, :] == loss[:, None]) & able[None, :], axis=1, dtype=jnp.float32)
    rank = higher + (tied - 1) / 2
    return jnp.where(able, jnp.sum(able, dtype=jnp.float32) - rank, jnp.float32(0))


@functools.partial(jax.jit, static_argnums=3)
def _by_tier(
    tier: Tiers, candidates: Mask, state: TiFLState, number: int
) -> tuple[Bool[Array, " T"], Float[Array, " T"], Int[Array, " T"], Int[Array, " T"]]:
    """Of each tier: whether anybody is there, the mean loss (+inf if unknown), credits paid now and at the refresh."""
    known = ~jnp.isnan(state.loss_then)
    said = jnp.where(known, state.loss_then, jnp.float32(0))
    # Five scatters: on a CPU, masked sums tier by tier take ten times as long and more.
    present, total, spoke, now, then = (
        jnp.zeros(number, values.dtype).at[tier].add(values)
        for values in (candidates.astype(jnp.int32), said, known.astype(jnp.int32), state.led, state.led_then)
    )
    mean = total / jnp.maximum(spoke, 1).astype(jnp.float32)
    there, loss = present > 0, jnp.where((spoke > 0) & ~jnp.isnan(mean), mean, jnp.inf)
    return there, loss, now, then


@jax.jit
def _drawable(weight: Float[Array, " T"], able: Bool[Array, " T"], there: Bool[Array, " T"]) -> Float[Array, " T"]:
    """The weights of the tiers that can pay and have clients; of those with clients, where none of these can pay."""
    ranked = jnp.where(able & there, weight, jnp.float32(0))
    plain = jnp.where(jnp.any(able & there), able & there, there).astype(jnp.float32)
    return jnp.where(jnp.any(ranked > 0), ranked, plain)
