"""Convolutions and pools as a platform runs them fast where several clients train at once, in anybody's model.

On a CPU, XLA (seen in JAX 0.10) compiles a convolution in a loop to plain nested loops, ten times slower, unless its
dimensions are in the order of its library; outside of loops it reorders them itself. The gradients of every convolution
have another order. On a GPU the clients' own kernels make it a convolution in groups, which its library runs several
times slower than products of matrices: there it becomes patches times a matrix. Pools become comparisons.

Here ``losses`` and ``predict`` are traced, and traced again with each convolution, its gradients and each pool in the
other form.
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
LARGEST_PATCHES = 2**20  # bytes of a sample's patches, up to which they are worth the memory
BATCHES = "products of batches of matrices"  # as of attention
SLOW = ("conv_general_dilated", "reduce_window_max")
SLOW_ON_CPU = ("conv_general_dilated", "scan", "while", BATCHES)
Convolution = Callable[[Array, Array, dict[str, Any]], Array]


def cpu_form(model: Model, federation: Federation, b: int) -> Model:
    """The same model for a CPU; the very same where its losses are no more than matrix products and sums.

    Args:
        model: The model.
        federation: Its data.
        b: The number of samples in a batch.
    """
    return _form(model, federation, b, in_order, SLOW_ON_CPU, batched=False)


def gpu_form(model: Model, federation: Federation, b: int) -> Model:
    """The same model for a GPU on which several clients train at once; the very same where it has no convolution.

    Args:
        model: The model.
        federation: Its data.
        b: The number of samples in a batch.
    """
    return _form(model, federation, b, by_patches, SLOW, batched=True)


def only_products(model: Model, federation: Federation, b: int) -> bool:
    """Whether a model's losses are no more than matrix products and sums.

    Args:
        model: The model.
        federation: Its data.
        b: The number of samples in a batch.
    """
    return not _has(model, federation, b, SLOW_ON_CPU)


def _form(
    model: Model, federation: Federation, b: int, convolution: Convolution, slow: tuple[str, ...], batched: bool
) -> Model:
    if not _has(model, federation, b, slow):
        return model
    losses, predict = (replaced(function, convolution) for function in model.functions)
    logits = None if model.apply is None else replaced(model.apply, convolution)
    return Model(model.init, losses, predict, model.lowest, base=model.base, batched=batched, logits=logits)


def _has(model: Model, federation: Federation, b: int, names: tuple[str, ...]) -> bool:
    inputs = jax.eval_shape(federation.prepare, _shape((b, *federation.x.shape[1:]), federation.x.dtype))
    arguments = (jax.eval_shape(model.init, init_key(0)), inputs, _shape((b,), federation.y.dtype))
    leaves, tree = jax.tree.flatten((arguments, model.base))
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return not _operations(model.functions[0], tree, shapes).isdisjoint(names)


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=256)
def _operations(losses: Callable[..., Any], tree: Any, shapes: tuple[Any, ...]) -> set[str]:
    """The names of the operations of the losses; ``BATCHES`` stands for products of batches of matrices."""
    arguments, base = jax.tree.unflatten(tree, [_shape(*each) for each in shapes])
    rest = () if base is None else (base,)
    found = jax.make_jaxpr(losses)(*arguments, init_key(0), *rest)
    return {_operation(equation) for equation in equations(found.jaxpr)}


def _operation(equation: Any) -> str:
    name: str = equation.primitive.name
    return BATCHES if name == "dot_general" and equation.params["dimension_numbers"][1][0] else name


@functools.lru_cache(maxsize=256)  # the same function gives the same object, and so the same compiled program
def replaced(function: Callable[..., Array], convolution: Convolution) -> Callable[..., Array]:
    """The same function with its convolutions computed by another, and its pools by comparisons.

    Args:
        function: A pure function of arrays with one output.
        convolution: ``in_order`` or ``by_patches``.
    """

    def traced(*arguments: Any) -> Array:
        closed = jax.make_jaxpr(function)(*arguments)
        (output,) = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), convolution)
        found: Array = output
        return found

    return traced


def _evaluate(jaxpr: Any, consts: Any, arguments: Any, convolution: Convolution) -> list[Any]:
    """The outputs of a jaxpr, its convolutions and pools in the other form."""
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))
    for equation in jaxpr.eqns:
        inputs = [
            variable.val if isinstance(variable, core.Literal) else values[variable] for variable in equation.invars
        ]
        outputs = _apply(equation, inputs, convolution)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [variable.val if isinstance(variable, core.Literal) else values[variable] for variable in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Any], convolution: Convolution) -> list[Any]:
    name, parameters = equation.primitive.name, equation.params
    if name == "conv_general_dilated" and _is_plain(equation):
        return [convolution(inputs[0], inputs[1], parameters)]
    if name == "reduce_window_max" and _is_small(equation):
        return [_max_pool(inputs[0], parameters)]
    inner = parameters.get("jaxpr", parameters.get("call_jaxpr"))
    if inner is not None and any(_operation(one) in SLOW for one in equations(getattr(inner, "jaxpr", inner))):
        if name in ("jit", "pjit", "closed_call", "core_call"):
            return _evaluate(inner.jaxpr, inner.consts, inputs, convolution)
        if name in ("checkpoint", "remat2"):
            options = {key: parameters[key] for key in ("prevent_cse", "policy")}
            return list(jax.checkpoint(lambda *found: _evaluate(inner, (), found, convolution), **options)(*inputs))
        if name == "scan":
            return _scan(inner, inputs, parameters, convolution)
    found = equation.primitive.get_bind_params(parameters)
    functions, parameters = found if isinstance(found, tuple) else ((), found)  # a pair up to JAX 0.9
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*functions, *inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _scan(inner: Any, inputs: list[Any], parameters: dict[str, Any], convolution: Convolution) -> list[Any]:
    """A loop in the model itself, with its body in the other form."""
    constants, carried = parameters["num_consts"], parameters["num_carry"]
    fixed, begin, sliced = inputs[:constants], inputs[constants : constants + carried], inputs[constants + carried :]

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _evaluate(inner.jaxpr, inner.consts, [*fixed, *carry, *x], convolution)
        return outputs[:carried], outputs[carried:]

    options = {key: parameters[key] for key in ("length", "reverse", "unroll")}
    end, stacked = lax.scan(body, begin, sliced, **options)
    return [*end, *stacked]


def _is_plain(equation: Any) -> bool:
    """Whether a convolution is of images and in one group."""
    groups = equation.params["feature_group_count"], equation.params["batch_group_count"]
    return groups == (1, 1) and equation.invars[0].aval.ndim == 4


def in_order(x: Array, w: Array, parameters: dict[str, Any]) -> Array:
    """A convolution with its dimensions, and those of its gradients, in the order of the CPU's library."""
    return _channels_last(x, w, parameters, _canonical)


def by_patches(x: Array, w: Array, parameters: dict[str, Any]) -> Array:
    """A convolution as a product of matrices, unless it is dilated or its patches are large."""
    return _channels_last(x, w, parameters, _patches)


def _channels_last(
    x: Array, w: Array, parameters: dict[str, Any], convolution: Callable[[Array, Array, tuple[Any, ...], Any], Array]
) -> Array:
    numbers = parameters["dimension_numbers"]
    x_order, w_order, y_order = (_order(spec) for spec in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec))
    last_first = (w_order[2], w_order[3], w_order[1], w_order[0])  # spatial, in, out
    geometry = tuple(
        tuple(map(tuple, parameters[name])) if name == "padding" else tuple(parameters[name])
        for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    )
    channels_last = (x_order[0], x_order[2], x_order[3], x_order[1])
    y = convolution(x.transpose(channels_last), w.transpose(last_first), geometry, parameters["precision"])
    place = {axis: at for at, axis in enumerate((y_order[0], y_order[2], y_order[3], y_order[1]))}
    return y.transpose([place[axis] for axis in range(4)])


def _patches(x: Array, w: Array, geometry: tuple[Any, ...], precision: Any) -> Array:
    """By slices, whose gradient is a sum: that of a gather of patches would be a convolution again."""
    strides, padding, x_dilation, w_dilation = geometry
    height, width, inputs, outputs = w.shape
    x_padded = jax.eval_shape(lambda x: _padded(x, padding), x).shape
    down, across = ((x_padded[axis + 1] - w.shape[axis]) // strides[axis] + 1 for axis in (0, 1))
    size = down * across * height * width * inputs * x.dtype.itemsize
    if {*x_dilation, *w_dilation} != {1} or size > LARGEST_PATCHES or min(down, across) < 1:
        return lax.conv_general_dilated(
            x, w, strides, padding, x_dilation, w_dilation, dimension_numbers=CANONICAL, precision=precision
        )
    x, (one, other) = _padded(x, padding), strides
    places = [
        x[:, i : i + (down - 1) * one + 1 : one, j : j + (across - 1) * other + 1 : other]
        for i in range(height)
        for j in range(width)
    ]
    rows = jnp.concatenate(places, axis=3).reshape(-1, height * width * inputs)
    y = jnp.matmul(rows, w.reshape(-1, outputs), precision=precision)
    return y.reshape(x.shape[0], down, across, outputs)


def _padded(x: Array, padding: Any) -> Array:
    """With zeros around, or without its rim where the padding is negative."""
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)])


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
