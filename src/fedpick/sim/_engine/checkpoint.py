"""Checkpoints: the state and tables of a simulation between two chunks, in one file that names its owner."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpick.purity import constants
from fedpick.storage import State, load_state, save_state

WHAT = "simulate: checkpoint"


def fingerprint(program: Any, *parts: Any) -> str:
    """A hash of everything that decides a simulation: the traced program with its constants, settings and data.

    The program stands for the model, the optimisers and all other functions, whose text does not show what they have
    closed over.
    """
    digest = hashlib.sha256(_text(program.jaxpr))
    for constant in constants(program):  # of functions under ``jax.jit`` in it, too
        digest.update(constant)
    for part in parts:
        leaves, tree = jax.tree.flatten(part)
        digest.update(_text(tree))
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _text(value: Any) -> bytes:
    """The text of a value without the addresses of functions, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value)).encode()


class Checkpoint(NamedTuple):
    """A file, and what gives the fingerprint of the simulation that it belongs to: it takes as long as to trace it."""

    path: Path
    owner: Callable[[], str]

    def save(self, tree: Any) -> None:
        """Write a pytree of arrays atomically."""
        arrays = {_name(key): np.asarray(leaf) for key, leaf in jax.tree_util.tree_leaves_with_path(tree)}
        save_state(self.path, State({}, arrays), owner=self.owner(), what=WHAT)

    def load(self, like: Any) -> Any:
        """The pytree that was saved, of the same structure as ``like``; None where there is no file yet."""
        if not self.path.exists():
            return None
        arrays = load_state(self.path, owner=self.owner(), what=WHAT).arrays
        return jax.tree_util.tree_map_with_path(lambda key, leaf: arrays[_name(key)], like)


def _name(key: Any) -> str:
    return jax.tree_util.keystr(key, simple=True, separator="/")
