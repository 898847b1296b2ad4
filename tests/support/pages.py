"""Comparisons with curves that look like training, for pages; no simulation made them."""

import numpy as np

from fedpick.compare import Comparison, ComparisonReport
from fedpick.results import Result
from fedpick.sim import Summary
from fedpick.storage import Provenance

STRATEGIES = (
    "rand", "pow-d", "cpow-d", "rpow-d", "afl", "auto", "oort", "ucb-cs", "divfl", "hics", "fedcor", "tifl",
)  # fmt: skip


def curves(speed, seeds, rounds=200, K=30, m=3, seed=0):
    """Runs whose loss falls the faster the higher ``speed``."""
    rng = np.random.default_rng(seed)
    evaluated = np.arange(0, rounds + 1, 2)
    pace = speed * rng.uniform(0.9, 1.1, (seeds, 1))
    loss = 0.4 + 1.9 * np.exp(-pace * evaluated / 60) + rng.normal(0, 0.01, (seeds, len(evaluated)))
    offsets = rng.uniform(0.6, 2.0, K)
    client_loss = loss[:, :, None] * offsets
    metrics = {"loss": loss, "test_loss": loss, "test_accuracy": 1 - loss / 2.5, "skew": 1 + 0.1 * loss}
    metrics |= {"client_loss": client_loss, "client_accuracy": 1 - client_loss / 6}
    records = {name: np.full((seeds, rounds), m, np.int32) for name in ("polled", "trained", "returned", "available")}
    records |= {name: np.ones((seeds, rounds)) for name in ("poll_samples", "train_samples", "train_loss")}
    records |= {"seconds": rng.uniform(1, 2, (seeds, rounds)), "weights": np.full((seeds, rounds, m), 1 / m)}
    records["clients"] = rng.integers(0, K, (seeds, rounds, m)).astype(np.int32)
    share = np.sort(np.random.default_rng(0).dirichlet(np.ones(K)))[::-1]
    runs = [{"seed": number} for number in range(seeds)]
    return Result(runs, share, 2440, evaluated=evaluated, metrics=metrics, records=records)


def comparison_report(names=STRATEGIES, seeds=20, **options):
    """A report of these strategies, each a little faster than the one before."""
    results = tuple(curves(1 + 0.15 * place, seeds, seed=place, **options) for place in range(len(names)))
    plains = tuple({"selector": {"kind": name, "m": 3}, "data": {"kind": "synthetic"}} for name in names)
    made = (Provenance("CPU", "python 3.11", len(names) * seeds),)
    return ComparisonReport(
        Comparison(tuple(names), results), plains, made, command="fedpick compare", strategies=tuple(names),
        dates=("2026-01-31",),
    )  # fmt: skip


def summary(K=30, labels=10):
    """Of data that go with it."""
    counts = np.random.default_rng(0).integers(0, 60, (K, labels)) * (
        np.arange(labels) % 3 != np.arange(K)[:, None] % 3
    )
    return Summary("Made-up data", counts + (np.arange(labels) == 0), 500)
