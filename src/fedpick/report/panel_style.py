"""What all charts of a page have in common: sizes, colours, and an expression for the one that is looked at."""

from typing import Any

from fedpick.report.palette import COLOURS, Palette

HEIGHT = 260
NAME = 96  # pixels of a name, at most
ENDS = "ends"  # the table of the labels at the ends of lines
SHOWN = "focus == '' || focus == datum.name"
GREY = COLOURS[0]


def styled(drawn: Any, alt: Any) -> Any:
    """The chart in the fonts and greys of a page, light or dark."""
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


def colour_of(palette: Palette, alt: Any) -> Any:
    """The colour of a name, without a legend."""
    scale = alt.Scale(domain=list(palette.names), range=palette.colours)
    return alt.Color("name:N", scale=scale, legend=None)


def rule(alt: Any, dash: Any = (1, 0), **place: Any) -> Any:
    """A line across the chart."""
    return alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=GREY, strokeDash=list(dash)).encode(**place)
