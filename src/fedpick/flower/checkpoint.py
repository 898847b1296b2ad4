"""What a server keeps: its state, to resume from, and its history, as a store of simulations has it.

folder/state/round-*.state     the last two states
folder/runs/<identity>/        the history

A federation does not know all that a simulation knows; what it does not know is NaN. ``loss`` and the metrics over
clients come from Flower's evaluation on clients, ``test_loss`` and ``test_accuracy`` from the server's ``evaluate_fn``.
"""

import hashlib
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from fedpick.config import unstructure
from fedpick.flower.clients import ClientTable
from fedpick.flower.replies import read_metric
from fedpick.flower.watch import Watch
from fedpick.metrics import METRICS, OVER_CLIENTS, Payload, traffic
from fedpick.protocol import Selector, payload
from fedpick.storage import ForeignStateError, RunStore, State, StateError, load_state, save_state

LOG = logging.getLogger("flwr.fedpick")
WHAT, KEPT = "Selecting: state", 2
COUNTS = ("available", "polled", "trained", "returned")
COSTS = ("poll_samples", "train_samples", "seconds")


class RoundRow(NamedTuple):
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

    def measure(self, values: Mapping[str, float]) -> None:
        """Enter metrics that were measured after the rounds played so far."""
        self.measured.setdefault(len(self.rows), {}).update(values)

    def drop(self, rounds: int) -> None:
        """Forget the last rounds, in which nothing was learnt."""
        last = len(self.rows) - rounds
        self.rows, self.status = self.rows[:last], self.status[:last]
        self.measured = {t: values for t, values in self.measured.items() if t <= last}
        self.notes = {t: why for t, why in self.notes.items() if t <= last}

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
        for name in self.status[0] if self.status else ():
            found[f"records/{name}"] = np.asarray([line[name] for line in self.status], np.float32)
        return found

    def summary(self, model_bytes: int, payload: Payload = Payload()) -> dict[str, Any]:
        """The last value of each metric and the total costs; None where unknown."""
        final: dict[str, float | None] = dict.fromkeys(METRICS)
        for _, values in sorted(self.measured.items()):
            final |= {name: _finite(value) for name, value in values.items()}
        polled, trained, returned = (sum(getattr(row, name) for row in self.rows) for name in COUNTS[1:])
        costs = {name: _finite(math.fsum(getattr(row, name) for row in self.rows)) for name in COSTS}
        costs = {**traffic(polled, trained, returned, model_bytes=model_bytes, payload=payload), **costs}
        return {"rounds": len(self.rows), "final": final, "costs": costs}


@dataclass
class ServerState:
    """All that a server remembers between rounds."""

    arrays: ArrayRecord  # the model
    clients: ClientTable
    history: History
    memory: Any = None  # the selector's; None before the first round
    watch: Watch = field(default_factory=Watch)  # over the model
    wrapped: dict[str, NDArray[Any]] = field(default_factory=dict)  # the wrapped strategy's, when it was saved

    @property
    def rounds(self) -> int:
        """The number of rounds played."""
        return len(self.history.rows)

    def to_state(self) -> State:
        """As facts and named arrays."""
        groups = {
            "model": {name: array.numpy() for name, array in self.arrays.items()},
            "clients": self.clients.columns(),
            "selector": {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.memory))},
            "strategy": self.wrapped,
        }
        arrays = {f"{group}/{name}": values for group, named in groups.items() for name, values in named.items()}
        history = self.history
        facts = {"rows": history.rows, "measured": list(history.measured.items())}
        facts |= {"status": history.status, "notes": list(history.notes.items())}
        return State({**facts, "identities": self.clients.identities, "watch": self.watch.to_facts()}, arrays)

    @classmethod
    def from_state(cls, state: State, selector: Selector[Any]) -> "ServerState":
        """What ``to_state`` wrote, in its order; the selector gives its memory the structure."""

        def group(name: str) -> dict[str, NDArray[Any]]:
            start = f"{name}/"
            return {key.removeprefix(start): v for key, v in state.arrays.items() if key.startswith(start)}

        clients = ClientTable.from_columns(state.facts["identities"], group("clients"))
        structure = jax.tree.structure(selector.init(len(clients)))
        return cls(
            ArrayRecord({name: Array(values) for name, values in group("model").items()}),
            clients,
            History(
                [RoundRow(*row) for row in state.facts["rows"]],
                dict(state.facts["measured"]),
                state.facts.get("status", []),
                dict(state.facts.get("notes", [])),
            ),
            jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in group("selector").values()]),
            Watch.from_facts(state.facts["watch"]) if "watch" in state.facts else Watch(len(state.facts["rows"])),
            group("strategy"),
        )


class Checkpointer(NamedTuple):
    """Saves and restores the state of one federation in its folder."""

    folder: Path
    selector: Selector[Any]
    seed: int
    num_clients: int | None  # as expected
    strategies: list[str]  # the classes of the wrapped strategy, the outermost first
    shapes: dict[str, tuple[int, ...]]  # of the model

    @property
    def owner(self) -> str:
        """All that must be the same for a state to be resumed."""
        number = self.num_clients or "any number of"
        text = f"{self.selector!r}, seed {self.seed}, {number} clients, {self.strategies}, model {self.shapes}"
        return re.sub(r" at 0x[0-9a-f]+", "", text)

    def save(self, state: ServerState) -> None:
        """Write the state and the history; the last two states are kept, and that of the last good model."""
        save_state(self._path(state.rounds), state.to_state(), owner=self.owner, what=WHAT)
        for old in self._paths()[:-KEPT]:
            if old != self._path(state.watch.good):
                old.unlink(missing_ok=True)
        size = state.clients.sizes()
        model_bytes = sum(array.numpy().nbytes for array in state.arrays.values())
        experiment = {
            "name": f"Flower, {' of '.join(self.strategies)}",
            "selector": _describe(self.selector),
            "rounds": state.rounds,
            "seeds": [self.seed],
        }
        about = {
            "seed": self.seed,
            "experiment": experiment,
            "clients": state.clients.identities,
            "model_bytes": model_bytes,
            "seconds": round(sum(row.seconds for row in state.history.rows), 3),
        }
        if state.history.notes:
            about["notes"] = [[number, why] for number, why in state.history.notes.items()]
        identity = hashlib.sha256(self.owner.encode()).hexdigest()[:16]
        arrays = state.history.to_arrays(size / max(size.sum(), 1e-30))
        carried = payload(self.selector)._replace(request_models=1)  # Flower sends the model with every request
        RunStore(self.folder).save(identity, about, arrays, state.history.summary(model_bytes, carried))

    def rewind(self, state: ServerState) -> None:
        """Write a state of fewer rounds than the last one, which is forgotten."""
        for path in self._paths():
            if path > self._path(state.rounds):
                path.unlink()
        if state.rounds:
            self.save(state)

    def restore(self) -> ServerState | None:
        """The newest complete state of this federation, or None where there is none; others are logged and skipped.

        Where all complete states are of other federations it raises: to start anew would overwrite them.
        """
        foreign: ForeignStateError | None = None
        for path in reversed(self._paths()):
            try:
                state = load_state(path, owner=self.owner, what=WHAT)
            except StateError as error:
                foreign = error if isinstance(error, ForeignStateError) else foreign
                LOG.warning("%s; skipped", error)
            else:
                return ServerState.from_state(state, self.selector)
        if foreign is not None:
            raise ValueError(f"{foreign}; give this federation a folder of its own")
        return None

    def restore_round(self, rounds: int) -> ServerState | None:
        """The state after this many rounds, or None where it is not there."""
        try:
            return ServerState.from_state(load_state(self._path(rounds), owner=self.owner, what=WHAT), self.selector)
        except StateError:
            return None

    def _path(self, rounds: int) -> Path:
        return self.folder / "state" / f"round-{rounds:08d}.state"

    def _paths(self) -> list[Path]:
        """The states in the folder, the newest last."""
        return sorted((self.folder / "state").glob("round-*.state"))


def _describe(selector: Selector[Any]) -> dict[str, Any]:
    """A selector as experiments describe it; one that is not importable, by its text."""
    try:
        return dict(unstructure(selector, "Selector"))
    except ValueError:
        return {"kind": type(selector).__qualname__, "text": repr(selector)}


def client_metrics(replies: Sequence[Message], key: str) -> dict[str, float]:
    """The metrics over clients; ``loss`` weighs them by the metric ``key``, in all others each client counts once."""
    weights = [read_metric(reply, key) for reply in replies]
    records = [next(iter(reply.content.metric_records.values())) for reply in replies]
    loss, accuracy = (np.array([_find(record, word) for record in records]) for word in ("loss", "acc"))
    values = {"loss": loss, "accuracy": accuracy}
    over_clients = {name: float(function(values[measured])) for name, (measured, function) in OVER_CLIENTS.items()}
    return {"loss": float(np.average(loss, weights=weights)), **over_clients}


def eval_losses(reply: Message) -> list[float]:
    """The loss that an evaluation reports, NaN where it is not finite; none where it reports none."""
    records = list(reply.content.metric_records.values()) if reply.has_content() else []
    numbers = [{key: value for key, value in record.items() if isinstance(value, int | float)} for record in records]
    return [_find(record, "loss") for record in numbers[:1] if any("loss" in key.lower() for key in record)]


def server_metrics(record: MetricRecord) -> dict[str, float]:
    """The metrics that the server's own evaluation gives."""
    return {"test_loss": _find(record, "loss"), "test_accuracy": _find(record, "acc")}


def _find(metrics: Mapping[str, Any], word: str) -> float:
    """The first number whose name contains this word, such as eval_loss; NaN where there is none."""
    for key, value in metrics.items():
        if word in key.lower() and isinstance(value, int | float):
            return float(value)
    return math.nan


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
