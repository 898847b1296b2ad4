"""Wrappers, strategies that hold a strategy: a rest after a seat, and a few seats by rand."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection, Selector, check_strategy, needs, polled
from fedpick.pytrees import pytree
from fedpick.text import shown
from fedpick.validation import owner_name, require


class Around:
    """What a wrapper takes over from the strategy that it holds; none of that one's claims."""

    selector: Selector[Any]

    @property
    def m(self) -> int | None:
        return self.selector.m

    @property
    def poll(self) -> Poll:
        return self.selector.poll

    @property
    def needs(self) -> frozenset[str]:
        return needs(self.selector)

    @property
    def skips_poll(self) -> bool:
        return bool(getattr(self.selector, "skips_poll", False))

    @property
    def enquires(self) -> int:
        return int(getattr(self.selector, "enquires", 0))

    @property
    def one_key(self) -> bool:
        return bool(getattr(self.selector, "one_key", False))

    @property
    def weights_sum_to_1(self) -> bool:
        return bool(getattr(self.selector, "weights_sum_to_1", True))

    @property
    def fills_seats(self) -> bool:
        return bool(getattr(self.selector, "fills_seats", True))

    @property
    def nonnegative_losses(self) -> bool:
        return bool(getattr(self.selector, "nonnegative_losses", False))

    @property
    def work(self) -> str:
        return str(getattr(self.selector, "work", "K"))

    @property
    def sketch_size(self) -> int:
        return int(self.selector.sketch_size)  # type: ignore[attr-defined]

    @property
    def classes(self) -> int:
        return int(self.selector.classes)  # type: ignore[attr-defined]


class Rest(NamedTuple):
    """The memory of a ``Cooldown``: that of its strategy, and how many rounds each client still rests."""

    inner: Any
    left: Int[Array, " K"]


@pytree
class Cooldown(Around):
    """A strategy whose clients rest after a seat: they are unavailable for a number of rounds.

    Whatever losses they report, L clients train at most L ceil(T / (rounds + 1)) times in T rounds, with
    m (rounds + 1) clients or more that are always there: a bound on the seats that liars can take, and on the bias of
    any strategy. Where fewer than m rested clients are there, those that have rested longest are let in, ties broken
    at random, so that m clients are available: the strategy has nothing to choose then, and its losses decide nothing.
    Keep K - m rounds above m, and no less than d. A seat counts even if its
    client fails or is silent: silence does not shorten the rest.

    Args:
        selector: The strategy; it sees the resting clients as unavailable.
        rounds: Rounds of rest after a seat; at 0 the picks are those of the strategy alone.

    >>> from fedpick import PowerOfChoice
    >>> Cooldown(PowerOfChoice(m=3, d=6), rounds=5).poll
    'full'
    """

    selector: Selector[Any]
    rounds: int | Int[Array, ""] = 5

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector, seats=True)
        require(self, "rounds", self.rounds, "at least 0", lambda n: n >= 0, whole=True)

    @property
    def resting(self) -> int | Int[Array, ""]:
        """How many clients rest in a round, m rounds, once it has been played for so long."""
        assert self.m is not None
        return self.m * self.rounds

    def init(self, num_clients: int) -> Rest:
        return Rest(self.selector.init(num_clients), jnp.zeros(num_clients, jnp.int32))

    def propose(self, key: PRNGKeyArray, state: Rest, clients: Clients) -> Mask:
        assert self.m is not None
        rested, usable = state.left == 0, clients.available & (clients.size > 0)
        longest = _longest(jax.random.fold_in(key, _TIES), state.left, usable, jnp.int32(self.m))
        return self.selector.propose(key, state.inner, _only(clients, rested | longest))

    def select(self, key: PRNGKeyArray, state: Rest, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        # Where some were let in, exactly m are available, and whoever can have a seat is a candidate.
        here = _only(clients, (state.left == 0) | candidates)
        return self.selector.select(key, state.inner, here, candidates, losses)

    def observe(self, state: Rest, selection: Selection, report: Report) -> Rest:
        left = jnp.maximum(state.left - 1, 0)
        seated = seated_mask(selection, left.shape[0])
        return Rest(
            self.selector.observe(state.inner, selection, report),
            jnp.where(seated, jnp.asarray(self.rounds, jnp.int32), left),
        )


@pytree
class Explore(Around):
    """A strategy that gives up ceil(share m) of its m seats to clients drawn by rand.

    1. The strategy selects its m seats.
    2. ceil(share m) others are drawn by share p_k, without replacement, from the available clients that it did not
       select; fewer where there are no more.
    3. They take empty seats first, then seats of the strategy that are drawn at random. Each weighs as much as the
       average seat, and the seats that stay share the rest as before: the weights have the sum that the strategy gave.

    Where the strategy polls, up to ceil(share m) clients beyond its own candidates are polled, because a seat goes to a
    candidate; who does not answer has no seat.

    Args:
        selector: The strategy.
        share: Share of the seats that is drawn by rand, at least 0 and at most 1.

    >>> from fedpick import PowerOfChoice
    >>> Explore(PowerOfChoice(m=10, d=20), share=0.2).m
    10
    """

    selector: Selector[Any]
    share: float | Float[Array, ""] = 0.1

    one_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_held(self, "selector", self.selector, seats=True)
        require(self, "share", self.share, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))

    def init(self, num_clients: int) -> Any:
        return self.selector.init(num_clients)

    def propose(self, key: PRNGKeyArray, state: Any, clients: Clients) -> Mask:
        lots_key, _, propose_key, _ = inner_keys(self.selector, key)
        candidates = self.selector.propose(propose_key, state, clients)
        others = jnp.where(candidates, jnp.inf, _lots(lots_key, clients))
        return candidates | sampling.first_k_mask(others, self._number())

    def select(self, key: PRNGKeyArray, state: Any, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        assert self.m is not None
        lots_key, seats_key, propose_key, select_key = inner_keys(self.selector, key)
        own = self.selector.propose(propose_key, state, clients)  # the same as in propose: the key is
        chosen = self.selector.select(select_key, state, clients, own, jnp.where(own, losses, jnp.nan))
        # Law 6 for strategies that would not have polled the few candidates they have, too.
        silent = polled(self, candidates) & jnp.isnan(losses)
        kept = jnp.where(silent[chosen.clients], jnp.float32(0), chosen.weights)
        others = candidates & ~silent & ~seated_mask(chosen, candidates.shape[0])
        drawn, there = sampling.first_k(jnp.where(others, _lots(lots_key, clients), jnp.inf), self.m)
        number = jnp.sum(there & (jnp.arange(self.m, dtype=jnp.int32) < self._number()), dtype=jnp.int32)
        order = jnp.where(kept > 0, sampling.uniforms(seats_key, (self.m,)), jnp.float32(0))
        given = sampling.first_k_mask(order, number)
        place = jnp.cumsum(given, dtype=jnp.int32) - 1
        total = jnp.where(jnp.any(chosen.weights > 0), chosen.weights.sum(), jnp.float32(1))
        return sampling.weighted(jnp.where(given, drawn[place], chosen.clients), _weights(kept, given, total))

    def observe(self, state: Any, selection: Selection, report: Report) -> Any:
        return self.selector.observe(state, selection, report)

    def _number(self) -> Int[Array, ""]:
        """ceil(share m)."""
        assert self.m is not None
        return self.m - sampling.portion(1 - jnp.asarray(self.share, jnp.float32), self.m)


_TIES = 2**32 - 1  # beyond the numbers that a strategy folds into its key or splits it by


def check_held(owner: object, name: str, selector: Any, seats: bool = False) -> None:
    """Raise unless it is a strategy and, where ``seats`` is set, has a fixed number of seats."""
    check_strategy(owner, selector, name)
    if hasattr(selector, "disguise"):
        raise ValueError(f"{owner_name(owner)}: {name} must not be private, because Private goes around all others")
    if seats and selector.m is None:
        raise ValueError(f"{owner_name(owner)}: {name} must have a number of seats m, got {shown(selector)}")


def inner_keys(
    selector: Selector[Any], key: PRNGKeyArray
) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Two keys for a wrapper of ``one_key`` itself, and those of propose and select for the strategy that it holds."""
    one, two, propose, select = jax.random.split(key, 4)
    return one, two, propose, propose if getattr(selector, "one_key", False) else select


def seated_mask(selection: Selection, K: int) -> Bool[Array, " K"]:
    """Who has a seat."""
    line = jnp.where(selection.weights > 0, selection.clients, K)  # beyond the last client: dropped
    return jnp.zeros(K, bool).at[line].set(True, mode="drop")


@jax.jit  # one program in a plain Python loop over rounds
def _longest(key: PRNGKeyArray, left: Int[Array, " K"], usable: Mask, m: Int[Array, ""]) -> Mask:
    """Of the resting clients, the longest rested that are let in so that m are available."""
    missing = m - jnp.sum(usable & (left == 0), dtype=jnp.int32)
    longest: Mask = lax.cond(
        missing > 0,
        lambda: sampling.top_k_mask(key, -left.astype(jnp.float32), usable & (left > 0), missing),
        lambda: jnp.zeros_like(usable),
    )
    return longest


def _only(clients: Clients, admitted: Mask) -> Clients:
    return clients._replace(available=clients.available & admitted)


def _lots(key: PRNGKeyArray, clients: Clients) -> Float[Array, " K"]:
    return sampling.arrivals(key, jnp.where(clients.available, clients.size, jnp.float32(0)))


def _weights(weights: Float[Array, " m"], given: Bool[Array, " m"], total: Float[Array, ""]) -> Float[Array, " m"]:
    """The given seats weigh as much as the average seat, the others share the rest of the total as before."""
    kept = jnp.where(given, jnp.float32(0), weights)
    stay, new = (jnp.sum(mask, dtype=jnp.int32).astype(jnp.float32) for mask in (kept > 0, given))
    each = total / jnp.maximum(stay + new, 1)
    return jnp.where(given, each, kept * (each * stay / jnp.where(stay > 0, kept.sum(), jnp.float32(1))))
