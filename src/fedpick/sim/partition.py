"""Ways to deal the samples of a data set out to K clients: each maps the labels to a client for every sample."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import numpy as np

from fedpick.metrics import Numbers
from fedpick.validation import flag, require


class Partition(Protocol):
    """A client, 0..K-1, for every sample, given the labels."""

    def __call__(self, labels: Numbers) -> Numbers: ...


@dataclass(frozen=True)
class IID:
    """Every client gets a random share of equal size.

    Args:
        K: Number of clients.
        seed: Seed of the partition.

    >>> np.bincount(IID(K=3)(np.zeros(9, int)))
    array([3, 3, 3])
    """

    K: int
    seed: int = 0

    def __post_init__(self) -> None:
        _clients(self)

    def __call__(self, labels: Numbers) -> Numbers:
        _enough(self, labels)
        return np.random.default_rng(self.seed).permutation(np.arange(len(labels)) % self.K)


@dataclass(frozen=True)
class Dirichlet:
    """Dir_K(alpha) by label (Hsu et al. 2019): each class is dealt out in proportions drawn from Dir_K(alpha).

    Args:
        K: Number of clients.
        alpha: Concentration; the smaller, the more heterogeneous the clients.
        capped: Whether a client that already holds N / K samples gets nothing of the classes that follow, which evens
            out the sizes, as in the paper's code.
        least: Samples that every client has: the partition is drawn again until it is so.
        seed: Seed of the partition.

    >>> labels = np.arange(2000) % 10
    >>> client = Dirichlet(K=5, alpha=0.3)(labels)
    >>> len(client), bool(np.bincount(client).min() >= 10)
    (2000, True)
    """

    K: int
    alpha: float
    capped: bool = True
    _: KW_ONLY
    least: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        _clients(self)
        require(self, "alpha", self.alpha, "finite and above 0", lambda a: (a > 0) & (a < np.inf), one=True)
        flag(self, "capped", self.capped)
        require(self, "least", self.least, "at least 1", lambda n: n >= 1, whole=True, one=True)

    def __call__(self, labels: Numbers) -> Numbers:
        _enough(self, labels)
        rng = np.random.default_rng(self.seed)
        classes = _by_label(labels)
        for _ in range(1000):
            client = self._draw(rng, classes, len(labels))
            if np.bincount(client, minlength=self.K).min() >= self.least:
                return client
        rule = f"low enough to be met (1000 draws of K={self.K}, alpha={self.alpha} did not)"
        raise ValueError(f"Dirichlet: least must be {rule}, got {self.least}")

    def _draw(self, rng: np.random.Generator, classes: list[Numbers], samples: int) -> Numbers:
        client = np.empty(samples, np.int64)
        held = np.zeros(self.K, np.int64)
        for of_class in classes:
            rows = rng.permutation(of_class)
            part = rng.dirichlet(np.full(self.K, self.alpha))
            if self.capped:
                part = part * (held < samples / self.K)
            if not part.sum() > 0:  # everybody else is full, or the draw has underflowed
                part = np.ones(self.K)
            ends = (np.cumsum(part / part.sum())[:-1] * len(rows)).astype(np.int64)
            number = np.diff(ends, prepend=0, append=len(rows))
            client[rows] = np.repeat(np.arange(self.K), number)
            held += number
        return client


@dataclass(frozen=True)
class Shards:
    """Sorted by label and cut into equal shards, a few of them to each client (McMahan et al. 2017).

    Args:
        K: Number of clients.
        per_client: Shards for each client.
        seed: Seed of the partition.

    >>> labels = np.repeat(np.arange(10), 20)
    >>> client = Shards(K=10, per_client=2)(labels)
    >>> max(len(np.unique(labels[client == k])) for k in range(10)) <= 2
    True
    """

    K: int
    per_client: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        _clients(self)
        require(self, "per_client", self.per_client, "at least 1", lambda n: n >= 1, whole=True, one=True)

    def __call__(self, labels: Numbers) -> Numbers:
        shards = self.K * self.per_client
        if len(labels) < shards:
            raise ValueError(f"Shards: K * per_client must be at most the {len(labels)} samples, got {shards}")
        rng = np.random.default_rng(self.seed)
        owner = rng.permutation(np.arange(shards) % self.K)
        client = np.empty(len(labels), np.int64)
        order = rng.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        for shard, rows in enumerate(np.array_split(order, shards)):
            client[rows] = owner[shard]
        return client


@dataclass(frozen=True)
class PowerLaw:
    """Sizes in proportion to draws of density a x^(a-1) on [0, 1]; labels at random.

    Args:
        K: Number of clients.
        a: Exponent of the law of the sizes; 3 is the paper's for p_k.
        seed: Seed of the partition.

    >>> int(np.bincount(PowerLaw(K=4)(np.zeros(1000, int))).sum())
    1000
    """

    K: int
    a: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        _clients(self)
        require(self, "a", self.a, "finite and above 0", lambda a: (a > 0) & (a < np.inf), one=True)

    def __call__(self, labels: Numbers) -> Numbers:
        _enough(self, labels)
        rng = np.random.default_rng(self.seed)
        drawn = rng.uniform(size=self.K)
        part = drawn ** (1 / self.a)
        if not part.sum() > 0:  # a is so small that all of them are 0 in double precision
            part = np.exp((np.log(drawn) - np.log(drawn.max())) / self.a)
        # One sample each, the rest by share.
        client = np.repeat(np.arange(self.K), 1 + rng.multinomial(len(labels) - self.K, part / part.sum()))
        return rng.permutation(client)


def _by_label(labels: Numbers) -> list[Numbers]:
    """The samples of each class that has any."""
    short = labels
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= 2**16:
        short = np.unique(labels, return_inverse=True)[1]
    number = np.bincount(short)
    order = np.argsort(short.astype(np.min_scalar_type(len(number))), kind="stable")  # short numbers sort fast
    return [rows for rows in np.split(order, np.cumsum(number)[:-1]) if len(rows)]


def _clients(partition: Any) -> None:
    require(partition, "K", partition.K, "at least 1", lambda k: k >= 1, whole=True, one=True)
    require(partition, "seed", partition.seed, "at least 0", lambda s: s >= 0, whole=True, one=True)


def _enough(partition: Any, labels: Numbers) -> None:
    name = type(partition).__name__
    if len(labels) < partition.K:
        raise ValueError(f"{name}: K must be at most the number of samples, {len(labels)}, got {partition.K}")
