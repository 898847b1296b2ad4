"""Several processes over one store: the runs of one process, also where one of them is killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

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


COMMANDS = {
    "run": ["-m", "fedpick", "run", "long.toml", "--workers", "2"],
    "map": ["-m", "fedpick", "map", "--workers", "2"],
    "trust": [str(Path(__file__).parents[2] / "benchmarks" / "trust.py"), "--workers", "2"],
}
LONG = """
rounds = 1000000
seeds = 8
data = {kind = "quadratic", K = 6, v = 3}
model = {kind = "quadratic"}
local = {tau = 2, b = 1, eta = 1e-4}
selector = {kind = "rand", m = 2}
"""


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("command", COMMANDS)
def test_processes_end_with_the_one_that_has_started_them(command, tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    process = subprocess.Popen([sys.executable, *COMMANDS[command]], env=environment, **silent)

    def until(there, seconds):
        end = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < end
            time.sleep(0.05)

    def children():
        listed = Path(f"/proc/{process.pid}/task").glob("*/children")
        pids = [int(pid) for path in listed for pid in path.read_text().split()]
        return [pid for pid in pids if memory(pid) > 100_000]  # kB: they have imported JAX

    def memory(pid):
        with contextlib.suppress(OSError):
            return int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text() + "VmRSS: 0")[1])
        return 0

    try:
        until(lambda: len(children()) == 2, seconds=60)
        found = children()
    finally:
        process.terminate()
        process.wait()
    try:
        until(lambda: not any(map(memory, found)), seconds=60)  # a program that is under way may hold Python
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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
