"""Who holds which data: flat arrays sorted by client, with offsets, so that nothing is padded to the largest client."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from fedpick.metrics import Numbers
from fedpick.pytrees import pytree, static
from fedpick.sim.host_samples import HostSamples, has_room
from fedpick.sim.rows import (
    Names,
    check_below,
    check_labels,
    check_mixed,
    few,
    held_out,
    joined,
    narrow,
    numbered,
    pair,
    samples,
)
from fedpick.sim.summary import Summary, largest_share
from fedpick.text import shown
from fedpick.validation import check_function, check_kind, natural, require

MOST_CLASSES = 1_000_000
OWN = ("order", "start", "count", "size", "test_order")  # what a federation for each run has for each


def as_float(x: Array) -> Array:
    """Inputs as float32, otherwise as they are."""
    return x.astype(jnp.float32)


def pixels(x: Array) -> Array:
    """Bytes to pixels, normalised as the paper's code does: (x / 255 - 0.1307) / 0.3081."""
    scaled: Array = x.astype(jnp.float32) * jnp.float32(1 / 255 / 0.3081) - jnp.float32(0.1307 / 0.3081)
    return scaled


Partitions = Callable[[Numbers], Numbers] | Sequence[Callable[[Numbers], Numbers]]


@pytree
class Federation:
    """The data of K clients and the test set; usually made by ``from_arrays`` or ``from_partition``.

    A federation for each of R runs is one value, too: ``order``, ``start``, ``count``, ``size`` and ``test_order`` then
    have an axis [R] more, and all runs share the samples.

    Args:
        x: Inputs of all clients, sorted by client unless there is an ``order``.
        y: Labels, 0..classes-1.
        start: First sample of each client.
        count: Number of samples of each client, which follow the first.
        size: What strategies and the global objective go by: p_k = size_k / sum size.
        test_x: Inputs of the test set, which may be empty.
        test_y: Labels of the test set.
        order: The rows of x and y in the order by client, which ``start`` counts in; None where they are sorted.
        test_order: The rows of the test set that belong to a run, -1 beyond the last; None where all do.
        part: Samples of a client that are summed at a time in evaluations; by default by how many a client holds.
        host: The inputs, where they stay in the host's memory; x is then empty.
        classes: Number of classes; static.
        largest: The largest count; static.
        prepare: Turns stored inputs into what a model sees, when they are gathered: images stay bytes in memory.
        name: For reports.
        names: What clients and labels are called, where they have names.

    >>> Federation.from_arrays(x=[[0.1], [0.2], [0.3]], y=[0, 1, 1], client=[1, 0, 1]).count
    Array([1, 2], dtype=int32)
    """

    x: Real[Array, " N ..."]
    y: Int[Array, " N"]
    _: KW_ONLY
    start: Int[Array, "*R K"]
    count: Int[Array, "*R K"]
    size: Real[Array, "*R K"]
    test_x: Real[Array, " n ..."]
    test_y: Int[Array, " n"]
    classes: int = static()
    largest: int = static()
    prepare: Callable[[Array], Array] = static(default=as_float)
    name: str = static(default="own data")
    order: Int[Array, "*R places"] | None = None
    test_order: Int[Array, "*R test_places"] | None = None
    part: int = static(default=0)
    host: HostSamples | None = static(default=None)
    names: Names = static(default=Names())

    @property
    def num_clients(self) -> int:
        """K."""
        return int(self.start.shape[-1])

    @property
    def num_samples(self) -> int:
        """The samples of all clients; where runs differ, of the run that has most."""
        return int((self.y if self.order is None else self.order).shape[-1])

    @property
    def num_runs(self) -> int | None:
        """R, where there is a federation for each of R runs."""
        return int(self.start.shape[0]) if self.start.ndim == 2 else None

    @property
    def share(self) -> Float[Array, "... K"]:
        """p_k, each client's part of the data."""
        size = self.size.astype(jnp.float32)
        return size / size.sum(axis=-1, keepdims=True)

    @property
    def part_size(self) -> int:
        """The number of samples of a client that are summed at a time: a power of two, small against what it holds."""
        return self.part or _part_size(self.num_samples, self.num_clients)

    def locate(self, place: Int[Array, "..."]) -> Int[Array, "..."]:
        """The rows of x and y at these places in the order by client."""
        return place if self.order is None else self.order[place]

    def inputs(self, row: Int[Array, "..."]) -> Real[Array, "..."]:
        """The inputs of these rows, as they are stored."""
        return self.x[row] if self.host is None else self.host.fetch(row)

    def axes(self) -> "Federation":
        """The axis of the runs in each leaf for ``jax.vmap``, None where it is shared."""
        shared: Federation = jax.tree.map(lambda leaf: None, self)
        own: Any = {name: None if self.num_runs is None or getattr(self, name) is None else 0 for name in OWN}
        return dataclasses.replace(shared, **own)

    def rows(self, runs: Any) -> "Federation":
        """The federation of one run, or those of some of the runs; the same where all runs share one.

        Args:
            runs: The number of a run, a slice, or an array of numbers.
        """
        if self.num_runs is None:
            return self
        own: Any = {name: None if (leaf := getattr(self, name)) is None else leaf[runs] for name in OWN}
        part = self.part
        if part and not isinstance(runs, int):  # as each of them has alone
            part = min(_part_size(int(total), self.num_clients) for total in np.asarray(own["count"]).sum(axis=1))
        return dataclasses.replace(self, **own, part=part)

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
        names: Names = Names(),
        test_share: float = 0.0,
        seed: int = 0,
        on_host: bool | None = None,
    ) -> "Federation":
        """A federation from one row per sample.

        Args:
            x: Inputs, a row per sample; bytes stay bytes, all else becomes float32.
            y: Labels: 0..classes-1, or words or other whole numbers, which are numbered in their order.
            client: The client that holds each sample: a number, or a name; [R, N] for R runs with the same samples,
                each dealt out in its own way, 0..K-1.
            test: Inputs and labels of the test set; by default there is none.
            num_clients: K; by default as many as there are.
            classes: Number of classes; given, labels are its numbers 0..classes-1. By default that of the labels.
            size: What p_k is in proportion to; by default the number of samples.
            prepare: As for ``Federation``.
            name: For reports.
            names: What clients and labels are called; by default as in ``client`` and ``y``, where those are names.
            test_share: Without ``test``, the share of every client's samples, rounded down, that becomes the test set.
            seed: What it is drawn by.
            on_host: Whether the inputs stay in the host's memory, or in the file that x is mapped from
                (``numpy.memmap``), and are fetched for each round; by default where the device has no room for them.
        """
        given = ("x", x), ("y", y), ("client", client), *zip(("test x", "test y"), pair(test), strict=True)
        x, y, client, test_x, test_y = (samples(f"Federation: {which}", values) for which, values in given)
        test_x, test_y = (x[:0], y[:0]) if test is None else (test_x, test_y)
        require(cls, "test_share", test_share, "at least 0 and below 1", lambda share: (share >= 0) & (share < 1))
        require(cls, "test_share", test_share, "0 where test is given", lambda share: (test is None) | (share == 0))
        require(cls, "seed", seed, "at least 0", lambda n: n >= 0, whole=True)
        check_kind(cls, "names", names, Names)
        check_function(cls, "prepare", prepare, "fedpick.sim.pixels")
        client, called = numbered("client", client, gaps=num_clients is None)
        both = joined("Federation: y", [y, test_y]) if y.ndim == test_y.ndim == 1 else y
        both, labels = numbered("y", both, gaps=classes is None, negative=True)
        y, test_y = (both[: len(y)], both[len(y) :]) if y.ndim == test_y.ndim == 1 else (both, test_y)
        by_run = client if client.ndim == 2 and len(client) else [client]
        for name_, rows in (*(("client", row) for row in by_run), ("y", y)):
            check_labels(name_, rows, len(x))
        K = int(client.max()) + 1 if num_clients is None else natural(cls, "num_clients", num_clients)
        check_below("client", client, K, "num_clients")
        if len(x) < K:  # before anything of that size is allocated
            raise ValueError(f"Federation: num_clients must be at most the {len(x)} samples, got {K}")
        if test is None and test_share:
            out = held_out(client, test_share, seed, name)
            test_x, test_y, x, y, client = x[out], y[out], x[~out], y[~out], client[~out]
        x, test_x = narrow("Federation: x", x), narrow("Federation: test x", test_x)
        check_labels("test y", test_y, len(test_x), empty=True)
        check_mixed("Federation", x, test_x)
        if test_x.shape[1:] != x.shape[1:]:
            raise ValueError(f"Federation: test x must have samples of shape {x.shape[1:]}, got {test_x.shape[1:]}")
        total = int(max(y.max(), test_y.max(initial=0))) + 1 if classes is None else natural(cls, "classes", classes)
        require(cls, "classes", total, f"at most {MOST_CLASSES:,}", lambda n: n <= MOST_CLASSES)
        check_below("y", y, total, "classes")
        check_below("test y", test_y, total, "classes")
        count = np.stack([np.bincount(row, minlength=K) for row in client.reshape(-1, len(x))])
        if not count.all():
            empty = few(np.flatnonzero((count == 0).any(axis=0)))
            raise ValueError(f"Federation: every client must hold at least 1 sample, got none for clients {empty}")
        size = count.reshape(*client.shape[:-1], K) if size is None else samples("Federation: size", size, of="client")
        if size.shape[-1:] != (K,) or size.dtype.kind not in "iuf" or not ((size >= 1e-30) & (size <= 1e30)).all():
            raise ValueError(f"Federation: size must be K={K} numbers between 1e-30 and 1e30, got {shown(size)}")
        count, order = count.reshape(*client.shape[:-1], K), None
        on_host = not has_room(x) if on_host is None else on_host
        if client.ndim == 2:
            order = jnp.asarray(np.stack([_by_client(row, K) for row in client]))
        elif not (client[:-1] <= client[1:]).all():  # data that come sorted are not copied: they may be gigabytes
            by_client = _by_client(client, K)
            x, y, order = (x, y, jnp.asarray(by_client)) if on_host else (x[by_client], y[by_client], None)
        return cls(
            x=jax.device_put(x[:0] if on_host else x),  # jnp.asarray would hold a second copy on the way
            y=jnp.asarray(y, jnp.int32),
            start=jnp.asarray(np.cumsum(count, axis=-1) - count, jnp.int32),
            count=jnp.asarray(count, jnp.int32),
            size=jnp.asarray(np.broadcast_to(size, count.shape).astype(np.float32)),
            test_x=jax.device_put(test_x),
            test_y=jnp.asarray(test_y, jnp.int32),
            classes=total,
            largest=int(count.max()),
            prepare=prepare,
            name=name,
            order=order,
            host=HostSamples(x) if on_host else None,
            names=Names(names.clients or called, names.labels or labels),
        )

    @classmethod
    def from_partition(cls, x: Any, y: Any, partition: Partitions, **options: Any) -> "Federation":
        """A federation whose clients are made by a partition of the labels.

        Args:
            x: Inputs, a row per sample.
            y: Labels, 0..classes-1.
            partition: Maps the labels to clients, such as ``Dirichlet(K=100, alpha=0.3)``; a list for as many runs.
            **options: As for ``from_arrays``.

        >>> from fedpick.sim import IID
        >>> Federation.from_partition(x=[[0.0]] * 6, y=[0, 1] * 3, partition=IID(K=2)).count
        Array([3, 3], dtype=int32)
        """
        y = samples("Federation: y", y)
        for one in partition if isinstance(partition, list | tuple) and partition else (partition,):
            check_function("Federation", "partition", one, "Dirichlet(K=30, alpha=0.3)")
        if isinstance(partition, Sequence):
            threading.Thread(target=jax.devices, daemon=True).start()  # a GPU takes as long to start as to draw these
            K = {getattr(one, "K", None) for one in partition}
            client = np.stack([one(y).astype(np.int32) for one in partition])
            return cls.from_arrays(x, y, client, num_clients=K.pop() if len(K) == 1 else None, **options)
        return cls.from_arrays(x, y, partition(y), num_clients=getattr(partition, "K", None), **options)

    def summary(self) -> Summary:
        """Sizes and labels by client, of the first run where each has its own; prints as a few lines.

        >>> federation = Federation.from_arrays(x=[[0.1], [0.2], [0.3]], y=[0, 1, 1], client=[1, 0, 1])
        >>> federation.summary().labels
        array([[0, 1],
               [1, 1]])
        """
        one = self.rows(0)
        client = np.repeat(np.arange(self.num_clients), np.asarray(one.count))
        labels = np.zeros((self.num_clients, self.classes), np.int64)
        np.add.at(labels, (client, np.asarray(one.y[one.locate(jnp.arange(len(client)))])), 1)
        names, test = self.names, np.asarray(self.test_y)
        return Summary(self.name, labels, len(test), names.clients, names.labels, largest_share(test))


def _by_client(client: Numbers, K: int) -> Numbers:
    """The samples in the order by client; clients as short numbers, which are sorted ten times faster."""
    return np.argsort(client.astype(np.min_scalar_type(K)), kind="stable").astype(np.int32)


def _part_size(samples: int, K: int) -> int:
    mean = samples // K
    exponent = mean.bit_length() - 1 if mean < 8 else max(3, (mean // 32).bit_length() - 1)
    return 1 << min(6, exponent)
