"""Federated averaging to the letter of the theorems: a step per local iteration, and gradients with a known noise."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Clients, Report, pick, round_keys, seat_key
from fedpick.theory.problem import Problem
from fedpick.theory.selection_probability import known_law
from fedpick.theory.skew import Skews, mean_weights
from fedpick.validation import natural, require

Numbers = np.ndarray[Any, Any]


class Trajectory(NamedTuple):
    """Where R runs of T rounds went.

    ``iterations`` [T+1] are the local iterations so far, ``w`` [R, T+1, v] the global models, ``between`` [R, T, tau,
    v] the averages of the seats' models before each of the round's steps, ``G`` the root of the largest mean square of
    a gradient that a seat took.
    """

    iterations: Numbers
    w: Numbers
    between: Numbers
    G: float


def fedavg_trajectory(
    problem: Problem,
    selector: Any,
    step: Callable[[Any], Any],
    *,
    tau: int,
    rounds: int,
    start: Any,
    sigma: float = 0.0,
    runs: int = 1,
    seed: int = 0,
) -> Trajectory:
    """Play federated averaging on the problem: ``step(t)`` is the step size of local iteration t.

    Each gradient is that of F_k plus normal noise of variance sigma^2 in all. ``step`` takes an array of iterations.
    The arithmetic is float32, as in the simulator.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> path = fedavg_trajectory(problem, Rand(m=2), lambda t: 0.1 + 0 * t, tau=2, rounds=50, start=[9.0])
    >>> path.w.shape, bool(problem.excess(path.w[0, -1]) < 1)
    ((1, 51, 1), True)
    """
    natural("averaged", "tau", tau)
    natural("averaged", "rounds", rounds)
    natural("averaged", "runs", runs)
    require("averaged", "sigma", sigma, "finite and at least 0", lambda x: (x >= 0) & (x < np.inf))
    if not callable(step):
        raise ValueError(f"averaged: step must be a function of the iterations t, got {step!r}")
    t = np.arange(tau * rounds, dtype=float)
    sizes = np.broadcast_to(np.asarray(step(t), float), t.shape).reshape(rounds, tau)
    if np.shape(start) != problem.optimum.shape:
        raise ValueError(f"averaged: start must have shape {problem.optimum.shape}, got shape {np.shape(start)}")
    first, seeds = jnp.asarray(start, jnp.float32), jnp.arange(seed, seed + runs, dtype=jnp.int32)
    share, eta = (jnp.asarray(x, jnp.float32) for x in (problem.share, sizes))
    data = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, problem.data)
    w, between, square = _play(problem.formula, data, selector, share, eta, first, seeds, jnp.float32(sigma))
    path = np.concatenate([np.broadcast_to(first, (runs, 1, len(first))), np.asarray(w)], axis=1)
    G = float(np.sqrt(np.asarray(square, float).max() + sigma**2))
    return Trajectory(tau * np.arange(rounds + 1), path, np.asarray(between), G)


def skews_along(selector: Any, problem: Problem, path: Trajectory) -> Skews:
    """rho_bar and rho_tilde over the models that the runs went through: what the proofs need, and no more.

    The proofs use rho(S(w), w') only for w at the start of a round and w' the average of the seats' models within it.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> path = fedavg_trajectory(problem, Rand(m=1), lambda t: 0.1 + 0 * t, tau=2, rounds=5, start=[9.0])
    >>> skews_along(Rand(m=1), problem, path).rho_bar
    1.0
    """
    if known_law(selector, problem.share, "best") is None:
        rule = "a strategy without memory whose law is known, such as rand and pow-d"
        raise ValueError(f"skews_along: selector must be {rule}, got {selector!r}")
    runs, rounds, tau, v = path.between.shape
    weight, how = mean_weights(selector, problem, path.w[:, :-1].reshape(-1, v))
    gap = problem.values(path.between.reshape(-1, v)).reshape(runs * rounds, tau, -1) - problem.lowest
    whole = gap @ problem.share
    there = whole > 1e-9 * whole.max()  # where all clients agree and a run has arrived, the skew is 0 / 0
    low = np.einsum("nk,ntk->nt", weight, gap)[there] / whole[there]
    at_optimum = problem.values(problem.optimum) - problem.lowest
    high = weight @ at_optimum / (problem.share @ at_optimum) if problem.gamma > 0 else low.min()[None]
    return Skews(float(low.min()), float(max(high.max(), low.min())), len(weight), how)


@functools.partial(jax.jit, static_argnames=("formula",))
def _play(formula: Any, data: Any, selector: Any, share: Any, eta: Any, start: Any, seeds: Any, sigma: Any) -> Any:
    """Models [R, T, v] after each round and [R, T, tau, v] within it, and the largest square of a gradient [R]."""
    v, clients = start.shape[0], Clients(share, jnp.ones(share.shape, bool))

    def one_round(seed: Any, carry: Any, now: Any) -> Any:
        (w, state, largest), (t, sizes) = carry, now
        keys = round_keys(seed, t)
        F = formula(data, w)
        selection = pick(selector, keys, state, clients, lambda key, asked: F).selection
        seated, weights = jnp.maximum(selection.clients, 0), selection.weights

        def one_seat(seat: Any, client: Any) -> Any:
            key = seat_key(keys.train, seat, client)
            drawn = sigma / v**0.5 * jax.random.normal(key, (sizes.shape[0], v), jnp.float32)

            def one_step(local: Any, step: Any) -> Any:
                gradient = jax.grad(lambda w: formula(data, w)[client])(local)
                return local - step[0] * (gradient + step[1]), (local, jnp.sum(gradient**2))

            local, (before, square) = jax.lax.scan(one_step, w, (sizes, drawn))
            return local, before, square.max()

        seats = jnp.arange(seated.shape[0], dtype=jnp.int32)
        local, before, square = jax.vmap(one_seat)(seats, seated)
        filled = weights > 0
        state = selector.observe(state, selection, Report(jnp.where(filled, F[seated], jnp.nan)))
        after = w + weights @ (local - w[None, :])
        between = w[None, :] + jnp.einsum("s,stv->tv", weights, before - w[None, None, :])
        largest = jnp.maximum(largest, jnp.where(filled, square, jnp.float32(0)).max())
        return (after, state, largest), (after, between)

    def one_run(seed: Any) -> Any:
        rounds = jnp.arange(eta.shape[0], dtype=jnp.int32)
        carry = (start, selector.init(share.shape[0]), jnp.float32(0))
        (_, _, largest), (w, between) = jax.lax.scan(functools.partial(one_round, seed), carry, (rounds, eta))
        return w, between, largest

    return jax.vmap(one_run)(seeds)
