"""The tuned loop by hand: tensors in memory, batches by index, ``torch.optim.SGD``, evaluation in large batches."""

import copy
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from serve import Metrics, load, rounds, serve
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812


def main() -> None:
    task = load()
    rng = np.random.default_rng(0)
    data = torch_model.tensors(task)
    model = torch_model.make(task)

    def fresh(number: int) -> None:
        model.load_state_dict(torch_model.make(task).state_dict())

    def train(client: int) -> None:
        count, start = int(task.count[client]), int(task.start[client])
        optimizer = torch.optim.SGD(model.parameters(), lr=task.eta)
        model.train()
        for _ in range(task.tau):
            rows = start + torch.randperm(count)[: task.b]
            loss = F.cross_entropy(model(data[0][rows]), data[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def one_round() -> None:
        clients = task.select(rng, lambda asked: torch_model.client_losses(model, task, data, asked))
        server = copy.deepcopy(model.state_dict())
        total: dict[str, Any] = {name: torch.zeros_like(weights) for name, weights in server.items()}
        for client in clients:
            model.load_state_dict(server)
            train(client)
            for name, weights in model.state_dict().items():
                total[name] += weights / task.m
        model.load_state_dict(total)

    def evaluate() -> Metrics:
        return torch_model.metrics(model, data)

    play = rounds(task, one_round, evaluate)
    fresh(0)
    threads = torch_model.choose_threads(play)
    serve({"torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
