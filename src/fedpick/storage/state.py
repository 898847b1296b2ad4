"""One format for everything that is resumed: checkpoints of simulations and the state of a Flower server.

A file is a line of JSON (format, version, owner, checksum) and an ``.npz`` with named arrays and the facts as JSON.
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.storage.atomic import atomic_file
from fedpick.text import brief, shown

FORMAT, VERSION = "fedpick-state", 2
ARCHIVE, OLD_STATE = b"PK\x03\x04", b'{"format": "fedpick-flower"'  # how a zip and a server state of version 1 begin
OLD_ARRAY = re.compile(r"(head|leaf\d+)\.npy")  # of a checkpoint of version 1


class State(NamedTuple):
    """Facts (plain data for JSON) and named arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Numbers]


class StateError(ValueError):
    """A state file that is incomplete or corrupted."""


class ForeignStateError(StateError):
    """A state file that is complete, but of another version or another owner."""


def save_state(
    path: str | Path, state: State, *, owner: str, what: str, settings: Mapping[str, str] | None = None
) -> None:
    """Write a state atomically.

    Args:
        path: The file.
        state: The facts and arrays.
        owner: What the state belongs to; ``load_state`` accepts it for the same owner only.
        what: What it is for error messages, such as "simulate: checkpoint".
        settings: What must not differ either, by name, so that an error can say which one does.
    """
    content = io.BytesIO()
    named: dict[str, Any] = {f"array/{name}": values for name, values in state.arrays.items()}
    np.savez(content, facts=np.asarray(json.dumps(state.facts)), **named)
    payload = content.getbuffer()
    head = {"format": FORMAT, "version": VERSION, "owner": owner, "sha256": hashlib.sha256(payload).hexdigest()}
    head |= {"settings": dict(settings)} if settings else {}
    with atomic_file(path, owner=what) as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(payload)


def load_state(path: str | Path, *, owner: str, what: str, settings: Mapping[str, str] | None = None) -> State:
    """Read what ``save_state`` wrote; raises ``StateError`` or ``ForeignStateError``, each with one sentence.

    Args:
        path: The file.
        owner: What the state must belong to.
        what: As for ``save_state``.
        settings: Those of now. Each that the state was saved with must be the same; it need not have had all of them.
    """
    path, name = Path(path), f"{what} {str(path)!r}"
    try:
        content = path.read_bytes()
        old = _older(content)
        if old:
            raise ForeignStateError(f"{name} is {old} of version 1, and this fedpick reads version {VERSION}")
        line, _, payload = content.partition(b"\n")
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {shown(head['format'])}")
        if head["version"] != VERSION:
            raise ForeignStateError(f"{name} must be of version {VERSION}, got {shown(head['version'])}")
        if hashlib.sha256(payload).hexdigest() != head["sha256"]:
            raise ValueError("its checksum is wrong")
        others = "" if settings is None else differences(head.get("settings", {}), settings)
        if head["owner"] != owner or others:
            which = f" ({others})" if others else ""
            raise ForeignStateError(f"{name} belongs to another run: its settings differ from these{which}")
        with np.load(io.BytesIO(payload), allow_pickle=False) as found:
            facts = dict(json.loads(str(found["facts"])))
            arrays = {key.removeprefix("array/"): found[key] for key in found.files if key != "facts"}
    except StateError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        RuntimeError,  # of the reader of archives, and RecursionError
        zipfile.BadZipFile,
    ) as error:
        raise StateError(f"{name} is not a complete fedpick file ({brief(error)})") from None
    return State(facts, arrays)


def _older(content: bytes) -> str:
    """What the content of a file of version 1 is; "" for other files."""
    if not content.startswith(ARCHIVE):
        return "a state" if content.startswith(OLD_STATE) else ""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = archive.namelist()
    if "head.npy" not in arrays or not all(map(OLD_ARRAY.fullmatch, arrays)):
        raise ValueError("it is another archive")
    return "a checkpoint"


def differences(saved: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Which settings are not as they were saved, each with both values.

    Args:
        saved: What was saved, by name.
        given: What is given now; what was not saved with the others is not compared.

    >>> differences({"seed": "4", "clients": "8"}, {"seed": "5", "clients": "8", "batch": "32"})
    'seed was 4, and is now 5'
    """
    now = {name: given.get(name, "not given") for name in saved}
    return "; ".join(f"{name} was {old}, and is now {now[name]}" for name, old in saved.items() if old != now[name])
