"""``fedpick report``: the page of runs that are in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from fedpick.cli._common import Debug, cli_errors, command_line, set_data_dir


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare, run or federate has written.")],
    target: Annotated[
        str | None, typer.Option(help="What is to be reached (as it was told, or what rand reaches).")
    ] = None,
    metric: Annotated[str, typer.Option(help="Of what: loss, test_loss, test_accuracy, ...")] = "loss",
    data: Annotated[Path | None, typer.Option(help="Folder with Fashion-MNIST; else FEDPICK_DATA.")] = None,
    debug: Debug = False,
) -> None:
    """Draw report.html and summary.json of the runs in a folder, side by side.

    Examples:

      fedpick report comparison

      fedpick report results --metric test_accuracy --target 0.8
    """
    with cli_errors(debug):
        set_data_dir(data)
        from fedpick.cli.compare import number, show
        from fedpick.compare import load, write
        from fedpick.experiment import from_dict

        told = load(folder, metric, number(target), command_line())
        summary = None
        try:
            first = from_dict(told.experiments[0])[0]
            summary = first.federation().summary()
        except (ValueError, OSError, KeyError, IndexError, ModuleNotFoundError) as error:
            typer.echo(f"report: the federation's data are not drawn ({error})", err=True)
        page, _ = write(told, folder, summary)
        show(told)
        typer.echo(f"\n{told.compared.answer}\n\n{page}")
