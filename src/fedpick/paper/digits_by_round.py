"""The handwritten digits, on which claims of later strategies are tried: rounds to an accuracy, accuracy by round."""

from typing import Any

import numpy as np

from fedpick.experiment import Experiment, Metrics
from fedpick.paper.claims import Check, above_bound, number_text
from fedpick.paper.comparisons import accuracy, area, positive, speed_up, speed_up_text
from fedpick.paper.settings import Size
from fedpick.protocol import Selector
from fedpick.report import Chart, ChartRow
from fedpick.results import Result, Spread
from fedpick.sim import MLP, Digits, Local, Partition

ROUNDS = 200  # at most
TARGET = 0.8
SETTING = (
    "The handwritten digits of scikit-learn, an MLP with 32 hidden units, tau = 10, b = 10, eta = 0.05, 200 rounds; "
    "data and partition are drawn anew for every seed. "
)
COLUMNS = (f"rounds to {TARGET:.0%}, median", "accuracy, mean over the rounds, %", "last accuracy, %")


def digits_rounds(size: Size) -> int:
    """Rounds on the digits."""
    return min(ROUNDS, size.synthetic_rounds)


def digits(size: Size, selector: Selector[Any], partition: Partition) -> Experiment:
    """The digits, one draw per seed."""
    rounds = digits_rounds(size)
    return Experiment(
        Digits(partition),
        MLP(hidden=(32,), dropout=0.0),
        selector,
        Local(tau=10, b=10, eta=0.05),
        rounds=rounds,
        seeds=tuple(range(size.draws)),
        redraw=True,
        metrics=Metrics(every=max(1, min(2, rounds // 4)), clients=False),
    )


def sooner_to_target(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` reaches the target in fewer rounds than ``base``, by the median over the draws."""
    found, counted = speed_up(better, base, "test_accuracy", TARGET)
    numbers = speed_up_text(found, counted, len(base.runs))
    return Check(f"{what}: fewer rounds to {TARGET:.0%}", above_bound(found, 1.0), numbers)


def ahead(what: str, better: Result, base: Result) -> Check:
    """Whether ``better`` has a higher accuracy than ``base``, by the mean over the rounds."""
    difference = 100 * (area(better, "test_accuracy") - area(base, "test_accuracy"))
    return positive(f"{what}: accuracy, mean over the rounds", difference, "points")


def speed_cells(result: Result) -> tuple[str, str, str]:
    """The cells of ``COLUMNS``."""
    rounds = float(np.median(result.rounds_to("test_accuracy", TARGET)))
    mean, last = Spread.of(100 * area(result, "test_accuracy")), Spread.of(accuracy(result))
    return number_text(rounds), f"{mean:.1f}", f"{last:.1f}"


def accuracy_lines(name: str, title: str, rows: list[ChartRow]) -> Chart:
    """A chart of the accuracy by round."""
    text = "Test accuracy by round for each strategy; mean over the draws."
    return Chart(name, "lines", title=title, text=text, x="round", y="test accuracy", rows=tuple(rows))
