"""``fedpick data``: fetch and verify data sets, describe and draw how they are dealt out."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Client, Command, Debug, Settings, Standardize, Task, X, Y, cli_errors, columns, only_one

data = typer.Typer(no_args_is_help=True, help="Fetch and verify data sets; describe and draw a federation's data.")
Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder of the data sets.", show_default="FEDPICK_DATA, or the cache")
]


@data.command(cls=Command)
def fetch(folder: Folder = None, debug: Debug = False) -> None:
    """Download Fashion-MNIST where it is not there yet, and verify it.

    Example:

      fedpick data fetch
    """
    with cli_errors(debug):
        from fedpick.sim import fetch_fashion_mnist, verify_fashion_mnist

        for path in verify_fashion_mnist(fetch_fashion_mnist(folder)):
            typer.echo(f"{path}: as published")


@data.command(cls=Command)
def verify(folder: Folder = None, debug: Debug = False) -> None:
    """Check the files of Fashion-MNIST against their published sums.

    Example:

      fedpick data verify --data ~/datasets
    """
    with cli_errors(debug, data=folder):
        from fedpick.sim import find_fashion_mnist, verify_fashion_mnist

        for path in verify_fashion_mnist(find_fashion_mnist(folder)):
            typer.echo(f"{path}: as published")


@data.command(cls=Command)
def describe(
    task: Task = "synthetic",
    x: X = None,
    y: Y = None,
    client: Client = None,
    standardize: Standardize = False,
    settings: Settings = None,
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with the labels of every client.")] = False,
    debug: Debug = False,
) -> None:
    """Say what a federation's data look like: clients, sizes, labels.

    Examples:

      fedpick data describe my.npz

      fedpick data describe forest.csv --client station

      fedpick data describe digits --set data.partition.alpha=0.1
    """
    with cli_errors(debug, data=folder):
        found = _summary(task, settings, columns(x, y, client, standardize))
        typer.echo(json.dumps(_plain(found), indent=1) if as_json else str(found))


@data.command(cls=Command)
def draw(
    task: Task = "synthetic",
    x: X = None,
    y: Y = None,
    client: Client = None,
    standardize: Standardize = False,
    settings: Settings = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="An .svg, .pdf, .png or .html file.")] = Path(
        "partition.svg"
    ),
    folder: Folder = None,
    debug: Debug = False,
) -> None:
    """Draw who holds what: clients by labels, and sizes.

    Example:

      fedpick data draw fashion-mnist --set data.partition.alpha=0.1 -o partition.png
    """
    with cli_errors(debug, data=folder):
        from fedpick.compare import partition_chart
        from fedpick.report import figure, page, write_chart
        from fedpick.storage import is_own, write_atomic

        kind = output.suffix[1:]
        if kind not in ("svg", "pdf", "png", "html"):
            raise ValueError(f"data: output must end in .svg, .pdf, .png or .html, got {str(output)!r}")
        if output.exists() and not is_own(output):
            rule = "must be a new file, or one that fedpick drew before"
            raise ValueError(f"data: output {rule}, got {str(output)!r}, which is another one")
        if output.name == "report.html" and output.with_name("summary.json").exists():
            raise ValueError(f"data: output must be another file than the page of a comparison, got {str(output)!r}")
        chart = partition_chart(_summary(task, settings, columns(x, y, client, standardize)))
        if kind == "html":
            write_atomic(output, page(chart.title, [figure(chart)]), owner="data")
        else:
            write_chart(chart, output)
        typer.echo(str(output))


def _plain(summary: Any) -> dict[str, Any]:
    """A federation's data as JSON has them: for each client, how many samples of each label."""
    labels = {
        summary.client_name(client): {summary.class_name(c): int(n) for c, n in enumerate(row) if n}
        for client, row in enumerate(summary.labels)
    }
    sizes = {"name": summary.name, "samples": int(summary.sizes.sum()), "test_samples": int(summary.test)}
    return {**sizes, "clients": labels}


def _summary(task: str, settings: list[str] | None, named: dict[str, Any]) -> Any:
    from fedpick.compare import Choices, make_experiments

    # The data are the same whatever the strategy.
    rest = tuple(setting for setting in settings or () if setting.partition("=")[0].split(".")[0].strip() != "selector")
    choices = Choices(strategies=("rand",), m=1, settings=rest, **named)
    try:
        return only_one("data", make_experiments(task, choices, train=False), "data").federation().summary()
    except ValueError as error:
        raise ValueError(str(error).replace("compare: ", "data: ", 1)) from None
