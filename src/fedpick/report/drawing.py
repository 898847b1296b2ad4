"""Charts drawn with Altair: one description for the interactive page and for SVG, PDF and PNG."""

import os
from pathlib import Path
from typing import Any

from fedpick.report.charts import Chart

# Okabe and Ito's colours (grey for their black), which colour-blind people can tell apart; and dashes and shapes, so
# that colour is not needed.
COLOURS = ("#777777", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C510A")
DASHES = ([1, 0], [6, 2], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3], [10, 2], [3, 1])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
FORMATS = ("svg", "pdf", "png")


def altair() -> Any:
    """The library, or a sentence on how to get it."""
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError:
        raise ModuleNotFoundError("charts need Altair; install it with pip install 'fedpick[plots]'") from None
    return altair


def drawn(chart: Chart) -> Any:
    """The chart as an Altair object: panels side by side, a click in the legend shows one strategy alone.

    >>> from fedpick.report import Chart, dot
    >>> rows = (dot("ours", "", "rand", 1.0, 0.5, 1.5),)
    >>> drawn(Chart("one", "dots", "One", "One dot.", "strategy", "value", rows)).to_dict()["title"]["text"]
    'One'
    """
    alt = altair()
    # A logarithm has no place for what is not above 0.
    rows = [{**row, "low": max(row["low"], row["y"] / 10)} if chart.log_y else row for row in chart.rows]
    if chart.log_y:
        rows = [row for row in rows if row["y"] > 0]
    clicked = alt.selection_point(fields=["name"], bind="legend")
    colour, dash, shape = (
        channel("name:N", title=None, sort=chart.names, scale=alt.Scale(domain=chart.names, range=list(values)))
        for channel, values in ((alt.Color, COLOURS), (alt.StrokeDash, DASHES), (alt.Shape, SHAPES))
    )
    shown = alt.condition(clicked, alt.value(1.0), alt.value(0.08))
    faint = alt.condition(clicked, alt.value(0.15), alt.value(0.02))
    kind = "nominal" if chart.kind == "dots" else "quantitative"
    tooltip = [
        alt.Tooltip("name:N", title="of"),
        alt.Tooltip("x", title=chart.x, type=kind),
        alt.Tooltip("y:Q", title=chart.y, format=".4g"),
        alt.Tooltip("low:Q", title="from", format=".4g"),
        alt.Tooltip("high:Q", title="to", format=".4g"),
    ]
    scale = alt.Scale(type="log" if chart.log_y else "linear", zero=False)
    y, low = (alt.Y(f"{end}:Q", title=chart.y, scale=scale) for end in ("y", "low"))
    if chart.kind == "lines":
        x = alt.X("x:Q", title=chart.x, scale=alt.Scale(type="log" if chart.log_x else "linear", nice=False))
        base = alt.Chart().encode(x=x)
        colour = colour.legend(symbolType="stroke")
        layers = [
            base.mark_area().encode(y=low, y2="high:Q", color=colour, opacity=faint),
            base.mark_line(strokeWidth=1.8).encode(y=y, color=colour, strokeDash=dash, opacity=shown, tooltip=tooltip),
        ]
        width: Any = 320
    else:
        order = list(dict.fromkeys(row["x"] for row in rows))
        x = alt.X("x:N", title=chart.x or None, sort=order, axis=alt.Axis(labelAngle=-30, grid=True))
        base = alt.Chart().encode(x=x, xOffset=alt.XOffset("name:N", sort=chart.names), color=colour, opacity=shown)
        layers = [
            base.mark_rule(strokeWidth=1.5).encode(y=low, y2="high:Q"),
            base.mark_point(size=60, filled=True).encode(y=y, shape=shape, tooltip=tooltip),
        ]
        width = alt.Step(16, **{"for": "offset"})
    layered = alt.layer(*layers, data=alt.InlineData(values=rows)).add_params(clicked)
    layered = layered.properties(width=width, height=220)
    if len(chart.panels) > 1:
        panel = alt.Facet("panel:N", title=None, sort=chart.panels)
        layered = layered.facet(panel, columns=chart.columns).resolve_scale(
            y="independent", x="shared" if chart.kind == "dots" else "independent"
        )
    whole = layered.properties(title=alt.TitleParams(chart.title, anchor="start"), description=chart.text)
    whole = whole.configure_axis(gridColor="#888888", gridOpacity=0.25)  # for a light and for a dark page
    return whole.configure_legend(
        orient="top", labelLimit=300, columns=4, symbolSize=200, symbolOpacity=1, symbolStrokeWidth=2.5
    )


def saved(chart: Chart, folder: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Files of the chart, each written whole or not at all."""
    picture, paths = drawn(chart), []
    folder.mkdir(parents=True, exist_ok=True)
    for kind in formats:
        path = folder / f"{chart.name}.{kind}"
        part = path.with_name(f".part-{os.getpid()}-{path.name}")
        picture.save(part, format=kind, **({"ppi": 144} if kind == "png" else {}))
        part.replace(path)
        paths.append(path)
    return paths
