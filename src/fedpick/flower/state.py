"""The server's memory on disk: written whole or not at all, with a version and a checksum; the last two are kept."""

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]

FORMAT, VERSION, KEPT = "fedpick-flower", 1, 2


class State(NamedTuple):
    """Plain facts and named arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Numbers]


class ForeignStateError(ValueError):
    """A state that is whole but of another federation, or another version."""


def save(folder: Path, owner: str, number: int, facts: Mapping[str, Any], arrays: Mapping[str, Numbers]) -> None:
    """Write the state after so many rounds. A full disk or a kill leaves those that were there before."""
    content = io.BytesIO()
    named: dict[str, Any] = {f"array/{name}": values for name, values in arrays.items()}
    np.savez(content, facts=np.asarray(json.dumps(dict(facts))), **named)
    payload = content.getvalue()
    head = {"format": FORMAT, "version": VERSION, "owner": owner, "sha256": hashlib.sha256(payload).hexdigest()}
    path = folder / f"round-{number:08d}.state"
    part = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False) as part:
            part.write(json.dumps(head).encode() + b"\n")
            part.write(payload)
            part.flush()
            os.fsync(part.fileno())
        os.replace(part.name, path)
        _settle(folder)
    except OSError as error:
        raise OSError(f"Selecting: state {str(path)!r} could not be written ({error}); the last is whole") from None
    finally:  # however it ends: written, a full disk, Ctrl-C
        if part is not None:
            Path(part.name).unlink(missing_ok=True)
    for old in states(folder)[:-KEPT]:
        old.unlink(missing_ok=True)


def states(folder: Path) -> list[Path]:
    """The states in a folder, the newest last."""
    return sorted(folder.glob("round-*.state"))


def load(path: Path, owner: str) -> State:
    """What was saved; a ValueError of one sentence where the file is not whole, or not of this federation."""
    try:
        with path.open("rb") as file:
            head, payload = json.loads(file.readline()), file.read()
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {head['format']!r}")
        if head["version"] == VERSION and hashlib.sha256(payload).hexdigest() != head["sha256"]:
            raise ValueError("its checksum is wrong")
        written_by, version = head["owner"], head["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"Selecting: state {str(path)!r} must be a whole file of fedpick's ({error})") from None
    if version != VERSION:
        raise ForeignStateError(f"Selecting: state {str(path)!r} must be of version {VERSION}, got {version}")
    if written_by != owner:
        raise ForeignStateError(f"Selecting: state {str(path)!r} must be of this federation; it is of another one")
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as found:
            facts = dict(json.loads(str(found["facts"])))
            arrays = {name.removeprefix("array/"): found[name] for name in found.files if name != "facts"}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"Selecting: state {str(path)!r} must be a whole file of fedpick's ({error})") from None
    return State(facts, arrays)


def newest(folder: Path, owner: str) -> tuple[State | None, list[str]]:
    """The newest state that is whole and of this federation, and a sentence for each that had to be passed over.

    Where all are of other federations, it raises: to begin anew there would overwrite them.
    """
    refused: list[str] = []
    foreign: ForeignStateError | None = None
    for path in reversed(states(folder)):
        try:
            return load(path, owner), refused
        except ForeignStateError as error:
            foreign = error
            refused.append(str(error))
        except ValueError as error:
            refused.append(str(error))
    if foreign is not None:
        raise ValueError(f"{foreign}; give this federation a folder of its own")
    return None, refused


def _settle(folder: Path) -> None:
    """The name of the file is on disk too, where the system can say so."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
