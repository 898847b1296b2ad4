"""The same federation, seed and selector in the simulator and under Flower: the same picks, and the same model."""

import dataclasses

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, params_of, record_of, simulated_app
from support.rounds import every

from fedpick import init_key, strategy
from fedpick.flower import Selecting
from fedpick.sim import Local, Logistic, Synthetic, simulate

pytestmark = pytest.mark.no_cover
SEED, ROUNDS = 3, 20
SELECTORS = every()
# One for each kind of poll, of need and of memory in make test; all in make test-all.
KINDS = ("rand", "uniform", "pow-d", "cpow-d", "rpow-d", "ocs", "oort", "divfl", "auto")


@pytest.fixture(scope="module")
def problem():
    federation = Synthetic(1, 1, K=10, dim=12, classes=4, seed=5).federation()
    return federation, Logistic().build(federation), Local(tau=4, b=20, eta=0.1)


@pytest.fixture(scope="module")
def app(problem):
    return simulated_app(*problem, SEED)


def on_flower(app, problem, selector, shuffle, **options):
    federation, model, local = problem
    grid = FakeGrid(app, range(federation.num_clients), seed=shuffle)
    options = {"seed": SEED, "batch": local.b, "duration": "seconds", "size_cap": None, **options}
    strategy = Selecting(FedAvg(fraction_evaluate=0.0), selector, **options)
    result = strategy.start(grid, record_of(model.init(init_key(SEED))), num_rounds=ROUNDS, timeout=60)
    return params_of(result.arrays), strategy.history


@pytest.mark.parametrize(
    ("name", "shuffle"),
    [
        *(pytest.param(name, 1, marks=() if name in KINDS else pytest.mark.slow) for name in SELECTORS),
        ("pow-d", 2),
        ("rpow-d", 2),
    ],
)
def test_flower_picks_and_learns_what_the_simulator_does(app, problem, name, shuffle):
    selector = SELECTORS[name]
    if name == "hics-fl":
        selector = dataclasses.replace(selector, classes=problem[0].classes)
    simulated = simulate(*problem[:2], selector, problem[2], rounds=ROUNDS, seeds=[SEED], progress=False)
    params, record = on_flower(app, problem, selector, shuffle)
    assert [row.clients for row in record.rows] == simulated.records["clients"][0].tolist()
    for row, weights in zip(record.rows, simulated.records["weights"][0], strict=True):
        np.testing.assert_allclose(row.weights, weights, rtol=1e-6)
    for name_of_array, values in simulated.params.items():
        np.testing.assert_allclose(params[name_of_array], values[0], atol=1e-4)
    losses = [row.train_loss for row in record.rows]
    np.testing.assert_allclose(losses, simulated.records["train_loss"][0], rtol=1e-4)


def test_the_parity_is_no_accident(app, problem):
    one = on_flower(app, problem, strategy("pow-d", m=3, d=6), 1)[1]
    other = on_flower(app, problem, strategy("pow-d", m=3, d=8), 1)[1]
    assert [row.clients for row in one.rows] != [row.clients for row in other.rows]
