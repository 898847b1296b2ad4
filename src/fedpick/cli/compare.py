"""``fedpick compare``: which clients should I train on, and what do I gain?"""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import (
    Debug,
    Output,
    Quiet,
    Settings,
    cli_errors,
    command_line,
    console,
    raise_if_interrupted,
    set_data_dir,
)

COSTS = 6  # the first column of the table that is about costs
EXAMPLES = """
Examples:

  fedpick compare                                        Synthetic(1,1), five strategies, ten seeds

  fedpick compare digits --strategies rand,pow-d -d 6 -d 12

  fedpick compare my.npz --model mlp --eta 0.02 --target 80% --metric test_accuracy

  fedpick compare experiment.toml --seeds 20 -o more
"""


def compare(
    task: Annotated[
        str, typer.Argument(help="synthetic, quadratic, digits, fashion-mnist, or a .toml or .npz file of yours.")
    ] = "synthetic",
    strategies: Annotated[
        str | None,
        typer.Option(help="Short names with commas; `fedpick strategies` lists them (rand,pow-d,cpow-d,...)."),
    ] = None,
    m: Annotated[int | None, typer.Option("-m", "--seats", help="Clients that train a round (a tenth).")] = None,
    d: Annotated[list[int] | None, typer.Option("-d", help="Candidates; give it several times (2 m).")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds (the task's).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each strategy (10; fashion-mnist 3).")] = None,
    target: Annotated[
        str | None, typer.Option(help="What is to be reached, such as 0.5 or 80% (the loss that rand reaches).")
    ] = None,
    metric: Annotated[str, typer.Option(help="Of what: loss, test_loss, test_accuracy, worst_loss, ...")] = "loss",
    eta: Annotated[float | None, typer.Option(help="The learning rate (the task's).")] = None,
    model: Annotated[str | None, typer.Option(help="logistic, mlp or quadratic (the task's).")] = None,
    availability: Annotated[
        str | None, typer.Option(help="always, alternating-halves, bernoulli or day-and-night.")
    ] = None,
    objective: Annotated[str | None, typer.Option(help="cross-entropy, or minus-probability as the paper.")] = None,
    settings: Settings = None,
    data: Annotated[Path | None, typer.Option(help="Folder with Fashion-MNIST; else FEDPICK_DATA.")] = None,
    output: Output = Path("comparison"),
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare strategies on a task: a table, a sentence that says who wins, and a page (report.html).

    Runs are kept in the output folder and not run again; an interrupted comparison goes on there.
    """
    with cli_errors(debug, output):
        set_data_dir(data)
        from fedpick.compare import Choices

        chosen = Choices(
            tuple(dict.fromkeys(name.strip() for name in strategies.split(","))) if strategies is not None else (),
            m,
            tuple(d or ()),
            rounds,
            seeds,
            eta,
            model,
            availability,
            objective,
            tuple(settings or ()),
        )
        _compare(task, chosen, metric, number(target), output, as_json, quiet)


compare.__doc__ = f"{compare.__doc__}{EXAMPLES}"


def number(text: str | None) -> float | None:
    """A target as it is typed."""
    if text is None:
        return None
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"compare: target must be a number such as 0.5 or 80%, got {text!r}") from None


def _compare(
    task: str, chosen: Any, metric: str, value: float | None, output: Path, as_json: bool, quiet: bool
) -> None:
    from fedpick.compare import Comparison, experiments, tell, write
    from fedpick.compare.labels import names
    from fedpick.experiment import to_dict
    from fedpick.storage import RunStore, missing, run_missing

    began = time.monotonic()
    Comparison(("",), (), metric, value)  # a mistake in the target is an error now
    found = experiments(task, chosen)
    called = names([to_dict(experiment) for experiment in found])
    summary = found[0].for_seed(found[0].seeds[0]).federation().summary()
    if metric.startswith("test") and not summary.test:
        raise ValueError(f"compare: metric {metric} must have a test set to be taken from, and {summary.name} has none")
    store = RunStore(output)
    for stranger in store.unknown_files(("report.html", "summary.json")):
        typer.echo(f"compare: {stranger} is not of fedpick's; it is left alone", err=True)
    if not quiet and not as_json:
        typer.echo(
            f"{summary}\n{len(found)} strategies, {len(found[0].seeds)} seeds, {found[0].rounds} rounds", err=True
        )
    kept = [experiment for experiment in found if not missing([experiment], store)]
    with RunProgress(dict(zip(called, found, strict=True)), {id(e) for e in kept}, quiet or as_json) as race:
        run_missing(found, store, race)
    told = tell(found, store, metric, value, command_line())
    page, plain = write(told, output, summary)
    if as_json:
        typer.echo(plain.read_text(), nl=False)
        return
    show(told)
    typer.echo(f"\n{told.compared.answer}\n")
    typer.echo(f"{page} has the charts, {plain.name} the numbers; {time.monotonic() - began:.0f} s")


def show(told: Any) -> None:
    """The table of a comparison; in two parts where the terminal is narrow, and folded where it is very narrow."""
    from rich.measure import Measurement

    from fedpick.compare.report import COLUMNS

    screen, whole = console(wide=200), list(range(len(COLUMNS)))

    def fits(table: Any) -> bool:
        found: bool = Measurement.get(screen, screen.options.update(width=500), table).maximum <= screen.width
        return found

    table = _table(told, whole)
    for part in (whole,) if fits(table) else (whole[:COSTS], [0, *whole[COSTS:]]):
        table = _table(told, part)
        screen.print(table if fits(table) else _table(told, part, fold=True))


def _table(told: Any, columns: list[int], fold: bool = False) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from fedpick.compare.report import COLUMNS, cells

    title = escape(f"target: {told.compared.told_goal}")
    table = Table(title=title, box=None, padding=(0, 1), collapse_padding=True, show_lines=fold)
    for column in columns:
        side: Any = "right" if column else "left"
        table.add_column(COLUMNS[column], justify=side, no_wrap=not fold, overflow="fold", vertical="bottom")
    for row in map(cells, told.compared.standings):
        table.add_row(*(escape(row[column]) for column in columns))
    return table


class RunProgress:
    """How far each strategy is and its loss so far: a bar for each on a terminal, plain lines elsewhere."""

    def __init__(self, experiments: dict[str, Any], kept: set[int], quiet: bool) -> None:
        self.experiments, self.kept, self.quiet = experiments, kept, quiet
        self.names = {e.identity(seed): name for name, e in experiments.items() for seed in e.seeds}
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}
        self.printed = time.monotonic()

    def __enter__(self) -> "RunProgress":
        if self.quiet or not sys.stderr.isatty():
            return self
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns: tuple[Any, ...] = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
        )
        columns += (TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn(elapsed_when_finished=True))
        self.bar = Progress(*columns, console=console(stderr=True))
        for name, experiment in self.experiments.items():
            done = experiment.rounds if id(experiment) in self.kept else 0
            text = "kept" if done else "..."
            self.tasks[name] = self.bar.add_task(
                escape(name), total=experiment.rounds, completed=done, loss=text, start=False
            )
        self.bar.start()
        return self

    def __call__(self, batch: Any, so_far: Any) -> None:
        raise_if_interrupted()
        losses = so_far.metric("loss")[:, -1]
        rows: dict[str, list[float]] = {}
        for run, loss in zip(batch.runs, losses, strict=True):
            rows.setdefault(self.names[run.identity], []).append(float(loss))
        for name, values in rows.items():
            self._at(name, so_far.rounds, sum(values) / len(values))

    def _at(self, name: str, rounds: int, loss: float) -> None:
        if self.bar is not None:
            self.bar.start_task(self.tasks[name])
            self.bar.update(self.tasks[name], completed=rounds, loss=f"{loss:.4g}")
        elif not self.quiet and (time.monotonic() - self.printed > 5 or rounds == self.experiments[name].rounds):
            self.printed = time.monotonic()
            total = self.experiments[name].rounds
            print(f"{name}: round {rounds} of {total}, loss {loss:.4g}", file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
