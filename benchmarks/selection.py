"""A round of selection at K = 10^2 to 10^6 clients, side by side with its floor and with NumPy.

    python benchmarks/selection.py [--json FILE]

One round is propose + select + observe of a strategy with m = 100 seats and d = 1,000 candidates (fewer where K is
smaller), jitted. The floor is one pass that draws K exponentials and takes ``top_k``, what a race needs at least. The
peer is NumPy's ``Generator.choice(K, d, replace=False, p=p)``, which does the first of the three steps. All are timed
in turn within one run, and the medians of the ratios are what counts: absolute times are the machine's.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpick
from fedpick import Clients, Report, Selector, pick, round_keys

REPEATS = 15
BOUND = 5.0


def one_round(selector: Selector[Any], state: Any, clients: Clients, losses: jax.Array, t: jax.Array) -> Any:
    keys = round_keys(0, t)
    candidates, _, selection = pick(selector, keys, state, clients, lambda key, asked: losses)
    report = Report(jnp.where(selection.weights > 0, jnp.float32(1), jnp.nan))
    return selector.observe(state, selection, report), candidates, selection


def floor(K: int, d: int) -> Callable[[], Any]:
    draw = jax.jit(lambda key: jax.lax.top_k(-jax.random.exponential(key, (K,), jnp.float32), d))
    return lambda: draw(jax.random.key(1))


def measure(K: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(0)
    m, d = min(100, K // 4), min(1000, K // 2)
    size = rng.integers(1, 1000, K)
    clients = Clients(jnp.asarray(size, jnp.int32), jnp.ones(K, bool))
    losses = jnp.asarray(np.sort(rng.normal(size=K)), jnp.float32)  # sorted: the worst case of a partial sort
    p = size / size.sum()
    programs: dict[str, Callable[[], Any]] = {
        "floor": floor(K, d),
        "numpy choice": lambda: rng.choice(K, d, replace=False, p=p),
    }
    for name in ("rand", "rand-distinct", "uniform", "pow-d", "rpow-d", "afl"):
        selector = fedpick.strategy(name, **({"m": m, "d": d} if "pow" in name else {"m": m}))
        jitted = jax.jit(one_round)
        state = selector.init(K)
        programs[name] = lambda jitted=jitted, selector=selector, state=state: jitted(  # type: ignore[misc]
            selector, state, clients, losses, 3
        )
    times: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in range(REPEATS + 2):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program())  # type: ignore[no-untyped-call]
            if repeat >= 2:  # the first two compile and warm up
                times[name].append(time.perf_counter() - start)
    return {
        name: {
            "ms": 1e3 * statistics.median(seconds),
            "to floor": statistics.median(a / b for a, b in zip(seconds, times["floor"], strict=True)),
            "to numpy": statistics.median(a / b for a, b in zip(seconds, times["numpy choice"], strict=True)),
        }
        for name, seconds in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    versions = {"fedpick": fedpick.__version__, "jax": jax.__version__, "numpy": np.__version__}
    device = f"{jax.devices()[0].platform}, {os.cpu_count()} cores, {platform.machine()}"
    print(f"{versions} on {device}; medians of {REPEATS} interleaved repeats")
    sizes = [10**power for power in range(2, 7)]
    results = {K: measure(K) for K in sizes}
    for K, rows in results.items():
        print(f"\nK = {K:,}: bytes of one float32 pass {4 * K:,}")
        for name, row in rows.items():
            ratios = f"{row['to floor']:7.2f} x floor   {row['to numpy']:7.2f} x NumPy choice"
            print(f"  {name:14s} {row['ms']:9.3f} ms   {ratios}")
    worst = max(row["to floor"] for name, row in results[10**6].items() if name not in ("floor", "numpy choice"))
    growth = {name: results[10**6][name]["ms"] / results[10**5][name]["ms"] for name in results[10**6]}
    print("\nten times the clients, K = 10^5 to 10^6, takes so many times as long:")
    print("  " + ", ".join(f"{name} {times:.1f}" for name, times in growth.items()))
    print(f"the slowest strategy at a million clients: {worst:.2f} x floor; the bound is {BOUND} x")
    if arguments.json:
        arguments.json.write_text(json.dumps({"versions": versions, "device": device, "results": results}, indent=1))
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
