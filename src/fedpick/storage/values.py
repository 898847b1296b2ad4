"""What one's own code reads when it is called: the numbers, texts and arrays of its modules, as they are now.

A file has them as they were when it was loaded; a script sets them from outside, or from the environment.
"""

import ast
import dis
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
MANY = 1_000_000  # numbers of an array that are read one by one
_TABLES = (list, dict, set, frozenset, tuple)
_CHANGES = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "clear", "remove", "discard"}
_WRAPPED = (property, staticmethod, classmethod, functools.partial, functools.cached_property, MethodType)


def values_read_by(found: Any, is_own: Callable[[str], bool]) -> str:
    """A sum of the values that a class or a function reads from its modules; "" where there are none.

    What they change themselves, such as a counter or a table of what they have computed, is no setting, and left out.

    Args:
        found: The class or function.
        is_own: Whether a module, by its name, is one's own; of others, functions are not looked into.
    """
    functions = list(_functions(found, is_own, {}))
    changed = {f"{each.__module__}.{name}" for each in functions for name in _changed(each.__code__)}
    # Without the name of the module, as a file that is renamed or moved has the same content.
    values = {
        (name.rpartition(".")[2], _text(value))
        for function in functions
        for name, value in _read(function, is_own)
        if name not in changed and isinstance(value, _PLAIN + _TABLES + (np.ndarray, np.generic, jax.Array))
    }
    return hashlib.sha256(repr(sorted(values)).encode("utf-8", "surrogatepass")).hexdigest() if values else ""


def _functions(value: Any, is_own: Callable[[str], bool], seen: dict[int, Any]) -> Iterator[FunctionType]:
    """The functions of one's own that a value leads to: its methods, what they call, and what they are closed over."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        if is_own(value.__module__):
            yield value
            inner += [part for _, part in _read(value, is_own)]
    elif isinstance(value, type):
        inner = [part for kind in value.__mro__ if is_own(kind.__module__) for part in vars(kind).values()]
    elif isinstance(value, _WRAPPED):
        names = ("fget", "__func__", "func", "args", "keywords")
        inner = [getattr(value, name) for name in names if hasattr(value, name)]
    elif isinstance(value, list | tuple | dict):
        parts = value.values() if isinstance(value, dict) else value
        inner = [part for part in parts if not isinstance(part, _PLAIN)]
    elif hasattr(value, "__wrapped__"):
        inner = [value.__wrapped__]
    for part in inner:
        yield from _functions(part, is_own, seen)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a name that has no value yet
        return False


def _read(function: FunctionType, is_own: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """The names that a function reads from its module, and from modules of one's own there, with their values."""
    module, names = function.__globals__, {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(name for name in loaded_names(function.__code__) & module.keys() if not name.startswith("__")):
        value = module[name]
        if isinstance(value, ModuleType):
            if is_own(value.__name__):
                own = vars(value)
                yield from (
                    (f"{value.__name__}.{part}", own[part]) for part in sorted(names & own.keys()) if part[:2] != "__"
                )
        else:
            yield f"{function.__module__}.{name}", value


@functools.lru_cache(maxsize=1024)
def _changed(code: CodeType) -> frozenset[str]:
    """The names that a function sets in its module, or whose tables it changes."""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))))
    except (OSError, SyntaxError):  # a lambda in the middle of a line
        return frozenset()
    names = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            table: Any = node.value
        else:
            method = node.func if isinstance(node, ast.Call) else None
            table = method.value if isinstance(method, ast.Attribute) and method.attr in _CHANGES else None
        names |= {table.id} if isinstance(table, ast.Name) else set()
    return frozenset(names)


@functools.lru_cache(maxsize=1024)
def loaded_names(code: CodeType) -> frozenset[str]:
    """The global names that code loads, and the functions inside it."""
    lines = (line for part in _codes(code) for line in dis.get_instructions(part))
    return frozenset(line.argval for line in lines if line.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _text(value: Any) -> str:
    """A value such that equal ones are one text."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.dtype.kind not in "biufcSU":
            return f"{array.dtype}{array.shape}"
        some = array.reshape(-1)[:: 1 + array.size // MANY]  # this is asked often; the sum tells the others
        total = array.sum() if array.size > MANY and array.dtype.kind in "biufc" else 0
        return f"{array.dtype}{array.shape}{hashlib.sha256(some.tobytes()).hexdigest()}{total}"
    if isinstance(value, set | frozenset):
        return repr(sorted(map(_text, value)))
    if isinstance(value, dict):
        return repr([(_text(key), _text(part)) for key, part in value.items()])
    if isinstance(value, list | tuple):
        return repr([type(value).__name__, *map(_text, value)])
    return repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__
