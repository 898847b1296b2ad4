"""Pieces that models are made of."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from fedpick.sim.federation import Federation
from fedpick.validation import owner_name


def kept(key: PRNGKeyArray, dropout: float, shape: tuple[int, ...]) -> Bool[Array, " ..."]:
    """True with probability 1 - dropout, from as few random bits as decide that: a single one for 0.5.

    With 32 for each, drawing them is a fifth of the training of a small network on a CPU.
    """
    bits = next((bits for bits in (1, 2, 4, 8, 16) if (dropout * 2**bits).is_integer()), 32)
    number, in_a_word = math.prod(shape), 32 // bits
    words = jax.random.bits(key, (-(-number // in_a_word),), jnp.uint32)
    place = jnp.arange(0, 32, bits, dtype=jnp.uint32)
    lot = (words[:, None] >> place[None, :]) & jnp.uint32(2**bits - 1)
    kept: Bool[Array, " ..."] = lot.reshape(-1)[:number].reshape(shape) >= jnp.uint32(round(dropout * 2**bits))
    return kept


def uniform_layer(key: PRNGKeyArray, shape: tuple[int, ...]) -> dict[str, Any]:
    """Weights [..., out] and biases [out], uniform on +-1/sqrt(fan-in) as in PyTorch."""
    bound = math.prod(shape[:-1]) ** -0.5
    w_key, b_key = jax.random.split(key)
    w = jax.random.uniform(w_key, shape, jnp.float32, -bound, bound)
    return {"w": w, "b": jax.random.uniform(b_key, shape[-1:], jnp.float32, -bound, bound)}


def flat(x: Array) -> Array:
    """A row of numbers per sample."""
    return x.reshape(x.shape[0], -1)


def inputs_of(federation: Federation) -> int:
    """The numbers of a sample."""
    return math.prod(federation.x.shape[1:])


def classes_of(owner: object, federation: Federation) -> int:
    """The number of classes, at least two."""
    if federation.classes < 2:
        others = "QuadraticModel, of the quadratic problem, and a Model of your own take one"
        found = f"{federation.classes} in {federation.name} (a classifier needs two; {others})"
        raise ValueError(f"{owner_name(owner)}: data must have at least 2 classes, got {found}")
    return federation.classes
