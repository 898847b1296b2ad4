"""Classes and functions that were typed in, in a notebook or at a prompt: what they are compiled to, as a sum."""

import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

import jax
import numpy as np

from fedpick.storage.values import loaded_names

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.dtype)
_INNER = ("__wrapped__", "__func__", "func")  # where a decorated function has its own
_ADDED = (
    "__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__", "__annotate__",
    "__annotate_func__", "__annotations__", "__class_getitem__",
)  # fmt: skip


def sum_of_cell(found: Any, of_module: Callable[[str], str], strict: bool = True) -> str:
    """The sum of a class or function without a file, and of everything that was typed in and that it refers to.

    Args:
        found: The class or function.
        of_module: The sum of the own files of a module by its name; "" for an installed one.
        strict: Whether to raise where it refers to an object whose content cannot be told.
    """
    seen: dict[int, tuple[int, Any]] = {}  # in the order of reading; and so what has an id stays

    def parts(value: Any, name: str) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            array = np.asarray(value)
            yield f"{array.dtype}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
        elif isinstance(value, set | frozenset):
            yield from sorted("".join(parts(one, name)) for one in value)
        elif isinstance(value, list | tuple | dict):
            yield f"{type(value).__name__}{len(value)}"
            for one in value.items() if isinstance(value, dict) else value:
                yield from parts(one, name)
        elif isinstance(value, CodeType):
            yield value.co_code.hex() + repr((value.co_names, value.co_varnames, value.co_freevars))
            yield from parts(value.co_consts, name)
        elif isinstance(value, ModuleType):
            yield f"{value.__name__} {of_module(value.__name__)}"
        elif id(value) in seen:
            yield f"as {seen[id(value)][0]}"
        else:
            seen[id(value)] = len(seen), value
            yield from inside(value, name)

    def inside(value: Any, name: str) -> Iterator[str]:
        module = getattr(value, "__module__", None)
        if isinstance(module, str) and hasattr(value, "__qualname__") and not is_typed_in(module):
            yield f"{module}.{value.__qualname__} {of_module(module)}"
        elif isinstance(value, type):
            yield value.__qualname__
            yield from parts(value.__bases__, name)
            for own, part in _members(value):
                yield own
                yield from parts(part, own)
        elif isinstance(value, FunctionType):
            yield from parts((value.__code__, value.__defaults__, value.__kwdefaults__), name)
            names = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
            for other, cell in names.items():
                yield from parts(cell.cell_contents, other)
            for other in sorted(loaded_names(value.__code__) & value.__globals__.keys()):
                yield other
                yield from parts(value.__globals__[other], other)
        elif isinstance(value, property):
            yield from parts((value.fget, value.fset, value.fdel), name)
        elif isinstance(value, functools.partial):
            yield from parts((value.func, value.args, value.keywords), name)
        elif dataclasses.is_dataclass(value):
            yield from parts((type(value), [getattr(value, field.name) for field in dataclasses.fields(value)]), name)
        elif (inner := next((getattr(value, own) for own in _INNER if hasattr(value, own)), None)) is not None:
            yield from parts(inner, name)
        elif isinstance(getattr(value, "__name__", None), str) and not is_typed_in(type(value).__module__):
            yield f"{type(value).__qualname__} {value.__name__}"  # such as a ufunc
        elif strict:
            rule = "refer to numbers, texts, arrays, functions and classes alone, or be in a file of its own"
            got = f"{name}, which is of class {type(value).__name__}"
            raise ValueError(f"{found.__qualname__}: what is typed in, to be stored, must {rule}, got {got}")
        else:
            yield type(value).__qualname__

    digest = hashlib.sha256()
    for part in parts(found, found.__qualname__):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def is_typed_in(module: str) -> bool:
    """Whether a module, by its name, is that of a notebook or a prompt, and so in no file."""
    return module == "__main__" and not os.path.isfile(getattr(sys.modules.get(module), "__file__", None) or "")


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class defines, without what Python and ``dataclass`` add."""
    for name, part in sorted(vars(kind).items()):
        added = name in _ADDED and getattr(getattr(part, "__code__", None), "co_filename", "<string>") == "<string>"
        described = isinstance(part, MemberDescriptorType | GetSetDescriptorType)
        if not (added or described or (name.startswith("__") and not callable(part))):
            yield name, part
