"""The paper's theory: selection skew, heterogeneity and the three convergence bounds."""

from fedpick.theory.averaging import Trajectory, fedavg_trajectory, skews_along
from fedpick.theory.bounds import (
    Bound,
    Constants,
    averaging_bound,
    averaging_step,
    decaying_bound,
    decaying_step,
    fixed_bound,
    solution_bias,
)
from fedpick.theory.curvature import curvature, noise
from fedpick.theory.examples import federation_problem, highest_loss_gap, random_logistic, two_client_gap, two_clients
from fedpick.theory.problem import Problem, logistic_problem, numerical_problem, quadratic_problem
from fedpick.theory.selection_probability import ExpectedWeights, expected_seats
from fedpick.theory.skew import Skew, Skews, grid, mean_weights, random_points, skew, skew_trace, skews

__all__ = [
    "Bound",
    "Constants",
    "ExpectedWeights",
    "Problem",
    "Skew",
    "Skews",
    "Trajectory",
    "averaging_bound",
    "averaging_step",
    "curvature",
    "decaying_bound",
    "decaying_step",
    "expected_seats",
    "fedavg_trajectory",
    "federation_problem",
    "fixed_bound",
    "grid",
    "highest_loss_gap",
    "logistic_problem",
    "mean_weights",
    "noise",
    "numerical_problem",
    "quadratic_problem",
    "random_logistic",
    "random_points",
    "skew",
    "skew_trace",
    "skews",
    "skews_along",
    "solution_bias",
    "two_client_gap",
    "two_clients",
]
