"""The history of a federation: its rounds, and what was measured after which of them.

A federation does not know all that a simulation knows; what it does not know is NaN. ``loss`` and the metrics over
clients come from Flower's evaluation on clients, ``test_loss`` and ``test_accuracy`` from the server's ``evaluate_fn``.
"""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpick.metrics import METRICS, Payload, traffic
from fedpick.protocol import Selector

LOG = logging.getLogger("flwr.fedpick")
COUNTS = ("available", "polled", "trained", "returned")
EVALUATED = "eval_clients"  # how many clients an evaluation is of
EVALUATORS = "eval_clients_checksum"  # and which
ACCURACIES = {"clients": ("mean_accuracy", "worst_accuracy"), "the server": ("test_accuracy",)}  # of whose evaluations
PER_CENT = "accuracies are in per cent, and must be between 0 and 1 (losses are used)"
COSTS = ("poll_samples", "train_samples", "seconds")


class RoundRow(NamedTuple):
    """One round. Seats that did not return have client -1 and weight 0; an answer of NaN is silence."""

    clients: list[int]
    weights: list[float]
    train_loss: float
    available: int
    polled: int
    trained: int
    returned: int
    poll_samples: float
    train_samples: float
    seconds: float
    asked: tuple[int, ...] = ()
    answers: tuple[float, ...] = ()
    spent: int = 0  # of those asked, who did not answer because their privacy budget is spent


LOST = RoundRow([], [], math.nan, 0, 0, 0, 0, math.nan, math.nan, math.nan)


@dataclass
class History:
    """The rounds that were played (``rows``), and what was measured after which of them (``measured``).

    A strategy that explains itself adds its numbers of every round (``status``) and its reasons (``notes``).

    >>> history = History()
    >>> history.measure({"test_loss": 0.5})
    >>> history.summary(model_bytes=100)["final"]["test_loss"]
    0.5
    """

    rows: list[RoundRow] = field(default_factory=list)
    measured: dict[int, dict[str, float]] = field(default_factory=dict)  # rounds played -> metric -> value
    status: list[dict[str, float]] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)  # rounds played -> what the strategy then changed, and why
    pending: list[str] = field(default_factory=list)  # what is to be noted with the round under way
    unusable: Counter[tuple[str, str]] = field(default_factory=Counter)  # evaluations: where, why -> number

    def measure(self, values: Mapping[str, float]) -> None:
        """Enter metrics that were measured after the rounds played so far."""
        self.measured.setdefault(len(self.rows), {}).update(values)

    def count_unusable(self, where: str, why: str, number: int = 1) -> None:
        """Count evaluations on the clients or the server that cannot be used; each reason is said once."""
        if not number:
            return
        if not self.unusable[where, why]:
            LOG.warning("fedpick: an evaluation on %s cannot be used: %s", where, why)
        self.unusable[where, why] += number

    def forget_accuracies(self) -> None:
        """Forget the accuracies of those whose accuracies are in per cent: the first may be 1 or less."""
        for where, names in ACCURACIES.items():
            for values in self.measured.values() if self.unusable[where, PER_CENT] else ():
                values |= {name: math.nan for name in names if name in values}

    def unusable_entries(self) -> list[list[Any]]:
        """The evaluations that could not be used as plain data: where, why, and how many."""
        return [[*which, number] for which, number in self.unusable.items()]

    def note_decisions(self, selector: Selector[Any], before: Any, after: Any, *said: str | None) -> str | None:
        """Enter what a strategy says of its own decisions in the last round, if anything; returns its reasons.

        ``said`` is what else there is to say of the round, each part where it is not None.
        """
        if hasattr(selector, "status"):
            self.status.append(selector.status(after))
        own: str | None = selector.explain(before, after) if hasattr(selector, "explain") else None
        return self.flush(*said, own)

    def flush(self, *said: str | None) -> str | None:
        """Enter what is to be noted with the last round, each part where it is not None; returns what was ``said``."""
        parts, last = [part for part in said if part is not None], len(self.rows)
        noted = [*([self.notes[last]] if last in self.notes else []), *self.pending, *parts]
        self.pending = []
        if noted:
            self.notes[last] = "; ".join(noted)
        return "; ".join(parts) or None

    def drop(self, rounds: int) -> None:
        """Forget the last rounds, in which nothing was learnt."""
        last = len(self.rows) - rounds
        self.rows, self.status = self.rows[:last], self.status[:last]
        self.measured = {t: values for t, values in self.measured.items() if t <= last}
        self.notes = {t: why for t, why in self.notes.items() if t <= last}

    def to_entries(self, since: int) -> list[dict[str, Any]]:
        """The rounds after this many, and what was measured after the last of them and since, for a journal."""
        found: list[dict[str, Any]] = []
        for t in range(since, len(self.rows)):
            status = self.status[t] if t < len(self.status) else None
            found.append({"round": t, "row": list(self.rows[t]), "status": status, "note": self.notes.get(t + 1)})
        return found + [{"after": t, "values": values} for t, values in self.measured.items() if t >= since - 1]

    @classmethod
    def from_entries(cls, entries: Sequence[Mapping[str, Any]], rounds: int) -> "History":
        """The history of so many rounds from the lines of a journal; later lines count, and a lost round is empty.

        Args:
            entries: What ``to_entries`` returned, one time after the other.
            rounds: The number of rounds.
        """
        history = cls([LOST] * rounds)
        status: dict[int, dict[str, float]] = {}
        for entry in entries:
            if "after" in entry and entry["after"] <= rounds:
                history.measured.setdefault(entry["after"], {}).update(entry["values"])
            elif "round" in entry and entry["round"] < rounds:
                t = entry["round"]
                row = RoundRow(*entry["row"])
                history.rows[t] = row._replace(asked=tuple(row.asked), answers=tuple(row.answers))
                status |= {t: entry["status"]} if entry["status"] is not None else {}
                history.notes.pop(t + 1, None)
                history.notes |= {t + 1: entry["note"]} if entry["note"] is not None else {}
        if status:
            unknown = dict.fromkeys(next(iter(status.values())), math.nan)
            history.status = [status.get(t, unknown) for t in range(rounds)]
        history.notes = dict(sorted(history.notes.items()))
        return history

    def to_arrays(self, share: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Named arrays as in a stored result, with the share of data p_k of each client."""
        rounds, seats = len(self.rows), max((len(row.clients) for row in self.rows), default=0)
        clients, weights = np.full((rounds, seats), -1, np.int32), np.zeros((rounds, seats), np.float32)
        for t, row in enumerate(self.rows):
            clients[t, : len(row.clients)], weights[t, : len(row.weights)] = row.clients, row.weights
        # A server that ended, or is, between a round's training and its evaluation has not measured its last model.
        evaluated = range(1 + max((t for t, values in self.measured.items() if values), default=rounds))
        found: dict[str, NDArray[Any]] = {"share": share.astype(np.float32), "evaluated": np.array(evaluated)}
        for name in METRICS:
            values = [self.measured.get(t, {}).get(name, math.nan) for t in evaluated]
            found[f"metrics/{name}"] = np.asarray(values, np.float32)
        found["evaluations/clients"] = np.array(
            [self.measured.get(t, {}).get(EVALUATED, 0) for t in evaluated], np.int32
        )
        found["evaluations/checksum"] = np.array(
            [self.measured.get(t, {}).get(EVALUATORS, 0) for t in evaluated], np.int64
        )
        found |= {"records/clients": clients, "records/weights": weights}
        for name in ("train_loss", *COUNTS, *COSTS):
            kind = np.int32 if name in COUNTS else np.float32
            found[f"records/{name}"] = np.asarray([getattr(row, name) for row in self.rows], kind)
        polls = [
            (t, k, loss) for t, row in enumerate(self.rows) for k, loss in zip(row.asked, row.answers, strict=True)
        ]
        if polls:
            found["polls/round"] = np.asarray([t for t, _, _ in polls], np.int32)
            found["polls/client"] = np.asarray([k for _, k, _ in polls], np.int32)
            found["polls/spent"] = np.asarray([row.spent for row in self.rows], np.int32)
            found["polls/loss"] = np.asarray([loss for _, _, loss in polls], np.float32)
        for name in self.status[0] if self.status else ():
            found[f"records/{name}"] = np.asarray([line[name] for line in self.status], np.float32)
        return found

    def summary(self, model_bytes: int, payload: Payload = Payload()) -> dict[str, Any]:
        """The last value of each metric and the total costs; None where unknown."""
        final: dict[str, float | None] = dict.fromkeys(METRICS)
        for _, values in sorted(self.measured.items()):
            final |= {name: _finite(value) for name, value in values.items() if name in METRICS}
        polled, trained, returned = (sum(getattr(row, name) for row in self.rows) for name in COUNTS[1:])
        costs = {name: _finite(math.fsum(getattr(row, name) for row in self.rows)) for name in COSTS}
        costs = {**traffic(polled, trained, returned, model_bytes=model_bytes, payload=payload), **costs}
        return {"rounds": len(self.rows), "final": final, "costs": costs}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
