"""The client: an ordinary Flower client in PyTorch, and ``loss``, the six lines that Power-of-Choice needs."""

from typing import Any

import torch  # type: ignore[import-not-found]
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from pytorch_app.task import images, loader, network

app = ClientApp()


def opened(message: Message, context: Context) -> tuple[Any, Any]:
    """The model of the message, and this client's data."""
    config, client = context.run_config, int(context.node_config["partition-id"])
    data = loader(
        str(config["data"]), client, int(config["clients"]), float(config["alpha"]), int(config["batch-size"])
    )
    model = network(images(str(config["data"]))[0].shape[1])
    for arrays in message.content.array_records.values():
        model.load_state_dict(arrays.to_torch_state_dict())
    return model, data


@app.query("loss")
def loss(message: Message, context: Context) -> Message:
    """How much data there is here, and the loss of the model over all of it, or over a mini-batch for cpow-d."""
    model, data = opened(message, context)
    x, y = data.dataset.tensors
    metrics: dict[str, Any] = {"num-examples": len(y), "partition-id": int(context.node_config["partition-id"])}
    if "arrays" in message.content:
        some = torch.randperm(len(y))[: message.content.config_records["config"].get("batch-size", len(y))]
        with torch.no_grad():
            metrics["loss"] = float(torch.nn.functional.cross_entropy(model(x[some]), y[some]))
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some epochs of SGD; ``train_loss`` is what rpow-d and AFL go by."""
    model, data = opened(message, context)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(context.run_config["learning-rate"]))
    losses = []
    for _ in range(int(context.run_config["local-epochs"])):
        for x, y in data:
            optimizer.zero_grad()
            value = torch.nn.functional.cross_entropy(model(x), y)
            value.backward()
            optimizer.step()
            losses.append(float(value))
    metrics = MetricRecord({"train_loss": sum(losses) / len(losses), "num-examples": len(data.dataset)})
    content: dict[str, Any] = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)
