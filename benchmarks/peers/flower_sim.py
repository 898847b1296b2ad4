"""Flower: its simulation on Ray, one worker per core, with the strategy ``FedAvg`` and evaluation by the server."""

import logging
import os
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from flower_client import app
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from serve import Metrics, Task, load, serve


def _metrics(answer: Message) -> Any:
    return answer.content["metrics"]


class Chosen(FedAvg):
    """FedAvg whose clients are drawn by size, or polled for their loss first."""

    def __init__(self, task: Task, grid: Grid, first: RecordDict) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.task, self.rng = task, np.random.default_rng(0)
        self.nodes: dict[int, int] = {}  # by client, who are asked once for their number
        while len(nodes := list(grid.get_node_ids())) < task.K:
            time.sleep(0.1)
        for answer in self.ask(grid, first, nodes):
            self.nodes[int(_metrics(answer)["client"])] = answer.metadata.src_node_id

    def ask(self, grid: Grid, record: RecordDict, nodes: list[int]) -> list[Message]:
        """The answers of these nodes to an evaluation."""
        return list(grid.send_and_receive(self._construct_messages(record, nodes, MessageType.EVALUATE)))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to those who train."""
        record = RecordDict({"arrays": arrays, "config": config})

        def losses(clients: list[int]) -> list[float]:
            metrics = [_metrics(answer) for answer in self.ask(grid, record, [self.nodes[k] for k in clients])]
            by_client = {int(metric["client"]): float(metric["loss"]) for metric in metrics}
            return [by_client[k] for k in clients]

        nodes = [self.nodes[k] for k in self.task.select(self.rng, losses)]
        return list(self._construct_messages(record, nodes, MessageType.TRAIN))


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    task = load()
    data = torch_model.tensors(task)
    model = torch_model.make(task)
    config = ConfigRecord({"workload": str(Path(sys.argv[1]).absolute())})
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        arrays = ArrayRecord(model.state_dict())
        strategy = Chosen(task, grid, RecordDict({"arrays": arrays, "config": config}))

        def fresh(number: int) -> None:
            nonlocal arrays
            arrays = ArrayRecord(torch_model.make(task).state_dict())

        def metrics(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round == 0:
                return None
            model.load_state_dict(arrays.to_torch_state_dict())
            loss, accuracy = torch_model.metrics(model, data)
            return MetricRecord({"loss": loss, "accuracy": accuracy})

        def play(number: int) -> None:
            nonlocal arrays
            evaluate_fn = metrics if task.evaluates else None
            result = strategy.start(grid, arrays, number, train_config=config, evaluate_fn=evaluate_fn)
            arrays = result.arrays

        def evaluate() -> Metrics:
            model.load_state_dict(arrays.to_torch_state_dict())
            return torch_model.metrics(model, data)

        play(3)
        versions = {"flwr": version("flwr"), "ray": version("ray"), "torch": torch.__version__}
        serve(versions, fresh, play, evaluate, helped=True)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    settings: Any = {"client_resources": resources, "init_args": {"num_cpus": os.cpu_count(), "log_to_driver": False}}
    run_simulation(server, app, num_supernodes=task.K, backend_config=settings)


main()
