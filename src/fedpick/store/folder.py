"""A folder of runs: one folder for each, written whole or not at all, and read with NumPy alone.

runs/<identity>/experiment.json   what was run, with which versions, on which device
runs/<identity>/result.npz        arrays by round and by evaluation
runs/<identity>/summary.json      where it ended, what it cost
findings/<name>-<identity>.json   other results that were worth keeping
under-way/                        what an interrupted invocation goes on with
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import jax
import numpy as np

from fedpick.experiment import Experiment, Run, to_dict
from fedpick.measures import METRICS
from fedpick.sim import Result

FILES = ("experiment.json", "result.npz", "summary.json")


class Stored(NamedTuple):
    """A run that was read back: its result (one row), where it ended, and what it was made with."""

    result: Result
    summary: dict[str, Any]
    about: dict[str, Any]


class Made(NamedTuple):
    """So many runs, made there with these."""

    device: str
    versions: str
    runs: int


class Store:
    """A folder of runs.

    >>> import tempfile
    >>> len(list(Store(tempfile.mkdtemp()).identities()))
    0
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        for name in ("runs", "findings", "under-way"):
            try:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(
                    f"store: folder {str(folder)!r} must be one that can be written to ({error})"
                ) from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one who writes here; another invocation waits, and says so."""
        lock = filelock.FileLock(self.folder / "lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            say(f"another fedpick is at work in {self.folder}; waiting until it ends")
            lock.acquire()
        try:
            for left in (self.folder / "runs").glob(".part-*"):  # by an invocation that was killed
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            lock.release()

    def identities(self) -> Iterator[str]:
        """Of all runs that are here."""
        for path in sorted((self.folder / "runs").iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield path.name

    def load(self, identity: str) -> Stored | None:
        """A run, or None where there is none. What is broken is named, moved aside, and counts as none."""
        folder = self.folder / "runs" / identity
        if not folder.exists():
            return None
        try:
            about, summary = (json.loads((folder / name).read_text()) for name in ("experiment.json", "summary.json"))
            with (folder / "result.npz").open("rb") as content, np.load(content, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            if about["identity"] != identity:
                raise ValueError(f"it is of the run {about['identity']}")
            return Stored(_result(about, arrays), summary, about)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            aside = folder.with_name(f".broken-{identity}-{time.time_ns()}")
            folder.rename(aside)
            what = f"{type(error).__name__}: {error}"
            say(f"store: {folder} must be a whole run of fedpick's, got {what}; it is now {aside.name}, and run again")
            return None

    def save(self, run: Run, result: Result, seconds: float) -> None:
        """Keep a run (a result of one row)."""
        identity = run.identity
        about = {
            "identity": identity,
            "seed": run.seed,
            "experiment": to_dict(run.experiment.drawn(run.seed)),
            "model_bytes": result.model_bytes,
            "versions": versions(),
            "device": device(),
            "seconds": round(seconds, 3),
        }
        arrays = _arrays(result, run.experiment)
        target = self.folder / "runs" / identity
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        try:
            write(part / "experiment.json", about)
            write(part / "summary.json", summary_of(result, run.experiment))
            with (part / "result.npz").open("wb") as file:
                np.savez_compressed(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.chmod(0o755)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def finding(self, name: str, settings: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives (plain data), computed once for these settings; and with it versions and device."""
        text = json.dumps([name, settings], sort_keys=True)
        path = self.folder / "findings" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if path.exists():
            try:
                return json.loads(path.read_text())["found"]
            except (ValueError, KeyError, TypeError) as error:
                say(f"store: {path} must be a finding of fedpick's, got {error!r}; it is made again")
        found = compute()
        kept = {"name": name, "settings": settings, "found": found, "versions": versions(), "device": device()}
        write(path, kept)
        return json.loads(json.dumps(found))

    def made(self, identities: Iterable[str]) -> tuple[Made, ...]:
        """On which devices and with which versions these runs were made."""
        kinds: Counter[tuple[str, str]] = Counter()
        for identity in identities:
            about = json.loads((self.folder / "runs" / identity / "experiment.json").read_text())
            kinds[about["device"], ", ".join(f"{name} {version}" for name, version in about["versions"].items())] += 1
        return tuple(Made(device, versions, number) for (device, versions), number in sorted(kinds.items()))

    def strangers(self, expected: Iterable[str] = ()) -> list[Path]:
        """Files here that are neither the store's nor expected."""
        known = {"runs", "findings", "under-way", "lock", *expected}
        found = [path for path in self.folder.iterdir() if path.name not in known and path.name[0] != "."]
        for path in (self.folder / "runs").iterdir():
            found += [path] if path.is_file() else [inner for inner in path.iterdir() if inner.name not in FILES]
        return sorted(found)


def joined(rows: list[Result]) -> Result:
    """Results of the same kind as one, row below row; where data were drawn anew, ``share`` is the first one's."""
    first = rows[0]
    if any(row.rounds != first.rounds or not np.array_equal(row.evaluated, first.evaluated) for row in rows):
        raise ValueError("store: results that are joined must have the same rounds and evaluations, got different ones")

    def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return Result(
        [entry for row in rows for entry in row.runs],
        first.share,
        first.model_bytes,
        first.evaluated,
        together([row.metrics for row in rows]),
        together([row.records for row in rows]),
        None,
        all(row.finished for row in rows),
    )


def summary_of(result: Result, experiment: Experiment) -> dict[str, Any]:
    """Where a run ended and what it cost, as plain numbers; None where a number is not finite."""
    last = {name: _plain(result.metric(name)[0, -1]) for name in METRICS}
    found: dict[str, Any] = {"rounds": result.rounds, "final": last}
    metrics = experiment.metrics
    if metrics.target is not None and metrics.value is not None:
        reached = _plain(result.rounds_to(metrics.target, metrics.value)[0])
        found["target"] = {"metric": metrics.target, "value": metrics.value, "round": reached}
    found["costs"] = {name: _plain(values[0].sum()) for name, values in result.costs.items()}
    return found


def versions() -> dict[str, str]:
    """Of everything that a result may depend on."""
    packages = ("fedpick", "jax", "jaxlib", "numpy", "optax")
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def device() -> str:
    """What computes here, in words."""
    first = jax.local_devices()[0]
    if first.platform != "cpu":
        return f"{len(jax.local_devices())} x {first.device_kind}"
    return f"CPU, {os.cpu_count()} cores ({platform.machine()})"


def say(sentence: str) -> None:
    """Tell the user, whatever the output is used for."""
    print(sentence, file=sys.stderr, flush=True)


def write(path: Path, plain: Any) -> None:
    """Plain data as JSON, on disk when this returns; the file is there whole or not at all."""
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    with part.open("w") as file:
        json.dump(plain, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _arrays(result: Result, experiment: Experiment) -> dict[str, Any]:
    """The row of a result as flat named arrays: metrics/..., records/..., and model/... where the model is kept."""
    arrays: dict[str, Any] = {"share": result.share, "evaluated": result.evaluated}
    arrays |= {f"metrics/{name}": result.metric(name)[0] for name in METRICS}
    if experiment.metrics.clients:
        arrays |= {f"metrics/{name}": result.metrics[name][0] for name in ("client_loss", "client_accuracy")}
    arrays |= {f"records/{name}": values[0] for name, values in result.records.items()}
    if experiment.metrics.model:
        for path, leaf in jax.tree_util.tree_leaves_with_path(result.params):
            arrays["model/" + jax.tree_util.keystr(path, simple=True, separator="/")] = leaf[0]
    return arrays


def _result(about: dict[str, Any], arrays: dict[str, Any]) -> Result:
    def group(word: str) -> dict[str, Any]:
        return {name.removeprefix(word): values[None] for name, values in arrays.items() if name.startswith(word)}

    seed, size = {"seed": int(about["seed"])}, int(about["model_bytes"])
    return Result([seed], arrays["share"], size, arrays["evaluated"], group("metrics/"), group("records/"))


def _plain(number: Any) -> float | int | None:
    value = number.item() if hasattr(number, "item") else number
    return value if np.isfinite(value) else None
