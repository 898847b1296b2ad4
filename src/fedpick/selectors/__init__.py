"""The strategies, one file per paper; ``fedpick.registry`` has the table of their names."""

from fedpick.selectors.afl import AFL
from fedpick.selectors.clustered_similarity import ClusteredSimilarity
from fedpick.selectors.divfl import DivFL
from fedpick.selectors.fedcor import FedCor
from fedpick.selectors.hics import HiCS
from fedpick.selectors.power import PowerOfChoice
from fedpick.selectors.rand import Full, Rand, Uniform
from fedpick.selectors.schedule import Schedule, Shrinking
from fedpick.selectors.score import ClippedLoss, LocalLoss, OwnScore, QFairLoss, Score

__all__ = [
    "AFL",
    "ClippedLoss",
    "ClusteredSimilarity",
    "DivFL",
    "FedCor",
    "Full",
    "HiCS",
    "LocalLoss",
    "OwnScore",
    "PowerOfChoice",
    "QFairLoss",
    "Rand",
    "Schedule",
    "Score",
    "Shrinking",
    "Uniform",
]
