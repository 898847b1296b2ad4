"""The headline claim of Oort: less time to an accuracy on devices of unequal speed, and a better model."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedpick.experiment import Experiment
from fedpick.paper.claims import Check, claims_of, number_text
from fedpick.paper.comparisons import accuracy, gain, less_time
from fedpick.paper.digits_by_time import SETTING, by_time, digits, partitions
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size, synthetic
from fedpick.protocol import Selector
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow
from fedpick.results import Spread
from fedpick.sim import Devices

SYNTHETIC = "Synthetic(1,1)"
NAMES = ("rand", "oort", "oort, penalty = 0")


def _selectors(m: int, samples: int) -> dict[str, Selector[Any]]:
    return {
        "rand": strategy("rand", m=m),
        "oort": strategy("oort", m=m, samples=samples),
        "oort, penalty = 0": strategy("oort", m=m, samples=samples, penalty=0.0),
    }


def _experiments(size: Size) -> Experiments:
    found: dict[tuple[str, str], Experiment] = {}
    devices = Devices.lognormal(50, speed=200.0, bandwidth=1e5)
    for label, partition in partitions(50).items():
        for name, selector in _selectors(m=5, samples=5 * 16).items():
            found[f"digits, {label}", name] = digits(size, selector, partition, devices=devices)
    devices = Devices.lognormal(30, speed=200.0, bandwidth=1e5)
    for name, selector in _selectors(m=3, samples=30 * 50).items():
        found[SYNTHETIC, name] = replace(synthetic(size, selector), devices=devices)
    return dict(found)


def _target(world: str) -> float:
    return 0.6 if world == SYNTHETIC else 0.8


def _conclude(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    faster: list[Check] = []
    better: list[Check] = []
    speed: list[Check] = []
    for world in dict.fromkeys(world for world, _ in runs.experiments):
        rand, oort, without = (runs[world, name] for name in NAMES)
        target = _target(world)
        faster.append(less_time(f"{world}: oort, to {target:.0%}", oort, rand, target))
        better.append(gain(f"{world}: oort", oort, rand, 1.3, most=9.8))
        speed.append(less_time(f"{world}: penalty 2 against 0, to {target:.0%}", oort, without, target))
        for name in NAMES:
            result = runs[world, name]
            rows += by_time(name, world, result)
            seconds = result.records["seconds"].mean()
            reached = [float(np.median(to("test_accuracy", target))) for to in (result.rounds_to, result.seconds_to)]
            most = 100 * (result.counts.max(axis=1) / result.counts.sum(axis=1)).mean()
            last = f"{Spread.of(accuracy(result)):.1f}"
            table.append((world, name, f"{seconds:.1f}", *map(number_text, reached), last, f"{most:.0f}"))
    statements = {
        "Oort outperforms random selection by 1.2 to 14.1 times in time to accuracy.": faster,
        "Its final accuracy is 1.3 to 9.8 % better.": better,
        "Looking at speed, not only at losses, is what shortens the time.": speed,
    }
    title = "Oort: test accuracy by simulated time"
    text = "Test accuracy by simulated seconds for random clients, Oort, and Oort without its penalty for slow devices."
    chart = Chart("oort", "lines", title=title, text=text, x="seconds", y="test accuracy", rows=tuple(rows), columns=3)
    columns = (
        "data",
        "strategy",
        "seconds a round",
        "rounds to the target, median",
        "seconds to it, median",
        "last accuracy, %",
        "seats of the most selected client, %",
    )
    times = Table("Simulated time and accuracy; the target is 80 %, on Synthetic(1,1) 60 %", columns, tuple(table))
    claims = claims_of("Lai et al. 2021, as their README sums it up", statements)
    return Outcome(claims, (chart,), (times,))


OORT = Item(
    "oort",
    "Oort",
    title="Time to accuracy on devices of unequal speed",
    about=SETTING
    + "50 clients, 5 seats; and Synthetic(1,1) as in Figure 3, 30 clients, 3 seats. Speed and bandwidth are "
    "log-normal, expected durations exact, and samples = tau b. Not as in its paper: hundreds of clients instead of "
    "thousands, plain averaging instead of YoGi and Prox, and no over-commitment.",
    conclude=_conclude,
    experiments=_experiments,
)
