"""Oort (Lai et al. 2021): seats by utility, loss against speed, with a share of them for clients never seen."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import Ledger, enter
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

Number = float | Float[Array, ""]
Whole = int | Int[Array, ""]
LARGEST = 1e30  # of a utility; a client may report anything


class OortState(NamedTuple):
    """What Oort remembers: ``ledger`` holds q_k in place of a loss, ``duration`` the seconds of the last participation.

    ``exploration`` and ``threshold`` are epsilon and theta after the last round, ``utility`` the pacer's sums over the
    rounds of this stage and of the one before.
    """

    ledger: Ledger
    duration: Float[Array, " K"]
    exploration: Float[Array, ""]
    threshold: Float[Array, ""]
    utility: Float[Array, "2"]


@pytree
class Oort:
    """Seats by statistical utility times a penalty for slow devices; some for clients that have never trained.

    The utility of a client is U_k = n_k sqrt(q_k), with n_k = min(D_k, ``samples``) and q_k the mean squared loss of
    its samples when it last trained; n_k before that. T is the theta-percentile of all durations t_k.

    1. Score of those who have trained: s_k = (min(U_k, c) - l) / (max U - l) + sqrt(0.1 ln t / L_k), with c the
       ``clip``-quantile of U, l = 0.999 min U, t the round and L_k the round in which k last trained, both from 1;
       times (T / t_k)^penalty where t_k > T.
    2. epsilon = max(``exploration`` * ``exploration_decay``^t, ``exploration_min``); 0 once everybody has trained.
    3. Exploit: e = floor(m (1 - epsilon)) seats, drawn without replacement by s_k among those with s_k at least
       ``cut_off`` times the (e+1)-th largest.
    4. Explore: the other seats by n_k times the penalty, among the ``window`` times as many of the unseen for whom
       that is largest.
    5. Seats that are left are drawn uniformly.

    The pacer: after every ``pacer_step`` rounds the mean sqrt(q_k) of the exploited is summed up and compared with
    the sum of the stage before. Within a tenth of it, theta rises by ``pacer_delta``; five times off, it falls.

    Args:
        m: Seats, the clients that train in a round.
        samples: tau b, the most samples that a client trains on in a round; None for no limit.
        exploration: epsilon before the first round.
        exploration_decay: Its factor per round.
        exploration_min: Its lower limit while there are clients that have never trained.
        penalty: Exponent of T / t_k; 0 ignores durations.
        threshold: theta before the first round, in percent; at 100 nobody is too slow.
        pacer_delta: By how much the pacer changes theta.
        pacer_step: Rounds between its decisions.
        clip: Quantile of the utilities at which they are clipped.
        cut_off: Fraction of the (e+1)-th largest score that a client must have to be exploited.
        window: How many of the unseen are looked at for each of their seats.
        blacklist_rounds: A client that has trained more often is left out; None for never.
        blacklist_share: Fraction of the clients that may be left out at a time, those that trained most often.

    >>> Oort(m=3).needs == {"square_loss", "duration", "expected_duration"}
    True
    """

    m: int = static()
    samples: Number | None = None
    exploration: Number = 0.9
    exploration_decay: Number = 0.95
    exploration_min: Number = 0.2
    penalty: Number = 2.0
    threshold: Number = 10.0
    pacer_delta: Number = 5.0
    pacer_step: Whole = 20
    clip: Number = 0.98
    cut_off: Number = 0.7
    window: Number = 5.0
    blacklist_rounds: Whole | None = None
    blacklist_share: Number = 0.3

    poll: ClassVar[Poll] = "none"
    nonnegative_losses: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"square_loss", "duration", "expected_duration"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        for name in ("exploration", "exploration_decay", "exploration_min", "clip", "cut_off", "blacklist_share"):
            require(self, name, getattr(self, name), "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))
        for name in ("threshold", "pacer_delta"):
            require(self, name, getattr(self, name), "at least 0 and at most 100", lambda x: (x >= 0) & (x <= 100))
        require(self, "penalty", self.penalty, "finite and at least 0", lambda x: (x >= 0) & (x < float("inf")))
        require(self, "window", self.window, "finite and at least 1", lambda x: (x >= 1) & (x < float("inf")))
        require(self, "pacer_step", self.pacer_step, "at least 1", lambda x: x >= 1, whole=True)
        if self.samples is not None:
            require(self, "samples", self.samples, "above 0", lambda x: x > 0)
        if self.blacklist_rounds is not None:
            require(self, "blacklist_rounds", self.blacklist_rounds, "at least 0", lambda x: x >= 0, whole=True)

    def init(self, num_clients: int) -> OortState:
        at_most_clients(self, "m", self.m, num_clients)
        ledger = Ledger.init(num_clients)
        return OortState(
            ledger,
            duration=jnp.full_like(ledger.loss, jnp.nan),
            exploration=jnp.asarray(self.exploration, jnp.float32),
            threshold=jnp.asarray(self.threshold, jnp.float32),
            utility=jnp.zeros(2, jnp.float32),
        )

    def propose(self, key: PRNGKeyArray, state: OortState, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(
        self, key: PRNGKeyArray, state: OortState, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        state.ledger.fits(clients)
        list_key, race_key, window_key, fill_key = jax.random.split(key, 4)
        trained = state.ledger.times > 0
        listed = candidates & self._blacklist(list_key, state.ledger.times)
        slowdown = self._slowdown(state, clients)
        n = clients.size if self.samples is None else jnp.minimum(clients.size, jnp.asarray(self.samples, jnp.float32))

        explored = candidates & trained & ~listed
        score = self._score(state, n, candidates & ~listed) * slowdown
        e = jnp.minimum(sampling.portion(1 - self._epsilon(state), self.m), _count(explored))
        border = -sampling.nth_smallest(-score, explored, e + 1)
        pool = explored & (score >= jnp.asarray(self.cut_off, jnp.float32) * border) & (e > 0)

        unseen, prior = candidates & ~trained, n * slowdown
        left = jnp.minimum(self.m - e, _count(unseen))
        looked_at = sampling.top_k_mask(window_key, prior, unseen, sampling.portion(self.window, left))

        # One race serves both draws, which are among different clients.
        weight = jnp.where(pool, score, jnp.where(looked_at, prior, jnp.float32(0)))
        arrival = sampling.arrivals(race_key, weight)
        exploit = sampling.first_k_mask(jnp.where(pool, arrival, jnp.inf), e)
        explore = sampling.first_k_mask(jnp.where(looked_at, arrival, jnp.inf), left)
        fill = _fill(fill_key, candidates & ~exploit & ~explore, listed, self.m - _count(exploit | explore))
        return sampling.seat(*sampling.in_turn((exploit, explore, fill), self.m))

    def observe(self, state: OortState, selection: Selection, report: Report) -> OortState:
        assert report.square_loss is not None
        assert report.duration is not None
        epsilon, before = self._epsilon(state, decayed_only=True), state.ledger
        # The exploited have the first seats, and have trained before.
        seats = jnp.arange(self.m, dtype=jnp.int32)
        known = (before.times[selection.clients] > 0) & (selection.weights > 0)
        exploited = jnp.cumprod(known.astype(jnp.int32), dtype=jnp.int32) == 1
        exploited &= seats < sampling.portion(1 - self._epsilon(state), self.m)
        exploited &= ~jnp.isnan(report.square_loss)
        utility = jnp.where(exploited, _root(report.square_loss), jnp.float32(0)).sum()
        utility = utility / jnp.maximum(_count(exploited), 1).astype(jnp.float32)
        ledger = before.observe(selection, report._replace(loss=report.square_loss))
        threshold, utilities = self._pace(state, ledger.round + 1, utility)
        duration = enter(state.duration, selection, report.duration)
        return OortState(ledger, duration, epsilon, threshold, utilities)

    def _epsilon(self, state: OortState, decayed_only: bool = False) -> Float[Array, ""]:
        """The share of the seats that explore in this round."""
        decay, least = (jnp.asarray(x, jnp.float32) for x in (self.exploration_decay, self.exploration_min))
        epsilon = jnp.maximum(state.exploration * decay, least)
        return epsilon if decayed_only else jnp.where(jnp.all(state.ledger.times > 0), jnp.float32(0), epsilon)

    def _pace(
        self, state: OortState, t: Int[Array, ""], utility: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, "2"]]:
        """theta for round t, and the sums of the stages, after the utility of round t - 1."""
        step, delta = jnp.asarray(self.pacer_step, jnp.int32), jnp.asarray(self.pacer_delta, jnp.float32)
        now, earlier = state.utility[0] + utility, state.utility[1]
        step = jnp.maximum(step, 1)
        ends = t % step == 0
        change = jnp.abs(now - earlier)
        up = jnp.minimum(jnp.float32(100), state.threshold + delta)
        down = jnp.maximum(delta, state.threshold - delta)
        sharp = jnp.where(change >= 5 * earlier, down, state.threshold)
        moved = jnp.where(change <= jnp.float32(0.1) * earlier, up, sharp)
        threshold = jnp.where(ends & (t // step >= 2), moved, state.threshold)
        return threshold, jnp.where(ends, jnp.stack([jnp.float32(0), now]), jnp.stack([now, earlier]))

    def _slowdown(self, state: OortState, clients: Clients) -> Float[Array, " K"]:
        """(T / t_k)^penalty for those slower than T, else 1."""
        assert clients.expected_duration is not None
        reported = ~jnp.isnan(state.duration)
        duration = sampling.fill_unknown(jnp.where(reported, state.duration, clients.expected_duration))
        everybody, K = jnp.ones_like(reported), duration.shape[0]
        T = sampling.nth_smallest(duration, everybody, sampling.portion(state.threshold / 100, K) + 1)
        T = jnp.where(state.threshold < 100, T, jnp.inf)
        ratio = T / jnp.maximum(duration, jnp.float32(1e-4))
        return jnp.where(duration > T, ratio ** jnp.asarray(self.penalty, jnp.float32), jnp.float32(1))

    def _score(self, state: OortState, n: Float[Array, " K"], among: Mask) -> Float[Array, " K"]:
        """The statistical part of the score: the clipped utility, from 0 to 1, and how long ago it was measured."""
        trained = state.ledger.times > 0
        utility = jnp.minimum(jnp.where(trained, n * _root(state.ledger.loss), n), jnp.float32(LARGEST))
        among = among & (utility > 0)
        clip = sampling.nth_smallest(utility, among, sampling.portion(self.clip, _count(among)) + 1)
        low = jnp.float32(0.999) * jnp.min(utility, where=among, initial=LARGEST)
        span = jnp.maximum(jnp.max(utility, where=among, initial=0) - low, jnp.float32(1e-4))
        # A clip of NaN: nobody has any utility.
        value = (jnp.where(utility > clip, clip, utility) - low) / span
        t, last = (x.astype(jnp.float32) for x in (state.ledger.round + 1, jnp.maximum(state.ledger.last + 1, 1)))
        return jnp.maximum(value + jnp.sqrt(jnp.float32(0.1) * jnp.log(t) / last), jnp.float32(0))

    def _blacklist(self, key: PRNGKeyArray, times: Int[Array, " K"]) -> Bool[Array, " K"]:
        if self.blacklist_rounds is None:
            return jnp.zeros(times.shape, bool)
        over = times > jnp.asarray(self.blacklist_rounds, jnp.int32)
        most = sampling.portion(self.blacklist_share, times.shape[0])
        return sampling.top_k_mask(key, times.astype(jnp.float32), over, most)


@jax.jit  # or lax.cond would be compiled in every round of a plain loop
def _fill(key: PRNGKeyArray, others: Mask, listed: Mask, seats: Int[Array, ""]) -> Mask:
    """The last seats uniformly, those on the blacklist after all others."""

    def draw() -> Mask:
        lot = sampling.uniform_keys(key, others)
        return sampling.first_k_mask(jnp.where(listed, lot + 1, lot), seats)

    last: Mask = lax.cond((seats > 0) & others.any(), draw, lambda: jnp.zeros_like(others))
    return last


def _root(square: Float[Array, " n"]) -> Float[Array, " n"]:
    """The square root of what may be any number."""
    return jnp.sqrt(jnp.clip(square, 0, LARGEST))


def _count(mask: Bool[Array, " n"]) -> Int[Array, ""]:
    return jnp.sum(mask, dtype=jnp.int32)
