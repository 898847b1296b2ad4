"""The client of the Flower simulation: it trains or evaluates the model in the message; each worker keeps the data."""

import functools
from typing import Any

import torch  # type: ignore[import-not-found]
import torch_model
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from serve import Task, load
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812

app = ClientApp()


@functools.cache
def kept(path: str) -> tuple[Task, tuple[Any, Any, Any, Any], Any]:
    """The workload, its tensors and a model to use again and again; a worker has a core to itself."""
    torch.set_num_threads(1)
    task = load(path)
    return task, torch_model.tensors(task), torch_model.make(task)


def received(message: Any, context: Any) -> tuple[Task, tuple[Any, Any, Any, Any], Any, int]:
    """The task and the model of the message for this client."""
    task, data, model = kept(message.content["config"]["workload"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return task, data, model, int(context.node_config["partition-id"])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local steps; the weight is 1, because the average is plain."""
    task, data, model, client = received(message, context)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=task.eta)
    for x, y in torch_model.batches(task, data, client):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    content: dict[str, Any] = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The full local loss."""
    task, data, model, client = received(message, context)
    loss = torch_model.client_losses(model, task, data, [client])[0]
    content: dict[str, Any] = {"metrics": MetricRecord({"loss": loss, "client": client, "num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)
