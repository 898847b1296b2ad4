"""What naturally federated data have in common: which of the clients take part, and samples that stay where they are.

The test set is fixed before clients are chosen, so a client has the same samples in every federation.
"""

from typing import NamedTuple, Protocol

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.rows import Names, held_out, number
from fedpick.validation import owner_name, require

TEST_SHARE = 0.2


class Chosen(Protocol):
    """A description of data with the three fields by which clients are chosen."""

    @property
    def least(self) -> int:
        """Samples that a client must have."""

    @property
    def most(self) -> int | None:
        """Clients at most."""

    @property
    def seed(self) -> int:
        """What the clients are drawn by."""


class Samples(NamedTuple):
    """Samples of all clients there are: a row for each, whether it is in the test set, and what things are called."""

    x: Numbers
    y: Numbers
    client: Numbers
    test: Numbers
    names: Names


def check_choice(data: Chosen) -> None:
    """Raise unless ``least`` and ``most`` are numbers that can be."""
    require(data, "least", data.least, "at least 1", lambda n: n >= 1, whole=True)
    if data.most is not None:
        require(data, "most", data.most, "at least 1", lambda n: n >= 1, whole=True)
    require(data, "seed", data.seed, "at least 0", lambda n: n >= 0, whole=True)


def make_samples(x: Numbers, y: Numbers, client: Numbers, labels: tuple[str, ...], kind: str = "") -> Samples:
    """Samples of which a fifth of each client's, rounded down, is the test set; always the same.

    Args:
        x: Inputs, a row per sample.
        y: Labels, 0..classes-1.
        client: The client that holds each sample: numbers or names.
        labels: What the labels are called.
        kind: What a client is, where its name is a number: "school" makes it "school 12".
    """
    numbers, clients = number(client, "client")
    called = tuple(f"{kind} {name}".strip() for name in clients)
    return Samples(x, y, numbers, held_out(numbers, TEST_SHARE, seed=0), Names(called, labels))


def choose_clients(data: Chosen, samples: Samples, name: str) -> Federation:
    """The federation of the clients that have enough samples, or of as many as are wanted, drawn among these.

    Args:
        data: The description, with ``least``, ``most`` and ``seed``.
        samples: Of all clients.
        name: For reports.
    """
    counts = np.bincount(samples.client)
    enough = np.flatnonzero(counts >= data.least)
    if not len(enough):
        rule = f"least must be at most {counts.max()}, the samples of the largest client"
        raise ValueError(f"{owner_name(data)}: {rule}, got {data.least}")
    if data.most is not None and data.most < len(enough):
        enough = np.sort(np.random.default_rng(data.seed).choice(enough, data.most, replace=False))
    kept = np.isin(samples.client, enough)
    training, test = np.flatnonzero(kept & ~samples.test), np.flatnonzero(kept & samples.test)
    training = training[np.argsort(samples.client[training], kind="stable")]
    return Federation.from_arrays(
        samples.x[training],
        samples.y[training],
        np.searchsorted(enough, samples.client[training]),
        test=(samples.x[test], samples.y[test]),
        num_clients=len(enough),
        classes=len(samples.names.labels),
        name=name,
        names=Names(tuple(samples.names.clients[client] for client in enough), samples.names.labels),
    )


def indicators(values: Numbers, levels: Numbers) -> Numbers:
    """A column for each level: 1 where the value is that level.

    Args:
        values: One for each sample.
        levels: The levels.

    >>> indicators(np.array([2, 4]), np.array([2, 4, 6]))
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    found: Numbers = (values[:, None] == levels[None, :]).astype(np.float32)
    return found
