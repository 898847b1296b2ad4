"""The table of all items, in the paper's order; and how to have them run."""

import difflib
import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fedpick.experiment import Batch
from fedpick.paper.beyond import OBJECTIVE, RATES
from fedpick.paper.fashion import FIGURE_4, FIGURE_5, FIGURE_7, FIGURE_8
from fedpick.paper.outcome import Found, Item, Outcome
from fedpick.paper.quadratics import FIGURE_2A, FIGURE_6
from fedpick.paper.settings import Size
from fedpick.paper.skewness import FIGURE_2B
from fedpick.paper.synthetics import FIGURE_3
from fedpick.paper.tables import TABLE_1, TABLE_2
from fedpick.paper.toy import FIGURE_1
from fedpick.sim import Result, datasets
from fedpick.store import Store, fulfil, missing

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


class Done(NamedTuple):
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
    store: Store,
    watch: Callable[[Item, Batch, Result], None] | None = None,
    ended: Callable[[Done], None] | None = None,
    began: Callable[[Item], None] | None = None,
) -> list[Done]:
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


def _one(item: Item, size: Size, store: Store, watch: Callable[[Item, Batch, Result], None] | None) -> Done:
    experiments = item.experiments(size)
    hear = None if watch is None else lambda batch, so_far: watch(item, batch, so_far)
    try:
        if item.needs_fashion_mnist(size) and missing(experiments.values(), store):
            datasets.find_fashion_mnist()  # before anything is run
        fulfil(experiments.values(), store, hear)
        return Done(item, item.conclude(Found(store, size, experiments)))
    except (ConnectionError, FileNotFoundError) as error:
        return Done(item, None, str(error))
