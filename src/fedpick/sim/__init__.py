"""The simulator: federated averaging with any selector, whole federations as one compiled program."""

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
from fedpick.sim.live import MLflow, TensorBoard
from fedpick.sim.local import Local, Server, Steps
from fedpick.sim.models import Model, from_apply, logistic, mlp, quadratic_model
from fedpick.sim.partition import IID, Dirichlet, PowerLaw, Shards
from fedpick.sim.result import Result
from fedpick.sim.simulation import simulate
from fedpick.sim.spread import Interval, confidence, interval

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
    "Steps",
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
