"""FedLab: its standalone pipeline with the serial SGD trainer, on a data set that hands out batches by index."""

import vision_schema  # noqa: F401

# isort: split
from importlib.metadata import version
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # type: ignore[import-not-found]
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # type: ignore[import-not-found]
from fedlab.contrib.dataset.basic_dataset import FedDataset  # type: ignore[import-not-found]
from fedlab.core.standalone import StandalonePipeline  # type: ignore[import-not-found]
from serve import Metrics, Task, load, serve


class Tensors(FedDataset):  # type: ignore[misc]
    """Clients' data in memory; one pass of the loader is tau batches."""

    def __init__(self, task: Task, data: tuple[Any, Any, Any, Any]) -> None:
        self.task, self.data = task, data

    def get_dataloader(self, id: int, batch_size: int) -> Any:
        return torch_model.batches(self.task, self.data, id)


class Server(SyncServerHandler):  # type: ignore[misc]
    """The synchronous server with the clients drawn by size, or polled for their loss first."""

    def __init__(self, task: Task, data: tuple[Any, Any, Any, Any], model: Any) -> None:
        super().__init__(model, global_round=0, sample_ratio=task.m / task.K)
        self.task, self.data, self.rng = task, data, np.random.default_rng(0)

    @property
    def num_clients_per_round(self) -> int:
        """The seats of a round."""
        return self.task.m

    def sample_clients(self) -> list[int]:
        return self.task.select(
            self.rng, lambda asked: torch_model.client_losses(self.model, self.task, self.data, asked)
        )


class Pipeline(StandalonePipeline):  # type: ignore[misc]
    """The standalone pipeline with evaluation after each round, where it is asked for."""

    def evaluate(self) -> None:
        if self.handler.task.evaluates:
            self.found = torch_model.metrics(self.handler.model, self.handler.data)


def main() -> None:
    task = load()
    data = torch_model.tensors(task)
    server = Server(task, data, torch_model.make(task))
    trainer = SGDSerialClientTrainer(torch_model.make(task), task.K)
    trainer.setup_dataset(Tensors(task, data))
    trainer.setup_optim(epochs=1, batch_size=task.b, lr=task.eta)
    pipeline = Pipeline(server, trainer)

    def fresh(number: int) -> None:
        server.model.load_state_dict(torch_model.make(task).state_dict())

    def play(number: int) -> None:
        server.round, server.global_round = 0, number
        pipeline.main()

    def evaluate() -> Metrics:
        return torch_model.metrics(server.model, data)

    threads = torch_model.choose_threads(play)
    serve({"fedlab": version("fedlab"), "torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
