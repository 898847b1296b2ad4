"""torch.func: the m clients at once, ``vmap(grad)`` over stacked parameters; the rest as in the tuned loop."""

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from serve import Metrics, Task, load, rounds, serve
from torch.func import functional_call, grad, vmap  # type: ignore[import-not-found]
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812


def batches(task: Task, client: int) -> tuple[Any, Any]:
    """Rows by tau and b, through the client's shuffled data again and again; and what each slot weighs in the mean."""
    count = int(task.count[client])
    b = min(task.b, count)
    order = torch_model.shuffled(count, task.tau, b).view(task.tau, b)
    weight = torch.zeros(task.b)
    weight[:b] = 1 / b
    return F.pad(order, (0, task.b - b)) + int(task.start[client]), weight


def main() -> None:
    task = load()
    rng = np.random.default_rng(0)
    data = torch_model.tensors(task)
    x, y = data[:2]
    model = torch_model.make(task)
    names = [name for name, _ in model.named_parameters()]

    def fresh(number: int) -> None:
        model.load_state_dict(torch_model.make(task).state_dict())

    def batch_loss(params: tuple[Any, ...], xs: Any, ys: Any, weight: Any) -> Any:
        logits = functional_call(model, dict(zip(names, params, strict=True)), (xs,))
        return F.cross_entropy(logits, ys, reduction="none") @ weight

    gradient = vmap(grad(batch_loss), randomness="different")

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def one_round() -> None:
        clients = task.select(rng, lambda asked: torch_model.client_losses(model, task, data, asked))
        model.train()
        params = [w.expand(task.m, *w.shape).clone() for w in model.parameters()]
        index, weight = map(torch.stack, zip(*(batches(task, client) for client in clients), strict=True))
        for rows in index.unbind(1):
            xs = x.index_select(0, rows.reshape(-1)).view(task.m, task.b, -1)
            ys = y.index_select(0, rows.reshape(-1)).view(task.m, task.b)
            torch._foreach_add_(params, gradient(tuple(params), xs, ys, weight), alpha=-task.eta)
        for global_weights, stacked in zip(model.parameters(), params, strict=True):
            global_weights.copy_(stacked.mean(0))

    def evaluate() -> Metrics:
        return torch_model.metrics(model, data)

    play = rounds(task, one_round, evaluate)
    threads = torch_model.choose_threads(play)
    serve({"torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
