"""The cells of CSV files, by column: numbers, true and false, or texts."""

import contextlib
import csv
import importlib.util
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.text import brief, shown

LONGEST = 256  # characters in a cell of names or numbers; beyond it a column is free text
MISSING = ("", "na", "n/a", "null", "none", "nan", "-", "?")  # in small letters


class Cells(NamedTuple):
    """The columns of a CSV file.

    ``written`` are the texts of those columns of whole numbers that are written as codes are; ``broken`` says in which
    line the first cell with a line break begins, for the columns that have one.
    """

    columns: dict[str, Numbers]
    written: dict[str, Numbers]
    broken: dict[str, int]


def read_cells(file: Path, known: Sequence[str] = ()) -> Cells:
    """The columns of a CSV file. Blanks around a cell mean nothing.

    Args:
        file: The file; tabs are between the cells of a ``.tsv``, and in others what the first line has most of.
        known: Names of columns: a first line that has all of these is one of names, be they numbers.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        head = lines.readline()
    mark = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
    names = [name.strip() for name in next(csv.reader([head], delimiter=mark), [])]
    breaks = _line_breaks(file, mark)
    columns, written, broken = {}, {}, {}
    table = [as_texts(cells) for cells in (_split(file, mark, names) if any(names) else ())]
    _check_names(file, names, table, known)
    comma = mark == ";" and not any(map(_has_points, table))
    for name, texts in zip(names, table, strict=True):
        free = texts.dtype.kind == "O"
        if not name and not free and is_missing(texts).all():  # what a comma at the end of each line makes
            continue
        if name in columns:
            raise ValueError(f"Arrays: {str(file)!r} must have a name for each column, got {name!r} twice")
        columns[name] = texts if free else _parsed(texts, comma and not _has_thousands(texts))
        if columns[name].dtype == np.int64 and _are_codes(texts, columns[name]):
            written[name] = texts
        if breaks and (cell := next((cell for cell in texts.tolist() if cell in breaks), None)) is not None:
            broken[name] = breaks[cell]
    return Cells(columns, written, broken)


def _line_breaks(file: Path, mark: str) -> dict[str, int]:
    """The cells of a CSV file that have a line break, which are quoted, and the line in which the first such begins.

    A cell that never closes, or that closes after a line break with more text behind it, lacks a quotation mark.
    """
    if b'"' not in (content := file.read_bytes()):
        return {}
    found: dict[str, int] = {}
    text, line, place = content.decode("utf-8-sig"), 1, 0
    for quoted in re.finditer(rf'(?<![^{mark}\r\n])"((?:[^"]+|"")*)("?)([^{mark}\r\n]*)', text):
        cell = quoted[1].replace('""', '"').strip()
        if quoted[2] and "\n" not in cell and "\r" not in cell:
            continue
        line, place = line + text.count("\n", place, quoted.start()), quoted.start()
        if not quoted[2] or quoted[3].strip():
            last = line + quoted[1].count("\n")
            end = f"closes inside a cell of line {last}" if quoted[2] else "never closes"
            rule = "must close every quotation mark"
            raise ValueError(f"Arrays: {str(file)!r} {rule}, got one in line {line} that {end}")
        found.setdefault(cell, line)
    return found


def as_texts(cells: Iterable[str]) -> Numbers:
    """Texts without blanks around them; free text stays objects, as an array of texts has the longest's room for each.

    >>> as_texts([" a", "b"]).tolist(), as_texts(["a", "b" * 1000]).dtype.kind
    (['a', 'b'], 'O')
    """
    found = list(cells)
    if max(map(len, found), default=0) > LONGEST:
        return np.array([cell.strip() for cell in found], object)
    return np.char.strip(np.array(found, str))


def _check_names(file: Path, names: Sequence[str], table: Sequence[Numbers], known: Sequence[str]) -> None:
    """Raise where the first line is a sample: numbers, and words that its columns have, too.

    Numbers that count the columns are names, as pandas writes them, and so are those that are known to be.
    """

    def is_value(name: str, texts: Numbers) -> bool:
        return _is_number(name) or bool((texts == name).any())

    columns = [str(place) for place in range(len(names) + 1)]
    counted = [name for name in names if name] in (columns[:-1], columns[1:], columns[:-2])
    numbers = any(map(_is_number, names)) and not (known and set(known) <= set(names))
    if not any(names) or (numbers and not counted and all(map(is_value, names, table))):
        rule = "must name its columns in the first line"
        raise ValueError(f"Arrays: {str(file)!r} {rule}, got {shown(','.join(names))}; put a line of names in front")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def is_missing(texts: Numbers) -> Numbers:
    """Which texts say that there is no value.

    >>> is_missing(np.array(["0", "NA", "", "north"])).tolist()
    [False, True, True, False]
    """
    return np.isin(np.char.lower(np.char.strip(texts)), MISSING)


def _are_codes(texts: Numbers, numbers: Numbers) -> bool:
    """Whether whole numbers are written as codes are: with zeros in front, as 12e5, or one number in two ways.

    A point with zeros behind it says nothing: 1.0 is 1.

    >>> [_are_codes(np.array(each), np.array([1, 70])) for each in (["01", "70"], ["1", "7e1"], ["1", "70"])]
    [True, True, False]
    >>> _are_codes(np.array(["70", "7.0e+1", "70.0"]), np.array([70, 70, 70]))
    True
    """
    signs = texts.view("U1").reshape(len(texts), texts.dtype.itemsize // 4)
    zeros = signs.shape[1] > 1 and bool(((signs[:, 0] == "0") & np.isin(signs[:, 1], list("0123456789"))).any())
    codes = signs.view(np.uint32)
    if zeros or ((codes == 0) | ((codes >= ord("0")) & (codes <= ord("9")))).all():  # one text for each number
        return zeros
    exponents, others = (np.isin(signs, list(marks)).any(axis=1) for marks in ("eE", ".+-"))
    found = {re.sub(r"[.,]0*$", "", text) for text in np.unique(texts).tolist()}
    return bool((exponents & ~others).any()) or len(found) > len(np.unique(numbers))


def _split(file: Path, mark: str, names: list[str]) -> Sequence[Any]:
    """The cells of a CSV file as texts, by column; polars is faster, and what they mean is decided in one place."""
    if importlib.util.find_spec("polars") is not None:
        with contextlib.suppress(ValueError):  # Python's own reader names the line
            frame = opened("read_csv", file, separator=mark, infer_schema_length=0)
            while len(frame) and not any(value is not None for value in frame.row(-1)):  # empty lines at the end
                frame = frame[:-1]
            if frame.width == len(names):
                return [column.fill_null("") for column in frame.get_columns()]
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter=mark))[1:]
    while rows and not any(rows[-1]):
        rows.pop()
    for place, row in enumerate(rows):
        if len(row) > len(names):
            rule = f"must have {len(names)} cells in every line"
            raise ValueError(f"Arrays: {str(file)!r} {rule}, got {len(row)} in line {place + 2}")
        row += [""] * (len(names) - len(row))  # cells that a line does not have are empty, as polars reads them
    return list(zip(*rows, strict=True)) if rows else [()] * len(names)


def _has_points(texts: Numbers) -> bool:
    """Whether a column is of numbers with decimal points: a comma is then none in this file."""
    if texts.dtype.kind == "O":
        return False
    try:
        return bool(np.any(_floats(texts[~is_missing(texts)]) % 1)) and bool((np.char.count(texts, ".") > 0).any())
    except ValueError:
        return False


def _has_thousands(texts: Numbers) -> bool:
    """Whether commas may part thousands: 750 beside 2,229, which is not 2.229.

    >>> _has_thousands(np.array(["750", "2,229"])), _has_thousands(np.array(["0,750", "2,229"]))
    (True, False)
    """
    cells = np.unique(texts[~is_missing(texts)]).tolist()
    with_comma = [cell for cell in cells if "," in cell]
    in_threes = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+", cell) for cell in with_comma)
    return bool(with_comma) and in_threes and len(with_comma) < len(cells)


def _parsed(texts: Numbers, comma: bool) -> Numbers:
    """Cells of a CSV file as numbers, or true and false, where all are so; a decimal ``comma`` is a point.

    Among numbers, a word for a missing one is NaN; in a column of words it is a word.
    """
    points = np.char.replace(texts, ",", ".") if comma else texts
    try:
        numbers = _floats(np.where(texts == "", "nan", points))
    except ValueError:
        flags = np.char.lower(texts)
        return flags == "true" if np.isin(flags, ("true", "false")).all() else _with_gaps(points, texts)
    if not np.isfinite(numbers).all() or not (numbers == np.floor(numbers)).all():
        return numbers
    if np.abs(numbers).max(initial=0) < 2**53:
        return numbers.astype(np.int64)
    try:  # all digits count, as in the ids of users
        return np.array([int(text) for text in points.tolist()], np.int64)
    except ValueError:  # such as 1e20
        return numbers
    except OverflowError:
        return texts


def _floats(texts: Numbers) -> Numbers:
    """Texts as numbers; an error where one is none: 1_2 is a name, though Python reads it as 12."""
    if (np.char.find(texts, "_") >= 0).any():
        raise ValueError("a number has no _")
    return texts.astype(float)


def _with_gaps(points: Numbers, texts: Numbers) -> Numbers:
    """Numbers with NaN where a word says that there is none; the texts where there are other words, or no number.

    >>> _with_gaps(np.array(["1", "NA"]), np.array(["1", "NA"])).tolist()
    [1.0, nan]
    """
    gaps = is_missing(points)
    if not gaps.any() or gaps.all():
        return texts
    try:
        return _floats(np.where(gaps, "nan", points))
    except ValueError:
        return texts


def opened(reader: str, file: Path, **options: Any) -> Any:
    """What a reader of polars makes of a file; of a name such as a[1].csv it would make a pattern, and read a1.csv."""
    polars = _polars(f"{file.suffix} files")
    try:
        with file.open("rb") as content:
            return getattr(polars, reader)(content, **options)
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"Arrays: {str(file)!r} must be a table, got an error: {brief(error)}") from None


def _polars(what: str) -> Any:
    if importlib.util.find_spec("polars") is None:
        raise ModuleNotFoundError(
            f"Arrays: {what} need polars; install it with pip install 'fedpick[frames]', or '.[frames]' in a clone"
        )
    return importlib.import_module("polars")
