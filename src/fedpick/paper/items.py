"""The table of all items, in the paper's order, and their reproduction."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from fedpick.experiment import Batch, missing, run_missing
from fedpick.paper.ablations import OBJECTIVE, RATES
from fedpick.paper.clustered_divfl import CLUSTERED_SIMILARITY, DIVFL
from fedpick.paper.clustered_ocs_kvib import CLUSTERED_SIZE, K_VIB, OCS
from fedpick.paper.fedau import FEDAU
from fedpick.paper.fedcs import FEDCS
from fedpick.paper.figure1 import FIGURE_1
from fedpick.paper.figure2a_6 import FIGURE_2A, FIGURE_6
from fedpick.paper.figure2b import FIGURE_2B
from fedpick.paper.figure3 import FIGURE_3
from fedpick.paper.figures4_5_7_8 import FIGURE_4, FIGURE_5, FIGURE_7, FIGURE_8
from fedpick.paper.hics_fedcor import FEDCOR, HICS
from fedpick.paper.item import Item, ItemRuns, Outcome
from fedpick.paper.oort import OORT
from fedpick.paper.settings import Size
from fedpick.paper.tables1_2 import TABLE_1, TABLE_2
from fedpick.paper.tifl_refl import REFL, TIFL
from fedpick.paper.ucb_adapow import ADAPOW_D, UCB_CS
from fedpick.registry import nearest
from fedpick.results import Result
from fedpick.sim import find_fashion_mnist
from fedpick.storage import RunStore
from fedpick.text import shown

LATER = (  # claims of the papers of other strategies
    *(CLUSTERED_SIZE, CLUSTERED_SIMILARITY, OCS, K_VIB),
    *(ADAPOW_D, UCB_CS, OORT, FEDCOR),
    *(TIFL, FEDCS, REFL),
    *(DIVFL, HICS, FEDAU),
)
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
        *LATER,
    )
}


class ItemResult(NamedTuple):
    """An item and its outcome, or why it was left out."""

    item: Item
    outcome: Outcome | None
    left_out: str = ""


def get_items(names: Iterable[str]) -> list[Item]:
    """The items of these names, in the paper's order.

    >>> [item.name for item in get_items(["table1", "fig3"])]
    ['fig3', 'table1']
    """
    wanted = set(names)
    for name in wanted:
        if name not in ITEMS:
            raise ValueError(
                f"paper: an item must be one of {', '.join(ITEMS)}, got {shown(name)}{nearest(name, ITEMS)}"
            )
    return [item for name, item in ITEMS.items() if name in wanted]


def reproduce(
    items: Iterable[Item],
    size: Size,
    store: RunStore,
    *,
    on_start: Callable[[Item], None] = lambda item: None,
    on_progress: Callable[[Item, Batch, Result], None] = lambda item, batch, so_far: None,
    on_end: Callable[[ItemResult], None] = lambda result: None,
) -> list[ItemResult]:
    """Run what is missing and conclude, item by item.

    An item whose data set cannot be found is left out. Titles of charts of a smaller version end with its name.

    Args:
        items: The items, such as ``ITEMS.values()``.
        size: How much to run: FULL, QUICK or TINY.
        store: The folder of runs.
        on_start: Called with each item before its runs.
        on_progress: Called with the item, the batch under way and its result so far.
        on_end: Called with the result of each item.
    """
    results = []
    for item in items:
        on_start(item)
        with warnings.catch_warnings():
            # Clients smaller than b, and fewer of them than d, are part of the paper's setting.
            warnings.filterwarnings("ignore", message="simulate: (b=|fewer clients)")
            results.append(_reproduce_item(item, size, store, on_progress))
        on_end(results[-1])
    return results


def _reproduce_item(
    item: Item, size: Size, store: RunStore, on_progress: Callable[[Item, Batch, Result], None]
) -> ItemResult:
    experiments = item.experiments(size)
    try:
        if item.needs_fashion_mnist(size) and missing(experiments.values(), store):
            find_fashion_mnist()  # before anything is run
        run_missing(experiments.values(), store, lambda batch, so_far: on_progress(item, batch, so_far))
        outcome = item.conclude(ItemRuns(store, size, experiments))
    except (ConnectionError, FileNotFoundError, ModuleNotFoundError) as error:
        return ItemResult(item, None, str(error))
    charts = tuple(replace(chart, title=chart.title + size.label) for chart in outcome.charts)  # pictures say it, too
    return ItemResult(item, replace(outcome, charts=charts))
