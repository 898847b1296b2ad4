"""What a benchmark ran on: versions, the device, and how fast its arithmetic and its memory are by themselves."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpick

REPEATS = 7


def versions() -> dict[str, str]:
    """Versions of what matters here."""
    return {
        "fedpick": fedpick.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def describe() -> str:
    """The device in a few words."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{device.platform}, {device.device_kind}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"cpu, {_processor()}, {cores} cores"


def sgemm_peak() -> float:
    """The best FLOP per second of a float32 matrix product, over sizes, at the precision JAX uses by default."""
    small = jax.devices()[0].platform == "cpu"
    sizes = (512, 1024, 2048, 3072) if small else (2048, 4096, 8192, 16384)
    multiply = jax.jit(jnp.matmul)

    def speed(n: int) -> float:
        a = jax.random.normal(jax.random.key(0), (n, n), jnp.float32)
        return 2 * n**3 / _fastest(lambda: multiply(a, a))

    return max(speed(n) for n in sizes)


def bandwidth() -> float:
    """Bytes per second that memory moves in a + 2 b over arrays far larger than a cache: two reads and a write."""
    n = 2**25 if jax.devices()[0].platform == "cpu" else 2**29
    a, b = jnp.ones(n, jnp.float32), jnp.ones(n, jnp.float32)
    triad = jax.jit(lambda a, b: a + 2 * b, donate_argnums=0)  # in place: new pages would be timed otherwise

    def program() -> Any:
        nonlocal a
        a = triad(a, b)
        return a

    return 3 * b.nbytes / _fastest(program)


def median_and_spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, low, high


def write_json(file: Path, numbers: Any) -> None:
    """All or nothing: a reader never sees half a file."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(numbers, indent=1))
    part.replace(file)


def _fastest(program: Callable[[], Any]) -> float:
    jax.block_until_ready(program())  # type: ignore[no-untyped-call]
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(program())  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
