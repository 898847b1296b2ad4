"""The arena: which strategy wins where, over many federations, with the same seeds and step sizes for all."""

from fedpick.arena.page import render_arena
from fedpick.arena.ranks import Ranking, agreement, critical_difference, rank
from fedpick.arena.running import play
from fedpick.arena.scores import Scores, score
from fedpick.arena.suite import FAMILIES, STRATEGIES, VERSION, Family, Problem, make_problems
from fedpick.arena.tables import from_plain, markdown, rank_table, to_plain

__all__ = [
    "FAMILIES",
    "STRATEGIES",
    "VERSION",
    "Family",
    "Problem",
    "Ranking",
    "Scores",
    "agreement",
    "critical_difference",
    "from_plain",
    "make_problems",
    "markdown",
    "play",
    "rank",
    "rank_table",
    "render_arena",
    "score",
    "to_plain",
]
