"""Charts as data, as pictures and on a page."""

from importlib import resources

import numpy as np
import pytest

from fedpick.report import Chart, curve, dot, figure, page, paragraph, picture, table, write_chart

ROWS = (dot("a", "p", "1", value=1, low=0, high=2), dot("b", "q", "1", value=1, low=0, high=2))
CHART = Chart("x", "dots", title="t", text="t", rows=ROWS)


def test_charts_keep_what_can_be_seen():
    rows = curve("a", "", np.arange(1000), values=np.ones((3, 1000)))
    assert len(rows) == 80
    assert rows[0]["x"] == 0
    assert rows[-1]["x"] == 999
    assert CHART.names == ["a", "b"]
    assert CHART.panels == ["p", "q"]


def test_hostile_strings_are_shown_and_not_run():
    nasty = "<script>alert('x')</script>"
    text = page(nasty, [paragraph(nasty), table(nasty, [nasty], [[nasty]], links=[nasty])])
    assert nasty not in text
    assert text.count("&lt;script&gt;") == 8
    chart = Chart(
        nasty,
        "dots",
        title=nasty,
        text=nasty,
        x=nasty,
        y=nasty,
        rows=(dot(nasty, nasty, nasty, value=1, low=0, high=2),),
    )
    assert nasty not in figure(chart)


def test_a_page_is_the_same_each_time_and_holds_its_style_and_script():
    text = page("t", [figure(CHART)])
    assert text == page("t", [figure(CHART)])
    for name in ("page.css", "page.js"):
        content = resources.files("fedpick.report").joinpath("templates", name).read_text()  # as package data
        assert content in text


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_a_chart_is_written_as_its_ending_says(kind, start, tmp_path):
    path = write_chart(CHART, tmp_path / "new" / f"chart.{kind}")
    assert path.read_bytes().startswith(start)
    assert picture(CHART, kind).startswith(start)
    assert [each.name for each in path.parent.iterdir()] == [f"chart.{kind}"]
    with pytest.raises(OSError, match=r"report: .* cannot be written"):
        write_chart(CHART, path / f"chart.{kind}")
