"""The harness of the checks: a small federation in which some clients are unavailable and some do not answer."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedpick.metrics import Numbers
from fedpick.protocol import (
    FACTS,
    OF_SEATS,
    Clients,
    Report,
    Selection,
    Selector,
    check_clients,
    needs,
    pick,
    round_keys,
)
from fedpick.updates import lengths

DRAWS = 4000


class LawBrokenError(AssertionError):
    """A strategy breaks a law or a claim of its own; the message names it and the inputs."""


class Scenario(NamedTuple):
    """The inputs of one round: the clients, what they answer to a poll, and what each would report after training."""

    clients: Clients
    answers: Float[Array, " K"]
    reports: Report  # with a row per client, and None for what the strategy does not need

    def __str__(self) -> str:
        size, available = np.asarray(self.clients.size), np.asarray(self.clients.available)
        return f"size={size}, available={np.flatnonzero(available)}, losses={np.asarray(self.answers)}"


class PlayedRound(NamedTuple):
    """The outcome of a round: the state after it, the candidates and the seats."""

    state: Any
    candidates: Bool[Array, " K"]
    selection: Selection


def play(selector: Selector[Any], seed: Any, t: Any, state: Any, scenario: Scenario) -> PlayedRound:
    """Play round t of the protocol on these inputs."""
    keys = round_keys(seed, t)
    candidates, losses, selection = pick(selector, keys, state, scenario.clients, lambda key, asked: scenario.answers)
    report = seats_report(selector, scenario, selection, losses)
    return PlayedRound(selector.observe(state, selection, report), candidates, selection)


def seats_report(selector: Selector[Any], scenario: Scenario, selection: Selection, losses: Any) -> Report:
    """What the seats report, and what was polled where the strategy needs that."""

    def rows(values: Any) -> Any:
        filled = (selection.weights > 0).reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(filled, values[selection.clients], jnp.nan)

    report: Report = jax.tree.map(rows, scenario.reports)
    size = jnp.where(scenario.clients.available, scenario.clients.size, jnp.float32(0))
    of_round = {"polled": losses, "poll_duration": jnp.max(report.loss), "size": size}
    return report._replace(**{name: value for name, value in of_round.items() if name in needs(selector)})


class Trial:
    """A strategy with a federation of K clients of unequal sizes, and the inputs of eight rounds."""

    def __init__(self, selector: Selector[Any], K: int, seed: int) -> None:
        self.selector, self.K, self.seed = selector, K, seed
        self.m = K if selector.m is None else selector.m
        self.size = np.arange(1, K + 1, dtype=np.int32) ** 2
        self.traces = self.compilations = 0
        self.compiled_round: Callable[..., PlayedRound] = jax.jit(self._counted_round)
        self._compiled_draws = jax.jit(jax.vmap(play, in_axes=(None, None, 0, None, None)))

    def _counted_round(self, *arguments: Any) -> PlayedRound:
        self.traces += 1
        return play(*arguments)

    @functools.cached_property
    def scenarios(self) -> list[Scenario]:
        """The inputs of eight rounds, drawn when they are first asked for: law 8 needs the shapes of one alone."""
        return list(self._scenarios(8))

    def _scenarios(self, number: int) -> Iterator[Scenario]:
        rng = np.random.default_rng(self.seed)
        for t in range(number):
            available = rng.permutation(self.K) < (self.K if t % 2 else max(self.K // 2, 1))
            answers = rng.normal(size=self.K)
            answers[rng.permutation(self.K)[: self.K // 4]] = np.nan
            training = np.where(rng.random(self.K) < 0.2, np.nan, rng.normal(size=self.K))
            yield self.scenario(available=available, answers=answers, training=training, rng=rng)

    def scenario(
        self,
        available: Any = True,
        answers: Any = 0.0,
        training: Any = 0.0,
        size: Any = None,
        rng: np.random.Generator | None = None,
    ) -> Scenario:
        """Inputs of a round of this federation; a single value is that of every client.

        With ``rng``, a fifth of all that the strategy needs beyond losses is NaN, and the rest is random.
        """
        wanted, wide = needs(self.selector), lengths(self.selector)

        def values(name: str) -> Any:
            shape = (self.K, wide[name]) if name in wide else (self.K,)
            if rng is None:
                return jnp.ones(shape, jnp.float32)
            found = rng.normal(size=shape) if name in wide else rng.exponential(size=shape)
            found[rng.random(self.K) < 0.2] = np.nan
            return jnp.asarray(found, jnp.float32)

        facts: dict[str, Any] = {fact: values(fact) for fact in FACTS if fact in wanted}
        if "leaving" in facts:
            facts["leaving"] = facts["leaving"] > 1
        clients = Clients(
            jnp.asarray(self.size if size is None else size, jnp.int32),
            jnp.broadcast_to(jnp.asarray(available), self.K),
            **facts,
        )
        answers, training = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), self.K) for x in (answers, training))
        reports = Report(training, **{name: values(name) for name in OF_SEATS if name in wanted})
        return Scenario(check_clients(self.selector, clients), answers, reports)

    def loop(self, one_round: Callable[..., PlayedRound]) -> list[PlayedRound]:
        """All eight rounds, in a Python loop."""
        state, rounds = self.selector.init(self.K), []
        for t, scenario in enumerate(self.scenarios):
            rounds.append(one_round(self.selector, self.seed, t, state, scenario))
            state = rounds[-1].state
        return rounds

    @functools.cached_property
    def rounds(self) -> list[PlayedRound]:
        """All eight rounds by the compiled round; ``compilations`` says how often they compiled it."""
        before = self.traces
        rounds = self.loop(self.compiled_round)
        self.compilations = self.traces - before
        return rounds

    @functools.cached_property
    def states(self) -> list[Any]:
        """States to start from: the initial one, and that after all rounds."""
        return [self.selector.init(self.K), self.rounds[-1].state]

    def takes_empty_seats_for_the_last_client(self) -> bool:
        """Whether an empty seat, -1, changes what ``observe`` remembers of the last client, whom -1 means as an index.

        The last two clients are alike, having done and said the same. They stay so where neither has a seat, empty
        seats or not; a round with a client in two seats is the one without.
        """
        K, m, others = self.K, self.m, range(self.m - 1)
        if m + 2 > K:
            return False
        scenario = self.scenario(answers=2.0, training=2.0, size=np.full(K, 10))

        def observed(state: Any, *clients: int) -> Any:
            seats = np.array(clients, np.int32)
            weights = (seats >= 0) / max((seats >= 0).sum(), 1)
            selection = Selection(jnp.asarray(seats), jnp.asarray(weights, jnp.float32))
            report = seats_report(self.selector, scenario, selection, scenario.answers)
            return self.selector.observe(state, selection, report)

        def alike(table: Any) -> bool:
            return np.shape(table)[:1] == (K,) and np.array_equal(table[-2], table[-1], equal_nan=True)

        states = [self.selector.init(K)]
        if m > 1:
            states.append(observed(states[0], *range(m - 2), K - 2, K - 1))
        for state in states:
            after = (observed(state, *others, max(m - 2, 0)), observed(state, *others, -1))
            for before, usual, empty in zip(*map(jax.tree.leaves, (state, *after)), strict=True):
                if alike(before) and alike(usual) and not alike(empty):
                    return True
        return False

    def draws(self, scenario: Scenario, state: Any) -> PlayedRound:
        """4,000 rounds from the same state and inputs, each with its own keys."""
        times = np.arange(DRAWS, dtype=np.int32)
        rounds: PlayedRound = jax.tree.map(
            _numbers, self._compiled_draws(self.selector, self.seed, times, state, scenario)
        )
        return rounds


def stack(trees: list[Any]) -> Any:
    """Trees of the same structure as one tree, with a new first axis."""
    return jax.tree.map(lambda *leaves: np.stack([_numbers(leaf) for leaf in leaves]), *trees)


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same numbers, NaN equal to NaN."""
    ones, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(ones) == len(others) and all(
        np.array_equal(_numbers(a), _numbers(b), equal_nan=True) for a, b in zip(ones, others, strict=True)
    )


def need(holds: Any, rule: str, what: str, scenario: Scenario | None = None) -> None:
    """Raise unless ``holds``: ``rule`` is the law or claim, ``what`` says how it is broken, and on which inputs."""
    if not holds:
        raise LawBrokenError(f"{rule}: {what}" + (f", on {scenario}" if scenario is not None else ""))


def _numbers(leaf: Any) -> Numbers:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
