"""What a federation looks like, in numbers and a few lines."""

from typing import NamedTuple

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.rows import few


class Summary(NamedTuple):
    """What a federation looks like: ``labels[k, c]`` samples of class c at client k, for a heat map.

    ``clients`` and ``classes`` are what clients and labels are called; empty where they have no names. ``commonest`` is
    the part of the test set that has its most frequent label, which is the accuracy of always giving that one.
    """

    name: str
    labels: Numbers
    test: int
    clients: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    commonest: float = 0.0

    def client_name(self, client: int) -> str:
        """What a client is called: its name, or its number."""
        return self.clients[client] if self.clients else str(client)

    def class_name(self, label: int) -> str:
        """What a label is called: its name, or its number, also where it is beyond those that the data have."""
        return self.classes[label] if label < len(self.classes) else str(label)

    @property
    def sizes(self) -> Numbers:
        """Samples by client."""
        sizes: Numbers = self.labels.sum(axis=1)
        return sizes

    @property
    def classes_per_client(self) -> Numbers:
        """How many different labels each client holds."""
        classes: Numbers = (self.labels > 0).sum(axis=1)
        return classes

    def __str__(self) -> str:
        sizes, classes = self.sizes, self.classes_per_client
        top = np.sort(sizes)[::-1][: max(1, len(sizes) // 10)].sum() / sizes.sum()
        called = f": {few(self.classes)}" if self.classes else ""
        return "\n".join(
            [
                f"{self.name}: {len(sizes)} clients, {sizes.sum():,} samples, {self.test:,} test samples",
                f"  samples per client: {sizes.min()} to {sizes.max()}, median {np.median(sizes):.0f};"
                f" the largest tenth holds {top:.0%}",
                f"  classes per client: {classes.min()} to {classes.max()} of {self.labels.shape[1]},"
                f" mean {classes.mean():.1f}{called}",
            ]
        )


def largest_share(labels: Numbers) -> float:
    """The part of these labels that is the most frequent one; 0 where there are none.

    >>> largest_share(np.array([1, 1, 0, 1]))
    0.75
    """
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels)) if len(labels) else 0.0
