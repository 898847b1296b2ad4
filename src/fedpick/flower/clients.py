"""The clients of a federation: who they are, where they are, and whether they may be asked.

Node ids are random in every run, and a client that restarts has a new one. A client is therefore known by the stable
identity that it reports; selectors, the history and checkpoints know it by its row in the table.
"""

import logging
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.flower.sizes import SizeLimits

LOG = logging.getLogger("flwr.fedpick")
MOST_DOUBLINGS = 3  # of the first quarantine


class ClientTable:
    """K rows, one for each client; some may still be free.

    A client that reports a partition-id below K gets the row of that number, others the first free row. The table
    grows by a quarter when it is full.

    >>> table = ClientTable(2)
    >>> table.join(node=901, identity="partition-id=1", size=30.0), table.join(902, "name=Oslo", 50.0)
    (1, 0)
    >>> table.sizes(), table.available()
    (array([50., 30.]), array([ True,  True]))
    """

    COLUMNS = (
        "size",
        "failures",
        "train_failures",
        "quarantine_end",
        "quarantined",
        "silent",
        "expected_duration",
        "upload_duration",
        "leaving",
        "last_node",
    )

    def __init__(self, rows: int) -> None:
        self.limits = SizeLimits()
        self.identities: list[str | None] = [None] * rows
        self.size: NDArray[Any] = np.full(rows, np.nan)
        self.failures: NDArray[Any] = np.zeros(rows, np.int64)  # since the client last answered
        self.train_failures: NDArray[Any] = np.zeros(rows, np.int64)  # since it last returned an update
        self.quarantine_end: NDArray[Any] = np.zeros(rows, np.int64)  # a round
        self.quarantined: NDArray[Any] = np.zeros(rows, bool)  # until it answers a roll call after that round
        self.silent: NDArray[Any] = np.zeros(rows, bool)  # it did not answer at all, the last time that it failed
        self.expected_duration: NDArray[Any] = np.full(rows, np.nan)  # seconds: as measured, else as reported
        self.upload_duration: NDArray[Any] = np.full(rows, np.nan)
        self.leaving: NDArray[Any] = np.zeros(rows, bool)  # it expects to be gone in the next round
        self.last_node: NDArray[Any] = np.zeros(rows, np.uint64)
        self.node_of: dict[int, int] = {}  # client -> node
        self.client_at: dict[int, int] = {}  # node -> client
        self.unknown_nodes: dict[int, tuple[int, int]] = {}  # node that did not say who it is -> failures, next call
        self.refused: dict[int, str] = {}  # node that reports another one's identity, or another than before
        self.errors: dict[int, str] = {}  # of the apps of those who did not answer this run's first roll call, by node
        self.called = False  # whether this run of the server has called the roll; its first call waits
        self.warned = False  # that a client has no stable identity
        self._rows: dict[str, int] = {}
        self._warned_of: set[tuple[int, float]] = set()
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
            if not np.isnan(self.size[client]) and self.size[client] != size:
                LOG.warning("fedpick: %s reports %g examples, and %g before", identity, size, self.size[client])
            self.size[client] = size
        self.quarantined[client] &= self.quarantine_end[client] > t
        self.silent[client] = False
        self.node_of[client], self.client_at[node], self.last_node[client] = node, client, node
        self.unknown_nodes.pop(node, None)
        self.refused.pop(node, None)
        return client

    def holder(self, identity: str) -> int | None:
        """The node that has this identity, if it is connected."""
        client = self._rows.get(identity)
        return None if client is None else self.node_of.get(client)

    def order(self, identity: str, node: int) -> tuple[bool, int]:
        """The order of two nodes that claim an identity together: who had it in an earlier run of the server first."""
        client = self._rows.get(identity)
        return (client is None or int(self.last_node[client]) != node, node)

    def forget_node(self, node: int) -> None:
        """Have a node, which does not answer any more, no longer stand for its client."""
        self.node_of.pop(self.client_at.pop(node), None)

    def facts(self) -> dict[str, NDArray[Any]]:
        """The optional facts of ``Clients``."""
        return {name: getattr(self, name) for name in ("expected_duration", "upload_duration", "leaving")}

    def update_nodes(self, nodes: Set[int]) -> None:
        """Forget all nodes but these, which are connected now."""
        if self.client_at.keys() - nodes:
            self.client_at = {node: client for node, client in self.client_at.items() if node in nodes}
            self.node_of = {client: node for node, client in self.client_at.items()}
        self.unknown_nodes = {node: failed for node, failed in self.unknown_nodes.items() if node in nodes}

    def to_call(self, nodes: Set[int], t: int, again: bool = False) -> list[int]:
        """The nodes to call in round t, in no order: new ones, and clients whose quarantine is over.

        With ``again``, also those that were called before.
        """
        over = np.flatnonzero((self.quarantined | again) & (self.quarantine_end <= t)).tolist()
        new = [node for node in nodes - self.client_at.keys() if self.unknown_nodes.get(node, (0, 0))[1] <= t]
        return new + [self.node_of[client] for client in over if client in self.node_of]

    def quarantine(self, client: int, t: int, rounds: int, *, training: bool = False, silent: bool = False) -> None:
        """Quarantine a client that failed in round t, with exponential back-off; ``silent`` if it did not answer.

        Failures in training are counted apart: who answers polls and never returns an update stays away longer, too.
        """
        self.quarantined[client], self.silent[client] = True, silent
        self.quarantine_end[client] = _backoff(t, rounds, int(self.failures[client] + self.train_failures[client]))
        (self.train_failures if training else self.failures)[client] += 1

    def release(self, t: int) -> None:
        """End all quarantines in round t, on condition that the client answers the roll call."""
        self.quarantine_end = np.minimum(self.quarantine_end, t)
        self.unknown_nodes = {node: (failures, min(end, t)) for node, (failures, end) in self.unknown_nodes.items()}

    def blame(self, client: int, t: int, rounds: int) -> None:
        """Quarantine a client that has ruined the model, at once for as long as one that fails again and again."""
        self.train_failures[client] = max(int(self.train_failures[client]), MOST_DOUBLINGS)
        self.quarantine(client, t, rounds, training=True)

    def pardon(self, client: int) -> None:
        """End the quarantine of a client that did not fail: the model did."""
        self.quarantined[client] = False
        self.failures[client] = max(int(self.failures[client]) - 1, 0)

    def quarantine_node(self, node: int, t: int, rounds: int, silent: bool = False) -> None:
        """Quarantine the client at a node, or the node itself if it never said who it is."""
        if node in self.client_at:
            self.quarantine(self.client_at[node], t, rounds, silent=silent)
        else:
            failures, _ = self.unknown_nodes.get(node, (0, 0))
            self.unknown_nodes[node] = (failures + 1, _backoff(t, rounds, failures))

    def named(self) -> set[str]:
        """The clients that have a name, and not the number of a node alone."""
        return {name for name in self.identities if name is not None and not name.startswith("node=")}

    def available(self) -> NDArray[np.bool_]:
        """Which clients may be polled and trained now, Bool[K]."""
        return np.asarray(self._connected() & ~self.quarantined)

    def reachable(self) -> NDArray[np.bool_]:
        """Which clients may be asked to evaluate now, Bool[K]: also who failed, and is no dead one to wait for."""
        return np.asarray(self._connected() & ~(self.quarantined & self.silent))

    def sizes(self) -> NDArray[np.float64]:
        """D_k, Float[K], within the limits: the median of the known ones where it is not known, and 0 in a free row."""
        size = self.limits.apply(self.identities, self.size)
        known = size[~np.isnan(size)]
        median = float(np.median(known)) if len(known) else 1.0
        taken = np.array([identity is not None for identity in self.identities])
        return np.where(np.isnan(size), np.where(taken, median, 0.0), size)

    def missing(self) -> dict[str, int]:
        """How many clients do not say what they should: size, who they are, that as nobody else, or anything at all."""
        named = [identity for identity in self.identities if identity is not None]
        nameless = sum(name.startswith("node=") for name in named) if self.warned else 0
        sizeless = len(self._without_size())
        unheard = len(self.unknown_nodes.keys() - self.refused.keys())
        missing = {"clients": len(named), "num-examples": sizeless, "name": nameless}
        return {**missing, "own name": len(self.refused), "answer": unheard}

    def warn_of_claims(self) -> None:
        """Log each claim of a size that counts for less, and who makes none, once."""
        size = self.sizes()
        for client in self._without_size():
            if (client, -1.0) not in self._warned_of:
                self._warned_of.add((client, -1.0))
                LOG.warning(
                    "fedpick: %s reports no num-examples, and counts as %g", self.identities[client], size[client]
                )
        for client in np.flatnonzero(self.size > size).tolist():
            claim = (client, float(self.size[client]))
            if claim not in self._warned_of:
                self._warned_of.add(claim)
                text = "fedpick: %s reports %g examples, and counts as %g"
                LOG.warning(text, self.identities[client], claim[1], size[client])

    def grow(self, rows: int) -> None:
        """Have at least this many rows."""
        more = ClientTable(max(rows - len(self), 0))
        self.identities += more.identities
        for name in self.COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))

    def columns(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps beside the identities; nodes are of one run only."""
        return {name: getattr(self, name) for name in self.COLUMNS}

    @classmethod
    def from_columns(cls, identities: Sequence[str | None], columns: Mapping[str, NDArray[Any]]) -> "ClientTable":
        """The table with these identities and what ``columns`` returned."""
        if not isinstance(identities, list) or not all(name is None or isinstance(name, str) for name in identities):
            raise ValueError("identities must be texts")
        table = cls(len(identities))
        table.identities = list(identities)
        for name, own in table.columns().items():
            if name in columns and (columns[name].shape, columns[name].dtype) != (own.shape, own.dtype):
                raise ValueError(
                    f"{name} must be {own.dtype}{own.shape}, got {columns[name].dtype}{columns[name].shape}"
                )
        table._rows = {identity: row for row, identity in enumerate(identities) if identity is not None}
        for name in cls.COLUMNS:
            setattr(table, name, columns.get(name, getattr(table, name)))  # a state of before has fewer
        return table

    def _without_size(self) -> list[int]:
        """The clients of whom nobody says how large they are."""
        unknown = np.flatnonzero(np.isnan(self.size)).tolist()
        return [k for k in unknown if self.identities[k] is not None and self.identities[k] not in self.limits.known]

    def _connected(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self), bool)
        found[list(self.node_of)] = True
        return found

    def _free_row(self, identity: str) -> int:
        word, _, number = identity.partition("=")
        if word == "partition-id" and int(number) < len(self) and self.identities[int(number)] is None:
            return int(number)
        while self._first_free < len(self) and self.identities[self._first_free] is not None:
            self._first_free += 1
        if self._first_free == len(self):
            self.grow(len(self) + max(1, len(self) // 4))
        return self._first_free


def identity_order(identity: str) -> tuple[int, int, str]:
    """The order of clients that join together: partition-ids by number, then names.

    >>> sorted(["name=b", "partition-id=10", "partition-id=9", "name=a"], key=identity_order)
    ['partition-id=9', 'partition-id=10', 'name=a', 'name=b']
    """
    word, _, rest = identity.partition("=")
    return (0, int(rest), "") if word == "partition-id" else (1, 0, identity)


def _backoff(t: int, rounds: int, failures: int) -> int:
    """The round in which the quarantine of a failure in round t ends."""
    return t + 1 + (rounds << min(failures, MOST_DOUBLINGS))
