"""Who is selected how often, given everybody's loss: the mean weight of each client in the average of a round."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Clients, pick, round_keys
from fedpick.theory.order_statistics import every_draw, top_of_race
from fedpick.validation import known, natural, one_of, require

Numbers = np.ndarray[Any, Any]
Method = Literal["best", "exact", "enumeration", "monte-carlo"]
SMALLEST = 1e-8  # share for which the integral is known to be right


class Seats(NamedTuple):
    """The mean weight of each client in a round's average, [K], and its error by client.

    The error is a bound on the numerical one for an exact method, and a standard error for Monte-Carlo.
    """

    weight: Numbers
    error: Numbers
    method: str


def expected_seats(
    selector: Any,
    share: Any,
    losses: Any,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
    state: Any = None,
) -> Seats:
    """E[sum of the weights of k's seats] for every client k, when their losses are these.

    ``"exact"`` knows the strategies that draw by share and look at no loss (rand, uniform with its q_k, full), and
    those that seat the highest losses among d candidates drawn by share (pow-d), for shares of at least 1e-8.
    ``"enumeration"`` goes through all candidate sets of a tiny federation. ``"monte-carlo"`` plays any strategy
    ``draws`` times in float32, from ``state``, or as it is in its first round: a strategy that remembers (AFL, rpow-d)
    does not look at the losses then. ``"best"`` is exact where that is known.

    >>> from fedpick import PowerOfChoice
    >>> expected_seats(PowerOfChoice(m=1, d=2), [0.5, 0.25, 0.25], [3.0, 2.0, 1.0]).weight.round(6)
    array([0.833333, 0.166667, 0.      ])
    """
    one_of("expected_seats", "method", method, ("best", "exact", "enumeration", "monte-carlo"))
    p = shares("expected_seats", share)
    F = np.asarray(losses, float)
    if F.shape != p.shape or np.isnan(F).any():
        rule = f"must be {len(p)} numbers, one for each client, and not NaN"
        raise ValueError(f"expected_seats: losses {rule}, got {losses!r}")
    weight, error, how = weights_at(selector, p, F[None], method, draws, seed, state)
    return Seats(weight[0], error[0], how)


def weights_at(
    selector: Any, p: Numbers, losses: Numbers, method: Method, draws: int, seed: int, state: Any = None
) -> tuple[Numbers, Numbers, str]:
    """Mean weights and errors at many loss vectors [n, K], and how they were found."""
    law = known_law(selector, p, method) if state is None else None
    if method == "monte-carlo" or (method == "best" and law is None):
        return *played(selector, p, losses, draws, seed, state=state), f"Monte-Carlo, {draws} draws"
    if law is None:
        raise ValueError(f"expected_seats: selector must have a known law for method {method!r}, got {selector!r}")
    m, d = law
    if d == 0:
        return np.broadcast_to(p, losses.shape), np.zeros(losses.shape), "by share"
    if method == "enumeration":
        every = np.stack([every_draw(p, one, m, d) for one in losses])
        return every, np.full(losses.shape, 1e-12), "enumeration"
    return *top_of_race(p, losses, m, d), "order statistics"


def shares(owner: str, share: Any) -> Numbers:
    """p_k, checked, as float64 that sums to 1."""
    p = np.asarray(share, float)
    if p.ndim != 1 or len(p) == 0:
        raise ValueError(f"{owner}: share must have shape (K,) with K at least 1, got shape {p.shape}")
    require(owner, "share", p, "between 1e-30 and 1e30 for every client", lambda x: (x >= 1e-30) & (x <= 1e30))
    whole: Numbers = p / p.sum()
    return whole


def known_law(selector: Any, share: Numbers, method: str) -> tuple[int, int] | None:
    """(m, d) of a strategy whose law is known, d = 0 for one that goes by share alone; None for the others."""
    if isinstance(selector, type) or not hasattr(selector, "propose"):
        raise ValueError(
            f"expected_seats: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got {selector!r}"
        )
    K = len(share)
    if getattr(selector, "unbiased", False):
        return selector.m or K, 0
    if selector.m is not None and selector.m > K:
        raise ValueError(f"expected_seats: m must be at most K={K}, got {selector.m}")
    by_loss = getattr(selector, "candidates_by_share", False) and getattr(selector, "highest_loss_first", False)
    d = known(getattr(selector, "d", None))
    if not by_loss or selector.poll != "full" or d is None:
        return None
    require("expected_seats", "d", d, f"a single number and at most K={K}", lambda d: (d.ndim == 0) & (d <= K).all())
    if share.min() < SMALLEST:
        if method == "exact":
            rule = f"at least {SMALLEST:g} of the whole for the exact method"
            raise ValueError(f"expected_seats: share must be {rule}, got {share.min():.3g}")
        return (selector.m, int(d)) if method == "enumeration" else None
    return selector.m, int(d)


def played(
    selector: Any, share: Numbers, losses: Numbers, draws: int, seed: int, gap: Numbers | None = None, state: Any = None
) -> tuple[Numbers, Numbers]:
    """Mean weights by Monte-Carlo at many loss vectors [n, K], and their standard errors.

    With a ``gap`` [K] the standard errors are those of the sums over a draw of its weights times the gap, [n].
    """
    natural("expected_seats", "draws", draws)
    state = selector.init(len(share)) if state is None else state
    value = np.eye(len(share)) if gap is None else np.asarray(gap)[None]
    p, F, values = (jnp.asarray(x, jnp.float32) for x in (share, losses, value))
    mean, spread = (np.asarray(x, float) for x in _play(selector, p, F, values, state, seed, draws))
    error = np.sqrt(np.maximum(spread, 0) / draws)
    return mean, error if gap is None else error[:, 0]


@functools.partial(jax.jit, static_argnames=("draws",))
def _play(selector: Any, share: Any, losses: Any, values: Any, state: Any, seed: Any, draws: int) -> Any:
    """By loss vector: the mean weight of each client, and the variance over the draws of each value's sum."""
    at_once = max(1, min(draws, 500_000 // share.shape[0]))
    number = -(-draws // at_once)
    middle = (values @ share)[None, :]  # or the difference of two large sums would be their rounding

    def at(F: Any) -> Any:
        def block(total: Any, first: Any) -> Any:
            t = first + jnp.arange(at_once, dtype=jnp.int32)
            drawn = jax.vmap(lambda t: _weights_of_a_draw(selector, share, F, state, seed, t))(t)
            drawn = jnp.where((t < draws)[:, None], drawn, jnp.float32(0))
            sums = jnp.where((t < draws)[:, None], drawn @ values.T - middle, jnp.float32(0))
            return (total[0] + drawn.sum(axis=0), total[1] + sums.sum(axis=0), total[2] + (sums**2).sum(axis=0)), None

        zeros = jnp.zeros(values.shape[0], jnp.float32)
        first = at_once * jnp.arange(number, dtype=jnp.int32)
        weight, total, square = jax.lax.scan(block, (jnp.zeros_like(share), zeros, zeros), first)[0]
        return weight / draws, square / draws - (total / draws) ** 2

    return jax.lax.map(at, losses)


def _weights_of_a_draw(selector: Any, share: Any, losses: Any, state: Any, seed: Any, t: Any) -> Any:
    """The weight that each client gets in one round, [K]."""
    keys, clients = round_keys(seed, t), Clients(share, jnp.ones(share.shape, bool))
    selection = pick(selector, keys, state, clients, lambda key, asked: losses).selection
    place = jnp.where(selection.weights > 0, selection.clients, share.shape[0])
    return jnp.zeros(share.shape, jnp.float32).at[place].add(selection.weights, mode="drop")
