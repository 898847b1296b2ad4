"""Several processes over one store: the runs of one process, also where one of them is killed."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from fedpick.experiment import from_plain, plan_batches, run, run_in_processes, submit
from fedpick.experiment.runner import _pieces, _runs
from fedpick.experiment.workers import _tasks
from fedpick.storage import RunStore

PLAIN = {
    "data": {"kind": "quadratic", "K": 6, "v": 3},
    "model": {"kind": "quadratic"},
    "local": {"tau": 2, "b": 1, "eta": 1e-4},
    "selector": [{"kind": "rand", "m": 2}, {"kind": "pow-d", "m": 2, "d": 3}],
    "rounds": 20,
    "seeds": 3,
}
WORKER = """
import json, sys
import fedpick.experiment.runner
from fedpick.experiment.workers import work
fedpick.experiment.runner.LONG = 0.0  # checkpoints however short
work(json.load(sys.stdin))
"""


def same_runs(one, other):
    one, other = RunStore(one), RunStore(other)
    names = list(one.identities())
    assert names == list(other.identities())
    for name in names:
        mine, theirs = one.load(name).arrays, other.load(name).arrays
        assert mine.keys() == theirs.keys()
        for part in mine:
            np.testing.assert_array_equal(mine[part], theirs[part])


def test_pieces_are_all_of_the_runs_once():
    experiments = from_plain({**PLAIN, "seeds": 7})
    batches = plan_batches(_runs(experiments).values())
    for workers in (1, 2, 4, 50):
        pieces = _pieces(batches, workers)
        assert len(pieces) >= min(2 * workers, 14)
        names = [run.identity for piece in pieces for run in piece.runs]
        assert sorted(names) == sorted(_runs(experiments))


@pytest.mark.slow
def test_two_processes_store_the_runs_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    experiments, watched = from_plain(PLAIN), []
    run(experiments, tmp_path / "one")
    store = RunStore(tmp_path / "two")
    run_in_processes(experiments, store, workers=2, watch=lambda: watched.append(len(list(store.identities()))))
    assert watched
    same_runs(tmp_path / "one", tmp_path / "two")
    assert not list((tmp_path / "two" / "under-way").iterdir())
    assert not store.unknown_files()


def start(task):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, env=environment)
    process.stdin.write(json.dumps(task).encode())
    process.stdin.close()
    return process


@pytest.mark.slow
def test_four_processes_of_which_one_is_killed_store_the_runs_of_one(tmp_path):
    experiments = from_plain({**PLAIN, "rounds": 1500, "metrics": {"every": 50}, "seeds": 8})
    store = RunStore(tmp_path / "four")
    first = _pieces(plan_batches(_runs(experiments).values()), 4)[0]
    checkpoint = store.folder / "under-way" / f"{first.runs[0].identity}-{len(first.runs)}.npz"
    processes = [start(task) for task in _tasks(experiments, store, 4)]
    while not checkpoint.exists():
        assert processes[0].poll() is None, "it was done before it could be killed"
        time.sleep(0.01)
    processes[0].kill()
    assert [process.wait(timeout=300) for process in processes] == [-9, 0, 0, 0]
    run(experiments, tmp_path / "one")
    same_runs(tmp_path / "one", tmp_path / "four")
    assert not list((store.folder / "under-way").iterdir())


def test_a_mistake_is_raised_and_not_lost_in_a_process(tmp_path):
    experiments = from_plain({**PLAIN, "selector": {"kind": "pow-d", "m": 2, "d": 7}})
    with pytest.raises(ValueError, match="d must be at most"):
        run_in_processes(experiments, RunStore(tmp_path), workers=2)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run_in_processes(experiments, RunStore(tmp_path), workers=0)


@pytest.mark.slow
def test_an_array_of_tasks_stores_the_runs_of_one_process(tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    experiments = from_plain(PLAIN)
    jobs = submit(experiments, tmp_path / "array", submitit.LocalExecutor(tmp_path / "logs"), workers=2)
    for job in jobs:
        job.result()
    run(experiments, tmp_path / "one")
    same_runs(tmp_path / "one", tmp_path / "array")
