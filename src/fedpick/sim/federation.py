"""Who holds which data: flat arrays sorted by client, with offsets, so that nothing is padded to the largest client."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from fedpick.metrics import Numbers
from fedpick.pytrees import pytree, static
from fedpick.validation import natural


def as_float(x: Array) -> Array:
    """Inputs as float32, otherwise as they are."""
    return x.astype(jnp.float32)


def pixels(x: Array) -> Array:
    """Bytes to pixels, normalised as the paper's code does: (x / 255 - 0.1307) / 0.3081."""
    scaled: Array = x.astype(jnp.float32) * jnp.float32(1 / 255 / 0.3081) - jnp.float32(0.1307 / 0.3081)
    return scaled


@pytree
class Federation:
    """The data of K clients and the test set; usually made by ``from_arrays`` or ``from_partition``.

    Args:
        x: Inputs of all clients, sorted by client.
        y: Labels, 0..classes-1.
        start: First sample of each client.
        count: Number of samples of each client, which follow the first.
        size: What strategies and the global objective go by: p_k = size_k / sum size.
        test_x: Inputs of the test set, which may be empty.
        test_y: Labels of the test set.
        classes: Number of classes; static.
        largest: The largest count; static.
        prepare: Turns stored inputs into what a model sees, when they are gathered: images stay bytes in memory.
        name: For reports.

    >>> Federation.from_arrays(x=[[0.1], [0.2], [0.3]], y=[0, 1, 1], client=[1, 0, 1]).count
    Array([1, 2], dtype=int32)
    """

    x: Real[Array, " N ..."]
    y: Int[Array, " N"]
    _: KW_ONLY
    start: Int[Array, " K"]
    count: Int[Array, " K"]
    size: Real[Array, " K"]
    test_x: Real[Array, " n ..."]
    test_y: Int[Array, " n"]
    classes: int = static()
    largest: int = static()
    prepare: Callable[[Array], Array] = static(default=as_float)
    name: str = static(default="own data")

    @property
    def num_clients(self) -> int:
        """K."""
        return int(self.start.shape[0])

    @property
    def share(self) -> Float[Array, " K"]:
        """p_k, each client's part of the data."""
        size = self.size.astype(jnp.float32)
        return size / size.sum()

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        client: Any,
        *,
        test: tuple[Any, Any] | None = None,
        num_clients: int | None = None,
        classes: int | None = None,
        size: Any = None,
        prepare: Callable[[Array], Array] = as_float,
        name: str = "own data",
    ) -> "Federation":
        """A federation from one row per sample.

        Args:
            x: Inputs, a row per sample; bytes stay bytes, all else becomes float32.
            y: Labels, 0..classes-1.
            client: The client that holds each sample, 0..K-1.
            test: Inputs and labels of the test set; by default there is none.
            num_clients: K; by default one more than the largest client.
            classes: Number of classes; by default one more than the largest label.
            size: What p_k is in proportion to; by default the number of samples.
            prepare: As for ``Federation``.
            name: For reports.
        """
        x, y, client = np.asarray(x), np.asarray(y), np.asarray(client)
        _labels("client", client, len(x))
        K = int(client.max()) + 1 if num_clients is None else natural(cls, "num_clients", num_clients)
        _below("client", client, K, "num_clients")
        x = _narrow("x", x)
        _labels("y", y, len(x))
        test_x, test_y = (np.asarray(part) for part in test) if test else (x[:0], y[:0])
        test_x = _narrow("test x", test_x)
        _labels("test y", test_y, len(test_x), empty=True)
        if test_x.shape[1:] != x.shape[1:]:
            raise ValueError(f"Federation: test x must have samples of shape {x.shape[1:]}, got {test_x.shape[1:]}")
        total = int(max(y.max(), test_y.max(initial=0))) + 1 if classes is None else natural(cls, "classes", classes)
        _below("y", y, total, "classes")
        _below("test y", test_y, total, "classes")
        count = np.bincount(client, minlength=K)
        if not count.all():
            empty = np.flatnonzero(count == 0)
            raise ValueError(
                f"Federation: every client must hold at least 1 sample, got none for clients {_few(empty)}"
            )
        size = count if size is None else np.asarray(size)
        if size.shape != (K,) or size.dtype.kind not in "iuf" or not ((size >= 1e-30) & (size <= 1e30)).all():
            raise ValueError(f"Federation: size must be K={K} numbers between 1e-30 and 1e30, got {size!r}")
        if not (client[:-1] <= client[1:]).all():  # data that come sorted are not copied: they may be gigabytes
            order = np.argsort(client, kind="stable")
            x, y = x[order], y[order]
        return cls(
            x=jax.device_put(x),  # jnp.asarray would hold a second copy on the way
            y=jnp.asarray(y, jnp.int32),
            start=jnp.asarray(np.concatenate([[0], np.cumsum(count)[:-1]]), jnp.int32),
            count=jnp.asarray(count, jnp.int32),
            size=jnp.asarray(size.astype(np.float32)),
            test_x=jax.device_put(test_x),
            test_y=jnp.asarray(test_y, jnp.int32),
            classes=total,
            largest=int(count.max()),
            prepare=prepare,
            name=name,
        )

    @classmethod
    def from_partition(cls, x: Any, y: Any, partition: Callable[[Numbers], Numbers], **options: Any) -> "Federation":
        """A federation whose clients are made by a partition of the labels.

        Args:
            x: Inputs, a row per sample.
            y: Labels, 0..classes-1.
            partition: Maps the labels to clients, such as ``Dirichlet(K=100, alpha=0.3)``.
            **options: As for ``from_arrays``.

        >>> from fedpick.sim import IID
        >>> Federation.from_partition(x=[[0.0]] * 6, y=[0, 1] * 3, partition=IID(K=2)).count
        Array([3, 3], dtype=int32)
        """
        return cls.from_arrays(x, y, partition(np.asarray(y)), num_clients=getattr(partition, "K", None), **options)

    def summary(self) -> "Summary":
        """Sizes and labels by client; prints as a few lines.

        >>> federation = Federation.from_arrays(x=[[0.1], [0.2], [0.3]], y=[0, 1, 1], client=[1, 0, 1])
        >>> federation.summary().labels
        array([[0, 1],
               [1, 1]])
        """
        client = np.repeat(np.arange(self.num_clients), np.asarray(self.count))
        labels = np.zeros((self.num_clients, self.classes), np.int64)
        np.add.at(labels, (client, np.asarray(self.y)), 1)
        return Summary(self.name, labels, int(self.test_y.shape[0]))


class Summary(NamedTuple):
    """What a federation looks like: ``labels[k, c]`` samples of class c at client k, for a heat map."""

    name: str
    labels: Numbers
    test: int

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
        return "\n".join(
            [
                f"{self.name}: {len(sizes)} clients, {sizes.sum():,} samples, {self.test:,} test samples",
                f"  samples per client: {sizes.min()} to {sizes.max()}, median {np.median(sizes):.0f};"
                f" the largest tenth holds {top:.0%}",
                f"  classes per client: {classes.min()} to {classes.max()} of {self.labels.shape[1]},"
                f" mean {classes.mean():.1f}",
            ]
        )


def _narrow(name: str, x: Numbers) -> Numbers:
    """Bytes stay bytes; all other numbers become float32, and must be finite in it."""
    if x.dtype.kind not in "iufb" or x.ndim < 1:
        raise ValueError(f"Federation: {name} must be numbers, a row per sample, got dtype {x.dtype}, shape {x.shape}")
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
        raise ValueError(f"Federation: {name} must be finite in float32, got NaN or infinity in row {row}")
    return x


def _labels(name: str, labels: Numbers, rows: int, empty: bool = False) -> None:
    if labels.ndim != 1 or len(labels) != rows or (rows == 0 and not empty):
        raise ValueError(f"Federation: {name} must have one entry per sample ({rows}), got shape {labels.shape}")
    if len(labels) and labels.dtype.kind not in "iu":
        raise ValueError(f"Federation: {name} must be whole numbers, got dtype {labels.dtype}")
    if len(labels) and labels.max() >= 2**31:
        raise ValueError(f"Federation: {name} must be below 2**31, got {labels.max()}")


def _below(name: str, labels: Numbers, limit: int, limit_name: str) -> None:
    bad = np.flatnonzero((labels < 0) | (labels >= limit))
    if len(bad):
        value = f"{labels[bad[0]]} in row {bad[0]}"
        raise ValueError(f"Federation: {name} must be at least 0 and below {limit_name}={limit}, got {value}")


def _few(numbers: Numbers) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
