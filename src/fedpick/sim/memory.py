"""The memory of devices, and of the host."""

import os
from pathlib import Path
from typing import Any

import jax

from fedpick.validation import owner_name


def check_memory(owner: object, what: str, need: float) -> None:
    """Raise where so many bytes are more than there are: now, and not as a process that is killed in a while.

    Args:
        owner: Who needs them.
        what: What needs them, such as "the model".
        need: Bytes, about.
    """
    have = _available_memory()
    if have is not None and need > have:
        rule = f"{what} must fit into memory ({have / 1e9:,.1f} GB are free)"
        raise ValueError(f"{owner_name(owner)}: {rule}, got about {need / 1e9:,.1f} GB")


def _available_memory() -> int | None:
    """Bytes of the host that a process may still take; all that it has where it does not say, None if not that."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def tree_bytes(shapes: Any) -> int:
    """The bytes of a pytree of arrays, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def free_memory(device: jax.Device) -> int | None:
    """Bytes that a program may still take on a device; None where the device does not say, as a CPU does not."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"] if stats and "bytes_limit" in stats else None


def first_device() -> jax.Device:
    """The device on which arrays are put unless another is named."""
    chosen = getattr(jax.config, "jax_default_device", None)
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]
