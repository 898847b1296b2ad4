"""Results of simulations: statistics, plots, exports, loggers."""

from fedpick.results.concatenation import concatenate, stack_columns, write_runs
from fedpick.results.idleness import idle_runs, idle_sentence
from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result
from fedpick.results.stats import Interval, Spread, interval, median_interval, median_text, sign_test

__all__ = [
    "Interval",
    "MLflow",
    "Result",
    "Spread",
    "TensorBoard",
    "concatenate",
    "idle_runs",
    "idle_sentence",
    "interval",
    "median_interval",
    "median_text",
    "sign_test",
    "stack_columns",
    "write_runs",
]
