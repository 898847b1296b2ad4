"""What a server keeps: its state, to resume from, and its history, as a store of simulations has it.

folder/state/round-*.state     the last two states, and that of the last good model
folder/state/history.jsonl     the rounds that were played, one after the other
folder/runs/<identity>/        the history as the store of simulations has it
"""

import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedpick.config import unstructure
from fedpick.flower.clients import ClientTable
from fedpick.flower.history import History
from fedpick.flower.messages import AppId
from fedpick.flower.options import Options
from fedpick.flower.watch import Watch
from fedpick.protocol import Selector, payload
from fedpick.storage import ForeignStateError, Journal, RunStore, State, StateError, load_state, save_state

LOG = logging.getLogger("flwr.fedpick")
WHAT, KEPT = "Selecting: state", 2
RECORDED = 20  # the run is written when this part of its rounds is new


@dataclass
class ServerState:
    """All that a server remembers between rounds."""

    arrays: ArrayRecord  # the model
    clients: ClientTable
    history: History
    memory: Any = None  # the selector's; None before the first round
    watch: Watch = field(default_factory=Watch)  # over the model
    wrapped: dict[str, NDArray[Any]] = field(default_factory=dict)  # the wrapped strategy's, when it was saved
    config: dict[str, Any] = field(default_factory=dict)  # what the wrapped strategy has changed in the training config
    first_model: str = ""  # a checksum of the model that the federation began with, when it was saved
    app: AppId = AppId()  # that it was saved by

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
        facts = {"rounds": self.rounds, "identities": self.clients.identities, "watch": self.watch.to_facts()}
        return State({**facts, "config": self.config, "unusable": self.history.unusable_entries()}, arrays)

    @classmethod
    def from_state(cls, state: State, selector: Selector[Any], entries: Sequence[Mapping[str, Any]]) -> "ServerState":
        """What ``to_state`` wrote, in its order, with the history of a journal; the selector structures its memory."""

        def group(name: str) -> dict[str, NDArray[Any]]:
            start = f"{name}/"
            return {key.removeprefix(start): v for key, v in state.arrays.items() if key.startswith(start)}

        clients = ClientTable.from_columns(state.facts["identities"], group("clients"))
        fresh, structure = jax.tree.flatten(selector.init(len(clients)))
        memory = list(group("selector").values())
        for old, new in zip(memory, fresh, strict=True):
            if old.shape != np.shape(new) or old.dtype != np.asarray(new).dtype:
                raise ValueError(
                    f"the selector's memory has {old.dtype}{old.shape} where {np.asarray(new).dtype} belongs"
                )
        history = History.from_entries(entries, int(state.facts["rounds"]))
        history.unusable.update({(where, why): n for where, why, n in state.facts.get("unusable", ())})
        history.forget_accuracies()  # which the journal still has
        return cls(
            ArrayRecord({name: Array(values) for name, values in group("model").items()}),
            clients,
            history,
            jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in memory]),
            Watch.from_facts(state.facts["watch"]),
            group("strategy"),
            dict(state.facts.get("config", {})),
            str(state.facts["first_model"]),
            AppId(*state.facts.get("app", ())),
        )


@dataclass
class Checkpointer:
    """Saves and restores the state of one federation in its folder, of which it has the lock."""

    folder: Path
    selector: Selector[Any]
    options: Options
    strategies: list[str]  # the classes of the wrapped strategy, the outermost first
    model: ArrayRecord  # the first one
    app: AppId
    entered: int = 0  # rounds that are in the journal
    recorded: int = 0  # rounds that the run in the store has
    lock: contextlib.ExitStack | None = None

    def open(self) -> None:
        """Take the lock of the folder; what a server that was killed has left is removed."""
        if self.lock is None:
            self.lock = RunStore(self.folder).occupy(owner="Selecting")

    def close(self) -> None:
        """Give the lock back."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    @property
    def owner(self) -> str:
        """All that must be the same for a state to be resumed."""
        number = self.options.clients or "any number of"
        named = self.settings
        what = f"{named['selector']}, seed {self.options.seed}, {number} clients"
        return f"{what}, {self.strategies}, model {named['model']}"

    @property
    def settings(self) -> dict[str, str]:
        """The same by name, with the options that decide; an option that is added later is not compared."""
        shapes = {name: tuple(array.shape) for name, array in self.model.items()}
        selector = re.sub(r" at 0x[0-9a-f]+", "", repr(self.selector))
        strategy = " of ".join(self.strategies)
        return {"selector": selector, "strategy": strategy, "model": str(shapes), **self.options.decisions}

    def save(self, state: ServerState, at_end: bool = False) -> None:
        """Write the state and the history; the last two states are kept, and that of the last good model.

        Of the history only what is new is written. The run in the store is written as a whole, and therefore at the
        end and each time that a twentieth of its rounds is new: what is written in all is linear in the rounds.
        """
        self._journal.append(state.history.to_entries(self.entered), owner=WHAT)
        self.entered = state.rounds
        content = state.to_state()
        content.facts.update(first_model=self.first_model, app=self.app)
        save_state(self._path(state.rounds), content, owner=self.owner, what=WHAT, settings=self.settings)
        for old in self._paths()[:-KEPT]:
            if old != self._path(state.watch.good):
                old.unlink(missing_ok=True)
        if at_end or state.rounds - self.recorded > state.rounds // RECORDED:
            self.recorded = state.rounds
            self._record(state)

    @property
    def first_model(self) -> str:
        """A checksum of the first model."""
        data = [hashlib.sha256(array.data).hexdigest() for array in self.model.values()]
        return hashlib.sha256("".join(data).encode()).hexdigest()

    @property
    def _journal(self) -> Journal:
        return Journal(self.folder / "state" / "history.jsonl")

    def _record(self, state: ServerState) -> None:
        """Write the run as the store has it."""
        size = state.clients.sizes()
        model_bytes = sum(array.numpy().nbytes for array in state.arrays.values())
        experiment = {
            "name": f"Flower, {' of '.join(self.strategies)}",
            "selector": _describe(self.selector),
            "rounds": state.rounds,
            "seeds": [int(self.options.seed)],
        }
        about = {
            "seed": int(self.options.seed),
            "experiment": experiment,
            "clients": state.clients.identities,
            "model_bytes": model_bytes,
            "first_model": self.first_model,
            "seconds": round(sum(row.seconds for row in state.history.rows), 3),
        }
        about["missing"] = state.clients.missing()
        if state.history.unusable:
            about["unusable"] = state.history.unusable_entries()
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
        self.entered = state.rounds
        if state.rounds:
            self.save(state, at_end=True)

    def restore(self) -> ServerState | None:
        """The newest complete state of this federation, or None where there is none; others are logged and skipped.

        Where all complete states are of other federations it raises: to start anew would overwrite them.
        """
        foreign: ForeignStateError | None = None
        for path in reversed(self._paths()):
            try:
                state = self._load(path)
            except ForeignStateError as error:
                foreign = error
                LOG.warning("%s; skipped", error)
            except StateError as error:
                LOG.warning("%s; skipped", error)
                self._set_aside(path)  # or it would count among the newest
            else:
                self._check_app(state)
                self.entered = state.rounds
                return state
        if foreign is not None:
            raise ValueError(f"{foreign}; give this federation a folder of its own")
        self._set_aside(self._journal.path)
        return None

    def _check_app(self, state: ServerState) -> None:
        """Raise where the folder is another app's; one that has changed since is told."""
        where = repr(str(self.folder.resolve()))
        if state.app.name and self.app.name and state.app.name != self.app.name:
            raise ValueError(
                f"Selecting: folder {where} is of the app {state.app.name}, and this is {self.app.name}; give this "
                "one a folder of its own (a relative one is in the folder that Flower's SuperLink was started in)"
            )
        LOG.info("fedpick: resuming after %d rounds, in %s", state.rounds, where)
        if state.app.digest and self.app.digest and state.app.digest != self.app.digest:
            said = "resumed after the app had changed, in its code or its settings"
            LOG.warning("fedpick: %s", said)
            state.history.pending.append(said)

    def restore_round(self, rounds: int) -> ServerState | None:
        """The state after this many rounds, or None where it is not there."""
        try:
            return self._load(self._path(rounds))
        except StateError:
            return None

    def _load(self, path: Path) -> ServerState:
        state = load_state(path, owner=self.owner, what=WHAT, settings=self.settings)
        try:
            if path != self._path(state.facts["rounds"]):
                raise ValueError(f"it says that it is of {state.facts['rounds']} rounds")
            found = ServerState.from_state(state, self.selector, self._journal.read())
            shapes = {name: array.numpy().shape for name, array in found.arrays.items()}
            if shapes != {name: tuple(array.shape) for name, array in self.model.items()}:
                raise ValueError(f"its model has {shapes}")
            return found
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            what = f"{WHAT} {str(path)!r} has content that this fedpick cannot read"
            raise ForeignStateError(f"{what} ({type(error).__name__}: {error})") from None

    def _set_aside(self, path: Path) -> None:
        if path.exists():
            path.rename(path.with_name(f".broken-{path.name}-{time.time_ns()}"))

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
