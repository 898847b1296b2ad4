"""Networks of other libraries as models, by their address: Flax, Equinox, Keras on JAX, or a pair of init and apply."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from fedpick import registry
from fedpick.sim.federation import Federation
from fedpick.sim.layers import classes_of
from fedpick.sim.models import Model, Objective, Params, from_apply
from fedpick.text import brief
from fedpick.validation import one_of

LIBRARIES = "a module of Flax (linen or nnx) or Equinox, a function that makes a Keras model, or a fedpick Model"


@dataclass(frozen=True)
class Network:
    """A network of yours, written with Flax, Equinox or Keras: it takes a batch (Equinox: one sample), gives logits.

    Where its constructor takes ``classes`` or ``num_classes``, it gets the number of labels; ``inputs``, the shape of a
    sample. ``train``, ``training``, ``deterministic``, ``inference`` and ``key`` of its call are filled in, and a Flax
    dropout gets its random numbers. A Keras model begins with the same weights in every run.

    Args:
        net: Its address, "package.module:Net".
        objective: "cross-entropy", or "minus-probability" as the paper's code.

    >>> Network("mynet:CNN").objective
    'cross-entropy'
    """

    net: str
    objective: Objective = "cross-entropy"

    def __post_init__(self) -> None:
        one_of(self, "objective", self.objective, get_args(Objective))

    def build(self, federation: Federation) -> Model:
        sample = jax.eval_shape(lambda: federation.prepare(federation.inputs(jnp.zeros(1, jnp.int32))))
        found = registry.load(self.net, objects=True)
        if isinstance(found, Model):
            return found
        model, is_own = _built(found, self.net, sample.shape[1:], federation.classes, self.objective)
        if not is_own:
            classes_of(self, federation)
        return model


@functools.cache  # the same network is the same program
def _built(made: Any, address: str, shape: tuple[int, ...], classes: int, objective: Objective) -> tuple[Model, bool]:
    """The model, and whether it is one of the user's own, which need not be a classifier."""
    parameters = _parameters(made)
    known = {"classes": classes, "num_classes": classes, "inputs": shape}
    given = {name: value for name, value in known.items() if name in parameters}
    if _is_kind(made, "flax.nnx", "Module"):
        init, apply = _nnx(functools.partial(made, **given))
    elif _is_kind(made, "equinox", "Module"):
        init, apply = _equinox(functools.partial(made, **given))
    else:
        if _is_kind(made, "torch.nn", "Module"):
            rule = "must run on JAX: write it in Flax, or run the PyTorch app itself on Flower (docs/flower.md)"
            raise ValueError(f"Network: {address} {rule}, got a torch.nn.Module")
        found = made if _is_linen(made) else _made(made, given, address)
        if isinstance(found, Model):
            return found, True
        if _is_linen(found):
            init, apply = _linen(found, shape)
        elif hasattr(found, "stateless_call"):
            init, apply = _keras(found, shape, address)
        else:
            raise ValueError(f"Network: {address} must be {LIBRARIES}, got {type(found).__name__}")
    return from_apply(init, apply, objective), False


def _made(made: Any, given: Mapping[str, Any], address: str) -> Any:
    """What a class or function makes; one sentence where it cannot be called in this way, as an object cannot."""
    try:
        return made(**given) if callable(made) else made
    except Exception as error:
        found = f"{type(error).__name__}: {brief(error)}"
        raise ValueError(f"Network: {address} must be {LIBRARIES}, got an error when called: {found}") from error


Init = Callable[[PRNGKeyArray], Params]
Apply = Callable[[Params, Array, PRNGKeyArray | None], Array]


def _linen(net: Any, shape: tuple[int, ...]) -> tuple[Init, Apply]:
    takes = _parameters(type(net).__call__)

    def init(key: PRNGKeyArray) -> Params:
        variables = net.init({"params": key, "dropout": key}, jnp.zeros((1, *shape), jnp.float32), **_mode(takes, None))
        _check_no_state(set(variables) - {"params"})
        return variables["params"]

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        rngs = {} if key is None else {"dropout": key}
        found: Array = net.apply({"params": params}, x, rngs=rngs, **_mode(takes, key))
        return found

    return init, apply


def _check_no_state(others: set[str]) -> None:
    """Raise where a Flax module has variables that are no parameters: nobody would average them."""
    if others:
        got = ", ".join(sorted(others))
        raise ValueError(f"Network: a Flax module must have parameters alone, as with GroupNorm, got also {got}")


def _nnx(make: Callable[..., Any]) -> tuple[Init, Apply]:
    nnx: Any = importlib.import_module("flax.nnx")

    def init(key: PRNGKeyArray) -> Params:
        params, _, rest = nnx.split(make(rngs=nnx.Rngs(key)), nnx.Param, nnx.RngState, ...)[1:]
        variables = jax.tree.leaves(rest, is_leaf=lambda leaf: hasattr(leaf, "type") or isinstance(leaf, nnx.Variable))
        _check_no_state({getattr(variable, "type", type(variable)).__name__ for variable in variables})
        return params

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        fresh = make(rngs=nnx.Rngs(jax.random.key(0) if key is None else key))
        fresh.train() if key is not None else fresh.eval()
        graph, _, rest = nnx.split(fresh, nnx.Param, ...)
        found: Array = nnx.merge(graph, params, rest)(x)
        return found

    return init, apply


def _equinox(make: Callable[..., Any]) -> tuple[Init, Apply]:
    equinox: Any = importlib.import_module("equinox")
    takes = _parameters(make.func.__call__)  # type: ignore[attr-defined]

    def init(key: PRNGKeyArray) -> Params:
        return equinox.filter(make(key=key), equinox.is_inexact_array)

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        rest = equinox.filter(make(key=jax.random.key(0)), equinox.is_inexact_array, inverse=True)
        net = equinox.nn.inference_mode(equinox.combine(params, rest), key is None)
        if "key" not in takes or key is None:
            plain: Array = jax.vmap(net)(x)
            return plain
        found: Array = jax.vmap(lambda one, own: net(one, key=own))(x, jax.random.split(key, x.shape[0]))
        return found

    return init, apply


def _keras(net: Any, shape: tuple[int, ...], address: str) -> tuple[Init, Apply]:
    keras: Any = importlib.import_module("keras")
    if keras.backend.backend() != "jax":
        rule = "needs Keras on JAX: set KERAS_BACKEND=jax"
        raise ValueError(f"Network: {address} {rule}, got the back end {keras.backend.backend()}")
    if not net.built:
        net.build((None, *shape))
    start = [jnp.asarray(variable.value) for variable in net.trainable_variables]
    fixed = [variable.value for variable in net.non_trainable_variables]
    weights = {id(variable) for variable in net.non_trainable_weights}  # without the states of random numbers
    after = net.stateless_call(start, fixed, jnp.ones((2, *shape), jnp.float32), training=True)[1]
    changed = [
        variable.name
        for variable, old, new in zip(net.non_trainable_variables, fixed, after, strict=True)
        if id(variable) in weights and not np.array_equal(old, new)
    ]
    if changed:
        rule = "must have trained parameters alone, as with GroupNormalization"
        raise ValueError(f"Network: {address} {rule}, got also {', '.join(changed)}")

    def apply(params: Params, x: Array, key: PRNGKeyArray | None) -> Array:
        found: Array = net.stateless_call(params, fixed, x, training=key is not None)[0]
        return found

    return lambda key: start, apply


def _mode(takes: Any, key: PRNGKeyArray | None) -> dict[str, bool]:
    """The arguments of a call that say whether it trains."""
    train = key is not None
    modes = {"train": train, "training": train, "deterministic": not train, "inference": not train}
    return {name: value for name, value in modes.items() if name in takes}


def _parameters(made: Any) -> Any:
    try:
        call: Any = getattr(made, "__init__") if isinstance(made, type) else made  # noqa: B009
        return inspect.signature(call).parameters
    except (TypeError, ValueError):
        return {}


def _is_linen(net: Any) -> bool:
    """Whether it is a module of Flax linen, which describes a network and has no parameters."""
    return _is_kind(type(net), "flax.linen", "Module")


def _is_kind(made: Any, module: str, name: str) -> bool:
    """Whether it is a class of this kind, of a library that is imported already."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(made, type) and kind is not None and issubclass(made, kind)
