"""``fedpick run``: an experiment from a TOML file, kept, and never run twice."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Data, Debug, Output, Quiet, Settings, announced, cli_errors, console, open_store
from fedpick.cli._progress import ProgressBar, duration


def run(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the experiment, or several.")],
    settings: Settings = None,
    output: Output = Path("results"),
    csv: Annotated[Path | None, typer.Option(help="Write the metrics of all runs to this file.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Log to TensorBoard in this folder.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Log to this MLflow tracking URI.")] = None,
    data: Data = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the experiments of a file and show their final metrics.

    A run that is in the output folder is not run again, and an interrupted one resumes.

    Examples:

      fedpick run experiment.toml

      fedpick run experiment.toml --set selector.d=12 --set seeds=20
    """
    with cli_errors(debug, output, data=data), announced(f"run {file}", quiet):
        from fedpick.experiment import differences, missing, read
        from fedpick.experiment import run as run_all
        from fedpick.results import MLflow, TensorBoard, concatenate

        experiments = read(file, settings or ())
        for experiment in experiments:
            experiment.check()  # a mistake is an error now, and not after an hour
        left = missing(experiments, open_store(output, "run"))
        work, number = sum(batch.seconds for batch in left), sum(len(batch.runs) for batch in left)
        if number and not quiet:
            typer.echo(f"{number} runs to do, about {duration(work)} on two cores", err=True)
        with contextlib.ExitStack() as stack:
            whole = stack.enter_context(ProgressBar(work, quiet))
            makers: list[Any] = [lambda: TensorBoard(tensorboard)] if tensorboard else []
            makers += [lambda: MLflow(tracking_uri=mlflow)] if mlflow else []
            logs = stack.enter_context(_Logs(makers))

            different = differences([experiment.to_plain() for experiment in experiments])
            labels = {
                experiment.identity(seed): {"seed": seed, **label}
                for experiment, label in zip(experiments, different, strict=True)
                for seed in experiment.seeds
            }

            def watch(batch: Any, so_far: Any) -> None:
                loss = float(so_far.metric("loss")[:, -1].mean())
                whole.at(f"loss {loss:.4g}", batch.seconds, so_far.rounds / batch.points[0].rounds)
                logs(batch, dataclasses.replace(so_far, runs=[labels[each.identity] for each in batch.runs]))

            found = run_all(experiments, output, watch)
        if csv is not None:
            concatenate(found).to_csv(csv)
        _show(experiments, found)


class _Logs(contextlib.ExitStack):
    """Logs of one batch after the other: each is a simulation, and has logs of its own."""

    def __init__(self, makers: list[Any]) -> None:
        super().__init__()
        self.makers, self.batch = makers, None
        self.open: list[Any] = []

    def __call__(self, batch: Any, so_far: Any) -> None:
        if batch is not self.batch:
            self.close()
            self.batch, self.open = batch, [self.enter_context(make()) for make in self.makers]
        for log in self.open:
            log(so_far)


def _show(experiments: Any, found: Any) -> None:
    import numpy as np
    from rich import box
    from rich.table import Table

    from fedpick.experiment import names
    from fedpick.results import Spread, median_interval

    target = experiments[0].metrics
    seeds = max(len(result.runs) for result in found)
    table = Table(
        title=f"after the last round, {seeds} seeds",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    table.add_column("experiment", min_width=20, overflow="fold")
    for name in ("loss", "accuracy, %", "worst loss", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    if target.target is not None:
        table.add_column(f"to {target.value:g} [95 %]", justify="right", no_wrap=True)
    for name, result in zip(names([e.to_plain() for e in experiments]), found, strict=True):
        sent = (result.costs["bytes_down"] + result.costs["bytes_up"]).sum(axis=1) / 1e6
        ends = {metric: result.metric(metric)[:, -1] for metric in ("loss", "test_accuracy", "worst_loss")}
        cells = [
            f"{ends['loss'].mean():.4g}",
            f"{Spread.of(100 * ends['test_accuracy']):.1f}",
            f"{ends['worst_loss'].mean():.4g}",
            f"{np.mean(sent):.4g}",
        ]
        if target.target is not None:
            middle, low, high = median_interval(result.rounds_to(target.target, target.value))
            cells.append(f"{middle:.0f} [{low:.0f}, {high:.0f}]")
        table.add_row(name, *cells)
    console().print(table)
