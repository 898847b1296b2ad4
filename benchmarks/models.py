"""The models of the zoo side by side with PyTorch: a round of training of a CNN, a ResNet, an LSTM, and adapters.

    python benchmarks/models.py --make [--model cnn resnet lstm transformer] [--json FILE]
    python benchmarks/models.py --device gpu --python PYTHON     # PYTHON has PyTorch with CUDA

The programs of a table are alive together and compute in turn. Before the clock runs each plays the same rounds from a
model of its own, and the loss before and after is printed: a check that all do the same work. The floor is the FLOP of
a round's products over the measured peak of a matrix product.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if "gpu" not in sys.argv:
    os.environ["JAX_PLATFORMS"] = "cpu"  # before jax is imported
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several programs on one device

sys.path.append(str(Path(__file__).parent / "peers"))

import machine
import numpy as np
from environments import Peer, make, missing, python
from interleaving import Program, in_turn
from model_workloads import WORKLOADS, ModelWorkload

from fedpick.sim import transformer_base

PROGRAMS = Path(__file__).parent / "peers"
CHECKED = 5  # rounds after which losses are compared
SECONDS = 2.0  # of a turn, about
RUNS = 16  # at once, on a GPU
OWN, BEST = "fedpick", "torch-best"
WANTED = {
    "cpu": {"cnn": 1.0, "resnet": 1.0, "lstm": 2.0, "transformer": 2.0},
    "gpu": dict.fromkeys(WORKLOADS, 10.0),
}
MANY_WANTED, FIRST_CALL = 20.0, 15.0


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measure(
    workload: ModelWorkload, torch: Path | None, device: str, repeats: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Numbers by program."""
    file = folder / f"{workload.name}.npz"
    arrays: dict[str, Any] = dict(zip(("x", "y", "client"), workload.data(), strict=True))
    if workload.rank:
        base = transformer_base(128, workload.T, workload.hidden, layers=workload.layers)
        arrays |= {f"base/{name}": array for name, array in base.items()}
    np.savez(file, **arrays)
    own = [sys.executable, PROGRAMS / "fedpick_models.py", file, workload.name]
    every: dict[str, list[Any]] = {OWN: own}
    if device == "gpu":
        every[f"{OWN}, {RUNS} runs at once, per run"] = [*own, RUNS]
    if torch is not None:
        peer = [torch, PROGRAMS / "torch_models.py", file, workload.name]
        kind = "cuda" if device == "gpu" else "cpu"
        every |= {"torch-index": [*peer, "index", kind], BEST: [*peer, "best", kind]}
    rows: dict[str, dict[str, Any]] = {}
    rounds: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        programs = []
        for name, command in every.items():
            tell(f"  {name}: starting, {CHECKED} rounds to compare")
            program = stack.enter_context(Program(name, command, platform="cpu" if device == "cpu" else ""))
            ready = program.answer()
            check = program.play(CHECKED) if ready["ready"] else ready
            if "why" in check:
                raise RuntimeError(f"{name}: {check['why']}")
            rounds[name] = max(CHECKED, min(100, round(SECONDS / max(check["seconds"], 1e-3) * CHECKED)))
            rows[name] = ready | check
            programs.append(program)
        answers = in_turn(programs, rounds, repeats, lambda text: tell(f"  {text}"))
    for name, row in rows.items():
        row["times"] = [answer["seconds"] / answer["rounds"] / row["runs"] for answer in answers[name]]
        row["median"] = machine.median_and_spread(row["times"])
    for row in rows.values():
        row["ratio"] = machine.median_and_spread(
            [a / b for a, b in zip(row["times"], rows[OWN]["times"], strict=True)]
        )[0]
    return rows


def show(rows: dict[str, dict[str, Any]], floor: float) -> None:
    width = max(map(len, rows))
    print(f"  {'':{width}s}  ms per round [quartiles]      x floor   x fedpick   loss, before and after {CHECKED}")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["median"][0]):
        median, low, high = (1e3 * seconds for seconds in row["median"])
        times = f"{median:9.2f} [{low:8.2f}, {high:8.2f}]  {1e-3 * median / floor:8.2f}"
        print(f"  {name:{width}s}  {times}    {row['ratio']:8.2f}   {row['begin']:.3f}  {row['loss']:.3f}")
    print(f"  first call of fedpick, with compilation: {rows[OWN]['first_call']:.1f} s")


def requirements(name: str, device: str, rows: dict[str, dict[str, Any]]) -> list[tuple[str, bool]]:
    """What is asked of fedpick, and whether it holds."""
    first = rows[OWN]["first_call"]
    found = [(f"{name}: first call {first:.1f} s, below {FIRST_CALL:g}", first < FIRST_CALL)]
    peers = [row["ratio"] for name, row in rows.items() if name.startswith("torch")]
    if peers:
        best, wanted = min(peers), WANTED[device][name]
        found.append((f"{name}: {best:.2f} x the best loop of PyTorch, at least {wanted:g}", best >= wanted))
        for other, row in rows.items():
            if other.startswith(f"{OWN},"):
                many = best / row["ratio"]
                found.append((f"{name}: {many:.1f} x with {RUNS} runs, at least {MANY_WANTED:g}", many >= MANY_WANTED))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--python", type=Path, help="an interpreter with PyTorch; by default that of --envs")
    parser.add_argument("--make", action="store_true", help="make the environment of PyTorch first")
    parser.add_argument("--envs", type=Path, default=Path(".peers"), help="where the environments are")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    arguments = parser.parse_args()
    peer = Peer("torch", "torch_models.py", "torch")
    if arguments.make and arguments.python is None:
        make("torch", arguments.envs)
    why = None if arguments.python else missing(peer, arguments.envs)
    torch = arguments.python or (None if why else python(peer, arguments.envs))
    peak = machine.sgemm_peak()
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"matrix product {peak / 1e9:.0f} GFLOP/s; {arguments.repeats} interleaved repeats")
    if torch is None:
        print(f"PyTorch: not measured, {why}")
    tables: dict[str, Any] = {}
    met: list[tuple[str, bool]] = []
    with tempfile.TemporaryDirectory() as folder:
        for workload in (WORKLOADS[name] for name in arguments.model):
            tell(workload.name)
            flop = workload.m * workload.tau * workload.b * workload.train_flop
            rows = measure(workload, torch, arguments.device, arguments.repeats, Path(folder))
            sizes = f"m = {workload.m}, tau = {workload.tau}, b = {workload.b}"
            print(f"\n{workload.name}, {sizes}: {flop / 1e9:.1f} GFLOP a round, floor {1e3 * flop / peak:.2f} ms")
            show(rows, flop / peak)
            met += requirements(workload.name, arguments.device, rows)
            tables[workload.name] = {"flop": flop, "floor": flop / peak, "rows": rows}
    print("\nversions")
    for name, row in next(iter(tables.values()))["rows"].items():
        print(f"  {name}: {row['versions']}")
    print("\nrequirements")
    for text, holds in met:
        print(f"  {'holds' if holds else 'FAILS'}  {text}")
    if arguments.json:
        machine.write_json(arguments.json, {"versions": machine.versions(), "sgemm": peak, "tables": tables})
    return 0 if all(holds for _, holds in met) else 1


if __name__ == "__main__":
    sys.exit(main())
