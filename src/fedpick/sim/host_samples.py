"""Samples that stay in the host's memory, or in a file, and are fetched for each round: more than a device can hold."""

import functools
import hashlib
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int

from fedpick.metrics import Numbers
from fedpick.sim.memory import first_device, free_memory

BLOCK = 1 << 26  # bytes that are hashed at a time


class HostSamples:
    """Inputs by row, in memory or mapped from a file; a compiled program asks for the rows that it needs.

    Args:
        x: The inputs, a row per sample.

    >>> HostSamples(np.eye(3, dtype=np.float32)).fetch(jax.numpy.array([2, 0]))[:, 0].tolist()
    [0.0, 1.0]
    """

    def __init__(self, x: Numbers) -> None:
        self.x = x

    def fetch(self, row: Int[Array, "..."]) -> Array:
        """These rows, in a compiled program, too."""
        like: Any = jax.ShapeDtypeStruct((*row.shape, *self.x.shape[1:]), self.x.dtype)  # type: ignore[no-untyped-call]
        found: Array = jax.pure_callback(self._rows, like, row, vmap_method="broadcast_all")
        return found

    def _rows(self, row: Any) -> Numbers:
        return np.ascontiguousarray(self.x[np.asarray(row)])

    @functools.cached_property
    def sha256(self) -> str:
        """A sum over all inputs, by which a checkpoint knows them."""
        digest = hashlib.sha256()
        rows = max(1, BLOCK // max(1, self.x[:1].nbytes))
        for first in range(0, len(self.x), rows):
            digest.update(np.ascontiguousarray(self.x[first : first + rows]).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"HostSamples({self.x.shape}, {self.x.dtype}, {self.sha256})"


def has_room(x: Numbers) -> bool:
    """Whether the device on which data are put first can hold these beside a program; a CPU always can.

    Args:
        x: The inputs.
    """
    free = free_memory(first_device())
    return free is None or x.nbytes < 0.8 * free
