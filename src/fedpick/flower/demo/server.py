"""The server of ``fedpick federate``: FedAvg, with the strategy that the run config names around it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedpick.flower import Selecting
from fedpick.flower.demo.client import CLASSES, DIM, accuracy, data, mean_loss
from fedpick.protocol import Selector
from fedpick.registry import fitting_strategy

app = ServerApp()


def build_selector(config: Mapping[str, Any]) -> Selector[Any]:
    """The strategy that a run config names, with those of its parameters that the strategy takes.

    >>> build_selector({"strategy": "full", "m": 2, "d": 4, "rounds": 10})
    Full()
    """
    m, d, rounds = (int(config[name]) for name in ("m", "d", "rounds"))
    selector: Selector[Any] = fitting_strategy(str(config["strategy"]), m=m, d=d, rounds=rounds, classes=CLASSES)
    return selector


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of the run config."""
    play(grid, context)


def play(grid: Grid, context: Context, **options: Any) -> None:
    """Run the rounds of the run config, with these options of ``Selecting``."""
    config = context.run_config
    clients, rounds, seed = int(config["clients"]), int(config["rounds"]), int(config["seed"])
    test = [data(client, seed, samples=50) for client in range(clients)]
    x, y = (np.concatenate(parts) for parts in zip(*test, strict=True))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        w = arrays["w"].numpy()
        return MetricRecord({"loss": mean_loss(w, x, y), "accuracy": accuracy(w, x, y)})

    selecting = Selecting(
        FedAvg(fraction_evaluate=1.0),
        build_selector(config),
        seed=seed,
        clients=clients,
        batch=32,
        wait=float(config["wait"]),
        poll_timeout=float(config["poll-timeout"]),
        folder=str(config["folder"]) or None,
        **options,
    )
    first = ArrayRecord({"w": Array(np.zeros((DIM + 1, CLASSES), np.float32))})
    selecting.start(grid, first, rounds, timeout=float(config["train-timeout"]), evaluate_fn=evaluate)
