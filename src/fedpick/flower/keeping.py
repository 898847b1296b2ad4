"""What a server keeps on disk after each round, and how one that starts again takes it up."""

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from fedpick.flower import state
from fedpick.flower.inner import Memory, layers
from fedpick.flower.record import Record, described, write
from fedpick.flower.roster import Roster

if TYPE_CHECKING:
    from fedpick.flower.adapter import Adapter

LOG = logging.getLogger("flwr.fedpick")


class Keeping:
    """A folder: state/ has the last two states of the server, runs/ the record as a store of simulations has it."""

    def __init__(self, folder: str | Path, strategy: Strategy) -> None:
        self.folder, self.strategy, self.memory = Path(folder), strategy, Memory(strategy)
        self.owner = ""

    def take_up(self, adapter: "Adapter") -> None:
        """Put the newest state that is whole into the adapter; the rounds that it has played are then skipped."""
        shapes = {name: list(array.shape) for name, array in adapter.arrays.items()}
        kinds = [type(layer).__name__ for layer in layers(self.strategy)]
        of = f"seed {adapter.options.seed}, {adapter.options.clients or 'any number of'} clients"
        text = f"{adapter.selector!r}, {of}, {kinds}, model {shapes}"
        self.owner = re.sub(r" at 0x[0-9a-f]+", "", text)
        found, refused = state.newest(self.folder / "state", self.owner)
        for sentence in refused:
            LOG.warning("%s; it is passed over", sentence)
        if found is None:
            return
        parts: dict[str, dict[str, Any]] = {}
        for path, values in found.arrays.items():
            word, _, rest = path.partition("/")
            parts.setdefault(word, {})[rest] = values
        adapter.rounds = adapter.skip = int(found.facts["rounds"])
        adapter.arrays = ArrayRecord({name: Array(parts["model"][name]) for name in found.facts["names"]})
        adapter.rollcall.roster = Roster.from_plain(found.facts["identities"], parts["roster"])
        adapter.record = Record.from_plain(found.facts["record"])
        like = adapter.selector.init(len(adapter.rollcall.roster))
        leaves = [jax.numpy.asarray(parts["selector"][str(i)]) for i in range(len(jax.tree.leaves(like)))]
        adapter.state = jax.tree.unflatten(jax.tree.structure(like), leaves)
        self.memory.restore(parts.get("strategy", {}))
        LOG.info("fedpick: %d rounds were played before; going on from there", adapter.rounds)

    def keep(self, adapter: "Adapter") -> None:
        """Write the state and the record."""
        identities, columns = adapter.rollcall.roster.to_plain()
        model = {name: array.numpy() for name, array in adapter.arrays.items()}
        arrays = {f"model/{name}": values for name, values in model.items()}
        arrays |= {f"roster/{name}": values for name, values in columns.items()}
        arrays |= {f"selector/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(adapter.state))}
        arrays |= {f"strategy/{name}": values for name, values in self.memory.to_arrays().items()}
        facts = {
            "rounds": adapter.rounds,
            "names": list(model),
            "identities": identities,
            "record": adapter.record.to_plain(),
        }
        state.save(self.folder / "state", self.owner, adapter.rounds, facts, arrays)
        size = adapter.rollcall.roster.sizes()
        experiment = {
            "name": f"Flower, {' of '.join(type(layer).__name__ for layer in layers(self.strategy))}",
            "selector": described(adapter.selector),
            "rounds": adapter.rounds,
            "seeds": [adapter.options.seed],
        }
        share = size / max(size.sum(), 1e-30)
        model_bytes = sum(values.nbytes for values in model.values())
        write(self.folder, adapter.record, self.owner, experiment, identities, share, model_bytes)
