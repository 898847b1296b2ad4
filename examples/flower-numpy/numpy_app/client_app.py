"""The client: least squares in NumPy. Only ``loss`` is there for Power-of-Choice; it imports nothing of fedpick."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def load(context: Context) -> tuple[int, Any, Any]:
    """This client's number and data; the lines of different clients differ in slope."""
    client = int(context.node_config["partition-id"])
    rng = np.random.default_rng(client)
    x = rng.normal(size=(20 + 10 * client, 3))
    return client, x, x @ (np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=3))


def weights(message: Message) -> Any:
    """The model in a message."""
    return message.content.array_records["arrays"]["w"].numpy()


@app.query("loss")
def loss(message: Message, context: Context) -> Message:
    """Who I am, how much data I have and, if a model is sent, its loss here, or on a mini-batch for cpow-d."""
    client, x, y = load(context)
    metrics: dict[str, Any] = {"num-examples": len(y), "partition-id": client}
    if "arrays" in message.content:
        if batch := message.content.config_records["config"].get("batch-size"):
            some = np.random.permutation(len(y))[:batch]
            x, y = x[some], y[some]
        metrics["loss"] = float(np.mean((x @ weights(message) - y) ** 2))
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Ten steps of gradient descent."""
    _, x, y = load(context)
    w, losses = weights(message), []
    for _ in range(10):
        error = x @ w - y
        losses.append(float(np.mean(error**2)))
        w = w - 0.05 * 2 * x.T @ error / len(y)
    metrics = MetricRecord({"train_loss": float(np.mean(losses)), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The loss of the new model here."""
    _, x, y = load(context)
    found = float(np.mean((x @ weights(message) - y) ** 2))
    metrics = MetricRecord({"eval_loss": found, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
