"""Code of one's own that an experiment names by address, and the files that it is given, by their content."""

import ast
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from fedpick import registry
from fedpick.storage import file_sha256

_ADDRESS = re.compile(r"[\w./-]+:[A-Za-z_][\w.]*")
_PACKAGE = Path(__file__).resolve().parents[1]


def own_code(plain: Any) -> dict[str, str]:
    """The addresses in plain data that lead to code of one's own, and the SHA-256 sums of the files that have it.

    Installed packages do not count; modules of one's own that such a file imports do, and so do the files that the
    fields of such a class name.

    >>> own_code({"server": {"optimizer": "optax:sgd"}, "name": "a: b"})
    {}
    """
    if isinstance(plain, Mapping):
        found = {address: code for part in plain.values() for address, code in own_code(part).items()}
        fields = [value for value in plain.values() if isinstance(value, str)] if plain.get("kind") in found else []
        return found | {path: file_sha256(Path(path)) for path in fields if _is_file(path)}
    if isinstance(plain, list | tuple):
        return {address: code for part in plain for address, code in own_code(part).items()}
    if not isinstance(plain, str) or not _ADDRESS.fullmatch(plain):
        return {}
    try:
        code = _sum_of_files(registry.load(plain))
    except (ValueError, TypeError):  # no address, or nothing that has a file
        return {}
    return {plain: code} if code else {}


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a text that no path can be
        return False


@functools.lru_cache(maxsize=256)
def _sum_of_files(found: Any) -> str:
    """The sum of the files of a class or function, as they were when first asked for; "" for one of a package.

    They are its own, and those of one's own modules that they import, at their top or in a function.
    """
    first: Any = inspect.getmodule(found)
    waiting, files = [(first.__name__, getattr(first, "__file__", None))] if first is not None else [], {}
    while waiting:
        module, path = waiting.pop()
        file = _own_file(path)
        if file is None or file in files:
            continue
        content = file.read_bytes()
        files[file] = hashlib.sha256(content).hexdigest()
        is_package = file.name == "__init__.py"
        package = module if is_package else module.rpartition(".")[0]
        waiting += [(name, _file_of(name)) for name in _imported(content, package)]
    sums = sorted(files.values())
    return hashlib.sha256("".join(sums).encode()).hexdigest() if sums else ""


def _imported(content: bytes, package: str) -> set[str]:
    """The modules that a file may import, with the packages that they are in.

    >>> sorted(_imported(b"def f():\\n    from .b import c", "a"))
    ['a', 'a.b', 'a.b.c']
    """
    found: set[str] = set()
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # which whoever imports it is told
        nodes = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    parts = [name.split(".") for name in found if name]
    return {".".join(each[:length]) for each in parts for length in range(1, len(each) + 1)}


def _file_of(name: str) -> str | None:
    """The file of a module, without importing it; None where there is none."""
    spec = _spec_of(name)
    loaded = getattr(sys.modules.get(name), "__file__", None)
    return loaded or (None if spec is None else spec.origin)


def _spec_of(name: str) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    try:
        if not parent:
            return importlib.util.find_spec(name)
        above = _spec_of(parent)
        places = None if above is None else above.submodule_search_locations
        return None if places is None else PathFinder.find_spec(name, places)
    except (ImportError, ValueError):
        return None


def _own_file(path: str | None) -> Path | None:
    """The file of a module that is neither of an installed package nor of fedpick."""
    if path is None:
        return None
    file = Path(path).resolve()
    libraries = [Path(path).resolve() for name, path in sysconfig.get_paths().items() if "lib" in name]
    installed = any(file.is_relative_to(folder) for folder in (*libraries, _PACKAGE))
    return file if file.suffix == ".py" and file.is_file() and not installed else None
