"""Who the clients are: a line for each stable id, with its size, the node where it is, and whether it is trusted now.

Node ids are random in every run and a client that starts again has a new one. Selectors, the record and the state on
disk therefore know clients by their line, and lines by the stable id that the client reports.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

LONGEST = 8  # times the first quarantine


class Roster:
    """K lines; some may still be waiting for their client.

    A client that reports a partition-id below K takes the line of that number, others the first line that is free.
    The roster grows by a quarter where there is none.

    >>> roster = Roster(2)
    >>> roster.join(node=901, identity="partition-id=1", size=30.0), roster.join(902, "name=Oslo", 50.0)
    (1, 0)
    >>> roster.sizes(), roster.available()
    (array([50., 30.]), array([ True,  True]))
    """

    def __init__(self, lines: int) -> None:
        self.identities: list[str | None] = [None] * lines
        self.size: Numbers = np.full(lines, np.nan)
        self.strikes: Numbers = np.zeros(lines, np.int64)  # failures since the client last did what it was asked
        self.until: Numbers = np.zeros(lines, np.int64)  # the round in which the quarantine ends
        self.away: Numbers = np.zeros(lines, bool)  # in quarantine, or not yet back from it
        self.node: dict[int, int] = {}  # line -> where the client is
        self.line: dict[int, int] = {}  # node -> whose it is
        self.strangers: dict[int, tuple[int, int]] = {}  # node that said nothing -> strikes, round to ask again
        self._lines: dict[str, int] = {}
        self._first_free = 0  # lines are never given up

    def __len__(self) -> int:
        return len(self.identities)

    def join(self, node: int, identity: str, size: float, t: int = 0) -> int:
        """Enter the client that is at this node in round t, and end its quarantine if that is over; its line.

        NaN is a size that it did not say.
        """
        line = self._lines.get(identity)
        if line is None:
            line = self._free(identity)
            self.identities[line], self._lines[identity] = identity, line
        if not np.isnan(size):
            self.size[line] = size
        self.away[line] &= self.until[line] > t
        self.node[line], self.line[node] = node, line
        self.strangers.pop(node, None)
        return line

    def where(self, identity: str) -> int | None:
        """The node where this client is."""
        return self.node.get(self._lines.get(identity, -1))

    def seen(self, nodes: Iterable[int]) -> None:
        """These nodes are there now: forget those that are not."""
        listed = set(nodes)
        for node in self.line.keys() - listed:
            line = self.line.pop(node)
            if self.node[line] == node:
                del self.node[line]
                twins = self.line.items() if len(self.line) > len(self.node) else ()
                twin = next((other for other, its in twins if its == line and other in listed), None)
                if twin is not None:
                    self.node[line] = twin
        for node in self.strangers.keys() - listed:
            del self.strangers[node]

    def to_ask(self, nodes: Iterable[int], t: int) -> list[int]:
        """Whom to call in round t: newcomers, and those whose quarantine is over; in no order of any meaning."""
        back = [self.node[line] for line in np.flatnonzero(self.away & (self.until <= t)).tolist() if line in self.node]
        new = set(nodes) - self.line.keys()
        return [node for node in new if self.strangers.get(node, (0, 0))[1] <= t] + back

    def strike(self, line: int, t: int, rounds: int) -> None:
        """The client failed in round t: no more of it for some rounds, more of them the oftener it failed."""
        self.away[line] = True
        self.until[line] = t + 1 + min(rounds << int(self.strikes[line]), LONGEST * rounds)
        self.strikes[line] = min(self.strikes[line] + 1, 30)

    def strike_node(self, node: int, t: int, rounds: int) -> None:
        """The same for a node that did not say who it is, or that was called back in vain."""
        if node in self.line:
            self.strike(self.line[node], t, rounds)
            return
        strikes, _ = self.strangers.get(node, (0, 0))
        self.strangers[node] = (min(strikes + 1, 30), t + 1 + min(rounds << strikes, LONGEST * rounds))

    def good(self, lines: Sequence[int]) -> None:
        """These clients did what they were asked."""
        self.strikes[lines] = 0

    def available(self) -> Numbers:
        """Which clients may be asked now, Bool[K]."""
        here = np.zeros(len(self), bool)
        here[list(self.node)] = True
        found: Numbers = here & ~self.away
        return found

    def sizes(self) -> Numbers:
        """D_k, the median of the known ones where it is not known, and 0 on a line that has no client."""
        known = self.size[~np.isnan(self.size)]
        guess = float(np.median(known)) if len(known) else 1.0
        taken = np.zeros(len(self), bool)
        taken[list(self._lines.values())] = True
        return np.where(np.isnan(self.size), np.where(taken, guess, 0.0), self.size)

    def grow(self, lines: int) -> None:
        """Have at least so many lines."""
        more = lines - len(self)
        if more > 0:
            self.identities += [None] * more
            self.size = np.concatenate([self.size, np.full(more, np.nan)])
            for name in ("strikes", "until", "away"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))

    def to_plain(self) -> tuple[list[str | None], dict[str, Numbers]]:
        """What must survive the server: everything but the nodes, which another run does not have."""
        return list(self.identities), {name: getattr(self, name) for name in ("size", "strikes", "until", "away")}

    @classmethod
    def from_plain(cls, identities: Sequence[str | None], columns: dict[str, Numbers]) -> "Roster":
        """What ``to_plain`` gave."""
        roster = cls(len(identities))
        roster.identities = list(identities)
        roster._lines = {identity: line for line, identity in enumerate(identities) if identity is not None}
        for name, values in columns.items():
            setattr(roster, name, values)
        return roster

    def _free(self, identity: str) -> int:
        word, _, number = identity.partition("=")
        if word == "partition-id" and int(number) < len(self) and self.identities[int(number)] is None:
            return int(number)
        while self._first_free < len(self) and self.identities[self._first_free] is not None:
            self._first_free += 1
        if self._first_free == len(self):
            self.grow(len(self) + max(1, len(self) // 4))
        return self._first_free


def in_order(identity: str) -> tuple[int, int, str]:
    """What clients that join together are sorted by: partition-ids by number, then names.

    >>> sorted(["name=b", "partition-id=10", "partition-id=9", "name=a"], key=in_order)
    ['partition-id=9', 'partition-id=10', 'name=a', 'name=b']
    """
    word, _, rest = identity.partition("=")
    return (0, int(rest), "") if word == "partition-id" else (1, 0, identity)
