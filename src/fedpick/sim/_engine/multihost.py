"""Several processes, each with devices of its own, that share the runs among them; one process is the plain case.

JAX knows the others once ``jax.distributed.initialize`` was called. Nothing passes between them while they play, but
for what ``until``, ``checkpoint`` and ``watch`` need after a chunk; the results are gathered once, at the end.
"""

import itertools
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def several() -> bool:
    """Whether there are others."""
    return bool(jax.process_count() > 1)


def shares(number: int) -> list[range]:
    """Each host's part of the runs 0..number-1, as even as can be.

    >>> shares(5)
    [range(0, 5)]
    """
    hosts = jax.process_count()
    if number < hosts:
        raise ValueError(f"simulate: seeds must make at least one run for each of the {hosts} hosts, got {number}")
    return divide(range(number), hosts)


def divide(runs: range, parts: int) -> list[range]:
    """Consecutive parts of nearly the same length, the longer ones first.

    >>> divide(range(5), 2)
    [range(0, 3), range(3, 5)]
    """
    short, longer = divmod(len(runs), parts)
    bounds = [runs.start + part * short + min(part, longer) for part in range(parts + 1)]
    return [range(*pair) for pair in itertools.pairwise(bounds)]


def gathered(tree: Any, number: int) -> Any:
    """From each host's rows the rows of all runs, on every host."""
    if not several():
        return tree
    parts = shares(number)
    longest = len(parts[0])

    def rows(leaf: Any) -> Any:
        mine = np.asarray(leaf)
        filled = np.concatenate([mine, np.repeat(mine[-1:], longest - len(mine), axis=0)])
        everywhere = _from_all(filled)
        return np.concatenate([everywhere[host, : len(part)] for host, part in enumerate(parts)])

    return jax.tree.map(rows, tree)


def all_agree(yes: bool) -> bool:
    """Whether every host says so."""
    return bool(np.all(_from_all(np.asarray(yes)))) if several() else yes


def same_everywhere(number: int, what: str) -> None:
    """Refuse to go on from different places."""
    if several():
        found = np.ravel(_from_all(np.asarray(number)))
        if (found != number).any():
            raise ValueError(f"simulate: {what}, got {', '.join(map(str, found))} on the {len(found)} hosts")


def _from_all(mine: Any) -> Any:
    """The arrays of all hosts, stacked. A host that has died is an error here, or in JAX's own heartbeat."""
    try:
        return multihost_utils.process_allgather(mine)
    except (RuntimeError, ValueError) as error:  # what JAX raises differs with the network underneath
        why = str(error).splitlines()[0]
        raise ConnectionError(
            f"simulate: every host must be there to the end, and one is not ({why}); a checkpoint goes on without it"
        ) from None
