"""Wrappers against clients that lie about their losses: a limit set by the others, and credits that are lost."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import rounded
from fedpick.protocol import Clients, Losses, Mask, Report, Selection, Selector, needs
from fedpick.pytrees import pytree
from fedpick.selectors.wrappers import Around, check_held, seated_mask
from fedpick.validation import require


class Heard(NamedTuple):
    """The memory of a ``RankClip``: that of its strategy, and the last loss that each client has said, NaN if none."""

    inner: Any
    last: Float[Array, " K"]


@pytree
class RankClip(Around):
    """A strategy that believes no loss above the j-th highest, where j is a share of those that were heard.

    In a poll these are the answers of the round, after training the last loss of every client that has said one. A loss
    above the limit counts as the limit, and strategies that go by the highest loss break such ties at random. Clients
    of share f that say whatever they like then take f d / j of the seats of pow-d and not f d / m: the limit costs as
    much choice as it gives protection, and at share = 1 nothing but chance decides. Squared losses, by which ``Oort``
    goes, are not clipped.

    Args:
        selector: The strategy.
        share: j over the number of those heard, above 0 and at most 1; j is at least m.

    >>> from fedpick import PowerOfChoice
    >>> RankClip(PowerOfChoice(m=3, d=15), share=0.5).poll
    'full'
    """

    selector: Selector[Any]
    share: float | Float[Array, ""] = 0.75

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector, seats=True)
        require(self, "share", self.share, "above 0 and at most 1", lambda x: (x > 0) & (x <= 1))

    def init(self, num_clients: int) -> Heard:
        return Heard(self.selector.init(num_clients), jnp.full(num_clients, jnp.nan, jnp.float32))

    def propose(self, key: PRNGKeyArray, state: Heard, clients: Clients) -> Mask:
        return self.selector.propose(key, state.inner, clients)

    def select(self, key: PRNGKeyArray, state: Heard, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        return self.selector.select(key, state.inner, clients, candidates, jnp.minimum(losses, self._limit(losses)))

    def observe(self, state: Heard, selection: Selection, report: Report) -> Heard:
        K = state.last.shape[0]
        line = jnp.where((selection.weights > 0) & ~jnp.isnan(report.loss), selection.clients, K)
        last = state.last.at[line].set(report.loss, mode="drop")
        heard = report._replace(loss=jnp.minimum(report.loss, self._limit(last)))
        if report.polled is not None:
            heard = heard._replace(polled=jnp.minimum(report.polled, self._limit(report.polled)))
        return Heard(self.selector.observe(state.inner, selection, heard), last)

    def _limit(self, losses: Float[Array, " K"]) -> Float[Array, ""]:
        """The j-th highest of the losses that are there; infinite where there is none."""
        assert self.m is not None
        there = ~jnp.isnan(losses)
        number = there.sum(dtype=jnp.int32)
        rank = jnp.maximum(number - sampling.portion(1 - jnp.asarray(self.share, jnp.float32), number), self.m)
        limit = sampling.nth_smallest(losses, there, number - rank + 1)
        return jnp.where(number > 0, limit, jnp.float32(jnp.inf))


class Accounts(NamedTuple):
    """The memory of ``Credits``: that of its strategy, and of each client its account.

    ``before`` is what it said when it last had a seat, NaN where there is none; ``strikes`` how often training has
    not helped it in a row; ``rest`` the rounds that it still sits out; ``usual`` the lower quartile of how much a
    client's loss falls, in logarithms.
    """

    inner: Any
    before: Float[Array, " K"]
    strikes: Int[Array, " K"]
    rest: Int[Array, " K"]
    usual: Float[Array, ""]


@pytree
class Credits(Around):
    """A strategy that asks: does training help you? Who always says no loses its credit for a while.

    Each time a client is heard again after a seat, by an answer to a poll or after training, the logarithm of its loss
    is compared with that before. Three times in a row (``strikes``) a fall in the lowest quarter of all falls, and it
    is unavailable for ``rounds`` rounds; then it has one strike less than it takes. Nothing is for ever: an honest
    client with rare data may look like a liar. Where fewer than m clients have credit, all are available.

    Args:
        selector: The strategy; it sees clients without credit as unavailable.
        strikes: Falls in a row among the lowest quarter that cost the credit.
        rounds: Rounds without a seat.

    >>> from fedpick import PowerOfChoice
    >>> Credits(PowerOfChoice(m=3, d=6)).strikes
    3
    """

    selector: Selector[Any]
    strikes: int | Int[Array, ""] = 3
    rounds: int | Int[Array, ""] = 20

    nonnegative_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector, seats=True)
        require(self, "strikes", self.strikes, "at least 1", lambda n: n >= 1, whole=True)
        require(self, "rounds", self.rounds, "at least 0", lambda n: n >= 0, whole=True)

    @property
    def needs(self) -> frozenset[str]:
        return needs(self.selector) | ({"polled"} if self.poll != "none" else set())

    def init(self, num_clients: int) -> Accounts:
        none = jnp.zeros(num_clients, jnp.int32)
        unheard = jnp.full(num_clients, jnp.nan, jnp.float32)
        return Accounts(self.selector.init(num_clients), unheard, none, none, jnp.float32(0))

    def propose(self, key: PRNGKeyArray, state: Accounts, clients: Clients) -> Mask:
        return self.selector.propose(key, state.inner, self._trusted(state, clients))

    def select(
        self, key: PRNGKeyArray, state: Accounts, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        return self.selector.select(key, state.inner, self._trusted(state, clients), candidates, losses)

    def observe(self, state: Accounts, selection: Selection, report: Report) -> Accounts:
        K = state.rest.shape[0]
        seated = seated_mask(selection, K)
        line = jnp.where(selection.weights > 0, selection.clients, K)
        after = jnp.full(K, jnp.nan, jnp.float32).at[line].set(report.loss, mode="drop")
        now = after if report.polled is None or self.poll == "norm" else report.polled
        fall = _log(state.before) - _log(now)
        heard = ~jnp.isnan(fall)
        # A running quantile: a step up for each fall above it, three down for each below.
        steps = jnp.where(heard, jnp.where(fall < state.usual, jnp.float32(-0.75), jnp.float32(0.25)), 0.0).sum()
        usual = state.usual + rounded(jnp.float32(0.02) * steps)
        helped = (fall >= usual) & (fall > 0)
        strikes = jnp.where(heard, jnp.where(helped, 0, state.strikes + 1), state.strikes)
        most = jnp.asarray(self.strikes, jnp.int32)
        out = strikes >= most
        rest = jnp.where(out, jnp.asarray(self.rounds, jnp.int32), jnp.maximum(state.rest - 1, 0))
        before = jnp.where(seated & ~jnp.isnan(now), now, jnp.where(heard, jnp.nan, state.before))
        known = report if "polled" in needs(self.selector) else report._replace(polled=None)
        inner = self.selector.observe(state.inner, selection, known)
        return Accounts(inner, before, jnp.where(out, most - 1, strikes), rest, usual)

    def _trusted(self, state: Accounts, clients: Clients) -> Clients:
        assert self.m is not None
        trusted = clients.available & (state.rest == 0)
        enough = jnp.sum(trusted & (clients.size > 0), dtype=jnp.int32) >= self.m
        return clients._replace(available=jnp.where(enough, trusted, clients.available))


def _log(loss: Float[Array, " K"]) -> Float[Array, " K"]:
    return jnp.log(jnp.clip(loss, 1e-30, 1e30))
