"""A round of selection at K = 10^2 to 10^6 clients, side by side with its floor and with NumPy.

    python benchmarks/selection.py [--json FILE]

One round is propose + select + observe of a strategy with m = 100 seats and d = 1,000 candidates (fewer where K is
smaller), jitted, for every strategy of the registry, with all that it needs; those that hold sketches or heads up to
K = 10^5. A linear strategy may take 5 times as long as pow-d at a million clients, the others a second at 10^5. The
floor is one pass that draws K exponentials and takes ``top_k``, what a race needs at least. The
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
from fedpick import STRATEGIES, Clients, Report, Selector, pick, registry, round_keys
from fedpick.protocol import MEASURED, needs
from fedpick.updates import lengths

REPEATS = 15
BOUND = 5.0  # times pow-d, of a linear strategy at a million clients
RATIOS = {"to floor": "floor", "to pow-d": "pow-d", "to numpy": "NumPy choice"}
SECOND = 1e3  # milliseconds, of the others at 10^5
WIDEST = 10**5  # clients, for strategies that hold more than a few numbers of each


def one_round(selector: Selector[Any], state: Any, clients: Clients, losses: jax.Array, t: jax.Array) -> Any:
    keys = round_keys(0, t)
    candidates, polled, selection = pick(selector, keys, state, clients, lambda key, asked: losses)
    said = jnp.where(selection.weights > 0, jnp.float32(1), jnp.nan)
    wide = {name: said[:, None] * jnp.cos(jnp.arange(1.0, n + 1)) for name, n in lengths(selector).items()}
    of_round = {"polled": polled, "poll_duration": jnp.float32(0.1), "size": clients.size.astype(jnp.float32)}
    found = {**of_round, **dict.fromkeys(("duration", "norm", "square_loss"), said), **wide}
    report = Report(said, **{name: found[name] for name in MEASURED if name in needs(selector)})
    return selector.observe(state, selection, report), candidates, selection


def is_linear(selector: Any) -> bool:
    return bool(getattr(selector, "work", "K") == "K")


def strategies(m: int, d: int) -> dict[str, Any]:
    """Every strategy that a name alone describes."""
    return {
        name: registry.fitting_strategy(name, m=m, d=d, rounds=1000)
        for name in STRATEGIES
        if not any("Selector" in str(spec.annotation) for spec in registry.parameters_of("Selector", name).values())
    }


def floor(K: int, d: int) -> Callable[[], Any]:
    draw = jax.jit(lambda key: jax.lax.top_k(-jax.random.exponential(key, (K,), jnp.float32), d))
    return lambda: draw(jax.random.key(1))


def measure(K: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(0)
    m, d = min(100, K // 4), min(1000, K // 2)
    size = rng.integers(1, 1000, K)
    durations = jnp.asarray(rng.gamma(2.0, size=K), jnp.float32)
    leaving = jnp.asarray(rng.random(K) < 0.1)
    clients = Clients(jnp.asarray(size, jnp.int32), jnp.ones(K, bool), durations, durations / 2, leaving)
    losses = jnp.asarray(np.sort(rng.normal(size=K)), jnp.float32)  # sorted: the worst case of a partial sort
    p = size / size.sum()
    programs: dict[str, Callable[[], Any]] = {
        "floor": floor(K, d),
        "numpy choice": lambda: rng.choice(K, d, replace=False, p=p),
    }
    for name, selector in strategies(m, d).items():
        if name == "full" or not (is_linear(selector) or K <= WIDEST):
            continue
        jitted = jax.jit(one_round)
        state = jitted(selector, selector.init(K), clients, losses, 2)[0]
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
            "to pow-d": statistics.median(a / b for a, b in zip(seconds, times["pow-d"], strict=True)),
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
            ratios = [f"{row[key]:7.2f} x {other}" for key, other in RATIOS.items()]
            print(f"  {name:20s} {row['ms']:9.3f} ms   {'   '.join(ratios)}")
    chosen = strategies(100, 1000)
    slowest = {name: row["to pow-d"] for name, row in results[10**6].items() if name in chosen}
    wide = {name: results[WIDEST][name]["ms"] for name, selector in chosen.items() if not is_linear(selector)}
    memory = {name: sum(leaf.nbytes for leaf in jax.tree.leaves(chosen[name].init(WIDEST))) for name in wide}
    growth = {name: results[10**6][name]["ms"] / results[10**5][name]["ms"] for name in results[10**6]}
    print("\nten times the clients, K = 10^5 to 10^6, takes so many times as long:")
    print("  " + ", ".join(f"{name} {times:.1f}" for name, times in growth.items()))
    worst = max(slowest, key=lambda name: slowest[name])
    print(f"the slowest linear strategy at a million clients: {worst}, {slowest[worst]:.2f} x pow-d; bound {BOUND} x")
    for name, took in wide.items():
        print(f"{name} at {WIDEST:,} clients: {took:.0f} ms a round, {memory[name] / 1e6:.1f} MB of state")
    if arguments.json:
        arguments.json.write_text(json.dumps({"versions": versions, "device": device, "results": results}, indent=1))
    return 0 if slowest[worst] <= BOUND and max(wide.values(), default=0.0) <= SECOND else 1


if __name__ == "__main__":
    sys.exit(main())
