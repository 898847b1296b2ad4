"""W-FMNIST on a GPU: many runs at once, every strategy and objective, evaluation, a large federation, kernels.

    python benchmarks/gpu.py [--part scale strategies evaluation federations large kernels] [--json FILE]

Times are per run and round, the difference of a call of 2n rounds and one of n, so that neither set-up nor the first
and last evaluation count. Beside fedpick runs the plain program of ``plain.py``. The floor is the larger of the FLOP of
a round over the measured peak of a matrix product and its fewest bytes over the measured bandwidth.
"""

import argparse
import collections
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import machine
import numpy as np
from plain import plain
from workloads import FMNIST

import fedpick
from fedpick import Rand
from fedpick.sim import MLP, Dirichlet, Federation, simulate, simulation
from fedpick.sim.federation import pixels

RUNS = {1: 100, 12: 100, 120: 100, 480: 50}  # runs at once: rounds of a call
REPEATS = 3
STRATEGIES: dict[str, dict[str, int]] = {
    "rand": {},
    "pow-d": {"d": 6},
    "cpow-d": {"d": 6},
    "rpow-d": {"d": 50},
    "afl": {},
}
OBJECTIVES = ("cross-entropy", "minus-probability")


def seconds(program: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(program())  # type: ignore[no-untyped-call]
    return time.perf_counter() - start


def model(objective: Any = "cross-entropy") -> Any:
    return MLP(objective=objective)


def fedpick_time(
    federation: Federation, chosen: Any, selector: Any, runs: int, rounds: int, every: int | None = None
) -> dict[str, Any]:
    """Microseconds per run and round, of several differences; and the first call."""
    simulation.CHUNK = rounds  # so that with an evaluation every round both lengths are the same program

    def call(number: int) -> float:
        options: dict[str, Any] = {"rounds": number, "every": every or number, "seeds": runs, "progress": False}
        return seconds(lambda: simulate(federation, chosen, selector, FMNIST.local(), **options).params)

    first = call(rounds)
    call(2 * rounds)
    pairs = [(call(rounds), call(2 * rounds)) for _ in range(REPEATS)]
    times = [1e6 * (long - short) / rounds / runs for short, long in pairs]
    return {"us": machine.median_and_spread(times), "first call": first}


def plain_time(federation: Federation, runs: int, rounds: int) -> tuple[float, float, float]:
    short, long = plain(FMNIST, federation, runs, rounds), plain(FMNIST, federation, runs, 2 * rounds)
    for program in (short, long):
        seconds(program)
    times = [1e6 * (seconds(long) - seconds(short)) / rounds / runs for _ in range(REPEATS)]
    return machine.median_and_spread(times)


def scale(federation: Federation, floor: float) -> dict[int, Any]:
    print("\nruns at once   fedpick us per run and round   plain    fedpick / plain   x floor   first call s")
    found: dict[int, Any] = {}
    for runs, rounds in RUNS.items():
        own = fedpick_time(federation, model(), Rand(m=3), runs, rounds)
        other = plain_time(federation, runs, rounds)
        middle, low, high = own["us"]
        text = f"{middle:10.1f} [{low:7.1f}, {high:7.1f}]   {other[0]:8.1f}   {middle / other[0]:14.2f}"
        print(f"{runs:12d}   {text}   {middle / 1e6 / floor:7.1f}   {own['first call']:8.1f}", flush=True)
        found[runs] = own | {"plain us": other, "ratio": middle / other[0], "x floor": middle / 1e6 / floor}
    return found


def strategies(federation: Federation) -> dict[str, Any]:
    print("\n120 runs at once, us per run and round (times rand of the same objective)")
    found: dict[str, Any] = {}
    for objective in OBJECTIVES:
        for name, parameters in STRATEGIES.items():
            selector = fedpick.strategy(name, m=3, **parameters)
            row = fedpick_time(federation, model(objective), selector, 120, 50)
            found[f"{name}, {objective}"] = row
            ratio = row["us"][0] / found[f"rand, {objective}"]["us"][0]
            print(f"  {name:8s} {objective:18s} {row['us'][0]:8.1f}   x {ratio:.2f}", flush=True)
    return found


def evaluation(federation: Federation, floor: float) -> dict[int, Any]:
    print("\nfull training loss and test accuracy after every round, us per run and round")
    found: dict[int, Any] = {}
    for runs, rounds in {1: 50, 12: 20, 120: 10, 480: 5}.items():
        row = fedpick_time(federation, model(), Rand(m=3), runs, rounds, every=1)
        found[runs] = row
        print(f"  {runs:4d} runs {row['us'][0]:8.1f}   x floor {row['us'][0] / 1e6 / floor:.1f}", flush=True)
    return found


def federations(data: str | None, runs: int = 1000, rounds: int = 500, every: int = 10) -> dict[str, float]:
    """Whole calls, with all that they do, of runs with a partition each and of as many on one partition."""
    partitions = [Dirichlet(K=FMNIST.K, alpha=0.3, seed=seed) for seed in range(runs)]
    found: dict[str, float] = {}
    print(f"\n{runs} runs of {rounds} rounds, evaluated every {every}, seconds of a call (compilation in the first):")
    for name, chosen in {"a partition for each": partitions, "one for all": partitions[0]}.items():
        for call in ("first", "second"):
            start = time.perf_counter()
            federation = FMNIST.federation(data, chosen)
            made = time.perf_counter() - start
            options: dict[str, Any] = {"rounds": rounds, "every": every, "seeds": runs, "progress": False}
            result = simulate(federation, model(), Rand(m=3), FMNIST.local(), **options)
            found[f"{name}, {call}"] = time.perf_counter() - start
            accuracy = result.metrics["test_accuracy"][:, -1].mean()
            text = f"{found[f'{name}, {call}']:6.1f}, of it data {made:4.1f}; test accuracy {accuracy:.1%}"
            print(f"  {name:20s} {call:6s} {text}", flush=True)
    return found


def large(runs: int = 480, K: int = 10_000, each: int = 600) -> dict[str, Any]:
    """A federation of 4.7 GB, shared by all runs."""
    rng = np.random.default_rng(0)
    x = np.frombuffer(rng.bytes(K * each * 784), np.uint8).reshape(K * each, 784)
    y = rng.integers(0, 10, K * each)
    test = (x[:10_000], y[:10_000])
    federation = Federation.from_arrays(x, y, np.repeat(np.arange(K), each), test=test, prepare=pixels)
    selector = fedpick.strategy("pow-d", m=3, d=6)
    took = seconds(
        lambda: simulate(federation, model(), selector, FMNIST.local(), rounds=5, every=5, seeds=runs).params
    )
    peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    print(f"\n{K:,} clients of {each} samples, {x.nbytes / 1e9:.1f} GB, {runs} runs at once, 5 rounds of pow-d with")
    print(f"two evaluations: {took:.1f} s with compilation, {peak / 1e9:.1f} GB of GPU memory at most", flush=True)
    return {"data": x.nbytes, "seconds": took, "peak": peak}


def kernels(federation: Federation, runs: int = 480, rounds: int = 20, shown: int = 12) -> list[tuple[str, float]]:
    """Where the time goes, by the profiler."""

    def call() -> Any:
        options: dict[str, Any] = {"rounds": rounds, "every": rounds, "seeds": runs, "progress": False}
        return simulate(federation, model(), Rand(m=3), FMNIST.local(), **options).params

    seconds(call)
    busy: collections.Counter[str] = collections.Counter()
    number: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            seconds(call)
        (file,) = Path(folder).rglob("*.xplane.pb")
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines if "GPU" in plane.name else ():
                for event in line.events if "Stream" in line.name else ():
                    busy[event.name] += event.duration_ns
                    number[event.name] += 1
    total = sum(busy.values())
    per_round = sum(number.values()) / rounds
    print(f"\n{runs} runs: {total / 1e3 / rounds / runs:.1f} us of kernels per run and round, {per_round:.0f} a round")
    found = [(name, nanoseconds / 1e3 / rounds / runs) for name, nanoseconds in busy.most_common(shown)]
    for name, micro in found:
        print(f"  {micro:6.2f} us  x {number[name] / rounds:6.1f} a round  {name[:70]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("scale", "strategies", "evaluation", "federations", "large", "kernels")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    parser.add_argument("--data", help="folder with Fashion-MNIST; else FEDPICK_DATA, else random bytes")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    peak, bandwidth = machine.sgemm_peak(), machine.bandwidth()
    federation = FMNIST.federation(arguments.data)
    floors = {}
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"matrix product {peak / 1e12:.1f} TFLOP/s, memory {bandwidth / 1e12:.2f} TB/s; {federation.name}")
    for mode in ("train", "eval"):
        flop, least = FMNIST.floor(federation, mode == "eval", poll=False)
        floors[mode] = max(flop / peak, least / bandwidth)
        print(
            f"{mode}: {flop / 1e9:.2f} GFLOP, {least / 1e6:.1f} MB, floor {1e6 * floors[mode]:.1f} us per run and round"
        )
    everything: dict[str, Any] = {
        "versions": machine.versions(),
        "machine": machine.describe(),
        "sgemm": peak,
        "bandwidth": bandwidth,
        "floors": floors,
    }
    work: dict[str, Callable[[], Any]] = {
        "scale": lambda: scale(federation, floors["train"]),
        "strategies": lambda: strategies(federation),
        "evaluation": lambda: evaluation(federation, floors["eval"]),
        "federations": lambda: federations(arguments.data),
        "large": large,
        "kernels": lambda: kernels(federation),
    }
    for part in arguments.part:
        everything[part] = work[part]()
        if arguments.json:
            machine.write_json(arguments.json, everything)


if __name__ == "__main__":
    main()
