"""Federated averaging as in the theorems: a step size per local iteration, and gradients of known noise."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.protocol import Clients, Report, Selector, check_strategy, disguised, needs, pick, round_keys, seat_key
from fedpick.text import listed, shown
from fedpick.theory.problem import Problem
from fedpick.theory.selection_probability import exact_law
from fedpick.theory.skew import Skews, mean_weights
from fedpick.validation import natural, require


class Trajectory(NamedTuple):
    """The models of R runs of T rounds.

    ``iterations`` [T+1] counts the local iterations so far; ``w`` [R, T+1, v] are the global models; ``between`` [R, T,
    tau, v] the averages of the seats' models before each step of a round; ``G`` is the root of the largest mean square
    of a gradient.
    """

    iterations: NDArray[Any]
    w: NDArray[Any]
    between: NDArray[Any]
    G: float


def fedavg_trajectory(
    problem: Problem,
    selector: Selector[Any],
    step: Callable[[NDArray[Any]], ArrayLike],
    *,
    tau: int,
    rounds: int,
    start: ArrayLike,
    sigma: float = 0.0,
    runs: int = 1,
    seed: int = 0,
) -> Trajectory:
    """Federated averaging on a problem, in float32 as in the simulator.

    Args:
        problem: The problem.
        selector: The strategy, which goes by sizes and losses alone.
        step: The step sizes ``step(t)`` of an array t of local iterations.
        tau: Local iterations per round.
        rounds: Rounds T.
        start: The first model [v].
        sigma: Each gradient is that of F_k plus normal noise of total variance sigma^2.
        runs: Number of runs R.
        seed: Seed of the first run.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> path = fedavg_trajectory(problem, Rand(m=2), lambda t: 0.1 + 0 * t, tau=2, rounds=50, start=[9.0])
    >>> path.w.shape, bool(problem.excess(path.w[0, -1]) < 1)
    ((1, 51, 1), True)
    """
    check_strategy("fedavg_trajectory", selector)
    wanted = [*sorted(needs(selector)), *(["norms"] if selector.poll == "norm" else [])]
    if wanted:
        got = f"{shown(selector)}, which needs {listed(wanted)}"
        raise ValueError(f"fedavg_trajectory: selector must go by sizes and losses alone, got {got}")
    natural("fedavg_trajectory", "tau", tau)
    natural("fedavg_trajectory", "rounds", rounds)
    natural("fedavg_trajectory", "runs", runs)
    require("fedavg_trajectory", "sigma", sigma, "finite and at least 0", lambda x: (x >= 0) & (x < np.inf))
    if not callable(step):
        raise ValueError(f"fedavg_trajectory: step must be a function of the iterations t, got {shown(step)}")
    t = np.arange(tau * rounds, dtype=float)
    sizes = np.broadcast_to(np.asarray(step(t), float), t.shape).reshape(rounds, tau)
    if np.shape(start) != problem.optimum.shape:
        raise ValueError(
            f"fedavg_trajectory: start must have shape {problem.optimum.shape}, got shape {np.shape(start)}"
        )
    first, seeds = jnp.asarray(start, jnp.float32), jnp.arange(seed, seed + runs, dtype=jnp.int32)
    share, eta = (jnp.asarray(x, jnp.float32) for x in (problem.share, sizes))
    data = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, problem.data)
    w, between, square = _simulate(problem.formula, data, selector, share, eta, first, seeds, jnp.float32(sigma))
    path = np.concatenate([np.broadcast_to(first, (runs, 1, len(first))), np.asarray(w)], axis=1)
    G = float(np.sqrt(np.asarray(square, float).max() + sigma**2))
    return Trajectory(tau * np.arange(rounds + 1), path, np.asarray(between), G)


def skews_along(selector: Selector[Any], problem: Problem, trajectory: Trajectory) -> Skews:
    """rho_bar and rho_tilde over the models of a trajectory, the only pairs that the proofs use.

    These are rho(S(w), w') for w at the start of a round and w' the average of the seats' models within it. For more
    than one local step the proofs leave out that w' depends on who is in S(w): docs/theory.md, "Slips in the paper".

    Args:
        selector: A strategy without memory whose law is known exactly, such as rand and pow-d.
        problem: The problem.
        trajectory: Runs of this strategy on this problem.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> path = fedavg_trajectory(problem, Rand(m=1), lambda t: 0.1 + 0 * t, tau=2, rounds=5, start=[9.0])
    >>> skews_along(Rand(m=1), problem, path).rho_bar
    1.0
    """
    if exact_law(selector, problem.share, "best") is None:
        rule = "a strategy without memory whose law is known, such as rand and pow-d"
        raise ValueError(f"skews_along: selector must be {rule}, got {shown(selector)}")
    runs, rounds, tau, v = trajectory.between.shape
    weight, _, how = mean_weights(selector, problem, trajectory.w[:, :-1].reshape(-1, v))
    gap = problem.values(trajectory.between.reshape(-1, v)).reshape(runs * rounds, tau, -1) - problem.lowest
    whole = gap @ problem.share
    there = whole > 1e-9 * whole.max()  # where all clients agree and a run has converged, the skew is 0 / 0
    low = np.einsum("nk,ntk->nt", weight, gap)[there] / whole[there]
    at_optimum = problem.values(problem.optimum) - problem.lowest
    high = weight @ at_optimum / (problem.share @ at_optimum) if problem.gamma > 0 else low.min()[None]
    return Skews(float(low.min()), float(max(high.max(), low.min())), len(weight), how)


@functools.partial(jax.jit, static_argnames=("formula",))
def _simulate(
    formula: Any, data: Any, selector: Selector[Any], share: Any, eta: Any, start: Any, seeds: Any, sigma: Any
) -> Any:
    """Models [R, T, v] after each round and [R, T, tau, v] within it, and the largest squared gradient [R]."""
    v, clients = start.shape[0], Clients(share, jnp.ones(share.shape, bool))

    def one_round(seed: Any, carry: Any, now: Any) -> Any:
        (w, state, largest), (t, sizes) = carry, now
        keys = round_keys(seed, t)
        F = formula(data, w)
        selection = pick(selector, keys, state, clients, lambda key, asked: F).selection
        seated, weights = jnp.maximum(selection.clients, 0), selection.weights

        def one_seat(seat: Any, client: Any) -> Any:
            key = seat_key(keys.train, seat, client)
            noise = sigma / v**0.5 * jax.random.normal(key, (sizes.shape[0], v), jnp.float32)

            def one_step(local: Any, step: Any) -> Any:
                gradient = jax.grad(lambda w: formula(data, w)[client])(local)
                return local - step[0] * (gradient + step[1]), (local, jnp.sum(gradient**2))

            local, (before, square) = jax.lax.scan(one_step, w, (sizes, noise))
            return local, before, square.max()

        seats = jnp.arange(seated.shape[0], dtype=jnp.int32)
        local, before, square = jax.vmap(one_seat)(seats, seated)
        filled = weights > 0
        said = disguised(selector, keys.train, state, jnp.where(filled, F[seated], jnp.nan), seated)
        state = selector.observe(state, selection, Report(said))
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
