"""The selection of a round on a server: the decision of the simulator, with compiled methods."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fedpick.flower.queries import Queries
from fedpick.protocol import Clients, Losses, Mask, Poll, Selection, Selector, needs, pick, round_keys
from fedpick.sampling import arrivals, first_k, seat

# Compiled once for each K: three programs, and not the fifty small ones that they are made of.
_propose = jax.jit(lambda selector, *args: selector.propose(*args))
_select = jax.jit(lambda selector, *args: selector.select(*args))
observe = jax.jit(lambda selector, *args: selector.observe(*args))
SILENCE, NOBODY = "no candidate answered the poll", "no client to train"


class Choice(NamedTuple):
    """The seats of a round, and how they were filled."""

    selection: Selection
    available: int
    size: NDArray[np.float32]  # of the clients that are available, 0 for the others
    losses: Losses  # what the clients that were asked answered
    poll_seconds: float = 0.0
    asked: tuple[int, ...] = ()
    answered: int = 0  # of those who were asked
    how: str = "skipped"
    faults: tuple[str, ...] = ()  # why clients did not answer; a privacy budget that is spent is no fault

    @property
    def seats(self) -> dict[int, int]:
        """The client in each seat that is taken."""
        clients = np.asarray(self.selection.clients)
        return {i: int(clients[i]) for i in np.flatnonzero(np.asarray(self.selection.weights) > 0).tolist()}

    def describe(self, identities: Sequence[str | None]) -> str:
        """Who is here, who answered, and who trains, in a line."""
        asked = f", {self.answered} of {len(self.asked)} polled answered" if self.asked else ""
        names = [str(identities[client]) for client in self.seats.values()]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        chosen = f"{self.how}: {', '.join(names[:10])}{more}" if names else f"{NOBODY}; the model stays"
        return f"{self.available} clients available{asked}; {chosen}"

    @property
    def remark(self) -> str | None:
        """What a page says of a round in which the poll was in vain, or nobody trains."""
        in_vain = bool(self.asked) and not self.answered
        if self.seats:
            return f"seats {self.how}" if in_vain else None
        return f"{NOBODY}{f', because {SILENCE}' if in_vain else ''}; the model stays"


def choose(selector: Selector[Any], queries: Queries) -> Choice:
    """Who trains, of those who are available now: ``protocol.pick`` with compiled methods.

    Where nobody answers the poll, the fallback "rand" draws the seats by size among the clients that did not fail (they
    were not asked, or their privacy budget is spent), and "skip" leaves them empty.
    """
    state, options = queries.state, queries.options
    size, available = state.clients.sizes(), state.clients.available()
    seats = len(size) if selector.m is None else selector.m
    nobody = Selection(jnp.full(seats, -1, jnp.int32), jnp.zeros(seats, jnp.float32))
    here, silence = np.where(available, size, 0).astype(np.float32), jnp.full(len(size), jnp.nan, jnp.float32)
    choice = Choice(nobody, int(available.sum()), here, silence)
    if not (available & (size > 0)).any():
        return choice
    asked: list[int] = []
    seconds = 0.0
    faults: tuple[str, ...] = ()

    def poll(key: PRNGKeyArray, candidates: Mask) -> Losses:
        nonlocal seconds, faults
        asked.extend(np.flatnonzero(np.asarray(candidates)).tolist())
        began = time.monotonic()
        answers, faults = queries.poll(asked, selector.poll, announced(selector, state.memory))
        seconds = time.monotonic() - began
        return jnp.asarray(answers)

    compiled: Any = SimpleNamespace(
        __name__=type(selector).__name__,
        m=selector.m,
        poll=selector.poll,
        skips_poll=getattr(selector, "skips_poll", False),
        one_key=getattr(selector, "one_key", False),
        asks=getattr(selector, "asks", None),
        propose=partial(_propose, selector),
        select=partial(_select, selector),
    )
    keys = round_keys(options.seed, state.rounds)
    facts = {fact: jnp.asarray(values) for fact, values in state.clients.facts().items() if fact in needs(selector)}
    clients = Clients(jnp.asarray(size.astype(np.float32)), jnp.asarray(available), **facts)
    picked = pick(compiled, keys, state.memory, clients, poll)
    choice = choice._replace(
        losses=picked.losses,
        poll_seconds=seconds,
        asked=tuple(asked),
        answered=int((~np.isnan(np.asarray(picked.losses))).sum()),
        faults=faults,
    )
    if choice.answered or not asked:
        return choice._replace(selection=picked.selection, how="selected")
    if options.fallback == "skip":
        return choice
    weight = jnp.where(jnp.asarray(state.clients.available()), clients.size, jnp.float32(0))  # who failed is no more
    drawn = seat(*first_k(arrivals(jax.random.fold_in(keys.select, 1), weight), seats))
    return choice._replace(selection=drawn, how=f"drawn by size, because {SILENCE}")


class SilentQueries(Queries):
    """Queries that ask nobody, for a decision that is thrown away."""

    def poll(
        self, asked: Sequence[int], kind: Poll, told: Mapping[str, float] | None = None
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        return np.zeros(len(self.state.clients), np.float32), ()


def announced(selector: Selector[Any], memory: Any, training: bool = False) -> dict[str, float]:
    """What clients are told with a poll, or with training, by a strategy that is private: the threshold.

    A strategy that polls does not hear the losses after training, and says so: an answer would cost budget for nothing.
    """
    question = getattr(selector, "question", None)
    if question is None:
        return {}
    return {"fedpick-unheard": 1} if training and selector.poll != "none" else {"fedpick-threshold": question(memory)}


def resize_memory(selector: Selector[Any], memory: Any, K: int) -> Any:
    """The selector's memory with room for K clients; new ones are as at the start, all are where ``memory`` is None.

    Every array must have its clients along axes that ``init(num_clients)`` makes num_clients long.
    """

    def widen(new: Any, old: Any) -> Any:
        if jnp.shape(new) == jnp.shape(old):
            return old
        return jnp.asarray(new).at[tuple(slice(0, n) for n in jnp.shape(old))].set(old)

    return selector.init(K) if memory is None else jax.tree.map(widen, selector.init(K), memory)
