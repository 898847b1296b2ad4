"""The progress bar of `simulate`."""

import sys
import time
from typing import Any

import numpy as np


class Bar:
    """Rounds done, time left and the loss so far, on stderr: a bar on a terminal, plain lines elsewhere.

    Args:
        total: The number of rounds.
        done: How many of them are done already.
        show: Whether to show it; None shows it on a terminal only, and only for work over two seconds.
    """

    def __init__(self, total: int, done: int = 0, show: bool | None = None) -> None:
        self.total, self.done, self.show, self.text = total, done, show, ""
        self.began = self.printed = time.monotonic()
        self.terminal = sys.stderr.isatty()  # asked once: while the bar is shown, it stands in for stderr
        self.bar: Any = None

    def __enter__(self) -> "Bar":
        return self

    def update(self, done: int, losses: Any = None) -> None:
        """Show the number of rounds done, and the mean of the runs' losses."""
        now = time.monotonic()
        if losses is not None:
            self.text = f"loss {float(np.mean(losses)):.4g}"
        if self.show is False or (self.show is None and not self.terminal):
            return
        if self.terminal:
            if self.bar is None and (self.show or now - self.began > 2):
                self.bar = self._start()
            if self.bar is not None:
                self.bar.update(self.task, completed=done, text=self.text)
        elif now - self.printed > 5 or done == self.total:
            sys.stderr.write(f"round {done} of {self.total}, {self.text}\n")
            self.printed = now

    def part(self, first: int, step: int, fraction: float) -> None:
        """Show that a fraction of the ``step`` rounds from ``first`` on is done."""
        self.update(int(first + step * fraction))

    def _start(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        loss = TextColumn("{task.fields[text]}")
        columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), loss)
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = bar.add_task("rounds", total=self.total, completed=self.done, text="")
        bar.start()
        return bar

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
