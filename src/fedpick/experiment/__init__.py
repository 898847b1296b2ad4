"""Experiments: what decides a result as one dataclass, read from TOML, run resumably, the same one never twice."""

from fedpick.experiment.experiment import Experiment, Metrics, differences, from_plain, names, read
from fedpick.experiment.runner import Batch, Run, load_results, missing, plan_batches, result_of, run, run_missing

__all__ = [
    "Batch",
    "Experiment",
    "Metrics",
    "Run",
    "differences",
    "from_plain",
    "load_results",
    "missing",
    "names",
    "plan_batches",
    "read",
    "result_of",
    "run",
    "run_missing",
]
