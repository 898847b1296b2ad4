"""Charts and pages: charts as data, drawn by Altair, written to files or shown on a self-contained HTML page."""

from fedpick.report.charts import Chart, ChartRow, cell, curve, dot, thin_indices, to_altair
from fedpick.report.html import code, figure, heading, page, paragraph, part, preload_page, table
from fedpick.report.palette import Palette
from fedpick.report.panels import to_panel
from fedpick.report.pictures import picture, write_chart

__all__ = [
    "Chart",
    "ChartRow",
    "Palette",
    "cell",
    "code",
    "curve",
    "dot",
    "figure",
    "heading",
    "page",
    "paragraph",
    "part",
    "picture",
    "preload_page",
    "table",
    "thin_indices",
    "to_altair",
    "to_panel",
    "write_chart",
]
