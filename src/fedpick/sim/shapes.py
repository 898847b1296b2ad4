"""What a model gives for the samples of a federation: parameters, logits, losses and labels of the right shapes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import round_keys
from fedpick.sim.federation import Federation
from fedpick.sim.models import Model
from fedpick.text import brief


def check_shapes(federation: Federation, model: Model, *, owner: str) -> None:
    """Raise unless the model has float32 parameters and gives logits, losses and labels for each sample.

    Nothing is computed. More outputs than there are labels are right: some labels may be missing from the data.

    Args:
        federation: The data.
        model: The model, which may be a network of the user's own.
        owner: What the error begins with.
    """
    params = _traced(f"{owner}: model.init must give parameters", lambda: model.init(round_keys(0, 0).world))
    for leaf in jax.tree.leaves(params):
        if getattr(leaf, "dtype", None) != jnp.float32:
            raise ValueError(f"{owner}: model must have float32 parameters, got {leaf}")
    two = np.arange(min(2, federation.y.shape[0]), dtype=np.int32)
    x, y = jax.eval_shape(lambda: (federation.prepare(federation.inputs(jnp.asarray(two))), federation.y[two]))
    takes = f"must take samples of shape {x.shape[1:]}"
    if model.apply is not None:
        logits = _traced(f"{owner}: model.logits {takes}", lambda p, x: model.logits(p, x), params, x)
        shape = getattr(logits, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != len(two):
            found = type(logits).__name__ if shape is None else f"shape {shape}"
            expected = f"of shape (n, classes), which is {(len(two), federation.classes)} for n={len(two)} samples"
            raise ValueError(f"{owner}: the model must give logits {expected}, got {found}")
    outputs = {"losses": lambda p, x, y: model.losses(p, x, y, None), "predict": lambda p, x, y: model.predict(p, x)}
    for name, output in outputs.items():
        found = _traced(f"{owner}: model.{name} {takes}", output, params, x, y)
        shape = getattr(found, "shape", None)
        if shape != y.shape:
            raise ValueError(f"{owner}: model.{name} must give one number per sample {y.shape}, got shape {shape}")


def _traced(rule: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the model gives, as shapes; whatever it raises is one sentence."""
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:
        hint = "; inputs are float32, and x.astype(int) makes codes of them" if "integer" in str(error) else ""
        raise ValueError(f"{rule}, got an error: {type(error).__name__}: {brief(error)}{hint}") from error
