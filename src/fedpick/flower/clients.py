"""The clients of a federation: who they are, where they are, whether they may be asked, and the queries they get.

Node ids are random in every run, and a client that restarts has a new one. A client is therefore known by the stable
identity that it reports; selectors, the history and checkpoints know it by its row in the table.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpick.flower.messages import error_text, exchange, read_identity, read_loss, read_size
from fedpick.flower.options import Options

LOG = logging.getLogger("flwr.fedpick")  # below Flower's own logger: its handlers and its level apply
MAX_BACKOFF = 8  # times the first quarantine
MOST_FAILURES = 30  # so that powers of two stay small


class ClientTable:
    """K rows, one for each client; some may still be free.

    A client that reports a partition-id below K gets the row of that number, others the first free row. The table
    grows by a quarter when it is full.

    Args:
        rows: The number of rows to begin with.

    >>> table = ClientTable(2)
    >>> table.join(node=901, identity="partition-id=1", size=30.0), table.join(902, "name=Oslo", 50.0)
    (1, 0)
    >>> table.sizes(), table.available()
    (array([50., 30.]), array([ True,  True]))
    """

    COLUMNS = ("size", "failures", "quarantine_end", "quarantined")

    def __init__(self, rows: int) -> None:
        self.identities: list[str | None] = [None] * rows
        self.size: NDArray[Any] = np.full(rows, np.nan)
        self.failures: NDArray[Any] = np.zeros(rows, np.int64)  # since the client last did what it was asked
        self.quarantine_end: NDArray[Any] = np.zeros(rows, np.int64)  # a round
        self.quarantined: NDArray[Any] = np.zeros(rows, bool)  # until it answers a roll call after that round
        self.node_of: dict[int, int] = {}  # client -> node
        self.client_at: dict[int, int] = {}  # node -> client
        self.unknown_nodes: dict[int, tuple[int, int]] = {}  # node that did not say who it is -> failures, next call
        self._rows: dict[str, int] = {}
        self._first_free = 0  # rows are never given up

    def __len__(self) -> int:
        return len(self.identities)

    def join(self, node: int, identity: str, size: float, t: int = 0) -> int:
        """Enter or update the client at this node in round t, and end a quarantine that is over; returns its row.

        ``size`` is its number of examples, NaN where it did not report one.
        """
        client = self._rows.get(identity)
        if client is None:
            client = self._free_row(identity)
            self.identities[client], self._rows[identity] = identity, client
        if not np.isnan(size):
            self.size[client] = size
        self.quarantined[client] &= self.quarantine_end[client] > t
        self.node_of[client], self.client_at[node] = node, client
        self.unknown_nodes.pop(node, None)
        return client

    def find_node(self, identity: str) -> int | None:
        """The node of the client with this identity."""
        return self.node_of.get(self._rows.get(identity, -1))

    def update_nodes(self, nodes: Iterable[int]) -> None:
        """Forget all nodes but these, which are connected now."""
        listed = set(nodes)
        for node in self.client_at.keys() - listed:
            client = self.client_at.pop(node)
            if self.node_of[client] == node:
                del self.node_of[client]
                others = self.client_at.items() if len(self.client_at) > len(self.node_of) else ()
                other = next((other for other, its in others if its == client and other in listed), None)
                if other is not None:  # an older node with the same identity
                    self.node_of[client] = other
        for node in self.unknown_nodes.keys() - listed:
            del self.unknown_nodes[node]

    def to_call(self, nodes: Iterable[int], t: int) -> list[int]:
        """The nodes to call in round t, in no order: new ones, and clients whose quarantine is over."""
        over = np.flatnonzero(self.quarantined & (self.quarantine_end <= t)).tolist()
        new = set(nodes) - self.client_at.keys()
        return [node for node in new if self.unknown_nodes.get(node, (0, 0))[1] <= t] + [
            self.node_of[client] for client in over if client in self.node_of
        ]

    def quarantine(self, client: int, t: int, rounds: int) -> None:
        """Quarantine a client that failed in round t, with exponential back-off."""
        self.quarantined[client] = True
        self.quarantine_end[client] = _backoff(t, rounds, int(self.failures[client]))
        self.failures[client] = min(self.failures[client] + 1, MOST_FAILURES)

    def quarantine_node(self, node: int, t: int, rounds: int) -> None:
        """Quarantine the client at a node, or the node itself if it never said who it is."""
        if node in self.client_at:
            self.quarantine(self.client_at[node], t, rounds)
        else:
            failures, _ = self.unknown_nodes.get(node, (0, 0))
            self.unknown_nodes[node] = (min(failures + 1, MOST_FAILURES), _backoff(t, rounds, failures))

    def reset_failures(self, clients: Sequence[int]) -> None:
        """These clients did what they were asked: the back-off starts again from the first quarantine."""
        self.failures[clients] = 0

    def available(self) -> NDArray[np.bool_]:
        """Which clients may be asked now, Bool[K]."""
        connected = np.zeros(len(self), bool)
        connected[list(self.node_of)] = True
        found: NDArray[np.bool_] = connected & ~self.quarantined
        return found

    def sizes(self) -> NDArray[np.float64]:
        """D_k, Float[K]: the median of the known ones where it is not known, and 0 in a free row."""
        known = self.size[~np.isnan(self.size)]
        median = float(np.median(known)) if len(known) else 1.0
        taken = np.zeros(len(self), bool)
        taken[list(self._rows.values())] = True
        return np.where(np.isnan(self.size), np.where(taken, median, 0.0), self.size)

    def grow(self, rows: int) -> None:
        """Have at least this many rows."""
        more = rows - len(self)
        if more > 0:
            self.identities += [None] * more
            for name in self.COLUMNS:
                old = getattr(self, name)
                new = np.full(more, np.nan if name == "size" else 0, old.dtype)
                setattr(self, name, np.concatenate([old, new]))

    def columns(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps beside the identities; nodes are of one run only."""
        return {name: getattr(self, name) for name in self.COLUMNS}

    @classmethod
    def from_columns(cls, identities: Sequence[str | None], columns: Mapping[str, NDArray[Any]]) -> "ClientTable":
        """The table with these identities and what ``columns`` returned."""
        table = cls(len(identities))
        table.identities = list(identities)
        table._rows = {identity: row for row, identity in enumerate(identities) if identity is not None}
        for name in cls.COLUMNS:
            setattr(table, name, columns[name])
        return table

    def _free_row(self, identity: str) -> int:
        word, _, number = identity.partition("=")
        if word == "partition-id" and int(number) < len(self) and self.identities[int(number)] is None:
            return int(number)
        while self._first_free < len(self) and self.identities[self._first_free] is not None:
            self._first_free += 1
        if self._first_free == len(self):
            self.grow(len(self) + max(1, len(self) // 4))
        return self._first_free


class QueryContext(NamedTuple):
    """What the queries of a round carry: the model, and the record names that the strategy uses."""

    arrays: ArrayRecord
    arrays_key: str
    config_key: str
    server_round: int


class Queries:
    """The two queries of a round: the roll call (identity and size) and the poll (loss)."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.called = False  # whether there was a roll call, which alone waits
        self.warned = False  # that a client has no stable identity

    def roll_call(self, grid: Grid, table: ClientTable, t: int, wanted: int, context: QueryContext) -> None:
        """Bring the table up to date: new nodes are asked once, others when their quarantine is over.

        The first call waits until ``wanted`` clients have answered, at most ``wait`` seconds.
        """
        end = time.monotonic() + (0.0 if self.called else self.options.wait)
        logged = -float("inf")
        answers: dict[int, Message] = {}
        while True:
            listed = list(grid.get_node_ids())
            table.update_nodes(listed)
            answers = {node: reply for node, reply in answers.items() if node in set(listed)}
            nodes = [node for node in table.to_call(listed, t) if node not in answers]
            answers |= self._call(grid, table, nodes, t, context)
            here = len(answers) + int(table.available().sum())
            left = end - time.monotonic()
            if here >= wanted or left <= 0:
                break
            if time.monotonic() - logged > 10:
                logged = time.monotonic()
                LOG.info("fedpick: %d of %d clients connected; waiting up to %.0f s", here, wanted, left)
            time.sleep(min(0.5, left))
        if not self.called:
            table.grow(len(answers))
        self.called = True
        self._enter(table, answers, t)

    def poll(
        self, grid: Grid, table: ClientTable, t: int, asked: Sequence[int], context: QueryContext, batch: int | None
    ) -> NDArray[np.float32]:
        """The losses of these clients, Float[K]; those without a valid answer in time are NaN, and quarantined."""
        losses = np.full(len(table), np.nan, np.float32)
        sent = [self._query(table.node_of[k], context, {"fedpick-client": k}, batch) for k in asked]
        for client, reply in zip(asked, exchange(grid, sent, self.options.poll_timeout), strict=True):
            loss = read_loss(reply, self.options.poll_loss, self.options.loss_range)
            if loss == loss:
                losses[client] = loss
                table.reset_failures([client])
            else:
                LOG.warning("fedpick: %s did not answer the poll: %s", table.identities[client], self._why(reply))
                table.quarantine(client, t, self.options.quarantine)
        return losses

    def _call(
        self, grid: Grid, table: ClientTable, nodes: Sequence[int], t: int, context: QueryContext
    ) -> dict[int, Message]:
        # A handler of evaluate messages, which may serve as well, expects a model in each of them.
        content = context if self.options.query.startswith("evaluate") else context._replace(arrays=ArrayRecord())
        sent = [self._query(node, content, {}, None) for node in nodes]
        answers = {}
        for node, reply in zip(nodes, exchange(grid, sent, self.options.poll_timeout), strict=True):
            if reply is not None and reply.has_content():
                answers[node] = reply
            else:
                who = table.identities[table.client_at[node]] if node in table.client_at else f"node {node}"
                LOG.warning("fedpick: %s did not answer the roll call: %s", who, self._why(reply))
                table.quarantine_node(node, t, self.options.quarantine)
        return answers

    def _enter(self, table: ClientTable, answers: Mapping[int, Message], t: int) -> None:
        """Enter those who answered, in an order that depends on who they are and not on when they answered."""
        named: list[tuple[str, int, float]] = []
        for node, reply in answers.items():
            identity = read_identity(reply)
            if identity is None and not self.warned:
                self.warned = True
                LOG.warning(
                    "fedpick: clients should report a partition-id or a name; without one a client that restarts is "
                    "a new client, and picks are not reproducible"
                )
            named.append((identity or f"node={node}", node, read_size(reply)))
        for identity, node, size in sorted(named, key=lambda entry: (identity_order(entry[0]), entry[1])):
            before = table.find_node(identity)
            table.join(node, identity, size, t)
            if before not in (None, node):
                LOG.warning(
                    "fedpick: nodes %s and %s both report identity %s; using the second", before, node, identity
                )

    def _query(self, node: int, context: QueryContext, settings: Mapping[str, int], batch: int | None) -> Message:
        config = ConfigRecord({"server-round": context.server_round, **settings})
        if batch is not None:
            config["batch-size"] = batch
        content = RecordDict({context.config_key: config})
        if len(context.arrays):
            content[context.arrays_key] = context.arrays
        kind, ttl, group = self.options.query, self.options.poll_timeout, str(context.server_round)
        return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=group)

    def _why(self, reply: Message | None) -> str:
        if reply is None:
            return f"no reply within {self.options.poll_timeout:g} s"
        return error_text(reply) if reply.has_error() else "no valid loss"


def identity_order(identity: str) -> tuple[int, int, str]:
    """The order of clients that join together: partition-ids by number, then names.

    >>> sorted(["name=b", "partition-id=10", "partition-id=9", "name=a"], key=identity_order)
    ['partition-id=9', 'partition-id=10', 'name=a', 'name=b']
    """
    word, _, rest = identity.partition("=")
    return (0, int(rest), "") if word == "partition-id" else (1, 0, identity)


def _backoff(t: int, rounds: int, failures: int) -> int:
    """The round in which the quarantine of a failure in round t ends."""
    return t + 1 + min(rounds << failures, MAX_BACKOFF * rounds)
