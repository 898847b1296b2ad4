"""Tables of samples from files, by what they are: CSV, Parquet, Arrow, LEAF's json, Hugging Face's folders, .npz."""

import csv
import importlib.util
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.archives import read_archive
from fedpick.sim.cells import LONGEST, as_texts, opened, read_cells
from fedpick.sim.rows import as_array, is_none, plain
from fedpick.text import brief

LOG = logging.getLogger("fedpick")
KINDS = (".npz", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".json")


class Table(NamedTuple):
    """Columns by name, the same of a test set where the file has one, and what the labels of a column are called.

    ``first`` is the number that a person counts the first row as, and ``unit`` what it is then called. ``written`` has
    those columns of numbers that are names where they are of clients or labels: 007 is another one than 7. ``broken``
    has those columns of a CSV file that hold a line break, and the line in which the first such cell begins.
    ``test_words`` are what the labels of the test set are called.
    """

    columns: Mapping[str, Numbers]
    test: Mapping[str, Numbers] | None = None
    words: Mapping[str, tuple[str, ...]] = {}
    first: int = 0
    unit: str = "row"
    written: Mapping[str, Numbers] = {}
    broken: Mapping[str, int] = {}
    test_words: Mapping[str, tuple[str, ...]] = {}


def is_table(path: str) -> bool:
    """Whether a path is of samples: a file of one of the ``KINDS``, LEAF's json, or a folder with such files."""
    if Path(path).is_dir():
        return _is_hugging_face(Path(path)) or bool(_leaf_files(Path(path)))
    suffix = Path(path).suffix.lower()
    return suffix in KINDS and (suffix != ".json" or _is_leaf(Path(path)))


def check_is_table(path: str, owner: str) -> None:
    """Raise where a path is there, and is no table: of another kind, or a folder of other files.

    Args:
        path: The path.
        owner: What the error begins with.
    """
    if Path(path).is_dir() and not is_table(path):
        inside = (*sorted(Path(path).glob("*")), *sorted(Path(path).glob("*/*")))
        found = [file.relative_to(path) for file in inside if file.suffix.lower() in KINDS]
        listed = f"{found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}" if found else ""
        cure = f" with {listed}; name one file, and make one of several, with a column client" if found else ""
        rule = "a folder of data must be one of LEAF, or one that save_to_disk of Hugging Face wrote"
        raise ValueError(f"{owner}: {rule}, got {path!r}{cure or '; an .npz of x, y and client takes any data'}")
    if Path(path).is_file() and not is_table(path):
        raise ValueError(f"{owner}: a file of data must be one of {', '.join(KINDS)}, got {path!r}; save it as one")


def files_of(path: str) -> list[Path]:
    """The files that a table is read from."""
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    return sorted(each for kind in ("*.arrow", "*.json") for each in folder.rglob(kind))


def read_table(path: str, names: Sequence[str] = ()) -> Table:
    """The table in a file or folder.

    Args:
        path: The file or folder.
        names: What columns may be called: where the first line of a CSV file has all of these, it is no sample.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if file.is_dir():
        return _hugging_face(file) if _is_hugging_face(file) else _leaf(_leaf_files(file), file)
    if not file.is_file():
        kind = "an .npz file" if suffix == ".npz" else f"a file ({', '.join(KINDS)}) or folder of data"
        raise FileNotFoundError(f"Arrays: path must be {kind}, got {path!r}, where there is none")
    try:
        if suffix == ".npz":
            columns, test = read_archive(path)
            return Table(columns, test=test)
        if suffix == ".json":
            return _leaf([file], file)
        if suffix in (".csv", ".tsv"):
            cells = read_cells(file, names)
            return Table(cells.columns, first=2, unit="line", written=cells.written, broken=cells.broken)
        if suffix == ".parquet":
            return Table(of_frame(opened("read_parquet", file)))
        return Table(_ipc(file))
    except UnicodeDecodeError as error:
        found = f"the byte {error.object[error.start : error.start + 1]!r}"
        raise ValueError(f"Arrays: {path!r} must be text in UTF-8, got {found}; save it again in UTF-8") from None
    except (OSError, json.JSONDecodeError, csv.Error) as error:
        raise ValueError(f"Arrays: {path!r} must be a {suffix} file, got an error: {brief(error)}") from None


def of_frame(frame: Any) -> dict[str, Numbers]:
    """The columns of a frame of pandas or polars, or of a data set of Hugging Face.

    >>> import pandas
    >>> of_frame(pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))["b"].tolist()
    ['x', 'y']
    """
    whole = hasattr(frame, "__len__") and not isinstance(frame, Mapping)  # no stream, no LazyFrame, no DatasetDict
    if whole and hasattr(frame, "with_format") and hasattr(frame, "column_names"):
        found, kinds = frame.with_format("numpy")[:], frame.features
        return {name: _as_bytes(_column(found[name]), getattr(kinds[name], "dtype", "")) for name in frame.column_names}
    if not whole or not hasattr(frame, "columns") or hasattr(frame, "column_names"):
        rule = "must be a frame of pandas or polars, or one data set of Hugging Face, such as dataset['train']"
        raise ValueError(f"from_frame: frame {rule}, got {type(frame).__name__}")
    for name, number in Counter(map(str, frame.columns)).items():
        if number > 1:
            raise ValueError(f"from_frame: frame must have a name for each column, got {name!r} twice")
    return {str(name): _images(str(name), _column(_values(frame[name]))) for name in frame.columns}


def _values(series: Any) -> Any:
    if not hasattr(getattr(series, "dtype", None), "inner") or not len(series):
        values = series.to_numpy()
        return series.to_list() if values.dtype == object and hasattr(series, "to_list") else values
    if series.null_count():
        return series.to_list()
    shape, flat = np.shape(series[0].to_list()), series  # lists of lists in polars, as images are
    for _ in shape:
        flat = flat.explode()
    return flat.to_numpy().reshape(-1, *shape) if len(flat) == len(series) * np.prod(shape) else series.to_list()


def _column(values: Any) -> Numbers:
    """A column as an array: vectors and images have more axes."""
    array = np.asarray(values, dtype=object) if isinstance(values, list) and _ragged(values) else as_array(values)
    if array.dtype == object and array.ndim == 1 and any(isinstance(row, np.ndarray | list) for row in array):
        shapes = {np.shape(row) for row in array}
        return np.stack([np.asarray(row) for row in array]) if len(shapes) == 1 else array
    if array.ndim > 1 or _is_struct(array):
        return array
    long = array.dtype.kind in "OT" and any(isinstance(value, str) and len(value) > LONGEST for value in array)
    return as_texts("" if is_none(value) else str(value) for value in array) if long else plain(array)


def _ragged(values: list[Any]) -> bool:
    return len({np.shape(value) if isinstance(value, list) else None for value in values}) > 1


def _is_struct(array: Numbers) -> bool:
    return array.dtype == object and len(array) > 0 and isinstance(array[0], Mapping)


def _ipc(file: Path) -> dict[str, Numbers]:
    """An Arrow file, or a stream of Arrow as Hugging Face writes it."""
    with file.open("rb") as content:
        is_file = content.read(6) == b"ARROW1"
    return of_frame(opened("read_ipc" if is_file else "read_ipc_stream", file))


def _is_hugging_face(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _hugging_face(folder: Path) -> Table:
    """What ``save_to_disk`` of Hugging Face's datasets wrote: a data set, or one to train and one to test on."""
    if (folder / "state.json").is_file():
        return _hugging_face_part(folder)
    names = json.loads((folder / "dataset_dict.json").read_text())["splits"]
    if "train" not in names:
        raise ValueError(f"Arrays: {str(folder)!r} must have a split train, got {', '.join(names)}")
    train = _hugging_face_part(folder / "train")
    parts = {name: _hugging_face_part(folder / name) for name in ("test", "validation") if name in names}
    labelled = [name for name, part in parts.items() if not _is_unlabelled(part)]
    for name in parts:
        if name not in labelled:
            instead = f"; {labelled[0]} is the test set" if labelled else ""
            LOG.warning("%r: the labels of the split %s are -1, so that it is not used%s", str(folder), name, instead)
    if not labelled:
        return train
    test = parts[labelled[0]]
    return train._replace(test=test.columns, test_words=test.words)


def _is_unlabelled(part: Table) -> bool:
    """Whether its labels are all -1, as those of a test set that is kept secret are."""
    labels = [part.columns[name] for name in part.words]
    return bool(labels) and all(len(each) and (each == -1).all() for each in labels)


def _hugging_face_part(folder: Path) -> Table:
    state = json.loads((folder / "state.json").read_text())
    parts = [_ipc(folder / file["filename"]) for file in state["_data_files"]]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    features = json.loads((folder / "dataset_info.json").read_text()).get("features") or {}
    single = {name: feature for name, feature in features.items() if isinstance(feature, dict)}  # others are of lists
    words = {name: tuple(feature["names"]) for name, feature in single.items() if "names" in feature}
    columns = {name: _as_bytes(column, single.get(name, {}).get("dtype", "")) for name, column in columns.items()}
    return Table(columns, words=words)


def _as_bytes(column: Numbers, kind: str) -> Numbers:
    """Bytes as such: Arrow's extension types, and Hugging Face's formats, make longer numbers of them."""
    return column.astype(np.uint8) if kind == "uint8" and column.ndim > 1 else column


def _images(name: str, column: Numbers) -> Numbers:
    """Images that are kept as files in a column, as those of Hugging Face are, as arrays."""
    if not _is_struct(column) or "bytes" not in column[0]:
        return column
    if importlib.util.find_spec("PIL") is None:
        raise ModuleNotFoundError(f"Arrays: the images of {name} need Pillow; install it with pip install pillow")
    import io

    image: Any = importlib.import_module("PIL.Image")
    return np.stack([np.asarray(image.open(io.BytesIO(one["bytes"]))) for one in column])


def _is_leaf(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as content:
            head = content.read(1 << 16)
            return '"user_data"' in head or ('"users"' in head and '"user_data"' in content.read())
    except (OSError, UnicodeDecodeError):
        return False


def _leaf_files(folder: Path) -> list[Path]:
    inner = folder / "train" if (folder / "train").is_dir() else folder
    return [file for file in sorted(inner.glob("*.json")) if _is_leaf(file)]


def _leaf(files: list[Path], place: Path) -> Table:
    """LEAF's json: {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}; test/ lies beside train/."""
    if not files:
        raise ValueError(f"Arrays: {str(place)!r} must hold data of Hugging Face or LEAF, got neither")
    beside = _leaf_files(place / "test") if place.is_dir() and (place / "test").is_dir() else []
    return Table(_leaf_columns(files), test=_leaf_columns(beside) if beside else None)


def _leaf_columns(files: list[Path]) -> dict[str, Numbers]:
    parts: dict[str, list[Any]] = {"x": [], "y": [], "client": []}
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        silent = [user for user in content.get("users", ()) if user not in content["user_data"]]
        if silent:
            raise ValueError(f"Arrays: user {silent[0]!r} in {str(file)!r} must have user_data, and has none")
        for user, data in content["user_data"].items():
            if not isinstance(data, dict) or len(data.get("x", ())) != len(data.get("y", ())):
                raise ValueError(f"Arrays: user {user!r} in {str(file)!r} must have as many x as y")
            parts["x"] += data["x"]
            parts["y"] += data["y"]
            parts["client"] += [user] * len(data["y"])
    return {name: _column(values) for name, values in parts.items()}
