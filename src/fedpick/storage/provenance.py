"""Where results come from: files, versions and device; and numbers as JSON can hold them."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np


class Provenance(NamedTuple):
    """Number of runs per device and set of versions."""

    device: str
    versions: str
    runs: int


def plain_numbers(value: Any) -> Any:
    """Plain data as JSON can hold them: NumPy numbers as Python's, None where one is not finite.

    >>> plain_numbers({"loss": np.float32(0.5), "rounds": float("inf")})
    {'loss': 0.5, 'rounds': None}
    """
    if isinstance(value, Mapping):
        return {name: plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_numbers(part) for part in value]
    number = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(number, float) and not np.isfinite(number) else number


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of these packages, as far as they are installed.

    >>> list(versions("numpy"))
    ['python', 'numpy']
    """
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def usable_cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device() -> str:
    """The device that JAX computes on, in words."""
    first = jax.local_devices()[0]
    if first.platform != "cpu":
        return f"{len(jax.local_devices())} x {first.device_kind}"
    return f"CPU, {os.cpu_count()} cores ({platform.machine()})"


def file_sha256(file: Path) -> str:
    """What a file holds, as a sum."""
    return _sha256(file, file.stat().st_mtime_ns, file.stat().st_size)


@functools.lru_cache(maxsize=16)  # asked for every run, of files that may be large
def _sha256(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
