"""The client of ``fedpick federate``: logistic regression in NumPy.

It imports nothing of fedpick, as yours need not: every message to a client starts a process, and this one starts fast.
"""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

DIM, CLASSES = 20, 5

app = ClientApp()


def data(client: int, seed: int, samples: int | None = None) -> tuple[Any, Any]:
    """The inputs and labels of a client, whose distribution is its own, as is the number of samples unless given."""
    rng = np.random.default_rng([seed, client])
    size = int(rng.integers(40, 400)) if samples is None else samples
    common = np.random.default_rng([seed]).normal(size=(DIM, CLASSES))
    own, centre = rng.normal(size=(DIM, CLASSES)), rng.normal(size=DIM)
    x = centre + np.random.default_rng([seed, client, samples or 0]).normal(size=(size, DIM))
    return x.astype(np.float32), np.argmax(x @ (common + 0.7 * own), axis=1)


def log_probabilities(w: Any, x: Any) -> Any:
    """Of all classes, for all samples."""
    logits = x @ w[:-1] + w[-1]
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def mean_loss(w: Any, x: Any, y: Any) -> float:
    """Cross-entropy, averaged in double precision: clients that are tied, as at a model of zeros, stay tied."""
    return float(-log_probabilities(w, x)[np.arange(len(y)), y].mean(dtype=np.float64))


def accuracy(w: Any, x: Any, y: Any) -> float:
    """The share of samples that are classified correctly."""
    return float((log_probabilities(w, x).argmax(axis=1) == y).mean())


def sgd(w: Any, x: Any, y: Any, *, steps: int, batch: int, rate: float, rng: Any) -> tuple[Any, float, float]:
    """The model after some steps of stochastic gradient descent, and the mean loss and square loss on the way."""
    losses, squares = [], []
    for _ in range(steps):
        some = rng.choice(len(y), min(batch, len(y)), replace=False)
        log_p = log_probabilities(w, x[some])
        of_samples = -log_p[np.arange(len(some)), y[some]]
        losses.append(of_samples.mean())
        squares.append(np.square(of_samples).mean())
        slope = (np.exp(log_p) - np.eye(CLASSES)[y[some]]) / len(some)
        gradient = np.concatenate([x[some].T @ slope, slope.sum(axis=0)[None]])
        w = (w - rate * gradient).astype(np.float32)
    return w, float(np.mean(losses)), float(np.mean(squares))


def _load(context: Context) -> tuple[int, Any, Any]:
    client = int(context.node_config["partition-id"])
    return client, *data(client, int(context.run_config["seed"]))


@app.query("loss")
def loss(message: Message, context: Context) -> Message:
    """How much data there is and, when a model is sent, its loss: the six lines that Power-of-Choice needs."""
    client, x, y = _load(context)
    metrics: dict[str, Any] = {"num-examples": len(y), "partition-id": client}
    if "arrays" in message.content:
        w, config = message.content.array_records["arrays"]["w"].numpy(), message.content.config_records["config"]
        if config.get("fedpick-poll") == "norm":  # train, and send the update if selected
            trained = _trained(message, context).content.array_records["arrays"]
            context.state["trained"], context.state["config"] = trained, config
            metrics["norm"] = float(np.linalg.norm(trained["w"].numpy() - w))
        some = int(config.get("batch-size", len(y)))  # type: ignore[arg-type]
        metrics["loss"] = mean_loss(w, x[:some], y[:some])
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """A few local steps, unless a poll of this round has made them already."""
    reply, t = _trained(message, context), message.content.config_records["config"]["server-round"]
    if "trained" in context.state and context.state.config_records["config"]["server-round"] == t:
        reply.content["arrays"] = context.state["trained"]
    return reply


def _trained(message: Message, context: Context) -> Message:
    client, x, y = _load(context)
    config = message.content.config_records["config"]
    rng = np.random.default_rng([client, int(config["server-round"]), int(config.get("fedpick-seat", 0))])  # type: ignore[arg-type]
    w = message.content.array_records["arrays"]["w"].numpy()
    w, mean, square = sgd(w, x, y, steps=20, batch=32, rate=0.1, rng=rng)
    metrics = MetricRecord({"train_loss": mean, "square_loss": square, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The loss and the accuracy on this client's data."""
    _, x, y = _load(context)
    w = message.content.array_records["arrays"]["w"].numpy()
    metrics = MetricRecord({"eval_loss": mean_loss(w, x, y), "eval_acc": accuracy(w, x, y), "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
