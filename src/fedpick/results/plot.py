"""Plotting of results: metrics by round as a chart."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.report import Chart, ChartRow, curve


class Curve(NamedTuple):
    """A metric by round: its values are [seeds, E]."""

    metric: str
    name: str
    rounds: Numbers
    values: Numbers


def chart(title: str, curves: Iterable[Curve]) -> Chart:
    """A panel for each metric; a curve is the mean over the seeds, with one standard deviation."""
    rows: list[ChartRow] = []
    panels: dict[str, None] = {}
    for metric, name, rounds, values in curves:
        panel, finite = metric.replace("_", " "), np.isfinite(values).all(axis=0)
        panels[panel] = None
        rows += curve(name, panel, rounds[finite], values=values[:, finite]) if finite.any() else []
    text = f"{', '.join(panels)} by round: the mean over the seeds, with one standard deviation."
    return Chart("result", "lines", title=title, text=text, x="round", rows=tuple(rows))
