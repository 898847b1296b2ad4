"""The strategies, one file per paper; ``fedpick.registry`` has the table of their names."""

from fedpick.selectors.afl import AFL
from fedpick.selectors.clustered_size import ClusteredSize
from fedpick.selectors.fedau import Unbiased
from fedpick.selectors.fedcs import FedCS
from fedpick.selectors.kvib import KVib
from fedpick.selectors.mixture import Mixture
from fedpick.selectors.optimal import OptimalSampling
from fedpick.selectors.power import PowerOfChoice
from fedpick.selectors.rand import Full, Rand, Uniform
from fedpick.selectors.refl import REFL
from fedpick.selectors.schedule import Schedule, Shrinking
from fedpick.selectors.score import ClippedLoss, LocalLoss, OwnScore, QFairLoss, Score
from fedpick.selectors.tifl import TiFL
from fedpick.selectors.wrappers import Cooldown, Explore

__all__ = [
    "AFL",
    "REFL",
    "ClippedLoss",
    "ClusteredSize",
    "Cooldown",
    "Explore",
    "FedCS",
    "Full",
    "KVib",
    "LocalLoss",
    "Mixture",
    "OptimalSampling",
    "OwnScore",
    "PowerOfChoice",
    "QFairLoss",
    "Rand",
    "Schedule",
    "Score",
    "Shrinking",
    "TiFL",
    "Unbiased",
    "Uniform",
]
