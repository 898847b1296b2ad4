"""Several results as one, or as one table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.metrics import Numbers, Payload
from fedpick.results.export import write_csv
from fedpick.results.result import Result
from fedpick.text import shown


def concatenate(results: list[Result]) -> Result:
    """The runs of several results as one, row below row.

    Args:
        results: Results with the same rounds and evaluations.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
    >>> result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2)
    >>> concatenate([result, result]).runs
    [{'seed': 0}, {'seed': 0}]
    """
    if not isinstance(results, list | tuple) or not results:
        raise ValueError(f"concatenate: results must be a list of one Result or more, got {shown(results)}")
    first = results[0]
    if any(one.rounds != first.rounds or not np.array_equal(one.evaluated, first.evaluated) for one in results):
        raise ValueError("concatenate: results must have the same rounds and evaluations, got different ones")
    same = all(np.array_equal(one.share, first.share) for one in results)

    def by_row(parts: list[Any]) -> Any:
        rows = np.concatenate([np.broadcast_to(part, len(one.runs)) for part, one in zip(parts, results, strict=True)])
        return rows if (rows != rows[:1]).any() else rows[0].item()

    return replace(
        first,
        runs=[run for one in results for run in one.runs],
        share=first.share if same else np.concatenate([one.shares for one in results]),
        model_bytes=by_row([one.model_bytes for one in results]),
        payload=Payload(*(by_row(list(parts)) for parts in zip(*(one.payload for one in results), strict=True))),
        metrics={
            name: np.concatenate([one.metrics[name] for one in results])
            for name in first.metrics
            if all(name in one.metrics for one in results)
        },
        records={
            name: np.concatenate([one.records[name] for one in results])
            for name in first.records
            if all(name in one.records for one in results)
        },
        params=None,
        finished=all(one.finished for one in results),
        clients=first.clients if all(one.clients == first.clients for one in results) else (),
        better={name: higher for name, higher in first.better.items() if all(name in one.better for one in results)},
    )


def stack_columns(results: Sequence[Result]) -> dict[str, Numbers]:
    """The columns of several results, one below the other: they may differ in rounds, evaluations and metrics.

    Args:
        results: The results; what one does not have is empty in its rows.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
    >>> few, many = (simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=n) for n in (1, 2))
    >>> stack_columns([few, many])["round"].tolist()
    [0, 1, 0, 1, 2]
    """
    parts = [{name: values.astype(object) for name, values in one.columns().items()} for one in results]
    names = dict.fromkeys(name for part in parts for name in part)
    empty = [np.full(len(part["round"]), "", object) for part in parts]
    return {
        name: np.concatenate([part.get(name, none) for part, none in zip(parts, empty, strict=True)]) for name in names
    }


def write_runs(results: Sequence[Result], path: str | Path) -> None:
    """Write all runs of several results as one CSV file, which is replaced whole or not at all.

    Args:
        results: As ``stack_columns`` takes them.
        path: The file.
    """
    write_csv(stack_columns(results), path)
