"""How d changes over the rounds."""

from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedpick.pytrees import pytree
from fedpick.sampling import portion
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
        _require_rounds(self)
        if (steps := known(self.steps)) is not None:
            require(self, "rounds", self.rounds, f"at least steps={steps}", lambda x: x >= steps, whole=True)

    def __call__(self, t: Int[Array, ""], K: int, m: int) -> Int[Array, ""]:
        rounds, steps = jnp.asarray(self.rounds, jnp.int32), jnp.asarray(self.steps, jnp.int32)
        stage = jnp.minimum(t // jnp.maximum(rounds // steps, 1), steps)
        span = jnp.asarray(K - m, jnp.int32)
        # floor(stage * span / steps) without the product, which could overflow.
        return K - (span // steps * stage + span % steps * stage // steps)


@pytree
class Switch:
    """adapow-d in two stages: d = K for the first floor(part * rounds) rounds, then d = m.

    Args:
        rounds: Rounds of the whole run.
        part: The part of them in which d = K.

    >>> d = Switch(rounds=101)
    >>> [int(d(jnp.int32(t), K=30, m=2)) for t in (0, 49, 50, 100)]
    [30, 30, 2, 2]
    """

    rounds: int | Int[Array, ""]
    part: float | Float[Array, ""] = 0.5

    def __post_init__(self) -> None:
        _require_rounds(self)
        require(self, "part", self.part, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))

    def __call__(self, t: Int[Array, ""], K: int, m: int) -> Int[Array, ""]:
        return jnp.where(t < portion(self.part, self.rounds), K, m).astype(jnp.int32)


@pytree
class Halving:
    """adapow-d by halves: d = K, floor(K / 2), floor(K / 4), ... and at last m, in stages of equal length.

    With ``halvings`` = h there are h + 2 stages of floor(rounds / (h + 2)) rounds, the last one to the end; d is never
    below m.

    Args:
        rounds: Rounds of the whole run.
        halvings: How often d is halved before it is m.

    >>> d = Halving(rounds=100)
    >>> [int(d(jnp.int32(t), K=100, m=10)) for t in (0, 20, 40, 60, 80)]
    [100, 50, 25, 12, 10]
    """

    rounds: int | Int[Array, ""]
    halvings: int | Int[Array, ""] = 3

    def __post_init__(self) -> None:
        _require_rounds(self)
        require(
            self, "halvings", self.halvings, "at least 0 and at most 30", lambda x: (x >= 0) & (x <= 30), whole=True
        )

    def __call__(self, t: Int[Array, ""], K: int, m: int) -> Int[Array, ""]:
        rounds, halvings = jnp.asarray(self.rounds, jnp.int32), jnp.asarray(self.halvings, jnp.int32)
        stage = t // jnp.maximum(rounds // (halvings + 2), 1)
        d = jnp.int32(K) >> jnp.minimum(stage, 31)
        return jnp.maximum(jnp.where(stage <= halvings, d, m), m).astype(jnp.int32)


def _require_rounds(schedule: Shrinking | Switch | Halving) -> None:
    rule = "at least 1 and below 2**31"
    require(schedule, "rounds", schedule.rounds, rule, lambda x: (x >= 1) & (x < 2**31), whole=True)
