"""The page of a comparison, of a sweep, of one run, or of a real federation."""

import json
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpick import config
from fedpick.compare.charts import Facts, Section, metric_title, sections, seeds_title, shown_scale
from fedpick.compare.comparison import Comparison
from fedpick.compare.facts import cards, describe, polled_rows, single_cards, sweep_sections
from fedpick.compare.presets import DEFAULT_STRATEGIES
from fedpick.compare.report import COLUMNS, ComparisonReport, final_text, own_metrics
from fedpick.compare.summary import CURRENCIES, StrategySummary
from fedpick.compare.targets import (
    leader_of,
    most_spent,
    moved_to,
    speed_up_chart,
    targets,
    targets_section,
    winner_of,
)
from fedpick.config import Plain
from fedpick.registry import STRATEGIES
from fedpick.report import Chart, Palette, code, heading, page, paragraph, part, table, to_panel
from fedpick.sim import Summary
from fedpick.storage import write_atomic

TITLE = "Which clients to train on"
BROAD = ("bars", "picks")  # charts as wide as the page
NOTES = (
    "Rounds, MB, seconds and messages to the target: the median over the seeds, and a bootstrap interval under it. "
    "Speed-up: how many times fewer rounds (MB, seconds) than {baseline}, a geometric mean over paired seeds with "
    "Student's 95 % interval, [?] where that says nothing; a run that does not get there counts as if it did at its "
    "end, which makes the factor a bound (≤, ≥, ~ where runs of both do not, and - where one's never do). The sentence "
    "on top is about all strategies together and has wider intervals (Bonferroni). ± is one standard deviation over "
    "the seeds. Paired seeds: run i of every strategy has the same data, first model and availability. Loss: the mean "
    "over all training samples. Traffic counts polls as well: every candidate is sent the model."
)
REAL = (
    "Loss and worst client: Flower's evaluation on clients, of those that took part in it after that round, on the "
    "data they chose. Test accuracy and test loss: the server's own evaluation. Seconds are a clock's: of the slowest "
    "client that was waited for. MB: the model, as often as it was sent for polls and training; not for evaluations."
)
Cell = tuple[str, str]


class Shown(NamedTuple):
    """A column of the page's table: its group, its title, and a number with what is said under it."""

    group: str
    title: str
    cell: Callable[[StrategySummary], Cell]


def _text(title: str) -> Callable[[StrategySummary], Cell]:
    """A column of the terminal's table, by its title; what is in brackets goes below."""
    return _cell({" ".join(column.title.split()): column for column in COLUMNS}[title].text)


def _cell(text_of: Callable[[StrategySummary], str]) -> Callable[[StrategySummary], Cell]:
    def cell(one: StrategySummary) -> Cell:
        text = text_of(one)
        found = re.fullmatch(r"(.*) \[(.*), (.*)\]", text)
        if found:
            return found[1], f"{found[2]} to {found[3]}"
        value, sign, spread = text.partition(" ± ")
        return value, f"± {spread}" if sign else ""

    return cell


def _seconds(one: StrategySummary) -> Cell:
    amount = one.seconds_to_target
    return CURRENCIES["seconds"].text(amount) if np.isfinite(amount) else "-", ""


TARGET, END, ROUND = "to the target", "after the last round", "a round"
SHOWN = (
    Shown(TARGET, "speed-up", _text("speed-up [95 %]")),
    Shown(TARGET, "rounds", _text("rounds to target [95 %]")),
    Shown(TARGET, "MB", _text("MB to target")),
    Shown(TARGET, "seconds", _seconds),
    Shown(TARGET, "messages", _text("messages to target")),
    Shown(END, "loss", _text("final loss")),
    Shown(END, "accuracy, %", _text("accuracy, %")),
    Shown(END, "worst client's loss", _text("worst client's loss")),
    Shown(ROUND, "messages", _text("messages a round")),
    Shown(ROUND, "MB", _text("MB a round")),
)
ALONE = {TARGET: " to target", ROUND: " a round"}  # where a title stands without its group
MOVED = [place for place, column in enumerate(SHOWN) if column.group == TARGET]


def write_report(
    report: ComparisonReport, folder: str | Path, summary: Summary | None = None, *, refresh: int = 0
) -> tuple[Path, Path]:
    """Write report.html and summary.json; return their paths.

    Args:
        report: The report.
        folder: Where to write, made where it does not exist.
        summary: Summary of the federation, which is drawn where it is given.
        refresh: Seconds after which an open page is read again; 0 for never.
    """
    text = json.dumps(report.summary(), indent=1, allow_nan=False)
    html = write_atomic(Path(folder, "report.html"), render_page(report, summary, refresh=refresh), owner="report")
    return html, write_atomic(Path(folder, "summary.json"), text + "\n", owner="report")


def render_page(report: ComparisonReport, summary: Summary | None = None, *, refresh: int = 0) -> str:
    """The page, as HTML.

    Args:
        report: The report.
        summary: Summary of the federation, which is drawn where it is given.
        refresh: Seconds after which an open page is read again; 0 for never.
    """
    compared = report.comparison
    one = len(compared.names) == 1
    palette = Palette.of(compared.names, _places(compared))
    known = Facts(report.client_names, report.real, report.redrawn)
    values = [] if one else targets(compared)
    moved = moved_to(compared, values)
    ahead = [] if one or not values else [targets_section(compared, moved[compared.by])]
    drawn = sweep_sections(compared, report.experiments)
    drawn += sections(compared, known, summary=summary, ahead=ahead)
    lead, rest = split_answer(compared.answer)
    parts = [part("facts", describe(report, summary))]
    if one:
        parts.append(part("cards", single_cards(compared, report.real)))
        parts += (
            [] if compared.answer.startswith("There is nothing to compare") and not rest else [paragraph(rest, "note")]
        )
    else:
        parts += [part("answer", lead, rest), part("cards", cards(compared, leader_of(compared), report.real))]
    parts += [paragraph(remark, "note") for remark in report.remarks]
    at = values.index(compared.threshold) if values else 0
    ways = [(by, currency.unit) for by, currency in CURRENCIES.items()]
    goal = compared.goal
    parts.append(part("bar", *(compared.names, palette.places, "" if one else compared.baseline, palette.dashes),
                      *(goal, at, max(len(values) - 1, 0), ways, compared.by)))  # fmt: skip
    parts.append(_scores(compared, palette))
    parts.append(part("contents", [(each.name, each.title) for each in drawn]))
    parts += [_section(each, compared, palette) for each in drawn]
    if summary is None:
        away = "stay with its clients" if report.real else "are not at hand here"
        parts.append(paragraph(f"The federation's data {away}, so they are not drawn.", "soft"))
    parts += _details(report)
    if len(values) > 1:
        parts.append(part("data", "moves", _moves(report, moved, palette)))
    return page(_title(report), parts, kicker=_kicker(report), refresh=refresh)


def _places(compared: Comparison) -> dict[str, int]:
    """The same colour for a strategy on every page: the baseline is grey, the others are in the registry's order."""
    names = dict.fromkeys(name for name in (*DEFAULT_STRATEGIES, *STRATEGIES) if name != "rand")
    order = {name: place for place, name in enumerate(names)}
    fixed = {name: 1 + order[kind] for name in compared.names if (kind := name.split(",")[0]) in order}
    return {**fixed, compared.baseline: 0} if len(compared.names) > 1 else {compared.names[0]: 1}


def _title(report: ComparisonReport) -> str:
    names = report.comparison.names
    if len(names) > 1:
        return TITLE
    return f"{names[0]}, a federation on Flower" if report.real else f"{names[0]}, one experiment"


def _kicker(report: ComparisonReport) -> str:
    what = "federation" if report.real else "comparison" if len(report.comparison.names) > 1 else "simulation"
    return f"fedpick · {what}"


def split_answer(answer: str) -> tuple[str, str]:
    """What an answer begins with, which a page shows large, and the rest of it.

    >>> split_answer("pow-d wins: it is 1.70 times as fast (1.51 to 1.91). cpow-d may be just as fast.")
    ('pow-d wins: it is 1.70 times as fast', '(1.51 to 1.91). cpow-d may be just as fast.')
    """
    found = re.match(r".*?(?:[.](?= )|(?= \((?:[0-9.]+ to |95 % sure)))", answer)
    lead = found[0] if found else answer
    return lead, answer[len(lead) :].strip().replace(" %", "\xa0%")


def _scores(compared: Comparison, palette: Palette) -> str:
    one = len(compared.names) == 1  # has no target
    last = max(place for place, column in enumerate(SHOWN) if column.group == END) + 1
    own = [Shown(END, metric_title(metric), _cell(final_text(metric))) for metric in own_metrics(compared)]
    columns = [column for column in (*SHOWN[:last], *own, *SHOWN[last:]) if not one or column.group != TARGET]
    groups = [(name, len(list(each))) for name, each in groupby(column.group for column in columns)]
    rows = [(s.name, palette.number(s.name), [column.cell(s) for column in columns]) for s in compared.summaries]
    title = f"The target is {compared.goal_with_source}." if not one else "Where it ended, and what a round takes."
    titles = [(column.title, f"{column.title}{ALONE.get(column.group, '')}") for column in columns]
    return part("scores", title, groups, titles, rows, winner_of(compared))


def _section(section: Section, compared: Comparison, palette: Palette) -> str:
    charts, panels = [chart for chart in section.charts if chart is not None], []
    broad = {chart.name for chart in charts if chart.kind in BROAD}
    if (len(charts) - len(broad)) % 2:  # nobody beside the last one
        broad.add([chart.name for chart in charts if chart.name not in broad][-1])
    for chart in charts:
        panels.append(part("panel", chart, _panel(chart, compared, palette), chart.name in broad))
    return part("section", section.name, section.title, section.text, panels)


def _panel(chart: Chart, compared: Comparison, palette: Palette) -> Plain:
    target = shown_scale(compared.metric) * compared.threshold if chart.target_on else None
    who = {"baseline": compared.baseline, "winner": winner_of(compared), "leader": leader_of(compared)}
    return to_panel(chart, palette, **who, target=target)


def _moves(report: ComparisonReport, moved: dict[str, list[Comparison]], palette: Palette) -> Plain:
    """What the page shows at each target, in each currency."""
    compared = report.comparison
    scale = shown_scale(compared.metric)
    found: Plain = {
        "names": list(compared.names),
        "goals": [one.goal for one in moved[compared.by]],
        "targets": [float(f"{scale * one.threshold:.6g}") for one in moved[compared.by]],
        "columns": MOVED,
        "source": f"The target is {compared.goal_with_source}.",
        "own": compared.goal,
        "by": {},
    }
    for by, each in moved.items():
        chart = speed_up_chart(compared, each)
        found["by"][by] = {
            "unit": CURRENCIES[by].unit,
            "most": float(f"{most_spent(each[0]):.6g}"),
            "title": seeds_title(each[0]),
            "text": chart.text if chart is not None else "",
            "speed": _panel(chart, compared, palette) if chart is not None else None,
            "states": [_state(one, report) for one in each],
        }
    return found


def _state(compared: Comparison, report: ComparisonReport) -> Plain:
    leader = leader_of(compared)
    sweeps = [(part.name, part.text, part.charts[0]) for part in sweep_sections(compared, report.experiments)]
    spent = [
        [float(f"{n:.4g}") if np.isfinite(n) else None for n in compared.spent_of(name)] for name in compared.names
    ]
    return {
        "answer": split_answer(compared.answer),
        "winner": winner_of(compared),
        "leader": leader,
        "cards": cards(compared, leader, report.real),
        "sweeps": [[key, text, chart.text, list(chart.rows)] for key, text, chart in sweeps if chart is not None],
        "cells": [[SHOWN[place].cell(one) for place in MOVED] for one in compared.summaries],
        "spent": spent,
    }


def _details(report: ComparisonReport) -> list[str]:
    """What is folded: how to read the page, settings, versions, the command."""
    parts = [heading("Details", anchor="details-title")]
    if report.notes:
        decisions = [(str(number), why) for number, why in report.notes]
        parts.append(
            part(
                "folded",
                "Decisions of the strategy, and rounds without an answer or without training",
                [table("", ("round", "what happened, and why"), decisions)],
            )
        )
    if report.polls:
        columns = ("round", "who was asked, and the loss that each answered", "who trained")
        title = "Why these clients: whom the server asked, what they answered, and who trained"
        parts.append(part("folded", title, [table("", columns, polled_rows(report))]))
    known = [
        (name, STRATEGIES[kind].picks) for name in report.comparison.names if (kind := name.split(",")[0]) in STRATEGIES
    ]
    words = [paragraph(REAL if report.real else NOTES.format(baseline=report.comparison.baseline))]
    words += [table("", ("strategy", "who trains"), known)] if known else []
    parts.append(part("folded", "How to read this page", words))
    parts.append(part("folded", "Settings", [table("", ("setting", "value"), _settings(report))]))
    made = [[str(cell) for cell in row] for row in report.provenance]
    parts.append(part("folded", "Made with", [table("", ("device", "versions", "runs"), made)]))
    if report.command:
        parts.append(part("folded", "How to reproduce", [code(report.command)]))
    return parts


def _settings(report: ComparisonReport) -> list[tuple[str, str]]:
    """Each strategy with its parameters, and what all have in common."""
    plains = report.experiments
    flat = [config.leaves({key: value for key, value in plain.items() if key != "selector"}) for plain in plains]
    common = {path: value for path, value in flat[0].items() if all(each.get(path) == value for each in flat)}
    rows = list(zip(report.comparison.names, report.strategies, strict=True))
    return rows + [(path, str(value)) for path, value in common.items() if value not in (None, "", [])]
