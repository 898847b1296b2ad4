"""Networks of other libraries, as a user writes them."""

import flax.linen as nn
import jax.numpy as jnp
from flax import nnx


class Linen(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Dense(8)(x))
        x = nn.Dropout(0.5)(x, deterministic=not train)
        return nn.Dense(self.classes)(x)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=True)(x))


class NNX(nnx.Module):
    def __init__(self, inputs, num_classes, *, rngs):
        self.first = nnx.Linear(inputs[0], 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(8, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.first(x))))


class NormedNNX(nnx.Module):
    def __init__(self, inputs, num_classes, *, rngs):
        self.norm, self.last = nnx.BatchNorm(inputs[0], rngs=rngs), nnx.Linear(inputs[0], num_classes, rngs=rngs)

    def __call__(self, x):
        return self.last(self.norm(x))


def nothing():
    return jnp.zeros(3)


linen = Linen(classes=3)


def make(classes):
    return Linen(classes)


class Wide(nn.Module):
    width: int


model = NNX((4,), 3, rngs=nnx.Rngs(0))
