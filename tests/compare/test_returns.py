"""Seats whose update does not come back: they are drawn as selected, and said to be lost."""

from dataclasses import replace

import numpy as np
import pytest

from fedpick import Rand
from fedpick.compare import Comparison
from fedpick.compare.charts import Facts, sections
from fedpick.results import concatenate
from fedpick.sim import Devices, Local, Quadratic, QuadraticModel, simulate

K, SLOW = 10, [7, 8, 9]
FACTS = Facts(tuple(map(str, range(K))))


def play(**options):
    return simulate(Quadratic(K), QuadraticModel(), Rand(m=3), Local(2, 1, 2e-5), rounds=60, every=60, **options)


@pytest.fixture(scope="module")
def late():
    """The updates of three clients never come back."""
    return play(devices=Devices(speed=np.where(np.isin(np.arange(K), SLOW), 1.0, 1000.0), deadline=1.0))


def old(result):
    """As it was stored before all seats were recorded."""
    return replace(result, records={name: values for name, values in result.records.items() if name != "selected"})


def charts(result, real=False):
    compared = Comparison(("rand",), (result,))
    return {chart.name: chart for part in sections(compared, FACTS._replace(real=real)) for chart in part.charts}


def test_every_filled_seat_is_recorded_whether_its_update_came_back_or_not(late):
    selected, clients = late.records["selected"], late.records["clients"]
    assert selected.shape == clients.shape
    assert (selected >= 0).all()
    np.testing.assert_array_equal(clients, np.where(np.isin(selected, SLOW), -1, selected))
    np.testing.assert_array_equal(late.selected.sum(axis=1), late.records["trained"].sum(axis=1))
    assert (late.selected[0, SLOW] > 0).all()
    assert (late.counts[0, SLOW] == 0).all()
    np.testing.assert_array_equal(np.delete(late.selected, SLOW, 1), np.delete(late.counts, SLOW, 1))


def test_who_was_selected_is_drawn_with_the_seats_that_did_not_come_back(late):
    drawn, missing = charts(late), int((late.records["trained"] - late.records["returned"]).sum())
    profile, picks = drawn["profile"], drawn["picks"]
    dots = {int(row["x"]): row for row in profile.rows if row["name"] == "rand"}
    for client, row in dots.items():
        assert row["y"] == pytest.approx(100 * late.selected[0, client] / late.selected.sum(), rel=1e-4)
        assert row["came"] == pytest.approx(100 * late.counts[0, client] / late.selected.sum(), rel=1e-4)
    assert profile.title.startswith("Who was selected")
    assert f"{missing} of 180 updates did not come back." in profile.text
    for client in range(K):
        rows = [row for row in picks.rows if row["y"] == str(client)]
        assert sum(row["seats"] for row in rows) == late.selected[0, client]
        assert sum(row["came"] for row in rows) == late.counts[0, client]
    assert picks.title == "Who was selected when"


@pytest.mark.parametrize("real", [False, True])
def test_where_it_is_not_recorded_the_charts_are_of_the_updates_that_came_back(late, real):
    drawn = charts(old(late), real)
    assert old(late).selected is None
    assert drawn["profile"].title.startswith("Who trained")
    assert "of all updates that came back, the part that it sent" in drawn["profile"].text
    assert "updates did not come back." in drawn["profile"].text
    assert drawn["picks"].text.startswith("Whose update came back in which round")
    rows = {int(row["x"]): row["y"] for row in drawn["profile"].rows if row["name"] == "rand"}
    assert all(rows[client] == 0 for client in SLOW)
    assert sum(rows.values()) == pytest.approx(100, rel=1e-4)


def test_where_all_came_back_old_and_new_records_draw_the_same():
    result = play()
    np.testing.assert_array_equal(result.selected, result.counts)
    np.testing.assert_array_equal(old(result).selected, result.counts)
    assert charts(result)["profile"] == charts(old(result))["profile"]
    assert "did not come back" not in charts(result)["profile"].text
    assert charts(result)["picks"].title == "Who trained when"


def test_runs_of_before_are_read_and_joined_with_new_ones(late):
    row = late.to_arrays(0)
    before = late.from_arrays(1, late.model_bytes, {name: x for name, x in row.items() if name != "records/selected"})
    assert before.selected is None
    assert concatenate([late, before]).selected is None
    assert concatenate([before, late]).counts.shape == (2, K)
    np.testing.assert_array_equal(late.from_arrays(0, late.model_bytes, row).selected, late.selected)
