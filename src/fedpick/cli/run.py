"""``fedpick run``: an experiment from a TOML file, kept, and never run twice."""

import contextlib
import dataclasses
import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import (
    Data,
    Debug,
    Output,
    Quiet,
    Settings,
    announced,
    check_csv,
    cli_errors,
    console,
    open_store,
    say_order,
)
from fedpick.cli._progress import ProgressBar, estimate
from fedpick.text import brief, counted, shown

# Parameters of any cluster; the others get SLURM's prefix.
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")


def run(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes the experiment, or several.")],
    settings: Settings = None,
    output: Output = Path("results"),
    csv: Annotated[Path | None, typer.Option(help="Write the metrics of all runs to this file.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Log to TensorBoard in this folder.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Log to this MLflow tracking URI.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    slurm: Annotated[
        str | None, typer.Option(help="Submit them as a SLURM array, such as partition=gpu,timeout_min=60.")
    ] = None,
    data: Data = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run the experiments of a file and show their final metrics.

    A run that is in the output folder is not run again, and an interrupted one resumes.

    Examples:

      fedpick run experiment.toml

      fedpick run experiment.toml --set selector.d=12 --set seeds=20

      fedpick run experiment.toml --workers 8 --slurm partition=gpu,gpus_per_node=1,timeout_min=60
    """
    with cli_errors(debug, output, data=data), announced(f"run {file}", quiet):
        from fedpick.experiment import differences, missing, read
        from fedpick.experiment import run as run_all
        from fedpick.results import MLflow, TensorBoard, write_runs
        from fedpick.sim import check_test_set

        if (workers > 1 or slurm is not None) and not (tensorboard is None and mlflow is None):
            raise ValueError(f"run: workers must be 1 with --tensorboard or --mlflow, got {workers}")
        check_csv("run", csv)
        if slurm is not None and csv is not None:
            raise ValueError(f"run: csv must come with the command that waits, without --slurm, got {str(csv)!r}")
        makers: list[Any] = [lambda: TensorBoard(tensorboard)] if tensorboard is not None else []
        makers += [lambda: MLflow(tracking_uri=mlflow)] if mlflow is not None else []
        for make in makers:
            make().check()
        experiments = read(file, settings or ())
        for experiment in experiments:
            experiment.check()  # a mistake is an error now, and not after an hour
            check_test_set("run", experiment.metrics.target or "loss", experiment.federation())
        left = missing(experiments, open_store(output, "run", "slurm"))
        work, number = sum(batch.seconds for batch in left), sum(len(batch.runs) for batch in left)
        if number and not quiet:
            say_order(experiments[0])
            typer.echo(estimate(left), err=True)
        stored = sum(len(experiment.seeds) for experiment in experiments) - number
        if stored and makers:
            how = f"fedpick report {output} --tensorboard or --mlflow logs them"
            typer.echo(f"run: {stored} runs are stored and not logged again; {how}", err=True)
        if slurm is not None:
            _submit(experiments, output, workers, slurm)
            return
        if workers > 1:
            _share(experiments, output, workers, ProgressBar(work, quiet))
        with contextlib.ExitStack() as stack:
            whole = stack.enter_context(ProgressBar(work, quiet))
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
        _show(experiments, found)
        if csv is not None:
            write_runs(found, csv)


def _share(experiments: Any, output: Path, workers: int, bar: ProgressBar) -> None:
    """Have processes do the work, and show how many of the runs are there."""
    from fedpick.experiment import missing, run_in_processes
    from fedpick.storage import RunStore

    store = RunStore(output)

    def watch() -> None:
        left = sum(batch.seconds for batch in missing(experiments, store))
        bar.at(f"{workers} processes", bar.total, 1 - left / bar.total if bar.total > 0 else 1.0)

    with bar:
        run_in_processes(experiments, store, workers=workers, watch=watch)


def _submit(experiments: Any, output: Path, workers: int, parameters: str) -> None:
    """Submit an array of tasks; the names of parameters are submitit's, those of SLURM alone without their prefix."""
    from fedpick.experiment import submit

    chosen: dict[str, Any] = {}
    for setting in parameters.split(","):
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise ValueError(f"run: slurm must be settings such as partition=gpu,timeout_min=60, got {shown(setting)}")
        chosen[name] = int(value) if value.isdigit() else value
    try:
        submitit = importlib.import_module("submitit")
    except ModuleNotFoundError:
        message = "run: needs submitit; install it with pip install 'fedpick[slurm]', or '.[slurm]' in a clone"
        raise ModuleNotFoundError(message) from None
    try:
        executor = submitit.AutoExecutor(folder=output / "slurm", cluster=chosen.pop("cluster", "slurm"))
    except RuntimeError as error:
        raise ValueError(f"run: slurm must be at hand to submit to, got an error: {brief(error)}") from None
    executor.update_parameters(**{name if name in SHARED else f"slurm_{name}": chosen[name] for name in chosen})
    jobs = submit(experiments, output, executor, workers=workers)
    typer.echo(f"submitted {', '.join(str(job.job_id) for job in jobs)}", err=True)
    typer.echo("the same command without --slurm waits for them and shows the results", err=True)


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
    from fedpick.metrics import goal_of
    from fedpick.results import Spread, idle_runs, idle_sentence, median_interval, median_text

    goals = [(one.metrics.target, one.metrics.value) for one in experiments]
    seeds = max(len(result.runs) for result in found)
    table = Table(
        title=f"after the last round, {counted(seeds, 'seed')}",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    table.add_column("experiment", min_width=20, overflow="fold")
    own = found[0].better
    for name in ("loss", "accuracy, %", "worst loss", "MB", *(metric.replace("_", " ") for metric in own)):
        table.add_column(name, justify="right", overflow="fold")
    if goals[0][0] is not None and len(set(goals)) == 1:
        table.add_column(f"rounds to {goal_of(*goals[0])} [95 %]", justify="right", overflow="fold")
    elif len(set(goals)) > 1:
        table.add_column("rounds to its target [95 %]", justify="right", overflow="fold")
    remarks = []
    for name, result, (metric, value) in zip(names([e.to_plain() for e in experiments]), found, goals, strict=True):
        for why, number in idle_runs(result).items():
            runs = len(result.runs)
            remarks.append(idle_sentence(why, name if number == runs else f"{number} of the {runs} runs of {name}"))
        sent = (result.costs["bytes_down"] + result.costs["bytes_up"]).sum(axis=1) / 1e6
        ends = {metric: result.metric(metric)[:, -1] for metric in ("loss", "test_accuracy", "worst_loss")}
        cells = [
            f"{Spread.of(ends['loss'].mean(keepdims=True)):.4g}",
            f"{Spread.of(100 * ends['test_accuracy']):.1f}",
            f"{Spread.of(ends['worst_loss'].mean(keepdims=True)):.4g}",
            f"{np.mean(sent):.4g}",
            *(f"{Spread.of(result.metric(name)[:, -1]):.3g}" for name in own),
        ]
        if metric is not None:
            rounds = median_text(median_interval(result.rounds_to(metric, value)), result.rounds, len(result.runs))
            cells.append((f"{value:g}: " if len(set(goals)) > 1 else "") + rounds)
        table.add_row(name, *cells)
    console(wide=200).print(table)
    for remark in remarks:
        typer.echo(remark)
