"""Local training of dense networks on a GPU as one kernel: a seat's weights stay in the cache for all its steps.

XLA runs each step as some twenty kernels, between which weights, gradients and prepared inputs go through memory. Here
a block of threads plays all steps of a seat: it gathers the stored inputs, and updates the weights in place. Products
are in TF32, as XLA's are, those with inputs that are stored as bytes in float16, which has as many digits. Whatever
else a model or its training has, ``kernel_form`` leaves to XLA.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fedpick.sim.federation import Federation
from fedpick.sim.layers import kept
from fedpick.sim.local import Local, Trained, draw_rows
from fedpick.sim.models import Dense, Model, Params

LEAST = 16  # rows and columns of a product on the matrix units
CHUNK = 128  # inputs at a time
WIDEST = 128  # units of a layer that a block of threads holds
WARPS, STAGES = 4, 2
SCALE = 1024.0  # of gradients in float16, lest small ones have fewer digits


def kernel_form(model: Model, federation: Federation, local: Local) -> Model:
    """The same model for many seats on a GPU: training is one kernel where it is a dense network and plain SGD.

    Args:
        model: The model.
        federation: Its data.
        local: Local training.
    """
    dense = model.dense
    plain = local.optimizer == "sgd" and local.prox is None and local.batches != "epochs"
    if dense is None or not plain or federation.host is not None:
        return model
    if dense.widths[0] % LEAST or max(dense.widths[1:]) > WIDEST or local.b > WIDEST:
        return model
    own: Any = {"base": model.base, "dense": dense, "logits": model.apply, "trainer": _trainer(dense)}
    return Model(model.init, *model.functions, model.lowest, **own)


@functools.cache  # the same network gives the same object, and so the same compiled program
def _trainer(dense: Dense) -> Callable[..., Trained]:
    return functools.partial(train_dense, dense)


class _Plan(NamedTuple):
    """What the kernel is compiled for."""

    dense: Dense
    prepare: Any
    tau: int
    padded: tuple[int, ...]  # units of each layer, as powers of two
    interpret: bool

    def short(self, x: Any) -> Any:
        """The numbers that a product with the inputs takes: bytes, and weights, are not too large for float16."""
        return jnp.float16 if x.dtype == jnp.uint8 else jnp.float32


def train_dense(
    dense: Dense,
    federation: Federation,
    local: Local,
    *,
    params: Params,
    clients: Int[Array, " m"],
    keys: Key[Array, " m"],
    t: Int[Array, ""],
    interpret: bool = False,
) -> Trained:
    """As ``train_seats``, for a dense network.

    Args:
        dense: The network.
        federation: The clients and their data.
        local: Local training.
        params: Parameters of the global model, where the steps start.
        clients: The clients.
        keys: A random key for each.
        t: The round, for the learning rate.
        interpret: Whether to run without a GPU, slowly; for tests.
    """
    b = max(LEAST, pl.next_power_of_2(local.b))
    hidden = dense.widths[-2]

    def draw(client: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, ...]:
        batch_key, noise_key = jax.random.split(key)
        row, used = draw_rows(federation, local, client, batch_key)
        part = used[0].astype(jnp.float32) / used[0].sum().astype(jnp.float32)
        spare = b - local.b
        row, part = jnp.pad(row, ((0, 0), (0, spare))), jnp.pad(part, (0, spare))
        if not dense.dropout or len(dense.widths) < 3:
            return row, federation.y[row], part
        noise = jax.random.split(noise_key, local.tau)
        mask = jax.vmap(lambda key: kept(key, dense.dropout, (local.b, hidden)))(noise)
        width = pl.next_power_of_2(max(LEAST, hidden))
        return row, federation.y[row], part, jnp.pad(mask, ((0, 0), (0, spare), (0, width - hidden))).astype(jnp.int8)

    drawn = jax.vmap(draw)(clients, keys)
    padded = tuple(pl.next_power_of_2(max(LEAST, width)) for width in dense.widths[1:])
    layers = []
    for at, layer in enumerate(params if isinstance(params, list) else [params]):
        rows = 0 if at == 0 else padded[at - 1] - dense.widths[at]
        columns = padded[at] - dense.widths[at + 1]
        layers += [jnp.pad(layer["w"], ((0, rows), (0, columns))), jnp.pad(layer["b"], (0, columns))]
    eta = jnp.asarray(local.eta, jnp.float32) * local.schedule(t)
    decay = jnp.asarray(0.0 if local.weight_decay is None else local.weight_decay, jnp.float32)
    plan = _Plan(dense, federation.prepare, local.tau, padded, interpret)
    x = federation.x.reshape(federation.x.shape[0], -1)
    *trained, loss = _call(plan, x, drawn, jnp.stack([eta, 1 - eta * decay]), layers)
    found = [
        {"w": w[:, :fan_in, :fan_out], "b": bias[:, :fan_out]}
        for w, bias, (fan_in, fan_out) in zip(
            trained[::2], trained[1::2], itertools.pairwise(dense.widths), strict=True
        )
    ]
    return Trained(found if isinstance(params, list) else found[0], loss.sum(axis=1) / local.tau)


def _call(plan: _Plan, x: Array, drawn: tuple[Array, ...], rates: Array, layers: list[Array]) -> list[Array]:
    m = drawn[0].shape[0]

    def whole(array: Array) -> Any:
        return pl.BlockSpec(array.shape, lambda seat: (0,) * array.ndim)

    def own(shape: tuple[int, ...]) -> Any:
        return pl.BlockSpec((None, *shape), lambda seat: (seat, *[0] * len(shape)))

    b = drawn[0].shape[2]
    shapes = [*(layer.shape for layer in layers), (b,)]
    found: list[Array] = pl.pallas_call(
        functools.partial(_kernel, plan),
        grid=(m,),
        in_specs=[whole(x), *(own(part.shape[1:]) for part in drawn), whole(rates), *map(whole, layers)],
        out_specs=[own(shape) for shape in shapes],
        out_shape=[jax.ShapeDtypeStruct((m, *shape), jnp.float32) for shape in shapes],  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=plan.interpret,
        name="dense_training",
    )(x, *drawn, rates, *layers)
    return found


def _kernel(plan: _Plan, x: Any, rows: Any, labels: Any, part: Any, *rest: Any) -> None:
    """All steps of one seat. The first layer's weights are updated in the output, the others are carried."""
    dense, number = plan.dense, len(plan.padded)
    dropped = dense.dropout > 0 and number > 1
    mask: Any = rest[0] if dropped else None
    rest = rest[1:] if dropped else rest
    rates, given, out = rest[0], rest[1 : 1 + 2 * number], rest[1 + 2 * number :]
    inputs, short = dense.widths[0], plan.short(x)

    def copy(first: Any, size: int, nothing: Any) -> Any:
        out[0][pl.ds(first, size), :] = given[0][pl.ds(first, size), :]
        return nothing

    _each_chunk(inputs, copy, 0)
    _barrier(plan)
    weight = part[:]
    eta, shrink = rates[0], rates[1]
    classes = jnp.arange(plan.padded[-1], dtype=jnp.int32)[None, :]

    def step(t: Any, carry: Any) -> Any:
        (bias, others), total = carry
        row, label = rows[t, :], labels[t, :]

        def forward(first: Any, size: int, z: Array) -> Array:
            seen = plan.prepare(x[row, pl.ds(first, size)]).astype(short)
            return z + _dot(seen, out[0][pl.ds(first, size), :].astype(short))

        z = jnp.zeros((weight.shape[0], plan.padded[0]), jnp.float32) + bias[None, :]
        z = _each_chunk(inputs, forward, z)
        seen, factor = [], None
        for at, (w, own) in enumerate(others):
            a = jnp.maximum(z, 0)
            if dropped and at == number - 2:
                factor = mask[t, :, :].astype(jnp.float32) * jnp.float32(1 / (1 - dense.dropout))
                seen.append((a > 0, a * factor))
            else:
                seen.append((a > 0, a))
            z = _dot(seen[-1][1], w) + own[None, :]
        z = jnp.where(classes < dense.widths[-1], z, -1e30)
        shifted = z - jnp.max(z, axis=1)[:, None]
        powers = jnp.exp(shifted)
        normal = jnp.sum(powers, axis=1)
        right = classes == label[:, None]
        log_p = jnp.sum(jnp.where(right, shifted, 0.0), axis=1) - jnp.log(normal)
        loss = -log_p if dense.objective == "cross-entropy" else -jnp.exp(log_p)
        slope = weight if dense.objective == "cross-entropy" else weight * jnp.exp(log_p)
        d = (powers / normal[:, None] - jnp.where(right, 1.0, 0.0)) * slope[:, None]
        updated = []
        for at in reversed(range(number - 1)):
            (w, own), (active, a) = others[at], seen[at]
            updated.append((shrink * w - eta * _dot(a.T, d), shrink * own - eta * jnp.sum(d, axis=0)))
            d = _dot(d, w.T)
            if factor is not None and at == number - 2:
                d = d * factor
            d = jnp.where(active, d, 0.0)
        _barrier(plan)

        def update(first: Any, size: int, scaled: Array) -> Array:
            seen = plan.prepare(x[row, pl.ds(first, size)]).astype(short)
            step = (eta / SCALE) * _dot(seen.T, scaled)
            out[0][pl.ds(first, size), :] = shrink * out[0][pl.ds(first, size), :] - step
            return scaled

        _each_chunk(inputs, update, (SCALE * d).astype(short))
        _barrier(plan)
        bias = shrink * bias - eta * jnp.sum(d, axis=0)
        return (bias, updated[::-1]), total + jnp.where(weight > 0, weight * loss, 0.0)

    others = [(given[2 * at][:, :], given[2 * at + 1][:]) for at in range(1, number)]
    (bias, others), total = lax.fori_loop(0, plan.tau, step, ((given[1][:], others), jnp.zeros_like(weight)))
    out[1][:] = bias
    for at, (w, own) in enumerate(others, 1):
        out[2 * at][:, :], out[2 * at + 1][:] = w, own
    out[-1][:] = total


def _each_chunk(inputs: int, act: Callable[[Any, int, Any], Any], value: Any) -> Any:
    """``value = act(first, size, value)`` for the inputs in chunks: a loop, and the rest in smaller powers of two."""
    whole = inputs // CHUNK
    if whole:
        value = lax.fori_loop(0, whole, lambda number, value: act(number * CHUNK, CHUNK, value), value)
    first = whole * CHUNK
    while first < inputs:
        size = 1 << ((inputs - first).bit_length() - 1)
        value = act(first, size, value)
        first += size
    return value


def _dot(a: Float[Array, "n k"], b: Float[Array, "k p"]) -> Float[Array, "n p"]:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _barrier(plan: _Plan) -> None:
    """What one thread has written to memory, the others of its block may read."""
    if not plan.interpret:
        triton.debug_barrier()
