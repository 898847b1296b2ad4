"""The arrays of an .npz: each is read when it is asked for, and not before its size is known."""

import logging
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.memory import check_memory
from fedpick.sim.rows import few
from fedpick.text import brief

LOG = logging.getLogger("fedpick")
TEST = "test_"  # what the names of a test set begin with
ENDS = ("_test", "_train")  # or end with, as in X_test


class Archive(Mapping[str, Numbers]):
    """Arrays of an .npz by name; those that nobody asks for are never read.

    Args:
        path: The file.
        entries: The name of each array in the file.
    """

    def __init__(self, path: str, entries: Mapping[str, str]) -> None:
        self.path, self.entries = path, entries
        self.found: dict[str, Numbers] = {}

    def __getitem__(self, name: str) -> Numbers:
        if name not in self.found:
            self.found[name] = self._read(self.entries[name])
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _read(self, entry: str) -> Numbers:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                need, have = _sizes(file, entry)
                if need is not None:
                    check_memory("Arrays", f"{entry} in {self.path!r}", need)
                    if need > have:
                        raise ValueError(f"{entry} must have {need:,} bytes, and has {have:,}")
                array: Numbers = file[entry]
                return array
        except Exception as error:  # many kinds of wrong: of the zip, of the compression, of the header
            if "fit into memory" in str(error):
                raise
            if "Object arrays" not in str(error):
                raise _wrong(self.path, error) from None
            cure = (
                "save a sparse matrix as x.toarray()"
                if entry.endswith("x")
                else f"save texts as np.asarray({entry}, dtype=str)"
            )
            rule = f"{entry} in {self.path!r} must be a plain array"
            raise ValueError(f"Arrays: {rule}, got objects: {cure}") from None


def read_archive(path: str) -> tuple[Archive, Archive | None]:
    """The arrays of an .npz, and those of its test set; None where it has none.

    Args:
        path: The file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            names = list(file.files)
    except Exception as error:  # a zip, a pickle, a text: many kinds of wrong
        error = error if zipfile.is_zipfile(path) else ValueError("it is no archive that numpy.savez wrote")
        raise _wrong(path, error) from None
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise ValueError(f"Arrays: {path!r} must hold one array of each name, got several of {few(twice)}")
    columns, test = _sets(names, path)
    said = [f"{name} = {entry}" for name, entry in columns.items() if name != entry]
    if any(not entry.startswith(TEST) for entry in test.values()):
        said.append(f"test set = {few(test.values())}")
    if said:
        LOG.info("%s: %s", path, "; ".join(said))
    return Archive(path, columns), Archive(path, test) if test else None


def _sets(names: Sequence[str], path: str) -> tuple[dict[str, str], dict[str, str]]:
    """The name of each array in the file by its plain name: of the training data, and of the test set.

    Where there is an x, x_test is its test set, and test_x too; x_train is x where there is none.

    >>> _sets(["X_train", "y_train", "X_test", "y_test"], "mine.npz")
    ({'x': 'X_train', 'y': 'y_train'}, {'x': 'X_test', 'y': 'y_test'})
    """
    columns: dict[str, str] = {}
    for entry in sorted(names, key=lambda name: (name.endswith(ENDS[1]), _plain(name) != name)):  # exact ones first
        if not entry.startswith(TEST):
            columns[entry if _plain(entry) in columns else _plain(entry)] = entry
    test = {_plain(entry.removeprefix(TEST)): entry for entry in names if entry.startswith(TEST)}
    for entry in [each for each in columns.values() if each.endswith(ENDS[0])]:
        name = _plain(entry.removesuffix(ENDS[0]))
        if name not in columns:
            continue
        if name in test:
            raise ValueError(f"Arrays: {path!r} must hold one test set, got both {test[name]} and {entry}")
        test[name] = columns.pop(entry)
    order = {entry: place for place, entry in enumerate(names)}
    return dict(sorted(columns.items(), key=lambda pair: order[pair[1]])), test


def _plain(name: str) -> str:
    """X and x_train as x."""
    name = name.removesuffix(ENDS[1])
    return name.lower() if name in ("X", "Y") else name


def _sizes(file: Any, entry: str) -> tuple[int | None, int]:
    """The bytes that the header of an array asks for, None where it says nothing of it, and those that there are."""
    name = f"{entry}.npy" if f"{entry}.npy" in file.zip.namelist() else entry
    with file.zip.open(name) as content:
        version = np.lib.format.read_magic(content)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            return None, 0
        shape, _, dtype = read(content)
        need = int(dtype.itemsize)
        for length in shape:
            need *= length  # of Python's integers, which do not overflow
        return (None if dtype.hasobject else need), file.zip.getinfo(name).file_size - content.tell()


def _wrong(path: str, error: Exception) -> ValueError:
    return ValueError(f"Arrays: path must be an .npz of plain arrays, got {path!r} ({brief(error)})")
