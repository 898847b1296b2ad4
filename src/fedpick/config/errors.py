"""What is wrong with plain data, in words: each wrong field by its path."""

import dataclasses
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import cattrs

from fedpick import registry
from fedpick.registry import nearest
from fedpick.text import place


class WrongValueError(ValueError):
    """A sentence about a value, to be put behind its path."""


def sentences_of(error: BaseException, path: str, owner: str) -> Iterable[str]:
    """What is wrong in words, each with the path of the field."""
    if _is_mistake(error):
        yield f"{path} cannot be made: {place(error)}"
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        fields = [field.name for field in dataclasses.fields(error.cl)]
        for extra in sorted(error.extra_fields):
            takes = f"{path or f'an {owner}'} takes {', '.join(fields) or 'nothing'}"
            yield f"{_join(path, extra)} is unknown{nearest(extra, fields)}; {takes}"
    elif isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        noted, others = error.group_exceptions()
        for inner, note in noted:
            yield from sentences_of(inner, _join(path, note.name if hasattr(note, "name") else note.index), owner)
        for inner in others:
            yield from sentences_of(inner, path, owner)
    elif isinstance(error, KeyError):
        yield f"{path} is missing"
    elif isinstance(error, registry.ParameterError):
        yield f"{_join(path, error.parameter)} {error.fault}"
    elif isinstance(error, WrongValueError):
        yield f"{path} {error}"
    elif isinstance(error, cattrs.StructureHandlerNotFoundError):
        kind = getattr(error.type_, "__name__", "an object")
        yield f"{path} must be of a dataclass, whose fields are its settings, got {kind}, which is none"
    elif isinstance(error, TypeError | AttributeError):  # as Python says it of what is no table
        yield f"{path} must be a table"
    else:
        yield f"{error} (in {path})" if path else str(error).removeprefix(f"{owner}: ")


def _join(path: str, part: Any) -> str:
    return f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}" if path else str(part)


def mistakes_in(error: BaseException) -> Iterator[Exception]:
    """The errors that are mistakes in the code of a class, and not in the plain data."""
    for inner in getattr(error, "exceptions", (error,)):
        if inner is not error:
            yield from mistakes_in(inner)
        elif _is_mistake(error):
            yield error


def _is_mistake(error: BaseException) -> TypeGuard[Exception]:
    """Whether code of a class failed by itself: what the converter and the registry refuse are the data."""
    if not isinstance(error, Exception) or isinstance(error, ValueError | OSError | ImportError | ExceptionGroup):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not any(
        part in frames[-1].filename for part in ("cattrs", "fedpick/config/", "fedpick/registry.py")
    )
