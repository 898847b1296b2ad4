"""Code of one's own as a sum: the files of a class or function, or its compiled form where it has no file."""

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedpick.storage.cells import is_typed_in, sum_of_cell
from fedpick.storage.provenance import file_sha256
from fedpick.storage.values import values_read_by

_PACKAGE = Path(__file__).resolve().parents[1]


class _Read(NamedTuple):
    """A file as it was read: when, its sum, and the modules that it imports."""

    version: Any
    sha256: str
    imported: frozenset[str]


_READ: dict[Path, _Read] = {}


def sum_of_code(found: Any, strict: bool = True) -> str:
    """The sum of one's own code of a class or function; "" for what is of an installed package.

    It is that of its file, and of those of one's own modules that this imports, at their top or in a function, as they
    were when Python loaded them, and of the values that it reads from these modules, as they are. What was typed in, in
    a notebook or at a prompt, is in no file: see ``sum_of_cell``.

    Args:
        found: The class or function.
        strict: Whether to raise where what it refers to has no content that can be told.
    """
    module = inspect.getmodule(found)
    if module is not None and is_typed_in(module.__name__):
        return sum_of_cell(found, lambda other: _sum_of_module(sys.modules.get(other)), strict=strict)
    files, values = _sum_of_module(module), values_read_by(found, _is_own)
    return hashlib.sha256(f"{files}{values}".encode()).hexdigest() if values else files


def as_it_is_now(function: Any) -> Any:
    """A function; another object each time that values which it reads have changed, as JAX keeps what it has traced.

    Args:
        function: The function, or anything else, which is given back.
    """
    values = values_read_by(function, _is_own)
    return _renewed(function, values) if values else function


@functools.lru_cache(maxsize=64)
def _renewed(function: Any, values: str) -> Any:
    @functools.wraps(function)
    def now(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return now


def sources_of(value: Any) -> tuple[tuple[str, str], ...]:
    """One's own code of an object and of what its fields hold, and the files that they name, with their sums.

    >>> sources_of("a text")
    ()
    """
    found: dict[str, str] = {}

    def collect(one: Any) -> None:
        if isinstance(one, list | tuple):
            for part in one:
                collect(part)
        kind = one if callable(one) and not dataclasses.is_dataclass(one) else type(one)
        code = sum_of_code(kind, strict=False)
        if code:
            name = f"{kind.__module__}:{getattr(kind, '__qualname__', type(kind).__name__)}"
            while found.get(name, code) != code:  # several functions may be called <lambda>
                name += "'"
            found[name] = code
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            values = [getattr(one, field.name) for field in dataclasses.fields(one)]
            found.update(sums_of_files(values) if code else {})
            for part in values:
                collect(part)

    collect(value)
    return tuple(sorted(found.items()))


def sums_of_files(values: Any) -> dict[str, str]:
    """The sums of the files that these values name, by path; other values name none."""
    paths = [value for value in values if isinstance(value, str | Path)]
    return {str(path): file_sha256(Path(path)) for path in paths if _is_file(path)}


def _is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a text that no path can be
        return False


def _is_own(module: str) -> bool:
    return _own_file(getattr(sys.modules.get(module), "__file__", None)) is not None


def _sum_of_module(first: ModuleType | None) -> str:
    waiting, sums = [(first.__name__, getattr(first, "__file__", None))] if first is not None else [], {}
    while waiting:
        module, path = waiting.pop()
        file = _own_file(path)
        if file is None or file in sums:
            continue
        read = _read(file, module)
        sums[file] = read.sha256
        waiting += [(name, _file_of(name)) for name in read.imported]
    return hashlib.sha256("".join(sorted(sums.values())).encode()).hexdigest() if sums else ""


def _read(file: Path, module: str) -> _Read:
    """A file as Python loaded it: read again when it was loaded again, or where it was not, when it has changed."""
    version: Any = getattr(sys.modules.get(module), "__spec__", None)  # another one after importlib.reload
    if version is None:
        version = file.stat().st_mtime_ns, file.stat().st_size
    before = _READ.get(file)
    # Two specs of one module are equal.
    if before is None or not (before.version is version or (isinstance(version, tuple) and before.version == version)):
        content = file.read_bytes()
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        before = _READ[file] = _Read(version, hashlib.sha256(content).hexdigest(), _imported(content, package))
    return before


def _imported(content: bytes, package: str) -> frozenset[str]:
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
    return frozenset(".".join(each[:length]) for each in parts for length in range(1, len(each) + 1))


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


@functools.cache
def _installed() -> tuple[Path, ...]:
    """The folders of Python's library, of installed packages, and of fedpick."""
    return (*(Path(path).resolve() for name, path in sysconfig.get_paths().items() if "lib" in name), _PACKAGE)


def _own_file(path: str | None) -> Path | None:
    """The file of a module that is neither of an installed package nor of fedpick."""
    if path is None:
        return None
    file = Path(path).resolve()
    installed = any(file.is_relative_to(folder) for folder in _installed())
    return file if file.suffix == ".py" and file.is_file() and not installed else None
