"""A simulation on disk between two chunks: one file, written whole or not at all, that knows whose it is."""

import hashlib
import json
import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

VERSION = 1


def fingerprint(program: Any, *parts: Any) -> str:
    """A hash of everything that decides a simulation: the traced program with its constants, settings and data.

    The program stands for the model, the optimisers and whatever else is a function, whose text says nothing of what
    it has closed over.
    """
    digest = hashlib.sha256(_text(program.jaxpr))
    for part in (*program.consts, *parts):
        leaves, tree = jax.tree.flatten(part)
        digest.update(_text(tree))
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _text(value: Any) -> bytes:
    """How a thing prints, less the addresses of functions, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value)).encode()


def save(path: Path, owner: str, done: int, tree: Any) -> None:
    """Write atomically: a full disk or a kill leaves the file that was there before."""
    leaves: dict[str, Any] = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    head = json.dumps({"version": VERSION, "owner": owner, "done": done, "leaves": len(leaves)})
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".part", delete=False) as part:
            np.savez(part, head=np.asarray(head), **leaves)
            part.flush()
            os.fsync(part.fileno())
        os.replace(part.name, path)
    except OSError as error:
        raise OSError(f"simulate: checkpoint {str(path)!r} could not be written ({error}); the last is whole") from None
    finally:  # however it ends: written, a full disk, Ctrl-C
        if part is not None:
            Path(part.name).unlink(missing_ok=True)


def load(path: Path, owner: str, like: Any) -> tuple[int, Any]:
    """How many rounds were done, and what was saved; (0, like) where there is no file yet."""
    if not path.exists():
        return 0, like
    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            head = dict(json.loads(str(file["head"])))
            leaves = [file[f"leaf{i}"] for i in range(head["leaves"])]
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"simulate: checkpoint {str(path)!r} must be a whole file of fedpick's ({error})") from None
    if head.get("version") != VERSION:
        raise ValueError(f"simulate: checkpoint {str(path)!r} must be of version {VERSION}, got {head.get('version')}")
    if head["owner"] != owner:
        raise ValueError(f"simulate: checkpoint {str(path)!r} must be of this simulation; it is of another one")
    return head["done"], jax.tree.unflatten(jax.tree.structure(like), leaves)
