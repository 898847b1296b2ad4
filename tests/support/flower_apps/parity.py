"""Full-batch logistic regression in NumPy: what the simulator's client does when a batch holds all the data.

The data lie in a file that the run config names. The server plays one selector after the other on the same federation.
"""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

app = ClientApp()
server = ServerApp()


def opened(message, context):
    with np.load(str(context.run_config["data"])) as file:
        mine = file["client"] == context.node_config["partition-id"]
        x, y, settings = file["x"][mine], file["y"][mine], (int(file["tau"]), float(file["eta"]))
        seconds = float(file["seconds"][context.node_config["partition-id"]])
    arrays = message.content.get("arrays", {})
    return x, y, {name: array.numpy() for name, array in arrays.items()}, (*settings, seconds)


def log_probabilities(params, x):
    logits = x @ params["w"] + params["b"]
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@app.query("loss")
def loss(message, context):
    x, y, params, (_, _, seconds) = opened(message, context)
    metrics = {"num-examples": len(y), "partition-id": context.node_config["partition-id"]}
    metrics["expected-duration"] = seconds
    if params:
        batch = message.content["config"].get("batch-size", len(y))
        assert batch >= len(y), "the rule that both sides share: a batch holds all the data"
        # In double precision: at a model of zeros all losses are equal, and must stay so when they are averaged.
        metrics["loss"] = float(-log_probabilities(params, x)[np.arange(len(y)), y].mean(dtype=np.float64))
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@app.train()
def train(message, context):
    x, y, params, (tau, eta, seconds) = opened(message, context)
    losses, squares = [], []
    for _ in range(tau):
        log_p = log_probabilities(params, x)
        of_samples = -log_p[np.arange(len(y)), y]
        losses.append(of_samples.mean())
        squares.append(np.square(of_samples).mean())
        slope = (np.exp(log_p) - np.eye(log_p.shape[1])[y]) / len(y)
        gradient = {"w": x.T @ slope, "b": slope.sum(axis=0)}
        params = {name: (params[name] - eta * gradient[name]).astype(np.float32) for name in params}
    arrays = ArrayRecord({name: Array(values) for name, values in params.items()})
    means = {"train_loss": float(np.mean(losses)), "square_loss": float(np.mean(squares))}
    metrics = MetricRecord({**means, "seconds": seconds, "num-examples": len(y)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    from flwr.serverapp.strategy import FedAvg

    from fedpick import strategy
    from fedpick.flower import Selecting

    plan = json.loads(Path(str(context.run_config["plan"])).read_text())
    found = {}
    for name, parameters in plan["selectors"].items():
        selecting = Selecting(
            FedAvg(fraction_evaluate=0.0),
            strategy(name, **parameters),
            seed=plan["seed"],
            clients=plan["clients"],
            batch=plan["batch"],
            duration="seconds",
            wait=120.0,
            poll_timeout=60.0,
        )
        first = ArrayRecord(
            {"w": Array(np.zeros(plan["shape"], np.float32)), "b": Array(np.zeros(plan["shape"][1], np.float32))}
        )
        result = selecting.start(grid, first, num_rounds=plan["rounds"], timeout=120)
        rows = selecting.history.rows
        found[name] = {
            "clients": [row.clients for row in rows],
            "seconds": [row.seconds for row in rows],
            **{key: array.numpy().tolist() for key, array in result.arrays.items()},
        }
        Path(plan["found"]).write_text(json.dumps(found))
