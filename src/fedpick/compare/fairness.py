"""What makes a comparison a fair one: the same data, and a look at all strategies after the same rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpick.metrics import Numbers
from fedpick.results import Result
from fedpick.text import listed


def other_data(results: Mapping[str, Result], baseline: str, data: Sequence[Any]) -> str:
    """Who is of different data than the baseline, in words, as far as shares and descriptions tell; "" where nobody is.

    Args:
        results: The result of each strategy.
        baseline: The strategy that the others are compared with.
        data: A description of the data of each, or of none.
    """
    base = results[baseline]
    found = [name for name, result in results.items() if not same_shares(result, base)]
    if found:
        return f"{listed([baseline, *found])} have different clients, or different shares of the data"
    described = dict(zip(results, data, strict=False))
    found = [name for name in described if described[name] != described[baseline]]
    return f"{listed([baseline, *found])} have different data" if found else ""


def same_shares(one: Result, other: Result) -> bool:
    """Whether two results have as many clients, with the same shares of the data for each seed that both have."""
    rows = [{run["seed"]: row for row, run in enumerate(result.runs)} for result in (one, other)]
    common = [seed for seed in rows[0] if seed in rows[1]]
    mine, theirs = (
        result.shares[[own[seed] for seed in common]] for result, own in zip((one, other), rows, strict=True)
    )
    return mine.shape == theirs.shape and bool(np.allclose(mine, theirs, atol=1e-4))


def evaluated_at(result: Result) -> Numbers:
    """The rounds at which a result was evaluated: that of a federation has no values at some before its last."""
    known = [np.isfinite(result.metric(name)).any(axis=0) for name in result.metric_names if name != "skew"]
    measured: Numbers = np.any(known, axis=0)
    measured[np.flatnonzero(measured).max(initial=-1) + 1 :] = True  # not finite any more, or none is at all
    return result.evaluated[measured]


def common_evaluations(results: Sequence[Result]) -> list[Numbers]:
    """For each result, which of its evaluations are at rounds at which all were evaluated that have played so far."""
    at = [set(evaluated_at(result).tolist()) for result in results]
    pairs = list(zip(at, results, strict=True))
    common = [t for t in set().union(*at) if all(t in own or t > result.rounds for own, result in pairs)]
    return [np.isin(result.evaluated, common) for result in results]


def check_measured(metric: str, name: str, result: Result) -> None:
    """Raise where a metric was not measured; an answer says where a simulation's loss was never finite.

    Args:
        metric: The metric.
        name: The strategy.
        result: Its runs.
    """
    measured = [each for each in result.metric_names if each != "skew" and np.isfinite(result.metric(each)).any()]
    if metric not in measured and (metric != "loss" or (result.real and measured)):
        rule = f"metric {metric} must have been measured, got none for {name}"
        raise ValueError(f"compare: {rule}{f' (but {listed(measured)})' if measured else ''}")
