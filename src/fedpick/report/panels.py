"""Charts for a page: as wide as their place, without a legend of their own, labelled at the ends of their lines.

The page's script sets the signals ``focus`` (a strategy that is looked at alone), ``winner`` and ``target``, and gives
data anew where they depend on the target.
"""

import json
from typing import Any

import numpy as np

from fedpick.report.charts import Chart, ChartRow
from fedpick.report.palette import COLOURS, Palette

HEIGHT = 260
LINE = 14  # pixels from one label at the end of a line to the next
MOST_NAMES = 40  # of clients along the foot of a chart
NAME = 96  # pixels of such a label, at most
SHOWN = "focus == '' || focus == datum.name"
GREY = COLOURS[0]


def to_panel(
    chart: Chart, palette: Palette, *, baseline: str = "", winner: str = "", target: float | None = None
) -> dict[str, Any]:
    """The chart in the words of Vega-Lite, for a page.

    Args:
        chart: The chart, of one panel.
        palette: What the names are drawn with.
        baseline: The strategy that the others are compared with.
        winner: The strategy that is highlighted.
        target: Where to draw the line of the target; None for no line.
    """
    import altair as alt
    from altair.utils.schemapi import debug_mode

    kinds = {"lines": _lines, "strip": _strip, "bars": _bars, "heat": _heat, "sizes": _sizes, "picks": _picks}
    draw = {**kinds, "dots": _dots}[chart.kind]
    with debug_mode(False):
        drawn = draw(chart, palette, alt, baseline, target)
        values = {"focus": "", "winner": winner, "baseline": baseline, "target": target}
        drawn = drawn.add_params(*(alt.param(name=name, value=value) for name, value in values.items()))
        plain: dict[str, Any] = _styled(drawn, alt).to_dict(validate=False)
    return plain


def _styled(drawn: Any, alt: Any) -> Any:
    quiet = {"domainColor": "#88888866", "tickColor": "#88888866", "gridColor": "#888888", "gridOpacity": 0.18}
    text = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelPadding": 4}
    drawn = drawn.properties(background="transparent", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    drawn = drawn.configure(font="system-ui, sans-serif", aria=False, padding=4)
    return (
        drawn.configure_view(stroke=None)
        .configure_axis(**quiet, **text)
        .configure_legend(
            orient="top", direction="horizontal", labelFontSize=12, titleFontSize=12, titleFontWeight="normal"
        )
    )


def _colour(palette: Palette, alt: Any) -> Any:
    scale = alt.Scale(domain=list(palette.names), range=palette.colours)
    return alt.Color("name:N", scale=scale, legend=None)


def _domain(chart: Chart, target: float | None, baseline: str) -> tuple[float, float]:
    """The ends of the y axis: of all curves, with the baseline's band; others' are cut off."""
    rows = chart.rows
    values = [row["y"] for row in rows] + [
        row[end] for row in rows if row["name"] == baseline for end in ("low", "high")
    ]
    values += [target] if target is not None else []
    if chart.rule is not None:
        values.append(chart.rule)
    if chart.log_y:
        values = [value for value in values if value > 0] or [1.0]
        low, high = np.log10(min(values)), np.log10(max(values))
        room = 0.06 * ((high - low) or 0.5)
        return float(10 ** (low - room)), float(10 ** (high + room))
    low, high = min(values), max(values)
    room = 0.04 * ((high - low) or abs(high) or 1.0)
    return float(low - room if low - room >= 0 or low < 0 else 0.0), float(high + room)


def _end_labels(chart: Chart, ends: tuple[float, float]) -> list[ChartRow]:
    """The name of each curve at its end, in pixels from the top, moved apart where two would overlap."""
    last = {row["name"]: row for row in chart.rows}
    scale = np.log10 if chart.log_y else np.asarray
    low, high = (float(scale(end)) for end in ends)
    heights = {name: HEIGHT * (float(scale(max(row["y"], ends[0]))) - low) / (high - low) for name, row in last.items()}
    reach = [row["x"] for row in chart.rows]
    edge = (min if chart.reverse_x else max)(reach)
    far = 0.15 * (max(reach) - min(reach))
    found = []
    for inside in (False, True):  # those that end at the edge of the chart, and those that end before
        order = [name for name in last if (abs(last[name]["x"] - edge) > far) == inside]
        order.sort(key=lambda name: heights[name])
        step, places = min(LINE, HEIGHT / max(len(order), 1)), [heights[name] for name in order]
        for i in range(1, len(places)):
            places[i] = max(places[i], places[i - 1] + step)
        for i in reversed(range(len(places))):
            places[i] = min(places[i], places[i + 1] - step if i + 1 < len(places) else HEIGHT)
        for name, place in zip(order, places, strict=True):
            x = last[name]["x"] if inside else edge
            found.append({"name": name, "x": x, "place": round(HEIGHT - place, 1)})
    return found


def _lines(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Curves; the bands of the baseline and of the winner, or of the one that is looked at."""
    ends = _domain(chart, target, baseline)
    rows = [{**row, "low": max(row["low"], ends[0]), "high": min(row["high"], ends[1])} for row in chart.rows]
    reach = [row["x"] for row in rows]
    across = [min(reach), max(reach)]
    kind: dict[str, Any] = {"type": "log"} if chart.log_x else {"type": "linear", "zero": False}
    along = alt.Scale(**kind, domain=across, nice=False, reverse=chart.reverse_x)
    whole = all(float(value).is_integer() for value in reach)
    ticks = alt.Axis(
        grid=False, tickMinStep=1 if whole else alt.Undefined, tickCount=alt.ExprRef("width < 320 ? 4 : 7")
    )
    x = alt.X("x:Q", title=chart.x or None, axis=ticks, scale=along)
    kind = {"type": "log"} if chart.log_y else {"type": "linear", "zero": False}
    scale = alt.Scale(**kind, domain=list(ends), nice=False)
    y = alt.Y("y:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    colour = _colour(palette, alt)
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=list(palette.names), range=palette.dashes), legend=None)
    base = alt.Chart(alt.InlineData(values=rows, name=chart.name)).encode(x=x, color=colour)
    band = base.transform_filter("focus == '' ? datum.name == winner || datum.name == baseline : datum.name == focus")
    strong = alt.ExprRef(f"{SHOWN} ? 1 : 0.1")
    wide = alt.ExprRef("datum.name == (focus == '' ? winner : focus) ? 3.2 : 1.7")
    labels = alt.Chart(alt.InlineData(values=_end_labels(chart, ends))).encode(text="name:N", color=colour)
    weight = alt.ExprRef("datum.name == winner ? 'bold' : 'normal'")
    layers = [
        band.mark_area(opacity=0.14, clip=True).encode(y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q"),
        base.mark_line(opacity=strong, strokeWidth=wide, clip=True).encode(y=y, strokeDash=dash),
        labels.mark_text(
            **{"align": "left", "dx": 6, "fontSize": 12, "limit": NAME, "fontWeight": weight, "opacity": strong},
            x=alt.ExprRef("scale('x', datum.x)"),
            y=alt.ExprRef("datum.place"),
        ),
    ]
    if chart.rule is not None:
        layers.insert(0, _rule(alt, y=alt.datum(chart.rule, type="quantitative")))
    if target is not None:
        layers.insert(0, _rule(alt, (4, 3), **{chart.target_on: alt.datum({"expr": "target"}, type="quantitative")}))
    return alt.layer(*layers).properties(width="container", height=HEIGHT)


def _rule(alt: Any, dash: Any = (1, 0), **place: Any) -> Any:
    return alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=GREY, strokeDash=list(dash)).encode(**place)


def _strip(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """A mark for every seed, a row for every strategy, a tick at the median."""
    strong = alt.ExprRef(f"{SHOWN} ? 1 : 0.1")
    base = alt.Chart(alt.InlineData(values=list(chart.rows), name=chart.name)).encode(
        y=alt.Y("name:N", sort=list(palette.names), title=None, axis=alt.Axis(labelLimit=NAME, grid=True)),
        color=_colour(palette, alt),
    )
    most = alt.Scale(domainMin=0, domainMax=alt.ExprRef("most"), nice=False)
    x = alt.X("y:Q", title=chart.x or None, scale=most, axis=alt.Axis(grid=False, tickCount=6))
    shape = alt.Shape(
        "mark:N", legend=None, scale=alt.Scale(domain=["reached", "not reached"], range=["circle", "cross"])
    )
    tooltip = [alt.Tooltip("name:N", title="of"), alt.Tooltip("y:Q", title="at", format=".4~g"), alt.Tooltip("mark:N")]
    layers = [
        base.mark_tick(thickness=3, height=20, opacity=strong).encode(x=alt.X("median(y):Q", title=None, scale=most)),
        base.mark_point(size=55, opacity=strong, strokeWidth=1.6).encode(x=x, shape=shape, tooltip=tooltip),
    ]
    largest = max((row["y"] for row in chart.rows), default=1.0)
    drawn = alt.layer(*layers).properties(width="container", height=alt.Step(30))
    return drawn.add_params(alt.param(name="most", value=largest))


def _bars(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Clients side by side: a bar for what has no colour of its own, dots for the strategies."""
    clients = list(dict.fromkeys(row["x"] for row in chart.rows))
    few = len(clients) <= MOST_NAMES
    axis = alt.Axis(labels=few, ticks=few, labelAngle=-40 if few and max(map(len, clients)) > 3 else 0, labelLimit=80)
    x = alt.X("x:N", sort=clients, title=chart.x or None, axis=axis, scale=alt.Scale(paddingInner=0.25))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=5))
    base = alt.Chart(alt.InlineData(values=list(chart.rows), name=chart.name)).encode(x=x, y=y)
    tooltip = [alt.Tooltip("x:N", title="client"), alt.Tooltip("name:N", title="of"), alt.Tooltip("y:Q", format=".3~g")]
    own = json.dumps(list(palette.names))
    strong = alt.ExprRef(
        f"focus == '' ? (datum.name == winner || datum.name == baseline ? 1 : 0.35) : ({SHOWN} ? 1 : 0.04)"
    )
    bars = base.transform_filter(f"indexof({own}, datum.name) < 0").mark_bar(color=GREY, opacity=0.35)
    dots = base.transform_filter(f"indexof({own}, datum.name) >= 0").mark_point(
        filled=True, size=42 if few else 16, opacity=strong
    )
    layers = [bars.encode(tooltip=tooltip), dots.encode(color=_colour(palette, alt), tooltip=tooltip)]
    return alt.layer(*layers).properties(width="container", height=HEIGHT)


def _rows_of_clients(chart: Chart, alt: Any, shown: bool = True) -> tuple[Any, int]:
    """The axis of clients from top to bottom, with as many names as there is room for, and the height of the chart."""
    clients = list(dict.fromkeys(row["y"] for row in chart.rows))
    step = max(5, min(18, 420 // len(clients)))
    every = max(1, -(-13 // step))
    axis = alt.Axis(values=clients[::every], labelLimit=NAME, ticks=False, domain=False) if shown else None
    scale = alt.Scale(domain=clients, padding=0.06 if step > 6 else 0)
    return alt.Y("y:N", title=(chart.y or None) if shown else None, sort=None, axis=axis, scale=scale), step * len(
        clients
    )


def _heat(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Samples by client and label on a logarithmic scale; what a client does not hold stays empty."""
    labels = list(dict.fromkeys(row["x"] for row in chart.rows))
    y, height = _rows_of_clients(chart, alt)
    held = [row for row in chart.rows if row["samples"] > 0]
    long = max(map(len, labels)) > 4
    axis = alt.Axis(labelAngle=-40 if long else 0, labelLimit=100, orient="bottom", ticks=False, domain=False)
    kind = "log" if len({row["samples"] for row in held}) > 1 else "linear"
    colour = alt.Color(
        "samples:Q",
        title="samples",
        scale=alt.Scale(type=kind, scheme="viridis"),
        legend=alt.Legend(gradientLength=160),
    )
    cells = (
        alt.Chart(alt.InlineData(values=held, name=chart.name))
        .mark_rect(cornerRadius=1)
        .encode(
            x=alt.X("x:N", title=chart.x, sort=None, axis=axis, scale=alt.Scale(domain=labels, padding=0.04)),
            y=y,
            color=colour,
            tooltip=[
                alt.Tooltip("y:N", title="client"),
                alt.Tooltip("x:N", title="label"),
                "samples:Q",
                alt.Tooltip("size:Q", title="of"),
            ],
        )
    )
    return cells.properties(width="container", height=height)


def _sizes(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """How many samples each client holds."""
    y, height = _rows_of_clients(chart, alt)
    bars = alt.Chart(alt.InlineData(values=list(chart.rows), name=chart.name)).mark_bar(color=COLOURS[1])
    x = alt.X("size:Q", title=chart.x, axis=alt.Axis(tickCount=3, orient="bottom"))
    drawn = bars.encode(x=x, y=y, tooltip=[alt.Tooltip("y:N", title="client"), alt.Tooltip("size:Q", title="samples")])
    return drawn.properties(width="container", height=height)


def _picks(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Who trained in which round."""
    y, height = _rows_of_clients(chart, alt)
    marks = alt.Chart(alt.InlineData(values=list(chart.rows), name=chart.name)).mark_rect(color=COLOURS[1])
    x = alt.X("x:Q", title=chart.x, scale=alt.Scale(nice=False), axis=alt.Axis(grid=False, tickMinStep=1))
    drawn = marks.encode(
        x=x,
        x2="x2:Q",
        y=y,
        opacity=alt.Opacity("seats:Q", legend=None, scale=alt.Scale(domainMin=0, range=[0.15, 1])),
        tooltip=[alt.Tooltip("y:N", title="client"), alt.Tooltip("x:Q", title="round"), "seats:Q"],
    )
    return drawn.properties(width="container", height=height)


def _dots(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """A value with its interval for each of several settings, in their order."""
    order = list(dict.fromkeys(str(row["x"]) for row in chart.rows))
    rows = [{**row, "x": str(row["x"])} for row in chart.rows]
    base = alt.Chart(alt.InlineData(values=rows, name=chart.name)).encode(
        x=alt.X("x:N", sort=order, title=chart.x or None, axis=alt.Axis(labelAngle=0)), color=_colour(palette, alt)
    )
    scale = alt.Scale(type="log") if chart.log_y else alt.Scale(zero=False)
    y = alt.Y("y:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    strong = alt.ExprRef(f"{SHOWN} ? 1 : 0.1")
    tooltip = [
        alt.Tooltip("name:N", title="of"),
        *(alt.Tooltip(f"{end}:Q", format=".3~g") for end in ("y", "low", "high")),
    ]
    layers = [
        base.mark_rule(strokeWidth=2, opacity=strong).encode(y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q"),
        base.mark_point(size=80, filled=True, opacity=strong).encode(y=y, tooltip=tooltip),
    ]
    if chart.rule is not None:
        layers.insert(0, _rule(alt, y=alt.datum(chart.rule, type="quantitative")))
    return alt.layer(*layers).properties(width="container", height=HEIGHT)
