"""Which clients should I train on, and what do I gain? Strategies side by side on one task, with an answer in words."""

from fedpick.compare.comparison import Comparison, StrategySummary
from fedpick.compare.presets import STRATEGIES, TASKS, Choices, experiments
from fedpick.compare.report import ComparisonReport, draw, load, tell, write

__all__ = [
    "STRATEGIES",
    "TASKS",
    "Choices",
    "Comparison",
    "ComparisonReport",
    "StrategySummary",
    "draw",
    "experiments",
    "load",
    "tell",
    "write",
]
