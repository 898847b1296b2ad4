"""The simulator: federated averaging with any selector, whole federations as one compiled program."""

from fedpick.sim._engine.compilation import release_programs
from fedpick.sim.arrays import Arrays
from fedpick.sim.availability import (
    AlternatingHalves,
    Always,
    Availability,
    Bernoulli,
    DayAndNight,
    Devices,
    Failures,
    Trace,
)
from fedpick.sim.classification import auc, calibration, check_test_set, f1, resolve_metrics
from fedpick.sim.datasets import (
    Data,
    Digits,
    FashionMNIST,
    Quadratic,
    Synthetic,
    quadratic_optimum,
)
from fedpick.sim.downloads import fetch_fashion_mnist, find_fashion_mnist, verify_fashion_mnist
from fedpick.sim.federation import Federation, pixels
from fedpick.sim.files import check_is_table, is_table
from fedpick.sim.fit import check_fit, make_federation
from fedpick.sim.flights import NYCFlights
from fedpick.sim.liars import Liars
from fedpick.sim.local import Local, train
from fedpick.sim.lowest import check_lowest
from fedpick.sim.minibatches import distinct
from fedpick.sim.models import MLP, Logistic, Model, ModelSpec, QuadraticModel, from_apply
from fedpick.sim.networks import Network
from fedpick.sim.optimizers import OptaxSchedule, RateSchedule, RobustServer, Server, StepDecay
from fedpick.sim.partition import IID, Dirichlet, Partition, PowerLaw, Shards
from fedpick.sim.polls import batch_losses, full_losses
from fedpick.sim.preflight import check_direction, check_metrics, check_room
from fedpick.sim.rows import Names
from fedpick.sim.sequences import CharLSTM
from fedpick.sim.shakespeare import Shakespeare
from fedpick.sim.shapes import check_shapes
from fedpick.sim.simulation import simulate
from fedpick.sim.sources import from_datasets, from_frame, from_partitioner
from fedpick.sim.stacking import federations_of
from fedpick.sim.summary import Summary
from fedpick.sim.surveys import Chem97, InstEval, MovieLens
from fedpick.sim.traces import TraceFile, read_devices
from fedpick.sim.transformer import Transformer, transformer_base
from fedpick.sim.vision import CNN, ResNet
from fedpick.sim.wearables import Watch

__all__ = [
    "CNN",
    "IID",
    "MLP",
    "AlternatingHalves",
    "Always",
    "Arrays",
    "Availability",
    "Bernoulli",
    "CharLSTM",
    "Chem97",
    "Data",
    "DayAndNight",
    "Devices",
    "Digits",
    "Dirichlet",
    "Failures",
    "FashionMNIST",
    "Federation",
    "InstEval",
    "Liars",
    "Local",
    "Logistic",
    "Model",
    "ModelSpec",
    "MovieLens",
    "NYCFlights",
    "Names",
    "Network",
    "OptaxSchedule",
    "Partition",
    "PowerLaw",
    "Quadratic",
    "QuadraticModel",
    "RateSchedule",
    "ResNet",
    "RobustServer",
    "Server",
    "Shakespeare",
    "Shards",
    "StepDecay",
    "Summary",
    "Synthetic",
    "Trace",
    "TraceFile",
    "Transformer",
    "Watch",
    "auc",
    "batch_losses",
    "calibration",
    "check_direction",
    "check_fit",
    "check_is_table",
    "check_lowest",
    "check_metrics",
    "check_room",
    "check_shapes",
    "check_test_set",
    "distinct",
    "f1",
    "federations_of",
    "fetch_fashion_mnist",
    "find_fashion_mnist",
    "from_apply",
    "from_datasets",
    "from_frame",
    "from_partitioner",
    "full_losses",
    "is_table",
    "make_federation",
    "pixels",
    "quadratic_optimum",
    "read_devices",
    "release_programs",
    "resolve_metrics",
    "simulate",
    "train",
    "transformer_base",
    "verify_fashion_mnist",
]
