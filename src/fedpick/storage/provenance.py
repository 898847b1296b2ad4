"""What a result was made with: the versions of packages, and the device."""

import contextlib
import importlib.metadata
import os
import platform
from typing import NamedTuple

import jax

PACKAGES = ("fedpick", "jax", "jaxlib", "numpy", "optax", "flwr")


class Provenance(NamedTuple):
    """Number of runs per device and set of versions."""

    device: str
    versions: str
    runs: int


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


def device() -> str:
    """The device that JAX computes on, in words."""
    first = jax.local_devices()[0]
    if first.platform != "cpu":
        return f"{len(jax.local_devices())} x {first.device_kind}"
    return f"CPU, {os.cpu_count()} cores ({platform.machine()})"
