"""Charts as plain data, and drawn by Altair for the interactive page and for pictures."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.report.palette import COLOURS, DASHES, SHAPES

ChartRow = dict[str, Any]
POINTS = 80  # of a curve, at most: more are invisible and make pages large


@dataclass(frozen=True)
class Chart:
    """The description of a chart.

    Each row has a ``name`` (its legend entry), a ``panel``, ``x``, ``y``, and ``low`` and ``high`` for its spread.

    Args:
        name: Identifier, used for file names and anchors.
        kind: "lines" (curves with bands), "dots" (values by category), "strip" (a mark for every value of a category;
            rows also have ``mark``) or "heat" (rows from ``cell``); on a page alone "bars" (clients), "sizes" and
            "picks" (clients by round).
        title: Title.
        text: Description in words, for readers who do not see the chart.
        rows: The data, from ``curve``, ``dot`` or ``cell``.
        x: Title of the x axis.
        y: Title of the y axis.
        log_x: Whether the x axis is logarithmic.
        log_y: Whether the y axis is logarithmic.
        columns: Panels per row.
        reverse_x: Whether the x axis goes from high to low.
        rule: A value of y with a line across the chart, such as 1.
        target_on: The axis, "x" or "y", on which a page marks its target; "" for none.

    >>> Chart("one", "dots", title="One", text="", rows=(dot("ours", "", "rand", value=1, low=0, high=2),)).names
    ['ours']
    """

    name: str
    kind: Literal["lines", "dots", "strip", "heat", "bars", "sizes", "picks"]
    _: KW_ONLY
    title: str
    text: str
    rows: tuple[ChartRow, ...]
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    columns: int = 2
    reverse_x: bool = False
    rule: float | None = None
    target_on: Literal["", "x", "y"] = ""

    @property
    def names(self) -> list[str]:
        """The legend entries, in order."""
        return list(dict.fromkeys(row["name"] for row in self.rows))

    @property
    def panels(self) -> list[str]:
        """The titles of the panels, in order."""
        return list(dict.fromkeys(row["panel"] for row in self.rows))


def curve(name: str, panel: str, x: ArrayLike, *, values: ArrayLike) -> list[ChartRow]:
    """Rows of a curve: the mean over seeds, plus and minus one standard deviation, thinned.

    Args:
        name: Legend entry.
        panel: Title of the panel.
        x: The points on the x axis.
        values: A row of values for each seed.

    >>> curve("rand", "loss", [0, 1], values=[[1.0, 0.5], [1.0, 0.7]])[1]["y"]
    0.6
    """
    at, runs = np.asarray(x), np.atleast_2d(np.asarray(values, float))
    mean = runs.mean(axis=0)
    spread = runs.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(at))
    low, high = mean - spread, mean + spread
    return [_row(name, panel, float(at[i]), mean[i], low[i], high[i]) for i in thin_indices(len(at))]


def thin_indices(number: int) -> NDArray[np.int64]:
    """Indices of the points that are drawn, at most 80, evenly spaced.

    >>> len(thin_indices(1000))
    80
    """
    return np.unique(np.linspace(0, number - 1, min(number, POINTS)).round().astype(int))


def cell(label: str, client: str, *, samples: int, size: int) -> ChartRow:
    """A row of a heat map.

    Args:
        label: The label, on the x axis.
        client: The client, on the y axis.
        samples: Number of samples with this label at this client.
        size: Number of all samples of the client.

    >>> cell("7", "3", samples=12, size=40)["y"]
    '3'
    """
    return {"name": "", "panel": "", "x": label, "y": client, "samples": samples, "size": size}


def dot(name: str, panel: str, x: Any, *, value: float, low: float, high: float) -> ChartRow:
    """A row of a dot chart: one value with its spread.

    Args:
        name: Legend entry.
        panel: Title of the panel.
        x: Category on the x axis.
        value: The value.
        low: Lower end of its spread.
        high: Upper end.

    >>> dot("ours", "", "rand", value=1.0, low=0.5, high=1.5)["y"]
    1.0
    """
    return _row(name, panel, x, value, low, high)


def _row(name: str, panel: str, x: Any, y: float, low: float, high: float) -> ChartRow:
    # Six digits are enough for a picture and halve the file.
    y, low, high = (float(f"{number:.6g}") for number in (y, low, high))
    return {"name": name, "panel": panel, "x": x, "y": y, "low": low, "high": high}


def to_altair(chart: Chart) -> Any:
    """The chart as an Altair object: panels side by side, a click in the legend isolates one strategy.

    >>> from fedpick.report import dot
    >>> rows = (dot("ours", "", "rand", value=1.0, low=0.5, high=1.5),)
    >>> to_altair(Chart("one", "dots", title="One", text="One dot.", rows=rows)).to_dict()["title"]["text"]
    'One'
    """
    import altair as alt  # takes half a second

    drawn = _heat_map(chart, alt) if chart.kind == "heat" else _marks(chart, alt)
    below: Any = {"subtitle": chart.text} if chart.kind == "heat" else {}
    drawn = drawn.properties(title=alt.TitleParams(chart.title, anchor="start", **below), description=chart.text)
    drawn = drawn.configure_axis(gridColor="#888888", gridOpacity=0.25)  # for a light and for a dark page
    return drawn.configure_legend(
        orient="top", labelLimit=300, columns=4, symbolSize=200, symbolOpacity=1, symbolStrokeWidth=2.5
    )


def to_plain(chart: Chart) -> dict[str, Any]:
    """The chart in the words of Vega-Lite, without Altair's check of each of them, which takes most of the time."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        plain: dict[str, Any] = to_altair(chart).to_dict(validate=False)
    return plain


def _marks(chart: Chart, alt: Any) -> Any:
    """Curves and points, coloured by name."""
    # A logarithmic axis shows nothing at or below 0.
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
    scale = alt.Scale(type="log" if chart.log_y else "linear", zero=False)
    y, low = (alt.Y(f"{end}:Q", title=chart.y or None, scale=scale) for end in ("y", "low"))
    tooltip = _tooltip(chart, alt)
    width: Any = 320
    if chart.kind == "lines":
        x = alt.X("x:Q", title=chart.x or None, scale=alt.Scale(type="log" if chart.log_x else "linear", nice=False))
        base = alt.Chart().encode(x=x)
        colour = colour.legend(symbolType="stroke")
        layers = [
            base.mark_area().encode(y=low, y2="high:Q", color=colour, opacity=faint),
            base.mark_line(strokeWidth=1.8).encode(y=y, color=colour, strokeDash=dash, opacity=shown, tooltip=tooltip),
        ]
    else:
        order = list(dict.fromkeys(row["x"] for row in rows))
        x = alt.X("x:N", title=chart.x or None, sort=order, axis=alt.Axis(labelAngle=-30, grid=True))
        base = alt.Chart().encode(x=x, color=colour, opacity=shown)
    if chart.kind == "dots":
        if side_by_side := any(row["name"] != row["x"] for row in rows):  # several in a category
            base = base.encode(xOffset=alt.XOffset("name:N", sort=chart.names))
        layers = [
            base.mark_rule(strokeWidth=1.5).encode(y=low, y2="high:Q"),
            base.mark_point(size=60, filled=True).encode(y=y, shape=shape, tooltip=tooltip),
        ]
        width = alt.Step(16, **{"for": "offset"}) if side_by_side else width
    elif chart.kind == "strip":
        ends = list(dict.fromkeys(row["mark"] for row in rows))
        kinds = alt.Scale(domain=ends, range=["circle" if end == "reached" else "cross" for end in ends])
        end = alt.Shape("mark:N", title=None, scale=kinds, legend=alt.Legend() if len(ends) > 1 else None)
        layers = [
            base.mark_tick(thickness=2.5, width=36).encode(y=alt.Y("median(y):Q", title=chart.y or None, scale=scale)),
            base.mark_point(size=50).encode(y=y, shape=end, tooltip=tooltip),
        ]
        width = alt.Step(64)
    layered = alt.layer(*layers, data=alt.InlineData(values=rows)).add_params(clicked)
    layered = layered.properties(width=width, height=220)
    if len(chart.panels) > 1:
        panel = alt.Facet("panel:N", title=None, sort=chart.panels)
        layered = layered.facet(panel, columns=chart.columns).resolve_scale(
            y="independent", x="shared" if chart.kind == "dots" else "independent"
        )
    return layered


def _tooltip(chart: Chart, alt: Any) -> list[Any]:
    value = alt.Tooltip("y:Q", title=chart.y or "value", format=".4g")
    if chart.kind == "strip":
        return [alt.Tooltip("name:N", title="of"), value, alt.Tooltip("mark:N", title="target")]
    kind = "nominal" if chart.kind == "dots" else "quantitative"
    return [
        alt.Tooltip("name:N", title="of"),
        alt.Tooltip("x", title=chart.x or "at", type=kind),
        value,
        alt.Tooltip("low:Q", title="from", format=".4g"),
        alt.Tooltip("high:Q", title="to", format=".4g"),
    ]


def _heat_map(chart: Chart, alt: Any) -> Any:
    """Samples by client and label, with the clients' sizes beside them."""
    clients = list(dict.fromkeys(row["y"] for row in chart.rows))
    labels = list(dict.fromkeys(row["x"] for row in chart.rows))
    sizes = list({row["y"]: {"y": row["y"], "size": row["size"]} for row in chart.rows}.values())
    every = max(1, len(clients) // 20)
    axis = alt.Axis(values=clients[::every])
    angle = -40 if max(map(len, labels)) > 3 else 0
    y = alt.Y("y:O", title=chart.y, sort=clients, axis=axis, scale=alt.Scale(domain=clients))
    height = alt.Step(max(5, min(16, 400 // len(clients))))
    held = [row for row in chart.rows if row["samples"] > 0]  # what a client does not hold stays empty
    kind = "log" if len({row["samples"] for row in held}) > 1 else "linear"
    cells = alt.Chart(alt.InlineData(values=held)).mark_rect()
    cells = cells.encode(
        x=alt.X("x:N", title=chart.x, sort=labels, axis=alt.Axis(labelAngle=angle), scale=alt.Scale(domain=labels)),
        y=y,
        color=alt.Color("samples:Q", title="samples", scale=alt.Scale(type=kind, scheme="viridis")),
        tooltip=[
            alt.Tooltip("y:O", title=chart.y),
            alt.Tooltip("x:N", title=chart.x),
            alt.Tooltip("samples:Q", title="samples"),
            alt.Tooltip("size:Q", title="of"),
        ],
    )
    bars = alt.Chart(alt.InlineData(values=sizes)).mark_bar(color=COLOURS[0])
    bars = bars.encode(
        x=alt.X("size:Q", title="samples in all", axis=alt.Axis(tickCount=3)),
        y=alt.Y("y:O", title=None, sort=clients, axis=None),
        tooltip=[alt.Tooltip("y:O", title=chart.y), alt.Tooltip("size:Q", title="samples")],
    )
    return alt.hconcat(
        cells.properties(width=alt.Step(max(6, min(28, 340 // len(labels)))), height=height),
        bars.properties(width=140, height=height),
    )
