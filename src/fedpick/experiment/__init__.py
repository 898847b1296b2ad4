"""Experiments as data: described in TOML, run resumably, the same one never twice."""

from fedpick.config import from_dict, nearest, override, plain, read, to_dict
from fedpick.experiment.data import Arrays, Digits, FashionMNIST, Quadratic, Synthetic
from fedpick.experiment.experiment import Experiment
from fedpick.experiment.parts import MLP, LocalPart, Logistic, Metrics, QuadraticModel, ServerPart
from fedpick.experiment.plan import Batch, Run, batches, differences, leaves, play

__all__ = [
    "MLP",
    "Arrays",
    "Batch",
    "Digits",
    "Experiment",
    "FashionMNIST",
    "LocalPart",
    "Logistic",
    "Metrics",
    "Quadratic",
    "QuadraticModel",
    "Run",
    "ServerPart",
    "Synthetic",
    "batches",
    "differences",
    "from_dict",
    "leaves",
    "nearest",
    "override",
    "plain",
    "play",
    "read",
    "to_dict",
]
