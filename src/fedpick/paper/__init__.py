"""The paper, reproduced: every figure and table as data, run, compared with what is claimed, and judged."""

from fedpick.paper.claims import Check, Claim
from fedpick.paper.items import ITEMS, Done, chosen, reproduce
from fedpick.paper.outcome import Found, Item, Outcome, Table
from fedpick.paper.settings import FULL, QUICK, TINY, Size

__all__ = [
    "FULL",
    "ITEMS",
    "QUICK",
    "TINY",
    "Check",
    "Claim",
    "Done",
    "Found",
    "Item",
    "Outcome",
    "Size",
    "Table",
    "chosen",
    "reproduce",
]
