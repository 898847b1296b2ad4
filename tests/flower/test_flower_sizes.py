"""What a client claims to have counts within bounds."""

import jax.numpy as jnp
import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import Full, PowerOfChoice, Rand
from fedpick.flower import Selecting
from fedpick.flower.sizes import SizeLimits
from fedpick.sampling import size_bound

POLL = "query.loss"


def selecting(selector=Rand(m=2), inner=None, **options):
    options = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3, **options}
    return Selecting(inner or FedAvg(fraction_evaluate=0.0), selector, **options)


@pytest.mark.no_cover
@given(
    honest=st.lists(st.integers(1, 10**6), min_size=19, max_size=40),
    lies=st.lists(st.floats(0.5, 1e30), min_size=1, max_size=2),
)
def test_whatever_is_claimed_nobody_counts_more_than_twice_the_largest_honest_client(honest, lies):
    claimed = np.array([*honest, *lies])
    counted = SizeLimits(factor=2.0).apply([str(k) for k in range(len(claimed))], claimed)
    assert counted.max() <= 2 * max(honest) * (1 + 1e-6)
    assert (counted <= claimed).all()
    honest_counted = counted[: len(honest)]
    within = np.array(honest) <= 2 * np.sort(honest)[-5]  # of 42 clients, four may lie
    assert (honest_counted[within] == np.array(honest)[within]).all()  # bit for bit


def test_the_bound_can_be_traced_and_needs_three_clients():
    assert float(size_bound(jnp.array([5.0, 1e9, 0.0, 0.0]))) == np.inf
    assert float(size_bound(jnp.array([5.0, 1e9, 0.0, 7.0]))) == 14.0
    assert float(size_bound(jnp.array([5.0, 1e9, 6.0, 7.0]), factor=3.0, liars=0.5)) == 18.0


def test_a_client_that_claims_any_size_does_not_own_the_federation(caplog):
    seats = {}
    for said in (None, 1e12):
        grid = FakeGrid(plain_app(), range(8))
        if said is not None:
            grid.faults[0] = only(POLL, saying(num_examples=said))
        strategy = selecting()
        strategy.start(grid, zeros(), num_rounds=40, timeout=0.3)
        seats[said] = np.mean([row.clients.count(0) for row in strategy.history.rows]) / 2
    assert "partition-id=0 reports 1e+12 examples, and counts as 160" in caplog.text
    assert seats[None] < 0.1
    assert seats[1e12] < 0.5  # 160 of 510 by size, and 1.0 where every size is believed


@pytest.mark.parametrize(("weights", "selector"), [("examples", Full()), ("selection", Full())])
def test_nor_its_average(weights, selector):
    grid = FakeGrid(plain_app(pull=1.0), range(4))
    grid.faults[0] = saying(num_examples=1e12)
    strategy = selecting(selector, weights=weights)
    result = strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    # Client 0 has a target of 1, and counts as at most 80 beside 20, 30 and 40.
    least = (80 * 1 + 20 * 2 + 30 * 3 + 40 * 4) / 170
    assert result.arrays["w"].numpy()[0] >= least - 1e-5


def test_nor_the_evaluation():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only("evaluate", saying(num_examples=1e12, eval_loss=1000.0))
    strategy = selecting(PowerOfChoice(m=1, d=4), FedAvg())
    result = strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] < 2 / 5 * 1000 + 2
    assert strategy.history.measured[1]["loss"] < 2 / 5 * 1000 + 2


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, 20.0),  # twice the others
        ({"sizes": {"partition-id=3": 10000.0}}, 10000.0),
        ({"size_caps": {"partition-id=3": 10000.0}}, 10000.0),
        ({"size_caps": {"partition-id=3": 5.0}}, 5.0),
        ({"size_cap": None}, 10000.0),
    ],
)
def test_what_the_server_knows_of_sizes_holds_in_evaluations(options, counts):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = dict.fromkeys(range(3), only("evaluate", saying(eval_loss=0.0)))
    grid.faults[3] = only("evaluate", saying(num_examples=10000, eval_loss=1.0))
    ours = selecting(Full(), FedAvg(), **options)
    ours.start(grid, zeros(), num_rounds=1, timeout=0.2)
    assert ours.history.measured[1]["loss"] == pytest.approx(counts / (30 + counts))


def test_what_the_operator_knows_stands():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {k: only(POLL, saying(num_examples=1e12)) for k in (0, 1)}
    strategy = selecting(sizes={"partition-id=0": 500}, size_caps={"partition-id=1": 700})
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert strategy.adapter.state.clients.sizes().tolist() == [500.0, 700.0, 30.0, 40.0]


def test_a_claim_that_changes_is_told(caplog):
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    grid.leave(3)
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    grid.join(3)
    grid.faults[3] = only(POLL, saying(num_examples=55))
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert "partition-id=3 reports 55 examples, and 40 before" in caplog.text
