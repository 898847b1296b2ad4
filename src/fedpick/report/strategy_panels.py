"""Charts of strategies for a page: curves that are labelled at their ends, a strip of seeds, values with intervals."""

from typing import Any

import numpy as np

from fedpick.report.charts import Chart, ChartRow
from fedpick.report.palette import Palette
from fedpick.report.panel_style import ENDS, HEIGHT, NAME, SHOWN, colour_of, rule

LINE = 14  # pixels from one label at the end of a line to the next
# There are no half rounds; where Vega has ticks at halves nevertheless, they have no label.
WHOLE: dict[str, Any] = {"tickMinStep": 1, "labelExpr": "datum.value % 1 ? '' : format(datum.value, ',d')"}


def y_ends(chart: Chart, target: float | None, baseline: str) -> tuple[float, float]:
    """The ends of the y axis: of all curves, with the baseline's band; others' are cut off."""
    rows = chart.rows
    values = [row["y"] for row in rows] + [
        row[end] for row in rows if row["name"] == baseline for end in ("low", "high")
    ]
    values += [target] if target is not None and chart.target_on == "y" else []
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


def end_labels(chart: Chart, ends: tuple[float, float]) -> list[ChartRow]:
    """The name of each curve at its end, in pixels from the top, moved apart where two would overlap."""
    last = {row["name"]: row for row in sorted(chart.rows, key=lambda row: not row.get("sign"))}
    scale = np.log10 if chart.log_y else np.asarray
    low, high = (float(scale(end)) for end in ends)
    heights = {name: HEIGHT * (float(scale(max(row["y"], ends[0]))) - low) / (high - low) for name, row in last.items()}
    reach = [row["x"] for row in chart.rows]
    edge = (min if chart.reverse_x else max)(reach)
    far = 0.25 * (max(reach) - min(reach))
    found = []
    for inside in (False, True):  # those that end at the edge of the chart, and those that end before
        order = [name for name in last if (abs(last[name]["x"] - edge) > far) == inside]
        order.sort(key=lambda name: heights[name])
        for name, place in zip(order, _apart([heights[name] for name in order]), strict=True):
            x = last[name]["x"] if inside else edge
            found.append({"name": name, "x": x, "place": round(HEIGHT - place, 1)})
    return found


def _apart(heights: list[float]) -> list[float]:
    """Sorted heights, moved as little as brings them a line apart: the regression that only rises."""
    step = min(LINE, HEIGHT / max(len(heights), 1))
    blocks: list[list[float]] = []
    for place, height in enumerate(heights):
        blocks.append([height - place * step])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    starts = [float(np.mean(block)) for block in blocks for _ in block]
    last = HEIGHT - (len(heights) - 1) * step
    return [min(max(start, 0.0), last) + place * step for place, start in enumerate(starts)]


def lines(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Curves; the bands of the baseline and of the leader, or of the one that is looked at; bounds as triangles."""
    ends = y_ends(chart, target, baseline)
    rows = chart.rows
    reach = [row["x"] for row in rows]
    across = [min(reach), max(reach)]
    kind: dict[str, Any] = {"type": "log"} if chart.log_x else {"type": "linear", "zero": False}
    along = alt.Scale(**kind, domain=across, nice=False, reverse=chart.reverse_x)
    whole = all(float(value).is_integer() for value in reach)
    ticks = alt.Axis(grid=False, tickCount=alt.ExprRef("width < 320 ? 4 : 7"), **(WHOLE if whole else {}))
    x = alt.X("x:Q", title=chart.x or None, axis=ticks, scale=along)
    kind = {"type": "log"} if chart.log_y else {"type": "linear", "zero": False}
    scale = alt.Scale(**kind, domain=list(ends), nice=False)
    y = alt.Y("y:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    colour = colour_of(palette, alt)
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=list(palette.names), range=palette.dashes), legend=None)
    base = alt.Chart(alt.NamedData(chart.name)).encode(x=x, color=colour)
    band = base.transform_filter("focus == '' ? datum.name == leader || datum.name == baseline : datum.name == focus")
    strong = alt.ExprRef(f"{SHOWN} ? 1 : 0.1")
    wide = alt.ExprRef("datum.name == (focus == '' ? winner : focus) ? 3.2 : 1.7")
    labels = alt.Chart(alt.NamedData(ENDS)).encode(text="name:N", color=colour)
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
    if any(row.get("sign") for row in rows):
        layers[1] = layers[1].transform_filter("!datum.sign")
        up = alt.ExprRef("test(/≥/, datum.sign) ? 'triangle-up' : 'triangle-down'")
        bounds = base.transform_filter("!!datum.sign").encode(y=y)
        faint = alt.ExprRef(f"{SHOWN} ? 0.55 : 0.08")
        layers.append(bounds.mark_point(shape=up, size=36, filled=True, opacity=faint, clip=True))
    if chart.rule is not None:
        layers.insert(0, rule(alt, y=alt.datum(chart.rule, type="quantitative")))
    if target is not None:
        layers.insert(0, rule(alt, (4, 3), **{chart.target_on: alt.datum({"expr": "target"}, type="quantitative")}))
    return alt.layer(*layers).properties(width="container", height=HEIGHT)


def strip(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """A mark for every seed, a row for every strategy, a tick at the median."""
    strong = alt.ExprRef(f"{SHOWN} ? 1 : 0.1")
    base = alt.Chart(alt.NamedData(chart.name)).encode(
        y=alt.Y("name:N", sort=list(palette.names), title=None, axis=alt.Axis(labelLimit=NAME, grid=True)),
        color=colour_of(palette, alt),
    )
    most = alt.Scale(domainMin=0, domainMax=alt.ExprRef("most"), nice=False)
    whole = all(float(row["y"]).is_integer() for row in chart.rows)
    ticks = alt.Axis(grid=False, tickCount=6, **(WHOLE if whole else {}))
    x = alt.X("y:Q", title=chart.x or None, scale=most, axis=ticks)
    shape = alt.Shape(
        "mark:N", legend=None, scale=alt.Scale(domain=["reached", "not reached"], range=["circle", "cross"])
    )
    tooltip = [alt.Tooltip("name:N", title="of"), alt.Tooltip("y:Q", title="at", format=".4~g"), alt.Tooltip("mark:N")]
    layers = [
        base.mark_tick(thickness=3, height=20, opacity=strong).encode(x=alt.X("median(y):Q", title=None, scale=most)),
        base.mark_point(size=55, opacity=strong, strokeWidth=1.6).encode(x=x, shape=shape, tooltip=tooltip),
    ]
    largest = max((row["y"] for row in chart.rows), default=1.0)
    height = len(palette.names) * max(20, min(44, HEIGHT // len(palette.names)))
    drawn = alt.layer(*layers).properties(width="container", height=height)
    return drawn.add_params(alt.param(name="most", value=largest))


def dots(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """A value with its interval for each of several settings, in their order."""
    order = list(dict.fromkeys(str(row["x"]) for row in chart.rows))
    base = alt.Chart(alt.NamedData(chart.name)).encode(
        x=alt.X("x:N", sort=order or None, title=chart.x or None, axis=alt.Axis(labelAngle=0)),
        color=colour_of(palette, alt),
    )
    kind: dict[str, Any] = {"type": "log"} if chart.log_y else {"zero": False}
    scale = alt.Scale(**kind, nice=False, padding=16)
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
        layers.insert(0, rule(alt, y=alt.datum(chart.rule, type="quantitative")))
    return alt.layer(*layers).properties(width="container", height=HEIGHT)
