"""The server of ``fedpick federate``: FedAvg, with the strategy of the run config around it."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedpick.cli.federation.client import CLASSES, DIM, data, log_probabilities, mean_loss
from fedpick.flower import Selecting
from fedpick.registry import strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """The rounds that were asked for."""
    config = context.run_config
    clients, seed, name = int(config["clients"]), int(config["seed"]), str(config["strategy"])
    parameters = {"m": int(config["m"])} | ({"d": int(config["d"])} if "pow-d" in name else {})
    test = [data(client, seed, samples=50) for client in range(clients)]
    x, y = (np.concatenate(parts) for parts in zip(*test, strict=True))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        w = arrays["w"].numpy()
        right = float((log_probabilities(w, x).argmax(axis=1) == y).mean())
        return MetricRecord({"loss": mean_loss(w, x, y), "accuracy": right})

    rounds = Selecting(
        FedAvg(fraction_evaluate=1.0),
        strategy(name, **parameters),
        seed=seed,
        clients=clients,
        batch=32,
        wait=float(config["wait"]),
        poll_timeout=float(config["poll-timeout"]),
        folder=str(config["folder"]) or None,
    )
    first = ArrayRecord({"w": Array(np.zeros((DIM + 1, CLASSES), np.float32))})
    timeout = float(config["train-timeout"])
    rounds.start(grid, first, int(config["rounds"]), timeout=timeout, evaluate_fn=evaluate)
