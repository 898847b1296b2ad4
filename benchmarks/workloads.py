"""The workloads that benchmarks share: their sizes, their data as a federation, and the least work of a round."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.sim import (
    MLP,
    Dirichlet,
    FashionMNIST,
    Federation,
    Local,
    Logistic,
    ModelSpec,
    Synthetic,
    find_fashion_mnist,
)
from fedpick.sim.federation import pixels

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """Federated averaging of a classifier: m of K clients a round, tau steps of SGD on batches of b samples."""

    name: str
    K: int
    m: int
    d: int
    tau: int
    b: int
    eta: float
    widths: tuple[int, ...]
    dropout: float

    def federation(self, data: str | Path | None = None, partition: Any = None) -> Federation:
        """Fashion-MNIST where its files are found, else random bytes of its shape; or Synthetic(1,1)."""
        if self.name == "syn":
            return Synthetic(1, 1, K=self.K, seed=0).federation()
        partition = partition or Dirichlet(K=self.K, alpha=0.3)
        try:
            return FashionMNIST(partition).federation(find_fashion_mnist(data))
        except (ConnectionError, FileNotFoundError):
            rng = np.random.default_rng(0)
            x, test_x = (rng.integers(0, 256, (number, 28, 28), np.uint8) for number in (60_000, 10_000))
            y, test_y = (rng.integers(0, 10, number) for number in (60_000, 10_000))
            name = "random bytes in the shape of Fashion-MNIST, whose files were not found"
            return Federation.from_partition(x, y, partition, test=(test_x, test_y), prepare=pixels, name=name)

    def model(self) -> ModelSpec:
        """Logistic regression where there is no hidden layer, else a ReLU network."""
        _, *hidden, _ = self.widths
        return MLP(tuple(hidden), self.dropout) if hidden else Logistic()

    def local(self) -> Local:
        """Local training."""
        return Local(tau=self.tau, b=self.b, eta=self.eta)

    def arrays(self, federation: Federation) -> dict[str, Numbers]:
        """Data and numbers for programs that know nothing of fedpick."""
        names = ("x", "y", "start", "count", "test_x", "test_y")
        arrays = {name: np.asarray(getattr(federation, name)) for name in names}
        arrays |= {name: arrays[name].reshape(len(arrays[name]), -1) for name in ("x", "test_x")}
        return arrays | {name: np.asarray(getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def params(self) -> int:
        """Weights and biases of the model."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(self.widths))

    @property
    def forward_flop(self) -> int:
        """Additions and multiplications of the matrix products of one sample."""
        return 2 * sum(fan_in * fan_out for fan_in, fan_out in itertools.pairwise(self.widths))

    @property
    def train_flop(self) -> int:
        """The same with the gradient: two more products a layer, but the first needs none by its input."""
        return 3 * self.forward_flop - 2 * self.widths[0] * self.widths[1]

    def floor(self, federation: Federation, evaluate: bool, poll: bool) -> tuple[float, float]:
        """The fewest FLOP and bytes of a round: every sample that is used read once, as it is stored."""
        count = np.asarray(federation.count)
        share = count / count.sum()
        trained = self.m * self.tau * float(share @ np.minimum(count, self.b))
        seen = float(count.sum() + len(federation.test_y)) if evaluate else 0.0
        if poll:  # samples of d distinct candidates by share, in the mean over draws
            rng = np.random.default_rng(0)
            seen += float(np.mean([count[rng.choice(self.K, self.d, False, share)].sum() for _ in range(1000)]))
        sample_bytes = self.widths[0] * federation.x.dtype.itemsize
        model_bytes = 4 * self.params * (2 * self.m + evaluate + poll)
        return trained * self.train_flop + seen * self.forward_flop, (trained + seen) * sample_bytes + model_bytes


FMNIST = Workload("fmnist", K=100, m=3, d=6, tau=30, b=64, eta=0.005, widths=(784, 64, 30, 10), dropout=0.5)
SYN = Workload("syn", K=30, m=3, d=6, tau=30, b=50, eta=0.05, widths=(60, 10), dropout=0.0)
WORKLOADS = {workload.name: workload for workload in (FMNIST, SYN)}
