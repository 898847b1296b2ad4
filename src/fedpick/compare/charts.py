"""The pictures of a comparison, each with a title that says what it shows and the same in words."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedpick.compare.comparison import Comparison
from fedpick.report import Chart, ChartRow, cell, curve, dot, thin_indices
from fedpick.sim import Summary

MOST_CLIENTS = 60  # in a heat map; more cannot be told apart


def charts(compared: Comparison, summary: Summary | None = None) -> list[Chart]:
    """All of them that the results have numbers for; ``summary`` is of the federation."""
    found = [
        _learning(compared),
        _race(compared),
        _profile(compared),
        _fairness(compared),
        _skew(compared),
        _costs(compared),
    ]
    if summary is not None:
        found.append(partition_chart(summary))
    return [chart for chart in found if chart is not None]


def _each(compared: Comparison) -> Iterator[tuple[str, Any]]:
    yield from zip(compared.names, compared.results, strict=True)


def _learning(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    for metric, panel in (("loss", "global loss"), ("test_accuracy", "test accuracy, %")):
        for name, result in _each(compared):
            values = result.metric(metric) * (100 if metric == "test_accuracy" else 1)
            rows += _known(curve(name, panel, result.evaluated, values=values))
    title = "How fast each strategy learns"
    text = "Global loss and test accuracy by round: the mean over the seeds, with a band of one standard deviation."
    return _chart("learning", "lines", title, text, "round", "", rows)


def _race(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    missed = f"not within {max(result.rounds for result in compared.results)} rounds"
    for name, result in _each(compared):
        for n in result.rounds_to(compared.metric, compared.threshold):
            at = float(n if np.isfinite(n) else result.rounds)
            rows.append(
                {**dot(name, "", name, value=at, low=at, high=at), "mark": "reached" if np.isfinite(n) else missed}
            )
    ends = {row["mark"] for row in rows}
    text = f"Rounds until {compared.goal}: a mark for each seed, a line for the median."
    text += f" A cross is a seed that did not get there ({missed})." if missed in ends else ""
    return _chart("race", "strip", f"How many rounds each seed takes to {compared.goal}", text, "", "rounds", rows)


def _profile(compared: Comparison) -> Chart | None:
    first = compared.results[0]
    K = first.shares.shape[1]
    if any(result.shares.shape[1] != K for result in compared.results):
        return None
    rank = np.arange(1, K + 1)
    rows: list[ChartRow] = []
    for name, result in _each(compared):
        counts, order = result.counts, np.argsort(-result.shares, kind="stable")
        seats = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        rows += _known(curve(name, "", rank, values=np.take_along_axis(seats, order, axis=1)))
    rows += curve("data share", "", rank, values=100 * -np.sort(-first.share.reshape(-1, K)))
    text = (
        "The part of all seats that each client held, clients sorted by their part of the data, which is drawn as well."
    )
    return _chart(
        "profile", "lines", "Who was selected, against who holds the data", text, "client, by data share", "%", rows
    )


def _fairness(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    middle, worst = "half of the clients are below; band: 8 in 10", "the worst client"
    for name, result in _each(compared):
        if "client_loss" not in result.metrics:
            continue
        low, half, high = (np.quantile(result.metrics["client_loss"], q, axis=-1).mean(axis=0) for q in (0.1, 0.5, 0.9))
        keep = thin_indices(len(half))
        for row, down, up in zip(
            curve(name, middle, result.evaluated, values=half), low[keep], high[keep], strict=True
        ):
            rows.append({**row, "low": float(f"{down:.6g}"), "high": float(f"{up:.6g}")})
    for name, result in _each(compared):
        rows += curve(name, worst, result.evaluated, values=result.metric("worst_loss"))
    text = (
        "The clients' own losses by round, mean over the seeds: the median client with the band from the 10th to the "
        "90th percentile, and the client that is worst off."
    )
    return _chart("fairness", "lines", "How the loss spreads over the clients", text, "round", "loss", _known(rows))


def _skew(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    for name, result in _each(compared):
        skew = result.metric("skew")[:, 1:]  # before the first round nobody was selected
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(skew).all(axis=0)
        rows += curve(name, "", result.evaluated[1:][finite], values=skew[:, finite]) if finite.any() else []
    text = (
        "The selection skew: the loss of the selected clients over that of all clients. Above 1, selection prefers "
        "those who are worse off: faster, at the price of a bias. It is taken after training, which has lowered the "
        "loss of those who were just selected: even rand may lie below 1."
    )
    return _chart("skew", "lines", "How far selection leans towards high losses", text, "round", "skew", rows)


def _costs(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    accuracy = all(np.isfinite(result.metric("test_accuracy")).all() for result in compared.results)
    metric, factor = ("test_accuracy", 100) if accuracy else ("loss", 1)
    for name, result in _each(compared):
        costs = result.costs
        for panel, spent in (
            ("against megabytes sent", (costs["bytes_down"] + costs["bytes_up"]) / 1e6),
            ("against simulated seconds", costs["seconds"]),
        ):
            total = np.concatenate([[0.0], np.asarray(spent, float).mean(axis=0).cumsum()])
            rows += curve(name, panel, total[result.evaluated], values=factor * result.metric(metric))
    what = "test accuracy, %" if accuracy else "global loss"
    text = (
        f"{what[0].upper()}{what[1:]} against all traffic, polls included, and against simulated time, in which the "
        "slowest client decides how long a round takes (1,000 samples and 1 MB per second)."
    )
    return _chart("costs", "lines", "What it costs to get there", text, "", what, _known(rows))


def partition_chart(summary: Summary) -> Chart:
    """The federation's data: clients by labels, and sizes."""
    order = np.argsort(-summary.sizes, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_CLIENTS)).round().astype(int))]
    rows = [
        cell(str(label), int(client), samples=int(summary.labels[client, label]), size=int(summary.sizes[client]))
        for client in shown
        for label in range(summary.labels.shape[1])
    ]
    few = "" if len(shown) == len(order) else f" {len(shown)} of the {len(order)} clients are shown, evenly by size."
    text = f"Samples of each label at each client, the largest client on top, and how many samples each holds.{few}"
    return Chart(
        "partition", "heat", title=f"Who holds what: {summary.name}", text=text, x="label", y="client", rows=tuple(rows)
    )


def _known(rows: list[ChartRow]) -> list[ChartRow]:
    return [row for row in rows if np.isfinite([row["y"], row["low"], row["high"]]).all()]


def _chart(name: str, kind: Any, title: str, text: str, x: str, y: str, rows: list[ChartRow]) -> Chart | None:
    return Chart(name, kind, title=title, text=text, x=x, y=y, rows=tuple(rows)) if rows else None
