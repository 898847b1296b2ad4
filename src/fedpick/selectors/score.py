"""What step 3 of Power-of-Choice ranks by: the loss, or the alternatives that the paper's conclusion proposes.

A score is a function of (loss, size); the highest are selected, and NaN counts as silence. Only their *order* matters,
so a score that merely rises with the loss selects the same clients as the loss itself. One that multiplies the loss by
the size is for losses of at least 0 (``nonnegative_losses``): of two clients of the same negative loss, the larger
would come last.
"""

from collections.abc import Callable
from typing import Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedpick.pytrees import pytree, static
from fedpick.sampling import shares
from fedpick.validation import flag, require


class Score(Protocol):
    """A score for each client from its loss F_k and its size D_k, both Float[K]."""

    def __call__(self, loss: Float[Array, " K"], size: Float[Array, " K"]) -> Float[Array, " K"]: ...


@pytree
class LocalLoss:
    """F_k, the paper's choice.

    Args:
        by_size: Whether to rank by p_k F_k, the client's part of the global loss.

    >>> LocalLoss(by_size=True)(jnp.array([2.0, 1.0]), jnp.array([1.0, 3.0]))
    Array([0.5 , 0.75], dtype=float32)
    """

    by_size: bool = static(default=False)

    def __post_init__(self) -> None:
        flag(self, "by_size", self.by_size)

    @property
    def nonnegative_losses(self) -> bool:
        return self.by_size

    def __call__(self, loss: Float[Array, " K"], size: Float[Array, " K"]) -> Float[Array, " K"]:
        return _scaled(loss, size, self.by_size)


@pytree
class ClippedLoss:
    """min(F_k, limit): clients beyond the limit are tied, so no outlier or liar is always first.

    Changes nothing while fewer than two candidates are beyond the limit. It is also what tells a client that has never
    trained (+inf in rpow-d) no longer apart from one at the limit.

    Args:
        limit: The largest loss that is told apart.
        by_size: Whether to multiply by p_k.

    >>> ClippedLoss(limit=3.0)(jnp.array([2.0, 90.0]), jnp.array([1.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """

    limit: float | Float[Array, ""]
    by_size: bool = static(default=False)

    def __post_init__(self) -> None:
        require(self, "limit", self.limit, "a number, not NaN", lambda x: x == x)
        flag(self, "by_size", self.by_size)

    @property
    def nonnegative_losses(self) -> bool:
        return self.by_size

    def __call__(self, loss: Float[Array, " K"], size: Float[Array, " K"]) -> Float[Array, " K"]:
        limit = jnp.asarray(self.limit, jnp.float32)
        return _scaled(jnp.where(loss > limit, limit, loss), size, self.by_size)


@pytree
class QFairLoss:
    """p_k F_k^(q+1) / (q+1), the client's part of the q-fair objective of Li et al. (2020).

    The score is p_k^(1/(q+1)) F_k, its root up to a factor: the same order, and no q overflows.

    Args:
        q: How much the loss counts against the size, at least 0: 0 is ``LocalLoss(by_size=True)``, and as q grows the
            order becomes that of the loss alone.
        by_size: Whether p_k is a factor; without it the score rises with the loss and **changes nothing**, whatever q.

    >>> QFairLoss(q=1.0)(jnp.array([2.0, 1.0]), jnp.array([1.0, 3.0]))
    Array([1.       , 0.8660254], dtype=float32)
    """

    q: float | Float[Array, ""]
    by_size: bool = static(default=True)

    def __post_init__(self) -> None:
        require(self, "q", self.q, "finite and at least 0", lambda x: (x >= 0) & (x < float("inf")))
        flag(self, "by_size", self.by_size)

    @property
    def nonnegative_losses(self) -> bool:
        return self.by_size

    def __call__(self, loss: Float[Array, " K"], size: Float[Array, " K"]) -> Float[Array, " K"]:
        root = 1 / (jnp.asarray(self.q, jnp.float32) + 1)
        return loss * shares(size) ** root if self.by_size else loss


@pytree
class OwnScore:
    """A user's own score; ``PowerOfChoice(score=function)`` wraps it for you.

    Args:
        function: ``function(loss, size)`` gives a score for each client, NaN for none. One that is for losses of at
            least 0 says so by an attribute, ``function.nonnegative_losses = True``.

    >>> OwnScore(lambda loss, size: loss * jnp.sqrt(size))(jnp.array([2.0]), jnp.array([9.0]))
    Array([6.], dtype=float32)
    """

    function: Callable[[Float[Array, " K"], Float[Array, " K"]], Float[Array, " K"]] = static()

    @property
    def nonnegative_losses(self) -> bool:
        return bool(getattr(self.function, "nonnegative_losses", False))

    def __call__(self, loss: Float[Array, " K"], size: Float[Array, " K"]) -> Float[Array, " K"]:
        score = self.function(loss, size)
        if jnp.shape(score) != loss.shape:
            raise ValueError(f"score: the score must have shape (K,) = {loss.shape}, got shape {jnp.shape(score)}")
        return jnp.asarray(score, jnp.float32)


def _scaled(score: Float[Array, " K"], size: Float[Array, " K"], by_size: bool) -> Float[Array, " K"]:
    return score * shares(size) if by_size else score
