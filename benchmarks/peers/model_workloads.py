"""The workloads of ``benchmarks/models.py``: sizes, data and FLOP, for programs that know fedpick and that do not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
K, EACH, SIDE = 20, 60, 28  # clients, samples of each, side of an image


@dataclass(frozen=True)
class ModelWorkload:
    """A model, its data (images of SIDE x SIDE, or sequences of T codes), and a round of training."""

    name: str
    classes: int
    eta: float
    T: int = 0
    m: int = 3
    tau: int = 10
    b: int = 32
    hidden: int = 0
    layers: int = 0
    rank: int = 0
    heads: int = 4
    channels: tuple[int, ...] = ()

    @property
    def train_flop(self) -> float:
        """Additions and multiplications of the products of one sample and step, forward and backward."""
        if self.name == "cnn":
            one, two = self.channels
            half, fourth = SIDE // 2, SIDE // 4
            first = SIDE**2 * 25 * one
            rest = half**2 * 25 * one * two + fourth**2 * two * 512 + 512 * self.classes
            return 2.0 * (2 * first + 3 * rest)
        if self.name == "resnet":
            total, side, before = 2 * SIDE**2 * 9 * self.channels[0], SIDE, self.channels[0]
            for stage, width in enumerate(self.channels):
                side = -(-side // 2) if stage else side
                total += 3 * side**2 * 9 * (before * width + width * width)
                total += 3 * side**2 * before * width if stage else 0
                before = width
            return 2.0 * total
        if self.name == "lstm":
            first, others = 8 + self.hidden, (self.layers - 1) * 2 * self.hidden
            return 2.0 * 3 * self.T * 4 * self.hidden * (first + others)
        width = self.hidden  # a frozen product has no gradient by its weights, and below the first adapter none at all
        block = 12 * width * width + 2 * self.T * width
        return 2.0 * self.T * (2 * self.layers * block + 3 * self.layers * 4 * width * self.rank)

    def data(self) -> tuple[Numbers, Numbers, Numbers]:
        """Inputs (bytes), labels and clients; the label can be read from the input."""
        rng = np.random.default_rng(0)
        number = K * EACH
        y = rng.integers(0, self.classes, number)
        if self.T:
            x = rng.integers(0, 60, (number, self.T), np.uint8)
            x[:, -2] = 64 + y
        else:
            x = rng.integers(0, 128, (number, SIDE, SIDE), np.uint8)
            for image, label in zip(x, y, strict=True):
                image[2 * label : 2 * label + 4, 6:20] += 127
        return x, y, np.repeat(np.arange(K), EACH)


WORKLOADS = {
    workload.name: workload
    for workload in (
        ModelWorkload("cnn", classes=10, eta=0.05, channels=(32, 64)),
        ModelWorkload("resnet", classes=10, eta=0.05, channels=(16, 32, 64)),
        ModelWorkload("lstm", classes=60, eta=0.5, T=80, b=16, hidden=128, layers=2),
        ModelWorkload("transformer", classes=60, eta=0.1, T=64, b=16, hidden=128, layers=2, rank=8),
    )
}


def load(file: str | Path) -> dict[str, Numbers]:
    """The arrays of a workload file."""
    with np.load(Path(file)) as arrays:
        return {name: arrays[name] for name in arrays.files}
