"""Frozen dataclasses that JAX can take apart: what every strategy is made of."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

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
