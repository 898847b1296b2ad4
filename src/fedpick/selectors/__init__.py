"""The strategies, one file per paper; ``fedpick.registry`` has the table of their names."""

from fedpick.selectors.afl import AFL
from fedpick.selectors.auto import Auto
from fedpick.selectors.clustered_similarity import ClusteredSimilarity
from fedpick.selectors.clustered_size import ClusteredSize
from fedpick.selectors.defences import Credits, RankClip
from fedpick.selectors.divfl import DivFL
from fedpick.selectors.fedau import Unbiased
from fedpick.selectors.fedcor import FedCor
from fedpick.selectors.fedcs import FedCS
from fedpick.selectors.hics import HiCS
from fedpick.selectors.kvib import KVib
from fedpick.selectors.mixture import Mixture
from fedpick.selectors.oort import Oort
from fedpick.selectors.optimal import OptimalSampling
from fedpick.selectors.power import PowerOfChoice
from fedpick.selectors.private import Private
from fedpick.selectors.rand import Full, Rand, Uniform
from fedpick.selectors.refl import REFL
from fedpick.selectors.schedule import Halving, Schedule, Shrinking, Switch
from fedpick.selectors.score import ClippedLoss, LocalLoss, OwnScore, QFairLoss, Score
from fedpick.selectors.tifl import TiFL
from fedpick.selectors.ucb import UCBCS
from fedpick.selectors.wrappers import Cooldown, Explore

__all__ = [
    "AFL",
    "REFL",
    "UCBCS",
    "Auto",
    "ClippedLoss",
    "ClusteredSimilarity",
    "ClusteredSize",
    "Cooldown",
    "Credits",
    "DivFL",
    "Explore",
    "FedCS",
    "FedCor",
    "Full",
    "Halving",
    "HiCS",
    "KVib",
    "LocalLoss",
    "Mixture",
    "Oort",
    "OptimalSampling",
    "OwnScore",
    "PowerOfChoice",
    "Private",
    "QFairLoss",
    "Rand",
    "RankClip",
    "Schedule",
    "Score",
    "Shrinking",
    "Switch",
    "TiFL",
    "Unbiased",
    "Uniform",
]
