"""Selection skew: by how much more than its share a strategy picks the clients that are worse off.

rho(S(pi, w), w') = E[mean over the seats of F_k(w') - F_k*] / sum p_k (F_k(w') - F_k*): w decides who is selected, w'
is where they are looked at. It is 1 for an unbiased strategy. rho_bar is its minimum over w and w', rho_tilde its
maximum over w at w' = w*.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from fedpick.theory.problem import Problem
from fedpick.theory.selection_probability import Method, expected_seats, played, weights_at
from fedpick.validation import natural, one_of, require

Numbers = np.ndarray[Any, Any]


class Skew(NamedTuple):
    """A selection skew and its error: a numerical bound of an exact method, a standard error of Monte-Carlo."""

    value: float
    error: float
    method: str


def skew(
    selector: Any,
    problem: Problem,
    w: Any,
    at: Any = None,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
) -> Skew:
    """rho(S(selector, w), at), where ``at`` is w unless given; of a strategy that remembers, in its first round.

    >>> from fedpick import PowerOfChoice, Rand
    >>> from fedpick.theory import quadratic_problem
    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> skew(Rand(m=1), problem, w=[0.2]).value
    1.0
    >>> round(skew(PowerOfChoice(m=1, d=2), problem, w=[0.5]).value, 6)  # 1.125 / (0.5 (0.125 + 1.125))
    1.8
    """
    losses, gap = problem.values(w), problem.values(w if at is None else at) - problem.lowest
    whole = problem.share @ gap
    require("skew", "F(w') - sum p_k F_k*", whole, "above 0", lambda x: x > 0)
    seats = expected_seats(selector, problem.share, losses, method, draws, seed)
    error = seats.error @ np.abs(gap) / whole
    if seats.method.startswith("Monte"):
        # The seats of a draw go together: the spread is that of the draws, not of the clients one by one.
        error = played(selector, problem.share, losses[None], draws, seed, gap / whole)[1][0]
    return Skew(float(seats.weight @ gap / whole), float(error), seats.method)


class Skews(NamedTuple):
    """rho_bar and rho_tilde of a strategy, as far as a search found them.

    The true minimum is at most ``rho_bar`` and the true maximum at least ``rho_tilde``: a search can miss. ``points``
    says at how many w it looked, and ``method`` how the skew was computed at each.
    """

    rho_bar: float
    rho_tilde: float
    points: int
    method: str

    @property
    def ratio(self) -> float:
        """rho_tilde / rho_bar, which is 1 where no bias stays."""
        return self.rho_tilde / self.rho_bar


def skews(
    selector: Any,
    problem: Problem,
    w: Any,
    pairs: Literal["all", "same"] = "all",
    refine: int = 0,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
) -> Skews:
    """rho_bar = min over w, w' and rho_tilde = max over w at w*, by search over the points ``w`` [n, v].

    With ``pairs="all"`` each w is combined with each w', as the definition has it; with ``"same"`` w' = w, which is
    what training meets (w' is never more than tau steps away from w) and where rho_bar grows with d. From the
    ``refine`` best points a random search goes on in smaller and smaller steps. ``grid`` and ``random_points`` give points;
    w* is always one of them, so that rho_bar is at most rho_tilde. Where all clients agree (gamma = 0) the skew at w*
    is 0 / 0 and no bias can stay: rho_tilde is then rho_bar.

    >>> from fedpick import Rand
    >>> from fedpick.theory import quadratic_problem
    >>> skews(Rand(m=1), quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]]), w=[[3.0], [0.2]]).ratio
    1.0
    """
    require("skews", "refine", refine, "at least 0", lambda x: x >= 0, whole=True)
    one_of("skews", "pairs", pairs, ("all", "same"))
    points = _points("skews", "w", w, problem)
    agree = problem.gamma == 0  # at w* all gaps are 0 then, and no bias can stay
    points = points if agree else np.concatenate([problem.optimum[None], points])
    v, reach = points.shape[1], np.ptp(points, axis=0)
    gap_at_optimum = problem.values(problem.optimum[None]) - problem.lowest

    def ratios(w: Numbers, at: Numbers) -> Numbers:
        weight, gap = mean_weights(selector, problem, w, method, draws, seed)[0], problem.values(at) - problem.lowest
        return np.asarray((weight * gap).sum(axis=1) / (gap @ problem.share))

    weight, how = mean_weights(selector, problem, points, method, draws, seed)
    gap = problem.values(points) - problem.lowest
    whole = gap @ problem.share
    require("skews", "F(w) - sum p_k F_k*", whole, "above 0 at every point", lambda x: x > 0)
    low = weight @ gap.T / whole[None, :] if pairs == "all" else ((weight * gap).sum(axis=1) / whole)[:, None]
    high = low.min(axis=1) if agree else (weight @ gap_at_optimum[0]) / (gap_at_optimum[0] @ problem.share)
    rho_bar, rho_tilde, number = float(low.min()), float(high.max()), len(points)
    for rank in range(min(refine, len(points))):
        i, j = np.unravel_index(np.argsort(low, axis=None)[rank], low.shape)
        if pairs == "all":
            start, far = np.concatenate([points[i], points[j]]), np.concatenate([reach, reach])
            value, tried = _search(lambda x: ratios(x[:, :v], x[:, v:]), start, far, seed)
        else:
            value, tried = _search(lambda x: ratios(x, x), points[i], reach, seed)
        rho_bar, number = min(rho_bar, value), number + tried
        if agree:
            continue
        start = points[np.argsort(-high)[rank]]
        value, tried = _search(lambda x: -ratios(x, np.broadcast_to(problem.optimum, x.shape)), start, reach, seed)
        rho_tilde, number = max(rho_tilde, -value), number + tried
    return Skews(rho_bar, rho_bar if agree else rho_tilde, number, how)


def mean_weights(
    selector: Any, problem: Problem, w: Any, method: Method = "best", draws: int = 10_000, seed: int = 0
) -> tuple[Numbers, str]:
    """The mean weight of each client at each of the points, [n, K], and how it was found."""
    points = _points("mean_weights", "w", w, problem)
    weight, _, how = weights_at(selector, problem.share, problem.values(points), method, draws, seed)
    return weight, how


def grid(low: float, high: float, per_axis: int, v: int) -> Numbers:
    """All points of a regular grid in v dimensions, [per_axis**v, v]: the paper's search.

    >>> grid(-1, 1, per_axis=2, v=2).tolist()
    [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    natural("grid", "per_axis", per_axis)
    natural("grid", "v", v)
    require("grid", "v", v, "at most 20", lambda n: n <= 20)
    require("grid", "points", float(per_axis) ** v, "at most a million", lambda n: n <= 1e6)
    axes = np.meshgrid(*[np.linspace(low, high, per_axis)] * v, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, v)


def random_points(problem: Problem, number: int, spread: float, seed: int = 0) -> Numbers:
    """Points at random around w*, at distances up to ``spread`` of every order of magnitude down to a thousandth.

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


def skew_trace(result: Any) -> dict[str, Numbers]:
    """The simulator's running estimate of rho during training, which the paper conjectures to fall.

    From a ``Result``: ``round`` [E]; ``rho`` [R, E], the skew of the seats since the evaluation before, at the present
    model; ``lowest`` [R, E], the lowest so far, an estimate of rho_bar along the way; ``relative`` [R, E], rho over its
    first value, which falls below 1 where the conjecture holds. For F_k* stands the lowest value that the objective can
    take, so all of them are estimates.

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


def _search(value: Any, start: Numbers, reach: Numbers, seed: int, at_once: int = 64) -> tuple[float, int]:
    """The lowest value that a random search from here finds, in steps from a quarter of the reach to a thousandth."""
    rng = np.random.default_rng(seed)
    best, lowest, step, tried = start, float(value(start[None])[0]), 0.25, 1
    while step > 1e-3:
        trial = best + step * (reach + 1e-9) * rng.normal(size=(at_once, len(start)))
        found = value(trial)
        tried += at_once
        if found.min() < lowest:
            best, lowest = trial[found.argmin()], float(found.min())
        else:
            step /= 2
    return lowest, tried


def _points(owner: str, name: str, w: Any, problem: Problem) -> Numbers:
    points = np.asarray(w, float)
    v = len(problem.optimum)
    if points.ndim != 2 or points.shape[1] != v or len(points) == 0:
        raise ValueError(f"{owner}: {name} must have shape (n, v) with v = {v}, got shape {points.shape}")
    require(owner, name, points, "between -1e100 and 1e100", lambda x: np.abs(x) <= 1e100)
    return points
