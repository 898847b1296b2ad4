"""A round of federated averaging side by side: fedpick, loops by hand in PyTorch, and other frameworks, on the CPU.

    python benchmarks/peers.py --make --data FOLDER [--json FILE]

All programs of a table are alive together and compute in turn, so that ratios compare like with like. Before the clock
runs each plays the same number of rounds, and what it learnt is printed: a check that all do the same work. ``--make``
makes the environments of the peers first; a peer without one is listed with the reason.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"  # before jax is imported

import machine
import numpy as np
from environments import PEERS, Peer, make, missing, python
from interleaving import OTHERS, Answer, Program, in_turn
from workloads import WORKLOADS

PROGRAMS = Path(__file__).parent / "peers"
CHECKED = 20  # rounds after which the metrics are compared
SECONDS = 2.0  # of a turn, about
LEAST, OWN_LEAST, MOST = 3, 50, 50  # rounds of a turn; so fedpick's evaluation before the first is a small part
RUNS = 8  # at once, in the measurement of many runs
OWN = "fedpick"
MANY = f"fedpick, {RUNS} runs at once, per run"
PLAIN = "fedpick, rand"
TUNED = "torch-index"
FASTER = {("fmnist", "train"): 3.0, ("fmnist", "eval"): 2.0, ("syn", "eval"): 10.0}
POLL_COSTS = 1.4


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def commands(peers: list[Peer], envs: Path, arrays: Path, mode: str, selection: str) -> dict[str, list[Any]]:
    """Every program of a table by name: the peers, many runs at once, and for a poll the same without."""
    own = [sys.executable, PROGRAMS / "fedpick_sim.py", arrays, mode]
    every = {peer.name: [python(peer, envs), PROGRAMS / peer.program, arrays, mode, selection] for peer in peers}
    every[MANY] = [*own, selection, RUNS]
    if selection == "pow-d":
        every[PLAIN] = [*own, "rand"]
    return every


def measure(every: dict[str, list[Any]], repeats: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Numbers by program, and why there are none for those that could not start."""
    reasons: dict[str, str] = {}
    rows: dict[str, Any] = {}
    rounds: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        programs: list[Program] = []
        for name, command in every.items():
            tell(f"  {name}: starting, {CHECKED} rounds to compare")
            program = stack.enter_context(Program(name, command))
            ready = program.answer()
            check = program.play(CHECKED) if ready["ready"] else ready
            if "why" in check:
                reasons[name] = check["why"]
                tell(f"  {name}: {check['why']}")
                continue
            affordable = round(SECONDS / check["seconds"] * CHECKED)
            least = OWN_LEAST if name == OWN else LEAST
            rounds[name] = rounds[OWN] if name in (MANY, PLAIN) and OWN in rounds else min(MOST, max(least, affordable))
            rows[name] = ready | {"loss": check["loss"], "test_accuracy": check["test_accuracy"]}
            programs.append(program)
        if OWN not in rows:
            raise RuntimeError(f"fedpick: {reasons[OWN]}")
        answers = in_turn(programs, rounds, repeats, lambda text: tell(f"  {text}"))
    for name, row in rows.items():
        row |= summary(answers[name], row.get("runs", 1))
    for row in rows.values():
        ratios = [a / b for a, b in zip(row["seconds"], rows[OWN]["seconds"], strict=True)]
        row["times fedpick"] = machine.median_and_spread(ratios)
    return rows, reasons


def summary(answers: list[Answer], runs: int) -> dict[str, Any]:
    """Seconds per round (and run), their median and quartiles, and memory."""
    seconds = [answer["seconds"] / answer["rounds"] / runs for answer in answers]
    last = answers[-1]
    return {
        "seconds": seconds,
        "median": machine.median_and_spread(seconds),
        "rounds": last["rounds"],
        "disturbed": sum(answer["others"] > OTHERS for answer in answers),
        "memory": last["memory"],
        "first call": last.get("first_call"),
    }


def show(rows: dict[str, Any], reasons: dict[str, str], floor: float) -> None:
    width = max(map(len, [*rows, *reasons]))
    print(f"  {'':{width}s}  ms per round [quartiles]   x floor   x fedpick   loss  accuracy     MB")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["median"][0]):
        median, low, high = (1e3 * seconds for seconds in row["median"])
        times = f"{median:8.2f} [{low:7.2f}, {high:7.2f}]"
        ratios = f"{1e-3 * median / floor:8.2f}    {row['times fedpick'][0]:8.2f}"
        learnt = f"{row['loss']:6.3f}    {row['test_accuracy']:6.1%} {row['memory'] / 1e6:6.0f}"
        print(f"  {name:{width}s}  {times}  {ratios} {learnt}")
    for name, reason in reasons.items():
        print(f"  {name:{width}s}  not measured: {reason}")
    for name, row in rows.items():
        if row["disturbed"]:
            print(f"  {name}: other processes were busy in {row['disturbed']} of {len(row['seconds'])} repeats")
    print(f"  first call of fedpick, with compilation: {rows[OWN]['first call']:.1f} s")


def requirements(tables: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """What is asked of fedpick, and whether it holds."""
    found = []
    for table in tables:
        workload, mode, selection, rows = (table[key] for key in ("workload", "mode", "selection", "rows"))
        where = f"{workload} {mode} {selection}"
        ratios = {name: row["times fedpick"][0] for name, row in rows.items()}
        wanted = FASTER.get((workload, mode))
        if wanted and selection == "rand" and TUNED in ratios:
            found.append(
                (f"{where}: {ratios[TUNED]:.1f} x the tuned loop, at least {wanted:g}", ratios[TUNED] >= wanted)
            )
        for name in sorted(ratios.keys() - {OWN, MANY, PLAIN}):
            found.append((f"{where}: ahead of {name}, {ratios[name]:.1f} x", ratios[name] > 1))
        if MANY in ratios:
            found.append((f"{where}: many runs cost {ratios[MANY]:.2f} of one alone, at most 1", ratios[MANY] <= 1))
        if PLAIN in ratios:
            cost = statistics.median(a / b for a, b in zip(rows[OWN]["seconds"], rows[PLAIN]["seconds"], strict=True))
            found.append((f"{where}: {cost:.2f} x the time of rand, at most {POLL_COSTS}", cost <= POLL_COSTS))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [peer.name for peer in PEERS]
    parser.add_argument("--workload", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--mode", nargs="+", choices=["train", "eval"], default=["train", "eval"])
    parser.add_argument("--selection", nargs="+", choices=["rand", "pow-d"], default=["rand", "pow-d"])
    parser.add_argument("--peers", nargs="+", choices=names, default=names, help="fedpick is always there")
    parser.add_argument("--make", action="store_true", help="make the environments of the peers first")
    parser.add_argument("--envs", type=Path, default=Path(".peers"), help="where the environments are")
    parser.add_argument("--data", help="folder with Fashion-MNIST; else FEDPICK_DATA, else random bytes")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    arguments = parser.parse_args()
    peers = [peer for peer in PEERS if peer.name in {OWN, *arguments.peers}]
    if arguments.make:
        for environment in dict.fromkeys(peer.environment for peer in peers if peer.environment):
            tell(f"environment {environment}")
            make(environment, arguments.envs)
    reasons = {peer.name: why for peer in peers if (why := missing(peer, arguments.envs))}
    installed = [peer for peer in peers if peer.name not in reasons]

    peak, bandwidth = machine.sgemm_peak(), machine.bandwidth()
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"sgemm {peak / 1e9:.0f} GFLOP/s, memory {bandwidth / 1e9:.1f} GB/s; {arguments.repeats} interleaved repeats")
    for name, reason in reasons.items():
        print(f"{name}: not installed, {reason}")
    tables: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in (WORKLOADS[name] for name in arguments.workload):
            federation = workload.federation(arguments.data)
            arrays = Path(folder) / f"{workload.name}.npz"
            np.savez(arrays, **workload.arrays(federation))
            print(f"\n{federation.summary()}")
            for mode in arguments.mode:
                for selection in arguments.selection:
                    tell(f"{workload.name} {mode} {selection}")
                    flop, least = workload.floor(federation, mode == "eval", selection == "pow-d")
                    floor = max(flop / peak, least / bandwidth)
                    every = commands(installed, arguments.envs, arrays, mode, selection)
                    rows, failed = measure(every, arguments.repeats)
                    print(f"\n{workload.name}, {mode}, {selection}: ", end="")
                    print(f"{flop / 1e9:.3g} GFLOP, {least / 1e6:.3g} MB, floor {1e3 * floor:.2f} ms")
                    show(rows, failed, floor)
                    keys = {"workload": workload.name, "mode": mode, "selection": selection}
                    tables.append(keys | {"flop": flop, "bytes": least, "floor": floor, "rows": rows, "failed": failed})
    versions = {name: row["versions"] for table in tables for name, row in table["rows"].items()}
    print("\nversions")
    for name in names:
        print(f"  {name}: {versions.get(name) or reasons.get(name) or 'not asked for'}")
    met = requirements(tables)
    print("\nrequirements")
    for text, holds in met:
        print(f"  {'holds' if holds else 'FAILS'}  {text}")
    if arguments.json:
        everything = {
            "versions": machine.versions() | {"peers": versions},
            "machine": machine.describe(),
            "sgemm": peak,
            "bandwidth": bandwidth,
            "workloads": {name: asdict(WORKLOADS[name]) for name in arguments.workload},
            "not installed": reasons,
            "tables": tables,
            "requirements": [{"text": text, "holds": holds} for text, holds in met],
        }
        machine.write_json(arguments.json, everything)
    return 0 if all(holds for _, holds in met) else 1


if __name__ == "__main__":
    sys.exit(main())
