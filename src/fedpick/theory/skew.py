"""Selection skew: how much more often than by share a strategy selects the clients of higher loss.

rho(S(pi, w), w') = E[mean over the seats of F_k(w') - F_k*] / sum p_k (F_k(w') - F_k*): w decides who is selected, w'
is where they are looked at. It is 1 for an unbiased strategy. rho_bar is its minimum over w and w', rho_tilde its
maximum over w at w' = w*.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.protocol import Selector
from fedpick.theory.problem import Problem, rounding_error
from fedpick.theory.selection_probability import ExpectedWeights, Method, expected_seats, monte_carlo_weights
from fedpick.validation import natural, one_of, require

LONGEST_SEARCH = 300  # steps of a random search


class Skew(NamedTuple):
    """A selection skew and its error: a numerical bound of an exact method, a standard error of Monte-Carlo."""

    value: float
    error: float
    method: str


def skew(
    selector: Selector[Any],
    problem: Problem,
    w: ArrayLike,
    *,
    at: ArrayLike | None = None,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
) -> Skew:
    """rho(S(selector, w), w'); that of the first round for a strategy with memory.

    Args:
        selector: The strategy.
        problem: The problem.
        w: The model that decides who is selected [v].
        at: w', the model at which the selected clients are evaluated; w by default.
        method: See ``expected_seats``.
        draws: Monte-Carlo rounds.
        seed: Monte-Carlo seed.

    >>> from fedpick import PowerOfChoice, Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> skew(Rand(m=1), problem, w=[0.2]).value
    1.0
    >>> round(skew(PowerOfChoice(m=1, d=2), problem, w=[0.5]).value, 6)  # 1.125 / (0.5 (0.125 + 1.125))
    1.8
    """
    losses, there = problem.values(w), problem.values(w if at is None else at)
    gap = there - problem.lowest
    whole, least = problem.share @ gap, rounding_error(there)
    require("skew", "F(w') - sum p_k F_k*", whole, f"above rounding errors, {least:.2g}", lambda x: x > least)
    seats = expected_seats(selector, problem.share, losses, method=method, draws=draws, seed=seed)
    error = seats.error @ np.abs(gap) / whole
    if seats.method.startswith("Monte"):
        # The seats of a draw are not independent: the error is that of the draws, not of each client.
        error = monte_carlo_weights(selector, problem.share, losses[None], draws=draws, seed=seed, gap=gap / whole)[1][
            0
        ]
    return Skew(float(seats.weight @ gap / whole), float(error), seats.method)


class Skews(NamedTuple):
    """rho_bar and rho_tilde of a strategy, found by search.

    The true minimum is at most ``rho_bar`` and the true maximum at least ``rho_tilde``. ``points`` is the number of w
    that were evaluated, ``method`` how the skew was computed at each.
    """

    rho_bar: float
    rho_tilde: float
    points: int
    method: str

    @property
    def ratio(self) -> float:
        """rho_tilde / rho_bar: 1 where there is no bias, infinite where rho_bar is 0 alone."""
        if self.rho_tilde == self.rho_bar:
            return 1.0
        return self.rho_tilde / self.rho_bar if self.rho_bar > 0 else math.inf


def skews(
    selector: Selector[Any],
    problem: Problem,
    w: ArrayLike,
    *,
    pairs: Literal["all", "same"] = "all",
    refine: int = 0,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
) -> Skews:
    """rho_bar = min over w, w' and rho_tilde = max over w at w*, by search.

    Where all clients agree (gamma = 0) the skew at w* is 0 / 0 and there is no bias: rho_tilde is then rho_bar.

    Args:
        selector: The strategy.
        problem: The problem.
        w: Points [n, v], such as ``grid`` and ``random_points`` give; w* is added, so that rho_bar <= rho_tilde.
        pairs: "all" combines each w with each w', as in the definition; "same" takes w' = w, where rho_bar grows with
            d: training with one local step (with tau of them, w' is up to tau - 1 steps away: ``skews_along``).
        refine: The number of best points from which a random search continues in smaller and smaller steps.
        method: See ``expected_seats``.
        draws: Monte-Carlo rounds.
        seed: Seed of Monte-Carlo and of the random search.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> skews(Rand(m=1), quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]]), w=[[3.0], [0.2]]).ratio
    1.0
    """
    require("skews", "refine", refine, "at least 0", lambda x: x >= 0, whole=True)
    one_of("skews", "pairs", pairs, ("all", "same"))
    points = _check_points("skews", w, problem)
    agree = problem.gamma == 0  # then all gaps at w* are 0
    points = points if agree else np.concatenate([problem.optimum[None], points])
    v, reach = points.shape[1], np.ptp(points, axis=0)
    gap_at_optimum = problem.values(problem.optimum[None]) - problem.lowest

    def seats_at(w: NDArray[Any]) -> ExpectedWeights:
        return mean_weights(selector, problem, w, method=method, draws=draws, seed=seed)

    def ratios(w: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
        weight, gap = seats_at(w).weight, problem.values(at) - problem.lowest
        return np.asarray((weight * gap).sum(axis=1) / (gap @ problem.share))

    weight, _, how = seats_at(points)
    there = problem.values(points)
    gap = there - problem.lowest
    whole, least = gap @ problem.share, np.array([rounding_error(each) for each in there])
    rule = f"above rounding errors, {least.max():.2g}, at every point"
    require("skews", "F(w) - sum p_k F_k*", whole, rule, lambda x: x > least)
    low = weight @ gap.T / whole[None, :] if pairs == "all" else ((weight * gap).sum(axis=1) / whole)[:, None]
    high = low.min(axis=1) if agree else (weight @ gap_at_optimum[0]) / (gap_at_optimum[0] @ problem.share)
    rho_bar, rho_tilde, number = float(low.min()), float(high.max()), len(points)
    for rank in range(min(refine, len(points))):
        i, j = np.unravel_index(np.argsort(low, axis=None)[rank], low.shape)
        if pairs == "all":
            start, far = np.concatenate([points[i], points[j]]), np.concatenate([reach, reach])
            value, evaluated = _search(lambda x: ratios(x[:, :v], x[:, v:]), start, far, seed)
        else:
            value, evaluated = _search(lambda x: ratios(x, x), points[i], reach, seed)
        rho_bar, number = min(rho_bar, value), number + evaluated
        if agree:
            continue
        start = points[np.argsort(-high)[rank]]
        value, evaluated = _search(lambda x: -ratios(x, np.broadcast_to(problem.optimum, x.shape)), start, reach, seed)
        rho_tilde, number = max(rho_tilde, -value), number + evaluated
    return Skews(rho_bar, rho_bar if agree else rho_tilde, number, how)


def mean_weights(selector: Selector[Any], problem: Problem, w: ArrayLike, **options: Any) -> ExpectedWeights:
    """The mean weight of each client at many models, [n, K].

    Args:
        selector: The strategy.
        problem: The problem.
        w: Models [n, v].
        **options: ``method``, ``draws`` and ``seed``, as for ``expected_seats``.

    >>> from fedpick import Rand
    >>> from fedpick.theory import two_clients
    >>> mean_weights(Rand(m=1), two_clients(a=1.0, b=3.0), [[0.0], [1.0]]).weight
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    losses = problem.values(_check_points("mean_weights", w, problem))
    return expected_seats(selector, problem.share, losses, **options)


def grid(low: float, high: float, *, per_axis: int, v: int) -> NDArray[Any]:
    """All points of a regular grid in v dimensions, [per_axis**v, v]: the paper's search.

    Args:
        low: Smallest coordinate.
        high: Largest coordinate.
        per_axis: Points along each axis.
        v: Dimensions.

    >>> grid(-1, 1, per_axis=2, v=2).tolist()
    [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    natural("grid", "per_axis", per_axis)
    natural("grid", "v", v)
    require("grid", "v", v, "at most 20", lambda n: n <= 20)
    require("grid", "points", float(per_axis) ** v, "at most a million", lambda n: n <= 1e6)
    axes = np.meshgrid(*[np.linspace(low, high, per_axis)] * v, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, v)


def random_points(problem: Problem, number: int, spread: float, *, seed: int = 0) -> NDArray[Any]:
    """Random points around w*, at distances of all orders of magnitude from a thousandth of ``spread`` to it.

    Args:
        problem: The problem.
        number: Number of points.
        spread: Largest distance.
        seed: Random seed.

    >>> from fedpick.theory import quadratic_problem
    >>> random_points(quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]]), number=7, spread=10.0).shape
    (7, 1)
    """
    natural("random_points", "number", number)
    require("random_points", "spread", spread, "above 0 and at most 1e100", lambda x: (x > 0) & (x <= 1e100))
    require("random_points", "seed", seed, "at least 0", lambda x: x >= 0, whole=True)
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(number, len(problem.optimum)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(problem.optimum + spread * 10 ** rng.uniform(-3, 0, (number, 1)) * direction)


def skew_trace(result: Any) -> dict[str, NDArray[Any]]:
    """The simulator's running skew, at models after training: for strategies that are evaluated equally often.

    ``round`` [E]; ``rho`` [R, E], the skew of the seats since the last evaluation, at the current model; ``lowest``
    [R, E], the lowest so far; ``relative`` [R, E], rho over its first value. Training has lowered the losses of those
    just selected, most at first: even for rand, whose skew is 1, rho lies below 1 and rises, and depends on ``every``.
    So it does not decide the paper's conjecture that the skew falls. For F_k* stands the lowest possible value.

    Args:
        result: A result of R runs with E evaluations.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
    >>> local = Local(tau=2, b=1, eta=1e-3)
    >>> trace = skew_trace(simulate(Quadratic(K=5), QuadraticModel(), Rand(m=2), local, rounds=4, every=2))
    >>> trace["round"], trace["rho"].shape
    (array([2, 4]), (1, 2))
    """
    rho = np.asarray(result.metrics["skew"])[:, 1:]
    lowest, rounds = np.fmin.accumulate(rho, axis=1), np.asarray(result.evaluated)[1:]
    return {"round": rounds, "rho": rho, "lowest": lowest, "relative": rho / rho[:, :1]}


def _search(
    value: Callable[[NDArray[Any]], NDArray[Any]],
    start: NDArray[Any],
    reach: NDArray[Any],
    seed: int,
    at_once: int = 64,
) -> tuple[float, int]:
    """The lowest value of a random search, in steps from a quarter of the reach to a thousandth; and its cost."""
    rng = np.random.default_rng(seed)
    best, lowest, step, evaluated = start, float(value(start[None])[0]), 0.25, 1
    for _ in range(LONGEST_SEARCH):  # the lowest value may lie at infinity
        if step < 1e-3:
            break
        trial = best + step * (reach + 1e-9) * rng.normal(size=(at_once, len(start)))
        values = value(trial)
        evaluated += at_once
        if values.min() < lowest:
            best, lowest = trial[values.argmin()], float(values.min())
        else:
            step /= 2
    return lowest, evaluated


def _check_points(owner: str, w: ArrayLike, problem: Problem) -> NDArray[Any]:
    points = np.asarray(w, float)
    v = len(problem.optimum)
    if points.ndim != 2 or points.shape[1] != v or len(points) == 0:
        raise ValueError(f"{owner}: w must have shape (n, v) with v = {v}, got shape {points.shape}")
    require(owner, "w", points, "between -1e100 and 1e100", lambda x: np.abs(x) <= 1e100)
    return points
