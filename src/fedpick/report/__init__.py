"""Pictures and pages: charts as data, drawn by Altair, saved as files and shown on a self-contained page."""

from fedpick.report.charts import Chart, Row, cell, curve, dot, thinned

__all__ = ["Chart", "Row", "cell", "curve", "dot", "thinned"]
