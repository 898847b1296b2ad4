"""The data sets of packages by name, and made-up packages: files, and the folder by which one is known."""

import hashlib
import lzma
import pickle

import numpy as np

from fedpick.sim import Chem97, InstEval, MovieLens, NYCFlights, Shakespeare, Watch

SOURCES = {
    "shakespeare": Shakespeare,
    "chem97": Chem97,
    "insteval": InstEval,
    "movielens": MovieLens,
    "nycflights": NYCFlights,
    "watch": Watch,
}
INDEX = "pandas.core.indexes.base"


def install(folder, installed, *contents, version=None):
    """Write the files of an ``Installed`` with these contents; the same description with their sum."""
    info = folder / f"{installed.package}-{version or installed.version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {installed.package}\nVersion: {version or installed.version}\n"
    )
    for file, content in zip(installed.files, contents, strict=False):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return installed._replace(sha256=hashlib.sha256(b"".join(contents)).hexdigest())


def installer(folder, monkeypatch):
    """A function that installs a made-up package for a data set, by name, with these contents."""
    monkeypatch.syspath_prepend(folder)

    def make(kind, *contents):
        data = SOURCES[kind]
        monkeypatch.setattr(data, "package", install(folder, data.package, *contents))

    return make


def frame(**columns):
    """A pickled and compressed pandas.DataFrame, written without pandas: a block for each column."""
    blocks = [
        _called("pandas._libs.internals", "_unpickle_block", np.asarray(column)[None], slice(place, place + 1), 2)
        for place, column in enumerate(columns.values())
    ]
    names = _called(INDEX, "_new_Index", _name(INDEX, "Index"), {"data": np.array([*columns], object), "name": None})
    manager = _called("pandas.core.internals.managers", "BlockManager", _several(blocks, b"t"), _several([names], b"l"))
    made = _name("pandas.core.frame", "DataFrame") + b")\x81}" + _part("_mgr") + manager + b"sb"
    return lzma.compress(b"\x80\x02" + made + b".")


def _name(module, name):
    return f"c{module}\n{name}\n".encode()


def _part(value):
    """The opcodes of a value; bytes are opcodes already."""
    return value if isinstance(value, bytes) else pickle.dumps(value, 2, fix_imports=False)[2:-1]


def _several(parts, kind):
    return b"(" + b"".join(map(_part, parts)) + kind


def _called(module, name, *arguments):
    return _name(module, name) + _several(arguments, b"t") + b"R"
