"""The map: what strategies gain over rand on a thousand federations, played cell by cell, and kept as one table."""

import csv
import io
import json
import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick import sim
from fedpick.arena.design import DRAWS, VERSION, Cell
from fedpick.arena.features import Features, gini, is_convex, label_distance
from fedpick.arena.scores import log_final, log_speed_ups
from fedpick.arena.slopes import slopes
from fedpick.experiment import end_with_parent
from fedpick.metrics import Numbers
from fedpick.selectors import Auto, PowerOfChoice, Rand
from fedpick.storage import device, versions, write_atomic
from fedpick.validation import natural

GAINS = ("pow-d, d = 2m", "pow-d, d = 5m", "auto")  # what is compared with rand
SEEDS = 3
EVERY = 2  # rounds between evaluations
KNOWN = ("K", "m", "tau", "b", "rounds", "step", "labels", "gradients", "gini", "convex")


class Map(NamedTuple):
    """Federations and what strategies gain on them, as logarithms; above 0 is better than rand.

    ``about`` says where they come from, ``families`` names the source of each [n], ``features`` describes each, and
    ``speed`` and ``final`` [n, strategies] compare rounds and last losses with rand's, in the order of ``strategies``.
    """

    about: dict[str, Any]
    families: Numbers
    features: tuple[Features, ...]
    speed: Numbers
    final: Numbers
    strategies: tuple[str, ...] = GAINS


def play_cell(cell: Cell, draws: int = DRAWS, seeds: int = SEEDS) -> dict[str, Any]:
    """The federations of a cell, each with its features and what every strategy gains on it, as plain data.

    Args:
        cell: The cell.
        draws: The number of data sets.
        seeds: The number of runs on each.
    """
    data = cell.federations(draws)
    singles = [data.rows(i) for i in range(draws)]
    at_start = [slopes(one, cell.source.model) for one in singles]
    eta = cell.step * 2 / float(np.median([curvature for curvature, _ in at_start]))
    at, losses = _losses(cell, data.rows(np.repeat(np.arange(draws), seeds)), float(f"{eta:.4g}"))
    rows = []
    for i, (one, (curvature, gradients)) in enumerate(zip(singles, at_start, strict=True)):
        own = {name: values[i * seeds : (i + 1) * seeds] for name, values in losses.items()}
        speed, final = log_speed_ups(own, dict.fromkeys(own, np.tile(at, (seeds, 1)))), log_final(own)
        features = Features(
            K=cell.K,
            m=cell.m,
            tau=cell.tau,
            rounds=cell.rounds,
            step=eta * curvature / 2,
            labels=label_distance(one.summary().labels, np.asarray(one.share)),
            gradients=gradients,
            gini=gini(np.asarray(one.size)),
            convex=is_convex(cell.source.model),
        )
        gains = None
        if speed is not None:
            gains = {
                "speed": [float(speed[name].mean()) for name in GAINS],
                "final": [float(final[name].mean()) for name in GAINS],
                "spread": [float(speed[name].std()) for name in GAINS],
            }
        rows.append({**features.plain(), "b": cell.b, "gains": gains})
    made = {"versions": versions("fedpick", "jax", "numpy"), "device": device()}
    return {"family": cell.source.name, "seeds": seeds, **made, "rows": rows}


def _losses(cell: Cell, data: sim.Federation, eta: float) -> tuple[Numbers, dict[str, Numbers]]:
    """The rounds of the evaluations, and the training losses of rand and of every strategy, [runs, E]."""
    m, runs = cell.m, data.num_runs or 1
    d = [min(2 * m, cell.K), min(5 * m, cell.K)]
    selectors: tuple[Any, ...] = (Rand(m), PowerOfChoice(m, np.array(d)), Auto(m))  # type: ignore[arg-type]
    losses: list[Numbers] = []
    options: Any = {"rounds": cell.rounds, "every": EVERY, "progress": False}
    local = sim.Local(cell.tau, cell.b, eta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of clients that hold less than a mini-batch
        for selector in selectors:
            result = sim.simulate(data, cell.source.model, selector, local, seeds=range(runs), **options)
            losses += list(result.metric("loss").reshape(-1, runs, len(result.evaluated)))
    return np.asarray(result.evaluated, float), dict(zip(("rand", *GAINS), losses, strict=True))


def play_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    workers: int = 1,
    watch: Callable[[str, int], None] = lambda name, done: None,
) -> list[str]:
    """Play the cells that are not in the folder yet; what was left out, because its data are not there, and why.

    Args:
        cells: The cells.
        folder: Where each cell is stored, in a file of its own.
        workers: Processes that share the work, each with a core of the CPU.
        watch: Called with the name of each cell when it is done, and how many are.
    """
    natural("map", "workers", workers)
    left = [cell for cell in cells if not _path(folder, cell).exists()]
    reasons: dict[str, None] = {}
    number = [len(cells) - len(left)]

    def done(cell: Cell, problem: str | None) -> None:
        if problem is not None:
            reasons[f"{cell.source.name}: {problem}"] = None
        number[0] += 1
        watch(cell.name, number[0])

    if workers == 1:
        for cell in left:
            done(cell, _store(cell, folder))
        return list(reasons)
    # The longest first; a process for each core, which does not start threads for all of them.
    left.sort(key=lambda cell: -cell.rounds * (cell.m * cell.tau * cell.b + 50 * cell.K))
    context = multiprocessing.get_context("spawn")
    with _environment(NPROC="1", JAX_PLATFORMS="cpu"):
        places = context.SimpleQueue()
        for place in range(workers):
            places.put(place)
        with ProcessPoolExecutor(workers, context, _stay, (places,)) as pool:
            futures = {pool.submit(_store_named, cell.source.name, cell.number, folder): cell for cell in left}
            try:
                for future in as_completed(futures):
                    done(futures[future], future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return list(reasons)


def _path(folder: str | Path, cell: Cell) -> Path:
    return Path(folder) / "cells" / f"{VERSION}-{cell.name.replace(', ', '-').replace(' ', '-').lower()}.json"


def _store(cell: Cell, folder: str | Path) -> str | None:
    """Play a cell and store it; why not, where its data are of a package that is not installed."""
    try:
        found = play_cell(cell)
    except ModuleNotFoundError as error:
        return str(error)
    write_atomic(_path(folder, cell), json.dumps(found), owner="map")
    return None


def _store_named(source: str, number: int, folder: str | Path) -> str | None:
    """As ``_store``, of a cell that another process names."""
    from fedpick.arena.design import SOURCES, make_cells

    return _store(make_cells([SOURCES[source]])[number], folder)


def _stay(places: Any) -> None:
    """Keep this process on one core, where the system can, and end it with the one that has started it."""
    end_with_parent()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[places.get() % len(cores)]})


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables of the environment for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def gather(cells: Sequence[Cell], folder: str | Path) -> str:
    """The cells of a folder as one table: a line about it, and CSV, with three digits.

    Args:
        cells: The cells.
        folder: Where they are stored.
    """
    stored = [json.loads(path.read_text()) for path in (_path(folder, cell) for cell in cells) if path.exists()]
    rows = [(one["family"], row) for one in stored for row in one["rows"]]
    learnt = [(family, row, row["gains"]) for family, row in rows if row["gains"] is not None]
    if not learnt:
        raise ValueError(f"map: {str(folder)!r} must hold cells on which rand learns, got {len(stored)} cells")
    spread = np.sqrt(np.mean([np.square(gains["spread"]) for _, _, gains in learnt], axis=0))
    about = {
        **{"version": VERSION, "cells": len(stored), "federations": len(rows), "learnt": len(learnt)},
        **{"seeds": stored[0]["seeds"], "spread": [float(_short(x)) for x in spread]},  # between seeds
        "played": [f"{number} cells with {how}" for how, number in Counter(map(_how, stored)).most_common()],
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["family", *KNOWN, *(f"{what} {name}" for what in ("speed", "final") for name in GAINS)])
    for family, row, gains in learnt:
        known = (_short(round(float(row[name]), 4)) for name in KNOWN)
        writer.writerow([family, *known, *(round(gain, 3) for gain in (*gains["speed"], *gains["final"]))])
    return f"# {json.dumps(about)}\n{text.getvalue()}"


def _how(cell: Mapping[str, Any]) -> str:
    software = ", ".join(f"{name} {version}" for name, version in cell["versions"].items())
    return f"{software} on {cell['device']}"


def _short(value: float) -> str:
    return f"{float(value):.3g}"


def read_map(path: str | Path | None = None) -> Map:
    """The map of a table; that of the package unless there is a path.

    Args:
        path: A file that ``fedpick map`` has written.
    """
    file: Any = resources.files("fedpick.arena").joinpath("map.csv") if path is None else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"map: {str(file)!r} must be a table that fedpick map has written, got no file")
    try:
        first, _, table = file.read_text().partition("\n")
        rows: list[Mapping[str, str]] = list(csv.DictReader(io.StringIO(table)))
        speed, final = (
            np.array([[float(row[f"{what} {name}"]) for name in GAINS] for row in rows]) for what in ("speed", "final")
        )
        features = tuple(_features(row) for row in rows)
        about = json.loads(first.removeprefix("# "))
        return Map(about, np.array([row["family"] for row in rows]), features, speed, final)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"map: {str(file)!r} must be a table that fedpick map has written") from None


def _features(row: Mapping[str, str]) -> Features:
    whole = {name: int(float(row[name])) for name in ("K", "m", "tau", "rounds")}
    parts = {name: float(row[name]) for name in ("step", "labels", "gini")}
    gradients, convex = max(1.0, float(row["gradients"])), row["convex"] == "1"
    return Features(**whole, **parts, gradients=gradients, convex=convex)  # type: ignore[arg-type]
