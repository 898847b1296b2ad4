"""Plain data for TOML and JSON to and from fedpick's own dataclasses: one converter over the registry.

A field that is annotated with a role (``Selector``, ``Availability``, ...) is a table whose ``kind`` is a name of the
registry, or "package.module:Class". Other fields are what their types say, and unknown ones are refused.
"""

import dataclasses
import functools
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

import cattrs
import numpy as np

from fedpick import registry
from fedpick.config.arrays import axes_of, is_array, read_array
from fedpick.config.errors import WrongValueError, mistakes_in, sentences_of
from fedpick.registry import nearest
from fedpick.text import few_lines, shown
from fedpick.validation import known

Plain = dict[str, Any]
_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


def structure(plain: Any, kind: type[Any], owner: str) -> Any:
    """The object of this class that plain data describe; an error names each wrong field by its path.

    Args:
        plain: Plain data: tables, lists and values, as in TOML.
        kind: The class.
        owner: What error messages begin with.

    >>> from fedpick.sim import Local
    >>> structure({"tau": 2, "b": 5, "eta": 0.1}, Local, "local").tau
    2
    """
    try:
        return _CONVERTER.structure(plain, kind)
    except cattrs.BaseValidationError as error:
        sentences = few_lines(f"{owner}: {sentence}" for sentence in sentences_of(error, "", owner))
        raise ValueError(sentences) from next(mistakes_in(error), None)


def unstructure(value: Any, role: str = "") -> Any:
    """Plain data that ``structure`` turns back, defaults included.

    Args:
        value: The object.
        role: A role such as "Selector": the name of the object in it is written as ``kind``.

    >>> from fedpick import strategy
    >>> unstructure(strategy("rand", m=3), "Selector")
    {'kind': 'rand', 'm': 3}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {name: _unstructure_field(getattr(value, name), kind) for name, kind in types_of(type(value)).items()}
        if not role:
            return plain
        name = registry.name_of(role, value)
        for field, fixed in registry.find(role, name).fixed.items():
            inner = plain.pop(field)
            if registry.is_address(fixed):
                plain |= {key: part for key, part in inner.items() if key != "kind"}
        return {"kind": name, **plain}
    if isinstance(value, Mapping):
        return {name: unstructure(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [unstructure(part, role) for part in value]
    if value is None or isinstance(value, str | bool):
        return value
    numbers = known(value)
    if numbers is None:
        return os.fspath(value) if isinstance(value, os.PathLike) else registry.address_of(value)
    if numbers.ndim == 0 and not np.isfinite(numbers):
        return str(numbers)  # which JSON has no number for
    return numbers.tolist()


def _unstructure_field(value: Any, annotation: Any) -> Any:
    """A field as plain data; an object of another class than the one that the field declares has its address."""
    plain, declared = unstructure(value, item_role(annotation)), (annotation, *get_args(annotation))
    other = dataclasses.is_dataclass(type(value)) and not item_role(annotation) and type(value) not in declared
    return {"kind": registry.address_of(type(value)), **plain} if other else plain


def describe(value: Any, role: str = "Selector", *, defaults: bool = False) -> str:
    """An object in a few words: its name and its parameters, less those at their defaults; those it holds first.

    Args:
        value: The object.
        role: Its role, which has its name.
        defaults: Whether parameters at their defaults are named, too, but for those that are None or empty.

    >>> from fedpick import strategy
    >>> describe(strategy("rpow-d", m=3, d=50))
    'rpow-d, m = 3, d = 50'
    >>> describe(strategy("cooldown", selector=strategy("rand", m=3), rounds=8))
    'cooldown(rand, m = 3), rounds = 8'
    >>> describe(strategy("cooldown", selector=strategy("rand", m=3)), defaults=True)
    'cooldown(rand, m = 3), rounds = 5'
    """
    plain = unstructure(value, role)
    fixed = registry.find(role, plain["kind"]).fixed.items()
    owners = [value, *(getattr(value, field) for field, part in fixed if registry.is_address(part))]
    for owner in () if defaults else owners:
        for field in dataclasses.fields(owner):
            if field.default is not dataclasses.MISSING and _same(getattr(owner, field.name), field.default):
                plain.pop(field.name, None)
    held = [name for name, kind in types_of(type(value)).items() if item_role(kind) == role and plain.pop(name, None)]
    inner = [part for name in held for part in _several(getattr(value, name))]
    name = plain.pop("kind") + (
        f"({'; '.join(describe(part, role, defaults=defaults) for part in inner)})" if inner else ""
    )
    shown = {path: part for path, part in leaves(plain).items() if not (defaults and part in (None, "", []))}
    return ", ".join([name, *(f"{path} = {part}" for path, part in shown.items())])


def leaves(plain: Any, path: str = "") -> Plain:
    """Every setting of plain data by its path.

    Args:
        plain: Plain data: tables, lists and values, as in TOML.
        path: What every path begins with.

    >>> leaves({"local": {"tau": 2}})
    {'local.tau': 2}
    >>> leaves({"selectors": [{"m": 3}, {"m": 3}]})
    {'selectors.0.m': 3, 'selectors.1.m': 3}
    """
    if isinstance(plain, list) and any(isinstance(part, dict) for part in plain):
        plain = dict(enumerate(plain))
    if not isinstance(plain, dict):
        return {path: plain}
    found: Plain = {}
    for name, value in plain.items():
        found |= leaves(value, f"{path}.{name}" if path else str(name))
    return found


def list_depth(annotation: Any) -> int:
    """How deep the lists are that a field of this type holds: 1 for a tuple or a vector, 0 for one number."""
    if _is_union(annotation):
        return max(map(list_depth, get_args(annotation)))
    if is_array(annotation):
        return axes_of(annotation)
    return int(get_origin(annotation) in (tuple, list))


def types_of(kind: Any) -> Mapping[str, Any]:
    """The fields of a dataclass and their types."""
    hints = _hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def role_of(annotation: Any) -> str:
    """The role of a field, by the protocol that it is annotated with; "" where it has none."""
    for part in (annotation, *(get_args(annotation) if _is_union(annotation) else ())):
        name = getattr(get_origin(part) or part, "__name__", "")
        if name in registry.ROLES:
            return str(name)
    return ""


def item_role(annotation: Any) -> str:
    """The role of a field, or of each item of a field that holds several."""
    return role_of(annotation) or (role_of(get_args(annotation)[0]) if get_origin(annotation) is tuple else "")


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (typing.Union, types.UnionType)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False


def _strict(kind: type[Any], words: str, accepted: tuple[type[Any], ...]) -> Any:
    def read(value: Any, _: Any) -> Any:
        if kind is float and value in ("inf", "-inf"):
            return float(value)
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise WrongValueError(f"must be {words}, got {shown(value)}")
        if kind is int and not -(2**31) < value < 2**31:
            raise WrongValueError(f"must be below 2**31, got {value}")
        return kind(value)

    return read


_NUMBER = _strict(float, "a number", (int, float))
_WHOLE = _strict(int, "a whole number", (int,))
_TEXT = _strict(str, "a text", (str,))


def _read_word(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise WrongValueError(f"must be one of {listed}, got {shown(value)}{nearest(value, choices)}")
    return value


def _read_role(value: Any, annotation: Any) -> Any:
    """An object of a role from its table; a name that fixes an inner object takes that object's fields, too."""
    if dataclasses.is_dataclass(value):
        return value
    if not isinstance(value, Mapping):
        raise WrongValueError(f"must be a table with a kind, got {shown(value)}")
    if "kind" not in value:
        raise WrongValueError(f"must have a kind, got {shown(dict(value))}")
    role, fields = role_of(annotation), dict(value)
    name, rows = fields.pop("kind"), registry.ROLES[role]
    if name not in rows and not registry.is_address(name):
        raise WrongValueError(f"must have a kind among {', '.join(rows)}, got {shown(name)}{nearest(name, rows)}")
    if role == "ModelSpec" and registry.is_address(name) and _is_network(registry.load(name, objects=True)):
        name, fields["net"] = "network", name
    return registry.build(role, name, fields, make=lambda kind, given: _CONVERTER.structure(given, kind))


def _is_network(found: Any) -> bool:
    """Whether this is a ``Model``, or a network of another library, and no description that builds one."""
    called = not isinstance(found, type) or any("__call__" in vars(kind) for kind in found.__mro__)
    return called and not hasattr(found, "build")


def _read_union(value: Any, annotation: Any) -> Any:
    """A value of one of several types: a number, a vector, a text, a table with a kind, or nothing."""
    members = get_args(annotation)
    if value is None and type(None) in members:
        return None
    if role_of(annotation) and (isinstance(value, Mapping) or dataclasses.is_dataclass(value)):
        return _read_role(value, annotation)
    if isinstance(value, list):
        for member in members:
            if list_depth(member):
                return _CONVERTER.structure(value, member)
    if str in members and (isinstance(value, str) or not {int, float} & set(members)):
        return _TEXT(value, str)
    if float in members:
        return _NUMBER(value, float)
    if int in members:
        return _WHOLE(value, int)
    inner = [member for member in members if member is not type(None)]
    return _read_role(value, annotation) if role_of(annotation) else _CONVERTER.structure(value, inner[0])


def _read_list(value: Any, annotation: Any) -> Any:
    """A tuple or a list, item by item; a text is none, though it could be taken apart, nor is a table."""
    if not isinstance(value, list | tuple):
        raise WrongValueError(f"must be a list, got {shown(value)}")
    kinds = get_args(annotation)
    kinds = kinds[:1] * len(value) if len(kinds) == 1 or kinds[1:] == (...,) else kinds
    if len(kinds) != len(value):
        raise WrongValueError(f"must be a list of {len(kinds)}, got {shown(value)}")
    items, errors = [], []
    for place, (item, kind) in enumerate(zip(value, kinds, strict=True)):
        try:
            items.append(_CONVERTER.structure(item, kind))
        except Exception as error:
            error.add_note(cattrs.IterableValidationNote(f"in place {place}", place, kind))
            errors.append(error)
    if errors:
        raise cattrs.IterableValidationError("in a list", errors, annotation)
    return get_origin(annotation)(items)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, list)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(int, _WHOLE)
    converter.register_structure_hook(float, _NUMBER)
    converter.register_structure_hook(bool, _strict(bool, "true or false", (bool,)))
    converter.register_structure_hook(str, _TEXT)
    converter.register_structure_hook_func(lambda kind: getattr(kind, "__origin__", None) is Literal, _read_word)
    converter.register_structure_hook_func(is_array, read_array)
    converter.register_structure_hook_func(_is_list, _read_list)
    converter.register_structure_hook_func(lambda kind: bool(role_of(kind)), _read_role)
    converter.register_structure_hook_func(_is_union, _read_union)
    return converter


_CONVERTER = _converter()
