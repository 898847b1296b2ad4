"""A bar with the loss so far, for work that a person waits for."""

import sys
import time
from typing import Any

import numpy as np


class Bar:
    """Shows rounds done, time left and the loss; silent where nobody looks, plain lines where it is no terminal.

    ``show`` is True, False, or None: only on a terminal, and only for work over two seconds.
    """

    def __init__(self, total: int, done: int = 0, show: bool | None = None) -> None:
        self.total, self.done, self.show = total, done, show
        self.began = self.printed = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "Bar":
        return self

    def update(self, done: int, losses: Any) -> None:
        """So many rounds are done, and these are the losses of the runs."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        text = f"loss {float(np.mean(losses)):.4g}"
        if self.show is False or (self.show is None and not terminal):
            return
        if not terminal:
            if now - self.printed > 5 or done == self.total:
                print(f"round {done} of {self.total}, {text}", file=sys.stderr, flush=True)
                self.printed = now
            return
        if self.bar is None and (self.show or now - self.began > 2):
            self.bar = self._start()
        if self.bar is not None:
            self.bar.update(self.task, completed=done, text=text)

    def note(self, sentence: str) -> None:
        """Say something, on a terminal or not."""
        self._stop()
        if self.show is not False:
            print(f"simulate: {sentence}", file=sys.stderr)

    def _start(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        loss = TextColumn("{task.fields[text]}")
        columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), loss)
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = bar.add_task("rounds", total=self.total, completed=self.done, text="")
        bar.start()
        return bar

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def __exit__(self, *error: object) -> None:
        self._stop()
