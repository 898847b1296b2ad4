"""The character LSTM, a model of sequences of codes."""

import functools
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from fedpick.sim.federation import Federation, as_float
from fedpick.sim.layers import classes_of, uniform_layer
from fedpick.sim.models import Model, Objective, Params, from_apply
from fedpick.validation import one_of, owner_name, require

LOG = logging.getLogger("fedpick")
FEW = 10_000  # samples that are looked at
STRETCH = 4  # steps in time without a loop around them, on a GPU


@dataclass(frozen=True)
class CharLSTM:
    """The character model of McMahan et al. 2017: an embedding, two LSTM layers, and a dense layer on the last state.

    A sample is a sequence of T codes, such as the bytes of a text, and its label the character that comes next, or
    whatever class the sequence has. Codes are stored as bytes or whole numbers and not as pixels: the federation's
    ``prepare`` is the default, or ``Arrays(..., codes=True)``.

    Args:
        vocabulary: Number of codes; a code beyond them counts as none.
        embedding: Numbers that stand for a code.
        hidden: Units of each layer.
        layers: LSTM layers.
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> CharLSTM(hidden=64).layers
    2
    """

    vocabulary: int = 256
    embedding: int = 8
    hidden: int = 256
    _: KW_ONLY
    layers: int = 2
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "embedding", "hidden", "layers"):
            require(self, name, getattr(self, name), "at least 1", lambda n: n >= 1, whole=True)
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        sequence_length(self, federation, self.vocabulary)
        widths = (self.embedding, *[self.hidden] * self.layers)
        return _lstm(self.vocabulary, widths, classes_of(self, federation), self.objective)


def sequence_length(owner: object, federation: Federation, vocabulary: int) -> int:
    """T of samples that are sequences of codes."""
    shape = federation.x.shape[1:]
    if len(shape) != 1:
        raise ValueError(f"{owner_name(owner)}: data must be sequences of codes, got samples of shape {shape}")
    if federation.prepare is not as_float:
        rule = "data must be codes and not pixels (prepare of Federation as by default, codes=True of Arrays)"
        raise ValueError(f"{owner_name(owner)}: {rule}, got prepare={federation.prepare!r}")
    some = np.asarray(federation.x[:FEW])
    wrong = some[~((some >= 0) & (some == np.floor(some)))]
    if wrong.size:
        rule = "data must be sequences of codes, which are whole numbers from 0"
        raise ValueError(f"{owner_name(owner)}: {rule}, got {wrong.flat[0]:g}")
    beyond = float((some >= vocabulary).mean())
    if beyond > 0:
        what = f"{100 * beyond:.2g} % of the codes are not below vocabulary={vocabulary}, and count as none"
        LOG.warning("%s: %s", owner_name(owner), what)
    return int(shape[0])


def one_hot(x: Array, vocabulary: int) -> Array:
    """A row for each code: 1 at its place. Its product with a table has no scatter in the gradient."""
    place = jnp.arange(vocabulary, dtype=jnp.int32)[None, None, :]
    return (x.astype(jnp.int32)[:, :, None] == place).astype(jnp.float32)


@functools.cache
def _lstm(vocabulary: int, widths: tuple[int, ...], classes: int, objective: Objective) -> Model:
    def init(key: PRNGKeyArray) -> Params:
        table, last, *own = jax.random.split(key, 1 + len(widths))
        layers = []
        for layer_key, before, hidden in zip(own, widths[:-1], widths[1:], strict=True):
            bound = hidden**-0.5
            shapes = {"x": (before, 4 * hidden), "h": (hidden, 4 * hidden), "b": (4 * hidden,)}
            drawn = zip(jax.random.split(layer_key, 3), shapes.items(), strict=True)
            layers.append(
                {name: jax.random.uniform(k, shape, jnp.float32, -bound, bound) for k, (name, shape) in drawn}
            )
        codes = jax.random.normal(table, (vocabulary, widths[0]), jnp.float32)
        return {"codes": codes, "layers": layers, "last": uniform_layer(last, (widths[-1], classes))}

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        states = one_hot(x.T, vocabulary) @ params["codes"]  # [T, n, embedding]
        for own in params["layers"]:
            states = recurrence(states @ own["x"] + own["b"][None, None, :], own["h"])
        logits: Array = states[-1] @ params["last"]["w"] + params["last"]["b"][None, :]
        return logits

    return from_apply(init, apply, objective)


@jax.custom_vjp
def recurrence(inputs: Float[Array, "T n gates"], w: Float[Array, "h gates"]) -> Float[Array, "T n h"]:
    """The states of an LSTM with these inputs to its gates (input, forget, cell, output) and weights between states.

    Its gradient by w is one product over all T, and not one in each step.
    """
    return _states(inputs, w)[0]


def _states(inputs: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    nothing = jnp.zeros((inputs.shape[1], w.shape[0]), jnp.float32)

    def step(carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        h, c = carry
        gates = _gates(x + h @ w)
        c = gates[1] * c + gates[0] * gates[2]
        h = gates[3] * jnp.tanh(c)
        return (h, c), (h, jnp.concatenate(gates, axis=1), c)

    _, (h, gates, c) = _loop(step, (nothing, nothing), inputs)
    return h, (gates, c)


def _loop(step: Callable[..., Any], begin: Any, inputs: Any, reverse: bool = False) -> Any:
    """A scan; on a GPU, where a step takes less time than the loop around it, some steps at a stretch."""

    def scan(unroll: int) -> Callable[..., Any]:
        return lambda begin, inputs: lax.scan(step, begin, inputs, reverse=reverse, unroll=unroll)

    return lax.platform_dependent(begin, inputs, cpu=scan(1), default=scan(STRETCH))


def _gates(x: Array) -> list[Array]:
    i, f, g, o = jnp.split(x, 4, axis=1)
    return [jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)]


def _recurrence_forward(inputs: Array, w: Array) -> tuple[Array, tuple[Array, ...]]:
    h, (gates, c) = _states(inputs, w)
    return h, (h, gates, c, w)


def _recurrence_backward(saved: tuple[Array, ...], dh: Array) -> tuple[Array, Array]:
    h, gates, c, w = saved
    turned, first = w.T, jnp.zeros_like(h[:1])

    def step(carry: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        later, dc = carry
        dh, gates, c, before = now
        i, f, g, o = jnp.split(gates, 4, axis=1)
        dh, bounded = dh + later, jnp.tanh(c)
        dc = dc + dh * o * (1 - bounded * bounded)
        of_gates = (dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * bounded * o * (1 - o))
        back = jnp.concatenate(of_gates, axis=1)
        return (back @ turned, dc * f), back

    nothing = jnp.zeros_like(h[0])
    past = (jnp.concatenate([first, h[:-1]]), jnp.concatenate([first, c[:-1]]))
    _, back = _loop(step, (nothing, nothing), (dh, gates, c, past[1]), reverse=True)
    return back, past[0].reshape(-1, h.shape[2]).T @ back.reshape(-1, w.shape[1])


recurrence.defvjp(_recurrence_forward, _recurrence_backward)
