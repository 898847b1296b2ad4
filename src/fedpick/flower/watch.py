"""The watch over the model: one that an update has ruined is noticed by the losses of all, and its sender is named.

An update may be finite and of the right shapes, and still ruin the model. The clients that meet that model next then
report losses that are not finite, or a thousand times as high as they ever were: not they are at fault, but who has
sent the update. Who is blamed has sent an update ten times as large as is usual: a few liars cannot have others blamed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ABSURD = 1000.0  # times the highest median loss of a good model
LARGE, HUGE = 10.0, 1000.0  # times the median norm of the updates that did no harm
REMEMBERED = 100  # of these norms
SERVER = -1  # who may report a loss beside the clients, and is believed alone


@dataclass
class Watch:
    """What was heard of the models since the last good one; clients are rows of the table.

    A model is good where more losses are credible than not, and ruined where two clients or more, and no fewer than the
    credible ones, report one that is not, after an update that was unusually large; one client, where it was huge.

    >>> watch = Watch()
    >>> watch.hear("poll", {0: 2.0, 1: 3.0}, rounds=0)
    >>> watch.sent({0: 1.0, 1: 1e12})
    >>> watch.hear("poll", {0: math.nan, 1: 3.0, 2: 1e9}, rounds=1)
    >>> watch.ruined, watch.suspects()
    (True, [1])
    """

    good: int = 0  # rounds that were played when the model was last good
    highest: dict[str, float] = field(default_factory=dict)  # of each kind of loss, the highest median of a good model
    senders: dict[int, float] = field(default_factory=dict)  # who has sent updates since -> the largest norm
    broken: set[int] = field(default_factory=set)  # whose losses were not credible since
    norms: list[float] = field(default_factory=list)  # of updates that did no harm

    def sent(self, norms: Mapping[int, float]) -> None:
        """Enter whose updates have entered the model; those of a model that they called ruined say nothing."""
        spared = self.broken if self.suspects() else set()
        for client, norm in norms.items():
            if client not in spared:
                self.senders[client] = max(norm, self.senders.get(client, 0.0))

    def credible(self, kind: str, loss: float) -> bool:
        """Whether a good model may have this loss, in a poll, in training or in an evaluation."""
        highest = self.highest.get(kind, 0.0)
        return math.isfinite(loss) and not (highest > 0 and loss > ABSURD * highest)

    def hear(self, kind: str, losses: Mapping[int, float], rounds: int) -> None:
        """Enter the losses of the model after this many rounds, NaN where one is not valid.

        Clients that did not answer are not among them.
        """
        valid = {client: loss for client, loss in losses.items() if self.credible(kind, loss)}
        broken = losses.keys() - valid.keys()
        for client in valid.keys() & self.suspects():  # nobody bears witness to his own work
            del valid[client]
        if len(valid) > len(broken):
            median = float(np.median(list(valid.values())))
            self.highest[kind] = max(median, self.highest.get(kind, median))
            self.norms = [*self.norms, *self.senders.values()][-REMEMBERED:]
            self.good, self.senders, self.broken = rounds, {}, set()
        else:
            self.broken |= broken

    @property
    def ruined(self) -> bool:
        """Whether the model is ruined."""
        if not self.broken or not self.suspects():
            return False
        huge = bool(self.norms) and max(self.senders.values()) > HUGE * float(np.median(self.norms))
        return len(self.broken) >= 2 or SERVER in self.broken or huge

    def suspects(self) -> list[int]:
        """Who may have ruined the model: the senders of updates that are much larger than usual.

        Where nothing is usual yet, it is what the others have sent.
        """
        found = []
        for client, norm in self.senders.items():
            others = self.norms or [other for sender, other in self.senders.items() if sender != client]
            if norm > LARGE * (float(np.median(others)) if others else 0.0):
                found.append(client)
        return sorted(found)

    def roll_back(self) -> None:
        """The model is the good one again."""
        self.senders, self.broken = {}, set()

    def to_facts(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "good": self.good,
            "highest": self.highest,
            "senders": list(self.senders.items()),
            "broken": sorted(self.broken),
            "norms": self.norms,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Watch":
        """What ``to_facts`` returned."""
        highest, senders, broken = dict(facts["highest"]), dict(facts["senders"]), set(facts["broken"])
        numbers = [facts["good"], *highest.values(), *senders, *senders.values(), *facts["norms"]]
        if not all(isinstance(number, int | float) for number in numbers) or not isinstance(facts["good"], int):
            raise ValueError("what is known of the losses must be numbers")
        return cls(facts["good"], highest, senders, broken, list(facts["norms"]))
