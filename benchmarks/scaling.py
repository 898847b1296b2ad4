"""How the cost of a round grows: with clients K, seats m, candidates d, steps tau, the width of the model, and runs.

    python benchmarks/scaling.py [--sweep K m d tau width runs host devices] [--json FILE]

One number varies, the others stay at their first value in ``BASE``. Pow-d trains an MLP on clients of 20 samples each.
Times are per run and round: the difference of a call of 2n rounds and one of n over n, so that neither set-up nor the
evaluations before the first and after the last round count. The floor is that of ``workloads.py``.

``host`` is rand with data on the host, to a million clients, and the memory of each; ``devices`` is one federation with
its seats spread over 1 to 4 devices of this host. Both are measured in processes of their own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "peers"))

import jax
import machine
import numpy as np
from serve import most_memory
from workloads import Workload

from fedpick import PowerOfChoice, Rand
from fedpick.sim import MLP, Federation, Local, simulate
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
ON_HOST = (10_000, 100_000, 1_000_000)  # clients
SPREAD = (1, 2, 4)  # devices


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


def on_host(K: int) -> dict[str, float]:
    """Clients of ten samples of 100 bytes that stay on the host: seconds of a round, bytes of the data and of all."""
    rng = np.random.default_rng(0)
    x = np.frombuffer(rng.bytes(K * 1000), np.uint8).reshape(-1, 100)
    client = np.repeat(np.arange(K, dtype=np.int32), 10)
    data = Federation.from_arrays(x, rng.integers(0, CLASSES, len(x)), client, on_host=True, prepare=pixels)

    def call(rounds: int) -> float:
        start = time.perf_counter()
        local = Local(tau=10, b=8, eta=0.01)
        simulate(data, MLP((32,)), Rand(m=10), local, rounds=rounds, every=rounds, progress=False)
        return time.perf_counter() - start

    for rounds in (210, 630):
        call(rounds)
    seconds = min(call(630) for _ in range(3)) - min(call(210) for _ in range(3))
    return {"seconds": seconds / 420, "data": x.nbytes, "memory": most_memory()}


def spread(devices: int) -> dict[str, float]:
    """One federation with its seats on all devices: seconds of a round, and the loss after it."""
    work = Workload("spread", K=100, m=8, d=16, tau=10, b=64, eta=0.01, widths=(INPUTS, 1024, CLASSES), dropout=0.0)
    data, model, selector = federation(work.K), work.model(), PowerOfChoice(m=work.m, d=work.d)
    assert jax.device_count() == devices
    losses: list[float] = []

    def call(rounds: int) -> float:
        start = time.perf_counter()
        options: dict[str, Any] = {"rounds": rounds, "every": rounds, "progress": False}
        result = simulate(data, model, selector, work.local(), **options, spread_seats=devices > 1)
        losses.append(float(result.metrics["loss"][0, -1]))
        return time.perf_counter() - start

    for rounds in (10, 20):
        call(rounds)
    pairs = [(call(10), call(20)) for _ in range(REPEATS)]
    return {"seconds": machine.median_and_spread([(long - short) / 10 for short, long in pairs])[0], "loss": losses[-1]}


def alone(function: str, value: int, **environment: str) -> dict[str, float]:
    """What a function of this file finds in a process of its own."""
    code = f"import json, scaling; print(json.dumps(scaling.{function}({value})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def show_on_host() -> dict[int, Any]:
    print("\n   clients   ms per round   x first   data GB   all GB   within 2 x data + 2 GB")
    found: dict[int, Any] = {}
    for K in ON_HOST:
        row = found[K] = alone("on_host", K)
        times, most = row["seconds"] / found[ON_HOST[0]]["seconds"], 2 * row["data"] + 2e9
        sizes = f"{row['data'] / 1e9:7.2f}   {row['memory'] / 1e9:6.2f}   {row['memory'] <= most}"
        print(f"{K:10,d}   {1e3 * row['seconds']:12.2f}   {times:7.2f}   {sizes}", flush=True)
    return found


def show_spread() -> dict[int, Any]:
    print("\n   devices   ms per round   times as fast   loss")
    found: dict[int, Any] = {}
    for devices in SPREAD:
        # Each device has one thread for its matrix products, as a device of its own would.
        flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
        row = found[devices] = alone("spread", devices, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
        faster = found[1]["seconds"] / row["seconds"]
        print(f"{devices:10d}   {1e3 * row['seconds']:12.2f}   {faster:13.2f}   {row['loss']:.6f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    others = {"host": show_on_host, "devices": show_spread}
    every = [*SWEEPS, *others]
    parser.add_argument("--sweep", nargs="+", choices=every, default=every)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    peak, bandwidth = machine.sgemm_peak(), machine.bandwidth()
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"sgemm {peak / 1e9:.0f} GFLOP/s, memory {bandwidth / 1e9:.1f} GB/s; base {BASE}; {REPEATS} repeats")
    found: dict[str, Any] = {}
    for name in arguments.sweep:
        if name in others:
            found[name] = others[name]()
            continue
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
