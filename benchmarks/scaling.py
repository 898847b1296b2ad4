"""How the cost of a round grows: with clients K, seats m, candidates d, steps tau, the width of the model, and runs.

    python benchmarks/scaling.py [--sweep K m d tau width runs] [--json FILE]

One number varies, the others stay at their first value in ``BASE``. Pow-d trains an MLP on clients of 20 samples each.
Times are per run and round: the difference of a call of 2n rounds and one of n over n, so that neither set-up nor the
evaluations before the first and after the last round count. The floor is that of ``workloads.py``.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import machine
import numpy as np
from workloads import Workload

from fedpick import PowerOfChoice
from fedpick.sim import Federation, simulate
from fedpick.sim.federation import pixels

EACH, INPUTS, CLASSES = 20, 32, 10
BASE = {"K": 100, "m": 3, "d": 6, "tau": 30, "width": 64, "runs": 1}
SWEEPS: dict[str, tuple[int, ...]] = {
    "K": (100, 1000, 10_000, 100_000),
    "m": (1, 3, 10, 30),
    "d": (3, 10, 30, 100),
    "tau": (1, 10, 30, 100),
    "width": (16, 64, 256, 1024),
    "runs": (1, 2, 8, 32),
}
ROUNDS, REPEATS = 40, 5


def federation(K: int) -> Federation:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (K * EACH, INPUTS), np.uint8)
    y = rng.integers(0, CLASSES, K * EACH)
    return Federation.from_arrays(x, y, np.repeat(np.arange(K), EACH), classes=CLASSES, prepare=pixels)


def measure(K: int, m: int, d: int, tau: int, width: int, runs: int, peak: float, bandwidth: float) -> dict[str, Any]:
    work = Workload(
        "scaling", K=K, m=m, d=max(d, m), tau=tau, b=16, eta=0.01, widths=(INPUTS, width, CLASSES), dropout=0.0
    )
    data, model, selector = federation(K), work.model(), PowerOfChoice(m=m, d=max(d, m))

    def call(rounds: int) -> float:
        start = time.perf_counter()
        result = simulate(data, model, selector, work.local(), rounds=rounds, every=rounds, seeds=runs, progress=False)
        jax.block_until_ready(result.params)  # type: ignore[no-untyped-call]
        return time.perf_counter() - start

    first = call(ROUNDS)
    call(2 * ROUNDS)
    pairs = [(call(ROUNDS), call(2 * ROUNDS)) for _ in range(REPEATS)]
    seconds = [(long - short) / ROUNDS / runs for short, long in pairs]
    flop, least = work.floor(data, evaluate=False, poll=True)
    floor = max(flop / peak, least / bandwidth)
    return {"seconds": machine.median_and_spread(seconds), "floor": floor, "first call": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    peak, bandwidth = machine.sgemm_peak(), machine.bandwidth()
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"sgemm {peak / 1e9:.0f} GFLOP/s, memory {bandwidth / 1e9:.1f} GB/s; base {BASE}; {REPEATS} repeats")
    found: dict[str, Any] = {}
    for name in arguments.sweep:
        print(f"\n{name:>10s}   ms per run and round [quartiles]   x first   x floor   first call s")
        found[name] = {}
        for value in SWEEPS[name]:
            row = measure(**(BASE | {name: value}), peak=peak, bandwidth=bandwidth)
            found[name][value] = row
            median, low, high = (1e3 * seconds for seconds in row["seconds"])
            times = median / 1e3 / found[name][SWEEPS[name][0]]["seconds"][0]
            text = f"{median:10.3f} [{low:8.3f}, {high:8.3f}]   {times:13.2f}   {median / 1e3 / row['floor']:7.1f}"
            print(f"{value:10,d}   {text}   {row['first call']:8.1f}", flush=True)
    if arguments.json:
        numbers = {"versions": machine.versions(), "machine": machine.describe(), "sgemm": peak, "bandwidth": bandwidth}
        machine.write_json(arguments.json, numbers | {"base": BASE, "sweeps": found})


if __name__ == "__main__":
    main()
