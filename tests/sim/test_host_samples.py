"""Samples that stay on the host: the same results as on the device, and files that are never read whole."""

import numpy as np
import pytest

from fedpick import PowerOfChoice, Rand
from fedpick.sim import MLP, Dirichlet, Federation, Local, Logistic, simulate
from fedpick.sim.stacking import stack

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(900, 5)).astype(np.float32), rng.integers(0, 3, 900)
CLIENT = rng.integers(0, 12, 900)
TEST = (X[:50], Y[:50])
LOCAL = Local(tau=3, b=8, eta=0.05)


def same(one, other):
    for name, values in one.records.items():
        np.testing.assert_array_equal(values, other.records[name], err_msg=name)
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name], err_msg=name)


@pytest.mark.no_cover
@pytest.mark.parametrize("loss", ["full", "batch"])
def test_what_is_fetched_gives_the_same_results(loss):
    selector = PowerOfChoice(m=2, d=5, loss=loss)
    on_device, on_host = (Federation.from_arrays(X, Y, CLIENT, test=TEST, on_host=where) for where in (False, True))
    assert on_host.x.shape == (0, 5)
    assert on_host.host.x is not None
    results = [simulate(one, MLP((6,)), selector, LOCAL, rounds=4, every=2, seeds=2) for one in (on_device, on_host)]
    same(*results)


@pytest.mark.slow
def test_runs_with_a_partition_each_share_what_is_on_the_host(monkeypatch):
    partitions = [Dirichlet(K=12, alpha=0.5, seed=seed) for seed in range(2)]
    options = {"rounds": 4, "every": 2, "seeds": 2}
    one, other = (Federation.from_partition(X, Y, partitions, test=TEST, on_host=where) for where in (False, True))
    same(*(simulate(each, Logistic(), Rand(m=2), LOCAL, **options) for each in (one, other)))
    monkeypatch.setattr("fedpick.sim._engine.batching.ON_CPU", 2)  # one program, as on a GPU
    same(*(simulate(each, Logistic(), Rand(m=2), LOCAL, **options) for each in (one, other)))


@pytest.mark.no_cover
def test_a_file_is_mapped_and_only_its_rows_are_read(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    federation = Federation.from_arrays(mapped, Y, CLIENT, on_host=True)
    assert np.shares_memory(federation.host.x, mapped)
    plain = Federation.from_arrays(X, Y, CLIENT)
    options = {"rounds": 2, "seeds": 1}
    same(*(simulate(one, Logistic(), Rand(m=2), LOCAL, **options) for one in (plain, federation)))


def test_data_for_which_the_device_has_no_room_stay_on_the_host(monkeypatch):
    class Full:
        def memory_stats(self):
            return {"bytes_limit": X.nbytes, "bytes_in_use": 0}

    assert Federation.from_arrays(X, Y, CLIENT).host is None
    monkeypatch.setattr("fedpick.sim.host_samples.first_device", Full)
    assert Federation.from_arrays(X, Y, CLIENT).host is not None
    assert Federation.from_arrays(X[:100], Y[:100], np.arange(100)).host is None


def test_a_checkpoint_knows_the_samples_on_the_host(tmp_path):
    file = tmp_path / "run.npz"
    for x, refused in ((X, False), (X + 1, True)):
        federation = Federation.from_arrays(x, Y, CLIENT, on_host=True)
        problem = (federation, Logistic(), Rand(m=2), LOCAL)
        if refused:
            with pytest.raises(ValueError, match="checkpoint"):
                simulate(*problem, rounds=2, checkpoint=file)
        else:
            simulate(*problem, rounds=2, checkpoint=file)


def test_what_is_on_the_host_is_not_stacked():
    federation = Federation.from_arrays(X, Y, CLIENT, on_host=True)
    with pytest.raises(ValueError, match="sorted by client and not on the host"):
        stack([federation, federation])
