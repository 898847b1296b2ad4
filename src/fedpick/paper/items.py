"""The table of all items, in the paper's order; and how to have them run."""

import difflib
import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fedpick.experiment import Batch, missing, run_missing
from fedpick.paper.ablations import OBJECTIVE, RATES
from fedpick.paper.figure1 import FIGURE_1
from fedpick.paper.figure2a_6 import FIGURE_2A, FIGURE_6
from fedpick.paper.figure2b import FIGURE_2B
from fedpick.paper.figure3 import FIGURE_3
from fedpick.paper.figures4_5_7_8 import FIGURE_4, FIGURE_5, FIGURE_7, FIGURE_8
from fedpick.paper.item import Item, ItemRuns, Outcome
from fedpick.paper.settings import Size
from fedpick.paper.tables1_2 import TABLE_1, TABLE_2
from fedpick.results import Result
from fedpick.sim import find_fashion_mnist
from fedpick.storage import RunStore

ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        FIGURE_1,
        FIGURE_2A,
        FIGURE_2B,
        FIGURE_3,
        FIGURE_4,
        FIGURE_5,
        TABLE_1,
        TABLE_2,
        FIGURE_6,
        FIGURE_7,
        FIGURE_8,
        OBJECTIVE,
        RATES,
    )
}


class ItemResult(NamedTuple):
    """An item and what came out of it, or why it was left out."""

    item: Item
    outcome: Outcome | None
    left_out: str = ""


def chosen(names: Iterable[str]) -> list[Item]:
    """The items of these names, in the paper's order.

    >>> [item.name for item in chosen(["table1", "fig3"])]
    ['fig3', 'table1']
    """
    wanted = set(names)
    for name in wanted:
        if name not in ITEMS:
            near = difflib.get_close_matches(name, ITEMS, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"paper: an item must be one of {', '.join(ITEMS)}, got {name!r}{hint}")
    return [item for name, item in ITEMS.items() if name in wanted]


def reproduce(
    items: Iterable[Item],
    size: Size,
    store: RunStore,
    watch: Callable[[Item, Batch, Result], None] | None = None,
    ended: Callable[[ItemResult], None] | None = None,
    began: Callable[[Item], None] | None = None,
) -> list[ItemResult]:
    """Run what is missing and conclude, item by item. Without Fashion-MNIST, what needs it is left out, and says so."""
    found = []
    for item in items:
        if began is not None:
            began(item)
        with warnings.catch_warnings():
            # Clients smaller than b, and fewer of them than d, are part of the paper's setting.
            warnings.filterwarnings("ignore", message="simulate: (b=|fewer clients)")
            found.append(_one(item, size, store, watch))
        if ended is not None:
            ended(found[-1])
    return found


def _one(item: Item, size: Size, store: RunStore, watch: Callable[[Item, Batch, Result], None] | None) -> ItemResult:
    experiments = item.experiments(size)
    hear = None if watch is None else lambda batch, so_far: watch(item, batch, so_far)
    try:
        if item.needs_fashion_mnist(size) and missing(experiments.values(), store):
            find_fashion_mnist()  # before anything is run
        run_missing(experiments.values(), store, hear)
        return ItemResult(item, item.conclude(ItemRuns(store, size, experiments)))
    except (ConnectionError, FileNotFoundError) as error:
        return ItemResult(item, None, str(error))
