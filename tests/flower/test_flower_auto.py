"""auto on Flower: the simulator's picks while d falls, and every change of d explained, on the page too."""

import json

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, record_of, simulated_app

from fedpick import Auto, init_key
from fedpick.compare import load_report, render_page
from fedpick.flower import Selecting
from fedpick.sim import Local, Logistic, Synthetic, simulate
from fedpick.storage import RunStore

SEED, ROUNDS = 3, 60


@pytest.fixture(scope="module")
def problem():
    federation = Synthetic(1, 1, K=10, dim=12, classes=4, seed=5).federation()
    return federation, Logistic().build(federation), Local(tau=1, b=20, eta=0.0)  # nothing is learnt


def start(problem, folder, rounds):
    federation, model, _ = problem
    strategy = Selecting(FedAvg(fraction_evaluate=0.0), Auto(2), seed=SEED, folder=folder, size_cap=None)
    grid = FakeGrid(simulated_app(*problem, SEED), range(federation.num_clients), seed=1)
    strategy.start(grid, record_of(model.init(init_key(SEED))), num_rounds=rounds, timeout=60)
    return strategy.history


@pytest.mark.slow
def test_each_change_of_d_is_explained_and_the_picks_are_the_simulators(problem, tmp_path):
    start(problem, tmp_path, 40)
    history = start(problem, tmp_path, ROUNDS)  # a server that starts again knows the reasons
    simulated = simulate(*problem[:2], Auto(2), problem[2], rounds=ROUNDS, seeds=[SEED], progress=False)
    assert [row.clients for row in history.rows] == simulated.records["clients"][0].tolist()
    d = [int(line["d"]) for line in history.status]
    assert len(d) == ROUNDS
    changes = {
        t + 1: (before, after) for t, (before, after) in enumerate(zip([10, *d], d, strict=False)) if before != after
    }
    assert changes == {56: (10, 5)}
    assert set(history.notes) == set(changes)
    for number, (before, after) in changes.items():
        assert history.notes[number] == f"d {before} -> {after}, no progress in 56 rounds"
    loss = simulated.metrics["loss"][0, 0]
    np.testing.assert_allclose([line["estimate"] for line in history.status], loss, rtol=1e-3)

    (identity,) = RunStore(tmp_path).identities()
    stored = RunStore(tmp_path).load(identity)
    assert stored.about["notes"] == [[number, why] for number, why in history.notes.items()]
    np.testing.assert_array_equal(stored.arrays["records/d"], d)
    report = load_report(tmp_path)
    page = render_page(report)
    assert all(why.replace(">", "&gt;") in page for why in history.notes.values())
    assert json.dumps(report.summary())
