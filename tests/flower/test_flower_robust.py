"""One client of seven that poisons its update: what a bound of norms and Flower's robust strategies leave of it."""

import logging

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from support.fake_grid import FakeGrid, only, plain_app, zeros

from fedpick import Full, PowerOfChoice
from fedpick.flower import Selecting

K, ROUNDS, LIAR = 7, 6, 6
NODES = {"fraction_evaluate": 0.0}
ROBUST = {
    "Krum": lambda: flower.Krum(**NODES, num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(**NODES, num_malicious_nodes=1, num_nodes_to_select=3),
    "Bulyan": lambda: flower.Bulyan(**NODES, num_malicious_nodes=1),
    "FedMedian": lambda: flower.FedMedian(**NODES),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(**NODES, beta=0.2),
    "DP server, fixed": lambda: flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(**NODES), 0.0, 3.0, K),
    "DP server, adaptive": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedAvg(**NODES), 0.0, K, initial_clipping_norm=1.0, clipped_count_stddev=0.0
    ),
}


def poisoning(message, answer):
    """The update of an honest client, fifty times as long and in the other direction."""
    reply, before = answer(), message.content["arrays"]["w"].numpy()
    update = reply.content["arrays"]["w"].numpy() - before
    reply.content["arrays"] = ArrayRecord({"w": Array((before - 50 * update).astype(np.float32))})
    return reply


def played(inner, poisoned=True, selector=Full(), **options):
    """How far the model is from the middle of what the clients want (they want 1, 2, ... 7)."""
    grid = FakeGrid(plain_app(pull=0.3), range(K))
    if poisoned:
        grid.faults[LIAR] = only("train", poisoning)
    ours = Selecting(inner, selector, wait=0.0, clients=K, **options)
    model = ours.start(grid, zeros(), num_rounds=ROUNDS, timeout=5).arrays["w"].numpy()
    assert len(ours.history.rows) == ROUNDS
    return float(np.abs(model - 4).max())


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_strategy_inside_bounds_the_damage(name):
    assert played(flower.FedAvg(**NODES)) > 100  # the model is somewhere else
    assert played(ROBUST[name]()) < 6
    assert played(ROBUST[name](), poisoned=False) < 4.5


@pytest.mark.parametrize("selector", [Full(), PowerOfChoice(m=6, d=7)])
def test_a_bound_of_norms_bounds_the_damage(selector, caplog):
    with caplog.at_level(logging.WARNING, "flwr.fedpick"):
        assert played(flower.FedAvg(**NODES), selector=selector, norm_bound=1.5) < 8
    assert "the update of partition-id=6, of norm" in caplog.text
    assert "is shortened to" in caplog.text


def test_a_bound_that_nobody_exceeds_changes_nothing(caplog):
    plain = played(flower.FedAvg(**NODES), poisoned=False)
    assert played(flower.FedAvg(**NODES), poisoned=False, norm_bound=1e6) == plain
    assert "shortened" not in caplog.text


def test_a_bound_and_a_robust_strategy_compose():
    assert played(flower.FedMedian(**NODES), norm_bound=2.0) < 4


@pytest.mark.parametrize("bound", [0, -1.0, float("nan"), float("inf"), "2", [2.0, 3.0]])
def test_the_bound_is_checked(bound):
    with pytest.raises(ValueError, match="Selecting: norm_bound must be"):
        Selecting(flower.FedAvg(), Full(), norm_bound=bound)
