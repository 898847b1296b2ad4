"""Tables of a result as frames of pandas or polars, CSV and Parquet."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpick.metrics import Numbers
from fedpick.results._optional import import_package
from fedpick.storage import atomic_file, write_atomic
from fedpick.validation import check_path, one_of

LIBRARIES = ("pandas", "polars")
Columns = Mapping[str, Numbers]  # by name, of one length


def to_frame(columns: Columns, library: str) -> Any:
    """The table as a frame of this library."""
    one_of("Result", "library", library, LIBRARIES)
    return import_package("Result", library, extra="frames").DataFrame(dict(columns))


def write_csv(columns: Columns, path: str | Path) -> None:
    """Write the table as text; a float has all its digits."""
    check_path("Result", "path", path)
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")  # writes repr(float)
    lines.writerow(columns)
    lines.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    write_atomic(path, text.getvalue(), owner="Result")


def write_parquet(columns: Columns, path: str | Path) -> None:
    """Write the table as a Parquet file."""
    check_path("Result", "path", path)
    frame = to_frame(columns, "polars")
    with atomic_file(path, owner="Result") as file:
        frame.write_parquet(file)
