"""What one does with the result of a simulation: ask, compare, plot, export, log."""

from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result, concatenate
from fedpick.results.stats import Interval, confidence, interval

__all__ = ["Interval", "MLflow", "Result", "TensorBoard", "concatenate", "confidence", "interval"]
