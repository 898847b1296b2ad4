"""What a server keeps on disk: its state, to resume from, and the history, as a store of simulations has it.

folder/state/round-*.state     the last two states
folder/runs/<identity>/        the history
"""

import hashlib
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedpick.config import unstructure
from fedpick.flower.clients import ClientTable
from fedpick.flower.history import History
from fedpick.flower.options import Options
from fedpick.protocol import Selector
from fedpick.storage import ForeignStateError, RunStore, State, StateError, load_state, save_state

LOG = logging.getLogger("flwr.fedpick")
WHAT, KEPT = "Selecting: state", 2


class ServerState(NamedTuple):
    """All that a server remembers between rounds."""

    rounds: int  # played so far
    arrays: ArrayRecord  # the model
    clients: ClientTable
    history: History
    memory: Any  # the selector's; None before the first round
    wrapped: dict[str, NDArray[Any]]  # the wrapped strategy's memory

    def to_state(self) -> State:
        """As facts and named arrays."""
        groups = {
            "model": {name: array.numpy() for name, array in self.arrays.items()},
            "clients": self.clients.columns(),
            "selector": {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.memory))},
            "strategy": self.wrapped,
        }
        arrays = {f"{group}/{name}": values for group, named in groups.items() for name, values in named.items()}
        facts = {"rounds": self.rounds, "names": list(self.arrays), "identities": self.clients.identities}
        return State({**facts, "history": self.history.to_plain()}, arrays)

    @classmethod
    def from_state(cls, state: State, selector: Selector[Any]) -> "ServerState":
        """What ``to_state`` wrote; the selector gives its memory the structure."""

        def group(name: str) -> dict[str, NDArray[Any]]:
            start = f"{name}/"
            return {key.removeprefix(start): v for key, v in state.arrays.items() if key.startswith(start)}

        facts, model, leaves = state.facts, group("model"), group("selector")
        clients = ClientTable.from_columns(facts["identities"], group("clients"))
        first, structure = jax.tree.flatten(selector.init(len(clients)))
        return cls(
            int(facts["rounds"]),
            ArrayRecord({name: Array(model[name]) for name in facts["names"]}),
            clients,
            History.from_plain(facts["history"]),
            jax.tree.unflatten(structure, [jnp.asarray(leaves[str(i)]) for i in range(len(first))]),
            group("strategy"),
        )


class Checkpointer(NamedTuple):
    """Saves and restores the state of one federation in its folder."""

    folder: Path
    selector: Selector[Any]
    options: Options
    strategies: list[str]  # the classes of the wrapped strategy, the outermost first
    shapes: dict[str, tuple[int, ...]]  # of the model

    @property
    def owner(self) -> str:
        """All that must be the same for a state to be resumed."""
        number = self.options.clients or "any number of"
        text = f"{self.selector!r}, seed {self.options.seed}, {number} clients, {self.strategies}, model {self.shapes}"
        return re.sub(r" at 0x[0-9a-f]+", "", text)

    def save(self, state: ServerState) -> None:
        """Write the state and the history; the last two states are kept."""
        path = self.folder / "state" / f"round-{state.rounds:08d}.state"
        save_state(path, state.to_state(), owner=self.owner, what=WHAT)
        for old in self._paths()[:-KEPT]:
            old.unlink(missing_ok=True)
        size, seed = state.clients.sizes(), self.options.seed
        model_bytes = sum(array.numpy().nbytes for array in state.arrays.values())
        experiment = {
            "name": f"Flower, {' of '.join(self.strategies)}",
            "selector": _describe(self.selector),
            "rounds": state.rounds,
            "seeds": [seed],
        }
        about = {
            "seed": seed,
            "experiment": experiment,
            "clients": state.clients.identities,
            "model_bytes": model_bytes,
            "seconds": round(sum(row.seconds for row in state.history.rows), 3),
        }
        identity = hashlib.sha256(self.owner.encode()).hexdigest()[:16]
        arrays = state.history.to_arrays(size / max(size.sum(), 1e-30))
        RunStore(self.folder).save(identity, about, arrays, state.history.summary(model_bytes))

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

    def _paths(self) -> list[Path]:
        """The states in the folder, the newest last."""
        return sorted((self.folder / "state").glob("round-*.state"))


def _describe(selector: Selector[Any]) -> dict[str, Any]:
    """A selector as experiments describe it; one that is not importable, by its text."""
    try:
        return dict(unstructure(selector, "Selector"))
    except ValueError:
        return {"kind": type(selector).__qualname__, "text": repr(selector)}
