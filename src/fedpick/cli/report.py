"""``fedpick report``: the page of the runs in a folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Data, Debug, cli_errors, command_line


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare, run or federate has written.")],
    target: Annotated[
        str | None, typer.Option(help="Value to reach.", show_default="that of the comparison, or what rand reaches")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric of the target: loss, test_loss, test_accuracy, ...", show_default="loss")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="What the answer counts in: rounds, bytes, seconds.", show_default="that of the comparison"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="An earlier comparison of the folder.", show_default="the last")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="All runs with this setting, such as local.eta=0.05; repeatable.")
    ] = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Draw report.html and summary.json of the runs in a folder, side by side.

    Examples:

      fedpick report comparison

      fedpick report results --metric test_accuracy --target 0.8

      fedpick report comparison --by bytes

      fedpick report comparison --name forest

      fedpick report results --where local.eta=0.05
    """
    with cli_errors(debug, data=data):
        from fedpick.cli.compare import number, show
        from fedpick.compare import load_report, set_aside, write_report
        from fedpick.experiment import from_plain

        wanted: Any = {"name": name, "where": tuple(where or ()), "metric": metric, "by": by}
        report = load_report(folder, **wanted, value=number(target), command=command_line())
        summary = None
        try:
            if not report.real:
                summary = from_plain(report.experiments[0])[0].federation().summary()
        except (ValueError, OSError, KeyError, IndexError, ModuleNotFoundError) as error:
            typer.echo(f"report: the federation's data are not drawn ({error})", err=True)
        set_aside(folder, report)
        page, _ = write_report(report, folder, summary)
        show(report.comparison)
        typer.echo(f"\n{report.comparison.answer}\n\n{page}")
