"""A result draws itself: in a notebook, and as an Altair chart with the numbers that it holds."""

import pytest
from support.made_up import made_up


def rows(chart):
    (found,) = chart.to_dict()["datasets"].values()
    return found


def test_a_notebook_shows_a_table_and_a_picture():
    shown = made_up([3, 5], total=10, accuracy=0.5)._repr_html_()
    assert '<td class="short">0.2</td>' in shown  # the loss at the end
    assert "after round 10" in shown
    assert "<svg" in shown and "<script" not in shown  # noqa: PT018


def test_the_chart_has_the_means_over_the_seeds():
    found = rows(made_up([3, 5], total=10).plot("loss", "worst_loss"))
    at_four = {row["panel"]: row["y"] for row in found if row["x"] == 4}
    assert at_four == {"loss": pytest.approx((0.2 + 1.0) / 2), "worst loss": pytest.approx((0.4 + 2.0) / 2)}


def test_a_metric_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"metric must be one of 'loss', .* got 'los'"):
        made_up([1]).plot("los")


def test_swept_values_are_curves_of_their_own():
    result = made_up([3, 5, 4, 6], total=10)
    for run, d in zip(result.runs, (6, 6, 9, 9), strict=True):
        run["d"] = d
    names = {row["name"] for row in rows(result.plot("loss"))}
    assert names == {"d = 6", "d = 9"}
