"""What one would expect of the naturally federated data: guessing the most frequent label, and training on all data.

The pooled models see the training samples of all clients as one set: Adam with a step size that falls to 0, and the
accuracy on the test samples of all clients. `python benchmarks/federated_data.py --help`.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from fedpick.sim import (
    MLP,
    CharLSTM,
    Chem97,
    Federation,
    InstEval,
    Logistic,
    MovieLens,
    NYCFlights,
    Shakespeare,
    Watch,
)
from fedpick.sim.natural import Samples


class Pooled(NamedTuple):
    """Epochs, samples in a batch and the first step size."""

    epochs: int
    b: int
    eta: float


TABLES: dict[str, tuple[Any, Pooled]] = {
    "chem97": (Chem97(), Pooled(20, 64, 0.01)),
    "insteval": (InstEval(), Pooled(20, 128, 0.01)),
    "movielens": (MovieLens(), Pooled(20, 128, 0.01)),
    "nycflights": (NYCFlights(), Pooled(10, 256, 0.01)),
    "watch": (Watch(), Pooled(100, 32, 0.01)),
}
MODELS: dict[str, Any] = {"logistic": Logistic(), "mlp": MLP(hidden=(64, 64), dropout=0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*TABLES, "shakespeare"], help="data sets; by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of each data set's own")
    parser.add_argument(
        "--lstm", type=int, help="train CharLSTM with so many units on shakespeare: hours without a GPU"
    )
    parser.add_argument("--step", type=int, default=1, help="of shakespeare")
    options = parser.parse_args()
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}")
    for name in options.names:
        if name == "shakespeare":
            data, how, models = Shakespeare(step=options.step), Pooled(2, 64, 0.005), {}
            if options.lstm:
                models = {"char-lstm": CharLSTM(vocabulary=data.extent[2], hidden=options.lstm)}
        else:
            (data, how), models = TABLES[name], MODELS
        how = how._replace(epochs=options.epochs or how.epochs)
        federation, samples = data.federation(), data.samples()
        print(f"\n{federation.summary()}")
        found = guesses(samples) | (ngrams(samples) if name == "shakespeare" else {})
        for label, accuracy in found.items():
            print(f"  {label:12} {accuracy:6.2%}")
        print(f"  loss of the labels' shares {chance(samples):.4f}")
        for label, model in models.items():
            begin = time.perf_counter()
            accuracies, losses = zip(
                *[train(federation, model, how, seed) for seed in range(options.seeds)], strict=True
            )
            spread = f"{np.mean(accuracies):6.2%} ({min(accuracies):.2%} to {max(accuracies):.2%})"
            seconds = time.perf_counter() - begin
            print(f"  {label:12} {spread}, loss {np.mean(losses):.4f}; {how}, {seconds:.0f} s", flush=True)


def guesses(samples: Samples) -> dict[str, float]:
    """The accuracy of the most frequent label of all training data, and of that of each client for itself."""
    client, y, test = samples.client, samples.y, samples.test
    labels = np.zeros((client.max() + 1, y.max() + 1), np.int64)
    np.add.at(labels, (client[~test], y[~test]), 1)
    return {
        "majority": float(np.mean(y[test] == labels.sum(axis=0).argmax())),
        "own majority": float(np.mean(y[test] == labels.argmax(axis=1)[client[test]])),
    }


def chance(samples: Samples) -> float:
    """The test loss of the labels' shares in the training data, whatever x is."""
    share = np.bincount(samples.y[~samples.test], minlength=samples.y.max() + 1) + 1.0
    return float(-np.log(share / share.sum())[samples.y[samples.test]].mean())


def ngrams(samples: Samples, longest: int = 6, seen: int = 3) -> dict[str, float]:
    """The accuracy of the most frequent next character after the longest ending that was seen often enough."""
    training, letters = ~samples.test, len(samples.names.labels)
    guess = np.full(int(samples.test.sum()), np.bincount(samples.y[training]).argmax())
    found = {}
    ending = np.zeros(len(samples.y), np.int64)
    for n in range(1, longest + 1):
        ending = ending * letters + samples.x[:, -n]
        pairs, times = np.unique(ending[training] * letters + samples.y[training], return_counts=True)
        order = np.lexsort((-times, pairs // letters))
        endings, first = np.unique(pairs[order] // letters, return_index=True)
        best, often = pairs[order][first] % letters, np.add.reduceat(times[order], first) >= seen
        place = np.minimum(np.searchsorted(endings, ending[samples.test]), len(endings) - 1)
        known = (endings[place] == ending[samples.test]) & often[place]
        guess = np.where(known, best[place], guess)
        found[f"{n + 1}-gram"] = float(np.mean(guess == samples.y[samples.test]))
    return found


def train(federation: Federation, spec: Any, how: Pooled, seed: int) -> tuple[float, float]:
    """The test accuracy and loss of a model after training on all data as one set."""
    model = spec.build(federation)
    b = min(how.b, federation.num_samples)
    steps = federation.num_samples // b
    optimizer = optax.adam(optax.cosine_decay_schedule(how.eta, steps * how.epochs))
    first, key = jax.random.split(jax.random.key(seed))
    params = model.init(first)
    state = optimizer.init(params)

    def step(carry: Any, inputs: Any) -> tuple[Any, None]:
        params, state = carry
        rows, key = inputs
        x, y = federation.prepare(federation.x[rows]), federation.y[rows]
        slope = jax.grad(lambda p: model.losses(p, x, y, key).mean())(params)
        change, state = optimizer.update(slope, state, params)
        return (optax.apply_updates(params, change), state), None

    @jax.jit
    def epoch(params: Any, state: Any, key: Any) -> tuple[Any, Any]:
        order, dropout = jax.random.split(key)
        rows = jax.random.permutation(order, federation.num_samples)[: steps * b].reshape(steps, b)
        (params, state), _ = jax.lax.scan(step, (params, state), (rows, jax.random.split(dropout, steps)))
        return params, state

    for own in jax.random.split(key, how.epochs):
        params, state = epoch(params, state, own)
    return evaluate(federation, model, params)


def evaluate(federation: Federation, model: Any, params: Any, rows: int = 10_000) -> tuple[float, float]:
    """The share of the test samples that are predicted right, and their mean loss."""

    @jax.jit
    def measure(x: Any, y: Any) -> tuple[Any, Any]:
        x = federation.prepare(x)
        return jnp.sum(model.predict(params, x) == y), jnp.sum(model.losses(params, x, y, None))

    total = len(federation.test_y)
    parts = [slice(begin, begin + rows) for begin in range(0, total, rows)]
    sums = [measure(federation.test_x[part], federation.test_y[part]) for part in parts]
    right, loss = (sum(map(float, column)) / total for column in zip(*sums, strict=True))
    return right, loss


if __name__ == "__main__":
    main()
