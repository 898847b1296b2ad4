"""How a federation's loss is curved and how far its clients' gradients differ, at the first model."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim import Federation, Model, ModelSpec

SAMPLES = 20_000  # that gradients are taken of; of larger clients a part, evenly spaced
CURVED = 4_096  # samples that the curvature is taken of
CLIENTS = 2_000  # that are looked at, evenly spaced
BLOCK = 32  # samples of a client whose gradient is taken at a time
STEPS = 40  # of power iteration


def slopes(federation: Federation, model: Model | ModelSpec) -> tuple[float, float]:
    """L and the ratio of gradients, at the first model.

    L is the largest eigenvalue of the Hessian of the global loss, by power iteration; the ratio is that of the mean of
    |grad F_k|^2 to |grad F|^2.

    Args:
        federation: The clients and their data.
        model: The model, or a description of it.
    """
    built: Any = model.build(federation) if hasattr(model, "build") else model
    params = built.init(jax.random.key(0))
    samples = _sample(federation)
    each = _blocks(federation, samples)
    square, whole = _gradients(built, params, *each)
    chosen = _curved(samples.weight)
    x = federation.prepare(federation.inputs(jnp.asarray(samples.rows[chosen])))
    y = federation.y[jnp.asarray(samples.rows[chosen])]
    weight = samples.weight[chosen] if len(chosen) == len(samples.rows) else np.full(len(chosen), 1 / len(chosen))
    curvature = _largest(built, params, *_padded(x, y, weight))
    return float(curvature), max(1.0, float(square) / max(float(whole), 1e-30))


class _Sample(NamedTuple):
    """Rows that are looked at, sorted by client, with the part of the global loss of each."""

    rows: Numbers
    weight: Numbers
    counts: Numbers  # by client
    share: Numbers


def _sample(federation: Federation) -> _Sample:
    K = federation.num_clients
    clients = np.arange(K) if K <= CLIENTS else np.arange(CLIENTS) * K // CLIENTS
    count, start = np.asarray(federation.count)[clients], np.asarray(federation.start)[clients]
    share = np.asarray(federation.share, float)[clients]
    share = share / share.sum()
    most = SAMPLES
    while most > 1 and np.minimum(count, most).sum() > SAMPLES:
        most = int(0.9 * most)
    taken = np.minimum(count, most)
    places = np.concatenate([s + np.arange(t) * n // t for s, t, n in zip(start, taken, count, strict=True)])
    rows = np.asarray(federation.locate(jnp.asarray(places, jnp.int32)))
    return _Sample(rows, np.repeat(share / taken, taken), taken, share)


def _blocks(federation: Federation, samples: _Sample) -> tuple[Any, ...]:
    """Inputs, labels and weights [blocks, BLOCK] of one client each, and the share of a client in its last block."""
    number = -(-samples.counts // BLOCK)
    blocks = 1 << int(number.sum() - 1).bit_length()  # few shapes, and so few programs
    rows, weight = np.zeros((blocks, BLOCK), np.int32), np.zeros((blocks, BLOCK), np.float32)
    last = np.zeros(blocks, np.float32)
    first = np.cumsum(number) - number
    within = np.concatenate([np.arange(count) for count in samples.counts])
    at = np.repeat(first, samples.counts) + within // BLOCK, within % BLOCK
    rows[at] = samples.rows
    weight[at] = np.repeat(1 / samples.counts, samples.counts)
    last[first + number - 1] = samples.share
    x = federation.prepare(federation.inputs(jnp.asarray(rows)))
    return x, federation.y[jnp.asarray(rows)], jnp.asarray(weight), jnp.asarray(last)


def _curved(weight: Numbers) -> Numbers:
    if len(weight) <= CURVED:
        return np.arange(len(weight))
    return np.random.default_rng(0).choice(len(weight), CURVED, p=weight / weight.sum())


def _padded(x: Any, y: Any, weight: Numbers) -> tuple[Any, ...]:
    """To a number of samples that is a power of two, in blocks of at most 512."""
    size = 1 << int(len(weight) - 1).bit_length()
    more, block = size - len(weight), min(512, size)
    padded = (jnp.concatenate([part, jnp.broadcast_to(part[:1], (more, *part.shape[1:]))]) for part in (x, y))
    weights = jnp.asarray(np.concatenate([weight, np.zeros(more)]), jnp.float32)
    return tuple(part.reshape(-1, block, *part.shape[1:]) for part in (*padded, weights))


def _loss(model: Model, params: Any, x: Any, y: Any, weight: Any) -> Any:
    return jnp.sum(jnp.where(weight > 0, weight * model.losses(params, x, y, None), jnp.float32(0)))


def _square(tree: Any) -> Any:
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))


@jax.jit
def _gradients(model: Model, params: Any, x: Any, y: Any, weight: Any, last: Any) -> tuple[Any, Any]:
    """The mean of |grad F_k|^2, and |grad F|^2."""

    def step(carry: Any, block: Any) -> tuple[Any, None]:
        (own, whole, square), (x, y, weight, share) = carry, block
        gradient = jax.grad(functools.partial(_loss, model))(params, x, y, weight)
        own = jax.tree.map(jnp.add, own, gradient)
        whole = jax.tree.map(lambda total, mine: total + share * mine, whole, own)
        square = square + share * _square(own)
        return (jax.tree.map(lambda mine: jnp.where(share > 0, jnp.float32(0), mine), own), whole, square), None

    none = jax.tree.map(jnp.zeros_like, params)
    (_, whole, square), _ = jax.lax.scan(step, (none, none, jnp.float32(0)), (x, y, weight, last))
    return square, _square(whole)


@jax.jit
def _largest(model: Model, params: Any, x: Any, y: Any, weight: Any) -> Any:
    """The largest eigenvalue of the Hessian of the weighted loss of all samples."""

    def times(u: Any) -> Any:
        def add(total: Any, block: Any) -> tuple[Any, None]:
            gradient = jax.grad(lambda w: _loss(model, w, *block))
            return jax.tree.map(jnp.add, total, jax.jvp(gradient, (params,), (u,))[1]), None

        found, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, weight))
        return found

    def inner(one: Any, other: Any) -> Any:
        return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))

    def unit(u: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf / jnp.sqrt(jnp.maximum(_square(u), 1e-30)), u)

    def iterate(shift: Any) -> Any:
        """The eigenvalue of H + shift that is the largest in size, less shift."""
        keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(params)))
        leaves, tree = jax.tree.flatten(params)
        normal = [jax.random.normal(key, leaf.shape, jnp.float32) for key, leaf in zip(keys, leaves, strict=True)]
        first = unit(jax.tree.unflatten(tree, normal))

        def step(_: Any, u: Any) -> Any:
            return unit(jax.tree.map(lambda new, old: new + shift * old, times(u), u))

        u = jax.lax.fori_loop(0, STEPS, step, first)
        return inner(u, times(u))

    largest = iterate(jnp.float32(0))  # in size: where it is negative, the spectrum is moved until the top is
    return jax.lax.cond(largest > 0, lambda: largest, lambda: iterate(-largest))
