"""What every command shares: options, errors as one sentence, Ctrl-C, warnings, the console."""

import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fedpick.registry import ROLES
from fedpick.text import listed

_TASKS = ", ".join(name for name in ROLES["Data"] if name != "arrays")
TASK = f"{_TASKS}, a .toml file, or your data: .npz, .csv, .parquet, a folder."
Task = Annotated[str, typer.Argument(help=TASK)]
X = Annotated[
    list[str] | None, typer.Option("--x", help="Columns of inputs: names with commas, or 'pixel*'; repeatable.")
]
Y = Annotated[str | None, typer.Option("--y", help="Column of labels.", show_default="y, label, target, class, ...")]
Client = Annotated[
    str | None, typer.Option("--client", help="Column of clients.", show_default="client, user, device, ...")
]
Standardize = Annotated[bool, typer.Option("--standardize", help="Bring inputs to mean 0 and standard deviation 1.")]
By = Annotated[str, typer.Option("--by", help="What the answer counts in: rounds, bytes or seconds.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for runs and reports.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder with Fashion-MNIST.", show_default="FEDPICK_DATA")]
Settings = Annotated[list[str] | None, typer.Option("--set", "-s", help="Override any setting, such as local.tau=5.")]
PATH_OPTIONS = ("--output", "-o", "--data", "--docs")  # of this machine
DISPLAY_OPTIONS = ("--quiet", "-q", "--json", "--debug")  # which change no result


_INTERRUPTED: list[int] = []  # signals that came


class Command(TyperCommand):
    """A command that refuses what would not count: an option given twice that is not repeatable, and an empty path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left, as Typer has them."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            if values.get(option.name) == "" and getattr(option.type, "name", "") == "path":
                ctx.fail(f"{' / '.join(option.opts)} must not be empty, got ''")  # which would be the working folder
            switch = getattr(option, "is_flag", False) and not option.secondary_opts
            if times > 1 and not (switch or getattr(option, "multiple", False) or ctx.resilient_parsing):
                ctx.fail(
                    f"{' / '.join([*option.opts, *option.secondary_opts])} must be given once, got it {times} times"
                )
        return super().parse_args(ctx, args)


@contextlib.contextmanager
def cli_errors(debug: bool, output: Path | None = None, *, data: Path | None = None, ended: str = "") -> Iterator[None]:
    """Show errors that a user can correct as one sentence, with exit code 1; on Ctrl-C (130) say what is stored.

    ``data`` is where data sets are looked for.
    """
    before = _listen()
    echo = _Echo()
    log = logging.getLogger("fedpick")
    log.addHandler(echo)
    log.setLevel(logging.INFO)
    if data is not None and data.is_dir():
        os.environ["FEDPICK_DATA"] = str(data)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for "my_module:MyStrategy"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            seen: set[str] = set()
            if data is not None and not data.is_dir():
                raise ValueError(f"fedpick: data must be a folder that is there, got {str(data)!r}")
            warnings.showwarning = lambda message, *where, **more: _note(str(message), seen)
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
        rest = f"; finished work is stored in {output}; the same command resumes from there" if kept else ended
        typer.echo(f"stopped{rest}", err=True)
        number = _INTERRUPTED[-1] if _INTERRUPTED else signal.SIGINT
        raise typer.Exit(128 + number) from None  # as shells say it
    finally:
        log.removeHandler(echo)
        if before is not None:
            signal.signal(signal.SIGINT, before)


class _Echo(logging.Handler):
    """Prints what the library logs as plain lines."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(record.getMessage(), err=True)


def _listen() -> Any:
    """Remember Ctrl-C: in the middle of a callback Python drops the exception."""
    _INTERRUPTED.clear()
    if threading.current_thread() is not threading.main_thread():
        return None

    def note(number: int, frame: Any) -> None:
        _INTERRUPTED.append(number)
        raise KeyboardInterrupt

    return signal.signal(signal.SIGINT, note)


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does, with what it has started; a second one does not disturb."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: Any) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        _INTERRUPTED.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C came and was dropped."""
    if _INTERRUPTED:
        raise KeyboardInterrupt


@contextlib.contextmanager
def announced(command: str, quiet: bool) -> Iterator[None]:
    """Say what was asked for once it takes a second: JAX is imported and data are made before there is progress."""
    timer = threading.Timer(1.0, typer.echo, (f"fedpick {command} ...",), {"err": True})
    timer.daemon = True
    if not quiet:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def replace_unprintable() -> None:
    """Print a question mark for what a terminal's encoding does not have, instead of failing at the end."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def exit_process(code: Any) -> None:
    """End the process; at once after an interruption, because a compiler may still be running in it."""
    if _INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _note(message: str, seen: set[str]) -> None:
    """Show a warning as its sentence, once."""
    if message not in seen:
        seen.add(message)
        typer.echo(f"note: {message}", err=True)


def open_store(output: Path, command: str, *written: str) -> Any:
    """The folder of runs; files in it that fedpick did not write are named."""
    from fedpick.storage import RunStore

    store = RunStore(output)
    for path in store.unknown_files((*written, "report.html", "summary.json", "comparisons")):
        typer.echo(f"{command}: ignoring {path}: not written by fedpick", err=True)
    return store


def command_line() -> str:
    """The command, less paths of this machine and display options."""
    kept, skip = [], False
    for argument in sys.argv[1:]:
        joined = re.fullmatch("-q*o(.*)", argument)  # -o results, -oresults, -qo results
        if skip or joined or argument.split("=")[0] in PATH_OPTIONS:
            skip = not skip and (not joined[1] if joined else "=" not in argument)
        elif argument not in DISPLAY_OPTIONS and not re.fullmatch("-q+", argument):
            kept.append(argument)
    return shlex.join(["fedpick", *kept])


def check_csv(command: str, path: Path | None) -> None:
    """Raise where --csv names a file that is not such a table of fedpick's: it is not overwritten."""
    from fedpick.storage import is_table_of_runs

    if path is not None and str(path) == "-":
        raise ValueError(f"{command}: csv must be the path of a file, got '-'")
    if path is not None and path.exists() and not is_table_of_runs(path):
        rule = "must be a new file, or one that --csv wrote before"
        raise ValueError(f"{command}: csv {rule}, got {str(path)!r}, which is another one")
    above = next((each for each in path.absolute().parents if each.exists()), None) if path is not None else None
    if above is not None and not above.is_dir():
        raise ValueError(f"{command}: csv must be in a folder, got {str(path)!r}, and {above.name} is a file")


def only_one(command: str, experiments: Any, part: str = "") -> Any:
    """The experiment that a command answers for: it raises where a sweep makes several.

    Args:
        command: What the error message begins with.
        experiments: What was made of a task.
        part: The part that it is about, such as "data"; sweeps over the others do not matter.
    """
    from fedpick.experiment import differences

    plains = [experiment.to_plain() for experiment in experiments]
    swept = differences([{part: plain[part]} for plain in plains] if part else plains, shared=("seeds", "name"))[0]
    if swept:
        rule = f"{part or 'the experiment'} must be without a sweep, as the answer is for one"
        raise ValueError(f"{command}: {rule}, got a sweep over {', '.join(swept)}; choose one with --set")
    return experiments[0]


def check_filled(command: str, **options: str | None) -> None:
    """Raise where an option is given and empty: it would not count."""
    for name, value in options.items():
        if value is not None and not value.strip():
            raise ValueError(f"{command}: {name} must not be empty, got {value!r}")


def say_order(experiment: Any) -> None:
    """Which client is which in lists of one number per client, where clients have names."""
    names, plain = experiment.federation().names.clients, experiment.to_plain()
    lists = [
        f"{part}.{name}"
        for part in ("availability", "failures", "devices")
        for name, value in (plain.get(part) or {}).items()
        if isinstance(value, list) and len(value) == len(names) and not isinstance(value[0], list)
    ]
    if lists:
        some = names if len(names) < 5 else (*names[:2], "...", names[-1])
        typer.echo(f"note: {listed(lists)}: one number per client, in the order {', '.join(some)}", err=True)


def columns(x: list[str] | None, y: str | None, client: str | None, standardize: bool) -> dict[str, Any]:
    """The options about columns as ``Choices`` has them."""
    check_filled("fedpick", y=y, client=client)
    names = tuple(name.strip() for name in ",".join(x).split(",")) if x is not None else ()
    return {"x": names, "y": y, "client": client, "standardize": standardize or None}


def console(stderr: bool = False, wide: int = 100) -> Any:
    """Where tables go: as wide as the terminal, and wide enough for one where there is none; NO_COLOR is honoured."""
    from rich.console import Console

    options: Any = {"stderr": stderr, "highlight": False, "markup": False}  # names may hold what looks like markup
    plain = Console(**options)
    return plain if plain.is_terminal else Console(**options, width=wide)
