"""The decision of a round on a server: the one of the simulator, and a draw by size where nobody answers the poll."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fedpick.protocol import Clients, Losses, Mask, RoundKeys, Selection, Selector, pick
from fedpick.sampling import arrivals, first_k, seat

# Compiled once for each K: three programs, and not the fifty small ones that they are made of.
_propose = jax.jit(lambda selector, *args: selector.propose(*args))
_select = jax.jit(lambda selector, *args: selector.select(*args))
observe = jax.jit(lambda selector, *args: selector.observe(*args))


class Choice(NamedTuple):
    """The seats of a round, and how they were filled."""

    selection: Selection
    asked: tuple[int, ...] = ()
    answered: int = 0  # of those who were asked
    how: str = "skipped"

    @property
    def seats(self) -> dict[int, int]:
        """The client in each seat that is taken."""
        clients = np.asarray(self.selection.clients)
        return {i: int(clients[i]) for i in np.flatnonzero(np.asarray(self.selection.weights) > 0).tolist()}


def choose(
    selector: Selector[Any],
    keys: RoundKeys,
    memory: Any,
    size: NDArray[np.float64],
    available: NDArray[np.bool_],
    *,
    poll: Callable[[Sequence[int]], NDArray[np.float32]],
    fallback: Literal["rand", "skip"],
) -> Choice:
    """Who trains: ``protocol.pick`` with compiled methods.

    ``poll(asked)`` gives the losses of these clients, Float[K], NaN for silence. Where nobody answers, the fallback
    "rand" draws the seats by size among the clients that were not asked, and "skip" leaves them empty.
    """
    seats = len(size) if selector.m is None else selector.m
    nobody = Choice(Selection(jnp.full(seats, -1, jnp.int32), jnp.zeros(seats, jnp.float32)))
    if not (available & (size > 0)).any():
        return nobody
    asked: list[int] = []

    def ask(key: PRNGKeyArray, candidates: Mask) -> Losses:
        asked.extend(np.flatnonzero(np.asarray(candidates)).tolist())
        return jnp.asarray(poll(asked))

    compiled: Any = SimpleNamespace(
        poll=selector.poll, propose=partial(_propose, selector), select=partial(_select, selector)
    )
    clients = Clients(jnp.asarray(size.astype(np.float32)), jnp.asarray(available))
    picked = pick(compiled, keys, memory, clients, ask)
    answered = int((~np.isnan(np.asarray(picked.losses))).sum())
    if answered or not asked:
        return Choice(picked.selection, tuple(asked), answered, "selected")
    if fallback == "skip":
        return nobody._replace(asked=tuple(asked))
    weight = jnp.where(clients.available & ~picked.candidates, clients.size, jnp.float32(0))
    drawn = seat(*first_k(arrivals(jax.random.fold_in(keys.select, 1), weight), seats))
    return Choice(drawn, tuple(asked), 0, "drawn by size, because no candidate answered the poll")


def resize_memory(selector: Selector[Any], memory: Any, K: int) -> Any:
    """The selector's memory with room for K clients; new ones are as at the start, all are where ``memory`` is None.

    Every array must have its clients along axes that ``init(num_clients)`` makes num_clients long.
    """

    def widen(new: Any, old: Any) -> Any:
        if jnp.shape(new) == jnp.shape(old):
            return old
        return jnp.asarray(new).at[tuple(slice(0, n) for n in jnp.shape(old))].set(old)

    return selector.init(K) if memory is None else jax.tree.map(widen, selector.init(K), memory)
