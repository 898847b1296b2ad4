"""FedCS (Nishio, Yonetani 2019): as many clients as a round can take before its deadline."""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

Empty = tuple[()]


@pytree
class FedCS:
    """pi_fedcs: of d random candidates, one after the other who adds the least time, while the deadline is kept.

    The candidates train at once and send their updates one after the other. With t_k the time that client k trains, u_k
    that of its upload, and Theta = 0 at first, the seats are filled greedily:

    1. k = argmin of u_k + max(0, t_k - Theta) over the candidates that are left, ties broken at random.
    2. If Theta + u_k + max(0, t_k - Theta) is below the deadline, k gets a seat and this is the new Theta. Otherwise
       nobody who is left can keep the deadline.

    The number of clients varies from round to round, and m is its limit: seats stay empty. Where not even the quickest
    candidate keeps the deadline, it has the only seat, so that training goes on. Averaged by size. An unknown duration
    counts as the median of the candidates'. A client without data takes no part.

    Args:
        m: The largest number of clients that train in a round; static.
        d: Candidates, drawn uniformly, that are asked for their durations; static.
        deadline: Seconds from the start of training until the last update has arrived.

    >>> FedCS(m=3, d=6)
    FedCS(m=3, d=6, deadline=180.0)
    """

    m: int = static()
    d: int = static()
    deadline: float | Float[Array, ""] = 180.0

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"expected_duration", "upload_duration"})
    fills_seats: ClassVar[bool] = False
    enquires: ClassVar[int] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        object.__setattr__(self, "d", natural(self, "d", self.d))
        require(self, "d", self.d, f"at least m={self.m}", lambda d: d >= self.m)
        require(self, "deadline", self.deadline, "above 0", lambda x: x > 0)

    def init(self, num_clients: int) -> Empty:
        at_most_clients(self, "d", self.d, num_clients)
        return ()

    def propose(self, key: PRNGKeyArray, state: Empty, clients: Clients) -> Mask:
        able = clients.available & (clients.size > 0)
        return sampling.race(key, able.astype(jnp.float32), self.d)

    def select(self, key: PRNGKeyArray, state: Empty, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        assert clients.expected_duration is not None
        assert clients.upload_duration is not None
        # In random order, so that the first of equals is a random one.
        pool, able = sampling.first_k(sampling.uniform_keys(key, candidates), self.d)
        total, upload = (
            jnp.clip(sampling.fill_unknown(jnp.where(able, fact[pool], jnp.nan)), 0, 1e30)
            for fact in (clients.expected_duration, clients.upload_duration)
        )
        seats = _greedy(jnp.where(able, total, jnp.inf), upload, jnp.asarray(self.deadline, jnp.float32), self.m)
        return sampling.seat_by_size(pool[seats], seats >= 0, clients.size)

    def observe(self, state: Empty, selection: Selection, report: Report) -> Empty:
        return ()


@functools.partial(jax.jit, static_argnums=3)
def _greedy(
    total: Float[Array, " d"], upload: Float[Array, " d"], deadline: Float[Array, ""], m: int
) -> Int[Array, " m"]:
    """The candidates that get the seats, -1 for an empty one; a candidate of infinite time is none."""
    total = jnp.maximum(total, upload)

    def fill(seat: int, now: tuple[Any, ...]) -> tuple[Any, ...]:
        seats, left, theta, going = now
        # u + max(0, t - Theta), with total = t + u.
        added = jnp.where(left, jnp.maximum(upload, total - theta), jnp.inf)
        best = jnp.argmin(added).astype(jnp.int32)
        reached = theta + added[best]
        going = going & (added[best] < jnp.inf) & ((reached < deadline) | (seat == 0))
        return (
            seats.at[seat].set(jnp.where(going, best, -1)),
            left.at[best].set(left[best] & ~going),
            jnp.where(going, reached, theta),
            going,
        )

    start = (jnp.full(m, -1, jnp.int32), total < jnp.inf, jnp.float32(0), jnp.bool_(True))
    seats: Int[Array, " m"] = lax.fori_loop(0, m, fill, start)[0]
    return seats
