"""The lowest loss of a model, and who must know it: strategies for losses of at least 0, and clients that lie."""

import math
import warnings
from typing import Any

import numpy as np

from fedpick.protocol import of_nonnegative_losses
from fedpick.sim.liars import Attack
from fedpick.sim.models import Model

FROM_LOWEST: tuple[Attack, ...] = ("inflate", "just-above", "deflate")  # what they say is counted from there
ROUNDING = 1e-3  # of the largest loss: a sum of large numbers may be a little below 0


def check_lowest(selector: Any, model: Model, attack: Attack = "none") -> None:
    """Raise where losses may be negative, and the strategy would run backwards or see no difference between them.

    Args:
        selector: The strategy.
        model: The model, whose losses do not lie below ``lowest``.
        attack: What some clients say of their losses.

    >>> from fedpick import Oort, Rand
    >>> from fedpick.sim import Logistic, Synthetic
    >>> model = Logistic("minus-probability").build(Synthetic(1, 1, K=3).federation())
    >>> check_lowest(Rand(m=2), model)
    >>> check_lowest(Oort(m=2), model)
    Traceback (most recent call last):
        ...
    ValueError: Oort: losses must be at least 0, and this model's go down to -1; use cross-entropy, or another strategy
    """
    name = of_nonnegative_losses(selector)
    if name is not None and model.lowest < 0:
        rule = f"losses must be at least 0, and this model's go down to {model.lowest:g}"
        raise ValueError(f"{name}: {rule}; use cross-entropy, or another strategy")
    if attack in FROM_LOWEST and not math.isfinite(model.lowest):
        raise ValueError(f"Liars: model.lowest must be finite for the attack {attack!r}, got {model.lowest:g}")


def check_measured(selector: Any, model: Model, client_loss: Any, *, played: bool) -> None:
    """Raise where a model has negative losses that it does not declare by ``lowest``; warn where that shows too late.

    Args:
        selector: The strategy.
        model: The model.
        client_loss: The losses of the clients, of whatever runs and evaluations.
        played: Whether the rounds are over.
    """
    name, least = of_nonnegative_losses(selector), float(np.fmin.reduce(client_loss, axis=None))
    most = float(np.fmax.reduce(np.abs(client_loss), axis=None))
    if name is not None and least < -ROUNDING * most:
        said = f"{name}: losses must be at least 0, got {least:.4g}"
        if not played:
            raise ValueError(f"{said} before round 0")
        warnings.warn(f"{said} in an evaluation; it may have chosen the wrong clients", stacklevel=3)
    elif played and least < model.lowest - ROUNDING * (1 + most / 100):
        rule = f"lowest must be at most every loss, got {model.lowest:g} and a client's loss of {least:.4g}"
        warnings.warn(f"Model: {rule}, so that the skew is wrong", stacklevel=3)
