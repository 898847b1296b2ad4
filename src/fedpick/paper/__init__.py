"""The paper, reproduced: every figure and table as data, run, compared with what is claimed, and judged."""

from fedpick.paper.claims import Check, Claim
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.items import ITEMS, ItemResult, chosen, reproduce
from fedpick.paper.settings import FULL, QUICK, TINY, Size

__all__ = [
    "FULL",
    "ITEMS",
    "QUICK",
    "TINY",
    "Check",
    "Claim",
    "Item",
    "ItemResult",
    "ItemRuns",
    "Outcome",
    "Size",
    "Table",
    "chosen",
    "reproduce",
]
