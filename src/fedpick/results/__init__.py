"""Results of simulations: statistics, plots, exports, loggers."""

from fedpick.results.concatenation import concatenate
from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result
from fedpick.results.stats import Interval, Spread, interval, median_interval, sign_test

__all__ = [
    "Interval",
    "MLflow",
    "Result",
    "Spread",
    "TensorBoard",
    "concatenate",
    "interval",
    "median_interval",
    "sign_test",
]
