"""The same rounds without compilation, run by run and seat by seat, so that an error names its round and client."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Selection
from fedpick.sim._engine.runner import Cadence, Chunk, Runs, Tree
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.round import RunState, Setup, begin, first_model, one_round
from fedpick.sim.stacking import sizes_of_test_sets, trim_test_set


class EagerRuns:
    """The eager ``Runner``: the runs of this host one after the other, without compiling."""

    def __init__(self, runs: Runs) -> None:
        self.seeds = [int(seed) for seed in runs.seeds]
        self.setups = [runs.setup.rows(run) for run in range(len(self.seeds))]
        self.progress: list[RunState] = []
        sizes = sizes_of_test_sets(runs.setup.federation) if runs.setup.metrics else None
        for run, size in enumerate(() if sizes is None else sizes.tolist()):
            setup = self.setups[run]
            self.setups[run] = dataclasses.replace(setup, federation=trim_test_set(setup.federation, size))

    def begin(self, cadence: Cadence) -> Evaluation:
        pairs = list(zip(self.setups, self.seeds, strict=True))
        with jax.disable_jit():
            self.progress = [begin(setup, first_model(setup.model, seed)) for setup, seed in pairs]
            return _numbers([first.evaluate(setup) for setup, first in zip(self.setups, self.progress, strict=True)])

    def play(self, first: int, cadence: Cadence, tick: Callable[[float], None]) -> Chunk:
        played = []
        for run, setup in enumerate(self.setups):
            with jax.disable_jit():
                played.append(_play(setup, self.seeds[run], self.progress[run], first, cadence))
            tick((run + 1) / len(self.seeds))
        self.progress = [progress for progress, _ in played]
        return _numbers([chunk for _, chunk in played])

    @property
    def state(self) -> RunState:
        return _numbers(self.progress)

    @state.setter
    def state(self, progress: RunState) -> None:
        leaves, tree = jax.tree.flatten(progress)
        self.progress = [jax.tree.unflatten(tree, map(jnp.asarray, own)) for own in zip(*leaves, strict=True)]


def _play(setup: Setup, seed: int, progress: RunState, first: int, cadence: Cadence) -> tuple[RunState, Chunk]:
    """A chunk of one run; rows beyond the last round repeat the last."""
    records, evaluations = [], []
    for start in range(first, first + cadence.every * cadence.blocks, cadence.every):
        progress = progress.reset_chosen()
        for t in range(start, start + cadence.every):
            if t < cadence.rounds:
                try:
                    progress, record = one_round(setup, seed, progress, t, _Inspector(t))
                except Exception as error:
                    error.add_note(f"in round {t} of the run with seed {seed}")
                    raise
            records.append(record)
        if start < cadence.rounds:
            found = progress.evaluate(setup)
        evaluations.append(found)
    shape = (cadence.blocks, cadence.every)
    shaped = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), _stack(records))
    return progress, (shaped, _stack(evaluations))


class _Inspector:
    """Trains the seats one by one, and raises at the first whose model is not finite."""

    def __init__(self, t: int) -> None:
        self.t = t

    def __call__(self, one_seat: Any, keys: Any, selection: Selection) -> Any:
        trained = []
        for seat, client in enumerate(np.asarray(selection.clients)):
            try:
                found = one_seat(keys[seat], jnp.maximum(jnp.int32(client), 0))
            except Exception as error:
                error.add_note(f"while client {client} trained in seat {seat}")
                raise
            if client >= 0 and not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found.params)):
                where = f"round {self.t}, client {client} (seat {seat})"
                raise FloatingPointError(f"simulate: {where}: the local model must be finite, its loss is {found.loss}")
            trained.append(found)
        return _stack(trained)


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _numbers(trees: list[Tree]) -> Tree:
    numbers: Tree = jax.tree.map(np.asarray, _stack(trees))
    return numbers
