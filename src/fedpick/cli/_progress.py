"""Progress of work that a person waits for."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from fedpick.cli._common import console, raise_if_interrupted
from fedpick.text import counted


class ProgressBar:
    """A bar over all work, in estimated seconds; plain lines where there is no terminal."""

    def __init__(self, total: float, quiet: bool = False) -> None:
        self.total, self.quiet, self.terminal = total, quiet, sys.stderr.isatty()
        self.done = self.under_way = 0.0
        self.began = self.printed = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "ProgressBar":
        if self.terminal and not self.quiet and self.total > 0:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(elapsed_when_finished=True))
            self.bar = Progress(*columns, console=console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        return self

    def at(self, text: str, work: float, part: float) -> None:
        """Report progress: fraction ``part`` of ``work`` seconds is done."""
        self.under_way = work * part
        self.reach(text, self.done + self.under_way)
        if part >= 1:
            self.done, self.under_way = self.done + work, 0.0

    def reach(self, text: str, done: float) -> None:
        """Report progress: so much of the work is done in all."""
        raise_if_interrupted()
        share = min(1.0, done / self.total) if self.total > 0 else 1.0
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=share * self.total, description=text)
        elif not self.quiet and now - self.printed > 10:
            self.printed = now
            left = (now - self.began) * (1 - share) / share if share >= 0.01 else None  # too early to tell
            rest = "" if left is None else f", about {duration(left)} left"
            print(f"{share:4.0%}{rest}: {text}", file=sys.stderr, flush=True)

    def begin(self, text: str) -> None:
        """Say what comes next."""
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif not self.quiet:
            print(f"{text} ...", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        elif not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def estimate(batches: Sequence[Any]) -> str:
    """How many runs there are to do, and about how long they take, compiling included.

    >>> estimate([])
    '0 runs to do'
    """
    runs = sum(len(batch.runs) for batch in batches)
    if not runs:
        return "0 runs to do"
    compiling = sum(batch.compiling for batch in batches)
    whole = duration(compiling + sum(batch.seconds for batch in batches))
    first = f"{duration(compiling)} of it to compile them the first time"
    return f"{counted(runs, 'run')} to do, about {whole} on two cores, {first}"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(50), duration(400), duration(9000)
    ('50 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class RunProgress:
    """Rounds and loss so far of each strategy: a bar for each on a terminal, plain lines elsewhere."""

    def __init__(self, experiments: dict[str, Any], stored: set[str], quiet: bool) -> None:
        self.experiments, self.stored, self.quiet = experiments, stored, quiet
        self.names = {e.identity(seed): name for name, e in experiments.items() for seed in e.seeds}
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}
        self.printed = time.monotonic()

    def __enter__(self) -> "RunProgress":
        if self.quiet or not sys.stderr.isatty():
            return self
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns: tuple[Any, ...] = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
        )
        columns += (TextColumn("loss {task.fields[loss]}"), TimeRemainingColumn(elapsed_when_finished=True))
        self.bar = Progress(*columns, console=console(stderr=True))
        for name, experiment in self.experiments.items():
            done = experiment.rounds if name in self.stored else 0
            text = "stored" if done else "..."
            self.tasks[name] = self.bar.add_task(name, total=experiment.rounds, completed=done, loss=text, start=False)
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
