"""The simulator: federated averaging with any selector, whole federations as one compiled program."""

from fedpick.results.loggers import MLflow, TensorBoard
from fedpick.results.result import Result
from fedpick.results.stats import Interval, confidence, interval
from fedpick.sim.availability import (
    AlternatingHalves,
    Always,
    Availability,
    Bernoulli,
    DayAndNight,
    Failures,
    Trace,
)
from fedpick.sim.datasets import digits, fashion_mnist, quadratic, quadratic_optimum, synthetic
from fedpick.sim.devices import Devices
from fedpick.sim.federation import Federation, Summary, pixels
from fedpick.sim.local import Local, Server, StepDecay
from fedpick.sim.models import Model, from_apply, logistic, mlp, quadratic_model
from fedpick.sim.partition import IID, Dirichlet, PowerLaw, Shards
from fedpick.sim.simulation import simulate

__all__ = [
    "IID",
    "AlternatingHalves",
    "Always",
    "Availability",
    "Bernoulli",
    "DayAndNight",
    "Devices",
    "Dirichlet",
    "Failures",
    "Federation",
    "Interval",
    "Local",
    "MLflow",
    "Model",
    "PowerLaw",
    "Result",
    "Server",
    "Shards",
    "StepDecay",
    "Summary",
    "TensorBoard",
    "Trace",
    "confidence",
    "digits",
    "fashion_mnist",
    "from_apply",
    "interval",
    "logistic",
    "mlp",
    "pixels",
    "quadratic",
    "quadratic_model",
    "quadratic_optimum",
    "simulate",
    "synthetic",
]
