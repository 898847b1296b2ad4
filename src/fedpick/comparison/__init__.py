"""Which clients should I train on, and what do I gain? Strategies side by side on one task, with an answer in words."""

from fedpick.comparison.outcome import Comparison, Standing
from fedpick.comparison.tasks import STRATEGIES, TASKS, Choices, experiments
from fedpick.comparison.writing import Told, draw, load, tell, write

__all__ = [
    "STRATEGIES",
    "TASKS",
    "Choices",
    "Comparison",
    "Standing",
    "Told",
    "draw",
    "experiments",
    "load",
    "tell",
    "write",
]
