"""Who was selected, whose update came back, and how many did not."""

from collections.abc import Sequence

import numpy as np

from fedpick.compare.comparison import Comparison
from fedpick.metrics import Numbers
from fedpick.results import Result
from fedpick.text import listed


def lost(names: Sequence[str], results: Sequence[Result]) -> str:
    """How many updates did not come back, in words; "" where all did.

    Args:
        names: The strategies.
        results: The result of each.
    """
    counts = []
    for name, result in zip(names, results, strict=True):
        sent, came = (int(result.records[part].sum()) for part in ("trained", "returned"))
        counts += [(name, f"{sent - came} of {sent} updates")] if came < sent else []
    if not counts:
        return ""
    whose = [f"{count} of {name}" if len(names) > 1 else count for name, count in counts]
    return f"{listed(whose)} did not come back"


def returns(compared: Comparison, real: bool) -> tuple[bool, str]:
    """Whether it is known who was selected, and not only whose update came back; and what ``lost`` says.

    Args:
        compared: The results.
        real: Whether they are of a real federation.
    """
    known = not real and all(result.selected is not None for result in compared.results)
    return known, lost(compared.names, compared.results)


def percentages(result: Result, known: bool) -> tuple[Numbers, Numbers]:
    """The part of the seats that each client held, and the part whose update came back, % of all in the mean over runs.

    Args:
        result: The result.
        known: Whether seats are those of the selected clients; otherwise both are of the updates that came back.
    """
    came, seats = result.counts, result.selected if known else result.counts
    assert seats is not None
    all_seats = np.maximum(seats.sum(axis=1, keepdims=True), 1)
    return (100 * seats / all_seats).mean(axis=0), (100 * came / all_seats).mean(axis=0)


def seats_by_round(result: Result, record: str, step: int) -> Numbers:
    """How many seats each client has in so many rounds together, of the first run, [K, rounds / step].

    Args:
        result: The result.
        record: "selected", or "clients" for those whose update came back.
        step: The number of rounds.
    """
    found = np.zeros((result.shares.shape[1], -(-result.rounds // step)), int)
    for t, seats in enumerate(result.records[record][0]):
        np.add.at(found[:, t // step], seats[seats >= 0], 1)
    return found
