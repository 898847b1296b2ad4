"""The strategies, one file per paper; ``fedpick.registry`` has the table of their names."""

from fedpick.selectors.afl import AFL
from fedpick.selectors.fedcs import FedCS
from fedpick.selectors.oort import Oort
from fedpick.selectors.power import PowerOfChoice
from fedpick.selectors.rand import Full, Rand, Uniform
from fedpick.selectors.refl import REFL
from fedpick.selectors.schedule import Halving, Schedule, Shrinking, Switch
from fedpick.selectors.score import ClippedLoss, LocalLoss, OwnScore, QFairLoss, Score
from fedpick.selectors.tifl import TiFL
from fedpick.selectors.ucb import UCBCS

__all__ = [
    "AFL",
    "REFL",
    "UCBCS",
    "ClippedLoss",
    "FedCS",
    "Full",
    "Halving",
    "LocalLoss",
    "Oort",
    "OwnScore",
    "PowerOfChoice",
    "QFairLoss",
    "Rand",
    "Schedule",
    "Score",
    "Shrinking",
    "Switch",
    "TiFL",
    "Uniform",
]
