"""Runs on different data as one batch: the same picks and results as each alone."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import PowerOfChoice, Rand
from fedpick.sim import (
    IID,
    MLP,
    Digits,
    Dirichlet,
    Federation,
    Local,
    Logistic,
    Partition,
    Shards,
    Synthetic,
    simulate,
)
from fedpick.sim.evaluation import evaluate_clients, evaluate_test_set
from fedpick.sim.stacking import federations_of, stack

LOCAL = Local(tau=3, b=10, eta=0.05)
OPTIONS: dict[str, Any] = {"rounds": 6, "every": 3}


@dataclass(frozen=True)
class Blobs:
    """Data of a user: samples that do not depend on how they are dealt out."""

    partition: Partition = IID(K=6)
    shares_samples = True

    def federation(self) -> Federation:
        x, y = _blobs(180, seed=0)
        return Federation.from_partition(x, y, self.partition, test=_blobs(50, seed=1))


def _blobs(number: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, number)
    return (rng.normal(size=(number, 4)) + y[:, None]).astype(np.float32), y


CASES = {
    "a partition for each": [Blobs(p) for p in (IID(6, seed=1), Shards(6), Dirichlet(6, alpha=0.3, seed=3))],
    "samples and sizes for each": [Synthetic(1, 1, K=12, seed=s) for s in (3, 7)],
    "a test set for each": [Digits(Dirichlet(K=12, alpha=0.5, seed=s), seed=s) for s in range(2)],
}


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "case", ["a partition for each", *(pytest.param(case, marks=pytest.mark.slow) for case in list(CASES)[1:])]
)
def test_runs_on_different_data_are_as_each_alone(case: str) -> None:
    data = CASES[case]
    selector = PowerOfChoice(m=2, d=5)
    together = simulate(data, MLP((8,)), selector, LOCAL, seeds=len(data), **OPTIONS)
    for seed, own in enumerate(data):
        alone = simulate(own, MLP((8,)), selector, LOCAL, seeds=[seed], **OPTIONS)
        for name, values in alone.records.items():
            np.testing.assert_array_equal(together.records[name][seed], values[0], err_msg=name)
        for name, values in alone.metrics.items():
            found = together.metrics[name][seed]
            if name == "test_loss":  # its blocks, and so the order of the sum, are those of the largest
                np.testing.assert_allclose(found, values[0], rtol=1e-6)
            else:
                np.testing.assert_array_equal(found, values[0], err_msg=name)
        np.testing.assert_array_equal(together.shares[seed], alone.share)
        np.testing.assert_array_equal(together.counts[seed], alone.counts[0])


@pytest.mark.parametrize(
    "case", ["a partition for each", *(pytest.param(one, marks=pytest.mark.slow) for one in list(CASES)[1:])]
)
def test_a_batch_under_vmap_has_the_picks_of_single_runs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: all runs in one program."""
    data = CASES[case]
    single = simulate(data, MLP((8,)), PowerOfChoice(m=2, d=5), LOCAL, seeds=len(data), **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr("fedpick.sim._engine.batching.ON_CPU", 9)
        batch = simulate(data, MLP((8,)), PowerOfChoice(m=2, d=5), LOCAL, seeds=len(data), **OPTIONS)
    np.testing.assert_array_equal(batch.records["clients"], single.records["clients"])
    np.testing.assert_allclose(batch.metrics["client_loss"], single.metrics["client_loss"], rtol=1e-4)
    np.testing.assert_allclose(batch.metrics["test_accuracy"], single.metrics["test_accuracy"], atol=1e-6)


@pytest.mark.slow
def test_swept_values_meet_every_federation() -> None:
    data = CASES["samples and sizes for each"]
    swept = simulate(data, Logistic(), PowerOfChoice(m=2, d=np.array([3, 6])), LOCAL, seeds=[4, 5], **OPTIONS)
    assert [(run["d"], run["seed"]) for run in swept.runs] == [(d, s) for d in (3, 6) for s in (4, 5)]
    alone = simulate(data[1], Logistic(), PowerOfChoice(m=2, d=6), LOCAL, seeds=[5], **OPTIONS)
    np.testing.assert_array_equal(swept.records["clients"][3], alone.records["clients"][0])
    np.testing.assert_array_equal(swept.share[3], alone.share)


@pytest.mark.slow
def test_without_compilation_too() -> None:
    data = CASES["a partition for each"][:2]
    plain = simulate(data, Logistic(), Rand(m=2), LOCAL, rounds=1, seeds=2, jit=False)
    fast = simulate(data, Logistic(), Rand(m=2), LOCAL, rounds=1, seeds=2)
    np.testing.assert_array_equal(plain.records["clients"], fast.records["clients"])
    np.testing.assert_allclose(plain.metrics["client_loss"], fast.metrics["client_loss"], rtol=1e-5)


@pytest.mark.no_cover
def test_partitions_share_the_samples_and_others_lie_behind_one_another() -> None:
    shared = federations_of(CASES["a partition for each"])
    assert shared.x.shape == (180, 4)
    assert shared.order is not None
    assert shared.order.shape == (3, 180)
    parts = [Synthetic(K=4, seed=s).federation() for s in range(2)]
    joined = stack(parts)
    assert joined.x.shape[0] == sum(part.x.shape[0] for part in parts)
    for run, part in enumerate(parts):
        own = joined.rows(run)
        assert own.order is not None
        assert own.test_order is not None
        for k in range(4):
            rows = own.order[own.start[k] : own.start[k] + own.count[k]]
            np.testing.assert_array_equal(joined.x[rows], part.x[part.start[k] : part.start[k] + part.count[k]])
        tests = own.test_order[own.test_order >= 0]
        np.testing.assert_array_equal(joined.test_x[tests], part.test_x)


def test_evaluations_of_each_against_numpy() -> None:
    federation = federations_of(CASES["a partition for each"])
    model = Logistic().build(federation)
    params = {"w": 0.1 * jnp.arange(12.0).reshape(4, 3), "b": jnp.arange(3.0)}
    logits = np.asarray(federation.x, np.float64) @ np.asarray(params["w"], np.float64) + np.asarray(params["b"])
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(180), np.asarray(federation.y)]
    for run, data in enumerate(CASES["a partition for each"]):
        client = data.partition(np.asarray(federation.y))
        expected = [losses[client == k].mean() for k in range(6)]
        found, accuracy = evaluate_clients(federation.rows(run), model, params)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        right = logits.argmax(axis=1) == np.asarray(federation.y)
        np.testing.assert_allclose(accuracy, [right[client == k].mean() for k in range(6)], rtol=1e-6)
    assert np.isfinite(evaluate_test_set(federation.rows(0), model, params)[0])


def test_what_does_not_go_together_is_named() -> None:
    few, many = Synthetic(K=4), Synthetic(K=5)
    with pytest.raises(ValueError, match="federation must have the same number of clients for every seed, got 4 and 5"):
        simulate([few, many], Logistic(), Rand(m=2), LOCAL, rounds=1, seeds=2)
    with pytest.raises(ValueError, match="seeds must be as many as the 2 federations, got 3"):
        simulate([few, few], Logistic(), Rand(m=2), LOCAL, rounds=1, seeds=3)
    with pytest.raises(ValueError, match="federation must be one, or one for each seed, got an empty list"):
        simulate([], Logistic(), Rand(m=2), LOCAL, rounds=1)
    with pytest.raises(ValueError, match="federation must be a Federation for each seed, got 3"):
        simulate([few, 3], Logistic(), Rand(m=2), LOCAL, rounds=1, seeds=2)  # type: ignore[list-item]
    both = stack([few.federation(), few.federation()])
    with pytest.raises(ValueError, match="a list of single ones, got one of 2 runs"):
        stack([both, both])
    with pytest.raises(ValueError, match="none for clients 1"):
        Federation.from_arrays([[0.0], [1.0]], [0, 1], [[0, 1], [0, 0]])
