"""Models as XLA's CPU backend runs them fast: convolutions in its own layout, pools as comparisons, seats side by side.

In a loop XLA (seen in JAX 0.10) compiles a convolution to plain nested loops, ten times slower, unless its dimensions
are in the order of its library; outside of loops it reorders them itself. The gradients of every convolution have
another order, whatever the model is written with. Here ``losses`` and ``predict`` are traced, and traced again with
each convolution, its gradients and each pool in the other form. On other platforms nothing is replaced.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from fedpick.protocol import init_key
from fedpick.sim.blocks import equations
from fedpick.sim.federation import Federation
from fedpick.sim.models import Model

LARGEST_WINDOW = 16  # places of a pool that are compared one by one
CANONICAL = ("NHWC", "HWIO", "NHWC")


def cpu_form(model: Model, federation: Federation, b: int) -> Model:
    """The same model for a CPU; the very same where its losses are no more than matrix products and sums.

    Args:
        model: The model.
        federation: Its data.
        b: The number of samples in a batch.
    """
    inputs = jax.eval_shape(federation.prepare, _shape((b, *federation.x.shape[1:]), federation.x.dtype))
    arguments = (jax.eval_shape(model.init, init_key(0)), inputs, _shape((b,), federation.y.dtype))
    leaves, tree = jax.tree.flatten((arguments, model.base))
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    if not _more_than_products(model.functions[0], tree, shapes):
        return model
    losses, predict = map(_replaced, model.functions)
    return Model(model.init, losses, predict, model.lowest, base=model.base, batched=False)


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=256)
def _more_than_products(losses: Callable[..., Any], tree: Any, shapes: tuple[Any, ...]) -> bool:
    """Whether the losses have a convolution, a loop, or a product of batches of matrices, as of attention."""
    arguments, base = jax.tree.unflatten(tree, [_shape(*each) for each in shapes])
    rest = () if base is None else (base,)
    found = jax.make_jaxpr(losses)(*arguments, init_key(0), *rest)
    return any(_is_more(equation) for equation in equations(found.jaxpr))


def _is_more(equation: Any) -> bool:
    name = equation.primitive.name
    if name == "dot_general":
        return bool(equation.params["dimension_numbers"][1][0])
    return name in ("conv_general_dilated", "scan", "while")


@functools.lru_cache(maxsize=256)  # the same function gives the same object, and so the same compiled program
def _replaced(function: Callable[..., Array]) -> Callable[..., Array]:
    def traced(*arguments: Any) -> Array:
        closed = jax.make_jaxpr(function)(*arguments)
        (output,) = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        found: Array = output
        return found

    return traced


def _evaluate(jaxpr: Any, consts: Any, arguments: Any) -> list[Any]:
    """The outputs of a jaxpr, its convolutions and pools in the form for a CPU."""
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))
    for equation in jaxpr.eqns:
        inputs = [
            variable.val if isinstance(variable, core.Literal) else values[variable] for variable in equation.invars
        ]
        outputs = _apply(equation, inputs)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [variable.val if isinstance(variable, core.Literal) else values[variable] for variable in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Any]) -> list[Any]:
    name, parameters = equation.primitive.name, equation.params
    if name == "conv_general_dilated" and _is_plain(equation):
        return [_convolution(inputs[0], inputs[1], parameters)]
    if name == "reduce_window_max" and _is_small(equation):
        return [_max_pool(inputs[0], parameters)]
    inner = parameters.get("jaxpr", parameters.get("call_jaxpr"))
    if inner is not None and any(_is_slow(equation) for equation in equations(getattr(inner, "jaxpr", inner))):
        if name in ("jit", "pjit", "closed_call", "core_call"):
            return _evaluate(inner.jaxpr, inner.consts, inputs)
        if name in ("checkpoint", "remat2"):
            again = functools.partial(_evaluate, inner, ())
            options = {key: parameters[key] for key in ("prevent_cse", "policy")}
            return list(jax.checkpoint(lambda *arguments: again(arguments), **options)(*inputs))
        if name == "scan":
            return _scan(inner, inputs, parameters)
    found = equation.primitive.get_bind_params(parameters)
    functions, parameters = found if isinstance(found, tuple) else ((), found)  # a pair up to JAX 0.9
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*functions, *inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _is_slow(equation: Any) -> bool:
    return equation.primitive.name in ("conv_general_dilated", "reduce_window_max")


def _scan(inner: Any, inputs: list[Any], parameters: dict[str, Any]) -> list[Any]:
    """A loop in the model itself, with its body in the form for a CPU."""
    constants, carried = parameters["num_consts"], parameters["num_carry"]
    fixed, begin, sliced = inputs[:constants], inputs[constants : constants + carried], inputs[constants + carried :]

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _evaluate(inner.jaxpr, inner.consts, [*fixed, *carry, *x])
        return outputs[:carried], outputs[carried:]

    options = {key: parameters[key] for key in ("length", "reverse", "unroll")}
    end, stacked = lax.scan(body, begin, sliced, **options)
    return [*end, *stacked]


def _is_plain(equation: Any) -> bool:
    """Whether a convolution is of images and in one group."""
    groups = equation.params["feature_group_count"], equation.params["batch_group_count"]
    return groups == (1, 1) and equation.invars[0].aval.ndim == 4


def _convolution(x: Array, w: Array, parameters: dict[str, Any]) -> Array:
    """A convolution with its dimensions, and those of its gradients, in the order of the library."""
    numbers = parameters["dimension_numbers"]
    x_order, w_order, y_order = (_order(spec) for spec in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec))
    last_first = (w_order[2], w_order[3], w_order[1], w_order[0])  # spatial, in, out
    geometry = tuple(
        tuple(map(tuple, parameters[name])) if name == "padding" else tuple(parameters[name])
        for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    )
    channels_last = (x_order[0], x_order[2], x_order[3], x_order[1])
    y = _canonical(x.transpose(channels_last), w.transpose(last_first), geometry, parameters["precision"])
    place = {axis: at for at, axis in enumerate((y_order[0], y_order[2], y_order[3], y_order[1]))}
    return y.transpose([place[axis] for axis in range(4)])


def _order(spec: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in spec)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _canonical(x: Array, w: Array, geometry: tuple[Any, ...], precision: Any) -> Array:
    strides, padding, x_dilation, w_dilation = geometry
    return lax.conv_general_dilated(
        x, w, strides, padding, x_dilation, w_dilation, dimension_numbers=CANONICAL, precision=precision
    )


def _forward(x: Array, w: Array, geometry: tuple[Any, ...], precision: Any) -> tuple[Array, tuple[Array, Array]]:
    return _canonical(x, w, geometry, precision), (x, w)


def _backward(geometry: tuple[Any, ...], precision: Any, saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    """Both gradients are convolutions: of dy with the mirrored kernel, and of x with dy."""
    x, w = saved
    strides, padding, x_dilation, w_dilation = geometry
    to_x, to_w = [], []
    for axis, (stride, (low, _), dilated, apart) in enumerate(
        zip(strides, padding, x_dilation, w_dilation, strict=True)
    ):
        size, kernel, given = ((array.shape[at] - 1) for array, at in ((x, axis + 1), (w, axis), (dy, axis + 1)))
        reach, long, wide = apart * kernel, dilated * size + 1, stride * given + 1  # of the kernel, of x and of dy
        before = reach - low
        to_x.append((before, long + reach - wide - before))
        to_w.append((low, wide + reach - long - low))
    mirrored = w[::-1, ::-1].transpose(0, 1, 3, 2)
    options: dict[str, Any] = {"dimension_numbers": CANONICAL, "precision": precision}
    dx = lax.conv_general_dilated(dy, mirrored, x_dilation, to_x, strides, w_dilation, **options)
    turned, given_last = x.transpose(3, 1, 2, 0), dy.transpose(1, 2, 0, 3)
    dw = lax.conv_general_dilated(turned, given_last, w_dilation, to_w, x_dilation, strides, **options)
    return dx, dw.transpose(1, 2, 0, 3)


_canonical.defvjp(_forward, _backward)


def _is_small(equation: Any) -> bool:
    """Whether a pool has few places, and none between others."""
    places, parameters = 1, equation.params
    for size in parameters["window_dimensions"]:
        places *= size
    dilations = (*parameters["base_dilation"], *parameters["window_dilation"])
    floats = jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating)
    return places <= LARGEST_WINDOW and set(dilations) == {1} and floats


def _max_pool(x: Array, parameters: dict[str, Any]) -> Array:
    """The maximum over windows, one place after the other; the gradient goes to the first of equal ones, as in XLA."""
    window, strides = parameters["window_dimensions"], parameters["window_strides"]
    x = lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), [(low, high, 0) for low, high in parameters["padding"]])
    for axis, (size, stride) in reversed(list(enumerate(zip(window, strides, strict=True)))):
        last = (x.shape[axis] - size) // stride * stride
        places = [lax.slice_in_dim(x, at, at + last + 1, stride, axis) for at in range(size)]
        x = places[0]
        for other in places[1:]:
            x = jnp.where((x >= other) | (x != x), x, other)
    return x
