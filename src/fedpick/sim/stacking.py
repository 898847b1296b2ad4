"""A federation for each run as one value, so that runs on different data are one batch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.rows import Names
from fedpick.text import shown


def federations_of(data: Sequence[Any]) -> Federation:
    """The federation of each of several descriptions, or federations, as one value.

    Descriptions that differ in their partition alone, and say that their samples do not depend on it, share them.

    Args:
        data: Descriptions of data or federations, one for each seed.

    >>> from fedpick.sim import Synthetic
    >>> federations_of([Synthetic(seed=0), Synthetic(seed=1)]).count.shape
    (2, 30)
    """
    first = data[0]
    if len(data) > 1 and getattr(first, "shares_samples", False):
        alike = [type(one) is type(first) and dataclasses.replace(one, partition=first.partition) for one in data]
        if all(one == first for one in alike):
            dealt: Federation = dataclasses.replace(first, partition=[one.partition for one in data]).federation()
            return dealt
    return stack([one.federation() if hasattr(one, "federation") else one for one in data])


def stack(federations: Sequence[Federation]) -> Federation:
    """Federations of different samples and sizes, and of the same number of clients, as one value.

    The samples lie behind one another; each run has the list of its own.

    Args:
        federations: One for each run.

    >>> one = Federation.from_arrays(x=[[0.1], [0.2], [0.3]], y=[0, 1, 1], client=[1, 0, 1])
    >>> other = Federation.from_arrays(x=[[0.4], [0.5]], y=[0, 1], client=[0, 1])
    >>> stack([one, other]).order.tolist()
    [[0, 1, 2], [3, 4, 0]]
    """
    for one in federations:
        if not isinstance(one, Federation):
            raise ValueError(f"simulate: federation must be a Federation for each seed, got {shown(one)}")
        if one.num_runs is not None:
            raise ValueError(f"simulate: federation must be a list of single ones, got one of {one.num_runs} runs")
        if one.host is not None or one.order is not None:
            rule = "sorted by client and not on the host where each seed has its own"
            raise ValueError(f"simulate: federation must be {rule}, got {one.name}")
    first = federations[0]
    _same("number of clients", [one.num_clients for one in federations])
    _same("shape of inputs", [one.x.shape[1:] for one in federations])
    _same("dtype of inputs", [one.x.dtype for one in federations])
    _same("prepare", [one.prepare for one in federations])
    own: dict[str, Any] = {
        name: jnp.stack([getattr(one, name) for one in federations]) for name in ("start", "count", "size")
    }
    return dataclasses.replace(
        first,
        **own,
        x=_joined([one.x for one in federations]),
        y=_joined([one.y for one in federations]),
        order=_rows([one.num_samples for one in federations], beyond=0),
        test_x=_joined([one.test_x for one in federations]),
        test_y=_joined([one.test_y for one in federations]),
        test_order=_rows([one.test_y.shape[0] for one in federations], beyond=-1),
        classes=max(one.classes for one in federations),
        largest=max(one.largest for one in federations),
        part=min(one.part_size for one in federations),
        names=first.names if all(one.names == first.names for one in federations) else Names(),
        name=first.name if len(federations) == 1 else f"{first.name} and {len(federations) - 1} more",
    )


def sizes_of_test_sets(federation: Federation) -> Numbers | None:
    """The size of each run's test set, [R]; None where they are alike.

    Args:
        federation: A federation for each run, or one for all.
    """
    if federation.num_runs is None or federation.test_order is None:
        return None
    sizes = (np.asarray(federation.test_order) >= 0).sum(axis=1)
    return None if (sizes == federation.test_order.shape[1]).all() else sizes


def trim_test_set(federation: Federation, size: int) -> Federation:
    """The same with so many places of the test set: without those that no run of it has.

    Args:
        federation: The federation of runs whose test sets are of this size.
        size: The size.
    """
    assert federation.test_order is not None
    return dataclasses.replace(federation, test_order=federation.test_order[..., :size])


def _same(what: str, found: list[Any]) -> None:
    other = next((one for one in found if one != found[0]), None)
    if other is not None:
        raise ValueError(f"simulate: federation must have the same {what} for every seed, got {found[0]} and {other}")


def _joined(parts: list[Any]) -> Any:
    return jax.device_put(np.concatenate([np.asarray(part) for part in parts]))


def _rows(numbers: list[int], beyond: int) -> Any:
    """The rows of each run in what lies behind one another, [R, most]."""
    if sum(numbers) >= 2**31:
        raise ValueError(f"simulate: federation must have below 2**31 samples over all seeds, got {sum(numbers):,}")
    rows: Numbers = np.full((len(numbers), max(numbers)), beyond, np.int32)
    ends = np.cumsum(numbers)
    for run, (number, end) in enumerate(zip(numbers, ends, strict=True)):
        rows[run, :number] = np.arange(end - number, end)
    return jnp.asarray(rows)
