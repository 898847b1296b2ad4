"""Charts of clients for a page: bars and dots, samples by label, sizes, who trained when."""

import json
from typing import Any

from fedpick.report.charts import Chart
from fedpick.report.palette import COLOURS, Palette
from fedpick.report.panel_style import GREY, HEIGHT, NAME, SHOWN, colour_of

MOST_NAMES = 40  # of clients along the foot of a chart
CHARACTER, SLANTED = 7, 18  # pixels, about, of a character and from a slanted name to the next


def bars(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Clients side by side: a bar for what has no colour of its own, dots for the strategies."""
    clients = list(dict.fromkeys(row["x"] for row in chart.rows))
    few = len(clients) <= MOST_NAMES
    room = CHARACTER * len(clients) * (max(map(len, clients)) + 1)  # of all names in a row
    slant = {"labelAngle": (-40, 0), "labelAlign": ("'right'", "'center'"), "labelBaseline": ("'middle'", "'top'")}
    names = {name: alt.ExprRef(f"width < {room} ? {narrow} : {wide}") for name, (narrow, wide) in slant.items()}
    every = f"indexof(domain('x'), datum.value) % ceil({SLANTED * len(clients)} / width) ? '' : datum.label"
    axis = alt.Axis(labels=few, ticks=few, labelLimit=110, labelExpr=every, **names)
    x = alt.X("x:N", sort=clients, title=chart.x or None, axis=axis, scale=alt.Scale(paddingInner=0.25))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=5))
    base = alt.Chart(alt.NamedData(chart.name)).encode(x=x, y=y)
    tooltip = [alt.Tooltip("x:N", title="client"), alt.Tooltip("name:N", title="of"), alt.Tooltip("y:Q", format=".3~g")]
    own = json.dumps(list(palette.names))
    strong = alt.ExprRef(
        f"focus == '' ? (datum.name == leader || datum.name == baseline ? 1 : 0.35) : ({SHOWN} ? 1 : 0.04)"
    )
    bars = base.transform_filter(f"indexof({own}, datum.name) < 0").mark_bar(color=GREY, opacity=0.35)
    dots = base.transform_filter(f"indexof({own}, datum.name) >= 0").mark_point(
        filled=True, size=42 if few else 16, opacity=strong
    )
    colour = colour_of(palette, alt)
    layers = [bars.encode(tooltip=tooltip), dots.encode(color=colour, tooltip=tooltip)]
    if any("came" in row for row in chart.rows):  # the part of it that came back
        ticks = base.transform_filter("isValid(datum.came)").mark_tick(
            thickness=2, size=14 if few else 5, opacity=strong
        )
        came = alt.Tooltip("came:Q", title="came back", format=".3~g")
        layers.append(ticks.encode(y=alt.Y("came:Q", title=None), color=colour, tooltip=[*tooltip, came]))
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


def heat(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
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
        alt.Chart(alt.NamedData(chart.name))
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


def sizes(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """How many samples each client holds."""
    y, height = _rows_of_clients(chart, alt)
    bars = alt.Chart(alt.NamedData(chart.name)).mark_bar(color=COLOURS[1])
    x = alt.X("size:Q", title=chart.x, axis=alt.Axis(tickCount=3, orient="bottom"))
    drawn = bars.encode(x=x, y=y, tooltip=[alt.Tooltip("y:N", title="client"), alt.Tooltip("size:Q", title="samples")])
    return drawn.properties(width="container", height=height)


def picks(chart: Chart, palette: Palette, alt: Any, baseline: str, target: float | None) -> Any:
    """Who was selected in which round; grey where no update came back."""
    y, height = _rows_of_clients(chart, alt)
    marks = alt.Chart(alt.NamedData(chart.name)).transform_filter("datum.seats > 0").mark_rect()
    came = [alt.Tooltip("came:Q", title="came back")] if any(row["came"] < row["seats"] for row in chart.rows) else []
    reach = alt.Scale(nice=False, zero=False, domain=[0.5, max(row["x2"] for row in chart.rows)])
    x = alt.X("x:Q", title=chart.x, scale=reach, axis=alt.Axis(grid=False, tickMinStep=1, tickCount=10))
    drawn = marks.encode(
        x=x,
        x2="x2:Q",
        y=y,
        color=alt.condition("datum.came > 0", alt.value(COLOURS[1]), alt.value(GREY)),
        opacity=alt.Opacity("seats:Q", legend=None, scale=alt.Scale(domainMin=0, range=[0.15, 1])),
        tooltip=[alt.Tooltip("y:N", title="client"), alt.Tooltip("x:Q", title="round"), "seats:Q", *came],
    )
    return drawn.properties(width="container", height=height)
