"""FedJAX: its training by ``for_each_client``, a Haiku model, and ``evaluate_model`` on batches that are kept ready."""

from importlib.metadata import version
from typing import Any

import fedjax  # type: ignore[import-not-found]
import haiku as hk  # type: ignore[import-not-found]
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg  # type: ignore[import-not-found]
from serve import Metrics, Task, load, rounds, serve

EVALUATION_BATCH = 2048
BUCKETS = 6  # sizes of a poll's batch: 256, 512, ..., so that few shapes are compiled


def make_model(task: Task) -> Any:
    """A Haiku network with PyTorch's initialisation; logistic regression from zero without a hidden layer."""

    def forward(batch: Any, training: bool = False) -> Any:
        x = batch["x"]
        zeros = hk.initializers.Constant(0.0) if len(task.widths) == 2 else None
        for fan_in, width in zip(task.widths[:-2], task.widths[1:-1], strict=True):
            start = hk.initializers.RandomUniform(-(fan_in**-0.5), fan_in**-0.5)
            x = jax.nn.relu(hk.Linear(width, w_init=start, b_init=start)(x))
        if training and task.dropout:
            x = hk.dropout(hk.next_rng_key(), task.dropout, x)
        bound = task.widths[-2] ** -0.5
        start = zeros or hk.initializers.RandomUniform(-bound, bound)
        return hk.Linear(task.widths[-1], w_init=start, b_init=start)(x)

    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch={"x": jnp.zeros((1, task.widths[0])), "y": jnp.zeros(1, jnp.int32)},
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
        train_kwargs={"training": True},
        eval_kwargs={"training": False},
    )


def main() -> None:
    task = load()
    rng = np.random.default_rng(0)
    model = make_model(task)
    by_loss = model.replace(eval_metrics={"loss": fedjax.metrics.CrossEntropyLoss()})
    by_accuracy = model.replace(eval_metrics={"accuracy": fedjax.metrics.Accuracy()})
    whole = fedjax.ClientDataset({"x": task.x, "y": task.y.astype(np.int32)})
    test = fedjax.ClientDataset({"x": task.test_x, "y": task.test_y.astype(np.int32)})
    clients = [whole[task.rows(k)] for k in range(task.K)]
    one_seat = fed_avg.create_train_for_each_client(
        fedjax.model_grad(model), fedjax.optimizers.sgd(learning_rate=task.eta)
    )
    batching = fedjax.ShuffleRepeatBatchHParams(batch_size=task.b, num_epochs=None, num_steps=task.tau)

    def ready(dataset: Any, size: int, buckets: int = 1) -> list[Any]:
        batches = dataset.padded_batch(batch_size=size, num_batch_size_buckets=buckets)
        return [jax.tree.map(jnp.asarray, batch) for batch in batches]

    training_batches, test_batches = ready(whole, EVALUATION_BATCH), ready(test, EVALUATION_BATCH)
    polled = [ready(client, EVALUATION_BATCH, BUCKETS) for client in clients] if task.polls else []
    params: Any = None
    key = jax.random.key(0)

    def fresh(number: int) -> None:
        nonlocal params, key
        key, own = jax.random.split(key)
        params = model.init(own)

    def losses(asked: list[int]) -> list[float]:
        found = [fedjax.evaluate_model(by_loss, params, polled[k])["loss"] for k in asked]
        return [float(loss) for loss in jax.device_get(found)]

    average = jax.jit(lambda w, *changes: jax.tree.map(lambda w, *c: w - sum(c) / task.m, w, *changes))

    def one_round() -> None:
        nonlocal params, key
        chosen = task.select(rng, losses)
        key, *keys = jax.random.split(key, 1 + task.m)
        seats = [
            (seat, clients[client].shuffle_repeat_batch(batching), keys[seat]) for seat, client in enumerate(chosen)
        ]
        # FedJAX's own fed_avg weighs by size, over and above the draw by size; the average here is plain.
        params = average(params, *(change for _, change in one_seat(params, seats)))

    def evaluate() -> Metrics:
        loss = fedjax.evaluate_model(by_loss, params, training_batches)["loss"]
        accuracy = fedjax.evaluate_model(by_accuracy, params, test_batches)["accuracy"]
        return float(loss), float(accuracy)

    def play(number: int) -> Metrics | None:
        found = rounds(task, one_round, evaluate)(number)
        jax.block_until_ready(params)  # type: ignore[no-untyped-call]
        return found

    serve({"fedjax": version("fedjax"), "jax": jax.__version__}, fresh, play, evaluate)


main()
