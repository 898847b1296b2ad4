"""Results of simulations: statistics, plots, exports, loggers."""

from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result, concatenate
from fedpick.results.stats import Interval, Spread, confidence, interval

__all__ = ["Interval", "MLflow", "Result", "Spread", "TensorBoard", "concatenate", "confidence", "interval"]
