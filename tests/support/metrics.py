"""Metrics of a user's: one that says which way it improves, one that does not, and some that are none."""

import jax
import jax.numpy as jnp
import numpy as np


def brier(logits, labels):
    """The Brier score."""
    off = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    return jnp.mean(jnp.sum(off**2, axis=1))


brier.higher_is_better = False


def mute(logits, labels):
    """The mean logit, which is better neither way."""
    return logits.mean()


def samples(logits, labels):
    """How many samples it sees."""
    return labels.shape[0]


def wide(logits, labels):
    """Too many numbers."""
    return logits.mean(axis=0)


def of_numpy(logits, labels):
    """Not of JAX."""
    return np.asarray(logits).mean()
