"""Models as pure functions, and the two objectives: cross-entropy, and the minus-probability that the paper trained."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick.sim.federation import Federation
from fedpick.sim.layers import classes_of, flat, inputs_of, kept, uniform_layer
from fedpick.text import shown
from fedpick.validation import one_of, require

Params = Any
Objective = Literal["cross-entropy", "minus-probability"]


class Dense(NamedTuple):
    """A ReLU network of dense layers with dropout after the last hidden one, for which a device may have a kernel."""

    widths: tuple[int, ...]
    dropout: float
    objective: Objective


@jax.tree_util.register_pytree_node_class
class Model:
    """What the simulator needs of a model.

    ``init(key)`` gives parameters, any pytree. ``losses(params, x, y, key)`` gives one loss per sample; the key is for
    dropout, and None means evaluation. ``predict(params, x)`` gives labels. No loss lies below ``lowest``.

    A ``base`` is what the model knows and does not train, such as the weights that adapters are added to. It is no part
    of the parameters: it is neither sent nor averaged, and one copy serves all clients and runs. ``losses`` and
    ``predict`` are then written with one argument more, the base, and called without it.

    Args:
        init: ``init(key)`` gives the parameters.
        losses: ``losses(params, x, y, key)``, with a base ``losses(params, x, y, key, base)``.
        predict: ``predict(params, x)``, with a base ``predict(params, x, base)``.
        lowest: The lowest value that a loss can take.
        base: A pytree of arrays, or None.
        batched: Whether clients that train at the same time are one batch for the device, or operations side by side.
        dense: What the model is, where it is a dense network.
        logits: ``logits(params, x)`` gives a number for each sample and class, [n, classes], with a base
            ``logits(params, x, base)``: what metrics such as AUC are made of; None where a model has none.
        trainer: What trains several clients instead of steps of ``losses``; as ``train_seats``, without the model.

    >>> model = from_apply(lambda key: jnp.zeros((2, 3)), lambda w, x, key: x @ w)
    >>> model.losses(model.init(jax.random.key(0)), jnp.ones((4, 2)), jnp.zeros(4, jnp.int32), None).shape
    (4,)
    """

    def __init__(
        self,
        init: Callable[[PRNGKeyArray], Params],
        losses: Callable[..., Float[Array, " n"]],
        predict: Callable[..., Int[Array, " n"]],
        lowest: float = 0.0,
        *,
        base: Any = None,
        batched: bool = True,
        dense: Dense | None = None,
        logits: Callable[..., Float[Array, "n c"]] | None = None,
        trainer: Callable[..., Any] | None = None,
    ) -> None:
        self.init, self.lowest, self.base, self.batched = init, lowest, base, batched
        self.dense, self.trainer = dense, trainer
        self.functions, self.apply = (losses, predict), logits

    def losses(self, params: Params, x: Array, y: Array, key: PRNGKeyArray | None) -> Array:
        """One loss per sample."""
        return self.functions[0](params, x, y, key, *self._base())

    def predict(self, params: Params, x: Array) -> Array:
        """One label per sample."""
        return self.functions[1](params, x, *self._base())

    def logits(self, params: Params, x: Array) -> Array:
        """A number for each sample and class."""
        assert self.apply is not None
        return self.apply(params, x, *self._base())

    def own_functions(self) -> tuple[Any, ...]:
        """What it was made of."""
        return self.init, *self.functions, self.apply, self.trainer

    def _base(self) -> tuple[Any, ...]:
        return () if self.base is None else (self.base,)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Any, ...]]:
        """The base is data; the functions are part of the compiled program."""
        static = (self.init, self.functions, self.lowest, self.batched, self.dense, self.apply, self.trainer)
        return (self.base,), static

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], leaves: tuple[Any]) -> "Model":
        """The inverse of ``tree_flatten``."""
        init, (losses, predict), lowest, batched, dense, apply, trainer = static
        options: dict[str, Any] = {"base": leaves[0], "batched": batched, "dense": dense, "trainer": trainer}
        return cls(init, losses, predict, lowest, logits=apply, **options)


def from_apply(
    init: Callable[[PRNGKeyArray], Params],
    apply: Callable[..., Float[Array, "n c"]],
    objective: Objective = "cross-entropy",
    *,
    base: Any = None,
) -> Model:
    """A classifier from any pure ``init`` and ``apply``: Flax, Equinox, your own.

    Args:
        init: ``init(key)`` gives the parameters, any pytree of float32.
        apply: ``apply(params, x, key)`` gives the logits; the key is for dropout, and None means evaluation.
        objective: "cross-entropy", or "minus-probability" as the paper's code.
        base: Arrays that are neither trained nor sent, any pytree; then it is ``apply(params, x, key, base)``.

    >>> model = from_apply(lambda key: jnp.zeros((2, 3)), lambda w, x, key: x @ w)
    >>> model.predict(jnp.eye(2, 3), jnp.array([[0.0, 1.0]]))
    Array([1], dtype=int32)
    """
    one_of("from_apply", "objective", objective, get_args(Objective))

    def losses(params: Params, x: Array, y: Array, key: PRNGKeyArray | None, *base: Any) -> Float[Array, " n"]:
        log_probability = jax.nn.log_softmax(apply(params, x, key, *base))
        # A masked sum and not an index, whose gradient would be a scatter: slow on a GPU. No output for a label: NaN.
        outputs = log_probability.shape[1]
        label = (jnp.arange(outputs, dtype=y.dtype)[None, :] == y[:, None]).astype(jnp.float32)
        label = jnp.where(y[:, None] < outputs, label, jnp.nan)
        label = label if key is None else barrier(label)  # one kernel and not two in each step of training on a GPU
        right = jnp.sum(log_probability * label, axis=1, where=label != 0)
        return -right if objective == "cross-entropy" else -jnp.exp(right)

    def predict(params: Params, x: Array, *base: Any) -> Int[Array, " n"]:
        label: Int[Array, " n"] = jax.lax.argmax(apply(params, x, None, *base), 1, jnp.int32)
        return label

    def logits(params: Params, x: Array, *base: Any) -> Any:  # whatever it is, ``check_shapes`` looks at it
        return apply(params, x, None, *base)

    lowest = 0.0 if objective == "cross-entropy" else -1.0
    return Model(init, losses, predict, lowest, base=base, logits=logits)


class ModelSpec(Protocol):
    """A description of a model, as an experiment holds it."""

    def build(self, federation: Federation) -> Model:
        """The model for these data."""


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression with bias, started at zero, as in the paper's Synthetic experiment.

    Args:
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> from fedpick.sim import Synthetic
    >>> jax.tree.map(jnp.shape, Logistic().build(Synthetic().federation()).init(jax.random.key(0)))
    {'b': (10,), 'w': (60, 10)}
    """

    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        return _logistic(inputs_of(federation), classes_of(self, federation), self.objective)


@dataclass(frozen=True)
class MLP:
    """A ReLU network with dropout after the last hidden layer, and PyTorch's initialisation: the paper's 784-64-30-10.

    Weights and biases start uniform on +-1/sqrt(fan-in).

    Args:
        hidden: Widths of the hidden layers.
        dropout: Probability that a unit of the last hidden layer is dropped.
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> MLP(hidden=(32,)).dropout
    0.5
    """

    hidden: tuple[int, ...] = (64, 30)
    dropout: float = 0.5
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple):
            raise ValueError(f"MLP: hidden must be a tuple of widths, got {shown(self.hidden)}")
        for width in self.hidden:
            require(self, "hidden", width, "at least 1", lambda n: n >= 1, whole=True, one=True)
        rule = "at least 0 and below 1"
        require(self, "dropout", self.dropout, rule, lambda rate: (rate >= 0) & (rate < 1), one=True)
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        widths = (inputs_of(federation), *self.hidden, classes_of(self, federation))
        return _mlp(widths, self.dropout, self.objective)


@dataclass(frozen=True)
class QuadraticModel:
    """F_k(w) = h_k/2 |w|^2 - e_k w + |e_k|^2 / (2 h_k), of samples (h_k, e_k).

    Args:
        spread: Standard deviation of each entry of the first w.

    >>> QuadraticModel().spread
    100.0
    """

    spread: float = 100.0

    def __post_init__(self) -> None:
        rule = "finite and at least 0"
        require(self, "spread", self.spread, rule, lambda x: (x >= 0) & (x < jnp.inf), one=True)

    def build(self, federation: Federation) -> Model:
        if federation.classes != 1:
            rule = "data must be samples (h_k, e_k) without classes, as of Quadratic"
            raise ValueError(f"QuadraticModel: {rule}, got {federation.name} with {federation.classes} classes")
        return _quadratic(inputs_of(federation) - 1, self.spread)


@functools.cache  # the same arguments give the same object, and so the same compiled program
def _logistic(dim: int, classes: int, objective: Objective) -> Model:
    def init(key: PRNGKeyArray) -> Params:
        return {"w": jnp.zeros((dim, classes), jnp.float32), "b": jnp.zeros(classes, jnp.float32)}

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        logits: Array = flat(x) @ params["w"] + params["b"][None, :]
        return logits

    return _dense(from_apply(init, apply, objective), Dense((dim, classes), 0.0, objective))


@functools.cache
def _mlp(widths: tuple[int, ...], dropout: float, objective: Objective) -> Model:
    def init(key: PRNGKeyArray) -> Params:
        layers = []
        for layer, shape in enumerate(itertools.pairwise(widths)):
            layers.append(uniform_layer(jax.random.fold_in(key, layer), shape))
        return layers

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        x = flat(x)
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"][None, :])
        if key is not None and dropout > 0:
            x = jnp.where(kept(key, dropout, x.shape), x / jnp.float32(1 - dropout), jnp.float32(0))
        logits: Array = x @ params[-1]["w"] + params[-1]["b"][None, :]
        return logits

    return _dense(from_apply(init, apply, objective), Dense(widths, dropout, objective))


def _dense(model: Model, dense: Dense) -> Model:
    model.dense = dense
    return model


@functools.cache
def _quadratic(v: int, spread: float) -> Model:
    def init(key: PRNGKeyArray) -> Params:
        return spread * jax.random.normal(key, (v,), jnp.float32)

    def losses(params: Params, x: Array, y: Array, key: PRNGKeyArray | None) -> Float[Array, " n"]:
        # Written as h/2 |w - e/h|^2, which does not cancel near the optimum.
        h, e = x[:, 0], x[:, 1:]
        return h / 2 * jnp.sum((params[None, :] - e / h[:, None]) ** 2, axis=1)

    return Model(init, losses, lambda params, x: jnp.zeros(x.shape[0], jnp.int32))


def barrier(x: Any) -> Any:
    """Optimization barrier: stops XLA from fusing or recomputing ``x``."""
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
