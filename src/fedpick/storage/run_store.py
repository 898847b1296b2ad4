"""A folder of runs, of simulations and of real federations alike; each run is read with NumPy and JSON alone.

runs/<identity>/experiment.json   what was run, with which versions, on which device; checksums of the other two
runs/<identity>/result.npz        arrays by round and by evaluation
runs/<identity>/summary.json      where it ended, what it cost
findings/<name>-<identity>.json   other results that were worth keeping
under-way/                        what an interrupted invocation goes on with
leases/                           who is at work on what, where several processes are
"""

import contextlib
import errno
import hashlib
import io
import json
import logging
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np

from fedpick.metrics import Numbers
from fedpick.storage.atomic import PART, write_atomic
from fedpick.storage.locks import acquired, held, lock_is_ours, lockable, occupied
from fedpick.storage.ownership import is_drawing, is_table_of_runs
from fedpick.storage.provenance import Provenance, device, plain_numbers, versions
from fedpick.text import shown
from fedpick.validation import check_path

LOG = logging.getLogger("fedpick")
FORMAT = 2  # of experiment.json and of findings
LEASES = "leases"
IDENTITY = re.compile("[0-9a-f]{16}")  # of experiments, of federations and of apps alike
FILES = ("experiment.json", "result.npz", "summary.json")
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO)  # says nothing of the file
PACKAGES = ("fedpick", "jax", "jaxlib", "numpy", "optax", "flwr")


class StoredRun(NamedTuple):
    """A run as it is stored: what it was, its arrays by name, and where it ended."""

    about: dict[str, Any]
    arrays: dict[str, Numbers]
    summary: dict[str, Any]


class FormatError(ValueError):
    """A file of fedpick in another format than this version reads."""


class RunStore:
    """A folder of runs.

    Args:
        folder: Where the runs are; made where it does not exist.

    >>> import tempfile
    >>> len(list(RunStore(tempfile.mkdtemp()).identities()))
    0
    """

    def __init__(self, folder: str | Path) -> None:
        check_path("store", "folder", folder)
        self.folder = Path(folder)
        try:
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"store: folder {str(folder)!r} cannot be written to ({error})") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that writes here; where others are at work, wait until they end, and say so."""
        with acquired(self.folder / "lock", self.folder), held(self.folder):
            for path in sorted((self.folder / LEASES).glob("*.lock")):  # no new ones while we have the mutex
                with acquired(path, self.folder), contextlib.suppress(OSError):
                    path.unlink()
            self._sweep()
            yield

    def occupy(self, *, owner: str, wait: float = 10.0) -> contextlib.ExitStack:
        """Be the only process that writes here until what this returns is closed, or the process ends.

        Args:
            owner: Who writes, for the error message.
            wait: Seconds to wait for another process.
        """
        stack = occupied(self.folder, owner=owner, wait=wait)
        self._sweep()
        return stack

    def _sweep(self) -> None:
        """Remove what invocations that were killed have left."""
        for left in (self.folder / "runs").glob(f"{PART}*"):
            shutil.rmtree(left, ignore_errors=True)
        for folder in ("state", "under-way"):
            for left in (self.folder / folder).glob(f"{PART}*"):
                left.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lease(self, name: str) -> Iterator[bool]:
        """Be the only process at work on what has this name, beside others on other things: whether that was possible.

        The lock is the operating system's, which frees it when the process ends, however it ends.

        Args:
            name: What is worked on.
        """
        lock = filelock.FileLock(self.folder / LEASES / f"{name}.lock")
        with lockable(self.folder / LEASES):
            (self.folder / LEASES).mkdir(exist_ok=True)
        with filelock.FileLock(self.folder / "lock"), contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def identities(self) -> Iterator[str]:
        """The identities of all stored runs; a folder of another name, or without a file of a run, is none."""
        for path in sorted((self.folder / "runs").iterdir()):
            with contextlib.suppress(FileNotFoundError):  # a run that is just being replaced
                if any(inner.name in FILES for inner in _inside(path)):
                    yield path.name

    def runs(self) -> Iterator[tuple[str, StoredRun]]:
        """All runs with their identities; one of another format is named and left out, as a corrupted one is."""
        for identity in self.identities():
            try:
                run = self.load(identity)
            except FormatError as error:
                LOG.warning("%s", error)
                continue
            if run is not None:
                yield identity, run

    def __contains__(self, identity: str) -> bool:
        return (self.folder / "runs" / identity).is_dir()

    def load(self, identity: str) -> StoredRun | None:
        """A run, or None where there is none. A corrupted run is named, moved aside, and counts as none.

        Where another process is at work here, it is left where it is. One of another format is left alone, and raises a
        ValueError.
        """
        folder = self.folder / "runs" / identity
        for again in (True, True, False):
            if not folder.exists():
                return None
            try:
                return _read(folder)
            except FormatError as error:
                what_to_do = "it is left alone: choose another folder, or the fedpick that wrote it"
                raise FormatError(f"store: {folder} cannot be read ({error}); {what_to_do}") from None
            except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, zipfile.BadZipFile) as error:
                if isinstance(error, OSError) and error.errno in UNREADABLE:
                    raise OSError(f"store: {str(folder)!r} cannot be read ({error.strerror})") from None
                if again:  # a federation under way may just have replaced it
                    continue
                what = f"{type(error).__name__}: {error}"
        with lock_is_ours(self.folder) as mine:
            if not mine:
                LOG.warning("store: %s cannot be read (%s) while another fedpick is at work; left out", folder, what)
                return None
            aside = folder.with_name(f".broken-{identity}-{time.time_ns()}")
            folder.rename(aside)
        said = "store: %s is not a complete run (%s); moved to %s: compare or run plays it again"
        LOG.warning(said, folder, what, aside.name)
        return None

    def save(
        self, identity: str, about: Mapping[str, Any], arrays: Mapping[str, Any], summary: Mapping[str, Any]
    ) -> None:
        """Store a run, with versions and device; one of the same identity is replaced.

        Args:
            identity: The name of its folder: 16 hexadecimal digits, by which ``identities`` knows it.
            about: What was run, as plain data.
            arrays: The result as named arrays.
            summary: Where it ended and what it cost; a number that is not finite becomes None.
        """
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        files = {"result.npz": content.getvalue(), "summary.json": _json(plain_numbers(summary))}
        today = time.strftime("%Y-%m-%d", time.gmtime())
        about = {"format": FORMAT, "identity": identity, "date": today, **about, **_made_with()}
        about["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        files["experiment.json"] = _json({**about, "checksum": _checksum(about)})
        place = self.folder / "runs" / identity
        try:
            part = Path(tempfile.mkdtemp(dir=place.parent, prefix=PART))
        except OSError as error:
            raise OSError(f"store: {str(place)!r} cannot be written ({error.strerror or error})") from None
        old = part.with_name(f"{part.name}-old")
        try:
            for name, data in files.items():
                write_atomic(part / name, data, owner="store")
            part.chmod(0o755)
            if place.exists():
                os.replace(place, old)
            os.replace(part, place)
        finally:
            for left in (part, old):
                shutil.rmtree(left, ignore_errors=True)

    def add(self, run: StoredRun) -> None:
        """Store a run that was read from another store."""
        own = ("format", "identity", "versions", "device", "sha256")
        about = {name: value for name, value in run.about.items() if name not in own}
        self.save(run.about["identity"], about, run.arrays, run.summary)

    def cached_result(self, name: str, settings: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives (plain data), computed once for these settings."""
        text = json.dumps([name, settings], sort_keys=True)
        path = self.folder / "findings" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if path.exists():
            try:
                return _verified(path)["found"]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                LOG.warning("store: %s is not a complete finding (%r); it is made again", path, error)
        found = json.loads(json.dumps(compute(), allow_nan=False))
        kept = {"format": FORMAT, "name": name, "settings": settings, "found": found, **_made_with()}
        write_atomic(path, _json({**kept, "checksum": _checksum(kept)}), owner="store")
        return found

    def provenance(self, identities: Iterable[str]) -> tuple[Provenance, ...]:
        """On which devices and with which versions these runs were made."""
        kinds: Counter[tuple[str, str]] = Counter()
        for identity in identities:
            about = json.loads((self.folder / "runs" / identity / "experiment.json").read_text())
            kinds[about["device"], ", ".join(f"{name} {version}" for name, version in about["versions"].items())] += 1
        return tuple(Provenance(device, versions, number) for (device, versions), number in sorted(kinds.items()))

    def dates(self, identities: Iterable[str]) -> tuple[str, ...]:
        """The days (UTC, such as "2026-01-31") on which these runs were made, as far as they say so."""
        paths = (self.folder / "runs" / identity / "experiment.json" for identity in identities)
        return tuple(
            sorted({str(about["date"]) for path in paths if "date" in (about := json.loads(path.read_text()))})
        )

    def unknown_files(self, expected: Iterable[str] = ()) -> list[Path]:
        """Files here that fedpick did not write."""
        known = {"runs", "findings", "under-way", "lock", LEASES, *expected}
        found = [path for path in self.folder.iterdir() if path.name not in known and path.name[0] != "."]
        for path in (self.folder / "runs").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a run that is just being replaced
                inside = _inside(path)
                others = [inner for inner in inside if inner.name not in FILES]
                unknown = others if len(others) < len(inside) else [path]
                found += [each for each in unknown if path.name[0] != "." and each.name[0] != "."]
        return sorted(path for path in found if not (is_table_of_runs(path) or is_drawing(path)))


def _inside(path: Path) -> list[Path]:
    """What is in a folder whose name is that of a run; nothing for any other file or folder."""
    return [] if not IDENTITY.fullmatch(path.name) or path.is_file() else list(path.iterdir())


def _read(folder: Path) -> StoredRun:
    """The run in this folder; a ValueError where a checksum, the version or the identity is wrong."""
    about = _verified(folder / "experiment.json")
    if about["identity"] != folder.name:
        raise ValueError(f"it is the run {about['identity']}")
    content = {name: (folder / name).read_bytes() for name in about["sha256"]}
    for name, data in content.items():
        if hashlib.sha256(data).hexdigest() != about["sha256"][name]:
            raise ValueError(f"the checksum of {name} is wrong")
    with np.load(io.BytesIO(content["result.npz"]), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return StoredRun(about, arrays, dict(json.loads(content["summary.json"])))


def _verified(path: Path) -> dict[str, Any]:
    """The table in a JSON file, less its checksum; a ValueError where that or the version is wrong."""
    plain = dict(json.loads(path.read_text()))
    if plain.get("format") != FORMAT:
        raise FormatError(f"its format is {shown(plain.get('format', 1))}, and this fedpick reads format {FORMAT}")
    if plain.pop("checksum") != _checksum(plain):
        raise ValueError(f"the checksum of {path.name} is wrong")
    return plain


def _made_with() -> dict[str, Any]:
    return {"versions": versions(*PACKAGES), "device": device()}


def _checksum(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _json(plain: Any) -> bytes:
    return json.dumps(plain, indent=1, allow_nan=False).encode() + b"\n"
