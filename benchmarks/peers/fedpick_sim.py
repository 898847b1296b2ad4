"""fedpick itself: ``python fedpick_sim.py workload.npz train|eval rand|pow-d [RUNS]``, RUNS seeds in one program.

A call of ``simulate`` also makes the model and evaluates it before the first round, and after the last in the mode
train; that is in the time. The first call of a number of rounds compiles, which is outside of it and printed.
"""

import itertools
import sys
import time
from typing import Any

import jax
import numpy as np
from serve import Metrics, load, serve

import fedpick
from fedpick import PowerOfChoice, Rand
from fedpick.sim import MLP, Federation, Local, Logistic, simulate
from fedpick.sim.federation import as_float, pixels


def main() -> None:
    task = load()
    with np.load(sys.argv[1]) as arrays:
        x, test_x = arrays["x"], arrays["test_x"]
    federation = Federation.from_arrays(
        x,
        task.y,
        np.repeat(np.arange(task.K), task.count),
        test=(test_x, task.test_y),
        prepare=pixels if x.dtype == np.uint8 else as_float,
    )
    _, *hidden, _ = task.widths
    model: Any = MLP(tuple(hidden), task.dropout) if hidden else Logistic()
    selector: Any = PowerOfChoice(m=task.m, d=task.d) if task.polls else Rand(m=task.m)
    local = Local(tau=task.tau, b=task.b, eta=task.eta)
    runs = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    compiled: dict[int, float] = {}
    seeds = itertools.count()

    def play(number: int) -> Metrics:
        every = 1 if task.evaluates else number
        chosen = list(itertools.islice(seeds, runs))
        result = simulate(federation, model, selector, local, rounds=number, seeds=chosen, every=every, progress=False)
        loss, accuracy = (result.metrics[name][:, -1].mean() for name in ("loss", "test_accuracy"))
        return float(loss), float(accuracy)

    def compile_once(number: int) -> dict[str, Any]:
        if number not in compiled:
            start = time.perf_counter()
            play(number)
            compiled[number] = time.perf_counter() - start
        return {"first_call": compiled[number]}

    def nothing_left() -> Metrics:
        raise AssertionError("simulate always evaluates")

    serve({"fedpick": fedpick.__version__, "jax": jax.__version__}, compile_once, play, nothing_left, runs=runs)


main()
