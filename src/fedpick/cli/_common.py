"""How every command behaves: errors are one sentence, Ctrl-C says what was kept, long work shows how far it is."""

import contextlib
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs and of what is written.")]
Settings = Annotated[list[str] | None, typer.Option("--set", "-s", help="Any setting, such as local.tau=5.")]
PATH_OPTIONS = ("--output", "-o", "--data", "--docs")  # options that say where things lie on this machine
DISPLAY_OPTIONS = ("--quiet", "-q", "--json", "--debug")  # options that change no result


_INTERRUPTED: list[int] = []  # signals that came


@contextlib.contextmanager
def cli_errors(debug: bool, output: Path | None = None, ended: str = "") -> Iterator[None]:
    """Errors that a user can mend as their sentence, with exit code 1; Ctrl-C says what is kept in the output."""
    before = _listen()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _Noted()
            yield
    except BrokenPipeError:  # whoever read our output has enough
        sys.stdout = sys.stderr
        raise typer.Exit(1) from None
    except (ValueError, OSError, ModuleNotFoundError, MemoryError) as error:
        if debug:
            raise
        typer.echo(str(error) or "there is not enough memory for this", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        kept = output is not None and any(output.glob("*/*"))
        rest = f"; what is done is kept in {output}; the same command goes on from there" if kept else ended
        typer.echo(f"stopped{rest}", err=True)
        raise typer.Exit(1) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _listen() -> Any:
    """Remember Ctrl-C: where it strikes in the middle of a callback, Python drops the exception."""
    _INTERRUPTED.clear()
    if threading.current_thread() is not threading.main_thread():
        return None

    def note(number: int, frame: Any) -> None:
        _INTERRUPTED.append(number)
        raise KeyboardInterrupt

    return signal.signal(signal.SIGINT, note)


def raise_if_interrupted() -> None:
    """Stop here if Ctrl-C came and was dropped."""
    if _INTERRUPTED:
        raise KeyboardInterrupt


def exit_process(code: Any) -> None:
    """End the process; at once where it was interrupted, because a compiler may still be at work in it."""
    if _INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


class _Noted:
    """Shows each warning once, as its sentence."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, message: Warning | str, *where: object, **more: object) -> None:
        if str(message) not in self.seen:
            self.seen.add(str(message))
            typer.echo(f"note: {message}", err=True)


def set_data_dir(data: Path | None) -> None:
    """Where data sets are, for all that look for them."""
    if data is not None:
        os.environ["FEDPICK_DATA"] = str(data)


def command_line() -> str:
    """The command, less where things lie on this machine and how much is shown."""
    kept, skip = [], False
    for argument in sys.argv[1:]:
        if skip or argument.split("=")[0] in PATH_OPTIONS:
            skip = not skip and "=" not in argument
        elif argument not in DISPLAY_OPTIONS:
            kept.append(argument)
    return shlex.join(["fedpick", *kept])


def console(stderr: bool = False, wide: int = 100) -> Any:
    """Where tables go: as wide as the terminal, and wide enough for one where there is none; NO_COLOR is honoured."""
    from rich.console import Console

    plain = Console(stderr=stderr, highlight=False)
    return plain if plain.is_terminal else Console(stderr=stderr, highlight=False, width=wide)


class ProgressBar:
    """A bar over everything that is to be done, in seconds of work as they were estimated; plain lines on no "
    "terminal."""

    def __init__(self, total: float, quiet: bool = False) -> None:
        self.total, self.quiet, self.terminal = total, quiet, sys.stderr.isatty()
        self.done = self.under_way = 0.0
        self.began = self.printed = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "ProgressBar":
        if self.terminal and not self.quiet and self.total > 0:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}")
            columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(elapsed_when_finished=True))
            self.bar = Progress(*columns, console=console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        return self

    def at(self, text: str, work: float, part: float) -> None:
        """This part of a piece of so much work is done."""
        raise_if_interrupted()
        self.under_way = work * part
        share = min(1.0, (self.done + self.under_way) / self.total) if self.total > 0 else 1.0
        if part >= 1:
            self.done, self.under_way = self.done + work, 0.0
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=share * self.total, description=text)
        elif not self.quiet and now - self.printed > 10:
            self.printed = now
            left = (now - self.began) * (1 - share) / share if share > 0 else 0.0
            print(f"{share:4.0%}, about {duration(left)} left: {text}", file=sys.stderr, flush=True)

    def begin(self, text: str) -> None:
        """What comes now, which may take a while before it can say how far it is."""
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif not self.quiet:
            print(f"{text} ...", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        elif not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(50), duration(400), duration(9000)
    ('50 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
