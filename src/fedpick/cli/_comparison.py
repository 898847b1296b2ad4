"""What a comparison ends with: the page, the files, the table and the answer."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from fedpick.cli._common import console


def finish(
    report: Any, output: Path, summary: Any, *, name: str | None, csv: Path | None, as_json: bool, began: float
) -> None:
    """Write the page and the summary of a comparison, and show its table and its answer.

    Args:
        report: The comparison.
        output: The folder of its runs.
        summary: Of the federation, where it is at hand.
        name: What the comparison is to be called, if it was said.
        csv: Where to write the metrics of all runs, if anywhere.
        as_json: Whether to print the summary and nothing else.
        began: When it began, by the monotonic clock.
    """
    from fedpick.compare import page_lock, set_aside, write_report
    from fedpick.results import write_runs

    with page_lock(output):
        report = set_aside(output, with_remarks(report, summary), name)
        page, plain = write_report(report, output, summary)
    if as_json:
        typer.echo(plain.read_text(), nl=False)
    else:
        show(report.comparison)
        typer.echo(f"\n{report.comparison.answer}\n")
        say_remarks(report)
        typer.echo(f"{page} has the charts, {plain.name} the numbers; {time.monotonic() - began:.0f} s")
    if csv is not None:
        write_runs(report.runs(), csv)


def with_remarks(report: Any, summary: Any) -> Any:
    """The report with remarks on its settings, and on the test set where the federation is at hand."""
    from fedpick.compare import remarks_on_settings, remarks_on_test_set

    found = remarks_on_settings(report)
    if summary is not None:
        found += remarks_on_test_set(report.comparison, int(summary.test), summary.commonest)
    return replace(report, remarks=(*report.remarks, *found))


def say_remarks(report: Any) -> None:
    """What must be known of the runs beside the answer."""
    for remark in report.remarks:
        typer.echo(f"note: {remark}", err=True)


def show(comparison: Any) -> None:
    """The table of a comparison; in two parts where the terminal is narrow, and folded where it is very narrow."""
    from rich.measure import Measurement

    from fedpick.compare import columns_of

    every = columns_of(comparison)
    screen, first, rest = console(wide=200), every[:1], every[1:]
    results, costs = ([column for column in rest if column.cost is cost] for cost in (False, True))

    def fits(table: Any) -> bool:
        found: bool = Measurement.get(screen, screen.options.update(width=500), table).maximum <= screen.width
        return found

    whole = _table(comparison, every)
    for part in (every,) if fits(whole) else ([*first, *results], [*first, *costs]):
        table = _table(comparison, part)
        screen.print(table if fits(table) else _table(comparison, part, fold=True))


def _table(comparison: Any, shown: Any, fold: bool = False) -> Any:
    from rich.table import Table

    title = f"target: {comparison.goal_with_source}"
    table = Table(title=title, box=None, padding=(0, 1), collapse_padding=True, show_lines=fold)
    for place, column in enumerate(shown):
        side: Any = "right" if place else "left"
        table.add_column(column.title, justify=side, no_wrap=not fold, overflow="fold", vertical="bottom")
    for one in comparison.summaries:
        table.add_row(*(column.text(one) for column in shown))
    return table
