"""The same rounds in plain Python, run by run and seat by seat, so that an error can say where it happened."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Selection
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.models import Model
from fedpick.sim.round import Progress, Record, Setup, Varied, World, begin, evaluate, first_model, one_round


class EagerRuns:
    """All runs of this host, as ``Bundles`` plays them, without compiling."""

    def __init__(self, model: Model, world: World, varied: Varied, seed: Any) -> None:
        self.seeds = [int(number) for number in seed]
        self.setups = [Setup.of(model, world, _row(varied, run)) for run in range(len(self.seeds))]
        self.now: list[Progress] = []

    def begin(self) -> Evaluation:
        """Start every run; how good the first models are."""
        with jax.disable_jit():
            self.now = [
                begin(setup, first_model(setup.model, seed))
                for setup, seed in zip(self.setups, self.seeds, strict=True)
            ]
            found: Evaluation = _numbers([evaluate(s, now) for s, now in zip(self.setups, self.now, strict=True)])
        return found

    def play(
        self, first: int, stop: int | None, every: int, blocks: int, tick: Callable[[float], None]
    ) -> tuple[Record, Evaluation]:
        """A chunk of rounds of every run."""
        played = []
        for run, (setup, seed) in enumerate(zip(self.setups, self.seeds, strict=True)):
            with jax.disable_jit():
                played.append(_one_run(setup, seed, self.now[run], first, stop, every, blocks))
            tick((run + 1) / len(self.seeds))
        self.now = [now for now, _ in played]
        new: tuple[Record, Evaluation] = _numbers([new for _, new in played])
        return new

    @property
    def state(self) -> Progress:
        """Where every run stands."""
        now: Progress = _numbers(self.now)
        return now

    @state.setter
    def state(self, now: Progress) -> None:
        self.now = [jax.tree.map(jnp.asarray, _row(now, run)) for run in range(len(self.seeds))]


def _one_run(
    setup: Setup, seed: int, now: Progress, start: int, stop: int | None, every: int, blocks: int
) -> tuple[Progress, tuple[Record, Evaluation]]:
    records, evaluations = [], []
    for t in range(start, start + every * blocks):
        now = now if (t - start) % every else now.evaluated()
        if stop is None or t < stop:
            try:
                now, record = one_round(setup, seed, now, t, _Inspector(t))
            except Exception as error:
                error.add_note(f"in round {t} of the run with seed {seed}")
                raise
        records.append(record)
        if (t + 1 - start) % every == 0:
            if stop is None or t + 1 - every < stop:
                found = evaluate(setup, now)
            evaluations.append(found)
    shaped = jax.tree.map(lambda leaf: leaf.reshape(blocks, every, *leaf.shape[1:]), _stack(records))
    return now, (shaped, _stack(evaluations))


class _Inspector:
    """Trains the seats one by one, and complains of the first whose model is not finite."""

    def __init__(self, t: int) -> None:
        self.t = t

    def __call__(self, one_seat: Any, selection: Selection) -> Any:
        trained = []
        for seat, client in enumerate(np.asarray(selection.clients)):
            try:
                params, loss = one_seat(jnp.int32(seat), jnp.maximum(jnp.int32(client), 0))
            except Exception as error:
                error.add_note(f"while client {client} trained in seat {seat}")
                raise
            if client >= 0 and not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params)):
                where = f"round {self.t}, client {client} (seat {seat})"
                raise FloatingPointError(f"simulate: {where}: the local model must be finite, its loss is {loss}")
            trained.append((params, loss))
        return _stack(trained)


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _row(tree: Any, run: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[run] if jnp.ndim(leaf) else leaf, tree)


def _numbers(trees: list[Any]) -> Any:
    return jax.tree.map(np.asarray, _stack(trees))
