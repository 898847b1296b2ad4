"""Runs in which nobody trained: why, and what to do about it."""

import numpy as np

from fedpick.results.result import Result

SENTENCES = {
    "nobody was there": "No client was available in any round of {who}: look at the availability.",
    "nobody trained": "Nobody trained in any round of {who}: look at the strategy, which gave nobody a seat.",
    "nobody came back": "Nobody who trained came back in any round of {who}: look at the deadline and the failures.",
}


def idle_runs(result: Result) -> dict[str, int]:
    """The number of runs in which nobody was there, trained, or came back, in any round that was played.

    Args:
        result: The runs.
    """
    records = {name: result.records[name] for name in ("available", "trained", "returned") if name in result.records}
    left = np.full(len(result.runs), bool(result.rounds))
    found: dict[str, int] = {}
    for why, name in zip(SENTENCES, ("available", "trained", "returned"), strict=True):
        if name in records:
            idle = left & ~np.asarray(records[name]).any(axis=1)
            left &= ~idle
            found |= {why: int(idle.sum())} if idle.any() else {}
    return found


def idle_sentence(why: str, who: str) -> str:
    """What went wrong in such runs, and what to look at.

    Args:
        why: Of ``idle_runs``.
        who: Whose runs they are.

    >>> idle_sentence("nobody was there", "rand")
    'No client was available in any round of rand: look at the availability.'
    """
    return SENTENCES[why].format(who=who)
