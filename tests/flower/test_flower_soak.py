"""Long runs and sudden ends: memory and what is written stay flat, and kill -9 at any moment changes nothing."""

import json
import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, plain_app, zeros

from fedpick import PowerOfChoice, Rand
from fedpick.flower import Selecting
from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
from fedpick.storage import RunStore

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "support" / "kills.py"


@pytest.fixture
def written(monkeypatch):
    """The bytes that were written to files so far, as a function."""
    import fedpick.storage.atomic as atomic
    import fedpick.storage.journal as journal

    total, whole, synced = [0], atomic.os.replace, journal.os.fsync

    def replace(source, target):
        total[0] += Path(source).stat().st_size if Path(source).is_file() else 0
        whole(source, target)

    monkeypatch.setattr(atomic.os, "replace", replace)
    monkeypatch.setattr(journal.os, "fsync", lambda handle: None)  # which would take most of the time
    assert synced
    return lambda: total[0]


def memory():
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks into /proc")
def test_two_thousand_rounds_on_a_server(tmp_path, written):
    seen, grid = [], FakeGrid(plain_app(), range(40))
    logging.disable(logging.INFO)  # pytest keeps every line

    def evaluate(server_round, arrays):
        grid.log.clear()  # the grid's own memory of every message
        if server_round in (500, 1000, 1500, 2000):
            journal = (tmp_path / "state" / "history.jsonl").stat().st_size
            seen.append((memory(), written() + journal, len(list(tmp_path.rglob("*")))))

    ours = Selecting(FedAvg(fraction_evaluate=0.1), PowerOfChoice(m=10, d=20), wait=0.0, clients=40, folder=tmp_path)
    try:
        ours.start(grid, zeros(), num_rounds=2000, timeout=60, evaluate_fn=evaluate)
    finally:
        logging.disable(logging.NOTSET)
    bytes_in_memory, total, files = map(list, zip(*seen, strict=True))
    print("memory", bytes_in_memory, "written", total, "files", files)
    assert bytes_in_memory[-1] - bytes_in_memory[0] < 40e6  # 1,500 rounds of history, and nothing else
    first, last = total[1] - total[0], total[3] - total[2]
    assert last < 1.6 * first  # per 500 rounds: the run is written each time that a twentieth of it is new
    assert files[-1] <= files[0] + 2


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks into /proc")
def test_two_thousand_rounds_in_the_simulator(tmp_path, written):
    seen = []
    problem = (Quadratic(K=20).federation(), QuadraticModel(), Rand(5), Local(1, 1, 1e-4))
    options = {"rounds": 8000, "every": 100, "progress": False, "checkpoint": tmp_path / "a.checkpoint"}
    simulate(*problem, **options, watch=lambda so_far: seen.append((so_far.rounds, memory(), written())))
    at = {rounds: (inside, total) for rounds, inside, total in seen}
    print({rounds: at[rounds] for rounds in (2000, 4000, 6000, 8000)})
    assert at[8000][0] - at[2000][0] < 40e6
    assert at[8000][1] < 2.6 * at[4000][1]


def killed(what, folder, kills, seed, longest):
    environment = {**os.environ, "FEDPICK_CACHE": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    source = str(Path(__file__).parents[2] / "src")
    environment["PYTHONPATH"] = os.pathsep.join([source, environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(PROGRAM), what, str(folder), str(kills), str(seed), str(longest)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    struck = int(done.stdout.split("struck")[1])
    print(what, "was struck down", struck, "times in", kills)
    return struck


def runs_of(folder):
    store = RunStore(folder)
    return {identity: store.load(identity) for identity in store.identities()}


def killed_a_hundred_times(what, tmp_path, longest):
    """A run that was left alone, and as many as it takes that were struck down, at a hundred moments in all."""
    killed(what, tmp_path / "whole", kills=0, seed=0, longest=0)
    folders, struck = [], 0
    while struck < 100:
        folders.append(tmp_path / f"killed-{len(folders)}")
        struck += killed(what, folders[-1], kills=10, seed=len(folders), longest=longest)
        assert len(folders) < 50, f"struck down {struck} times only"
    return runs_of(tmp_path / "whole"), folders


def test_a_server_that_is_killed_at_a_hundred_random_moments_plays_the_same_rounds(tmp_path):
    runs, folders = killed_a_hundred_times("federation", tmp_path, 3)
    (whole,) = runs.values()
    for folder in folders:
        (other,) = runs_of(folder).values()
        for name in ("records/clients", "records/weights", "records/train_loss", "metrics/loss"):
            np.testing.assert_array_equal(other.arrays[name], whole.arrays[name], err_msg=name)
        assert np.isfinite(other.arrays["metrics/loss"][1:]).all()  # no evaluation is lost
        assert not list(folder.rglob(".part-*"))
        assert not list(folder.rglob(".broken-*"))


def test_a_comparison_that_is_killed_at_a_hundred_random_moments_is_the_same(tmp_path):
    whole, folders = killed_a_hundred_times("compare", tmp_path, 12)
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    for folder in folders:
        other = runs_of(folder)
        assert other.keys() == whole.keys()
        for identity, run in whole.items():
            for name, values in run.arrays.items():
                np.testing.assert_array_equal(other[identity].arrays[name], values)
        assert json.loads((folder / "summary.json").read_text()) == summary
        assert not list(folder.rglob(".part-*"))
