"""What all programs of the comparison share: reading the workload, drawing clients, and playing rounds on request.

    python PROGRAM workload.npz train|eval rand|pow-d

A program prints {"ready": true, "versions": ...}, or false and why. Then for every number N on standard input it plays
N rounds from a fresh model and prints {"seconds": ..., "loss": ..., "test_accuracy": ...}: the wall time of the rounds,
with test accuracy and full training loss after each of them in the mode eval, and the metrics after the last.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
Metrics = tuple[float, float]  # full training loss, test accuracy


@dataclass(frozen=True)
class Task:
    """A workload as arrays; client k holds the rows start[k] to start[k] + count[k] - 1."""

    x: Numbers
    y: Numbers
    start: Numbers
    count: Numbers
    test_x: Numbers
    test_y: Numbers
    K: int
    m: int
    d: int
    tau: int
    b: int
    eta: float
    widths: tuple[int, ...]
    dropout: float
    evaluates: bool
    polls: bool

    @property
    def share(self) -> Numbers:
        """p_k, each client's part of the data."""
        share: Numbers = self.count / self.count.sum()
        return share

    def rows(self, client: int) -> slice:
        """Where a client's samples are."""
        return slice(int(self.start[client]), int(self.start[client] + self.count[client]))

    def select(self, rng: np.random.Generator, losses: Callable[[list[int]], list[float]]) -> list[int]:
        """Who trains: m draws by share, or of d distinct candidates the m whose full local loss is highest."""
        if not self.polls:
            return [int(k) for k in rng.choice(self.K, self.m, p=self.share)]
        candidates = [int(k) for k in rng.choice(self.K, self.d, replace=False, p=self.share)]
        by_loss = sorted(zip(losses(candidates), candidates, strict=True), reverse=True)
        return [client for _, client in by_loss[: self.m]]


def load(path: str | None = None) -> Task:
    """The workload of this file or the one named on the command line, its inputs normalised once."""
    named, mode, selection = (*sys.argv[1:], "", "", "")[:3]
    path = path or named
    with np.load(Path(path)) as arrays:
        whole = {name: arrays[name] for name in arrays.files if name != "name"}
    scalars = {name: whole[name].item() for name in ("K", "m", "d", "tau", "b", "eta", "dropout")}
    inputs = {name: normalised(whole[name]) for name in ("x", "test_x")}
    labels = {name: whole[name].astype(np.int64) for name in ("y", "test_y")}
    widths = tuple(int(width) for width in whole["widths"])
    rest = {"widths": widths, "evaluates": mode == "eval", "polls": selection == "pow-d"}
    return Task(**{**whole, **scalars, **inputs, **labels, **rest})


def normalised(x: Numbers) -> Numbers:
    """Bytes as (x / 255 - 0.1307) / 0.3081; other numbers as they are."""
    if x.dtype != np.uint8:
        return x
    return x.astype(np.float32) * np.float32(1 / 255 / 0.3081) - np.float32(0.1307 / 0.3081)


def refuse(why: str) -> None:
    """Say that this program cannot do what is asked, and leave."""
    print(json.dumps({"ready": False, "why": why}), flush=True)
    sys.exit(0)


def serve(
    versions: dict[str, str],
    prepare: Callable[[int], dict[str, Any] | None],
    play: Callable[[int], Metrics | None],
    evaluate: Callable[[], Metrics],
    helped: bool = False,
    **also: Any,
) -> None:
    """Answer requests until the input ends.

    ``prepare(N)`` makes a fresh model, outside of the time; what it returns is told in the answer. ``play(N)`` returns
    the metrics where it has them anyway. ``helped`` says that other processes work for this one.
    """
    print(json.dumps({"ready": True, "versions": versions, **also}), flush=True)
    for line in sys.stdin:
        number, before = int(line), time.process_time()
        told = prepare(number) or {}
        start = time.perf_counter()
        found = play(number)
        seconds = time.perf_counter() - start
        loss, test_accuracy = found or evaluate()
        metrics = {"loss": float(loss), "test_accuracy": float(test_accuracy)}
        told["cpu"] = None if helped else time.process_time() - before  # of all that was done for this line
        print(json.dumps({"seconds": seconds, **metrics, "memory": most_memory(), **told}), flush=True)


def most_memory() -> int:
    """The most bytes of memory this process has held at a time, its helpers not counted."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # ru_maxrss of Linux would also count what the parent held when it started this process.
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def rounds(task: Task, one: Callable[[], Any], evaluate: Callable[[], Metrics]) -> Callable[[int], Metrics | None]:
    """The plain loop of a program that has no loop of its own."""

    def play(number: int) -> Metrics | None:
        found = None
        for _ in range(number):
            one()
            found = evaluate() if task.evaluates else None
        return found

    return play
