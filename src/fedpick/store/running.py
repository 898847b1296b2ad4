"""Have experiments run: what is in the store already is not run again, and what was interrupted goes on."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedpick.experiment import Batch, Experiment, Run, batches, differences, from_dict, play, to_dict
from fedpick.sim import Result
from fedpick.sim.programs import forget_many
from fedpick.store.folder import Store, joined, say, write

LONG = 10.0  # seconds of work in a batch, about, that are worth checkpoints


def fulfil(
    experiments: Iterable[Experiment],
    store: Store,
    watch: Callable[[Batch, Result], None] | None = None,
) -> None:
    """Have every run of the experiments in the store: those that are missing are run, and what was begun goes on.

    ``watch`` hears of each batch under way and of its result so far. KeyboardInterrupt comes through when everything
    that can be kept is kept.
    """
    wanted = {run.identity: run for experiment in experiments for run in runs_of(experiment)}
    with store.alone():
        absent = {name: run for name, run in wanted.items() if store.load(name) is None}
        for batch, note in _begun(store, set(wanted)):
            begun = {run.identity for run in batch.runs}
            if begun & set(absent):
                say(f"going on with {len(begun)} runs that were begun earlier")
                _complete(store, batch, watch)
            else:  # it was killed with everything kept
                _forget(note)
            absent = {name: run for name, run in absent.items() if name not in begun}
        for batch in batches(absent.values()):
            _complete(store, batch, watch)


def missing(experiments: Iterable[Experiment], store: Store | None) -> list[Batch]:
    """What ``fulfil`` would have to run."""
    wanted = {run.identity: run for experiment in experiments for run in runs_of(experiment)}
    return batches(run for name, run in wanted.items() if store is None or not (store.folder / "runs" / name).is_dir())


def results(experiment: Experiment, store: Store) -> Result:
    """The result of an experiment that is in the store, a row for each seed."""
    rows = []
    for run in runs_of(experiment):
        stored = store.load(run.identity)
        if stored is None:
            raise ValueError(f"store: {store.folder} must hold the run {run.identity}, and does not; run it first")
        rows.append(stored.result)
    return joined(rows)


def run(
    experiments: Experiment | Iterable[Experiment], folder: str | Path, watch: Callable[..., None] | None = None
) -> list[Result]:
    """Run experiments and keep them in the folder; one result for each, a row for each of its seeds."""
    chosen = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    store = Store(folder)
    fulfil(chosen, store, watch)
    found = []
    for experiment, label in zip(chosen, differences(chosen), strict=True):
        result = results(experiment, store)
        found.append(replace(result, runs=[{**run, **label} for run in result.runs]))
    return found


def runs_of(experiment: Experiment) -> list[Run]:
    """One for each seed."""
    return [Run(experiment, seed) for seed in experiment.seeds]


def _begun(store: Store, wanted: set[str]) -> Iterator[tuple[Batch, Path]]:
    """Batches that an earlier invocation began and that are wanted now, as it had put them together."""
    for path in sorted((store.folder / "under-way").glob("*.json")):
        try:
            plain = json.loads(path.read_text())
            points = tuple(from_dict(point)[0] for point in plain["points"])
            batch = Batch(points, tuple(plain["seeds"]))
            if {run.identity for run in batch.runs} <= wanted:
                yield batch, path
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            say(f"store: {path} must be work of fedpick's under way, got {error!r}; it is left alone")


def _complete(store: Store, batch: Batch, watch: Callable[[Batch, Result], None] | None) -> None:
    """Play a batch and keep its runs; a note of it lies in the store from before the first round to after the last."""
    names = [run.identity for run in batch.runs]
    note = store.folder / "under-way" / f"{names[0]}-{len(names)}.json"
    write(note, {"points": [to_dict(point) for point in batch.points], "seeds": list(batch.seeds)})
    checkpoint = note.with_suffix(".npz") if batch.seconds > LONG else None
    forget_many()
    began = time.monotonic()
    hear = None if watch is None else lambda so_far: watch(batch, so_far)
    try:
        result = play(batch, checkpoint, hear)
    except ValueError as error:
        if checkpoint is None or not checkpoint.exists() or "checkpoint" not in str(error):
            raise
        aside = checkpoint.with_suffix(".broken")
        say(f"{error}; it is now {aside.name}, and the work begins anew")
        checkpoint.replace(aside)
        result = play(batch, checkpoint, hear)
    if not result.finished:
        raise KeyboardInterrupt
    seconds = (time.monotonic() - began) / len(names)
    for row, run in enumerate(batch.runs):
        if not (store.folder / "runs" / names[row]).is_dir():
            store.save(run, result.rows([row]), seconds)
    _forget(note)


def _forget(note: Path) -> None:
    for path in (note, note.with_suffix(".npz")):
        path.unlink(missing_ok=True)
