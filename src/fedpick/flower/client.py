"""For the client's side: the mean loss over one's data in NumPy, PyTorch or JAX, and the reply to a poll.

Nothing here is needed: the six lines in docs/flower.md do the same without an import of ours. PyTorch and JAX are
imported when they are used.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedpick.validation import natural

Losses = Callable[[Any, Any], Any]


def answer(
    message: Message,
    context: Context,
    num_examples: int,
    loss: Callable[[ArrayRecord, int | None], float],
    name: str | None = None,
) -> Message:
    """The reply to a roll call or a poll: how much data there is, who this is, and the loss if a model was sent.

    ``loss(arrays, b)`` gets the model, and the size of the mini-batch that cpow-d asks for (None: all the data). The
    client is known by ``name``, or by the partition-id in its node config.
    """
    metrics: dict[str, Any] = {"num-examples": num_examples}
    content = RecordDict()
    if name is not None:
        content["client"] = ConfigRecord({"name": name})
    elif "partition-id" in context.node_config:
        metrics["partition-id"] = int(context.node_config["partition-id"])
    arrays = list(message.content.array_records.values())
    if arrays:
        settings = {key: value for record in message.content.config_records.values() for key, value in record.items()}
        batch = settings.get("batch-size")
        metrics["loss"] = float(loss(arrays[0], batch if isinstance(batch, int) else None))
    content["metrics"] = MetricRecord(metrics)
    return Message(content, reply_to=message)


def numpy_loss(losses: Losses, loader: Iterable[tuple[Any, Any]], batch: int | None = None) -> float:
    """The mean of ``losses(x, y)``, one for each sample, over a loader of (x, y); or over its first ``batch`` samples.

    For an estimate by a mini-batch the loader must shuffle.

    >>> numpy_loss(lambda x, y: (x - y) ** 2, [(np.array([1.0, 2.0]), np.array([0.0, 0.0])), (np.ones(1), np.ones(1))])
    1.6666666666666667
    """
    total, number = 0.0, 0
    for x, y in _first(loader, batch):
        total += float(np.asarray(losses(x, y), np.float64).sum())
        number += len(y)
    return _mean(total, number)


def torch_loss(
    model: Any,
    loader: Iterable[tuple[Any, Any]],
    batch: int | None = None,
    criterion: Callable[[Any, Any], Any] | None = None,
    device: Any = None,
) -> float:
    """The mean loss of a PyTorch module over a loader of (x, y), or over its first ``batch`` samples; no gradients.

    ``criterion(output, y)`` is a mean over its batch, cross-entropy unless given. The module is as it was afterwards.
    """
    torch: Any = importlib.import_module("torch")
    criterion = torch.nn.functional.cross_entropy if criterion is None else criterion
    training = model.training
    model.eval()
    total, number = 0.0, 0
    try:
        with torch.no_grad():
            for x, y in _first(loader, batch):
                x, y = (x, y) if device is None else (x.to(device), y.to(device))
                total += float(criterion(model(x), y)) * len(y)
                number += len(y)
    finally:
        model.train(training)
    return _mean(total, number)


def jax_loss(
    losses: Callable[[Any, Any, Any], Any], params: Any, loader: Iterable[tuple[Any, Any]], batch: int | None = None
) -> float:
    """The mean of ``losses(params, x, y)``, one for each sample, as ``numpy_loss`` takes it; compiled.

    >>> jax_loss(lambda w, x, y: (w * x - y) ** 2, 2.0, [(np.array([1.0, 2.0]), np.array([0.0, 4.0]))])
    2.0
    """
    import jax

    compiled = jax.jit(losses)
    return numpy_loss(lambda x, y: compiled(params, x, y), loader, batch)


def _first(loader: Iterable[tuple[Any, Any]], batch: int | None) -> Iterable[tuple[Any, Any]]:
    """The loader's (x, y), cut after ``batch`` samples."""
    if batch is None:
        yield from loader
        return
    left = natural("client", "batch", batch)
    for x, y in loader:
        yield x[:left], y[:left]
        left -= len(y)
        if left <= 0:
            return


def _mean(total: float, number: int) -> float:
    if number == 0:
        raise ValueError("client: loader must give at least 1 sample, got none")
    return total / number
