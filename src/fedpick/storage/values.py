"""What one's own code reads when it is called: the numbers, texts and arrays of its modules, classes and closures.

A file has them as they were when it was loaded; a script sets them from outside, or from the environment.
"""

import ast
import dataclasses
import dis
import functools
import hashlib
import inspect
import textwrap
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_TABLES = (list, dict, set, frozenset, tuple)
_ARRAYS = (np.ndarray, np.generic, jax.Array)
_CHANGES = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "clear", "remove", "discard"}
_WRAPPED = (property, staticmethod, classmethod, functools.cached_property)
_MAKE = {"__init__", "__new__", "__post_init__"}  # what these set is what an object is made with
_SUMS: dict[int, tuple[Any, str]] = {}  # of arrays that cannot change, as long as they are there

Place = tuple[str, str]  # a module, and a name in it, such as "SCALE" or "Mine.scale"
IsOwn = Callable[[str], bool]


def values_read_by(found: Any, is_own: IsOwn) -> str:
    """A sum of the values that a class, a function or an object reads; "" where there are none.

    What they change themselves, such as a counter or a table of what they have computed, is no setting, and left out.

    Args:
        found: The class, function or object.
        is_own: Whether a module, by its name, is one's own; of others, functions are not looked into.
    """
    modules: dict[str, int] = {}  # in the order of reading, as a file that is renamed or moved has the same content
    values = [
        (modules.setdefault(module, len(modules)), name, text_of(value, is_own))
        for (module, name), value in settings_of(found, is_own).items()
    ]
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest() if values else ""


def settings_of(found: Any, is_own: IsOwn) -> dict[Place, Any]:
    """The values that a class, a function or an object reads from modules and classes of one's own, and what it holds.

    Args:
        found: The class, function or object.
        is_own: Whether a module, by its name, is one's own.
    """
    code = list(code_of(found, is_own))
    functions = [each for each in code if isinstance(each, FunctionType)]
    changed = {(_module(each), name) for each in functions for name in _changed(each.__code__)}
    read = (_read(each, is_own) if isinstance(each, FunctionType) else _members(each, is_own) for each in code)
    values = {place: value for each in read for place, value in each if place not in changed}
    return values | ({("", ""): found} if any(_parts(found, is_own)) else {})


def code_of(found: Any, is_own: IsOwn) -> Iterator[FunctionType | type]:
    """The functions and classes of one's own that a value leads to: its methods, what they call, what it holds.

    Args:
        found: The value.
        is_own: Whether a module, by its name, is one's own.
    """
    seen: dict[int, Any] = {}  # and so what has an id stays
    waiting = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _PLAIN + _ARRAYS + (ModuleType,)) or id(value) in seen:
            continue
        seen[id(value)] = value
        inner: list[Any] = [part for _, part in _parts(value, is_own)]
        if isinstance(value, FunctionType):
            if is_own(_module(value)):
                yield value
                inner += [part for _, part in _read(value, is_own)]
        elif isinstance(value, type):
            own = [kind for kind in value.__mro__ if is_own(kind.__module__)]
            yield from own
            inner += [part for kind in own for part in vars(kind).values()]
        elif isinstance(value, _WRAPPED):
            inner += [getattr(value, name) for name in ("fget", "__func__", "func") if hasattr(value, name)]
        elif isinstance(value, _TABLES):
            inner += value.values() if isinstance(value, dict) else value
        elif inner or is_own(type(value).__module__):
            inner.append(type(value))
        waiting += reversed(inner)


def _module(function: FunctionType) -> str:
    """Where a function was written; its ``__module__`` may be that of what it wraps."""
    return str(function.__globals__.get("__name__", ""))


def _parts(value: Any, is_own: IsOwn) -> Iterator[tuple[str, Any]]:
    """What a function is closed over, and what an object holds."""
    if isinstance(value, FunctionType):
        own, changed = is_own(_module(value)), _changed(value.__code__) if value.__closure__ else ()
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        parts = [(name, cell.cell_contents) for name, cell in cells if name not in changed and _is_filled(cell)]
        parts += list((value.__kwdefaults__ or {}).items()) if own else []
        parts += [("default", part) for part in value.__defaults__ or ()] if own else []
        # Tables of packages, and such as are arguments, may change with every call.
        whole = value.__code__.co_freevars if own else ()
        yield from (part for part in parts if part[0] in whole or not isinstance(part[1], list | dict | set))
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, MethodType):
        yield from (("self", value.__self__), ("func", value.__func__))
    elif isinstance(value, (type, ModuleType, *_PLAIN, *_ARRAYS, *_TABLES, *_WRAPPED)):
        return
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif is_own(type(value).__module__):
        left_out = {name for kind in type(value).__mro__ for name in _changed_members(kind, is_own)}
        yield from ((name, part) for name, part in getattr(value, "__dict__", {}).items() if name not in left_out)
    elif hasattr(type(value), "tree_flatten"):  # such as a fedpick Model
        yield from zip(("leaves", "functions"), value.tree_flatten(), strict=True)
    elif hasattr(value, "__wrapped__"):
        yield "", value.__wrapped__


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a name that has no value yet
        return False


def _read(function: FunctionType, is_own: IsOwn) -> Iterator[tuple[Place, Any]]:
    """The names that a function reads from its module, and from modules of one's own there, with their values."""
    module, names = function.__globals__, {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(name for name in loaded_names(function.__code__) & module.keys() if not name.startswith("__")):
        value = module[name]
        if isinstance(value, ModuleType):
            if is_own(value.__name__):
                own = vars(value)
                read = sorted(part for part in names & own.keys() if part[:2] != "__")
                yield from (((value.__name__, part), own[part]) for part in read if not _is_module(own[part]))
        else:
            yield (_module(function), name), value


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)


def _members(kind: type, is_own: IsOwn) -> Iterator[tuple[Place, Any]]:
    """The numbers, tables and arrays of a class."""
    changed = _changed_members(kind, is_own)
    for name, value in vars(kind).items():
        if isinstance(value, _PLAIN + _TABLES + _ARRAYS) and name[:2] != "__" and name not in changed:
            yield (kind.__module__, f"{kind.__qualname__}.{name}"), value


@functools.lru_cache(maxsize=1024)
def _changed(code: CodeType) -> frozenset[str]:
    """The names around a function that it sets, or whose tables it changes; one of its own may be called the same."""
    tables = {node.id for node in _changed_nodes(code) if isinstance(node, ast.Name)}
    stored = {
        line.argval for part in _codes(code) for line in dis.get_instructions(part) if line.opname == "STORE_GLOBAL"
    }
    around = {name for node in _nodes(code) if isinstance(node, ast.Nonlocal) for name in node.names}
    return frozenset(stored | around | tables & (loaded_names(code) | {*code.co_freevars}))


def _changed_members(kind: type, is_own: IsOwn) -> set[str]:
    """The members of a class or its objects that its methods change, beside those that make an object."""
    if not is_own(kind.__module__):
        return set()
    methods = [each for part in vars(kind).values() if isinstance(each := _unwrapped(part), FunctionType)]
    make = _MAKE | {name for each in methods if each.__name__ in _MAKE for name in each.__code__.co_names}
    cached = {name for name, part in vars(kind).items() if isinstance(part, functools.cached_property)}
    return cached | {
        node.attr
        for each in methods
        if each.__name__ not in make
        for node in _changed_nodes(each.__code__)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls", kind.__name__)
    }


def _unwrapped(value: Any) -> Any:
    """The function of a method that is decorated."""
    return inspect.unwrap(getattr(value, "__func__", value))


@functools.lru_cache(maxsize=1024)
def _changed_nodes(code: CodeType) -> tuple[ast.expr, ...]:
    """What a function changes: tables, and what is set of objects."""
    found: list[ast.expr] = []
    for node in _nodes(code):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.append(node.value)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            found.append(node.func.value)
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def _nodes(code: CodeType) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))))
    except (OSError, SyntaxError):  # a lambda in the middle of a line
        return ()


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


def text_of(value: Any, is_own: IsOwn, above: tuple[int, ...] = ()) -> str:
    """A value such that equal ones are one text.

    Args:
        value: The value.
        is_own: Whether a module, by its name, is one's own.
        above: The ids of what holds it.
    """

    def text(part: Any) -> str:
        return text_of(part, is_own, (*above, id(value)))

    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, _ARRAYS):
        return sum_of_array(value)
    if id(value) in above:
        return "itself"
    if isinstance(value, set | frozenset):
        return repr(sorted(map(text, value)))
    if isinstance(value, dict):
        return repr([(text(key), text(part)) for key, part in value.items()])
    if isinstance(value, list | tuple):
        return repr([type(value).__name__, *map(text, value)])
    called = getattr(value, "__qualname__", None) or type(value).__qualname__
    return repr([str(called), *((name, text(part)) for name, part in _parts(value, is_own))])


def sum_of_array(value: Any) -> str:
    """The type, the shape and the sum of an array, of all its bytes.

    Args:
        value: The array.

    >>> sum_of_array(np.zeros(2)) == sum_of_array(np.array([0.0, 1e-9]))
    False
    """
    if isinstance(value, jax.Array) and id(value) in _SUMS and _SUMS[id(value)][0]() is value:
        return _SUMS[id(value)][1]
    keys = isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.ascontiguousarray(jax.random.key_data(value) if keys else value)
    content: Any = array.reshape(-1)
    if array.dtype.hasobject:
        content = repr([part if isinstance(part, _PLAIN) else type(part).__qualname__ for part in content]).encode()
    else:
        content = content.view(np.uint8)
    text = f"{array.dtype}{np.shape(value)}{hashlib.sha256(content).hexdigest()}"
    if isinstance(value, jax.Array):
        known = id(value)
        _SUMS[known] = weakref.ref(value, lambda _: _SUMS.pop(known, None)), text
    return text
