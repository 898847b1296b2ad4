"""Results of simulations: statistics, plots, exports, loggers."""

from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result, concatenate
from fedpick.results.stats import Interval, Spread, interval, median_interval

__all__ = ["Interval", "MLflow", "Result", "Spread", "TensorBoard", "concatenate", "interval", "median_interval"]
