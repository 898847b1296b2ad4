"""The setting in which claims of later strategies are tried: handwritten digits on devices with a simulated clock."""

from typing import Any

import numpy as np

from fedpick.experiment import Experiment, Metrics
from fedpick.paper.claims import number_text
from fedpick.paper.settings import Size
from fedpick.protocol import Selector
from fedpick.report import ChartRow, curve
from fedpick.results import Result
from fedpick.sim import IID, MLP, Digits, Local, Partition, Shards

ROUNDS = 300  # at most
TARGET = 0.8
SETTING = (
    "The handwritten digits of scikit-learn, an MLP with 32 hidden units, tau = 5, b = 16, eta = 0.05, 300 rounds; "
    "data and partition are drawn anew for every seed. "
)


def rounds_of(size: Size) -> int:
    """The number of rounds."""
    return min(ROUNDS, size.synthetic_rounds)


def digits(size: Size, selector: Selector[Any], partition: Partition, **world: Any) -> Experiment:
    """An experiment on digits; ``world`` has its devices or its availability."""
    rounds = rounds_of(size)
    return Experiment(
        Digits(partition),
        MLP(hidden=(32,), dropout=0.0),
        selector,
        Local(tau=5, b=16, eta=0.05),
        rounds=rounds,
        seeds=tuple(range(size.draws)),
        redraw=True,
        metrics=Metrics(every=max(1, rounds // 75), clients=False),
        **world,
    )


def partitions(K: int) -> dict[str, Partition]:
    """Clients that are alike, and clients with two labels each, all of equal size."""
    return {"IID": IID(K), "two labels each": Shards(K, 2)}


def by_time(name: str, panel: str, result: Result) -> list[ChartRow]:
    """Test accuracy by simulated seconds, the clock being the mean over seeds."""
    clock = np.concatenate([[0.0], result.records["seconds"].cumsum(axis=1).mean(axis=0)])
    return curve(name, panel, clock[result.evaluated], values=result.metric("test_accuracy"))


def seconds_text(result: Result) -> str:
    """Simulated seconds to the target, median over seeds."""
    return number_text(float(np.median(result.seconds_to("test_accuracy", TARGET))))
