"""What happened, round by round, in the form in which simulations are kept: runs/<identity>/ with JSON and arrays.

A federation does not know all that a simulation knows. What it knows is recorded, the rest is NaN: ``loss`` and what
is derived from the clients' losses come from Flower's evaluation on the clients, ``test_loss`` and ``test_accuracy``
from the server's own ``evaluate_fn``.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import METRICS, traffic

Numbers = np.ndarray[Any, Any]


class Row(NamedTuple):
    """One round. Seats that did not come back have client -1 and weight 0."""

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


class Record:
    """The rows of all rounds, and what was measured after which of them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.measured: dict[int, dict[str, float]] = {}  # rounds played -> metric -> value

    def measure(self, rounds: int, **values: float) -> None:
        """Enter what was measured after so many rounds."""
        self.measured.setdefault(rounds, {}).update(values)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"rows": [list(row) for row in self.rows], "measured": [[t, v] for t, v in self.measured.items()]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Record":
        """What ``to_plain`` gave."""
        record = cls()
        record.rows = [Row(*row) for row in plain["rows"]]
        record.measured = {int(t): dict(values) for t, values in plain["measured"]}
        return record

    def to_arrays(self, share: Numbers) -> dict[str, Any]:
        """Named arrays as in the result of a simulation."""
        rounds, seats = len(self.rows), max((len(row.clients) for row in self.rows), default=0)
        clients, weights = np.full((rounds, seats), -1, np.int32), np.zeros((rounds, seats), np.float32)
        for t, row in enumerate(self.rows):
            clients[t, : len(row.clients)], weights[t, : len(row.weights)] = row.clients, row.weights
        found: dict[str, Any] = {"share": share.astype(np.float32), "evaluated": np.arange(rounds + 1)}
        for name in METRICS:
            values = [self.measured.get(t, {}).get(name, math.nan) for t in range(rounds + 1)]
            found[f"metrics/{name}"] = np.asarray(values, np.float32)
        found |= {"records/clients": clients, "records/weights": weights}
        for name in Row._fields[2:]:
            kind = np.int32 if name in ("available", "polled", "trained", "returned") else np.float32
            found[f"records/{name}"] = np.asarray([getattr(row, name) for row in self.rows], kind)
        return found

    def summary(self, model_bytes: int) -> dict[str, Any]:
        """Where it ended and what it cost; None where that is not known."""

        def last(name: str) -> float | None:
            known = [values[name] for _, values in sorted(self.measured.items()) if name in values]
            return _finite(known[-1]) if known else None

        polled, trained, returned = (
            sum(getattr(row, n) for row in self.rows) for n in ("polled", "trained", "returned")
        )
        costs = {
            **traffic(polled, trained, returned, model_bytes),
            **{
                name: _finite(math.fsum(getattr(row, name) for row in self.rows))
                for name in ("poll_samples", "train_samples", "seconds")
            },
        }
        return {"rounds": len(self.rows), "final": {name: last(name) for name in METRICS}, "costs": costs}


def write(
    folder: Path,
    record: Record,
    owner: str,
    experiment: Mapping[str, Any],
    clients: Sequence[str | None],
    share: Numbers,
    model_bytes: int,
) -> Path:
    """Write the record so far where a store of simulations keeps its runs; each file is there whole or not at all."""
    identity = hashlib.sha256(owner.encode()).hexdigest()[:16]
    target = folder / "runs" / identity
    target.mkdir(parents=True, exist_ok=True)
    seconds = math.fsum(row.seconds for row in record.rows)
    about = {
        "identity": identity,
        "seed": experiment["seeds"][0],
        "experiment": dict(experiment),
        "clients": list(clients),
        "model_bytes": model_bytes,
        "versions": _versions(),
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "seconds": round(seconds, 3),
    }
    with _replacing(target / "result.npz") as file:
        np.savez_compressed(file, **record.to_arrays(share))
    for name, plain in (("summary.json", record.summary(model_bytes)), ("experiment.json", about)):
        with _replacing(target / name) as file:
            file.write(json.dumps(plain, indent=1, allow_nan=False).encode())
    return target


def described(selector: Any) -> dict[str, Any]:
    """A selector as plain data, as experiments describe it; its own text where it is not made of plain numbers."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return described(value)
        if isinstance(value, bool | str) or value is None:
            return value
        numbers = np.asarray(value)
        return numbers.tolist() if numbers.dtype.kind in "iuf" else str(value)

    fields = {field.name: plain(getattr(selector, field.name)) for field in dataclasses.fields(selector)}
    return {"kind": type(selector).__name__, **fields}


@contextlib.contextmanager
def _replacing(path: Path) -> Any:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as part:
        try:
            yield part
            part.flush()
            os.fsync(part.fileno())
            os.chmod(part.name, 0o644)
            os.replace(part.name, path)
        finally:
            Path(part.name).unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("fedpick", "flwr", "jax", "jaxlib", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
