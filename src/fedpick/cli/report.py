"""``fedpick report``: the page of the runs in a folder."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Data, Debug, check_filled, cli_errors, command_line, open_store
from fedpick.cli.compare import metrics_asked


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare, run or federate has written.")],
    target: Annotated[
        str | None,
        typer.Option(help="Value of the metric to reach.", show_default="that of the comparison, or what rand reaches"),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric of the target: loss, test_loss, test_accuracy, f1, ...", show_default="that of the comparison"
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="What the answer counts in: rounds, bytes, seconds.", show_default="that of the comparison"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="An earlier comparison of the folder, which then is the last.", show_default="the last made or named"
        ),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="All runs with this setting, such as local.eta=0.05; repeatable.")
    ] = None,
    watch: Annotated[
        int, typer.Option(min=0, help="Write the page again every so many seconds, until Ctrl-C.", show_default="no")
    ] = 0,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Also log the runs to TensorBoard in this folder; with --watch, as they go on.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(help="Also log the runs to this MLflow tracking URI, at the end.")
    ] = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Draw report.html and summary.json of the runs in a folder, side by side.

    With --watch, a page that is open in a browser reads itself again: a federation on Flower can be followed.

    Examples:

      fedpick report comparison

      fedpick report results --metric test_accuracy --target 0.8

      fedpick report comparison --by bytes

      fedpick report comparison --name forest

      fedpick report results --where local.eta=0.05

      fedpick report federation --watch 10 --tensorboard logs
    """
    with cli_errors(debug, data=data):
        from fedpick.cli._comparison import say_remarks, show, with_remarks
        from fedpick.cli.compare import check_percent, number
        from fedpick.compare import check_page, load_report, page_lock, set_aside, write_report
        from fedpick.results import MLflow, TensorBoard

        check_filled("report", name=name)
        if where and name is not None:
            raise ValueError(f"report: where must not be given with --name, as it is of all runs, got {where[0]!r}")

        if (folder / "runs").is_dir():
            open_store(folder, "report", *(path.name for path in folder.iterdir()))  # names what else is in runs/
        if tensorboard is not None:
            TensorBoard(tensorboard).check()
        if mlflow is not None:
            MLflow(tracking_uri=mlflow).check()

        def write(refresh: int = 0) -> Any:
            asked = metrics_asked(None, metric)[1]
            wanted: Any = {"name": name, "where": tuple(where or ()), "metric": asked, "by": by}
            report = load_report(folder, **wanted, value=number(target), command=command_line())
            check_percent("report", target, report.comparison.metric)
            summary = None
            try:
                summary = None if report.real else _drawn(report)
            except (ValueError, OSError, KeyError, IndexError, ModuleNotFoundError) as error:
                typer.echo(f"report: the federation's data are not drawn ({error})", err=True)
            check_page(folder, "report")
            report = with_remarks(report, summary)
            running = report.real and refresh > 0
            if tensorboard is not None:
                _log(report.comparison, lambda: TensorBoard(tensorboard))
            try:
                with page_lock(folder):
                    report = set_aside(folder, report)
                    return report, write_report(replace(report, running=running), folder, summary, refresh=refresh)[0]
            except OSError as error:
                return report, error

        if watch:
            _follow(write, watch)
        report, page = write()
        if mlflow is not None:
            _log(report.comparison, lambda: MLflow(tracking_uri=mlflow))
        show(report.comparison)
        typer.echo(f"\n{report.comparison.answer}\n")
        say_remarks(report)
        if isinstance(page, OSError):  # of a folder that can only be read, the table is shown all the same
            raise page
        typer.echo(str(page))


def _drawn(report: Any) -> Any:
    """What the clients hold, as it was when the runs were played."""
    from fedpick.experiment import from_plain

    first = from_plain(report.experiments[0])[0]
    if report.identities and first.identity(first.seeds[0]) not in report.identities:
        raise ValueError("they, or code of one's own, were edited since")
    return first.federation().summary()


def _log(comparison: Any, make: Callable[[], Any]) -> None:
    """Log all runs of a comparison, each with its strategy and its seed."""
    for name, result in zip(comparison.names, comparison.results, strict=True):
        with make() as log:
            log(replace(result, runs=[{"strategy": name, **run} for run in result.runs]))


def _follow(write: Callable[[int], Any], seconds: int) -> None:
    """Write the page every so many seconds until Ctrl-C; a folder that has no run yet is waited for."""
    said = ""
    try:
        while True:
            try:
                page = write(seconds)[1]
                if isinstance(page, OSError):
                    raise page
                line = f"{page} is written every {seconds} s; Ctrl-C ends that"
            except ValueError as error:
                line = f"{error}; waiting"
            if line != said:
                typer.echo(line, err=True)
            said = line
            time.sleep(seconds)
    except KeyboardInterrupt:
        typer.echo("", err=True)
