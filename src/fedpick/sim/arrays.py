"""Your own data: an ``.npz`` file with a row per sample."""

import functools
import hashlib
import zipfile
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.sim.federation import Federation, as_float, pixels
from fedpick.sim.partition import Partition
from fedpick.validation import require


@dataclass(frozen=True)
class Arrays:
    """Your own data: an ``.npz`` with x, y and client (a row per sample), and test_x, test_y where there is a test set.

    Clients and labels may have any names. Bytes are taken for pixels, unless they are codes.

    Args:
        path: The ``.npz`` file.
        partition: How the samples are dealt out, where the file has no client.
        test_share: Without test_x, the share of every client's samples that becomes the test set.
        seed: What the test set is drawn by.
        codes: Whether bytes are codes, such as characters, and not pixels.

    >>> Arrays("mine.npz").test_share
    0.1
    """

    path: str
    partition: Partition | None = None
    test_share: float = 0.1
    _: KW_ONLY
    seed: int = 0
    codes: bool = False

    def __post_init__(self) -> None:
        require(self, "test_share", self.test_share, "at least 0 and below 1", lambda x: (x >= 0) & (x < 1))

    @property
    def sha256(self) -> str:
        """What the file holds, as a sum: another file of this name is another experiment."""
        return file_sha256(self._file())

    def federation(self) -> Federation:
        arrays, partition = self._load(), self.partition
        self._number_labels(arrays)
        x, y = arrays["x"], arrays["y"]
        if ("client" in arrays) == (partition is not None):
            found = "has clients, so partition must be left out" if partition else "has no client, so give a partition"
            raise ValueError(f"Arrays: {self.path!r} {found}")
        if partition is not None:
            client = partition(y)
        else:
            if arrays["client"].shape != y.shape:
                rule = f"must have one entry per sample ({len(y)})"
                raise ValueError(f"Arrays: client in {self.path!r} {rule}, got shape {arrays['client'].shape}")
            client = np.unique(arrays["client"], return_inverse=True)[1]
        test = (arrays["test_x"], arrays["test_y"]) if "test_x" in arrays else None
        if test is None and self.test_share:
            held_out = self._held_out(client)
            test = (x[held_out], y[held_out])
            x, y, client = x[~held_out], y[~held_out], client[~held_out]
        prepare = pixels if x.dtype == np.uint8 and not self.codes else as_float
        return Federation.from_arrays(x, y, client, test=test, prepare=prepare, name=Path(self.path).name)

    def _number_labels(self, arrays: dict[str, Any]) -> None:
        """Labels of any names become 0, 1, ... in their order."""
        both = [name for name in ("y", "test_y") if name in arrays]
        for name in both:
            if arrays[name].ndim != 1:
                rule = "must be one label per sample"
                raise ValueError(f"Arrays: {name} in {self.path!r} {rule}, got shape {arrays[name].shape}")
        labels = np.concatenate([arrays[name].ravel() for name in both])
        if labels.dtype.kind == "f" and not (labels == np.floor(labels)).all():
            rule = "must be labels, whole numbers or words"
            raise ValueError(f"Arrays: y in {self.path!r} {rule}, got {labels[labels != np.floor(labels)][0]}")
        numbers = np.unique(labels, return_inverse=True)[1]
        for name, part in zip(both, np.split(numbers, [arrays["y"].size]), strict=False):
            arrays[name] = part

    def _held_out(self, client: Any) -> Any:
        """Which samples are the test set: the share of each client, rounded down, so that nobody is left without."""
        lot = np.random.default_rng(self.seed).permutation(len(client))
        order = np.lexsort((lot, client))
        number = np.bincount(client)
        place = np.arange(len(client)) - np.repeat(np.cumsum(number) - number, number)
        held_out = np.zeros(len(client), bool)
        held_out[order] = place < np.floor(self.test_share * np.repeat(number, number))
        return held_out

    def _load(self) -> dict[str, Any]:
        self._file()
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except Exception as error:  # a zip, a pickle, a text: many kinds of wrong
            error = error if zipfile.is_zipfile(self.path) else ValueError("it is no archive that numpy.savez wrote")
            raise ValueError(f"Arrays: path must be an .npz of plain arrays, got {self.path!r} ({error})") from None
        for name in ("x", "y", *(["test_y"] if "test_x" in arrays else [])):
            if name not in arrays:
                raise ValueError(f"Arrays: {self.path!r} must hold {name}, got {', '.join(arrays) or 'nothing'}")
        if not len(arrays["y"]) or len(arrays["x"]) != len(arrays["y"]):
            got = f"{len(arrays['x'])} and {len(arrays['y'])}"
            raise ValueError(f"Arrays: x and y in {self.path!r} must have the same number of rows, above 0, got {got}")
        return arrays

    def _file(self) -> Path:
        if not Path(self.path).is_file():
            raise FileNotFoundError(f"Arrays: path must be an .npz file, got {self.path!r}, where there is none")
        return Path(self.path)


def file_sha256(file: Path) -> str:
    """What a file holds, as a sum."""
    return _sha256(file, file.stat().st_mtime_ns, file.stat().st_size)


@functools.lru_cache(maxsize=16)  # asked for every run, of files that may be large
def _sha256(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
