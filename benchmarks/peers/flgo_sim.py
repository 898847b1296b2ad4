"""FLGo: its horizontal runner on a task of one's own, with clients drawn by size, or polled for their loss first.

A client that is drawn twice in a round trains once in FLGo and counts twice: its rounds are a little shorter. Its own
``powerofchoice`` takes the ranks of the candidates for numbers of clients and so seats others than it polled; the poll
here is the same, and seats the right ones.
"""

import vision_schema  # noqa: F401

# isort: split
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flgo  # type: ignore[import-not-found]
import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from flgo.algorithm import fedavg  # type: ignore[import-not-found]
from flgo.experiment.logger import BasicLogger  # type: ignore[import-not-found]
from flgo_task import data, task
from serve import Metrics, serve


class Logger(BasicLogger):  # type: ignore[misc]
    """Evaluates after each round, but not before the first, and writes nothing."""

    def log_once(self, *arguments: Any, **options: Any) -> None:
        if self.coordinator.started:
            torch_model.metrics(self.coordinator.model, data)
        self.coordinator.started = True

    def save_output_as_json(self, *arguments: Any, **options: Any) -> None:
        pass


class Server(fedavg.Server):  # type: ignore[misc]
    """FedAvg with the selection of the workload."""

    rng = np.random.default_rng(0)
    started = False

    def sample(self) -> list[int]:
        return task.select(self.rng, lambda asked: [self.clients[k].test(self.model, "train")["loss"] for k in asked])


class Algorithm:
    """What FLGo takes for an algorithm."""

    Server = Server
    Client = fedavg.Client


def main() -> None:
    sys.argv[1] = str(Path(sys.argv[1]).absolute())  # FLGo imports the task once more, from its folder
    option = {
        "num_steps": task.tau,
        "batch_size": task.b,
        "learning_rate": task.eta,
        "proportion": task.m / task.K,
        "aggregate": "uniform",
        "train_holdout": 0.0,
        "eval_interval": 1 if task.evaluates else -1,
        "no_log_console": True,
        "no_tqdm": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(__file__).with_name("flgo_task.py").absolute()
        os.chdir(folder)
        sys.path.append(folder)
        path = flgo.gen_direct_task_from_file("workload", str(configuration), folder)
        server = flgo.init(path, Algorithm, option, Logger=Logger)

        def fresh(number: int) -> None:
            server.model.model.load_state_dict(torch_model.make(task).state_dict())

        def play(number: int) -> None:
            server.current_round, server.num_rounds, server.started = 1, number, not task.evaluates
            server.run()

        def evaluate() -> Metrics:
            return torch_model.metrics(server.model, data)

        threads = torch_model.choose_threads(play)
        serve({"flgo": version("flgo"), "torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
