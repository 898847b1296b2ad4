"""A grid without a network: real ClientApps called in this process, with every fault that a network can have.

Node ids are random, replies come in a random order, an error reply of the SuperLink names the SuperLink as its sender,
and every message is a copy, as after a network.
"""

import contextlib
import copy
import random
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedpick import init_key, round_keys, seat_key
from fedpick.flower.client import answer, kept_update
from fedpick.sim import Devices, batch_losses, full_losses
from fedpick.sim.local import train

with contextlib.suppress(ImportError):  # newer versions of Flower want to know in which run a message is made
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


class FakeGrid(Grid):
    """``partitions`` are the clients. ``faults`` maps a partition to a function of (message, answer): what it really
    says, where answer() is what it would honestly say, None is silence and an exception an error reply."""

    def __init__(self, app, partitions, seed=0):
        self.app, self.random = app, random.Random(seed)
        self.app_run = SimpleNamespace(fab_id="", fab_hash="")
        self.nodes, self.faults, self.queue, self.log = {}, {}, {}, []
        for partition in partitions:
            self.join(partition)

    def join(self, partition):
        node = self.random.getrandbits(62) + 2
        config = {"partition-id": partition}
        self.nodes[node] = Context(1, node, config, RecordDict(), {})
        return node

    def leave(self, partition):
        self.nodes = {n: c for n, c in self.nodes.items() if c.node_config["partition-id"] != partition}

    def partition(self, node):
        return self.nodes[node].node_config["partition-id"]

    def sent(self, kind):
        """The partitions that got messages of this type, in the order of sending."""
        return [partition for partition, message in self.log if message.metadata.message_type == kind]

    def get_node_ids(self):
        nodes = list(self.nodes)
        self.random.shuffle(nodes)
        return nodes

    def push_messages(self, messages):
        assert isinstance(messages, list), "a generator of messages kills a deployment"
        ids = []
        for message in messages:
            assert 0 < message.metadata.ttl <= 3600, "work that nobody waits for would be left behind"
            name = f"{self.random.getrandbits(128):032x}"
            message.metadata.__dict__["_message_id"] = name
            node = message.metadata.dst_node_id
            self.log.append((self.partition(node) if node in self.nodes else None, message))
            self.queue[name] = message
            ids.append(name)
        return ids

    def pull_messages(self, message_ids):
        ready = [name for name in message_ids if name in self.queue]
        self.random.shuffle(ready)
        replies = [self._reply(self.queue[name]) for name in ready]
        for name, reply in zip(ready, replies, strict=True):
            if reply is not None:
                del self.queue[name]
        return [reply for reply in replies if reply is not None]

    def _reply(self, message):
        context = self.nodes.get(message.metadata.dst_node_id)
        if context is None:
            return self._error(message, "the node is gone")
        received = Message(metadata=copy.copy(message.metadata), content=copy.deepcopy(message.content))
        fault = self.faults.get(context.node_config["partition-id"], lambda message, answer: answer())
        try:
            return fault(received, lambda: self.app(received, context))
        except Exception as error:
            return self._error(message, f"Traceback\n{type(error).__name__}: {error}")

    def _error(self, message, reason):
        reply = Message(Error(code=2, reason=reason), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    def send_and_receive(self, messages, *, timeout=None):
        ids = self.push_messages(list(messages))
        return self.pull_messages(ids)

    def create_message(self, *arguments):
        raise AssertionError("deprecated by Flower")

    def set_run(self, run):
        raise AssertionError("nobody else's business")

    @property
    def run(self):
        return self.app_run


def silent(message, answer):
    return None


def raising(message, answer):
    raise RuntimeError("the disk is full")


def only(kind, fault):
    """The fault in messages of this type only."""
    return lambda message, answer: (fault if message.metadata.message_type == kind else _honest)(message, answer)


def _honest(message, answer):
    return answer()


def saying(**metrics):
    """Honest but for these metrics."""

    def fault(message, answer):
        reply = answer()
        record = next(iter(reply.content.metric_records.values()))
        for key, value in metrics.items():
            record[key.replace("_examples", "-examples")] = value
        return reply

    return fault


def record_of(params):
    """A flat dictionary of arrays as Flower sends it."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in params.items()})


def params_of(record):
    return {name: jnp.asarray(array.numpy()) for name, array in record.items()}


def simulated_app(federation, model, local, seed):
    """A client that trains and evaluates with the simulator's own code, and with its keys."""
    app = ClientApp()
    fit = jax.jit(
        lambda params, client, key, t: train(
            federation, model, local, params=params, client=client, key=key, t=t, squares=True
        )
    )
    K, devices = federation.num_clients, Devices()
    model_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(model.init(init_key(seed))))
    seconds = np.asarray(devices.train_seconds(local.samples(federation.count), model_bytes))
    upload = np.asarray(devices.upload_seconds(model_bytes, K))
    everything = jax.jit(lambda params, client: full_losses(federation, model, params, asked=_only(client, K))[client])
    in_part = jax.jit(
        lambda params, client, key: batch_losses(federation, model, params, asked=_only(client, K), b=local.b, key=key)[
            client
        ]
    )

    def trained(arrays, config, client, seat):
        t = config["server-round"] - 1
        key = seat_key(round_keys(seed, t).train, seat, client)
        params, loss, square_loss = fit(params_of(arrays), jnp.int32(client), key, jnp.int32(t))
        metrics = {"train_loss": float(loss), "square_loss": float(square_loss), "seconds": float(seconds[client])}
        return record_of(params), {**metrics, "num-examples": int(federation.count[client])}

    @app.train()
    def train_(message, context):
        kept = kept_update(message, context)
        if kept is not None:
            kept.content["metrics"]["seconds"] = float(upload[context.node_config["partition-id"]])
            return kept
        config, client = message.content["config"], context.node_config["partition-id"]
        arrays, metrics = trained(message.content["arrays"], config, client, config["fedpick-seat"])
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)

    @app.query("loss")
    def loss(message, context):
        client = context.node_config["partition-id"]
        if "arrays" in message.content and message.content["config"].get("fedpick-poll") == "norm":
            fit_here = lambda arrays, config: trained(arrays, config, client, seat=0)  # noqa: E731
            return answer(message, context, int(federation.count[client]), loss=None, train=fit_here)
        metrics = {"num-examples": int(federation.count[client]), "partition-id": client}
        metrics |= {"expected-duration": float(seconds[client]), "upload-duration": float(upload[client])}
        if "arrays" in message.content:
            params, config = params_of(message.content["arrays"]), message.content["config"]
            key = round_keys(seed, config["server-round"] - 1).poll
            batch = "batch-size" in config
            assert not batch or config["batch-size"] == local.b
            found = in_part(params, jnp.int32(client), key) if batch else everything(params, jnp.int32(client))
            metrics["loss"] = float(found)
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        found = float(everything(params_of(message.content["arrays"]), jnp.int32(client)))
        metrics = {"eval_loss": found, "eval_acc": 0.5, "num-examples": int(federation.count[client])}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def _only(client, K):
    return jnp.arange(K, dtype=jnp.int32) == client


def plain_app(pull=0.5):
    """A client in NumPy: client k moves the model towards k + 1, and its loss is the distance."""
    app = ClientApp()

    def distance(message, context):
        return float(np.abs(message.content["arrays"]["w"].numpy() - (context.node_config["partition-id"] + 1)).mean())

    @app.train()
    def train_(message, context):
        k = context.node_config["partition-id"]
        w = message.content["arrays"]["w"].numpy()
        arrays = ArrayRecord({"w": Array((w + pull * (k + 1 - w)).astype(np.float32))})
        metrics = MetricRecord({"train_loss": distance(message, context), "num-examples": 10 * (k + 1)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.query("loss")
    def loss(message, context):
        metrics = {"num-examples": 10 * (context.node_config["partition-id"] + 1)}
        metrics["partition-id"] = context.node_config["partition-id"]
        if "arrays" in message.content:
            metrics["loss"] = distance(message, context)
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = {"eval_loss": distance(message, context), "num-examples": 10}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def named_app(names):
    """The same, known by names and not by partition-ids."""
    app = plain_app()
    inner = app._registered_funcs["query.loss"]

    def with_name(message, context):
        reply = inner(message, context)
        del reply.content["metrics"]["partition-id"]
        reply.content["client"] = ConfigRecord({"name": names[context.node_config["partition-id"]]})
        return reply

    app._registered_funcs["query.loss"] = with_name
    return app


def zeros(*shape):
    return ArrayRecord({"w": Array(np.zeros(shape or (3,), np.float32))})
