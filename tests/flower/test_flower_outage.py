"""Rounds are not played with nobody: they wait, or the run ends with an error and resumes."""

import time

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, only, plain_app, raising, silent, zeros

from fedpick import PowerOfChoice
from fedpick.flower import OutageError, Selecting


def selecting(selector=PowerOfChoice(m=2, d=4), **options):
    options = {"poll_timeout": 0.05, "wait": 0.0, "outage": 20.0, **options}
    return Selecting(FedAvg(fraction_evaluate=0.0), selector, **options)


class Flickering(FakeGrid):
    """All clients are out of sight for some seconds, once the third round was trained."""

    def __init__(self, *args, seconds=1.0):
        super().__init__(*args)
        self.seconds, self.away = seconds, None

    def get_node_ids(self):
        if self.away is None and len(self.sent("train")) >= 6:
            self.away = time.monotonic()
        away = self.away is not None and time.monotonic() < self.away + self.seconds
        return [] if away else super().get_node_ids()


def test_clients_that_are_away_for_a_moment_cost_time_and_no_rounds(caplog):
    grid = Flickering(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=12, timeout=0.3)
    assert [row.returned for row in strategy.history.rows] == [2] * 12
    assert "0 clients are here; waiting up to 20 s for more" in caplog.text


def test_a_run_without_clients_ends_with_an_error_and_resumes(tmp_path):
    whole = selecting(folder=tmp_path / "whole")
    whole.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=8, timeout=0.3)
    with pytest.raises(OutageError, match="0 of at least 1 clients are here"):
        selecting(outage=0.5, folder=tmp_path / "parts").start(
            Flickering(plain_app(), range(4), seconds=60), zeros(), num_rounds=8, timeout=0.3
        )
    again = selecting(folder=tmp_path / "parts")
    again.start(FakeGrid(plain_app(), range(4), seed=3), zeros(), num_rounds=8, timeout=0.3)
    assert [row.clients for row in again.history.rows] == [row.clients for row in whole.history.rows]


def test_a_round_waits_for_the_clients_that_it_needs():
    grid = FakeGrid(plain_app(), range(4))
    grid.leave(3)
    strategy = selecting(min_clients=4, outage=0.3)
    with pytest.raises(OutageError, match="3 of at least 4 clients are here"):
        strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    grid.join(3)
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    assert [row.available for row in strategy.history.rows] == [4, 4]


def test_a_run_in_which_nobody_trains_any_more_is_not_finished(tmp_path):
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting(outage=0.2, folder=tmp_path)

    def breaks_later(message, answer):
        if message.content["config"]["server-round"] > 3:
            raise RuntimeError("the disk is full")
        return answer()

    grid.faults = {k: only("train", breaks_later) for k in range(4)}
    with pytest.raises(OutageError, match="no client has returned an update in"):
        strategy.start(grid, zeros(), num_rounds=1000, timeout=0.3)
    grid.faults = {}
    again = selecting(folder=tmp_path)
    again.start(grid, zeros(), num_rounds=6, timeout=0.3)
    assert [row.returned for row in again.history.rows] == [2] * 6  # the rounds without an update are played again


@pytest.mark.slow
def test_who_answers_polls_and_never_trains_stays_away_longer():
    asked = {}
    for name, fault in (("raising", raising), ("silent", silent)):
        grid = FakeGrid(plain_app(), range(6))
        grid.faults = {k: only("train", fault) for k in (4, 5)}  # those with the highest loss
        strategy = selecting(PowerOfChoice(m=2, d=6))
        strategy.start(grid, zeros(), num_rounds=60, timeout=0.02)
        rows = strategy.history.rows
        asked[name] = grid.sent("train").count(5)
        assert sum(row.returned == 0 for row in rows) <= 6  # and 20 where an answered poll forgives all
        assert np.mean([row.returned for row in rows]) > 1.7
    assert max(asked.values()) <= 6
