"""Frozen dataclasses that JAX can take apart: what every strategy is made of."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

Class = TypeVar("Class")


def static(**options: Any) -> Any:
    """A field that sets shapes or branches: part of the compiled program, not an input to it.

    >>> @pytree
    ... class Shape:
    ...     m: int = static()
    ...     d: int = 3
    >>> jax.tree.leaves(Shape(m=5))
    [3]
    """
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(kind: type[Class]) -> type[Class]:
    """Make a class a frozen dataclass and a pytree whose leaves are the fields that are not ``static``.

    Unlike ``jax.tree_util.register_dataclass`` (seen in JAX 0.10), it tells classes with the same fields apart: there
    their tree structures compare equal, and ``jit`` now and then runs one strategy with the program of another.

    >>> @pytree
    ... class One:
    ...     m: int = static()
    >>> @pytree
    ... class Other:
    ...     m: int = static()
    >>> jax.tree.structure(One(1)) == jax.tree.structure(Other(1))
    False
    """
    made = dataclasses.dataclass(frozen=True)(kind)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    data = tuple(field.name for field in fields if not field.metadata.get("static"))
    meta = tuple(field.name for field in fields if field.metadata.get("static"))

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in data), tuple(getattr(value, name) for name in meta)

    def flatten_with_keys(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, aux = flatten(value)
        return tuple(zip(map(jax.tree_util.GetAttrKey, data), leaves, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], leaves: Iterable[Any]) -> Class:
        # Not through __init__: JAX fills its trees with gradients, axes and placeholders, which no rule is made for.
        value = object.__new__(made)
        for name, part in (*zip(data, leaves, strict=True), *zip(meta, aux, strict=True)):
            object.__setattr__(value, name, part)
        return value

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


def leaves_by_name(value: Any) -> list[tuple[str, Any]]:
    """The leaves of a pytree in their order, each with the names of the fields that lead to it.

    >>> @pytree
    ... class Point:
    ...     at: tuple[int, int]
    >>> leaves_by_name(Point((3, 4)))
    [('at.0', 3), ('at.1', 4)]
    """
    found = jax.tree_util.tree_leaves_with_path(value)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in found]


def whole_fields(value: Any) -> frozenset[str]:
    """The names, as in ``leaves_by_name``, of the fields that are declared to hold an array and not one number.

    They are those of a type such as ``Float[Array, " K"]`` or ``jax.Array``; ``float | Float[Array, ""]`` is a number.

    >>> from jaxtyping import Array, Float
    >>> @pytree
    ... class Prior:
    ...     weight: Float[Array, " K"]
    ...     power: float | Float[Array, ""] = 1.0
    >>> sorted(whole_fields(Prior(weight=[0.5, 0.5])))
    ['weight.0', 'weight.1']
    """
    found: set[str] = set()
    if isinstance(value, list | tuple):
        fields = {str(place): (part, Any) for place, part in enumerate(value)}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _types_of(type(value))
        fields = {field.name: (getattr(value, field.name), hints[field.name]) for field in dataclasses.fields(value)}
    else:
        fields = {}
    for name, (part, declared) in fields.items():
        inner = {own for own, _ in leaves_by_name(part)} if _is_array(declared) else whole_fields(part)
        found |= {f"{name}.{own}" if own else name for own in inner}
    return frozenset(found)


def _types_of(kind: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError):  # a text that means nothing where it is read
        return {field.name: field.type for field in dataclasses.fields(kind)}


def _is_array(declared: Any) -> bool:
    """Whether a type is that of an array which is not a single number."""
    if isinstance(declared, str):  # its names mean nothing here: they may be imported for type checkers alone
        axes = re.findall(r"""\[[^]"']*(["'])(.*?)\1\s*\]""", declared)
        names = {option.strip().rpartition(".")[2] for option in declared.split("|")} - {"None"}
        return any(axis.strip() for _, axis in axes) or names in ({"Array"}, {"ndarray"}, {"Array", "ndarray"})
    union = typing.get_origin(declared) in (typing.Union, types.UnionType)
    options = [option for option in (typing.get_args(declared) if union else (declared,)) if option is not type(None)]
    bare = [option in (jax.Array, np.ndarray) or typing.get_origin(option) is np.ndarray for option in options]
    return any(getattr(option, "dims", ()) for option in options) or (bool(bare) and all(bare))
