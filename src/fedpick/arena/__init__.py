"""The arena: which strategy wins where, over many federations, with the same seeds and step sizes for all."""

from fedpick.arena.advice import (
    Advice,
    Expected,
    Trial,
    advise,
    candidates,
    leave_families_out,
    round_traffic,
    to_plain_advice,
)
from fedpick.arena.design import SOURCES, Cell, Source, make_cells
from fedpick.arena.features import Features, describe
from fedpick.arena.map import Map, gather, play_cell, play_cells, read_map
from fedpick.arena.map_page import write_map_page
from fedpick.arena.page import render_arena
from fedpick.arena.ranks import Ranking, agreement, critical_difference, rank
from fedpick.arena.running import play
from fedpick.arena.scores import Scores, score
from fedpick.arena.suite import FAMILIES, STRATEGIES, VERSION, Family, Problem, make_problems
from fedpick.arena.tables import from_plain, markdown, rank_table, to_plain

__all__ = [
    "FAMILIES",
    "SOURCES",
    "STRATEGIES",
    "VERSION",
    "Advice",
    "Cell",
    "Expected",
    "Family",
    "Features",
    "Map",
    "Problem",
    "Ranking",
    "Scores",
    "Source",
    "Trial",
    "advise",
    "agreement",
    "candidates",
    "critical_difference",
    "describe",
    "from_plain",
    "gather",
    "leave_families_out",
    "make_cells",
    "make_problems",
    "markdown",
    "play",
    "play_cell",
    "play_cells",
    "rank",
    "rank_table",
    "read_map",
    "render_arena",
    "round_traffic",
    "score",
    "to_plain",
    "to_plain_advice",
    "write_map_page",
]
