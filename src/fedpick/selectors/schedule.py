"""How d changes over the rounds."""

from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedpick.pytrees import pytree
from fedpick.validation import known, require


class Schedule(Protocol):
    """The number of candidates d in round t, of K clients for m seats."""

    def __call__(self, t: Int[Array, ""], K: int, m: int) -> Int[Array, ""]: ...


@pytree
class Shrinking:
    """adapow-d: d falls from K to m, so that the bias vanishes at the end.

    The stages last floor(rounds / steps) rounds each; in stage j, d = K - floor(j (K - m) / steps); from stage
    ``steps`` on, d = m.

    Args:
        rounds: Rounds until d is m.
        steps: Number of equal steps in which d falls, at most ``rounds``.

    >>> d = Shrinking(rounds=100, steps=4)
    >>> [int(d(jnp.int32(t), K=30, m=2)) for t in (0, 25, 50, 75, 100)]
    [30, 23, 16, 9, 2]
    """

    rounds: int | Int[Array, ""]
    steps: int | Int[Array, ""] = 10

    def __post_init__(self) -> None:
        # The upper limit keeps steps^2 inside int32.
        rule = "at least 1 and at most 46340"
        require(self, "steps", self.steps, rule, lambda x: (x >= 1) & (x <= 46340), whole=True)
        require(self, "rounds", self.rounds, "at least 1 and below 2**31", lambda x: (x >= 1) & (x < 2**31), whole=True)
        if (steps := known(self.steps)) is not None:
            require(self, "rounds", self.rounds, f"at least steps={steps}", lambda x: x >= steps, whole=True)

    def __call__(self, t: Int[Array, ""], K: int, m: int) -> Int[Array, ""]:
        rounds, steps = jnp.asarray(self.rounds, jnp.int32), jnp.asarray(self.steps, jnp.int32)
        stage = jnp.minimum(t // jnp.maximum(rounds // steps, 1), steps)
        span = jnp.asarray(K - m, jnp.int32)
        # floor(stage * span / steps) without the product, which could overflow.
        return K - (span // steps * stage + span % steps * stage // steps)
