"""Federated averaging as one writes it in JAX in an afternoon: random selection, one jitted scan, a vmap over the runs.

What fedpick is held against on a GPU, where no peer runs many federations at once. It trains the same model on batches
of the same size, drawn with replacement; it knows no strategy, availability, cost or checkpoint, and evaluates nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from workloads import Workload

from fedpick.sim import Federation


def plain(workload: Workload, federation: Federation, runs: int, rounds: int) -> Callable[[], Any]:
    """A function that plays ``rounds`` rounds of ``runs`` runs from fresh models."""
    layers = list(zip(workload.widths, workload.widths[1:], strict=False))
    x, y = federation.x.reshape(len(federation.y), -1), federation.y
    start, count, share = federation.start, federation.count, federation.share

    def init(key: Any) -> Any:
        keys = jax.random.split(key, len(layers))
        return [
            (jax.random.uniform(k, (a, b), minval=-(a**-0.5), maxval=a**-0.5), jnp.zeros(b))
            for k, (a, b) in zip(keys, layers, strict=True)
        ]

    def loss(params: Any, inputs: Any, labels: Any, key: Any) -> Any:
        for w, b in params[:-1]:
            inputs = jax.nn.relu(inputs @ w + b)
        kept = jax.random.bernoulli(key, 1 - workload.dropout, inputs.shape)
        inputs = jnp.where(kept, inputs / (1 - workload.dropout), 0)
        logits = inputs @ params[-1][0] + params[-1][1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    def train(params: Any, client: Any, key: Any) -> Any:
        def step(params: Any, key: Any) -> Any:
            batch, noise = jax.random.split(key)
            index = start[client] + jax.random.randint(batch, (workload.b,), 0, count[client])
            gradient = jax.grad(loss)(params, federation.prepare(x[index]), y[index], noise)
            return jax.tree.map(lambda w, g: w - workload.eta * g, params, gradient), None

        return jax.lax.scan(step, params, jax.random.split(key, workload.tau))[0]

    def one_round(params: Any, key: Any) -> Any:
        choice, noise = jax.random.split(key)
        clients = jax.random.choice(choice, workload.K, (workload.m,), p=share)
        models = jax.vmap(train, (None, 0, 0))(params, clients, jax.random.split(noise, workload.m))
        return jax.tree.map(lambda w: w.mean(axis=0), models), None

    def one_run(key: Any) -> Any:
        return jax.lax.scan(one_round, init(key), jax.random.split(key, rounds))[0]

    play = jax.jit(jax.vmap(one_run) if runs > 1 else lambda keys: one_run(keys[0]))
    return lambda: play(jax.random.split(jax.random.key(0), runs))
