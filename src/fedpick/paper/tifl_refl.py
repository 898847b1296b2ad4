"""A headline claim each of TiFL and REFL: selection by speed, and by who is about to leave."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpick.paper.claims import Check, claims_of
from fedpick.paper.comparisons import accuracy, factor_above_one, less_time, no_worse, positive
from fedpick.paper.digits_by_time import SETTING, TARGET, by_time, digits, partitions, rounds_of, seconds_text
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow, curve
from fedpick.results import Result, Spread
from fedpick.sim import Bernoulli, DayAndNight, Devices, Shards

# TiFL

SPEEDS = (4.0, 2.0, 1.0, 0.5, 0.1)


def _total(result: Result) -> NDArray[Any]:
    return np.asarray(result.records["seconds"].sum(axis=1))


def _tifl_experiments(size: Size) -> Experiments:
    rounds = rounds_of(size)
    selectors = {
        "one tier": strategy("tifl", m=5, tiers=1),
        "tifl": strategy("tifl", m=5),
        "tifl, credits": strategy("tifl", m=5, rounds=rounds),
    }
    # The partition is random, so that it does not matter which clients are the slow ones.
    devices = Devices(speed=jnp.asarray(np.repeat(200 * np.asarray(SPEEDS), 10), jnp.float32))
    return {
        (label, name): digits(size, selector, partition, devices=devices)
        for label, partition in partitions(50).items()
        for name, selector in selectors.items()
    }


def _tifl(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table, faster, same = [], [], []
    for label in partitions(50):
        base = runs[label, "one tier"]
        for name in ("one tier", "tifl", "tifl, credits"):
            result = runs[label, name]
            rows += by_time(name, label, result)
            last = f"{Spread.of(accuracy(result)):.1f}"
            table.append((label, name, f"{_total(result).mean():.0f}", seconds_text(result), last))
            if name != "one tier":
                what = f"{label}, {name}"
                faster.append(factor_above_one(f"{what}: less time for all rounds", _total(base) / _total(result)))
                if name == "tifl":  # with credits the first rounds are the same
                    faster.append(less_time(f"{what}: less time to {TARGET:.0%}", result, base, TARGET))
                same.append(no_worse(what, result, base))
    statements = {
        "Training is much faster with tiers than with clients drawn from all.": faster,
        "The test accuracy is the same, and in some cases better.": same,
    }
    title = "TiFL: test accuracy by simulated time"
    text = "Test accuracy by simulated seconds, with one tier, with five, and with five that have credits."
    chart = Chart("tifl", "lines", title=title, text=text, x="seconds", y="test accuracy", rows=tuple(rows))
    columns = ("partition", "strategy", "seconds in all", f"seconds to {TARGET:.0%}, median", "last accuracy, %")
    times = Table("Simulated time and accuracy", columns, tuple(table))
    remark = (
        "With credits, tiers drop out one by one, and the last rounds are all of one tier. Where clients have few "
        "labels, that tier may lack some of them."
    )
    return Outcome(claims_of("Chai et al. 2020, abstract", statements), (chart,), (times,), remarks=(remark,))


# REFL

OWN, DAYS = "each its own probability", "day and night"
PRESENT = np.linspace(0.05, 0.95, 50)
RARE = np.arange(50) < 12


def _refl_experiments(size: Size) -> Experiments:
    selectors = {
        "rand-distinct": strategy("rand-distinct", m=5),
        "refl": strategy("refl", m=5),
        "refl, no rest": strategy("refl", m=5, rest=1),
    }
    worlds: dict[str, Any] = {OWN: Bernoulli(jnp.asarray(PRESENT, jnp.float32)), DAYS: DayAndNight()}
    return {
        (world, name): digits(size, selector, Shards(50, 2), availability=availability)
        for world, availability in worlds.items()
        for name, selector in selectors.items()
    }


def _distinct(result: Result, rounds: int = 20) -> NDArray[Any]:
    """The number of different clients that trained in the first rounds, one per seed."""
    return np.array([len(set(seats[:rounds].ravel().tolist()) - {-1}) for seats in result.records["clients"]])


def _of_rare(result: Result) -> NDArray[Any]:
    """The share of the seats that the least available quarter of the clients had, in percent, one per seed."""
    return np.asarray(100 * result.counts[:, RARE].sum(axis=1) / np.maximum(result.counts.sum(axis=1), 1))


def _refl(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    covered: list[Check] = []
    better: list[Check] = []
    for world in (OWN, DAYS):
        base = runs[world, "rand-distinct"]
        for name in ("rand-distinct", "refl", "refl, no rest"):
            result = runs[world, name]
            rows += curve(name, world, result.evaluated, values=result.metric("test_accuracy"))
            rare = f"{_of_rare(result).mean():.1f}" if world == OWN else "-"
            last = f"{Spread.of(accuracy(result)):.1f}"
            mean = 100 * result.metric("test_accuracy").mean(axis=1)
            table.append((world, name, rare, f"{_distinct(result).mean():.1f}", f"{Spread.of(mean):.1f}", last))
            if name != "rand-distinct":
                what = f"{world}, {name}"
                if world == OWN:
                    gained = _of_rare(result) - _of_rare(base)
                    covered.append(positive(f"{what}: seats of the least available quarter", gained, "% of all"))
                extra = _distinct(result) - _distinct(base)
                covered.append(positive(f"{what}: different clients in 20 rounds", extra, "clients"))
                ahead = mean - 100 * base.metric("test_accuracy").mean(axis=1)
                better.append(positive(f"{what}: accuracy, mean over the rounds", ahead, "points"))
    statements = {
        "Those that are rarely available are reached more often, and more clients take part.": covered,
        "The model is better than with clients drawn at random.": better,
    }
    title = "REFL's selection: test accuracy by round"
    text = "Test accuracy by round for random clients and for REFL's selection, under two kinds of availability."
    chart = Chart("refl", "lines", title=title, text=text, x="round", y="test accuracy", rows=tuple(rows))
    columns = (
        "availability",
        "strategy",
        "seats of the least available quarter, %",
        "different clients in 20 rounds, of 50",
        "accuracy, mean over the rounds, %",
        "last accuracy, %",
    )
    coverage = Table("Coverage and accuracy", columns, tuple(table))
    return Outcome(claims_of("Abdelmoniem et al. 2023, in our words", statements), (chart,), (coverage,))


TIFL = Item(
    "tifl",
    "TiFL",
    title="Tiers of like speed, time to accuracy",
    about=SETTING + "50 clients of equal size, 5 seats, devices of five speeds that differ by a factor of 40. One tier "
    "is plain federated averaging. Not as in its paper: tiers are ranked by the last training losses instead of "
    "accuracy on test data, and expected durations are exact.",
    conclude=_tifl,
    experiments=_tifl_experiments,
)
REFL = Item(
    "refl",
    "REFL",
    title="Those about to leave first, coverage and accuracy",
    about=SETTING + "50 clients of equal size and two labels each, 5 seats; each client is there with a probability of "
    "its own, from 0.05 to 0.95, or more by day than by night. Not as in its paper: who will leave is known exactly, "
    "and there are no late updates, which are the other half of REFL.",
    conclude=_refl,
    experiments=_refl_experiments,
)
