"""Power-of-Choice (Cho, Wang, Joshi 2020): draw d candidates by size, select the m of highest loss."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import Ledger
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.selectors.schedule import Schedule
from fedpick.selectors.score import LocalLoss, OwnScore, Score
from fedpick.text import shown
from fedpick.validation import at_most_clients, natural, one_of, require

_POLL: dict[str, Poll] = {"full": "full", "batch": "batch", "stale": "none"}


@pytree
class PowerOfChoice:
    """pi_pow-d, pi_cpow-d and pi_rpow-d: one strategy that looks at one of three losses.

    1. Draw d candidates (m <= d <= K) without replacement by share p_k among those available.
    2. Ask them for their loss at the current global model: over all local data (``loss="full"``, pow-d), over one
       mini-batch (``"batch"``, cpow-d), or do not ask and take the training loss of their last participation
       (``"stale"``, rpow-d; +inf until the first).
    3. Select the m of highest ``score``, ties broken at random; average plainly, 1/m each.

    d = m is random sampling without replacement, d = K takes the highest losses of all: a larger d is faster and more
    biased. d may be traced, or a ``Schedule`` such as ``Shrinking`` (adapow-d). A polled candidate that does not answer
    is not eligible. A traced d cannot be checked and is clipped to m..K.

    Args:
        m: Seats, the clients that train in a round.
        d: Candidates: a number, or a ``Schedule`` of it.
        loss: Which loss of a candidate is looked at.
        score: What candidates are ranked by: a function of (loss, size), such as ``ClippedLoss(limit=3)``.

    >>> PowerOfChoice(m=3, d=6).poll
    'full'
    """

    m: int = static()
    d: int | Int[Array, ""] | Schedule
    loss: Literal["full", "batch", "stale"] = static(default="full")
    score: Score | Callable[[Any, Any], Any] = LocalLoss()

    candidates_by_share: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        one_of(self, "loss", self.loss, tuple(_POLL))
        if not _is_pytree_function(self.d):
            require(self, "d", self.d, f"at least m={self.m}", lambda d: d >= self.m, whole=True)
        if not callable(self.score) or isinstance(self.score, type):
            raise ValueError(f"PowerOfChoice: score must be a function of (loss, size), got {shown(self.score)}")
        if not _is_pytree_function(self.score):
            object.__setattr__(self, "score", OwnScore(self.score))

    @property
    def poll(self) -> Poll:
        return _POLL[self.loss]

    @property
    def highest_loss_first(self) -> bool:
        return self.score == LocalLoss()

    @property
    def nonnegative_losses(self) -> bool:
        return bool(getattr(self.score, "nonnegative_losses", False))

    def init(self, num_clients: int) -> Ledger:
        at_most_clients(self, "m", self.m, num_clients)
        at_most_clients(self, "d", self.d, num_clients)
        return Ledger.init(num_clients)

    def propose(self, key: PRNGKeyArray, state: Ledger, clients: Clients) -> Mask:
        K = clients.size.shape[0]
        state.fits(clients)
        d = self.d(state.round, K, self.m) if callable(self.d) else jnp.asarray(self.d, jnp.int32)
        weight = jnp.where(clients.available, clients.size, jnp.float32(0))
        return sampling.race(key, weight, jnp.clip(d, self.m, K))

    def select(self, key: PRNGKeyArray, state: Ledger, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        state.fits(clients)
        if self.loss == "stale":
            losses = jnp.where(jnp.isnan(state.loss), jnp.inf, state.loss)
        assert callable(self.score)
        score = self.score(losses, clients.size)
        eligible = candidates & ~jnp.isnan(losses) & ~jnp.isnan(score)
        return sampling.seat(*sampling.top_k(key, score, eligible, self.m))

    def observe(self, state: Ledger, selection: Selection, report: Report) -> Ledger:
        return state.observe(selection, report)


def _is_pytree_function(value: object) -> bool:
    """Whether it is an object that can be called and that JAX can take apart, as a plain function cannot."""
    return callable(value) and not isinstance(value, type) and not jax.tree_util.all_leaves([value])
