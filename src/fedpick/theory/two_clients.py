"""The paper's smallest example (its Figure 1): two clients with F_1 = 1/2 (w - a)^2 and F_2 = 1/2 (w + b)^2."""

from typing import Any

import numpy as np

from fedpick.theory.problem import Problem, quadratic_problem
from fedpick.theory.selection_probability import shares
from fedpick.validation import require


def two_clients(a: float, b: float, share: Any = (0.5, 0.5)) -> Problem:
    """The problem itself: w* = p_1 a - p_2 b, and Gamma = F* = p_1 p_2 (a + b)^2 / 2.

    >>> problem = two_clients(a=1.0, b=3.0)
    >>> problem.optimum, problem.gamma
    (array([-1.]), 2.0)
    """
    _pair(share)
    return quadratic_problem(share, h=[1.0, 1.0], e=[[a], [-b]])


def two_client_gap(a: float, b: float, share: Any, selected: Any) -> float:
    """What F(w) - F* tends to with small steps when client k is selected with probability s_k, whatever the model.

    1/2 [a (s_1 - p_1) - b (s_2 - p_2)]^2, from w -> s_1 a - s_2 b: 0 if and only if the strategy is unbiased.

    >>> two_client_gap(a=1.0, b=3.0, share=(0.5, 0.5), selected=(0.75, 0.25))
    0.5
    """
    p, s = _pair(share), _pair(selected, "selected")
    return float((a * (s[0] - p[0]) - b * (s[1] - p[1])) ** 2 / 2)


def highest_loss_gap(a: float, b: float, share: Any) -> float:
    """The same when the client of higher loss is selected each time: the gap with s_1 = s_2 = 1/2.

    F_1 is the higher one exactly for w < (a - b)/2, so the model ends there, where both are selected equally often:
    the strategy minimises the larger of the two losses, whatever the shares. The paper's text takes s_k to be a
    constant of a and b; it is this one.

    >>> highest_loss_gap(a=1.0, b=3.0, share=(0.5, 0.5)), highest_loss_gap(a=1.0, b=3.0, share=(0.75, 0.25))
    (0.0, 0.5)
    """
    return two_client_gap(a, b, share, (0.5, 0.5))


def _pair(values: Any, name: str = "share") -> Any:
    if name == "share":
        found = shares("two_clients", values)
    else:
        found = np.asarray(values, float)
        require("two_clients", name, found, "at least 0", lambda x: x >= 0)
        found = found / found.sum()
    if found.shape != (2,):
        raise ValueError(f"two_clients: {name} must be two numbers, got {values!r}")
    return found
