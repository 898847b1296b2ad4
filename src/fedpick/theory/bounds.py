"""The paper's three convergence bounds as functions of T, each the sum of a vanishing term and a bias.

All of them bound E[F(w_T)] - F* after T local iterations (T = rounds times tau), for objectives that are L-smooth and
mu-strongly convex, gradients of variance at most sigma^2 and mean square at most G^2, and any selection strategy. For
more than one local step the paper's proofs have a gap: docs/theory.md, "Slips in the paper".
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.theory.problem import Problem
from fedpick.validation import natural, require


class Bound(NamedTuple):
    """A bound ``total = vanishing + bias`` by number of iterations; the bias does not depend on it."""

    vanishing: NDArray[Any]
    bias: float
    total: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants of a problem and a strategy in the theorems, in the paper's letters.

    Args:
        mu: Strong convexity of every F_k.
        L: Smoothness of every F_k.
        sigma: Root of the largest variance of a gradient.
        G: Root of the largest mean square of a gradient.
        tau: Local iterations per round.
        m: Seats.
        gamma: The local-global objective gap, the paper's capital Gamma.
        rho_bar: The smallest selection skew.
        rho_tilde: The largest selection skew at w*.
        distance: The norm of w_0 - w*.
        excess: F(w_0) - F*.

    >>> Constants(mu=1, L=4, sigma=1, G=10, tau=2, m=3, gamma=0.5, rho_bar=1, rho_tilde=1, distance=3, excess=5).m
    3
    """

    mu: float
    L: float
    sigma: float = 0.0
    G: float = 0.0
    tau: int
    m: int
    gamma: float
    rho_bar: float = 1.0
    rho_tilde: float = 1.0
    distance: float
    excess: float

    def __post_init__(self) -> None:
        natural(self, "tau", self.tau)
        natural(self, "m", self.m)
        for name in ("mu", "rho_bar"):
            require(self, name, getattr(self, name), "finite and above 0", lambda x: (x > 0) & (x < np.inf))
        for name in ("sigma", "G", "gamma", "distance", "excess"):
            require(self, name, getattr(self, name), "finite and at least 0", lambda x: (x >= 0) & (x < np.inf))
        require(self, "L", self.L, f"finite and at least mu={self.mu}", lambda x: (x >= self.mu) & (x < np.inf))
        least = f"finite and at least rho_bar={self.rho_bar}"
        require(self, "rho_tilde", self.rho_tilde, least, lambda x: (x >= self.rho_bar) & (x < np.inf))

    @classmethod
    def of(cls, problem: Problem, start: ArrayLike, **others: Any) -> "Constants":
        """The constants of a problem and of runs that begin at ``start``.

        Args:
            problem: The problem, which has mu, L and Gamma.
            start: w of the first round.
            **others: tau, m and whatever is not the default.

        >>> from fedpick.theory import two_clients
        >>> Constants.of(two_clients(a=1.0, b=3.0), [1.0], tau=2, m=1).distance
        2.0
        """
        distance, excess = float(np.linalg.norm(np.asarray(start) - problem.optimum)), float(problem.excess(start))
        mu, L, gamma = problem.mu, problem.L, problem.gamma
        return cls(mu=mu, L=L, gamma=gamma, distance=distance, excess=excess, **others)


def solution_bias(*, mu: float, L: float, gamma: float, ratio: float) -> float:
    """The bias of Theorem 1, 8 L Gamma / (3 mu) (rho_tilde / rho_bar - 1), which no number of rounds removes.

    Args:
        mu: Strong convexity.
        L: Smoothness.
        gamma: The local-global objective gap.
        ratio: rho_tilde / rho_bar.

    >>> solution_bias(mu=1.0, L=3.0, gamma=0.5, ratio=1.5)
    2.0
    """
    return float(8 * L * gamma / (3 * mu) * (ratio - 1))


def decaying_step(constants: Constants, t: ArrayLike) -> NDArray[Any]:
    """eta_t = 1 / (mu (t + 4 L / mu)), the step size of local iteration t in Theorem 1.

    Args:
        constants: Only mu and L are used.
        t: Local iterations so far.

    >>> float(decaying_step(_EXAMPLE, 0))  # 1 / (4 L)
    0.0625
    """
    return np.asarray(1 / (constants.mu * (np.asarray(t, float) + 4 * constants.L / constants.mu)))


def decaying_bound(constants: Constants, T: ArrayLike) -> Bound:
    """Theorem 1: steps ``decaying_step``, the plain mean of m seats.

    Args:
        constants: The constants of the problem and the strategy; tau at most 4 L / mu + 1, as the proof needs.
        T: Local iterations.

    1 / (T + 4L/mu) [4 L (32 tau^2 G^2 + sigma^2/m) / (3 mu^2 rho_bar) + 8 L^2 Gamma / mu^2 + 2 L^2/mu |w_0 - w*|^2]
    + 8 L Gamma / (3 mu) (rho_tilde / rho_bar - 1).

    >>> bound = decaying_bound(_EXAMPLE, [0, 1000])
    >>> bool(bound.total[1] < bound.total[0]), bound.bias
    (True, 0.0)
    """
    c = constants
    start = 4 * c.L / c.mu
    _check_halving("decaying_bound", c.tau, start, "4 L / mu + 1")
    noise = 4 * c.L * (32 * c.tau**2 * c.G**2 + c.sigma**2 / c.m) / (3 * c.mu**2 * c.rho_bar)
    shrinking = noise + 8 * c.L**2 * c.gamma / c.mu**2 + c.L * start * c.distance**2 / 2
    bias = solution_bias(mu=c.mu, L=c.L, gamma=c.gamma, ratio=c.rho_tilde / c.rho_bar)
    return _bound(shrinking / (_iterations(T) + start), bias)


def fixed_bound(constants: Constants, T: ArrayLike, eta: float) -> Bound:
    """Theorem 2: a fixed step eta.

    Args:
        constants: The constants of the problem and the strategy.
        T: Local iterations.
        eta: The step, at most 1 / (4 L) and 1 / (2 mu B) with B = 1 + 3 rho_bar / 8.

    With C = 32 tau^2 G^2 + sigma^2/m + 6 rho_bar L Gamma and D = 2 Gamma (rho_tilde - rho_bar), the bias is
    L (eta C + D) / (2 mu B) and the rest L/mu (1 - eta mu B)^T [F(w_0) - F* - (eta C + D) / (2 B)].

    >>> bound = fixed_bound(_EXAMPLE, [0, 10_000], eta=0.01)
    >>> bool(abs(bound.vanishing[1]) < 1e-6 < bound.bias)
    True
    """
    c = constants
    B = 1 + 3 * c.rho_bar / 8
    largest = min(1 / (2 * c.mu * B), 1 / (4 * c.L))
    require("fixed_bound", "eta", eta, f"above 0 and at most {largest!r}", lambda x: (x > 0) & (x <= largest))
    noise = 32 * c.tau**2 * c.G**2 + c.sigma**2 / c.m + 6 * c.rho_bar * c.L * c.gamma
    floor = (eta * noise + 2 * c.gamma * (c.rho_tilde - c.rho_bar)) / (2 * B)
    return _bound(c.L / c.mu * (1 - eta * c.mu * B) ** _iterations(T) * (c.excess - floor), c.L / c.mu * floor)


def averaging_step(constants: Constants, t: ArrayLike) -> NDArray[Any]:
    """eta_t = m / (mu (t + 4 m (1 + m) L / mu)), the step size of local iteration t under general averaging.

    Args:
        constants: Only mu, L and m are used.
        t: Local iterations so far.

    >>> float(averaging_step(_EXAMPLE, 0))  # 1 / (4 (1 + m) L)
    0.015625
    """
    c = constants
    return np.asarray(c.m / (c.mu * (np.asarray(t, float) + 4 * c.m * (1 + c.m) * c.L / c.mu)))


def averaging_bound(constants: Constants, T: ArrayLike) -> Bound:
    """The appendix on general averaging: weights q_k, steps ``averaging_step``, and the skews with those weights.

    Args:
        constants: The constants of the problem and the strategy; tau at most 4 m (1 + m) L / mu + 1.
        T: Local iterations.

    1 / (T + g) [L m^2 (32 m (m-1) tau^2 G^2 + sigma^2) / (mu^2 rho_bar) + 2 L^2 m (m+2) Gamma / mu^2
    + L g |w_0 - w*|^2 / 2] + 2 L Gamma / mu (rho_tilde / rho_bar - 1) with g = 4 m (1 + m) L / mu.

    The paper prints the last term with another rho_bar in its denominator. Its own derivation (beta = m / mu,
    B = 1/m + rho_bar/2, so that beta mu B - 1 = m rho_bar / 2) gives the one here.

    The proof needs weights that sum to 1 in every round. The paper includes uniform sampling with q_k = p_k K / m,
    whose weights do not: with very unequal shares and m = 1 it can end above this bound.

    >>> averaging_bound(_EXAMPLE, 100).bias
    0.0
    """
    c = constants
    start = 4 * c.m * (1 + c.m) * c.L / c.mu
    _check_halving("averaging_bound", c.tau, start, "4 m (1 + m) L / mu + 1")
    noise = c.L * c.m**2 * (32 * c.m * (c.m - 1) * c.tau**2 * c.G**2 + c.sigma**2) / (c.mu**2 * c.rho_bar)
    shrinking = noise + 2 * c.L**2 * c.m * (c.m + 2) * c.gamma / c.mu**2 + c.L * start * c.distance**2 / 2
    return _bound(shrinking / (_iterations(T) + start), 2 * c.L * c.gamma / c.mu * (c.rho_tilde / c.rho_bar - 1))


def _check_halving(owner: str, tau: int, start: float, words: str) -> None:
    """The proofs need a step size 1 / (t + start) that does no more than halve within a round: tau - 1 <= start."""
    require(owner, "tau", tau, f"at most {words} = {start + 1:.4g}", lambda x: x - 1 <= start)


def _iterations(T: ArrayLike) -> NDArray[Any]:
    require("bound", "T", np.asarray(T), "at least 0", lambda x: x >= 0)
    return np.asarray(T, float)


def _bound(vanishing: NDArray[Any], bias: float) -> Bound:
    return Bound(vanishing, float(bias), vanishing + bias)


_EXAMPLE = Constants(
    mu=1.0, L=4.0, sigma=1.0, G=10.0, tau=2, m=3, gamma=0.5, rho_bar=1.0, rho_tilde=1.0, distance=3.0, excess=5.0
)
