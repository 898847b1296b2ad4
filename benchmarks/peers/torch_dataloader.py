"""The naive loop by hand: a DataLoader per client over a Subset of normalised images, one client after the other."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from serve import Metrics, load, rounds, serve
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset  # type: ignore[import-not-found]


def endless(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    task = load()
    rng = np.random.default_rng(0)
    data = torch_model.tensors(task)
    training, test = TensorDataset(*data[:2]), TensorDataset(*data[2:])
    clients = [Subset(training, range(task.rows(k).start, task.rows(k).stop)) for k in range(task.K)]
    objective = nn.CrossEntropyLoss()
    model = torch_model.make(task)

    def fresh(number: int) -> None:
        model.load_state_dict(torch_model.make(task).state_dict())

    def mean_loss_and_accuracy(dataset: Any) -> Metrics:
        model.eval()
        loss = right = 0.0
        with torch.no_grad():
            for x, y in DataLoader(dataset, batch_size=1024):
                logits = model(x)
                loss += objective(logits, y).item() * len(y)
                right += (logits.argmax(1) == y).sum().item()
        return loss / len(dataset), right / len(dataset)

    def train(client: int) -> dict[str, Any]:
        local = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(local.parameters(), lr=task.eta)
        b = min(task.b, int(task.count[client]))
        loader = DataLoader(clients[client], batch_size=b, shuffle=True, drop_last=True)
        for x, y in itertools.islice(endless(loader), task.tau):
            optimizer.zero_grad()
            objective(local(x), y).backward()
            optimizer.step()
        state: dict[str, Any] = local.state_dict()
        return state

    def one_round() -> None:
        chosen = task.select(rng, lambda asked: [mean_loss_and_accuracy(clients[k])[0] for k in asked])
        states = [train(client) for client in chosen]
        model.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})

    def evaluate() -> Metrics:
        return mean_loss_and_accuracy(training)[0], mean_loss_and_accuracy(test)[1]

    play = rounds(task, one_round, evaluate)
    threads = torch_model.choose_threads(play)
    serve({"torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
