"""A headline claim each of clustered sampling by similarity and of DivFL: selection by what updates say."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.paper.claims import Check, claims_of
from fedpick.paper.comparisons import area, factor_above_one, positive
from fedpick.paper.digits_by_round import (
    COLUMNS,
    SETTING,
    accuracy_lines,
    ahead,
    digits,
    digits_rounds,
    sooner_to_target,
    speed_cells,
)
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size, synthetic
from fedpick.registry import strategy
from fedpick.report import ChartRow, curve
from fedpick.results import Result, Spread
from fedpick.sim import Dirichlet, Shards

SAMPLERS = ("rand", "clustered-size", "clustered-similarity")
LABELS = {"one label each": Shards(100, 1), "two labels each": Shards(100, 2)}


def _clustered_experiments(size: Size) -> Experiments:
    return {
        (label, name): digits(size, strategy(name, m=10), partition)
        for label, partition in LABELS.items()
        for name in SAMPLERS
    }


def _variance(result: Result) -> NDArray[Any]:
    """The variance of a client's weight over the rounds, summed over the clients, one per seed."""
    seats = result.records["clients"]
    weight = (seats[..., None] == np.arange(result.shares.shape[1])).mean(axis=2)
    return np.asarray(weight.var(axis=1).sum(axis=1))


def _jumps(result: Result) -> NDArray[Any]:
    """How far the accuracy jumps from one evaluation to the next, in points, one per seed."""
    return np.asarray(100 * np.abs(np.diff(result.metric("test_accuracy"), axis=1)).mean(axis=1))


def _clustered(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    steadier: list[Check] = []
    faster: list[Check] = []
    for label in LABELS:
        base = runs[label, "rand"]
        for name in SAMPLERS:
            result = runs[label, name]
            rows += curve(name, label, result.evaluated, values=result.metric("test_accuracy"))
            jumps = f"{_jumps(result).mean():.2f}"
            table.append((label, name, f"{_variance(result).mean():.4f}", jumps, *speed_cells(result)))
        result = runs[label, "clustered-similarity"]
        steadier += [
            factor_above_one(f"{label}: variance of the weights", _variance(base) / _variance(result)),
            factor_above_one(f"{label}: jumps of the accuracy", _jumps(base) / _jumps(result)),
        ]
        faster += [sooner_to_target(label, result, base), ahead(label, result, base)]
    statements = {
        "Clustered sampling has weights of smaller variance, and varies less in training.": steadier,
        "It converges faster than sampling by share.": faster,
    }
    columns = ("partition", "strategy", "variance of the weights, summed", "jumps, points", *COLUMNS)
    steps = Table("Variance and speed", columns, tuple(table))
    chart = accuracy_lines("clustered-similarity", "Clustered sampling: test accuracy by round", rows)
    return Outcome(claims_of("Fraboni et al. 2021, abstract", statements), (chart,), (steps,))


# DivFL

DIVERSE = {"rand-distinct": {"m": 10}, "divfl": {"m": 10}, "pow-d, d = 20": {"m": 10, "d": 20}}


def _divfl_experiments(size: Size) -> Experiments:
    worlds: dict[str, Any] = {
        "Synthetic(1,1)": lambda selector: replace(synthetic(size, selector), rounds=digits_rounds(size)),
        "digits, Dirichlet(0.3)": lambda selector: digits(size, selector, Dirichlet(50, 0.3, least=2)),
    }
    return {
        (world, name): make(strategy(name.split(",")[0], **parameters))
        for world, make in worlds.items()
        for name, parameters in DIVERSE.items()
    }


def _divfl(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    faster: list[Check] = []
    for world in dict.fromkeys(world for world, _ in runs.experiments):
        for name in DIVERSE:
            result = runs[world, name]
            rows += curve(name, world, result.evaluated, values=result.metric("test_accuracy"))
            table.append((world, name, f"{Spread.of(area(result, 'loss')):.3f}", *speed_cells(result)))
        result = runs[world, "divfl"]
        for name in ("rand-distinct", "pow-d, d = 20"):
            base = runs[world, name]
            what = f"{world}, against {name}"
            faster.append(
                positive(f"{what}: loss, mean over the rounds", area(base, "loss") - area(result, "loss"), "")
            )
            faster.append(sooner_to_target(what, result, base))
    statements = {"DivFL converges faster than random selection and than Power-of-Choice.": faster}
    columns = ("data", "strategy", "loss, mean over the rounds", *COLUMNS)
    chart = accuracy_lines("divfl", "DivFL: test accuracy by round", rows)
    speeds = Table("Loss and accuracy", columns, tuple(table))
    return Outcome(claims_of("Balakrishnan et al. 2022, abstract", statements), (chart,), (speeds,))


CLUSTERED_SIMILARITY = Item(
    "clustered-similarity",
    "Clustered sampling",
    title="One seat for every cluster of similar updates",
    about=SETTING + "100 clients of equal size that hold one label each, as the authors' ten clients for every digit, "
    "or two; 10 seats. Not as in its paper: 8 x 8 images, and angles of sketches of 64 numbers.",
    conclude=_clustered,
    experiments=_clustered_experiments,
)
DIVFL = Item(
    "divfl",
    "DivFL",
    title="Updates that stand for those of all",
    about="Synthetic(1,1) as in Figure 3 for 200 rounds with 10 of 30 clients, as its authors have it, and digits: "
    + SETTING
    + "50 "
    "clients, 10 seats. Not as in its paper: the first rounds visit everybody in place of one round in which all send "
    "a gradient, and distances are those of sketches.",
    conclude=_divfl,
    experiments=_divfl_experiments,
)
