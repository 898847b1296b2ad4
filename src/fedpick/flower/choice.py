"""Who trains: the selector's two questions and the poll between them, with what to do when nobody answers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Clients, RoundKeys, Selection, Selector

Numbers = np.ndarray[Any, Any]
Poll = Callable[[list[int]], dict[int, float]]  # the lines of those who are asked -> the losses of those who answered


# Compiled once for each K: three programs, and not the fifty small ones that they are made of.
_propose = jax.jit(lambda selector, key, state, clients: selector.propose(key, state, clients))
_select = jax.jit(
    lambda selector, key, state, clients, candidates, losses: selector.select(key, state, clients, candidates, losses)
)
_observe = jax.jit(lambda selector, state, selection, report: selector.observe(state, selection, report))


class Choice(NamedTuple):
    """The seats of a round, and whom it was chosen from."""

    clients: Numbers  # a line for each seat, -1 where it is empty
    weights: Numbers
    asked: list[int]
    answers: dict[int, float]
    how: str = "selected"

    @property
    def seats(self) -> list[int]:
        """The seats that are taken."""
        found: list[int] = np.flatnonzero(self.weights > 0).tolist()
        return found


def choose(
    selector: Selector[Any],
    state: Any,
    keys: RoundKeys,
    size: Numbers,
    available: Numbers,
    poll: Poll,
    fallback: str,
) -> Choice:
    """One round's choice. Clients that were asked and did not answer have no seat, whatever is fallen back to."""
    K = len(size)
    if not (available & (size > 0)).any():
        return nobody(selector, K)
    clients = Clients(jnp.asarray(size.astype(np.float32)), jnp.asarray(available))
    candidates = _propose(selector, keys.propose, state, clients)
    losses = np.full(K, np.nan, np.float32)
    asked: list[int] = []
    answers: dict[int, float] = {}
    if selector.poll != "none":
        asked = np.flatnonzero(np.asarray(candidates)).tolist()
        answers = poll(asked)
        if asked and not answers:
            others = available.copy()
            others[asked] = False
            drawn = nobody(selector, K) if fallback == "skip" else _by_size(selector, keys, size, others)
            return drawn._replace(asked=asked)
        losses[list(answers)] = list(answers.values())
    selection = _select(selector, keys.select, state, clients, candidates, jnp.asarray(losses))
    return Choice(np.asarray(selection.clients), np.asarray(selection.weights), asked, answers)


def nobody(selector: Selector[Any], K: int) -> Choice:
    """All seats empty: the model stays as it is."""
    seats = K if selector.m is None else selector.m
    return Choice(np.full(seats, -1, np.int32), np.zeros(seats, np.float32), [], {}, "skipped")


def observed(selector: Selector[Any], state: Any, choice: Choice, report: Any) -> Any:
    """The selector's memory after the round."""
    return _observe(selector, state, Selection(jnp.asarray(choice.clients), jnp.asarray(choice.weights)), report)


def grown(selector: Selector[Any], state: Any, K: int) -> Any:
    """The same memory with room for K clients: new lines are as at the start.

    Every array of the state must have its clients along axes that ``init(num_clients)`` makes K long.
    """

    def widened(new: Any, old: Any) -> Any:
        if jnp.shape(new) == jnp.shape(old):
            return old
        return jnp.asarray(new).at[tuple(slice(0, n) for n in jnp.shape(old))].set(old)

    return jax.tree.map(widened, selector.init(K), state)


def _by_size(selector: Selector[Any], keys: RoundKeys, size: Numbers, others: Numbers) -> Choice:
    """rand among those who were not asked: distinct clients, by size, averaged plainly."""
    empty = nobody(selector, len(size))
    weight = np.where(others, size, 0.0)
    number = min(len(empty.clients), int((weight > 0).sum()))
    if number == 0:
        return empty
    # The Gumbel trick: the largest of log size + noise are a draw without replacement by size.
    noise = np.asarray(jax.random.gumbel(jax.random.fold_in(keys.select, 1), (len(size),), jnp.float32))
    with np.errstate(divide="ignore"):
        drawn = np.argsort(-(np.log(weight) + noise), kind="stable")[:number]
    empty.clients[:number], empty.weights[:number] = drawn, np.float32(1 / number)
    return empty._replace(how="drawn by size, because nobody answered the poll")
