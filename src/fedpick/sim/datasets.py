"""Data sets, each a description that makes a federation: the paper's problems, and the small one of digits."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.downloads import FILES, find_fashion_mnist, read_idx
from fedpick.sim.federation import Federation, pixels
from fedpick.sim.memory import check_memory
from fedpick.sim.partition import Dirichlet, Partition
from fedpick.validation import check_function, require


class Data(Protocol):
    """A description of data, as an experiment holds it: a frozen dataclass.

    It may have more: a field ``seed``, which ``redraw`` changes; a field ``path``, relative to the file of the
    experiment; ``sha256``, a sum over the file at that path, by which the data are known; ``extent``, about how many
    samples, inputs and outputs there are, from which running times are guessed; ``shares_samples``, true where its
    field ``partition`` only deals the samples out: it is then given a list of them for runs that differ in it; and
    ``without_effect``, the fields that change nothing about the data, with the reason: who sets one is told.
    """

    def federation(self) -> Federation:
        """The clients and their data."""


@dataclass(frozen=True)
class Quadratic:
    """The paper's quadratic problem: one sample (h_k, e_k) per client, for ``QuadraticModel``.

    h_k ~ U(1, 20), e_k ~ U(0, 100) per entry, p_k in proportion to draws of density 3 x^2 on [0, 1].

    Args:
        K: Clients.
        v: Dimensions of the model.
        seed: What the problem is drawn by.

    >>> Quadratic(K=30).federation().x.shape
    (30, 6)
    """

    K: int = 30
    v: int = 5
    seed: int = 0
    extent = (100, 5, 1)

    def __post_init__(self) -> None:
        _counts(self, K=self.K, v=self.v)
        _seed(self)

    def federation(self) -> Federation:
        K = self.K
        check_memory(self, f"the data of K={K} clients", 28 * K * (self.v + 4))
        rng = np.random.default_rng(self.seed)
        h, e = rng.uniform(1, 20, (K, 1)), rng.uniform(0, 100, (K, self.v))
        size = rng.uniform(size=K) ** (1 / 3)
        x, y = np.concatenate([h, e], axis=1), np.zeros(K, np.int64)
        name = f"quadratic(K={K}, v={self.v}, seed={self.seed})"
        return Federation.from_arrays(x, y, np.arange(K), classes=1, size=size, name=name)


def quadratic_optimum(federation: Federation) -> tuple[Numbers, float]:
    """w* = (sum p_k e_k) / (sum p_k h_k) and F* = F(w*), in closed form.

    >>> quadratic_optimum(Quadratic().federation())[0].shape
    (5,)
    """
    x, size = np.asarray(federation.x, np.float64), np.asarray(federation.size, np.float64)
    p, h, e = size / size.sum(), x[:, 0], x[:, 1:]
    best = (p @ e) / (p @ h)
    return best, float(p @ (h / 2 * ((best - e / h[:, None]) ** 2).sum(axis=1)))


@dataclass(frozen=True)
class Synthetic:
    """Synthetic(alpha, beta) of Li et al. (2020): logistic data whose law differs from client to client.

    Client k labels its samples by argmax(W_k x + b_k), all entries of W_k and b_k drawn from N(u_k, 1), u_k ~ N(0,
    alpha^2). u_k adds the same to all logits of a sample, here as in the published generator: alpha has no effect on
    the data, and every client has a model of its own at alpha = 0, too. What differs by parameter are the inputs.

    The sizes are heavy-tailed: one client may hold half of the data. A tenth of each client's samples is the test set.

    Args:
        alpha: Standard deviation of u_k, which changes no label; kept because the problem is named by it.
        beta: How much the clients' inputs differ.
        K: Clients.
        dim: Inputs.
        classes: Labels.
        seed: What the data are drawn by.

    >>> federation = Synthetic(1, 1, seed=0).federation()
    >>> federation.num_clients, federation.x.shape[1]
    (30, 60)
    """

    alpha: float = 1.0
    beta: float = 1.0
    K: int = 30
    _: KW_ONLY
    dim: int = 60
    classes: int = 10
    seed: int = 0
    extent = (10_000, 60, 10)
    without_effect: ClassVar = {"alpha": "it adds the same to all logits of a sample; beta makes inputs differ"}

    def __post_init__(self) -> None:
        _counts(self, K=self.K, dim=self.dim, classes=self.classes)
        _seed(self)
        for name in ("alpha", "beta"):
            require(
                self, name, getattr(self, name), "finite and at least 0", lambda x: (x >= 0) & (x < np.inf), one=True
            )

    def federation(self) -> Federation:
        alpha, beta, K, dim, classes = self.alpha, self.beta, self.K, self.dim, self.classes
        samples = 450 * K  # on average
        check_memory(self, f"the data of K={K} clients", 12 * samples * dim + 8 * max(samples, dim) * classes)
        rng = np.random.default_rng(self.seed)
        number = np.floor(rng.lognormal(4, 2, K)).astype(np.int64) + 50
        u, shift = rng.normal(0, alpha, K), rng.normal(0, beta, K)
        v = rng.normal(shift[:, None], 1, (K, dim))
        spread = np.sqrt(np.arange(1, dim + 1) ** -1.2)
        parts = []
        for k in range(K):
            w, b = rng.normal(u[k], 1, (dim, classes)), rng.normal(u[k], 1, classes)
            x = v[k] + spread * rng.normal(size=(number[k], dim))
            y = np.argmax(x @ w + b, axis=1)
            order = rng.permutation(number[k])
            training, test = np.split(order, [int(0.9 * number[k])])
            x = x.astype(np.float32)
            parts.append((x[training], y[training], np.full(len(training), k), x[test], y[test]))
        x, y, client, test_x, test_y = map(np.concatenate, zip(*parts, strict=True))
        name = f"Synthetic({alpha:g},{beta:g}) K={K} seed={self.seed}"
        return Federation.from_arrays(x, y, client, test=(test_x, test_y), classes=classes, name=name)


@dataclass(frozen=True)
class Digits:
    """1,797 images of handwritten digits, 8 x 8, from scikit-learn (``pip install fedpick[digits]``): no download.

    Args:
        partition: How the samples are dealt out to clients.
        seed: What the test set, a fifth, is drawn by.

    >>> Digits(seed=1).partition
    Dirichlet(K=30, alpha=0.3, capped=True, least=10, seed=0)
    """

    partition: Partition = Dirichlet(K=30, alpha=0.3)
    seed: int = 0
    extent = (1_797, 64, 10)
    shares_samples = True

    def __post_init__(self) -> None:
        _seed(self)
        _check_partition(self, "Dirichlet(K=30, alpha=0.3)")

    def federation(self) -> Federation:
        try:
            from sklearn.datasets import load_digits  # type: ignore[import-untyped]
        except ImportError:
            raise ModuleNotFoundError(
                "Digits: needs scikit-learn; install it with pip install 'fedpick[digits]', or '.[digits]' in a clone"
            ) from None
        bunch = load_digits()
        x, y = (bunch.data / 8 - 1).astype(np.float32), bunch.target.astype(np.int64)
        order = np.random.default_rng(self.seed).permutation(len(y))
        test, training = np.split(order, [len(y) // 5])
        return Federation.from_partition(
            x[training],
            y[training],
            self.partition,
            test=(x[test], y[test]),
            classes=10,
            name=f"digits, {self.partition}",
        )


@dataclass(frozen=True)
class FashionMNIST:
    """Fashion-MNIST (Xiao et al. 2017) dealt out to clients; images stay bytes in memory.

    The four official files are looked for in the folder, else in ``FEDPICK_DATA``, there or in its subfolder
    fashion-mnist; else they are downloaded to the user's cache, and verified by their SHA-256 sums either way.

    Args:
        partition: How the samples are dealt out to clients.

    >>> FashionMNIST().partition.K
    100
    """

    partition: Partition = Dirichlet(K=100, alpha=0.3)
    extent = (70_000, 784, 10)
    shares_samples = True

    def __post_init__(self) -> None:
        _check_partition(self, "Dirichlet(K=100, alpha=0.3)")

    def federation(self, folder: str | Path | None = None) -> Federation:
        """The clients and their data; ``folder`` is where the files are."""
        folder = find_fashion_mnist(folder)
        arrays = {name: read_idx(folder / name) for name in FILES}
        x, y, test_x, test_y = arrays.values()
        return Federation.from_partition(
            x,
            y.astype(np.int64),
            self.partition,
            test=(test_x, test_y.astype(np.int64)),
            classes=10,
            prepare=pixels,
            name=f"Fashion-MNIST, {self.partition}",
        )


def _counts(owner: object, **numbers: int) -> None:
    for name, value in numbers.items():
        require(owner, name, value, "at least 1", lambda n: n >= 1, whole=True, one=True)


def _seed(owner: Any) -> None:
    require(owner, "seed", owner.seed, "at least 0", lambda n: n >= 0, whole=True, one=True)


def _check_partition(data: Digits | FashionMNIST, example: str) -> None:
    """Runs that differ in their partition have a list of them."""
    several: Any = data.partition if isinstance(data.partition, list) else [data.partition]
    for partition in several:
        check_function(data, "partition", partition, example)
