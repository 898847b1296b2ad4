"""Frames, arrays and plain data in pickles, read with NumPy alone: no class or function beyond those listed here."""

import io
import lzma
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpick.metrics import Numbers


class _Frame:
    """What stands for a pandas.DataFrame: it keeps the state that it was stored with."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        names, blocks = state["_mgr"]
        rows = [pair for values, places in blocks for pair in zip(names[places], values, strict=True)]
        found = {str(name): column for name, column in rows}
        self.columns: dict[str, Numbers] = {str(name): found[str(name)] for name in names}


def _from_buffer(buffer: bytes, dtype: Any, shape: tuple[int, ...], order: Any) -> Numbers:
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)


# By module and name; an array is made empty and then given its state by ``ndarray.__setstate__``.
KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "slice"): slice,
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin-1"),
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): lambda kind, shape, dtype: np.ndarray((0,), np.int8),
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): lambda blocks, axes: (axes[0], blocks),
    ("pandas._libs.internals", "_unpickle_block"): lambda values, places, dimensions: (values, places),
    ("pandas.core.indexes.base", "_new_Index"): lambda kind, state: state.get("data"),
    ("pandas.core.indexes.base", "Index"): dict,
    ("pandas.core.indexes.range", "RangeIndex"): dict,
}
HARMLESS = {("numpy", "dtype"), *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core"))}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # NumPy 2 writes numpy._core where earlier versions wrote numpy.core.
        known = KNOWN.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise pickle.UnpicklingError(f"a table must be made of arrays, got {module}.{name}")
        return known


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in HARMLESS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}")


def read_plain(content: bytes) -> Any:
    """The tables, lists, numbers (NumPy's, too) and texts of a pickle, and nothing that could run.

    Args:
        content: Of the file.
    """
    return _PlainUnpickler(io.BytesIO(content)).load()


def read_frame(content: bytes) -> dict[str, Numbers]:
    """The columns of a pandas.DataFrame that was pickled and compressed by xz.

    Args:
        content: Of the file.
    """
    columns: dict[str, Numbers] = _Unpickler(io.BytesIO(lzma.decompress(content))).load().columns
    return columns


def read_object(content: bytes) -> Any:
    """The one object in an ``.npy`` file: dicts, lists, numbers, texts and arrays.

    Args:
        content: Of the file.
    """
    file = io.BytesIO(content)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    return _Unpickler(file).load().item()
