"""The history of a federation, round by round, in the form in which results of simulations are stored.

A federation does not know all that a simulation knows; what it does not know is NaN. ``loss`` and the metrics over
clients come from Flower's evaluation on clients, ``test_loss`` and ``test_accuracy`` from the server's ``evaluate_fn``.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpick.metrics import METRICS, traffic

COUNTS = ("available", "polled", "trained", "returned")
COSTS = ("poll_samples", "train_samples", "seconds")


class Row(NamedTuple):
    """One round. Seats that did not return have client -1 and weight 0."""

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


class History:
    """The rounds that were played (``rows``), and what was measured after which of them (``measured``).

    >>> history = History()
    >>> history.measure(2, {"test_loss": 0.5})
    >>> history.summary(model_bytes=100)["final"]["test_loss"]
    0.5
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.measured: dict[int, dict[str, float]] = {}  # rounds played -> metric -> value

    def measure(self, rounds: int, values: Mapping[str, float]) -> None:
        """Enter metrics that were measured after this many rounds."""
        self.measured.setdefault(rounds, {}).update(values)

    def to_plain(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {"rows": [list(row) for row in self.rows], "measured": [[t, v] for t, v in self.measured.items()]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "History":
        """The history that ``to_plain`` wrote."""
        history = cls()
        history.rows = [Row(*row) for row in plain["rows"]]
        history.measured = {int(t): dict(values) for t, values in plain["measured"]}
        return history

    def to_arrays(self, share: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Named arrays as in a stored result, with the share of data p_k of each client."""
        rounds, seats = len(self.rows), max((len(row.clients) for row in self.rows), default=0)
        clients, weights = np.full((rounds, seats), -1, np.int32), np.zeros((rounds, seats), np.float32)
        for t, row in enumerate(self.rows):
            clients[t, : len(row.clients)], weights[t, : len(row.weights)] = row.clients, row.weights
        found: dict[str, NDArray[Any]] = {"share": share.astype(np.float32), "evaluated": np.arange(rounds + 1)}
        for name in METRICS:
            values = [self.measured.get(t, {}).get(name, math.nan) for t in range(rounds + 1)]
            found[f"metrics/{name}"] = np.asarray(values, np.float32)
        found |= {"records/clients": clients, "records/weights": weights}
        for name in ("train_loss", *COUNTS, *COSTS):
            kind = np.int32 if name in COUNTS else np.float32
            found[f"records/{name}"] = np.asarray([getattr(row, name) for row in self.rows], kind)
        return found

    def summary(self, model_bytes: int) -> dict[str, Any]:
        """The last value of each metric and the total costs; None where unknown."""
        final: dict[str, float | None] = dict.fromkeys(METRICS)
        for _, values in sorted(self.measured.items()):
            final |= {name: _finite(value) for name, value in values.items()}
        polled, trained, returned = (sum(getattr(row, name) for row in self.rows) for name in COUNTS[1:])
        costs = {name: _finite(math.fsum(getattr(row, name) for row in self.rows)) for name in COSTS}
        costs = {**traffic(polled, trained, returned, model_bytes), **costs}
        return {"rounds": len(self.rows), "final": final, "costs": costs}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
