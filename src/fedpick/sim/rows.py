"""Arrays with a row per sample: what they must be, and the numbers of clients and labels that have names."""

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from fedpick.metrics import Numbers
from fedpick.text import shown

REGRESSION = " (targets of a regression go into x, see docs/own-data.md)"
LEFT_OUT = 0.25  # of the samples, at which clients that are not in the test set are told
CHECKED = 100_000  # rows at a time, for a table of all is a quarter of the data more


@dataclass(frozen=True)
class Names:
    """What clients and labels are called, in the order of their numbers; nothing where they have no names.

    Args:
        clients: A name for each client.
        labels: A name for each label.

    >>> Names(clients=("north", "south")).clients[1]
    'south'
    """

    clients: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def __hash__(self) -> int:  # of a million names in no time
        return hash((len(self.clients), self.clients[:3], len(self.labels)))


def as_array(values: Any) -> Numbers:
    """An array; a list with texts is one of objects, as NumPy would make the word "nan" of a missing one.

    What a masked array masks is missing.

    >>> as_array(["a", float("nan")]).tolist()
    ['a', nan]
    """
    if isinstance(values, np.ma.MaskedArray):
        masked: Numbers = np.array(values.data, object if np.ma.is_masked(values) else None)
        if masked.dtype == object:
            masked[np.ma.getmaskarray(values)] = None
        return masked
    texts = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    return np.asarray(values, dtype=object) if texts else np.asarray(values)


def plain(values: Any) -> Numbers:
    """An array of numbers or texts; objects, as columns of text in pandas are, become texts, and so do bytes.

    >>> plain(np.array(["a", "b"], object)).dtype.kind
    'U'
    """
    array = as_array(values)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "backslashreplace")
    if array.dtype.kind not in "OT":
        return array
    missing = np.array([is_none(value) for value in array.ravel()], bool).reshape(array.shape)
    kept = array[~missing].ravel()
    if kept.size == array.size and all(isinstance(v, int | np.integer) for v in kept):
        with contextlib.suppress(OverflowError):
            return array.astype(np.int64)  # all digits count, as in the ids of users
    if kept.size and all(isinstance(v, int | float | np.number | Decimal) for v in kept):  # decimals are of databases
        return np.where(missing, np.nan, array).astype(float)
    texts = np.where(missing, "", array).astype(str)
    return texts if array.size else array.astype(float)


def is_none(value: Any) -> bool:
    """Whether it stands for a missing value: None, NaN, or the NA of pandas, which is equal to nothing in its way."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return np.ndim(value) == 0


def samples(name: str, values: Any, of: str = "sample") -> Numbers:
    """An array with a row per sample, or one sentence.

    Args:
        name: What error messages begin with, such as "Federation: x".
        values: What a caller gave.
        of: What a row is of, where it is no sample.

    >>> samples("Federation: x", [[0.1], [0.2]]).shape
    (2, 1)
    """
    try:
        array = plain(values)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, and what NumPy cannot hold
        raise ValueError(f"{name} must be an array with a row per {of}, got {shown(values)}") from None
    if array.ndim < 1:
        raise ValueError(f"{name} must have a row per {of}, got {shown(values)}")
    return array


def pair(test: Any) -> tuple[Any, Any]:
    """Inputs and labels of a test set, empty where there is none."""
    if test is None:
        return (), ()
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise ValueError(f"Federation: test must be a pair of inputs and labels, got {shown(test)}")
    return test[0], test[1]


def check_mixed(owner: str, x: Numbers, test_x: Numbers) -> None:
    """Raise where one of the two is bytes and the other is not: they would be normalised alike."""
    if len(test_x) and (x.dtype == np.uint8) != (test_x.dtype == np.uint8):
        rule = "x and test x must both be bytes (uint8), or neither"
        raise ValueError(f"{owner}: {rule}, got {x.dtype} and {test_x.dtype}")


def joined(name: str, parts: Sequence[Numbers]) -> Numbers:
    """Labels of two sets as one array; one sentence where they are of kinds that do not mix."""
    kinds = {"number" if part.dtype.kind in "iufb" else part.dtype.kind for part in parts if part.size}
    if len(kinds) > 1:
        dtypes = " and ".join(str(part.dtype) for part in parts)
        raise ValueError(f"{name} must be of the same kind in the training data and in the test set, got {dtypes}")
    return np.concatenate([part for part in parts if part.size] or parts[:1])


def number(values: Numbers, what: str, hint: str = "") -> tuple[Numbers, tuple[str, ...]]:
    """The values as 0, 1, ... in their order, and what each is called.

    Args:
        values: Whole numbers or texts, one for each sample.
        what: What error messages begin with.
        hint: What they say of fractions.

    >>> number(np.array(["b", "a", "b"]), "client")[1]
    ('a', 'b')
    """
    if values.dtype.kind == "f":
        _check_rows(np.isfinite(values), f"{what} must be known for every sample", "none")
        _check_rows(values == np.floor(values), f"{what} must be whole numbers or words{hint}", values)
        _check_rows(np.abs(values) < 2**53, f"{what} must be integers or words where they are this large", values)
        values = values.astype(np.int64)
    elif values.dtype.kind == "U":
        _check_rows(np.char.str_len(values) > 0, f"{what} must be known for every sample", "none")
    elif values.dtype.kind not in "iub":
        raise ValueError(f"{what} must be whole numbers or words, got dtype {values.dtype}")
    found, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(map(str, found.tolist()))


def numbered(name: str, values: Numbers, gaps: bool = False, negative: bool = False) -> tuple[Numbers, tuple[str, ...]]:
    """Whole numbers as they are, others numbered, with their names; where there are ``gaps``, these numbers too.

    Args:
        name: What error messages begin with.
        values: A value for each sample.
        gaps: Whether whole numbers with gaps are names.
        negative: Whether numbers below 0 are names then, as of labels -1 and 1.
    """
    if values.ndim != 1 or not len(values):
        return values, ()
    if values.dtype.kind in "iu":
        low, high = values.min(), values.max()
        dense = low >= 0 and high < 2 * len(values) and np.bincount(values).all()
        if not gaps or dense or (low < 0 and not negative):
            return values, ()
    numbers, called = number(values, f"Federation: {name}", REGRESSION if name == "y" else "")
    if values.dtype.kind == "f" and not gaps:
        return values.astype(np.int64), ()
    return numbers, () if called == tuple(map(str, range(len(called)))) else called


def _check_rows(good: Any, rule: str, values: Any) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"{rule}, got {values if isinstance(values, str) else values[row]} in row {row}")


def narrow(name: str, x: Numbers, columns: Sequence[str] = (), exact: bool = False) -> Numbers:
    """Bytes stay bytes; all other numbers become float32, and must be finite in it.

    Args:
        name: What error messages begin with, such as "Federation: x".
        x: Inputs, a row per sample.
        columns: What its columns are called, where each is one of a table.
        exact: Whether they are only checked, and not rounded yet.
    """
    if x.dtype.kind not in "iufb" or x.ndim < 1:
        raise ValueError(f"{name} must be numbers, a row per sample, got dtype {x.dtype}, shape {x.shape}")
    if 0 in x.shape[1:]:
        raise ValueError(f"{name} must have at least one number per sample, got shape {x.shape}")
    if x.dtype == np.uint8:
        return x
    given = x
    with np.errstate(over="ignore"):
        x = x.astype(np.float32, copy=False)
    for first in range(0, len(x), CHECKED):
        rows = x[first : first + CHECKED]
        finite = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        if not finite.all():
            row = first + int(np.flatnonzero(~finite)[0])
            where = f"row {row}" + (f", column {columns[np.isfinite(x[row]).argmin()]}" if len(columns) > 1 else "")
            raise ValueError(f"{name} must be finite in float32, got NaN or infinity in {where}")
    return given if exact else x


def check_labels(name: str, labels: Numbers, rows: int, empty: bool = False) -> None:
    """Raise unless there is a whole number for each of so many samples."""
    if labels.ndim != 1 or len(labels) != rows or (rows == 0 and not empty):
        hint = reshaped(labels) if name.endswith("y") else ""
        raise ValueError(f"Federation: {name} must have one entry per sample ({rows}), got shape {labels.shape}{hint}")
    if len(labels) and labels.dtype.kind not in "iu":
        raise ValueError(f"Federation: {name} must be whole numbers, got dtype {labels.dtype}")
    if len(labels) and labels.max() >= 2**31:
        raise ValueError(f"Federation: {name} must be below 2**31, got {labels.max()}")


def reshaped(labels: Numbers) -> str:
    """How labels of several columns become one per sample, for the end of a message.

    >>> reshaped(np.zeros((5, 1))), reshaped(np.zeros(5))
    ('; y.ravel() is right', '')
    """
    if labels.ndim != 2:
        return ""
    return "; y.ravel() is right" if labels.shape[1] == 1 else "; of one-hot labels y.argmax(axis=1) is right"


def check_below(name: str, labels: Numbers, limit: int, limit_name: str) -> None:
    """Raise unless all lie between 0 and the limit."""
    bad = np.flatnonzero((labels < 0) | (labels >= limit))
    if len(bad):
        value = f"{labels[bad[0]]} in row {bad[0]}"
        raise ValueError(f"Federation: {name} must be at least 0 and below {limit_name}={limit}, got {value}")


def held_out(client: Numbers, share: float, seed: int, name: str = "") -> Numbers:
    """Which samples are the test set: the share of each client, rounded down, so that nobody is left without.

    Args:
        client: The client of each sample, 0..K-1.
        share: The share of every client's samples.
        seed: What they are drawn by.
        name: What a warning of the clients that it leaves out begins with; "" for none.

    >>> held_out(np.array([0] * 100 + [1] * 9), 0.1, seed=0, name="mine").sum()
    np.int64(10)
    >>> held_out(np.zeros(100, int), 0.29, seed=0, name="mine").sum()
    np.int64(29)
    """
    if client.ndim > 1:
        rule = "0 where runs deal out the samples each in its own way: hold the test set out before, as test=(x, y)"
        raise ValueError(f"Federation: test_share must be {rule}, got {share}")
    lot = np.random.default_rng(seed).permutation(len(client))
    order = np.lexsort((lot, client))
    counts = np.bincount(client)
    place = np.arange(len(client)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(client), bool)
    wanted = np.round(share * counts, 6)  # 0.29 of 100 are 29, though 0.29 * 100 is a little less
    chosen[order] = place < np.repeat(np.floor(wanted), counts)
    if name:
        _warn_of_left_out(name, client, chosen, share)
    return chosen


def _warn_of_left_out(name: str, client: Numbers, out: Numbers, share: float) -> None:
    """Warn where clients with a considerable part of the samples have none in the test set, unless it is empty."""
    counts = np.bincount(client)
    without = (counts > 0) & (np.bincount(client[out], minlength=len(counts)) == 0)
    if out.any() and counts[without].sum() >= LEFT_OUT * len(client):
        which = (
            f"{without.sum():,} of {np.count_nonzero(counts):,} clients, with {counts[without].sum() / len(client):.0%}"
        )
        least = int(np.ceil(round(1 / share, 6)))
        what = f"{which} of the samples, are not in the test set: test_share={share:g} takes one of {least}"
        cure = "raise it (in a file, data.test_share), or give a test set"
        warnings.warn(f"{name}: {what}, and they have fewer; {cure}", stacklevel=4)


def few(numbers: Any) -> str:
    """The first five of several, and how many more there are.

    >>> few(range(7))
    '0, 1, 2, 3, 4 and 2 more'
    """
    listed = list(numbers)
    return ", ".join(map(str, listed[:5])) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
