"""The random keys of a round: the one source of all randomness, a function of (seed, round)."""

import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from fedpick.text import shown


class RoundKeys(NamedTuple):
    """One random key for each thing that chance decides in a round."""

    world: PRNGKeyArray
    propose: PRNGKeyArray
    poll: PRNGKeyArray
    select: PRNGKeyArray
    train: PRNGKeyArray


def round_keys(seed: int | Int[Array, ""], t: int | Int[Array, ""]) -> RoundKeys:
    """The keys of round t: the one source of all randomness, a function of (seed, round) and of nothing else.

    The generator is pinned (threefry): neither x64 nor JAX's default generator changes a pick (only switching
    ``jax_threefry_partitionable`` off would). Noise within a phase is keyed further by ``client_key`` and ``seat_key``.

    Args:
        seed: Seed of the run, at least 0 and below 2**64.
        t: Round, counted from 0.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(keys.propose == round_keys(seed=7, t=0).propose), bool(keys.propose == keys.select)
    (True, False)
    """
    t = _whole("t", t, 2**32 - 1)
    keys: RoundKeys = _round_keys(_seed_words(seed), np.uint32(t) if isinstance(t, int) else t)
    return keys


@jax.jit  # one program in a plain Python loop over rounds
def _round_keys(seed: Any, t: Any) -> RoundKeys:
    key = jax.random.fold_in(_key(seed), t)
    purposes = jnp.arange(len(RoundKeys._fields), dtype=jnp.uint32)
    return RoundKeys(*jax.vmap(jax.random.fold_in, (None, 0))(key, purposes))  # one hash to compile, and not five


def init_key(seed: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of what chance decides before the first round, such as the first model.

    >>> bool(init_key(7) == round_keys(seed=7, t=0).world)
    False
    """
    return jax.random.fold_in(_key(_seed_words(seed)), 2**32 - 1)


def client_key(key: PRNGKeyArray, client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client within a phase, whoever else takes part and in whatever order answers arrive.

    Args:
        key: A phase's key, such as ``round_keys(seed, t).poll``.
        client: The client, 0..K-1.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(client_key(keys.poll, 3) == client_key(keys.poll, 4))
    False
    """
    return jax.random.fold_in(key, client)


def seat_key(key: PRNGKeyArray, seat: int | Int[Array, ""], client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client in one seat, so that a client in two seats trains independently in each.

    Args:
        key: A phase's key, such as ``round_keys(seed, t).train``.
        seat: The seat, 0..m-1.
        client: The client in it.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(seat_key(keys.train, 0, 3) == seat_key(keys.train, 1, 3))
    False
    """
    return jax.random.fold_in(client_key(key, client), seat)


def _seed_words(seed: Any) -> Any:
    """The high and the low word of a seed, UInt[2] of NumPy or JAX."""
    seed = _whole("seed", seed, 2**64)
    if isinstance(seed, int):
        return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    wide = seed.dtype.itemsize == 8
    return jnp.stack([(seed >> 32).astype(jnp.uint32) if wide else jnp.uint32(0), seed.astype(jnp.uint32)])


def _key(words: Any) -> PRNGKeyArray:
    key: PRNGKeyArray = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def _whole(name: str, value: Any, limit: int) -> Any:
    """A plain int within its limits; a traced integer as it is."""
    if isinstance(value, jax.core.Tracer) and jnp.issubdtype(value.dtype, jnp.integer):
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"round_keys: {name} must be a whole number, got {shown(value)}") from None
    if not 0 <= number < limit:
        raise ValueError(f"round_keys: {name} must be at least 0 and below {limit}, got {number}")
    return number
