"""auto: how much to prefer high losses, decided while the federation trains, so that nobody has to choose d."""

from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection, polled
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, one_of, require

MOST = 5  # candidates per seat at first
BLOCK = 25  # rounds of the first block; each one that follows is a quarter longer
FLAT, FALLING = 1.0, 2.0  # standard errors between two blocks: no progress below, progress above
WORTH = 0.2  # the part of a round's training time that a poll may take, when seconds count
LEAST = 0.1  # of the mean loss is added to every loss, so that nobody is out of reach
LARGEST = 1e18  # a loss beyond counts as this, so that its square is a number
REASONS = {
    1: "no progress in {rounds} rounds",
    2: "the loss falls again",
    3: "polls take {cost:.0%} of the time of training",
}


class Trend(NamedTuple):
    """The loss in the present block of rounds and in the one before: how many, their mean, and its squared error."""

    rounds: Int[Array, ""]
    mean: Float[Array, ""]
    square: Float[Array, ""]  # the sum of the squared deviations from the mean
    length: Int[Array, ""]
    before: Float[Array, ""]  # NaN: there is none
    error_before: Float[Array, ""]
    rounds_before: Int[Array, ""]

    @classmethod
    def init(cls) -> "Trend":
        """A first block, with nothing in it."""
        zero, none = jnp.float32(0), jnp.int32(0)
        return cls(none, zero, zero, jnp.int32(BLOCK), jnp.float32(jnp.nan), zero, none)

    def add(self, value: Float[Array, ""]) -> "Trend":
        """With one round more (Welford's update)."""
        rounds = self.rounds + 1
        mean = self.mean + (value - self.mean) / rounds.astype(jnp.float32)
        return self._replace(rounds=rounds, mean=mean, square=self.square + (value - self.mean) * (value - mean))

    def error(self) -> Float[Array, ""]:
        """The squared standard error of the block's mean."""
        n = self.rounds.astype(jnp.float32)
        return self.square / jnp.maximum(n * (n - 1), 1)

    def next_block(self) -> "Trend":
        """A new block, a quarter longer, after this one."""
        length = self.length + self.length // 4
        return Trend.init()._replace(
            length=length, before=self.mean, error_before=self.error(), rounds_before=self.rounds
        )


class Course(NamedTuple):
    """What auto remembers: d and its bound, the lowest loss seen, the estimate of F, its trend, why d changed last."""

    d: Int[Array, ""]
    most: Int[Array, ""]
    lowest: Float[Array, ""]
    loss: Float[Array, ""]
    trend: Trend
    cost: Float[Array, ""]  # seconds of a poll over those of training, a moving average; NaN until there is one
    reason: Int[Array, ""]
    rounds: Int[Array, ""]  # that the reason looks back on


@pytree
class Auto:
    """auto: seats by loss among d polled candidates, with d found on the way; it needs neither d nor a schedule.

    While d > m:

    1. Draw d distinct candidates with inclusion probability pi_k = min(1, c p_k) and ask them for their loss.
    2. Select m of them with probability in proportion to (p_k / pi_k) l_k^power, capped at 1, where l_k is the loss
       above the lowest seen (or above 0), plus a tenth of its mean.
    3. Weights in proportion to (p_k / (pi_k q_k))^correction, q_k being the probability of step 2; they sum to 1.

    With d = m nobody is asked: each seat draws from its own m-th of the data (clustered sampling by size), which is
    unbiased and varies less than rand.

    d starts at 5 m. The estimate of F, the candidates' losses weighted by p_k / pi_k, is averaged over blocks of
    rounds, the first of 25, each a quarter longer than the last. Where a block is not at least one standard error
    below the one before, d is halved, down to m; where it is two below, d is doubled, up to 5 m; blocks then start
    anew. See docs/auto.md.

    Args:
        m: Seats, the clients that train in a round.
        most: The most candidates, where d starts; by default 5 m, or K where that is less.
        loss: The candidates' loss: over all local data ("full") or over one mini-batch ("batch", auto-c).
        currency: What should be saved: "rounds" (polls cost nothing), "bytes" (nobody is polled, because a poll sends
            the model once more), or "seconds" (polled as long as a poll takes at most a fifth of the training time).
        power: How strongly high losses are preferred.
        correction: How far the weights undo the preference; with 0 they are 1/m each.

    >>> Auto(m=3).poll
    'full'
    """

    m: int = static()
    most: int | None = static(default=None)
    loss: Literal["full", "batch"] = static(default="full")
    currency: Literal["rounds", "bytes", "seconds"] = static(default="rounds")
    power: float | Float[Array, ""] = 1.0
    correction: float | Float[Array, ""] = 0.3

    needs: ClassVar[frozenset[str]] = frozenset({"polled", "size", "duration", "poll_duration"})
    skips_poll: ClassVar[bool] = True
    one_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        if self.most is not None:
            require(self, "most", self.most, f"at least m={self.m}", lambda d: d >= self.m, whole=True)
            object.__setattr__(self, "most", int(self.most))
        one_of(self, "loss", self.loss, ("full", "batch"))
        one_of(self, "currency", self.currency, ("rounds", "bytes", "seconds"))
        require(self, "power", self.power, "at least 0 and at most 10", lambda x: (x >= 0) & (x <= 10))
        require(self, "correction", self.correction, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))

    @property
    def poll(self) -> Poll:
        return self.loss if self.currency != "bytes" else "none"

    def init(self, num_clients: int) -> Course:
        at_most_clients(self, "m", self.m, num_clients)
        at_most_clients(self, "most", self.most, num_clients)
        d = jnp.int32(self.m if self.currency == "bytes" else min(self.limit, num_clients))
        none = jnp.float32(jnp.nan)
        return Course(d, d, jnp.float32(0), none, Trend.init(), none, jnp.int32(0), jnp.int32(0))

    @property
    def limit(self) -> int:
        """The most candidates that there can be."""
        return MOST * self.m if self.most is None else self.most

    def propose(self, key: PRNGKeyArray, state: Course, clients: Clients) -> Mask:
        mask: Mask = _propose(self, key, state, jnp.where(clients.available, clients.size, jnp.float32(0)))
        return mask

    def select(self, key: PRNGKeyArray, state: Course, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        weight = jnp.where(clients.available, clients.size, jnp.float32(0))
        selection: Selection = _select(self, key, state, weight, candidates, losses)
        return selection

    def observe(self, state: Course, selection: Selection, report: Report) -> Course:
        after: Course = _observe(self, state, selection, report)
        return after

    def explain(self, before: Course, after: Course) -> str | None:
        """Why d changed in a round, given the memory before and after it; None where it did not.

        Args:
            before: The memory before the round.
            after: The memory after it.

        >>> auto = Auto(m=2)
        >>> first = auto.init(30)
        >>> auto.explain(first, first._replace(d=jnp.int32(5), reason=jnp.int32(1), rounds=jnp.int32(56)))
        'd 10 -> 5, no progress in 56 rounds'
        """
        if int(before.d) == int(after.d):
            return None
        reason = REASONS[int(after.reason)].format(rounds=int(after.rounds), cost=float(after.cost))
        return f"d {int(before.d)} -> {int(after.d)}, {reason}"

    def status(self, state: Course) -> dict[str, float]:
        """What a record holds of the memory: d, and the estimate of F (NaN before the first round).

        >>> Auto(m=2).status(Auto(m=2).init(30))
        {'d': 10.0, 'estimate': nan}
        """
        return {"d": float(state.d), "estimate": float(state.loss)}


# One program each in a plain Python loop over rounds: a branch would be compiled anew in every round.
@jax.jit
def _propose(auto: Auto, key: PRNGKeyArray, state: Course, weight: Float[Array, " K"]) -> Mask:
    key, _ = jax.random.split(key)

    def by_share() -> Mask:
        probability = sampling.inclusion_probabilities(weight, state.d)
        return _mask(*sampling.systematic(key, probability, min(auto.limit, len(weight)), shuffle=True), weight)

    def one_each() -> Mask:
        drawn = sampling.stratified(key, weight, auto.m)
        return _mask(drawn, jnp.broadcast_to(jnp.any(weight > 0), drawn.shape), weight)

    mask: Mask = lax.cond(state.d > auto.m, by_share, one_each)
    return mask


@jax.jit
def _select(
    auto: Auto, key: PRNGKeyArray, state: Course, weight: Float[Array, " K"], candidates: Mask, losses: Losses
) -> Selection:
    key, seat_key = jax.random.split(key)

    def by_loss() -> Selection:
        asked = polled(auto, candidates).any()
        known = jnp.where(asked, losses, jnp.float32(1))
        eligible = candidates & ~jnp.isnan(known)
        mass = _mass(weight, state.d, eligible)
        above = _bounded(jnp.where(eligible, known - jnp.minimum(state.lowest, _lowest(known)), jnp.float32(0)))
        mean = jnp.sum(mass * above)
        relative = jnp.where(mean > 0, (above / jnp.where(mean > 0, mean, 1) + LEAST) / (1 + LEAST), jnp.float32(1))
        preference = jnp.where(eligible, mass * relative ** jnp.asarray(auto.power, jnp.float32), jnp.float32(0))
        probability = sampling.inclusion_probabilities(preference, auto.m)
        chosen, filled = sampling.systematic(seat_key, probability, auto.m, shuffle=True)
        ratio = mass[chosen] / jnp.where(filled, probability[chosen], jnp.float32(1))
        tempered = ratio ** jnp.asarray(auto.correction, jnp.float32)
        return sampling.weighted(chosen, sampling.shares(jnp.where(filled, tempered, jnp.float32(0))))

    def one_each() -> Selection:
        drawn = sampling.stratified(key, weight, auto.m)  # as in propose: the key is the same
        return sampling.seat(drawn, jnp.broadcast_to(jnp.any(weight > 0), drawn.shape))

    selection: Selection = lax.cond(state.d > auto.m, by_loss, one_each)
    return selection


@jax.jit
def _observe(auto: Auto, state: Course, selection: Selection, report: Report) -> Course:
    assert report.polled is not None
    assert report.size is not None
    answered = ~jnp.isnan(report.polled)
    answers = _bounded(jnp.where(answered, report.polled, jnp.float32(0)))
    reported = (selection.weights > 0) & ~jnp.isnan(report.loss)
    weights = sampling.shares(jnp.where(reported, selection.weights, jnp.float32(0)))
    trained = jnp.sum(weights * _bounded(jnp.where(reported, report.loss, jnp.float32(0))))
    polls = state.d > auto.m
    loss = jnp.where(polls, jnp.sum(_mass(report.size, state.d, answered) * answers), trained)
    heard = jnp.where(polls, answered.any(), reported.any())
    cost = _cost(state.cost, report) if auto.currency == "seconds" else state.cost
    after = state._replace(
        loss=jnp.where(heard, loss, state.loss),
        lowest=jnp.minimum(state.lowest, _lowest(jnp.where(answered, answers, jnp.nan))),
        cost=cost,
    )
    trend = jax.tree.map(lambda new, old: jnp.where(heard, new, old), state.trend.add(loss), state.trend)
    return _steer(auto, after, trend, dear=polls & (cost > WORTH))


def _cost(before: Float[Array, ""], report: Report) -> Float[Array, ""]:
    """The seconds of a poll over those of training, where both are known."""
    assert report.duration is not None
    training = jnp.max(report.duration, where=~jnp.isnan(report.duration), initial=0)
    cost = jnp.asarray(report.poll_duration, jnp.float32) / jnp.where(training > 0, training, jnp.nan)
    mixed = jnp.where(jnp.isnan(before), cost, jnp.float32(0.8) * before + jnp.float32(0.2) * cost)
    return jnp.where((cost > 0) & (cost < jnp.inf), mixed, before)


def _steer(auto: Auto, state: Course, trend: Trend, dear: Bool[Array, ""]) -> Course:
    """d after the round: halved without progress or where polls are dear, doubled where the loss falls."""
    end = trend.rounds >= trend.length
    compared = end & ~jnp.isnan(trend.before)
    fall, noise = trend.before - trend.mean, jnp.sqrt(trend.error_before + trend.error())
    less = compared & ~(fall > FLAT * noise) & (state.d > auto.m)
    more = compared & (fall > FALLING * noise) & (state.d < state.most)
    half = jnp.maximum(state.d // 2, auto.m)
    d = jnp.where(less | dear, half, jnp.where(more, jnp.minimum(2 * state.d, state.most), state.d))
    reason = jnp.where(dear, 3, jnp.where(less, 1, jnp.where(more, 2, 0)))
    started = jax.tree.map(lambda new, old: jnp.where(end, new, old), trend.next_block(), trend)
    return state._replace(
        d=d,
        most=jnp.where(dear, half, state.most),
        trend=jax.tree.map(lambda new, old: jnp.where(reason > 0, new, old), Trend.init(), started),
        reason=jnp.where(reason > 0, reason, state.reason).astype(jnp.int32),
        rounds=jnp.where(reason > 0, trend.rounds + trend.rounds_before, state.rounds),
    )


def _mask(chosen: Int[Array, " n"], filled: Bool[Array, " n"], weight: Float[Array, " K"]) -> Mask:
    K = weight.shape[0]
    return jnp.zeros(K, bool).at[jnp.where(filled, chosen, K)].set(True, mode="drop") & (weight > 0)


def _mass(weight: Float[Array, " K"], d: Int[Array, ""], known: Mask) -> Float[Array, " K"]:
    """What each candidate stands for of all data: p_k / pi_k, as parts of 1."""
    probability = sampling.inclusion_probabilities(weight, d)
    share = sampling.shares(weight) / jnp.where(probability > 0, probability, jnp.float32(1))
    return sampling.shares(jnp.where(known, share, jnp.float32(0)))


def _lowest(loss: Float[Array, " K"]) -> Float[Array, ""]:
    lowest: Float[Array, ""] = jnp.maximum(jnp.min(loss, where=~jnp.isnan(loss), initial=0), jnp.float32(-LARGEST))
    return lowest


def _bounded(loss: Float[Array, " n"]) -> Float[Array, " n"]:
    return jnp.clip(loss, -jnp.float32(LARGEST), jnp.float32(LARGEST))
