"""A result as a picture: in a notebook, and for whoever asks."""

from typing import Any

import numpy as np

from fedpick import report
from fedpick.report import Chart, Row, curve, picture, table
from fedpick.results.result import Result

DEFAULT_METRICS = ("loss", "test_accuracy")


def chart(result: Result, metrics: tuple[str, ...] = DEFAULT_METRICS) -> Chart:
    """Metrics by round, a curve with its spread over seeds for every value that was swept."""
    rows: list[Row] = []
    for metric in metrics:
        for name, part in _groups(result):
            values = part.metric(metric)
            known = np.isfinite(values).all(axis=0)
            rows += (
                curve(name, metric.replace("_", " "), part.evaluated[known], values[:, known]) if known.any() else []
            )
    title = f"{len(result.runs)} runs, {result.rounds} rounds"
    text = f"{', '.join(metrics).replace('_', ' ')} by round: the mean over the seeds, with one standard deviation."
    return Chart("result", "lines", title=title, text=text, x="round", y="", rows=tuple(rows))


def to_altair(result: Result, metrics: tuple[str, ...]) -> Any:
    """The same as an Altair chart."""
    return report.to_altair(chart(result, metrics))


def as_html(result: Result) -> str:
    """Where the runs end, and the picture."""
    rows = []
    for name, part in _groups(result):
        ends = [part.metric(metric)[:, -1] for metric in (*DEFAULT_METRICS, "worst_loss")]
        rows.append([name, str(len(part.runs)), *(f"{end.mean():.4g}" for end in ends)])
    columns = ("runs", "seeds", "loss", "test accuracy", "worst client's loss")
    return table(f"after round {result.rounds}", columns, rows) + picture(chart(result), "svg").decode()


def _groups(result: Result) -> list[tuple[str, Result]]:
    """Runs that differ in the seed alone, with what they have in common."""
    groups: dict[str, list[int]] = {}
    for row, run in enumerate(result.runs):
        name = ", ".join(f"{field} = {value}" for field, value in run.items() if field != "seed")
        groups.setdefault(name or "all", []).append(row)
    return [(name, result.rows(rows)) for name, rows in groups.items()]
