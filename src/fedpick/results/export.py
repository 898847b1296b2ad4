"""A result as a table, for pandas, polars, CSV and Parquet: one row per run and evaluation, or per run and round."""

import contextlib
import csv
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.metrics import METRICS, Numbers
from fedpick.results._optional import imported
from fedpick.results.result import Result
from fedpick.validation import one_of

BY = ("evaluation", "round")
LIBRARIES = ("pandas", "polars")


def columns(result: Result, by: str) -> dict[str, Numbers]:
    """What each run is, the round, and what was measured: columns of one length, run after run.

    A swept field that is called like something measured becomes ``run.`` and its name.
    """
    one_of("Result", "by", by, BY)
    if by == "evaluation":
        rounds, measured = result.evaluated, {name: result.metric(name) for name in METRICS}
    else:
        rounds = np.arange(1, result.rounds + 1)
        counted = {name: result.records[name] for name in ("train_loss", "polled", "trained", "returned")}
        measured = result.costs | counted
    found = {"round": np.tile(rounds, len(result.runs))} | {name: table.ravel() for name, table in measured.items()}
    named = {
        f"run.{name}" if name in found else name: np.repeat([run[name] for run in result.runs], len(rounds))
        for name in result.runs[0]
    }
    return named | found


def frame(result: Result, library: str, by: str) -> Any:
    """The table as a frame of this library."""
    one_of("Result", "library", library, LIBRARIES)
    table = columns(result, by)
    return imported("Result", library, extra="frames").DataFrame(table)


def write_csv(result: Result, path: str | Path, by: str) -> None:
    """The table as text; a float is written with all its digits."""
    table = columns(result, by)
    with _replacing(Path(path)) as part, part.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")  # writes repr(float)
        lines.writerow(table)
        lines.writerows(zip(*(column.tolist() for column in table.values()), strict=True))


def write_parquet(result: Result, path: str | Path, by: str) -> None:
    """The table as a Parquet file."""
    table = frame(result, "polars", by)
    with _replacing(Path(path)) as part:
        table.write_parquet(part)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of ``path`` once all is written."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise OSError(f"Result: the file {str(path)!r} cannot be written ({error.strerror})") from None
    finally:  # however it ends: written, a full disk, Ctrl-C
        part.unlink(missing_ok=True)
