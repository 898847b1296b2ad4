"""The paper, reproduced: every figure and table run again, compared with what it claims, with a verdict."""

from fedpick.paper.claims import Check, Claim
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.items import ITEMS, LATER, ItemResult, get_items, reproduce
from fedpick.paper.report import Reproduction, as_markdown, as_page, write_docs, write_report
from fedpick.paper.settings import FULL, QUICK, TINY, Size

__all__ = [
    "FULL",
    "ITEMS",
    "LATER",
    "QUICK",
    "TINY",
    "Check",
    "Claim",
    "Item",
    "ItemResult",
    "ItemRuns",
    "Outcome",
    "Reproduction",
    "Size",
    "Table",
    "as_markdown",
    "as_page",
    "get_items",
    "reproduce",
    "write_docs",
    "write_report",
]
