"""The model in PyTorch, its evaluation in large batches, and the number of threads that is fastest here."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]
from serve import Metrics, Task
from torch import nn
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812

EVALUATION_BATCH = 8192


def make(task: Task) -> Any:
    """A ReLU network with dropout after the last hidden layer; logistic regression from zero without one."""
    layers: list[Any] = []
    for fan_in, fan_out in zip(task.widths[:-2], task.widths[1:-1], strict=True):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    if layers and task.dropout:
        layers.append(nn.Dropout(task.dropout))
    model = nn.Sequential(*layers, nn.Linear(*task.widths[-2:]))
    if len(task.widths) == 2:
        for weights in model.parameters():
            nn.init.zeros_(weights)
    return model


def tensors(task: Task) -> tuple[Any, Any, Any, Any]:
    """Training inputs and labels, test inputs and labels, in memory."""
    x, y, test_x, test_y = (torch.from_numpy(part) for part in (task.x, task.y, task.test_x, task.test_y))
    return x, y, test_x, test_y


def shuffled(count: int, tau: int, b: int) -> Any:
    """Places of tau * b samples, through all of them in shuffled order, again and again."""
    return torch.cat([torch.randperm(count) for _ in range(-(-tau * b // count))])[: tau * b]


def batches(task: Task, data: tuple[Any, ...], client: int) -> Any:
    """The tau batches of min(b, D_k) samples of a client, gathered at once."""
    count = int(task.count[client])
    b = min(task.b, count)
    rows = shuffled(count, task.tau, b) + int(task.start[client])
    return zip(*(part.index_select(0, rows).split(b) for part in data[:2]), strict=True)


def metrics(model: Any, data: tuple[Any, Any, Any, Any]) -> Metrics:
    """Full training loss and test accuracy."""
    x, y, test_x, test_y = data
    model.eval()
    with torch.inference_mode():
        loss = sum(
            F.cross_entropy(model(xs), ys, reduction="sum")
            for xs, ys in zip(x.split(EVALUATION_BATCH), y.split(EVALUATION_BATCH), strict=True)
        )
        right = sum(
            (model(xs).argmax(1) == ys).sum()
            for xs, ys in zip(test_x.split(EVALUATION_BATCH), test_y.split(EVALUATION_BATCH), strict=True)
        )
    return float(loss) / len(y), float(right) / len(test_y)


def mean_loss(model: Any, x: Any, y: Any) -> float:
    """The mean loss over some samples."""
    model.eval()
    with torch.inference_mode():
        return float(F.cross_entropy(model(x), y))


def client_losses(model: Any, task: Task, data: tuple[Any, Any, Any, Any], clients: list[int]) -> list[float]:
    """F_k of some clients, over all their data."""
    x, y, _, _ = data
    return [mean_loss(model, x[task.rows(k)], y[task.rows(k)]) for k in clients]


def choose_threads(play: Callable[[int], Any]) -> int:
    """Try one thread and all cores for a few rounds, and stay with the faster."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seconds: dict[int, list[float]] = {threads: [] for threads in sorted({1, cores})}
    for _ in range(3):
        for threads, taken in seconds.items():
            torch.set_num_threads(threads)
            play(1)
            start = time.perf_counter()
            play(3)
            taken.append(time.perf_counter() - start)
    fastest = min(seconds, key=lambda threads: min(seconds[threads]))
    torch.set_num_threads(fastest)
    return fastest
