"""A trial ground for strategies: a small federation in which some clients are away and some are silent."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedpick.protocol import Clients, Report, Selection, check_clients, pick, round_keys

DRAWS = 4000


class LawBrokenError(AssertionError):
    """A strategy broke a law or does not do what it declares; the message says which, and on which inputs."""


class World(NamedTuple):
    """What happens around the strategy in one round."""

    clients: Clients
    answers: Float[Array, " K"]
    training: Float[Array, " K"]

    def __str__(self) -> str:
        size, available = np.asarray(self.clients.size), np.asarray(self.clients.available)
        return f"size={size}, available={np.flatnonzero(available)}, losses={np.asarray(self.answers)}"


class Round(NamedTuple):
    """What came of a round: the state after it, the candidates and the seats."""

    state: Any
    candidates: Bool[Array, " K"]
    selection: Selection


def play(selector: Any, seed: Any, t: Any, state: Any, world: World) -> Round:
    """One round of the protocol in this world."""
    keys = round_keys(seed, t)
    candidates, _, selection = pick(selector, keys, state, world.clients, lambda key, asked: world.answers)
    report = Report(jnp.where(selection.weights > 0, world.training[selection.clients], jnp.nan))
    return Round(selector.observe(state, selection, report), candidates, selection)


class Trial:
    """A strategy, a federation of K clients with unequal sizes, and rounds in which some are away and some silent."""

    def __init__(self, selector: Any, K: int, seed: int) -> None:
        self.selector, self.K, self.seed = selector, K, seed
        self.m = K if selector.m is None else selector.m
        self.size = np.arange(1, K + 1, dtype=np.int32) ** 2
        self.rounds = list(self._rounds(8))

    def _rounds(self, number: int) -> Iterator[World]:
        rng = np.random.default_rng(self.seed)
        for t in range(number):
            available = rng.permutation(self.K) < (self.K if t % 2 else max(self.K // 2, 1))
            answers = rng.normal(size=self.K)
            answers[rng.permutation(self.K)[: self.K // 4]] = np.nan
            training = np.where(rng.random(self.K) < 0.2, np.nan, rng.normal(size=self.K))
            yield self.world(available=available, answers=answers, training=training)

    def world(self, available: Any = True, answers: Any = 0.0, training: Any = 0.0, size: Any = None) -> World:
        """A world of this trial's federation; single values hold for every client."""
        clients = Clients(
            jnp.asarray(self.size if size is None else size, jnp.int32),
            jnp.broadcast_to(jnp.asarray(available), self.K),
        )
        answers, training = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), self.K) for x in (answers, training))
        return World(check_clients(self.selector, clients), answers, training)

    def loop(self, one_round: Callable[..., Round]) -> list[Round]:
        """The rounds of this trial, one after the other, in a plain Python loop."""
        state, played = self.selector.init(self.K), []
        for t, world in enumerate(self.rounds):
            played.append(one_round(self.selector, self.seed, t, state, world))
            state = played[-1].state
        return played

    @property
    def states(self) -> list[Any]:
        """Memories to start from: none, and that of all the rounds."""
        return [self.selector.init(self.K), self.loop(jax.jit(play))[-1].state]

    def draws(self, world: World, state: Any) -> Round:
        """Many rounds from the same state, each with its own keys."""
        many = jax.jit(jax.vmap(play, in_axes=(None, None, 0, None, None)))
        times = jnp.arange(DRAWS, dtype=jnp.int32)
        drawn: Round = jax.tree.map(_numbers, many(self.selector, self.seed, times, state, world))
        return drawn


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same numbers, NaN equal to NaN."""
    ones, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(ones) == len(others) and all(
        np.array_equal(_numbers(a), _numbers(b), equal_nan=True) for a, b in zip(ones, others, strict=True)
    )


def need(holds: Any, rule: str, what: str) -> None:
    """Raise unless it holds; ``rule`` says what was broken, ``what`` how and on which inputs."""
    if not holds:
        raise LawBrokenError(f"{rule}: {what}")


def _numbers(leaf: Any) -> np.ndarray[Any, Any]:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
