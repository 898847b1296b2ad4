"""fedpick with a model of the zoo: ``python fedpick_models.py workload.npz NAME [RUNS]``, RUNS seeds in one call.

The time of N rounds is that of a call of 2N rounds less that of one of N, so that neither the model's making nor the
first and last evaluation count. The first call compiles, and is printed.
"""

import json
import sys
import time
from typing import Any

import jax
import numpy as np
from model_workloads import WORKLOADS, load
from serve import most_memory

import fedpick
from fedpick import Rand
from fedpick.sim import CNN, CharLSTM, Federation, Local, ResNet, Transformer, pixels, simulate
from fedpick.sim.federation import as_float


def main() -> None:
    file, name, *rest = sys.argv[1:]
    runs = int(rest[0]) if rest else 1
    workload, arrays = WORKLOADS[name], load(file)
    prepare = as_float if workload.T else pixels
    federation = Federation.from_arrays(
        arrays["x"], arrays["y"], arrays["client"], classes=workload.classes, prepare=prepare
    )
    specs: dict[str, Any] = {
        "cnn": CNN(),
        "resnet": ResNet(workload.channels),
        "lstm": CharLSTM(128, 8, workload.hidden or 1, layers=workload.layers or 1),
        "transformer": Transformer(workload.hidden or 4, workload.layers or 1, workload.rank or 1, vocabulary=128),
    }
    local = Local(tau=workload.tau, b=workload.b, eta=workload.eta)

    def call(number: int) -> tuple[float, Any]:
        start = time.perf_counter()
        options: dict[str, Any] = {"rounds": number, "every": number, "seeds": runs, "progress": False}
        result = simulate(federation, specs[name], Rand(m=workload.m), local, **options)
        jax.block_until_ready(result.params)  # type: ignore[no-untyped-call]
        return time.perf_counter() - start, result.metrics["loss"]

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)

    say({"ready": True, "versions": {"fedpick": fedpick.__version__, "jax": jax.__version__}, "runs": runs})
    first: dict[int, float] = {}
    for line in sys.stdin:
        number, before = int(line), time.process_time()
        if number not in first:
            first[number] = call(number)[0]
            call(2 * number)
        (short, loss), (long, _) = call(number), call(2 * number)
        told = {"seconds": long - short, "first_call": first[number], "memory": most_memory()}
        told |= {"begin": float(np.mean(loss[:, 0])), "loss": float(np.mean(loss[:, -1]))}
        say(told | {"cpu": time.process_time() - before})


main()
