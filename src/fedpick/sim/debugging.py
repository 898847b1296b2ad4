"""The same rounds in plain Python, run by run and seat by seat, so that an error can say where it happened."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Selection
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.loop import Progress, Record, Setup, Varied, World, evaluate, one_round
from fedpick.sim.models import Model


def play_plainly(
    model: Model,
    world: World,
    varied: Varied,
    seed: Any,
    stop: int,
    now: Progress,
    start: int,
    *,
    every: int,
    blocks: int,
) -> tuple[Progress, tuple[Record, Evaluation]]:
    """A chunk of rounds of every run, as the compiled one gives it, without compiling."""
    played = []
    with jax.disable_jit():
        for run in range(seed.shape[0]):
            own = jax.tree.map(lambda leaf, run=run: leaf[run], varied)
            setup = Setup.of(model, world, own)
            here = jax.tree.map(lambda leaf, run=run: leaf[run], now)
            played.append(_one_run(setup, int(seed[run]), here, start, stop, every, blocks))
    stacked: tuple[Progress, tuple[Record, Evaluation]] = _stack(played)
    return stacked


def _one_run(
    setup: Setup, seed: int, now: Progress, start: int, stop: int, every: int, blocks: int
) -> tuple[Progress, tuple[Record, Evaluation]]:
    records, evaluations = [], []
    for t in range(start, start + every * blocks):
        if t < stop:
            try:
                now, record = one_round(setup, seed, now, t, _Inspector(t))
            except Exception as error:
                error.add_note(f"in round {t} of the run with seed {seed}")
                raise
        records.append(record)
        if (t + 1 - start) % every == 0:
            if t + 1 - every < stop:
                now, found = evaluate(setup, now)
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
