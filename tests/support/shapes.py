"""The type checker of ``--jaxtyping-packages``: the shapes and dtypes of arrays that functions take and return.

Constructors and other kinds of arguments have errors of fedpick's own, which the tests hold; beartype would be first.
"""

import inspect
import types
import typing

import beartype
import jaxtyping


def check(function):
    if function.__name__ == "__init__":
        return function
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _arrays(hint)}
    return beartype.beartype(function)


def _arrays(hint):
    """Whether it is an array, or a tuple or union of arrays and anything or nothing."""
    return _only_arrays(hint) and "jaxtyping" in repr(hint)


def _only_arrays(hint):
    if typing.get_origin(hint) in (tuple, typing.Union, types.UnionType):
        return all(map(_only_arrays, typing.get_args(hint)))
    array = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return array or hint in (typing.Any, None, type(None))
