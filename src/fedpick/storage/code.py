"""Code of one's own as a sum: the files of a class or function, or its compiled form where it has no file."""

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import jax

from fedpick.storage.cells import is_typed_in, sum_of_cell
from fedpick.storage.provenance import file_sha256
from fedpick.storage.values import code_of, settings_of, text_of, values_read_by

_PACKAGE = Path(__file__).resolve().parents[1]


class _Read(NamedTuple):
    """A file as it was read: when, its sum, the modules that it imports, and what its functions are compiled to."""

    version: Any
    sha256: str
    imported: frozenset[str]
    functions: frozenset[CodeType]


_READ: dict[Path, _Read] = {}
_TRACED: dict[Any, str] = {}  # what JAX may have traced: code and values of one's own, as they were


def sum_of_code(found: Any, place: ModuleType | None = None, strict: bool = True) -> str:
    """The sum of one's own code of a class, function or object; "" for what is of an installed package.

    It is that of its file, and of those of one's own modules that this imports, at their top or in a function, as they
    were when Python loaded them, and of the values that it reads, as they are. What was typed in, in a notebook or at a
    prompt, is in no file: see ``sum_of_cell``.

    Args:
        found: The class, function or object.
        place: The module where it was found, if that may be another one than that of its class.
        strict: Whether to raise where what it refers to has no content that can be told, or is not what is in its file.
    """
    module = _module_of(found)
    if module is not None and is_typed_in(module.__name__):
        files = sum_of_cell(found, lambda other: _sum_of_modules(sys.modules.get(other)), strict=strict)
    else:
        files = _sum_of_modules(module, place)
    if not files:
        return ""
    if strict:
        _check_loaded(found)
    values = values_read_by(found, _is_own)
    return hashlib.sha256(f"{files}{values}".encode()).hexdigest() if values else files


def _module_of(found: Any) -> ModuleType | None:
    while isinstance(found, functools.partial):
        found = found.func
    return inspect.getmodule(found) or inspect.getmodule(type(found))


def _check_loaded(found: Any) -> None:
    """Raise where a function is not what its file had when it was read."""
    for function in code_of(found, _is_own):
        name = function.__module__ if isinstance(function, type) else str(function.__globals__.get("__name__"))
        file = _own_file(getattr(sys.modules.get(name), "__file__", None))
        loader = getattr(sys.modules.get(name), "__loader__", None)
        # Other loaders change what they load, as pytest does.
        if file is None or isinstance(function, type) or type(loader) is not SourceFileLoader:
            continue
        code = function.__code__
        if _own_path(code.co_filename) == file and code not in _read(file, name).functions:
            rule = f"{code.co_name} must be as {file.name} has it, to be stored"
            what_to_do = f"load {file.name} again, and what imports from it, or start Python again"
            raise ValueError(f"experiment: {rule}, got an earlier version: {what_to_do}")


def forget_outdated(found: Iterable[Any]) -> None:
    """Clear JAX's caches where code or values of one's own are other ones than when they may have been traced.

    JAX keeps what it has traced of functions under ``jax.jit`` and of bodies of loops, by the function alone.

    Args:
        found: The objects that are played, and functions.
    """
    now: dict[Any, str] = {}
    for each in _held_by(list(found)):
        one = _kind(each)
        settings, modules = settings_of(one, _is_own), {part.__module__ for part in code_of(one, _is_own)}
        for (module, name), value in settings.items():
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            now[module, name or id(one)] = f"{text_of(value, _is_own)}{hash(code) if code else ''}"
        files = sums_of_files(_fields(each)) if modules else {}
        now |= {(file, 0): content for file, content in files.items()}
        now |= {(module, 0): _sum_of_modules(sys.modules.get(module)) for module in modules}
    # A setting that was never seen may have been traced, too, by who tried out a function.
    before = {key: _TRACED.get(key, "" if isinstance(key[1], str) else text) for key, text in now.items()}
    if before != now:
        jax.clear_caches()  # type: ignore[no-untyped-call]
    _TRACED.update(now)


def sources_of(value: Any) -> tuple[tuple[str, str], ...]:
    """One's own code of an object and of what its fields hold, and the files that they name, with their sums.

    >>> sources_of("a text")
    ()
    """
    found: dict[str, str] = {}
    for one in _held_by(value):
        kind = _kind(one)
        code = sum_of_code(kind, strict=False)
        if code:
            name = f"{kind.__module__}:{getattr(kind, '__qualname__', type(kind).__name__)}"
            while found.get(name, code) != code:  # several functions may be called <lambda>
                name += "'"
            found[name] = code
            found |= sums_of_files(_fields(one))
    return tuple(sorted(found.items()))


def _held_by(value: Any) -> Iterator[Any]:
    """An object and what its fields hold."""
    yield value
    for part in value if isinstance(value, list | tuple) else _fields(value):
        yield from _held_by(part)


def _kind(value: Any) -> Any:
    """What has the code of an object: itself where it is a function or called like one, else its class."""
    return value if callable(value) and not dataclasses.is_dataclass(value) else type(value)


def _fields(value: Any) -> list[Any]:
    found = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return [getattr(value, field.name) for field in dataclasses.fields(value)] if found else []


def sums_of_files(values: Iterable[Any]) -> dict[str, str]:
    """The sums of the files that these values, and lists and tables among them, name, by path."""
    found: dict[str, str] = {}
    for value in values:
        if isinstance(value, str | Path) and _is_file(value):
            found[str(value)] = file_sha256(Path(value))
        elif isinstance(value, list | tuple):
            found |= sums_of_files(value)
        elif isinstance(value, Mapping) and "kind" not in value:  # which is of another class
            found |= sums_of_files(value.values())
    return found


def _is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a text that no path can be
        return False


def _is_own(module: str) -> bool:
    return is_typed_in(module) or _own_file(getattr(sys.modules.get(module), "__file__", None)) is not None


def _sum_of_modules(*first: ModuleType | None) -> str:
    waiting, sums = [(each.__name__, getattr(each, "__file__", None)) for each in first if each is not None], {}
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
    loaded = sys.modules.get(module)
    version: Any = getattr(loaded, "__spec__", None) or loaded  # a script has none; another one after importlib.reload
    if version is None:
        version = file.stat().st_mtime_ns, file.stat().st_size
    before = _READ.get(file)
    # Two specs of one module are equal.
    if before is None or not (before.version is version or (isinstance(version, tuple) and before.version == version)):
        content = file.read_bytes()
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        before = _READ[file] = _Read(
            version, hashlib.sha256(content).hexdigest(), _imported(content, package), _functions(content)
        )
    return before


def _functions(content: bytes) -> frozenset[CodeType]:
    """What the functions of a file are compiled to, with those inside them."""
    try:
        waiting, found = [compile(content, "", "exec", dont_inherit=True)], set()
    except (SyntaxError, ValueError):
        return frozenset()
    while waiting:
        code = waiting.pop()
        found.add(code)
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
    return frozenset(found)


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
    file = None if path is None else _own_path(path)
    return file if file is not None and file.is_file() else None


@functools.lru_cache(maxsize=4096)  # asked for each function, each time
def _own_path(path: str) -> Path | None:
    file = Path(path).resolve()
    installed = any(file.is_relative_to(folder) for folder in _installed())
    return file if file.suffix == ".py" and not installed else None
