"""``fedpick compare --app``: strategies on a Flower app of the user's own, in Flower's simulation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fedpick.cli._common import open_store
from fedpick.cli._progress import ProgressBar
from fedpick.text import shown

STRATEGIES = ("rand", "pow-d", "auto")  # where none are named
BASELINE = STRATEGIES[0]
SEEDS = 3


def check_app(app: Path | None, foreign: Mapping[str, Any]) -> Path:
    """The folder of the app; an error where options are given that an app does not take.

    Args:
        app: The folder.
        foreign: The options that are for tasks of fedpick's own, with their values.
    """
    if app is None:
        raise ValueError("compare: --federation-config and --workers must come with --app")
    for name, value in foreign.items():
        if value is not None:
            what = "TASK" if name == "task" else f"--{name}"
            rule = (
                f"must not be given with --app, which has its own; {'leave it out' if name == 'task' else 'see --set'}"
            )
            raise ValueError(f"compare: {what} {rule}, got {shown(value)}")
    return app


def compare_app(
    folder: Path,
    strategies: Sequence[str],
    output: Path,
    *,
    shown: bool,
    seeds: int | None,
    federation: Sequence[str],
    workers: int | None,
    metric: str | None,
    name: str | None,
    value: float | None,
    by: str,
    command: str,
    **wanted: Any,
) -> tuple[Any, str]:
    """Play what is missing, and compare the strategies all of whose runs are there; also what went wrong in the others.

    Args:
        folder: The app's folder.
        strategies: The strategies.
        output: Where runs are stored.
        shown: Whether progress is shown.
        seeds: Runs per strategy.
        federation: Flower's settings for its simulation.
        workers: Runs at once.
        metric: The metric of the target.
        name: What the comparison is called.
        value: The target.
        by: What the answer counts in.
        command: The command line.
        **wanted: What else ``make_runs`` takes.
    """
    from fedpick.compare import check_page, report_on_runs
    from fedpick.flower.simulation import Machine, Progress, changed_files, make_runs, play_missing, read_app

    app, machine = read_app(folder), Machine.of(federation, workers)
    clients = machine.clients(app)
    runs = make_runs(app, strategies or STRATEGIES, clients=clients, seeds=SEEDS if seeds is None else seeds, **wanted)
    check_page(output)
    store = open_store(output, "compare")
    left = sum(run.identity not in store for run in runs)
    if shown:
        stored = f", {len(runs) - left} of them stored" if left < len(runs) else ""
        once = f", {machine.at_once(left)} at once" if left else ""
        number = (
            "" if "num-supernodes" in machine.federation or app.clients else " (--federation-config num-supernodes=10)"
        )
        typer.echo(f"{app.name}: {clients} clients{number}; {len(runs)} runs{stored}{once}", err=True)
    with ProgressBar(left, not shown) as bar:

        def watch(done: int, under_way: Sequence[Progress]) -> None:
            parts = sum(each.round / (each.rounds + 1) for each in under_way if each.rounds)
            bar.reach("; ".join(map(_at, under_way)), done - (len(runs) - left) + parts)

        failed = play_missing(runs, store, machine, watch)
    if left and (files := changed_files(app)):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        typer.echo(
            f"compare: files in the app's folder changed while it was played ({', '.join(files[:3])}{more}): the same "
            "command will play all runs again. The app should write elsewhere; where it was edited, compare again",
            err=True,
        )
    broken = {run.strategy for run in runs if run.identity in failed}
    whole = [run for run in runs if run.strategy not in broken]
    kept, asked = ({run.trial.strategy for run in some} for some in (whole, runs))
    said = "\n".join(dict.fromkeys(failed.values()))
    if broken and (len({run.strategy for run in whole}) < 2 or (BASELINE in asked and BASELINE not in kept)):
        raise ValueError(said)
    report = report_on_runs(
        [run.identity for run in whole],
        store,
        metric=metric,
        value=value,
        by=by,
        command=command,
        name=name or app.name,
    )
    return report, said


def _at(progress: Any) -> str:
    """Where a run is, in words."""
    if not progress.round:
        return f"{progress.label}: starting"
    return f"{progress.label}: round {progress.round}" + (f" of {progress.rounds}" if progress.rounds else "")
