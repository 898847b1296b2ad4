"""Charts for a page: as wide as their place, without a legend of their own.

The page's script sets the signals ``focus`` (a strategy that is looked at alone), ``winner``, ``leader`` and
``target``, and gives data anew where they depend on the target.
"""

from typing import Any

from fedpick.report.charts import Chart, ChartRow
from fedpick.report.client_panels import bars, heat, picks, sizes
from fedpick.report.palette import Palette
from fedpick.report.panel_style import ENDS, styled
from fedpick.report.strategy_panels import dots, end_labels, lines, strip, y_ends

KINDS = {
    "lines": lines, "strip": strip, "dots": dots, "bars": bars, "heat": heat, "sizes": sizes, "picks": picks,
}  # fmt: skip


def to_panel(
    chart: Chart,
    palette: Palette,
    *,
    baseline: str = "",
    winner: str = "",
    leader: str = "",
    target: float | None = None,
) -> dict[str, Any]:
    """The chart in the words of Vega-Lite, for a page: its ``spec``, and the ``tables`` of its data by columns.

    Args:
        chart: The chart, of one panel.
        palette: What the names are drawn with.
        baseline: The strategy that the others are compared with.
        winner: The strategy that is highlighted.
        leader: The strategy whose band is drawn, beside the baseline's.
        target: Where to draw the line of the target; None for no line.
    """
    import altair as alt
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        drawn = KINDS[chart.kind](chart, palette, alt, baseline, target)
        values = {"focus": "", "winner": winner, "leader": leader, "baseline": baseline, "target": target}
        drawn = drawn.add_params(*(alt.param(name=name, value=value) for name, value in values.items()))
        plain: dict[str, Any] = styled(drawn, alt).to_dict(validate=False)
    # Altair copies data with every step: they are put in when all is done, by columns, which the page's script unfolds.
    tables = {chart.name: _drawn_rows(chart, baseline, target)}
    if chart.kind == "lines":
        tables[ENDS] = end_labels(chart, y_ends(chart, target, baseline))
    return {"spec": plain, "tables": {name: _columns(rows) for name, rows in tables.items()}}


def _drawn_rows(chart: Chart, baseline: str, target: float | None) -> list[ChartRow]:
    if chart.kind == "lines":
        low, high = y_ends(chart, target, baseline)
        return [{**row, "low": max(row["low"], low), "high": min(row["high"], high)} for row in chart.rows]
    if chart.kind == "heat":
        return [row for row in chart.rows if row["samples"] > 0]
    return [{**row, "x": str(row["x"])} for row in chart.rows] if chart.kind == "dots" else list(chart.rows)


def _columns(rows: list[ChartRow]) -> dict[str, Any]:
    """Rows as columns: a value that all have alone, a text as its place among the texts, five digits of a number."""
    found: dict[str, Any] = {"length": len(rows), "texts": [], "columns": {}}
    places: dict[str, int] = {}
    for key in dict.fromkeys(key for row in rows for key in row if key != "panel"):
        values = [row.get(key) for row in rows]
        if all(value == values[0] for value in values):
            found["columns"][key] = {"all": values[0]}
        elif any(isinstance(value, str) for value in values):
            found["columns"][key] = {"text": [places.setdefault(str(value), len(places)) for value in values]}
        else:
            found["columns"][key] = {"number": [_short(value) for value in values]}
    return {**found, "texts": list(places)}


def _short(value: Any) -> Any:
    """A number in few characters."""
    if not isinstance(value, float):
        return value
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short
