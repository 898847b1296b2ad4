"""``fedpick paper``: every figure and table of the paper, ours beside theirs, with a verdict."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import (
    Debug,
    Output,
    Quiet,
    cli_errors,
    command_line,
    console,
    set_data_dir,
)
from fedpick.cli._progress import ProgressBar, duration


def paper(
    items: Annotated[list[str] | None, typer.Argument(help="Names of figures and tables; --list shows them.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the items and what is left to run, and end.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, labelled as such, in minutes.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of partitions and draws of problems.")] = None,
    output: Output = Path("paper"),
    docs: Annotated[Path | None, typer.Option(help="Write reproduction.md and img/paper-*.svg there, too.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with Fashion-MNIST; else FEDPICK_DATA, or a download.")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Reproduce the paper: ours beside the published numbers, with a verdict for every claim.

    What is done is kept in the output folder, and goes on there after an interruption.

    Examples:

      fedpick paper --all --quick

      fedpick paper table1 fig3

      fedpick paper --list
    """
    with cli_errors(debug, output):
        set_data_dir(data)
        _paper(items or [], every, listed, quick, seeds, output, docs, quiet)


def _paper(
    names: list[str],
    every: bool,
    listed: bool,
    quick: bool,
    seeds: int | None,
    output: Path,
    docs: Path | None,
    quiet: bool,
) -> None:
    from fedpick.experiment import missing
    from fedpick.paper import FULL, ITEMS, QUICK, chosen, reproduce
    from fedpick.storage import RunStore

    size = QUICK if quick else FULL
    if seeds is not None:
        size = size._replace(name=f"{size.name}, {seeds}-seed", seeds=seeds, draws=seeds)
    items = chosen(ITEMS if every or (listed and not names) else names)
    if not items:
        raise ValueError(f"paper: name an item ({', '.join(ITEMS)}), or say --all or --list")
    if listed:
        _show(items, size, output)
        return
    store = RunStore(output)
    for stranger in store.unknown_files(("paper.html", "reproduction.md", "figures")):
        typer.echo(f"paper: {stranger} is not of fedpick's; it is left alone", err=True)
    needed = [experiment for item in items for experiment in item.experiments(size).values()]
    batches = missing(needed, store)
    work, runs = sum(batch.seconds for batch in batches), sum(len(batch.runs) for batch in batches)
    if runs and not quiet:
        typer.echo(f"{runs} runs are to be done, about {duration(work)} on two cores", err=True)
    with ProgressBar(work, quiet) as whole:

        def watch(item: Any, batch: Any, so_far: Any) -> None:
            whole.at(f"{item.source}", batch.seconds, so_far.rounds / batch.points[0].rounds)

        def ended(done: Any) -> None:
            verdict = "left out" if done.outcome is None else done.outcome.verdict
            whole.note(f"{done.item.source}, {done.item.title}: {verdict}")

        found = reproduce(items, size, store, watch, ended, began=lambda item: whole.begin(item.source))
    _write(found, size, store, output, docs)


def _write(found: Any, size: Any, store: Any, output: Path, docs: Path | None) -> None:
    from fedpick.paper.report import write, write_docs

    command = command_line()
    pages = write(found, size, store, command, output)
    if docs is not None:
        write_docs(found, size, store, command, docs)
    for each in found:
        if each.outcome is None:
            typer.echo(f"left out: {each.item.source} ({each.left_out}; here: --data)", err=True)
    typer.echo(str(pages[0]))
    if all(each.outcome is None for each in found):
        raise typer.Exit(1)


def _show(items: Any, size: Any, output: Path) -> None:
    from rich.table import Table

    from fedpick.experiment import missing
    from fedpick.storage import RunStore

    table = Table(title=f"The paper, {size.name} version")
    for name in ("name", "in the paper", "what", "runs", "left to run"):
        table.add_column(name)
    total, whole = 0, 0.0
    for item in items:
        experiments = item.experiments(size).values()
        runs = sum(len(experiment.seeds) for experiment in experiments)
        left = missing(experiments, RunStore(output)) if output.is_dir() else missing(experiments, None)
        number, work = sum(len(batch.runs) for batch in left), sum(batch.seconds for batch in left)
        rest = f"{number}, about {duration(work)}" if number else "-"
        table.add_row(item.name, item.source, item.title, str(runs), rest)
        total, whole = total + runs, whole + work
    table.add_row("", "", "all together (items share runs)", str(total), f"about {duration(whole)} at most")
    console().print(table)
