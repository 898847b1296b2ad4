"""Runs divided among several processes, each with its own devices; a single process is the usual case.

The processes know each other after ``jax.distributed.initialize``. They communicate after a chunk where ``until``,
``checkpoint`` or ``watch`` need it, and once at the end, when the results are gathered.
"""

import itertools
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def several() -> bool:
    """Whether there is more than one process."""
    return bool(jax.process_count() > 1)


def shares(number: int) -> list[range]:
    """Each host's part of the runs 0..number-1, as even as possible.

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


def gather(tree: Any, number: int) -> Any:
    """The rows of all runs, on every host, from the rows of each."""
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
    """Whether it is true on every host."""
    return bool(np.all(_from_all(np.asarray(yes)))) if several() else yes


def same_everywhere(number: int, what: str) -> None:
    """Raise unless every host has the same number."""
    if several():
        numbers = np.ravel(_from_all(np.asarray(number)))
        if (numbers != number).any():
            raise ValueError(f"simulate: {what}, got {', '.join(map(str, numbers))} on the {len(numbers)} hosts")


def _from_all(mine: Any) -> Any:
    """The arrays of all hosts, stacked; a host that has died is an error here, or in JAX's own heartbeat."""
    try:
        return multihost_utils.process_allgather(mine)
    except (RuntimeError, ValueError) as error:  # what JAX raises differs with the network underneath
        why = str(error).splitlines()[0]
        raise ConnectionError(
            f"simulate: lost contact with a host ({why}); a call with a checkpoint resumes without it"
        ) from None
