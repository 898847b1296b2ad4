"""One format for everything that is resumed: checkpoints of simulations and the state of a Flower server.

A file is a line of JSON (format, version, owner, checksum) and an ``.npz`` with named arrays and the facts as JSON.
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.storage.atomic import atomic_file
from fedpick.text import brief, shown

FORMAT, VERSION = "fedpick-state", 2
OLDER = {b"PK\x03\x04": "a checkpoint", b'{"format": "fedpick-flower"': "a state"}  # how files of version 1 begin


class State(NamedTuple):
    """Facts (plain data for JSON) and named arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Numbers]


class StateError(ValueError):
    """A state file that is incomplete or corrupted."""


class ForeignStateError(StateError):
    """A state file that is complete, but of another version or another owner."""


def save_state(path: str | Path, state: State, *, owner: str, what: str) -> None:
    """Write a state atomically.

    Args:
        path: The file.
        state: The facts and arrays.
        owner: What the state belongs to; ``load_state`` accepts it for the same owner only.
        what: What it is for error messages, such as "simulate: checkpoint".
    """
    content = io.BytesIO()
    named: dict[str, Any] = {f"array/{name}": values for name, values in state.arrays.items()}
    np.savez(content, facts=np.asarray(json.dumps(state.facts)), **named)
    payload = content.getbuffer()
    head = {"format": FORMAT, "version": VERSION, "owner": owner, "sha256": hashlib.sha256(payload).hexdigest()}
    with atomic_file(path, owner=what) as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(payload)


def load_state(path: str | Path, *, owner: str, what: str) -> State:
    """Read what ``save_state`` wrote; raises ``StateError`` or ``ForeignStateError``, each with one sentence.

    Args:
        path: The file.
        owner: What the state must belong to.
        what: As for ``save_state``.
    """
    path, name = Path(path), f"{what} {str(path)!r}"
    try:
        content = path.read_bytes()
        for start, old in OLDER.items():
            if content.startswith(start):
                raise ForeignStateError(f"{name} is {old} of version 1, and this fedpick reads version {VERSION}")
        line, _, payload = content.partition(b"\n")
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {shown(head['format'])}")
        if head["version"] != VERSION:
            raise ForeignStateError(f"{name} must be of version {VERSION}, got {shown(head['version'])}")
        if hashlib.sha256(payload).hexdigest() != head["sha256"]:
            raise ValueError("its checksum is wrong")
        if head["owner"] != owner:
            raise ForeignStateError(f"{name} belongs to another run: its settings differ from these")
        with np.load(io.BytesIO(payload), allow_pickle=False) as found:
            facts = dict(json.loads(str(found["facts"])))
            arrays = {key.removeprefix("array/"): found[key] for key in found.files if key != "facts"}
    except StateError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, zipfile.BadZipFile) as error:
        raise StateError(f"{name} is not a complete fedpick file ({brief(error)})") from None
    return State(facts, arrays)
