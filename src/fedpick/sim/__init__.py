"""The simulator: federated averaging with any selector, whole federations as one compiled program."""

from fedpick.sim._engine.compilation import release_programs
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
from fedpick.sim.evaluation import batch_losses, full_losses
from fedpick.sim.federation import Federation, Summary, pixels
from fedpick.sim.local import Local, Server, StepDecay, distinct, train
from fedpick.sim.models import Model, from_apply, logistic, mlp, quadratic_model
from fedpick.sim.partition import IID, Dirichlet, PowerLaw, Shards
from fedpick.sim.preflight import check_selectors
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
    "Local",
    "Model",
    "PowerLaw",
    "Server",
    "Shards",
    "StepDecay",
    "Summary",
    "Trace",
    "batch_losses",
    "check_selectors",
    "digits",
    "distinct",
    "fashion_mnist",
    "from_apply",
    "full_losses",
    "logistic",
    "mlp",
    "pixels",
    "quadratic",
    "quadratic_model",
    "quadratic_optimum",
    "release_programs",
    "simulate",
    "synthetic",
    "train",
]
