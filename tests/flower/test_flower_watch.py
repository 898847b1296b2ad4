"""A model that an accepted update has ruined is noticed and rolled back, and it is the sender who is sent away."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import PowerOfChoice, Rand, Uniform
from fedpick.flower import Selecting
from fedpick.flower.watch import SERVER, Watch

LIAR = 5


def sending(value, after=0):
    """Honest but for the update, from some round on; its loss is high, so that pow-d takes it."""

    def fault(message, answer):
        reply = answer()
        if message.metadata.message_type == "query.loss":
            if "arrays" in message.content:
                reply.content["metrics"]["loss"] = 10.0
        elif message.metadata.message_type == "train" and message.content["config"]["server-round"] > after:
            reply.content["arrays"] = ArrayRecord({"w": Array(np.full(3, value, np.float32))})
            reply.content["metrics"]["train_loss"] = 5.0
        return reply

    return fault


def selecting(selector, inner=None, **options):
    options = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3, **options}
    return Selecting(inner or FedAvg(fraction_evaluate=0.0), selector, **options)


def untouched(table):
    """Nobody but the liar is or was in quarantine."""
    others = [k for k in range(6) if k != LIAR]
    return not table.quarantined[others].any() and not table.failures[others].any()


SELECTORS = [PowerOfChoice(m=2, d=6), Rand(m=2), Uniform(m=1), PowerOfChoice(m=2, d=6, loss="stale")]


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
@pytest.mark.parametrize("after", [0, 3])
def test_a_ruined_model_is_rolled_back_and_its_sender_quarantined(selector, after, caplog):
    grid = FakeGrid(plain_app(), range(6))
    grid.faults[LIAR] = sending(1e12, after)
    strategy = selecting(selector)
    result = strategy.start(grid, zeros(), num_rounds=12, timeout=0.3)
    assert np.abs(result.arrays["w"].numpy()).max() < 20  # Uniform's weights do not sum to 1
    liar = [t for t, row in enumerate(strategy.history.rows) if LIAR in row.clients and t >= after]
    assert 1 <= len(liar) <= 3  # it takes two others who meet its model
    assert caplog.text.count("quarantine for its sender: partition-id=5") == 1
    assert not strategy.adapter.state.clients.available()[LIAR]
    assert untouched(strategy.adapter.state.clients)


def test_the_memory_of_the_strategy_is_rolled_back_too():
    grid = FakeGrid(plain_app(), range(6))
    grid.faults[LIAR] = sending(1e12, after=2)
    strategy = selecting(PowerOfChoice(m=2, d=6), FedAvgM(fraction_evaluate=0.0, server_momentum=0.9))
    result = strategy.start(grid, zeros(), num_rounds=6, timeout=0.3)
    assert strategy.adapter.state.clients.quarantined[LIAR]
    assert np.abs(result.arrays["w"].numpy()).max() < 100


def test_a_server_that_was_killed_after_the_ruin_rolls_back_as_well(tmp_path):
    for rounds, faulty in ((3, True), (6, False)):
        grid = FakeGrid(plain_app(), range(6))
        if faulty:
            grid.faults[LIAR] = sending(1e12, after=2)
        strategy = selecting(PowerOfChoice(m=2, d=6), folder=tmp_path)
        result = strategy.start(grid, zeros(), num_rounds=rounds, timeout=0.3)
        assert (np.abs(result.arrays["w"].numpy()).max() > 1e9) == faulty  # in the third round, the last
    assert strategy.adapter.state.clients.quarantined[LIAR]
    assert untouched(strategy.adapter.state.clients)


@pytest.mark.parametrize("where", ["clients", "server"])
def test_an_evaluation_notices_it_at_once(where):
    grid = FakeGrid(plain_app(), range(6))
    grid.faults[LIAR] = sending(1e12, after=2)
    inner = FedAvg(fraction_evaluate=1.0 if where == "clients" else 0.0)
    strategy = selecting(PowerOfChoice(m=2, d=6), inner)
    evaluate = lambda t, arrays: MetricRecord({"loss": float(np.abs(arrays["w"].numpy() - 4).mean())})  # noqa: E731
    result = strategy.start(
        grid, zeros(), num_rounds=3, timeout=0.3, evaluate_fn=evaluate if where == "server" else None
    )
    assert np.abs(result.arrays["w"].numpy()).max() < 6
    assert strategy.adapter.state.clients.quarantined[LIAR]


def test_liars_who_say_that_the_model_is_ruined_have_nobody_blamed(caplog):
    grid = FakeGrid(plain_app(), range(6))
    for k in (0, 1, 2):  # half of all
        grid.faults[k] = only("query.loss", saying(loss=math.nan))
    strategy = selecting(PowerOfChoice(m=2, d=6))
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    for k in (0, 1, 2):
        strategy.adapter.state.clients.pardon(k)
    strategy.start(grid, zeros(), num_rounds=6, timeout=0.3)
    assert "broke at once" not in caplog.text
    assert not strategy.adapter.state.clients.quarantined[3:].any()


def test_what_the_watch_remembers_survives():
    watch = Watch()
    watch.hear("poll", {0: 2.0, 1: 3.0, 2: math.nan}, rounds=4)
    watch.sent({3: 7.0})
    watch.hear("poll", {0: math.nan}, rounds=5)
    assert Watch.from_facts(watch.to_facts()) == watch
    assert (watch.good, watch.broken, watch.ruined) == (4, {0}, False)
    watch.hear("server", {SERVER: math.inf}, rounds=5)
    assert watch.ruined
