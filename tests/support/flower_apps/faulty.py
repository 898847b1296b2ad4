"""The client of ``fedpick federate`` with the faults that the run config names: "3=nan 4=hang-in-train".

A node that is started with ``role="liar"`` has its own: what "liar" is given as.
"""

import math
import time
from pathlib import Path

from federation.client import evaluate, loss, train
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def fault(context):
    faults = dict(pair.split("=") for pair in str(context.run_config["faults"]).split())
    who = context.node_config.get("role", context.node_config["partition-id"])
    return faults.get(str(who), "")


def hang(context, where):
    """Say that it hangs, so that the test can kill this node now."""
    (Path(str(context.run_config["marks"])) / f"{where}-{context.node_config['partition-id']}").touch()
    time.sleep(600)


@app.query("loss")
def faulty_loss(message, context):
    kind, polled = fault(context), "arrays" in message.content
    if kind == "hang-in-poll" and polled:
        hang(context, "poll")
    if kind == "sleep" and polled:
        time.sleep(90)
    if kind == "raise" and polled:
        raise RuntimeError("the disk is full")
    reply = loss(message, context)
    lies = {"nan": math.nan, "inf": math.inf, "negative": -5.0, "huge": 1e300, "high": 40.0, "hang-in-train": 50.0}
    if polled and kind in lies:
        reply.content["metrics"]["loss"] = lies[kind]
    if kind in ("size", "both", "poison"):
        reply.content["metrics"]["num-examples"] = 10**12
    if polled and kind in ("loss", "both", "poison", "late", "update"):
        reply.content["metrics"]["loss"] = 9.0
    if polled and kind == "text":
        metrics = MetricRecord({"num-examples": 10})
        return Message(RecordDict({"metrics": metrics, "words": ConfigRecord({"loss": "abc"})}), reply_to=message)
    return reply


@app.train()
def faulty_train(message, context):
    kind = fault(context)
    if kind == "hang-in-train":
        hang(context, "train")
    reply = train(message, context)
    if kind == "late":  # an update, when its round is over
        time.sleep(float(context.run_config["train-timeout"]) + 3)
    if kind in ("size", "both", "poison"):
        reply.content["metrics"]["num-examples"] = 10**12
    if kind in ("loss", "both", "poison"):
        reply.content["metrics"]["train_loss"] = 9.0
    if kind in ("poison", "update"):
        before = message.content["arrays"]["w"].numpy()
        after = reply.content["arrays"]["w"].numpy()
        reply.content["arrays"] = ArrayRecord({"w": Array((before - 100 * (after - before)).astype(before.dtype))})
    return reply


app.evaluate()(evaluate)
