"""Helpers for clients: the mean loss over the local data in NumPy, PyTorch or JAX, and the reply to a query.

They are optional: the six lines in docs/flower.md do the same without fedpick. PyTorch and JAX are imported on use.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedpick.flower.privacy import Privacy, settings_of
from fedpick.validation import natural

Losses = Callable[[Any, Any], Any]
Train = Callable[[ArrayRecord, Mapping[str, Any]], tuple[ArrayRecord, Mapping[str, float]]]
ARRAYS, METRICS = "fedpick-arrays", "fedpick-metrics"  # where a client keeps what it has trained for a poll


def answer(
    message: Message,
    context: Context,
    num_examples: int,
    loss: Callable[[ArrayRecord, int | None], float],
    *,
    name: str | None = None,
    train: Train | None = None,
    privacy: Privacy | None = None,
) -> Message:
    """The reply to a roll call or a poll: the number of examples, the identity, and the loss if a model was sent.

    A strategy that polls by training (optimal client sampling) gets the norm of the update instead, and the client
    keeps what it has trained until ``kept_update`` sends it.

    Args:
        message: The query.
        context: The context of the client app.
        num_examples: The number of local examples.
        loss: ``loss(arrays, b)``, the loss of the model in ``arrays`` over a mini-batch of b examples, which cpow-d
            asks for, or over all the data where b is None.
        name: A stable name of the client; the partition-id in its node config unless given.
        train: ``train(arrays, config)``, local training: the trained arrays, and the metrics of a training reply.
        privacy: How to disguise the loss; the plain loss is sent unless given.
    """
    metrics: dict[str, Any] = {"num-examples": num_examples}
    content = RecordDict()
    if name is not None:
        content["client"] = ConfigRecord({"name": name})
    elif "partition-id" in context.node_config:
        metrics["partition-id"] = int(context.node_config["partition-id"])
    arrays = list(message.content.array_records.values())
    if arrays:
        settings = settings_of(message)
        batch = settings.get("batch-size")
        if settings.get("fedpick-poll") == "norm":
            metrics["norm"] = _train_and_keep(arrays[0], settings, context, train)
        else:
            if privacy is not None and not privacy.is_heard(message):
                rule = (
                    "the server's strategy must be a fedpick.Private with the mechanism 'bit', as the client's Privacy"
                )
                raise ValueError(f"answer: {rule}, got a poll without a threshold")
            said: float | None = float(loss(arrays[0], batch if isinstance(batch, int) else None))
            said = said if privacy is None or said is None else privacy.disguise(said, message, context)
            metrics |= {"budget-spent": 1} if said is None else {"loss": said}
    content["metrics"] = MetricRecord(metrics)
    return Message(content, reply_to=message)


def _train_and_keep(arrays: ArrayRecord, settings: Mapping[str, Any], context: Context, train: Train | None) -> float:
    """The norm of the update that training gives; the trained arrays stay in the client's context."""
    if train is None:
        raise ValueError("answer: train must be given for a strategy that polls by training, got None")
    trained, metrics = train(arrays, settings)
    context.state[ARRAYS] = trained
    context.state[METRICS] = MetricRecord({**metrics, "server-round": int(settings["server-round"])})
    before = {key: values for key, array in arrays.items() if (values := array.numpy()).dtype.kind == "f"}
    changes = [np.asarray(trained[key].numpy() - values, np.float64) for key, values in before.items()]
    return float(np.sqrt(sum(np.square(change).sum() for change in changes)))


def kept_update(message: Message, context: Context) -> Message | None:
    """The reply to a training message with what a poll of the same round has trained; None where there is none.

    Args:
        message: The training message.
        context: The context of the client app.
    """
    if METRICS not in context.state:
        return None
    metrics = dict(context.state.metric_records[METRICS])
    settings = settings_of(message)
    if metrics.pop("server-round") != settings.get("server-round"):
        return None
    content = RecordDict({"arrays": context.state.array_records[ARRAYS], "metrics": MetricRecord(metrics)})
    del context.state[ARRAYS], context.state[METRICS]
    return Message(content, reply_to=message)


def numpy_loss(losses: Losses, loader: Iterable[tuple[Any, Any]], batch: int | None = None) -> float:
    """The mean of ``losses(x, y)`` over the samples of a loader.

    Args:
        losses: The loss of each sample of a batch (x, y).
        loader: Batches (x, y).
        batch: Take the first samples only, this many: an estimate, for which the loader must shuffle.

    >>> numpy_loss(lambda x, y: (x - y) ** 2, [(np.array([1.0, 2.0]), np.array([0.0, 0.0])), (np.ones(1), np.ones(1))])
    1.6666666666666667
    """
    limit = None if batch is None else natural("client", "batch", batch)
    total, number = 0.0, 0
    for x, y in loader:
        if limit is not None:
            x, y = x[: limit - number], y[: limit - number]
        total += float(np.asarray(losses(x, y), np.float64).sum())
        number += len(y)
        if number == limit:
            break
    if number == 0:
        raise ValueError("client: loader must give at least 1 sample, got none")
    return total / number


def torch_loss(
    model: Any,
    loader: Iterable[tuple[Any, Any]],
    batch: int | None = None,
    *,
    criterion: Callable[[Any, Any], Any] | None = None,
    device: Any = None,
) -> float:
    """The mean loss of a PyTorch module over the samples of a loader, without gradients, in evaluation mode.

    Args:
        model: The module; its mode is restored.
        loader: Batches (x, y).
        batch: Take the first samples only, this many.
        criterion: ``criterion(output, y)``, a mean over its batch; cross-entropy unless given.
        device: Where to move the batches.
    """
    torch: Any = importlib.import_module("torch")
    criterion = torch.nn.functional.cross_entropy if criterion is None else criterion

    def total(x: Any, y: Any) -> float:
        x, y = (x, y) if device is None else (x.to(device), y.to(device))
        return float(criterion(model(x), y)) * len(y)

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return numpy_loss(total, loader, batch)
    finally:
        model.train(training)


def jax_loss(
    losses: Callable[[Any, Any, Any], Any], params: Any, loader: Iterable[tuple[Any, Any]], batch: int | None = None
) -> float:
    """The mean of ``losses(params, x, y)``, compiled, over the samples of a loader.

    Args:
        losses: The loss of each sample of a batch (x, y).
        params: The model.
        loader: Batches (x, y).
        batch: Take the first samples only, this many.

    >>> jax_loss(lambda w, x, y: (w * x - y) ** 2, 2.0, [(np.array([1.0, 2.0]), np.array([0.0, 4.0]))])
    2.0
    """
    import jax

    compiled = jax.jit(losses)
    return numpy_loss(lambda x, y: compiled(params, x, y), loader, batch)
