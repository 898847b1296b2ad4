"""Example problems: the paper's two clients (Figure 1), its quadratic problem, and a random logistic regression."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.text import shown
from fedpick.theory.problem import Problem, logistic_problem, quadratic_problem
from fedpick.theory.selection_probability import check_share
from fedpick.validation import natural, require


def two_clients(a: float, b: float, share: ArrayLike = (0.5, 0.5)) -> Problem:
    """Two clients with F_1 = 1/2 (w - a)^2 and F_2 = 1/2 (w + b)^2.

    w* = p_1 a - p_2 b, and Gamma = F* = p_1 p_2 (a + b)^2 / 2.

    Args:
        a: The optimum of the first client.
        b: Minus the optimum of the second client.
        share: p_1 and p_2.

    >>> problem = two_clients(a=1.0, b=3.0)
    >>> problem.optimum, problem.gamma
    (array([-1.]), 2.0)
    """
    return quadratic_problem(_check_pair("share", share), h=[1.0, 1.0], e=[[a], [-b]])


def two_client_gap(a: float, b: float, *, share: ArrayLike, selected: ArrayLike) -> float:
    """The limit of F(w) - F* for small steps when client k is selected with probability s_k, whatever the model.

    1/2 [a (s_1 - p_1) - b (s_2 - p_2)]^2, from w -> s_1 a - s_2 b: 0 if and only if the strategy is unbiased.

    Args:
        a: The optimum of the first client.
        b: Minus the optimum of the second client.
        share: p_1 and p_2.
        selected: s_1 and s_2.

    >>> two_client_gap(a=1.0, b=3.0, share=(0.5, 0.5), selected=(0.75, 0.25))
    0.5
    """
    p, s = _check_pair("share", share), _check_pair("selected", selected)
    return float((a * (s[0] - p[0]) - b * (s[1] - p[1])) ** 2 / 2)


def highest_loss_gap(a: float, b: float, share: ArrayLike) -> float:
    """The limit of F(w) - F* when the client of higher loss is always selected: the gap with s_1 = s_2 = 1/2.

    F_1 is the higher one exactly for w < (a - b)/2, so the model ends there, where both are selected equally often:
    the strategy minimises the larger of the two losses, whatever the shares. The paper's text takes s_k to be a
    constant of a and b; it is this one.

    Args:
        a: The optimum of the first client.
        b: Minus the optimum of the second client.
        share: p_1 and p_2.

    >>> highest_loss_gap(a=1.0, b=3.0, share=(0.5, 0.5)), highest_loss_gap(a=1.0, b=3.0, share=(0.75, 0.25))
    (0.0, 0.5)
    """
    return two_client_gap(a, b, share=share, selected=(0.5, 0.5))


def federation_problem(federation: Any) -> Problem:
    """The problem of a quadratic federation of the simulator, in float64.

    Args:
        federation: Of ``fedpick.sim.Quadratic``: ``share`` [K], and ``x`` [K, 1 + v] with h_k and e_k.

    >>> from fedpick.sim import Quadratic
    >>> federation_problem(Quadratic(K=10).federation()).optimum.shape
    (5,)
    """
    x = np.asarray(federation.x, float)
    return quadratic_problem(federation.share, x[:, 0], x[:, 1:])


def random_logistic(K: int, *, seed: int = 0) -> Problem:
    """A random logistic regression with three classes, 10 to 59 samples a client, and a ridge of 0.1.

    Args:
        K: Number of clients, each with its own mean and labelling.
        seed: Random seed.

    >>> random_logistic(K=3).optimum.shape
    (12,)
    """
    K = natural("random_logistic", "K", K)
    require("random_logistic", "seed", seed, "at least 0", lambda number: number >= 0, whole=True, one=True)
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(K), rng.integers(10, 60, K))
    x = rng.normal(size=(len(client), 4)) + rng.normal(size=(K, 4))[client]
    y = np.argmax(x @ rng.normal(size=(4, 3)) + 2 * rng.normal(size=(K, 3))[client], axis=1)
    return logistic_problem(x, y, client, ridge=0.1)


def _check_pair(name: str, values: ArrayLike) -> Any:
    pair = np.asarray(values, float)
    if pair.shape != (2,):
        raise ValueError(f"two_clients: {name} must be two numbers, got {shown(values)}")
    if name == "share":
        return check_share("two_clients", pair)
    require("two_clients", name, pair, "at least 0, and not both 0", lambda x: (x >= 0) & (x.sum() > 0))
    return pair / pair.sum()
