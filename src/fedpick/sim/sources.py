"""Federations from what other libraries hold: frames, data sets of PyTorch and Hugging Face, Flower's partitioners."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.files import Table, of_frame
from fedpick.sim.partition import Partition
from fedpick.sim.rows import plain
from fedpick.sim.samples import Reading, make_federation
from fedpick.text import brief
from fedpick.validation import require


def from_frame(
    frame: Any,
    *,
    x: str | int | Sequence[str | int] = (),
    y: str | int = "",
    client: str | int = "",
    test: Any = None,
    partition: Partition | None = None,
    test_share: float = 0.1,
    seed: int = 0,
    standardize: bool = False,
    name: str = "own data",
) -> Federation:
    """A federation from a frame of pandas or polars, or a data set of Hugging Face: a row per sample.

    Args:
        frame: The samples.
        x: Columns of inputs, or patterns such as "pixel*", one or several; by default all other columns of numbers.
        y: The column of labels; by default one called y, label, target ..., or the last.
        client: The column of clients; by default one called client, user, device ...
        test: A frame of the test set with the same columns.
        partition: How the samples are dealt out, where no column says who holds them.
        test_share: Without ``test``, the share of every client's samples that becomes the test set.
        seed: What it is drawn by.
        standardize: Whether inputs are brought to mean 0 and standard deviation 1.
        name: For reports.

    >>> import pandas
    >>> frame = pandas.DataFrame({"rain": [0.1, 0.2, 0.3], "label": ["dry", "wet", "wet"], "site": ["a", "a", "b"]})
    >>> from_frame(frame).names
    Names(clients=('a', 'b'), labels=('dry', 'wet'))
    """
    rule = "at least 0 and below 1"
    require("from_frame", "test_share", test_share, rule, lambda share: (share >= 0) & (share < 1), one=True)
    options: Any = {"test_share": test_share, "seed": seed, "standardize": standardize}
    how = Reading(_named(x), _name(y), _name(client), partition=partition, **options)
    table = Table(of_frame(frame), None if test is None else of_frame(test), _words(frame), test_words=_words(test))
    return make_federation(table, how, name=name, owner="from_frame: frame")


def from_datasets(
    datasets: Any, *, test: Any = None, test_share: float = 0.1, seed: int = 0, name: str = "own data"
) -> Federation:
    """A federation from a data set of PyTorch's kind for each client: what has a length and gives pairs (x, y).

    Args:
        datasets: A list of data sets, or a dict of them by the clients' names.
        test: The data set of the test set.
        test_share: Without ``test``, the share of every client's samples that becomes the test set.
        seed: What it is drawn by.
        name: For reports.

    >>> pairs = [([0.1, 0.2], 0), ([0.3, 0.4], 1)]
    >>> from_datasets({"north": pairs, "south": pairs}, name="two").count
    Array([2, 2], dtype=int32)
    """
    named = dict(datasets) if isinstance(datasets, dict) else dict(enumerate(datasets))
    for called, number in Counter(map(str, named)).items():
        if number > 1:
            raise ValueError(f"from_datasets: datasets must have a name for each client, got {called!r} twice")
    parts = {client: _pairs(dataset, f"from_datasets: data set {client}") for client, dataset in named.items()}
    if not parts:
        raise ValueError("from_datasets: datasets must be one for each client, got none")
    first = next(iter(parts))
    for client, part in parts.items():
        for which, one, other in zip("xy", parts[first], part, strict=True):
            if one.shape[1:] != other.shape[1:]:
                rule = f"must give {which} of the shape {one.shape[1:]}, as data set {first} does"
                raise ValueError(f"from_datasets: data set {client} {rule}, got {other.shape[1:]}")
    x, y = (np.concatenate(each) for each in zip(*parts.values(), strict=True))
    client = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts.values()])
    columns = {"x": x, "y": plain(y), "client": np.asarray(list(parts))[client]}
    held = None if test is None else dict(zip(("x", "y"), _pairs(test, "from_datasets: test"), strict=True))
    found = make_federation(
        Table(columns, held), Reading(test_share=test_share, seed=seed), name=name, owner="from_datasets: datasets"
    )
    return found


def from_partitioner(
    partitioner: Any,
    *,
    x: str | Sequence[str] = (),
    y: str = "",
    test: Any = None,
    test_share: float = 0.1,
    name: str = "own data",
) -> Federation:
    """A federation from a partitioner of Flower Datasets that has its data set.

    Args:
        partitioner: The partitioner, such as ``DirichletPartitioner`` with its ``dataset`` set.
        x: Columns of inputs; by default x, image, img ..., or all other columns of numbers.
        y: The column of labels; by default one called y, label, target ..., or the last.
        test: A data set of Hugging Face with the same columns.
        test_share: Without ``test``, the share of every client's samples that becomes the test set.
        name: For reports.
    """
    try:
        loaded = [partitioner.load_partition(k) for k in range(partitioner.num_partitions)]
    except AttributeError as error:
        rule = "must be one that has its data set, such as a FederatedDataset's partitioners['train']"
        raise ValueError(f"from_partitioner: partitioner {rule}, got an error: {brief(error)}") from None
    parts = [of_frame(part) for part in loaded]
    columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    natural = getattr(partitioner, "partition_id_to_natural_id", {})  # known once the parts are
    clients = plain([natural.get(k, k) for k in range(len(parts))])
    client = np.repeat(clients, [len(next(iter(part.values()))) for part in parts])
    if natural:  # the column that the ids are of is the client, and no input
        columns = {each: values for each, values in columns.items() if not np.array_equal(values, client)}
    columns["client"] = client
    table = Table(columns, None if test is None else of_frame(test), _words(loaded[0]), test_words=_words(test))
    how = Reading(_named(x), y, "client", test_share=test_share)
    return make_federation(table, how, name=name, owner="from_partitioner: partitioner")


def _name(column: Any) -> str:
    """The name of a column; a frame that was made of an array has numbers, of which 0 is one."""
    return "" if column is None else str(column)


def _named(columns: Any) -> tuple[str, ...]:
    """The names of one column or several."""
    several = () if columns is None else columns
    return tuple(map(_name, several if isinstance(several, Iterable) and not isinstance(several, str) else [several]))


def _words(frame: Any) -> dict[str, tuple[str, ...]]:
    """What the labels of Hugging Face's data sets are called."""
    features = getattr(frame, "features", None) or {}
    return {str(name): tuple(kind.names) for name, kind in features.items() if getattr(kind, "names", None)}


def _pairs(dataset: Any, owner: str) -> tuple[Numbers, Numbers]:
    try:
        pairs = [dataset[row] for row in range(len(dataset))]
        x, y = zip(*((plain(x), plain(y)) for x, y in pairs), strict=True)
        return np.stack(x), np.stack(y)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{owner} must give pairs (x, y) of one shape, one or more, got an error: {brief(error)}"
        ) from None
