"""``fedpick paper``: every figure and table of the paper, ours beside theirs, with verdicts."""

from dataclasses import replace
from pathlib import Path
from re import search
from typing import Annotated, Any

import typer

from fedpick.cli._common import Debug, Quiet, announced, cli_errors, command_line, console, open_store
from fedpick.cli._progress import ProgressBar, duration, estimate

PAGES = ("paper.html", "reproduction.md")


def paper(
    items: Annotated[list[str] | None, typer.Argument(help="Names of figures and tables; see --list.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every figure and table of the paper.")] = False,
    later: Annotated[bool, typer.Option("--later", help="The claims of the papers of other strategies.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the items and what is left to run.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, labelled as such, in minutes.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions and of draws of the other problems.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for runs and reports.", show_default="paper, or paper-quick with --quick"
        ),
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Also write reproduction.md, a page for each item and img/paper-*.svg here.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of Fashion-MNIST.", show_default="FEDPICK_DATA, or a download")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Reproduce the paper: ours beside the published numbers, with verdicts on its claims.

    Finished runs are kept in the output folder; after an interruption, the same command continues. The page keeps the
    items that it has; another size needs another folder.

    Examples:

      fedpick paper --all --quick

      fedpick paper table1 fig3

      fedpick paper --later --quick

      fedpick paper --list
    """
    output = output or Path("paper-quick" if quick else "paper")
    with cli_errors(debug, output, data=data), announced("paper", quiet or listed):
        from fedpick.experiment import missing
        from fedpick.paper import (
            FULL,
            ITEMS,
            LATER,
            QUICK,
            Reproduction,
            get_items,
            reproduce,
            write_docs,
            write_report,
        )

        size = QUICK if quick else FULL
        if seeds is not None:
            size = replace(size, name=f"{size.name}, {seeds}-seed", seeds=seeds, draws=seeds)
        others = {item.name for item in LATER}
        groups = (("--all", ITEMS.keys() - others if every else set()), ("--later", others if later else set()))
        for option, group in groups:
            for name in (name for name in items or () if name in group):
                raise ValueError(f"paper: an item must not be named with {option}, which has it, got {name!r}")
        named = {*(items or ()), *groups[0][1], *groups[1][1]}
        selected = get_items(ITEMS if listed and not named else named)
        if not selected:
            raise ValueError(f"paper: name an item ({', '.join(ITEMS)}), or say --all, --later or --list")
        if listed:
            _list(selected, size, output)
            return
        _check_files(output, docs)
        _check_size(size, output, "-o", PAGES)
        if docs is not None:
            _check_size(size, docs, "--docs", PAGES[1:])
        store = open_store(output, "paper", *PAGES, "figures")
        selected = get_items({*named, *_on_page(output, size, store, named)})
        batches = missing([experiment for item in selected for experiment in item.experiments(size).values()], store)
        work, runs = sum(batch.seconds for batch in batches), sum(len(batch.runs) for batch in batches)
        if runs and not quiet:
            typer.echo(estimate(batches), err=True)
        with ProgressBar(work, quiet) as bar:

            def show_progress(item: Any, batch: Any, so_far: Any) -> None:
                bar.at(item.source, batch.seconds, so_far.rounds / batch.points[0].rounds)

            def show_verdict(result: Any) -> None:
                item, outcome = result.item, result.outcome
                verdict = "left out" if outcome is None else item.wording(outcome.verdict) + size.label
                bar.note(f"{item.source}, {item.title}: {verdict}")

            results = reproduce(
                selected,
                size,
                store,
                on_start=lambda item: bar.begin(item.source),
                on_progress=show_progress,
                on_end=show_verdict,
            )
        kept = [item.name for item in selected if item.name not in named]
        command = command_line().replace("fedpick paper", " ".join(["fedpick paper", *kept]), 1)
        reproduction = Reproduction(results, size, store, command)
        pages = write_report(reproduction, output)
        if docs is not None:
            write_docs(reproduction, docs)
        for item, outcome, left_out in results:
            if outcome is None:
                typer.echo(f"left out: {item.source} ({left_out}; here: --data)", err=True)
        typer.echo(str(pages[0]))
        if all(result.outcome is None for result in results if result.item.name in named):
            raise typer.Exit(1)


def _check_files(output: Path, docs: Path | None) -> None:
    """Raise where a file of the user's would be overwritten."""
    from fedpick.storage import check_own

    check_own("paper", output, PAGES)
    figures = output / "figures"  # which has pictures of fedpick's where there is a page of them
    if figures.exists() and not (output / PAGES[0]).exists() and not (figures.is_dir() and not any(figures.iterdir())):
        rule = "must be fedpick's to be written again, and is not; move it away, or choose another folder"
        raise ValueError(f"paper: {figures} {rule}")
    if docs is not None:
        check_own("paper", docs, PAGES[1:])


def _check_size(size: Any, folder: Path, option: str, names: tuple[str, ...]) -> None:
    """Raise where the folder has a page of another size, which would be lost."""
    for path in (folder / name for name in names):
        text = path.read_text(errors="replace") if path.is_file() else ""
        if search(r"Fashion-MNIST with \d+ partitions", text) and size.extent not in text:
            raise ValueError(
                f"paper: {folder} must not have a page of another size than the {size.name} version, and has one; "
                f"choose another folder with {option}"
            )


def _on_page(output: Path, size: Any, store: Any, named: set[str]) -> list[str]:
    """The items that the page has already and whose runs are stored: it keeps them."""
    from fedpick.experiment import missing
    from fedpick.paper import ITEMS

    page = output / PAGES[0]
    text = page.read_text(errors="replace") if page.is_file() else ""
    shown = [name for name in ITEMS if f'id="{name}"' in text]
    kept = [name for name in shown if not missing(ITEMS[name].experiments(size).values(), store)]
    gone = [name for name in shown if name not in (*kept, *named)]
    if gone:
        typer.echo(f"paper: the page is made without {', '.join(gone)}: its runs are gone", err=True)
    return kept


def _list(items: Any, size: Any, output: Path) -> None:
    from rich.table import Table

    from fedpick.experiment import missing
    from fedpick.storage import RunStore

    table = Table(title=f"The paper, {size.name} version")
    for name in ("name", "in the paper", "what", "runs", "left to run"):
        table.add_column(name)
    store = RunStore(output) if output.is_dir() else None
    every = [experiment for item in items for experiment in item.experiments(size).values()]
    for item in items:
        experiments = item.experiments(size).values()
        runs = sum(len(experiment.seeds) for experiment in experiments)
        left = missing(experiments, store)
        number, work = sum(len(batch.runs) for batch in left), sum(batch.seconds for batch in left)
        rest = f"{number}, about {duration(work)}" if number else "-"
        table.add_row(item.name, item.source, item.title, str(runs), rest)
    total = sum(len(batch.runs) for batch in missing(every, None))
    whole = sum(batch.seconds for batch in missing(every, store))
    table.add_row("", "", "all together (items share runs)", str(total), f"about {duration(whole)}")
    console().print(table)
