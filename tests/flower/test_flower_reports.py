"""What a strategy learns from and no client reports is said; in a trial of an app it is an error."""

import logging

import pytest
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import strategy
from fedpick.flower import Selecting
from fedpick.flower.history import server_metrics


def without(*names):
    """Honest, but these metrics are missing."""

    def fault(message, answer):
        reply = answer()
        for record in reply.content.metric_records.values():
            for name in names:
                record.pop(name, None)
        return reply

    return fault


def start(name, fault, strict=False, clients=6, **parameters):
    """Three rounds, in which all clients have this fault."""
    grid = FakeGrid(plain_app(), range(clients))
    grid.faults = dict.fromkeys(range(clients), fault)
    ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy(name, m=2, **parameters), wait=0.1)
    ours.adapter.check_reports.strict = strict
    ours.start(grid, zeros(), num_rounds=3, timeout=0.5)
    return ours.history


@pytest.mark.parametrize(
    ("name", "missing", "parameters"),
    [
        ("rpow-d", "train_loss", {"d": 4}),
        ("afl", "train_loss", {}),
        ("ucb-cs", "square_loss", {}),
        ("oort", "square_loss", {}),
    ],
)
def test_a_strategy_that_hears_nothing_says_so_once_and_is_no_trial(name, missing, parameters, caplog):
    with caplog.at_level(logging.WARNING, "flwr"):
        history = start(name, without("train_loss"), **parameters)
    said = [line for line in caplog.messages if "it chooses without" in line]
    assert len(said) == 1
    assert f"learns from '{missing}' in the metrics of training replies" in said[0]
    assert f"learns from '{missing}'" in history.notes[1]
    with pytest.raises(ValueError, match=f"learns from '{missing}' .* report it from the app's train function"):
        start(name, without("train_loss"), strict=True, **parameters)


@pytest.mark.parametrize(("name", "parameters"), [("rand", {}), ("pow-d", {"d": 4}), ("uniform", {})])
def test_a_strategy_that_needs_no_training_losses_does_without_them(name, parameters, caplog):
    start(name, without("train_loss"), strict=True, **parameters)
    assert "it chooses without" not in caplog.text


def test_losses_that_are_reported_and_no_numbers_are_no_missing_ones(caplog):
    start("afl", saying(train_loss=float("nan")), strict=True)
    assert "it chooses without" not in caplog.text


def test_an_accuracy_in_per_cent_is_said_and_left_out_and_refused_in_a_trial(caplog):
    record = MetricRecord({"loss": 0.5, "accuracy": 70.4})
    found = server_metrics(record)
    assert found["test_loss"] == 0.5
    assert found["test_accuracy"] != found["test_accuracy"]
    assert "an accuracy must be between 0 and 1, got 70.4 from an evaluation: is it in per cent?" in caplog.text
    with pytest.raises(ValueError, match=r"must be between 0 and 1, got 70\.4"):
        server_metrics(record, strict=True)
    assert server_metrics(MetricRecord({"loss": 0.5, "accuracy": 1.0}), strict=True)["test_accuracy"] == 1.0


def test_the_accuracies_of_clients_too(caplog):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = dict.fromkeys(range(4), only("evaluate", saying(eval_acc=72.0)))
    ours = Selecting(FedAvg(), strategy("rand", m=2), wait=0.1)
    ours.start(grid, zeros(), num_rounds=1, timeout=0.5)
    assert ours.history.measured[1]["loss"] > 0
    assert ours.history.measured[1]["mean_accuracy"] != ours.history.measured[1]["mean_accuracy"]
    assert "got 72 from an evaluation" in caplog.text
    ours.adapter.check_reports.strict = True
    with pytest.raises(ValueError, match="between 0 and 1, got 72"):
        ours.start(grid, zeros(), num_rounds=1, timeout=0.5)
