"""Selection probabilities: the mean weight of each client in a round's average, given the losses of all clients."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.protocol import FACTS, Clients, Selector, check_strategy, disguised, needs, pick, round_keys
from fedpick.text import shown
from fedpick.theory.order_statistics import enumerated_weights, exact_weights
from fedpick.validation import known, natural, one_of, require

Method = Literal["best", "exact", "enumeration", "monte-carlo"]
SMALLEST = 1e-8  # share for which the integral is known to be right


class ExpectedWeights(NamedTuple):
    """The mean weight of each client in a round's average, [K] or [n, K], and its error.

    The error is a bound on the numerical one for an exact method, and a standard error for Monte-Carlo.
    """

    weight: NDArray[Any]
    error: NDArray[Any]
    method: str


class Law(NamedTuple):
    """How seats are given: to the m highest losses of d candidates drawn by share, or by share alone (d = None)."""

    m: int
    d: int | None


def expected_seats(
    selector: Selector[Any],
    share: ArrayLike,
    losses: ArrayLike,
    *,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
    state: Any = None,
) -> ExpectedWeights:
    """E[sum of the weights of k's seats] for every client k, given the losses.

    Args:
        selector: The strategy.
        share: p_k [K], up to a factor.
        losses: F_k [K], or many such vectors [n, K].
        method: "exact" covers the strategies that draw by share and ignore the losses (rand, uniform with its q_k,
            full) and those that seat the highest losses among d candidates drawn by share (pow-d), for shares of at
            least 1e-8. "enumeration" sums over all candidate sets of a tiny federation. "monte-carlo" simulates any
            strategy that needs no durations of the clients, who leaves, or norms, in float32. "best" is "exact" where
            that is possible.
        draws: Monte-Carlo rounds.
        seed: Monte-Carlo seed.
        state: The strategy's state; the initial one by default, in which a strategy with memory (AFL, rpow-d) ignores
            the losses.

    >>> from fedpick import PowerOfChoice
    >>> expected_seats(PowerOfChoice(m=1, d=2), [0.5, 0.25, 0.25], [3.0, 2.0, 1.0]).weight.round(6)
    array([0.833333, 0.166667, 0.      ])
    """
    one_of("expected_seats", "method", method, ("best", "exact", "enumeration", "monte-carlo"))
    p = check_share("expected_seats", share)
    F = np.asarray(losses, float)
    if F.ndim not in (1, 2) or F.shape[-1] != len(p) or np.isnan(F).any():
        rule = f"must be {len(p)} numbers, one for each client, and not NaN"
        raise ValueError(f"expected_seats: losses {rule}, got {shown(losses)}")
    law = exact_law(selector, p, method) if state is None else None
    points = np.atleast_2d(F)
    if method == "monte-carlo" or (method == "best" and law is None):
        weight, error = monte_carlo_weights(selector, p, points, draws=draws, seed=seed, state=state)
        name = f"Monte-Carlo, {draws} draws"
    elif law is None:
        raise ValueError(f"expected_seats: selector must have a known law for method {method!r}, got {shown(selector)}")
    elif law.d is None:
        weight, error, name = np.broadcast_to(p, points.shape), np.zeros(points.shape), "by share"
    elif method == "enumeration":
        weight = np.stack([enumerated_weights(p, point, law.m, law.d) for point in points])
        error, name = np.full(points.shape, 1e-12), "enumeration"
    else:
        weight, error = exact_weights(p, points, law.m, law.d)
        name = "order statistics"
    return ExpectedWeights(weight.reshape(F.shape), error.reshape(F.shape), name)


def check_share(owner: str, share: ArrayLike) -> NDArray[Any]:
    """p_k in float64, validated and normalised."""
    p = np.asarray(share, float)
    if p.ndim != 1 or len(p) == 0:
        raise ValueError(f"{owner}: share must have shape (K,) with K at least 1, got shape {p.shape}")
    require(owner, "share", p, "between 1e-30 and 1e30 for every client", lambda x: (x >= 1e-30) & (x <= 1e30))
    return np.asarray(p / p.sum())


def exact_law(selector: Selector[Any], share: NDArray[Any], method: str) -> Law | None:
    """The law of a strategy where it is known exactly, or None."""
    check_strategy("expected_seats", selector)
    K = len(share)
    m = K if selector.m is None else selector.m
    if getattr(selector, "unbiased", False):
        return Law(m, None)
    if m > K:
        raise ValueError(f"expected_seats: m must be at most K={K}, got {m}")
    by_loss = getattr(selector, "candidates_by_share", False) and getattr(selector, "highest_loss_first", False)
    d = known(getattr(selector, "d", None))
    if not by_loss or selector.poll != "full" or d is None:
        return None
    require("expected_seats", "d", d, f"a single number and at most K={K}", lambda d: (d.ndim == 0) & (d <= K).all())
    if share.min() < SMALLEST and method == "exact":
        rule = f"at least {SMALLEST:g} of the whole for the exact method"
        raise ValueError(f"expected_seats: share must be {rule}, got {share.min():.3g}")
    return None if share.min() < SMALLEST and method != "enumeration" else Law(m, int(d))


def monte_carlo_weights(
    selector: Selector[Any],
    share: NDArray[Any],
    losses: NDArray[Any],
    *,
    draws: int,
    seed: int,
    gap: NDArray[Any] | None = None,
    state: Any = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean weights by Monte-Carlo at many loss vectors [n, K], and their standard errors.

    With a ``gap`` [K], the standard errors are those of the weighted sums of the gap over a draw's seats, [n].
    """
    natural("expected_seats", "draws", draws)
    facts = [fact for fact in FACTS if fact in needs(selector)]
    facts += ["norms"] if selector.poll == "norm" else []  # the losses are no answers to that
    if facts:
        rule = "selector must need no facts of the clients but their sizes and losses"
        raise ValueError(f"expected_seats: {rule}, got {shown(selector)}, which needs {', '.join(facts)}")
    state = selector.init(len(share)) if state is None else state
    value = np.eye(len(share)) if gap is None else np.asarray(gap)[None]
    p, F, values = (jnp.asarray(x, jnp.float32) for x in (share, losses, value))
    mean, variance = (np.asarray(x, float) for x in _simulate(selector, p, F, values, state, seed, draws))
    error = np.sqrt(np.maximum(variance, 0) / draws)
    return mean, error if gap is None else error[:, 0]


@functools.partial(jax.jit, static_argnames=("draws",))
def _simulate(selector: Selector[Any], share: Any, losses: Any, values: Any, state: Any, seed: Any, draws: int) -> Any:
    """For each loss vector: the mean weight of each client, and the variance of each value's sum over the draws."""
    at_once = max(1, min(draws, 500_000 // share.shape[0]))
    number = -(-draws // at_once)
    middle = (values @ share)[None, :]  # subtracted first: the difference of two large sums would be rounding error

    def at(F: Any) -> Any:
        def block(total: Any, first: Any) -> Any:
            t = first + jnp.arange(at_once, dtype=jnp.int32)
            weights = jax.vmap(lambda t: _draw_weights(selector, share, F, state, seed, t))(t)
            weights = jnp.where((t < draws)[:, None], weights, jnp.float32(0))
            sums = jnp.where((t < draws)[:, None], weights @ values.T - middle, jnp.float32(0))
            return (total[0] + weights.sum(axis=0), total[1] + sums.sum(axis=0), total[2] + (sums**2).sum(axis=0)), None

        zeros = jnp.zeros(values.shape[0], jnp.float32)
        first = at_once * jnp.arange(number, dtype=jnp.int32)
        weight, total, square = jax.lax.scan(block, (jnp.zeros_like(share), zeros, zeros), first)[0]
        return weight / draws, square / draws - (total / draws) ** 2

    return jax.lax.map(at, losses)


def _draw_weights(selector: Selector[Any], share: Any, losses: Any, state: Any, seed: Any, t: Any) -> Any:
    """The weight of each client in one round, [K]."""
    keys, clients = round_keys(seed, t), Clients(share, jnp.ones(share.shape, bool))
    everybody = jnp.arange(share.shape[0], dtype=jnp.int32)

    def poll(key: Any, asked: Any) -> Any:
        return disguised(selector, key, state, losses, everybody)

    selection = pick(selector, keys, state, clients, poll).selection
    place = jnp.where(selection.weights > 0, selection.clients, share.shape[0])
    return jnp.zeros(share.shape, jnp.float32).at[place].add(selection.weights, mode="drop")
