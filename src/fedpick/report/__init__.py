"""Charts and pages: charts as data, drawn by Altair, written to files or shown on a self-contained HTML page."""

from fedpick.report.charts import Chart, Row, cell, curve, dot, picture, thin_indices, to_altair, write_chart
from fedpick.report.html import code, figure, heading, page, paragraph, table

__all__ = [
    "Chart",
    "Row",
    "cell",
    "code",
    "curve",
    "dot",
    "figure",
    "heading",
    "page",
    "paragraph",
    "picture",
    "table",
    "thin_indices",
    "to_altair",
    "write_chart",
]
