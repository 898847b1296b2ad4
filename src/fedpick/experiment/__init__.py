"""Experiments: what decides a result as one dataclass, read from TOML, run resumably, the same one never twice."""

from fedpick.experiment.batches import Batch, Run, plan_batches
from fedpick.experiment.experiment import Experiment, from_plain, read
from fedpick.experiment.metrics import Metrics
from fedpick.experiment.naming import differences, kind_of, names
from fedpick.experiment.runner import load_results, missing, result_of, run, run_missing, run_share
from fedpick.experiment.workers import end_with_parent, run_in_processes, submit

__all__ = [
    "Batch",
    "Experiment",
    "Metrics",
    "Run",
    "differences",
    "end_with_parent",
    "from_plain",
    "kind_of",
    "load_results",
    "missing",
    "names",
    "plan_batches",
    "read",
    "result_of",
    "run",
    "run_in_processes",
    "run_missing",
    "run_share",
    "submit",
]
