"""Which columns of a table are inputs, labels and clients: as they are named, or a guess that is told."""

import fnmatch
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.registry import nearest
from fedpick.sim.archives import Archive
from fedpick.sim.cells import MISSING
from fedpick.sim.rows import few
from fedpick.text import shown

LOG = logging.getLogger("fedpick")
LABELS = ("y", "label", "labels", "target", "class", "category")
HOLDERS = ("client", "user", "writer", "device", "node", "site")
CLIENTS = tuple(name + end for name in HOLDERS for end in ("", "_id", "id"))
MOST_LABELS = 100  # of a column that is taken for labels by its place alone
NAMELESS = "a column without a name"
ROWS = ("index", "row", "rownames", "row_names")  # what a column that numbers the rows is called, in small letters
ID = re.compile(r"(^|[^a-zA-Z])id$|[a-z]I[dD]$|^I[dD]$", re.ASCII)  # id, patient_id, patientId, ID; not humid
MANY = 100  # rows in which whole numbers that count up number the rows, whatever the column is called
SPLITS = ("split", "set", "subset")
WHOLE = ("x", "image", "img", "pixels", "features")  # one column that is all of the input


class Roles(NamedTuple):
    """The columns that are inputs, the column of labels, and that of clients ("" where there is none)."""

    x: tuple[str, ...]
    y: str
    client: str


def choose_columns(
    columns: Mapping[str, Numbers],
    *,
    x: Sequence[str] = (),
    y: str = "",
    client: str = "",
    owner: str,
    partitioned: bool,
    unit: str = "row",
    first: int = 0,
) -> Roles:
    """The roles of columns; what is not named is guessed by its name and its type.

    Args:
        columns: The columns of a table.
        x: Names of inputs, or patterns such as "pixel*"; by default all other columns of numbers.
        y: The column of labels; by default by its name, or the last one.
        client: The column of clients.
        owner: What messages begin with.
        partitioned: Whether a partition makes the clients, so that there need be no column of them.
        unit: What messages call a row, such as "line".
        first: The number that the first row has in them.

    >>> table = {"a": np.ones(2), "label": np.ones(2), "user": np.array(["u", "v"])}
    >>> choose_columns(table, owner="Arrays", partitioned=False)
    Roles(x=('a',), y='label', client='user')
    """
    told: list[str] = []
    left: list[str] = []
    if not columns:
        raise ValueError(f"{owner} must hold x, got nothing")
    lower = {name.lower(): name for name in reversed(list(columns))}
    for name in (y, client):
        if name and name not in columns:
            raise ValueError(f"{owner} must hold {name}, got {few(columns)}{nearest(name, columns)}")
    if y and y == client:
        raise ValueError(f"{owner}: y and client must be different columns, got {y!r} for both")
    if not client and not partitioned:
        spelt = {re.sub(r"[ _-]", "", name.lower()): name for name in reversed(list(columns))}  # Client ID, clientId
        named = {**spelt, **lower}
        client = next((named[word] for word in CLIENTS if word in named and named[word] != y), "")
        told += [f"client = {client}"] if client and client != "client" else []
    if not y:
        y = _named_labels(columns, [lower[word] for word in LABELS if word in lower and lower[word] != client], client)
        y = y or _last(columns, client, owner)
        told += [f"y = {y}"] if y != "y" or any(word in lower for word in LABELS[1:]) else []
    inputs = _inputs(columns, x, (y, client), owner)
    if x and inputs != tuple(x):
        told.append(f"x = {few(inputs)}")
    if not x and (inputs != ("x",) or columns["x"].ndim == 1):
        left = [name for name in columns if name not in (*inputs, y, client)]
        called = [name or NAMELESS for name in left]
        if left or inputs != ("x",):
            told.append(f"x = {few(inputs)}" + (f" (without {few(called)})" if left else ""))
        told += [
            f"{name} is left out because of {_fault(columns[name], unit, first)}"
            for name in left
            if _nearly(columns[name])
        ]
        told += [
            f"{name or NAMELESS} is left out because it {'numbers the rows' if _differ(columns[name]) else 'is an id'}"
            for name in left
            if _are_row_numbers(columns, name)
        ]
    unused = [name for name in columns if name.lower() in SPLITS and name not in (*inputs, y, client)]
    parts = [name for name in unused if {"train", "test"} <= {str(value).lower() for value in columns[name].tolist()}]
    cure = "the test set is drawn; an .npz may have test_x and test_y"
    told += [f"{name} is not used, though it says which samples are the test set: {cure}" for name in parts]
    if told:  # who loses columns is to hear of it without asking
        level = logging.WARNING if left or parts else logging.INFO
        LOG.log(level, "%s: %s", owner.removeprefix("Arrays: "), "; ".join(sorted(told)))
    return Roles(inputs, y, client)


def _named_labels(columns: Mapping[str, Numbers], named: Sequence[str], client: str) -> str:
    """The first column that is called as labels are; beside an x, y may be a coordinate, and another one the labels.

    >>> table = {"x": np.ones(2), "y": np.array([0.5, 1]), "z": np.ones(2), "activity": np.array(["run", "walk"])}
    >>> _named_labels(table, ["y"], "")
    'activity'
    """
    if not named or named[0].lower() != "y" or not _are_coordinates(columns, named[0]):
        return named[0] if named else ""
    fractions = bool((columns[named[0]] % 1 != 0).any())  # which no labels have
    others = (name for name in reversed(list(columns)) if name not in (client, named[0], "x", "X"))
    last = [name for name in others if not _are_row_numbers(columns, name)][:1] if fractions else []
    return next(iter([*named[1:], *(name for name in last if _are_labels(columns[name])), named[0]]))


def _are_coordinates(columns: Mapping[str, Numbers], y: str) -> bool:
    """Whether a table has a number x beside its number y."""
    x = {"y": "x", "Y": "X"}[y]
    return x in columns and _is_one_of_several(columns, x) and _is_number_column(columns[y])


def _is_one_of_several(columns: Mapping[str, Numbers], x: str = "x") -> bool:
    """Whether x is a column of numbers in a table; that of an archive is all of the input."""
    return not isinstance(columns, Archive) and _is_number_column(columns[x])


def _is_number_column(column: Numbers) -> bool:
    return column.ndim == 1 and column.dtype.kind in "iufb"


def _last(columns: Mapping[str, Numbers], client: str, owner: str) -> str:
    """The last column, or the last before those that number the rows, which must be of labels."""
    rest = (name for name in reversed(list(columns)) if name != client and not _are_row_numbers(columns, name))
    last = next(rest, None)
    if last is not None and not len(columns[last]):
        raise ValueError(f"{owner} must hold a sample at least, got {few(columns)} without rows")
    if last is not None and len(columns) > 2 and _are_labels(columns[last]):
        return last
    raise ValueError(f"{owner} must hold y, got {few(columns)}; or name the column of labels (y=, --y)")


def _are_labels(column: Numbers) -> bool:
    """Whether a column may be one of labels: texts or whole numbers, of which there are few."""
    return column.ndim == 1 and column.dtype.kind in "iubU" and len(np.unique(column)) <= MOST_LABELS


def _inputs(columns: Mapping[str, Numbers], x: Sequence[str], others: Sequence[str], owner: str) -> tuple[str, ...]:
    rest = [name for name in columns if name not in others]  # which are read only where they may be inputs
    if x:
        found = []
        for pattern in _whole_names(x, rest):
            if pattern in others:
                raise ValueError(f"{owner}: x must be other columns than the labels' and the clients', got {pattern!r}")
            matched = [name for name in rest if name == pattern or fnmatch.fnmatchcase(name, pattern)]
            if not matched and not pattern.strip():
                raise ValueError(f"{owner}: x must be names of columns, or patterns such as 'pixel*', got {pattern!r}")
            if not matched:
                raise ValueError(f"{owner} must hold {pattern}, got {few(columns)}{nearest(pattern, columns)}")
            found += matched
        return tuple(dict.fromkeys(found))
    for word in WHOLE:
        if word in rest and (columns[word].ndim > 1 or (word == "x" and not _is_one_of_several(columns))):
            return (word,)
    numbers = tuple(name for name in rest if _is_number_column(columns[name]))
    numbers = tuple(name for name in numbers if not _are_row_numbers(columns, name))
    if not numbers:
        words = [f"{name} has {shown(word)}" for name in rest for word in _words(columns[name])[:1]]
        why = f", and no numbers ({few(words)})" if words else ""
        raise ValueError(f"{owner} must hold x, got {few(columns)}{why}; or name the columns of inputs")
    return numbers


def _whole_names(parts: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Names of columns that hold commas, at which a command line takes names apart, as one again.

    >>> _whole_names(["hum", "rel", "pH"], ["hum, rel", "pH"])
    ['hum, rel', 'pH']
    """
    split = {tuple(part.strip() for part in name.split(",")): name for name in columns if "," in name}
    found, rest = [], tuple(parts)
    while rest:
        taken = next((n for n in range(len(rest), 0, -1) if rest[:n] in split), 0)
        found.append(split[rest[:taken]] if taken else rest[0])
        rest = rest[max(1, taken) :]
    return found


def _are_row_numbers(columns: Mapping[str, Numbers], name: str) -> bool:
    """Whether a column is an id, an index or a count of the rows: on a file in order of its labels it would tell them.

    Its whole numbers are all different. Those of an id, and of the index of a frame of which rows were chosen, may have
    gaps; those of any other column count from 0 or 1 in the order of the file, which has
    many rows. An id may stand in several rows, such as those of a patient's visits, where there are many of them.

    >>> table = {"Unnamed: 0": np.array([3, 17, 4]), "patient_id": np.array([3, 17, 4]), "humid": np.array([3, 17, 4])}
    >>> [_are_row_numbers(table, name) for name in table]
    [True, True, False]
    >>> _are_row_numbers({"nr": np.arange(1, 501)}, "nr")
    True
    """
    column = columns[name]
    if column.ndim != 1 or column.dtype.kind not in "iu":
        return False
    if not _differ(column):
        return bool(ID.search(name)) and len(np.unique(column)) > MOST_LABELS
    named = not name or name.lower() in ROWS or name.startswith(("Unnamed:", "__index_level_")) or ID.search(name)
    counts = len(column) >= MANY and column[0] in (0, 1) and np.array_equal(column, np.arange(len(column)) + column[0])
    return bool(named) or counts


def _differ(column: Numbers) -> bool:
    return len(np.unique(column)) == len(column)


def _words(column: Numbers) -> list[Any]:
    """The values of a column that are no numbers; a missing one is no word.

    >>> _words(np.array(["1", "", "NA", "n/a?", "2.5"]))
    ['n/a?']
    """
    return [value for value in column.ravel().tolist() if not _is_number(value)]


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return str(value).strip().lower() in MISSING
    return "_" not in str(value)


def _fault(column: Numbers, unit: str, first: int) -> str:
    """Why a column of text is none of numbers: a word, or among true and false a missing value."""
    words, values = _words(column), column.tolist()
    if {str(word).strip().lower() for word in words} <= {"true", "false"}:
        missing = [row for row, value in enumerate(values) if str(value).strip().lower() in MISSING]
        if missing:
            return f"a missing value in {unit} {missing[0] + first}"
    return f"{shown(words[0])}{_place(column, unit, first)}"


def _place(column: Numbers, unit: str, first: int) -> str:
    """Where the first word of a column is, if it has numbers, too."""
    words = [row for row, value in enumerate(column.tolist()) if not _is_number(value)]
    return f" in {unit} {words[0] + first}" if len(words) < len(column) else ""


def _nearly(column: Numbers) -> bool:
    """Whether a column of text has numbers, too, or words such as 1,000.5, and so may have been meant as an input."""
    words = _words(column) if column.dtype.kind in "OUS" else []
    return bool(words) and (len(words) < column.size or re.match(r"\s*[-+]?\d", str(words[0])) is not None)


def _check_lengths(column: Numbers, what: str) -> None:
    """Raise where a column is of lists that differ in length."""
    lengths = [len(row) if isinstance(row, list | np.ndarray) else 0 for row in column.tolist()]
    other = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if other is not None:
        found = f"{lengths[0]} numbers in row 0 and {lengths[other]} in row {other}"
        raise ValueError(f"{what} must have the same length in all samples, got {found}")


def stack_inputs(columns: Mapping[str, Numbers], names: Sequence[str], owner: str, *, exact: bool = False) -> Numbers:
    """The inputs as one array: a column as it is, several side by side.

    Args:
        columns: The columns of a table.
        names: Those that are inputs.
        owner: What messages begin with.
        exact: Whether several are kept in double precision.

    >>> stack_inputs({"a": np.ones(2), "b": np.zeros(2)}, ("a", "b"), "Arrays").tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    for name in names:
        if columns[name].dtype.kind not in "iufb":
            _check_lengths(columns[name], f"{owner}: {name}")
            found = (_words(columns[name]) or columns[name].ravel().tolist() or [columns[name].dtype.name])[0]
            raise ValueError(f"{owner}: {name} must be numbers, got {shown(found)}")
    if len(names) == 1 and (names[0] in WHOLE or columns[names[0]].ndim > 1):
        return columns[names[0]]
    shapes = {name: columns[name].shape for name in names}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"{owner}: inputs must all have the same shape, got {few(map(str, shapes.items()))}")
    with np.errstate(over="ignore"):  # which is found when the numbers are checked
        return np.stack([columns[name].astype(np.float64 if exact else np.float32) for name in names], axis=-1)
