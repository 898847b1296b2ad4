"""How many samples are evaluated at a time, so that what a model makes of them fits into memory."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core

from fedpick.sim.federation import Federation
from fedpick.sim.models import Model, Params

LARGEST = 2**27  # bytes of the largest array in an evaluation of a block


def block_size(federation: Federation, model: Model, params: Params, most: int) -> int:
    """A power of two, at most ``most``: as many samples as keep every array in their evaluation below ``LARGEST``.

    Args:
        federation: The data.
        model: The model.
        params: Its parameters, of which the shapes are used.
        most: The size for a model that needs little.
    """
    x = jax.eval_shape(federation.prepare, _shape((most, *federation.x.shape[1:]), federation.x.dtype))
    arguments = (params, x, _shape((most,), federation.y.dtype), model.base)
    leaves, tree = jax.tree.flatten(arguments)
    largest = _largest(model.functions[0], tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    fit = most * LARGEST // max(largest, 1)
    return most if fit >= most else 1 << max(0, fit.bit_length() - 1)


@functools.lru_cache(maxsize=256)
def _largest(losses: Callable[..., Any], tree: Any, shapes: tuple[Any, ...]) -> int:
    """Bytes of the largest array that the losses of these arguments make on the way."""
    params, x, y, base = jax.tree.unflatten(tree, [_shape(*each) for each in shapes])
    traced = jax.make_jaxpr(losses)(params, x, y, None, *(() if base is None else (base,)))
    made = (variable.aval for equation in equations(traced.jaxpr) for variable in equation.outvars)
    return max((math.prod(value.shape) * value.dtype.itemsize for value in made if hasattr(value, "shape")), default=0)


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those of inner functions too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
