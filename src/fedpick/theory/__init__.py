"""The paper's theory: selection skew, heterogeneity and the three convergence bounds, as functions."""

from fedpick.theory.bounds import (
    Bound,
    Constants,
    averaging_bound,
    averaging_step,
    decaying_bound,
    decaying_step,
    fixed_bound,
)
from fedpick.theory.problem import Problem, curvature, logistic_problem, minimised, noise, quadratic_problem
from fedpick.theory.seats import Seats, expected_seats
from fedpick.theory.skew import Skew, Skews, grid, mean_weights, scattered, skew, skew_trace, skews

__all__ = [
    "Bound",
    "Constants",
    "Problem",
    "Seats",
    "Skew",
    "Skews",
    "averaging_bound",
    "averaging_step",
    "curvature",
    "decaying_bound",
    "decaying_step",
    "expected_seats",
    "fixed_bound",
    "grid",
    "logistic_problem",
    "mean_weights",
    "minimised",
    "noise",
    "quadratic_problem",
    "scattered",
    "skew",
    "skew_trace",
    "skews",
]
