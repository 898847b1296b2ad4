"""The selection of a round on a server: the options, the queries to clients, and the decision of the simulator."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fedpick.flower.checkpoint import ServerState
from fedpick.flower.clients import identity_order
from fedpick.flower.messages import exchange
from fedpick.flower.replies import error_text, read_identity, read_loss, read_metric, read_seconds, read_size
from fedpick.protocol import Clients, Losses, Mask, Poll, Selection, Selector, needs, pick, round_keys
from fedpick.sampling import arrivals, first_k, seat
from fedpick.validation import natural, one_of, require

LOG = logging.getLogger("flwr.fedpick")
OWNER = "Selecting"


@dataclass(kw_only=True)
class Options:
    """The keyword options of ``Selecting``, which describes them."""

    seed: int = 0
    clients: int | None = None
    wait: float = 120.0
    query: str = "query.loss"
    poll_timeout: float = 30.0
    quarantine: int = 2
    fallback: Literal["rand", "skip"] = "rand"
    batch: int | None = None
    poll_loss: str = "loss"
    train_loss: str = "train_loss"
    square_loss: str = "square_loss"
    duration: str | None = None
    loss_range: tuple[float, float] = (0.0, math.inf)
    weights: Literal["selection", "examples"] = "selection"
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        require(OWNER, "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True)
        for name in ("clients", "batch"):
            if getattr(self, name) is not None:
                natural(OWNER, name, getattr(self, name))
        natural(OWNER, "quarantine", self.quarantine)
        require(OWNER, "wait", self.wait, "finite and at least 0", lambda x: (x >= 0) & (x < math.inf))
        require(OWNER, "poll_timeout", self.poll_timeout, "finite and above 0", lambda x: (x > 0) & (x < math.inf))
        one_of(OWNER, "fallback", self.fallback, ("rand", "skip"))
        one_of(OWNER, "weights", self.weights, ("selection", "examples"))
        for name in ("query", "poll_loss", "train_loss", "square_loss", "duration"):
            if name == "duration" and self.duration is None:
                continue
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"{OWNER}: {name} must be a name, got {getattr(self, name)!r}")
        low, high = self.loss_range
        if not low < high:
            raise ValueError(f"{OWNER}: loss_range must be (lowest, highest), got {self.loss_range!r}")


# Compiled once for each K: three programs, and not the fifty small ones that they are made of.
_propose = jax.jit(lambda selector, *args: selector.propose(*args))
_select = jax.jit(lambda selector, *args: selector.select(*args))
observe = jax.jit(lambda selector, *args: selector.observe(*args))


class Queries(NamedTuple):
    """The two queries of a round: the roll call (identity and size) and the poll (loss)."""

    grid: Grid
    state: ServerState
    options: Options
    server_round: int  # Flower's number of the round
    arrays_key: str  # the record names that the strategy uses
    config_key: str

    def roll_call(self, wanted: int, again: bool = False) -> None:
        """Bring the table up to date: new nodes are asked once, others when their quarantine is over.

        With ``again``, all are asked, for facts that change from round to round. The first call waits until ``wanted``
        clients have answered, at most ``wait`` seconds.
        """
        table, first = self.state.clients, not self.state.clients.called
        end = time.monotonic() + (self.options.wait if first else 0.0)
        logged = -float("inf")
        answers: dict[int, Message] = {}
        while True:
            listed = set(self.grid.get_node_ids())
            table.update_nodes(listed)
            answers = {node: reply for node, reply in answers.items() if node in listed}
            answers |= self._call(
                [node for node in table.to_call(listed, self.state.rounds, again) if node not in answers]
            )
            present = {table.node_of[client] for client in np.flatnonzero(table.available()).tolist()}
            here = len(present | answers.keys())
            left = end - time.monotonic()
            if here >= wanted or left <= 0:
                break
            if time.monotonic() - logged > 10:
                logged = time.monotonic()
                LOG.info("fedpick: %d of %d clients connected; waiting up to %.0f s", here, wanted, left)
            time.sleep(min(0.5, left))
        if first:
            table.called = True
            table.grow(len(answers))
        self._enter(answers)

    def poll(self, asked: Sequence[int], kind: Poll) -> NDArray[np.float32]:
        """The answers of these clients, Float[K]; those without a valid one in time are NaN, and quarantined.

        With the kind "norm" they train, keep what they have trained, and answer the norm of their update.
        """
        table, arrays = self.state.clients, self.state.arrays
        losses = np.full(len(table), np.nan, np.float32)
        settings: dict[str, Any] = {"batch-size": self.options.batch} if kind == "batch" else {}
        settings |= {"fedpick-poll": "norm"} if kind == "norm" else {}
        name, bounds = (
            (self.options.poll_loss, self.options.loss_range) if kind != "norm" else ("norm", (0.0, math.inf))
        )
        sent = [self._query(table.node_of[k], {"fedpick-client": k, **settings}, arrays) for k in asked]
        for client, reply in zip(asked, exchange(self.grid, sent, self.options.poll_timeout), strict=True):
            losses[client] = read_loss(reply, name, bounds)
            if np.isnan(losses[client]):
                LOG.warning("fedpick: %s did not answer the poll: %s", table.identities[client], self._why(reply))
                table.quarantine(client, self.state.rounds, self.options.quarantine)
            else:
                table.failures[client] = 0
        return losses

    def _call(self, nodes: Sequence[int]) -> dict[int, Message]:
        """The replies of those who answer; others are quarantined."""
        # A handler of evaluate messages, which may serve as well, expects a model in each of them.
        arrays = self.state.arrays if self.options.query.startswith("evaluate") else ArrayRecord()
        sent = [self._query(node, {}, arrays) for node in nodes]
        table, answers = self.state.clients, {}
        for node, reply in zip(nodes, exchange(self.grid, sent, self.options.poll_timeout), strict=True):
            if reply is not None and reply.has_content():
                answers[node] = reply
            else:
                who = table.identities[table.client_at[node]] if node in table.client_at else f"node {node}"
                LOG.warning("fedpick: %s did not answer the roll call: %s", who, self._why(reply))
                table.quarantine_node(node, self.state.rounds, self.options.quarantine)
        return answers

    def _enter(self, answers: Mapping[int, Message]) -> None:
        """Enter those who answered, in an order that depends on who they are and not on when they answered."""
        table, identities = self.state.clients, {node: read_identity(reply) for node, reply in answers.items()}
        if None in identities.values() and not table.warned:
            table.warned = True
            LOG.warning(
                "fedpick: clients should report a partition-id or a name; without one a client that restarts is "
                "a new client, and picks are not reproducible"
            )
        named = [(identity or f"node={node}", node) for node, identity in identities.items()]
        for identity, node in sorted(named, key=lambda entry: (identity_order(entry[0]), entry[1])):
            client = table.join(node, identity, read_size(answers[node]), self.state.rounds)
            self._enter_facts(client, answers[node])

    def _enter_facts(self, client: int, reply: Message) -> None:
        """Enter what a client says of itself; a duration that was measured counts more than what it expects."""
        table = self.state.clients
        if np.isnan(table.expected_duration[client]):
            table.expected_duration[client] = read_seconds(reply, "expected-duration")
        table.upload_duration[client] = read_seconds(reply, "upload-duration")
        table.leaving[client] = read_metric(reply, "leaving") > 0

    def _query(self, node: int, settings: Mapping[str, Any], arrays: ArrayRecord) -> Message:
        content = RecordDict({self.config_key: ConfigRecord({"server-round": self.server_round, **settings})})
        if len(arrays):
            content[self.arrays_key] = arrays
        kind, ttl, group = self.options.query, self.options.poll_timeout, str(self.server_round)
        return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=group)

    def _why(self, reply: Message | None) -> str:
        if reply is None:
            return f"no reply within {self.options.poll_timeout:g} s"
        return error_text(reply) if reply.has_error() else "no valid loss"


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

    @property
    def seats(self) -> dict[int, int]:
        """The client in each seat that is taken."""
        clients = np.asarray(self.selection.clients)
        return {i: int(clients[i]) for i in np.flatnonzero(np.asarray(self.selection.weights) > 0).tolist()}


def choose(selector: Selector[Any], queries: Queries) -> Choice:
    """Who trains, of those who are available now: ``protocol.pick`` with compiled methods.

    Where nobody answers the poll, the fallback "rand" draws the seats by size among the clients that were not asked,
    and "skip" leaves them empty.
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

    def poll(key: PRNGKeyArray, candidates: Mask) -> Losses:
        nonlocal seconds
        asked.extend(np.flatnonzero(np.asarray(candidates)).tolist())
        began = time.monotonic()
        answers = jnp.asarray(queries.poll(asked, selector.poll))
        seconds = time.monotonic() - began
        return answers

    compiled: Any = SimpleNamespace(
        m=selector.m,
        poll=selector.poll,
        skips_poll=getattr(selector, "skips_poll", False),
        one_key=getattr(selector, "one_key", False),
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
    )
    if choice.answered or not asked:
        return choice._replace(selection=picked.selection, how="selected")
    if options.fallback == "skip":
        return choice
    weight = jnp.where(clients.available & ~picked.candidates, clients.size, jnp.float32(0))
    drawn = seat(*first_k(arrivals(jax.random.fold_in(keys.select, 1), weight), seats))
    return choice._replace(selection=drawn, how="drawn by size, because no candidate answered the poll")


def resize_memory(selector: Selector[Any], memory: Any, K: int) -> Any:
    """The selector's memory with room for K clients; new ones are as at the start, all are where ``memory`` is None.

    Every array must have its clients along axes that ``init(num_clients)`` makes num_clients long.
    """

    def widen(new: Any, old: Any) -> Any:
        if jnp.shape(new) == jnp.shape(old):
            return old
        return jnp.asarray(new).at[tuple(slice(0, n) for n in jnp.shape(old))].set(old)

    return selector.init(K) if memory is None else jax.tree.map(widen, selector.init(K), memory)
