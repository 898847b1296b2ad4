"""Run experiments, together where they can share a program; stored runs are skipped, interrupted ones resume."""

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedpick.experiment.ahead import MOST, Ahead
from fedpick.experiment.batches import Batch, Run, plan_batches
from fedpick.experiment.experiment import FORMAT, Experiment, from_plain
from fedpick.experiment.naming import differences
from fedpick.results import Result, concatenate
from fedpick.sim import release_programs
from fedpick.storage import RunStore, StoredRun, write_atomic
from fedpick.text import shown
from fedpick.validation import check_kind, check_path

LOG = logging.getLogger("fedpick")
LONG = 10.0  # seconds of work in a batch that are worth checkpoints
WAIT = 0.5  # seconds, for what others have taken


def run_missing(
    experiments: Iterable[Experiment], store: RunStore, watch: Callable[[Batch, Result], None] | None = None
) -> None:
    """Run those runs of the experiments that are not in the store yet; what was begun earlier goes on.

    KeyboardInterrupt is raised when everything that can be stored is stored.

    Args:
        experiments: The experiments.
        store: Where the runs are stored.
        watch: Called with each batch under way and its result so far.
    """
    _check_store("run_missing", store)
    wanted = _runs(experiments)
    with store.locked():
        absent = {name: run for name, run in wanted.items() if store.load(name) is None}
        for batch, note in _begun(store, set(wanted)):
            begun = {run.identity for run in batch.runs}
            if begun & set(absent):
                LOG.info("going on with %d runs that were begun earlier", len(begun))
                release_programs()
                _complete(store, batch, watch)
            else:  # it was killed with everything kept
                _forget(note)
            absent = {name: run for name, run in absent.items() if name not in begun}
        batches = plan_batches(absent.values())
        for first in range(0, len(batches), MOST):
            release_programs()
            with Ahead(batches[first : first + MOST]) as ahead:
                for batch in batches[first : first + MOST]:
                    ahead.wait(batch)
                    _complete(store, batch, watch, ahead.start)


def run_share(experiments: Iterable[Experiment], store: RunStore, *, workers: int = 1, first: int = 0) -> None:
    """As ``run_missing``, in one of several processes that run the same experiments in the same store, on any machines.

    Each takes pieces of the work that nobody has taken, and returns when all of it is done. Where one of them is
    killed, another goes on from its checkpoint.

    Args:
        experiments: The experiments, the same in every process.
        store: Where the runs are stored.
        workers: The number of processes, which decides how the work is divided.
        first: Which of them this is, from 0: where it begins.
    """
    wanted = _runs(experiments)
    pieces = _pieces(plan_batches(wanted.values()), workers)
    begin = first * len(pieces) // workers
    left = pieces[begin:] + pieces[:begin]
    while left:
        taken = []
        for piece in left:
            names = [run.identity for run in piece.runs]
            if all(name in store for name in names):
                continue
            with store.lease(f"{names[0]}-{len(names)}") as mine:
                if not mine:
                    taken.append(piece)
                    continue
                absent = [run for run in piece.runs if store.load(run.identity) is None]
                for batch in [piece] if len(absent) == len(names) else plan_batches(absent):
                    release_programs()
                    _complete(store, batch, None)
        if len(taken) == len(left):
            time.sleep(WAIT)
        left = taken


def _pieces(batches: list[Batch], workers: int) -> list[Batch]:
    """The batches, divided by their seeds until there are two for each worker; the same in every process."""
    parts, found = -(-2 * workers // max(1, len(batches))), []
    for batch in batches:
        size = -(-len(batch.seeds) // parts)
        for start in range(0, len(batch.seeds), size):
            seeds = batch.seeds[start : start + size]
            found.append(Batch(tuple(dataclasses.replace(point, seeds=seeds) for point in batch.points), seeds))
    return found


def missing(experiments: Iterable[Experiment], store: RunStore | None) -> list[Batch]:
    """What ``run_missing`` would have to run.

    Args:
        experiments: The experiments.
        store: Where to look for their runs; without one all are missing.
    """
    if store is not None:
        _check_store("missing", store)
    wanted = _runs(experiments)
    return plan_batches(run for name, run in wanted.items() if store is None or name not in store)


def load_results(experiment: Experiment, store: RunStore) -> Result:
    """The stored result of an experiment, a row for each seed.

    Args:
        experiment: The experiment.
        store: The store, which must hold a run for each of its seeds.
    """
    _check_store("load_results", store)
    rows = []
    for identity in _runs([experiment]):
        stored = store.load(identity)
        if stored is None:
            what_to_do = "run it (again, where its data or code were edited)"
            raise ValueError(f"store: {store.folder} must hold the run {identity}, and does not; {what_to_do}")
        rows.append(result_of(stored))
    return concatenate(rows)


def run(
    experiments: Experiment | Iterable[Experiment], folder: str | Path, watch: Callable[..., None] | None = None
) -> list[Result]:
    """Run experiments and store them in the folder; one result for each, a row for each of its seeds.

    Args:
        experiments: One or several.
        folder: Where the runs are stored; what is there already is not run again.
        watch: Called with each batch under way and its result so far.
    """
    chosen = [experiments] if isinstance(experiments, Experiment) else experiments
    if not isinstance(chosen, Iterable) or isinstance(chosen, str | Mapping):
        raise ValueError(f"run: experiments must be an Experiment, or several, got {shown(experiments)}")
    chosen = list(chosen)
    for experiment in chosen:
        check_kind("run", "experiments", experiment, Experiment)
    check_path("run", "folder", folder)
    if watch is not None and not callable(watch):
        raise ValueError(f"run: watch must be something to call with a batch and a Result, got {shown(watch)}")
    store = RunStore(folder)
    run_missing(chosen, store, watch)
    found = []
    for experiment, label in zip(chosen, differences([e.to_plain() for e in chosen]), strict=True):
        result = load_results(experiment, store)
        found.append(dataclasses.replace(result, runs=[{**run, **label} for run in result.runs]))
    return found


def _check_store(owner: str, store: RunStore) -> None:
    check_kind(owner, "store", store, RunStore, ", such as fedpick.storage.RunStore('results')")


def _runs(experiments: Iterable[Experiment]) -> dict[str, Run]:
    """The runs of experiments, one for each seed, by their identities."""
    runs = (Run(experiment, seed) for experiment in experiments for seed in experiment.seeds)
    return {run.identity: run for run in runs}


def _begun(store: RunStore, wanted: set[str]) -> Iterator[tuple[Batch, Path]]:
    """Batches that an earlier invocation began and that are wanted now, as it had put them together."""
    for path in sorted((store.folder / "under-way").glob("*.json")):
        try:
            plain = json.loads(path.read_text())
            if plain["format"] != FORMAT:
                raise ValueError(f"its format is {shown(plain['format'])}, and this fedpick reads {FORMAT}")
            points = tuple(from_plain(point)[0] for point in plain["points"])
            batch = Batch(points, tuple(plain["seeds"]))
            if {run.identity for run in batch.runs} <= wanted:
                yield batch, path
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            LOG.warning("store: ignoring %s: not written by fedpick (%r)", path, error)


def _complete(
    store: RunStore,
    batch: Batch,
    watch: Callable[[Batch, Result], None] | None,
    begun: Callable[[], None] = lambda: None,
) -> None:
    """Play a batch and keep its runs; a note of it lies in the store from before the first round to after the last.

    ``begun`` is called when its programs are compiled.
    """
    names = [run.identity for run in batch.runs]
    note = store.folder / "under-way" / f"{names[0]}-{len(names)}.json"
    plain = {"format": FORMAT, "points": [point.to_plain() for point in batch.points], "seeds": list(batch.seeds)}
    write_atomic(note, json.dumps(plain), owner="store")
    checkpoint = note.with_suffix(".npz")
    began = time.monotonic()

    def hear(so_far: Result) -> None:
        begun()
        if watch is not None:
            watch(batch, so_far)

    try:
        result = batch.simulate(checkpoint, hear, after=LONG)
    except ValueError as error:
        if not checkpoint.exists() or "checkpoint" not in str(error):
            raise
        aside = checkpoint.with_suffix(".broken")
        LOG.warning("%s; moved to %s, and the work begins anew", error, aside.name)
        checkpoint.replace(aside)
        result = batch.simulate(checkpoint, hear, after=LONG)
    if not result.finished:
        raise KeyboardInterrupt
    seconds = (time.monotonic() - began) / len(names)
    assert len(result.runs) == len(names), f"{len(result.runs)} rows of {len(names)} runs"
    for row, run in enumerate(batch.runs):
        if names[row] not in store:
            _save(store, run, result, row, seconds)
    _forget(note)


def result_of(stored: StoredRun) -> Result:
    """The result (one row) of a run that was read back."""
    result = Result.from_arrays(int(stored.about["seed"]), int(stored.about["model_bytes"]), stored.arrays)
    known = stored.about.get("clients", ())  # of a federation on Flower; None is one that was expected and never came
    clients = tuple(f"client {k}, never here" if name is None else str(name) for k, name in enumerate(known))
    return dataclasses.replace(result, clients=clients) if len(clients) == result.share.shape[-1] else result


def _save(store: RunStore, run: Run, result: Result, row: int, seconds: float) -> None:
    experiment = run.experiment.for_seed(run.seed)
    about = {
        "seed": run.seed,
        "experiment": experiment.to_plain(),
        "contents": experiment.contents,
        "model_bytes": result.model_bytes,
        "seconds": round(seconds, 3),
    }
    arrays = result.to_arrays(row, clients=experiment.metrics.clients, model=experiment.metrics.model)
    store.save(run.identity, about, arrays, summary_of(result.rows([row]), experiment))


def summary_of(result: Result, experiment: Experiment) -> dict[str, Any]:
    """Where a run ended and what it cost."""
    last = {name: result.metric(name)[0, -1] for name in result.metric_names}
    found: dict[str, Any] = {"rounds": result.rounds, "final": last}
    metrics = experiment.metrics
    if metrics.target is not None and metrics.value is not None:
        reached = result.rounds_to(metrics.target, metrics.value)[0]
        found["target"] = {"metric": metrics.target, "value": metrics.value, "round": reached}
    return {**found, "costs": {name: values[0].sum() for name, values in result.costs.items()}}


def _forget(note: Path) -> None:
    for path in (note, note.with_suffix(".npz")):
        path.unlink(missing_ok=True)
