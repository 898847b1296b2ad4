"""The pictures of a comparison, each with a title that says what it shows and the same in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedpick.compare.comparison import Comparison
from fedpick.compare.returns import percentages, returns, seats_by_round
from fedpick.metrics import METRICS, Numbers, is_accuracy
from fedpick.report import Chart, ChartRow, cell, curve, dot, thin_indices
from fedpick.results import Result
from fedpick.sim import Summary

MOST_CLIENTS = 200  # in a heat map or side by side; more cannot be told apart
MOST_SQUARES = 6000  # of a heat map
MOST_CELLS = 60  # of rounds in the chart of who trained when
SHARE = "data share"
WORDS = {"test_f1": "test F1", "test_auc": "test AUC", "test_calibration": "calibration error"}


class Section(NamedTuple):
    """A part of the page: its title, a sentence about it, and its charts."""

    name: str
    title: str
    text: str
    charts: tuple[Chart | None, ...]


class Facts(NamedTuple):
    """What charts must know: who the clients are, whether they are real, and whether each seed has data of its own."""

    clients: tuple[str, ...]
    real: bool = False
    redrawn: bool = False


def sections(
    compared: Comparison, facts: Facts, *, summary: Summary | None = None, ahead: Sequence[Section] = ()
) -> list[Section]:
    """All of the charts that the results have numbers for.

    Args:
        compared: The results.
        facts: What the charts must know beside them.
        summary: Of the federation, which is drawn where it is given.
        ahead: Sections that come after the first.
    """
    one = len(compared.names) == 1
    learning = [_learning(compared, metric, facts) for metric in _measured(compared)]
    costs = [_costs(compared, what, facts) for what in ("bytes", "seconds")]
    people = [_profile(compared, facts), *_fairness(compared, facts), _skew(compared)]
    whom = "" if one else ", drawn for the baseline and the fastest"
    spread = f"The line is the mean over the seeds, the band one standard deviation{whom}."
    seeds = max(len(result.runs) for result in compared.results)
    found = [
        Section(
            "learning",
            "How it learns" if one else "How fast each strategy learns",
            spread if seeds > 1 else "",
            (*learning,),
        ),
        *ahead,
        Section(
            "costs", "What it costs to get there", "What training and polls send counts; evaluations do not.", (*costs,)
        ),
        Section(
            "clients", "Who trains, and who is left behind", "", (*people, *([_picks(compared, facts)] if one else []))
        ),
    ]
    if summary is not None and summary.labels.shape[1] > 0:
        drawn = partition_chart(summary)
        sizes = {row["y"]: {**row, "name": "", "panel": ""} for row in drawn.rows}
        bars = Chart(
            "sizes", "sizes", title="Samples of each client", text="How many samples each client holds.",
            rows=tuple(sizes.values()), x="samples", y="client",
        )  # fmt: skip
        labels = replace(drawn, title="Samples of each label at each client")
        whose = "Each seed draws data of its own: these are those of the first." if facts.redrawn else ""
        found.append(Section("data", f"Who holds what: {summary.name}", whose, (labels, bars)))
    kept = [part._replace(charts=tuple(chart for chart in part.charts if chart is not None)) for part in found]
    return [part for part in kept if part.charts]


def shown_scale(metric: str) -> int:
    """What a metric is multiplied with to be shown: accuracies are per cent."""
    return 100 if is_accuracy(metric) else 1


def metric_title(metric: str, real: bool = False) -> str:
    """A metric in words, with its unit."""
    if real and metric == "loss":
        return "loss on the clients that evaluated"
    words = {"loss": "global loss", "mean_accuracy": "accuracy, mean over the clients", **WORDS}
    return words.get(metric, metric.replace("_", " ")) + (", %" if is_accuracy(metric) else "")


def _each(compared: Comparison) -> Iterator[tuple[str, Result]]:
    yield from zip(compared.names, compared.results, strict=True)


def _measured(compared: Comparison) -> list[str]:
    """The metrics that are drawn: that of the target first, then accuracy, loss, and those asked for by name."""
    wanted = dict.fromkeys([compared.metric, "test_accuracy", "loss"])
    if not any(_known(compared, metric) for metric in ("test_accuracy",)):
        wanted["mean_accuracy"] = None
    own = [metric for metric in compared.metric_names if metric not in METRICS]
    order = sorted(dict.fromkeys([*wanted, *own]), key=lambda metric: (metric in own, not is_accuracy(metric)))
    order.sort(key=lambda metric: metric in METRICS or metric != compared.metric)  # a target of theirs comes first
    return [metric for metric in order if _known(compared, metric)]


def _known(compared: Comparison, metric: str) -> bool:
    return any(np.isfinite(result.metric(metric)).any() for result in compared.results)


def _learning(compared: Comparison, metric: str, facts: Facts) -> Chart | None:
    rows: list[ChartRow] = []
    for name, result in _each(compared):
        rows += _curve(name, result.evaluated, result.metric(metric) * shown_scale(metric))
    title = _capital(metric_title(metric, facts.real))
    on: Any = {"target_on": "y"} if metric == compared.metric and len(compared.names) > 1 else {}
    higher = compared.results[0].better.get(metric)
    better = "" if higher is None else f"; {'higher' if higher else 'lower'} is better"
    return _chart(f"learning-{metric}", "lines", title, f"{title} by round{better}.", "round", rows, **on)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def seeds_title(compared: Comparison) -> str:
    """The title of the chart of what each seed spends."""
    unit = compared.currency.unit
    return f"{unit[0].upper()}{unit[1:]} to the target, seed by seed"


def seeds_chart(compared: Comparison, spent: Sequence[Numbers], most: float) -> Chart | None:
    """What each seed spends to the target."""
    rows: list[ChartRow] = []
    for name, amounts in zip(compared.names, spent, strict=True):
        for amount in amounts:
            there = bool(np.isfinite(amount))
            at = float(amount) if there else most
            row = dot(name, "", name, value=at, low=at, high=at)
            rows.append({**row, "mark": "reached" if there else "not reached"})
    text = "A mark for each seed, a tick at the median; a cross is a seed that did not get there."
    return _chart("seeds", "strip", seeds_title(compared), text, "", rows)


def _profile(compared: Comparison, facts: Facts) -> Chart | None:
    first = compared.results[0]
    K = first.shares.shape[1]
    if any(result.shares.shape[1] != K for result in compared.results) or K < 2:
        return None
    order = np.argsort(-first.shares.mean(axis=0), kind="stable")
    groups = [group for group in np.array_split(order, min(K, MOST_CLIENTS)) if len(group)]
    many = len(groups) < K
    names = [f"{i}" for i in range(1, len(groups) + 1)] if many else [facts.clients[client] for client in order]
    rows: list[ChartRow] = []
    share = 100 * first.shares.mean(axis=0)
    parts = [(SHARE, share)]
    known, missing = returns(compared, facts.real)
    shown = {name: percentages(result, known) for name, result in _each(compared)}
    parts += [(name, seats) for name, (seats, _) in shown.items()]
    for name, values in parts:
        for label, group in zip(names, groups, strict=True):
            value = float(values[group].mean())
            row = dot(name, "", label, value=value, low=value, high=value)
            came = {"came": float(shown[name][1][group].mean())} if missing and known and name in shown else {}
            rows.append({**row, **came})
    seats = "the part of all seats that it held" if known else "of all updates that came back, the part that it sent"
    text = f"Bars: each client's part of the data. Dots: {seats}"
    text += "; ticks: without the updates that did not come back" if known and missing else ""
    text += "; strong for the baseline and the fastest" if len(compared.names) > 2 else ""
    text += ". Clients by data share"
    text += f"; each place is the mean of {K / len(groups):.0f} of the {K:,} clients." if many else f", all {K}."
    text += f" {missing}." if missing else ""
    title = f"Who {'was selected' if known else 'trained'}, against who holds the data, %"
    return _chart("profile", "bars", title, text, "groups of clients" if many else "client", rows)


def _fairness(compared: Comparison, facts: Facts) -> list[Chart | None]:
    middle: list[ChartRow] = []
    worst: list[ChartRow] = []
    for name, result in _each(compared):
        worst += _curve(name, result.evaluated, result.metric("worst_loss"))
        if "client_loss" not in result.metrics:
            continue
        low, half, high = (np.quantile(result.metrics["client_loss"], q, axis=-1).mean(axis=0) for q in (0.1, 0.5, 0.9))
        keep = thin_indices(len(half))
        for row, down, up in zip(curve(name, "", result.evaluated, values=half), low[keep], high[keep], strict=True):
            middle.append({**row, "low": float(f"{down:.6g}"), "high": float(f"{up:.6g}")})
    whose = " of those that evaluated" if facts.real else ""
    last = f"The loss of the client that is worst off{whose}, by round."
    text = f"The loss of the client in the middle{whose}, by round; the band holds 8 of 10 clients."
    return [
        _chart("worst", "lines", "Loss of the worst client", last, "round", worst),
        _chart("middle", "lines", "Loss of the median client", text, "round", _finite(middle)),
    ]


def _skew(compared: Comparison) -> Chart | None:
    rows: list[ChartRow] = []
    for name, result in _each(compared):
        skew = result.metric("skew")[:, 1:]  # before the first round nobody was selected
        rows += _curve(name, result.evaluated[1:], skew)
    text = (
        "The selection skew: the loss of the selected clients over that of all clients. Above 1, selection prefers "
        "those who are worse off: at first faster, by the paper's theory, and at the price of a bias. It is taken "
        "after training, which has lowered the loss of those who were just selected: even rand may lie below 1."
    )
    return _chart("skew", "lines", "How far selection leans towards high losses", text, "round", rows, rule=1.0)


def _costs(compared: Comparison, what: str, facts: Facts) -> Chart | None:
    rows: list[ChartRow] = []
    metric = next(iter(_measured(compared)), "loss")
    for name, result in _each(compared):
        spent = compared.total(name, what).mean(axis=0)
        rows += _curve(name, spent[result.evaluated], result.metric(metric) * shown_scale(metric))
    clock = "seconds" if facts.real else "simulated seconds"
    x = "megabytes" if what == "bytes" else clock
    title = _capital(metric_title(metric, facts.real))
    text = f"{title} against {x}."
    if what == "seconds":
        text += " The slowest client decides how long a round takes."
    on: Any = {"target_on": "y"} if metric == compared.metric and len(compared.names) > 1 else {}
    return _chart(f"by-{what}", "lines", f"{title}, by {x}", text, x, rows, **on)


def _picks(compared: Comparison, facts: Facts) -> Chart | None:
    """Who was selected in which round, of the first run; several rounds together where there are many."""
    result = compared.results[0]
    K, rounds = result.shares.shape[1], result.rounds
    if not 2 <= K <= MOST_CLIENTS or not rounds:
        return None
    step = -(-rounds // MOST_CELLS)
    known, missing = returns(compared, facts.real)
    came = seats_by_round(result, "clients", step)
    counts = seats_by_round(result, "selected", step) if known and missing else came
    order = np.argsort(-result.shares[0], kind="stable")
    rows: list[ChartRow] = []
    for client in order:
        for t in range(counts.shape[1]):
            if counts[client, t] or t == 0:  # everybody has a row
                row = {"x": t * step + 0.5, "x2": min((t + 1) * step, rounds) + 0.5, "y": facts.clients[client]}
                seats = {"seats": int(counts[client, t]), "came": int(came[client, t])}
                rows.append({"name": "", "panel": "", **row, **seats})
    text = "Who was selected" if known and missing else "Whose update came back" if missing else "Who trained"
    text += " in which round" + (f", {step} rounds to a cell" if step > 1 else "")
    text += ", grey where no update came back" if known and missing else ""
    text += ". The client with most data is on top." + (" Of the first seed." if len(result.runs) > 1 else "")
    title = "Who was selected when" if known and missing else "Who trained when"
    return _chart("picks", "picks", title, text, "round", rows, y="client")


def partition_chart(summary: Summary) -> Chart:
    """The federation's data: clients by labels, and sizes."""
    order = np.argsort(-summary.sizes, kind="stable")
    most = min(len(order), MOST_CLIENTS, max(20, MOST_SQUARES // summary.labels.shape[1]))
    shown = order[np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))]
    rows = [
        cell(
            summary.class_name(label), name, samples=int(summary.labels[client, label]), size=int(summary.sizes[client])
        )
        for client, name in zip(shown, _different([summary.client_name(int(client)) for client in shown]), strict=True)
        for label in range(summary.labels.shape[1])
    ]
    few = "" if len(shown) == len(order) else f" {len(shown)} of the {len(order)} clients are shown, evenly by size."
    text = f"Samples of each label at each client, the largest client on top, and how many samples each holds.{few}"
    return Chart(
        "partition", "heat", title=f"Who holds what: {summary.name}", text=text, x="label", y="client", rows=tuple(rows)
    )


def _different(names: Sequence[str]) -> list[str]:
    """Names, with a number behind those that occur twice: places on an axis must differ."""
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names)]


def _curve(name: str, x: Numbers, values: Numbers) -> list[ChartRow]:
    """A curve of what is finite in every run."""
    finite = np.isfinite(values).all(axis=0)
    return _finite(curve(name, "", np.asarray(x)[finite], values=values[:, finite])) if finite.any() else []


def _finite(rows: list[ChartRow]) -> list[ChartRow]:
    return [row for row in rows if np.isfinite([row["y"], row["low"], row["high"]]).all()]


def _chart(name: str, kind: Any, title: str, text: str, x: str, rows: list[ChartRow], **more: Any) -> Chart | None:
    return Chart(name, kind, title=title, text=text, x=x, rows=tuple(rows), **more) if rows else None
