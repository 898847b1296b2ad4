"""The fastest PyTorch loop we could write: all batches of a client gathered at once, no optimiser, fused updates."""

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
    params = list(model.parameters())
    server: list[Any] = []

    def fresh(number: int) -> None:
        server[:] = [w.detach() for w in torch_model.make(task).parameters()]
        put(server)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def put(weights: list[Any]) -> None:
        torch._foreach_copy_(params, weights)

    def train(client: int) -> None:
        model.train()
        for x, y in torch_model.batches(task, data, client):
            loss = F.cross_entropy(model(x), y)
            gradient = torch.autograd.grad(loss, params)
            with torch.no_grad():
                torch._foreach_add_(params, gradient, alpha=-task.eta)

    def one_round() -> None:
        clients = task.select(rng, lambda asked: torch_model.client_losses(model, task, data, asked))
        total = [torch.zeros_like(w) for w in server]
        for client in clients:
            put(server)
            train(client)
            with torch.no_grad():
                torch._foreach_add_(total, params, alpha=1 / task.m)
        server[:] = total
        put(server)

    def evaluate() -> Metrics:
        return torch_model.metrics(model, data)

    play = rounds(task, one_round, evaluate)
    fresh(0)
    threads = torch_model.choose_threads(play)
    serve({"torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
