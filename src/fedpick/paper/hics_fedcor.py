"""A headline claim each of HiCS-FL and of FedCor: selection by the output bias, and by correlated losses."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.paper.claims import Check, claims_of
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
from fedpick.paper.settings import Experiments, Size
from fedpick.registry import strategy
from fedpick.report import ChartRow, curve
from fedpick.sim import Dirichlet, Partition, Shards


@dataclass(frozen=True)
class MixedDirichlet:
    """Clients of several kinds, equally many of each: equal parts of the data are dealt out by Dir(alpha) to each.

    Args:
        K: Number of clients.
        alphas: alpha of each kind.
        seed: Seed of the partition.

    >>> len(np.unique(MixedDirichlet(K=10, alphas=(0.01, 1.0))(np.arange(1000) % 10)))
    10
    """

    K: int
    alphas: tuple[float, ...]
    seed: int = 0

    def __call__(self, labels: NDArray[Any]) -> NDArray[Any]:
        kinds = len(self.alphas)
        kind = np.random.default_rng(self.seed).permutation(np.arange(len(labels)) % kinds)
        client = np.empty(len(labels), np.int64)
        for i, alpha in enumerate(self.alphas):
            deal = Dirichlet(self.K // kinds, alpha, least=2, seed=kinds * self.seed + i)
            client[kind == i] = i * (self.K // kinds) + deal(labels[kind == i])
        return client


MIXES = {"one kind in five balanced": ((0.001, 0.002, 0.005, 0.01, 0.5), 5), "none balanced": ((0.001,) * 5, 10)}
TEMPERATURES = (0.0025, 0.01, 0.05)


def _hics_experiments(size: Size) -> Experiments:
    rounds = digits_rounds(size)
    experiments: Experiments = {}
    for label, (alphas, clusters) in MIXES.items():
        selectors = {"rand-distinct": strategy("rand-distinct", m=10)}
        for temperature in TEMPERATURES:
            hics = strategy("hics-fl", m=10, rounds=rounds, temperature=temperature, clusters=clusters)
            selectors[f"hics-fl, T = {temperature:g}"] = hics
        selectors["clustered-similarity"] = strategy("clustered-similarity", m=10)
        for name, selector in selectors.items():
            experiments[label, name] = digits(size, selector, MixedDirichlet(50, alphas))
    return experiments


def _hics(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    checks: dict[str, list[Check]] = {label: [] for label in MIXES}
    for label, name in runs.experiments:
        result = runs[label, name]
        rows += curve(name, label, result.evaluated, values=result.metric("test_accuracy"))
        balanced = 100 * result.counts[:, 40:].sum(axis=1) / np.maximum(result.counts.sum(axis=1), 1)
        table.append(
            (label, name, f"{balanced.mean():.0f}" if label == next(iter(MIXES)) else "-", *speed_cells(result))
        )
        if name.startswith("hics"):
            base = runs[label, "rand-distinct"]
            checks[label] += [sooner_to_target(name, result, base), ahead(name, result, base)]
    mixed, alike = checks.values()
    statements = {
        "Where some clients are balanced, HiCS-FL converges faster than random selection.": mixed,
        "Where none is, HiCS-FL still converges faster.": alike,
    }
    columns = ("clients", "strategy", "seats of the balanced fifth, %", *COLUMNS)
    chart = accuracy_lines("hics-fl", "HiCS-FL: test accuracy by round", rows)
    speeds = Table("Seats and accuracy", columns, tuple(table))
    return Outcome(claims_of("Chen, Vikalo 2024, Section 4", statements), (chart,), (speeds,))


# FedCor

COR = {"rand-distinct": {"m": 5}, "fedcor": {"m": 5}, "pow-d, d = 10": {"m": 5, "d": 10}}
SPREADS: dict[str, Partition] = {"Dirichlet(0.2)": Dirichlet(100, 0.2, least=2), "one shard each": Shards(100, 1)}


def _fedcor_experiments(size: Size) -> Experiments:
    return {
        (label, name): digits(size, strategy(name.split(",")[0], **parameters), partition)
        for label, partition in SPREADS.items()
        for name, parameters in COR.items()
    }


def _fedcor(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    checks: dict[str, list[Check]] = {name: [] for name in COR if name != "fedcor"}
    for label in SPREADS:
        for name in COR:
            result = runs[label, name]
            rows += curve(name, label, result.evaluated, values=result.metric("test_accuracy"))
            table.append((label, name, f"{result.costs['poll_samples'].mean():,.0f}", *speed_cells(result)))
            if name != "fedcor":
                ours = runs[label, "fedcor"]
                checks[name] += [sooner_to_target(label, ours, result), ahead(label, ours, result)]
    statements = {
        "FedCor converges faster than uniform selection.": checks["rand-distinct"],
        "It converges faster than Power-of-Choice.": checks["pow-d, d = 10"],
    }
    columns = ("partition", "strategy", "samples polled a round", *COLUMNS)
    chart = accuracy_lines("fedcor", "FedCor: test accuracy by round", rows)
    speeds = Table("Polls and accuracy", columns, tuple(table))
    return Outcome(claims_of("Tang et al. 2022, abstract", statements), (chart,), (speeds,))


HICS = Item(
    "hics-fl",
    "HiCS-FL",
    title="Balanced labels first",
    about=SETTING + "50 clients, 10 seats. One fifth of the clients each has labels by a Dirichlet distribution of "
    "alpha = 0.001, 0.002, 0.005, 0.01 and 0.5 (5 clusters), or all of 0.001 (10 clusters), as its authors have it. "
    "The temperature is theirs for Fashion-MNIST, and two larger ones, because ours are another model and learning "
    "rate. The authors' code plays clustered sampling where entropies vary much, which is shown for comparison. Not as "
    "in its paper: no proximal term.",
    conclude=_hics,
    experiments=_hics_experiments,
)
FEDCOR = Item(
    "fedcor",
    "FedCor",
    title="Correlated losses",
    about=SETTING + "100 clients, 5 seats, Dirichlet(0.2) by label or one shard of the sorted labels each, as its "
    "authors have it with Fashion-MNIST and 500 rounds. Not as in its paper: the round of each interval that selects "
    "uniformly is part of the training.",
    conclude=_fedcor,
    experiments=_fedcor_experiments,
)
