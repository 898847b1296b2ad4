"""A federation from a table of samples: names become numbers, a part becomes the test set, inputs are standardised."""

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.archives import Archive
from fedpick.sim.columns import Roles, choose_columns, stack_inputs
from fedpick.sim.federation import Federation, as_float, pixels
from fedpick.sim.files import Table
from fedpick.sim.partition import Partition
from fedpick.sim.rows import (
    REGRESSION,
    Names,
    check_below,
    check_labels,
    check_mixed,
    few,
    held_out,
    joined,
    narrow,
    number,
    numbered,
    plain,
    reshaped,
    samples,
)

SCALE = 10.0  # of inputs, above which plain gradient descent rarely works
SAMPLED = 20_000  # rows that are looked at for it
DARK = 32  # bytes below which there are no pictures of 0 to 255
COINCIDENCE = 20  # samples, below which an input may well be as the label is, and all pixels dark
FEW_OF_EACH = 5  # samples of a label on average, with fewer of which labels are hardly classes


@dataclass(frozen=True)
class Reading:
    """How a table of samples is read.

    Args:
        x: Columns of inputs, or patterns such as "pixel*"; by default all other columns of numbers.
        y: The column of labels; by default one called y, label, target ..., or the last.
        client: The column of clients; by default one called client, user, device ...
        partition: How the samples are dealt out, where no column says who holds them.
        test_share: Where the table has no test set, the share of every client's samples that becomes it.
        seed: What the test set is drawn by.
        standardize: Whether each input is shifted and scaled to mean 0 and standard deviation 1 over the training data.
        codes: Whether bytes are codes, such as characters, and not pixels.
    """

    x: Sequence[str] = ()
    y: str = ""
    client: str = ""
    _: KW_ONLY
    partition: Partition | None = None
    test_share: float = 0.1
    seed: int = 0
    standardize: bool = False
    codes: bool = False


def make_federation(table: Table, how: Reading, *, name: str, owner: str) -> Federation:
    """The federation of a table; rows in error messages are counted as in the user's file.

    Args:
        table: The samples.
        how: How it is read.
        name: For reports.
        owner: What error messages begin with, such as "Arrays: 'mine.csv'".
    """
    columns, partition, exact = table.columns, how.partition, how.standardize
    roles = choose_columns(
        columns,
        x=how.x,
        y=how.y,
        client=how.client,
        owner=owner,
        partitioned=partition is not None,
        unit=table.unit,
        first=table.first,
    )
    for used in (*roles.x, roles.y, roles.client):
        if used and used in table.broken:
            found = f"a line break in a cell that begins in line {table.broken[used]}; it may lack a quotation mark"
            raise ValueError(f"{owner}: {used} must have one line in each cell, got {found}")
    x = stack_inputs(columns, roles.x, owner, exact=exact)
    y = table.written.get(roles.y, columns[roles.y])
    for called, column in ((roles.x[0] if len(roles.x) == 1 else "x", x), (roles.y, y)):
        samples(f"{owner}: {called}", column)
    if not len(y) or len(x) != len(y):
        rule = f"x and {roles.y} must have the same number of rows, above 0"
        raise ValueError(f"{owner}: {rule}, got {len(x)} and {len(y)}")
    if not roles.client and partition is None:
        raise ValueError(
            f"{owner} has no client, so name the column of clients (client=; on the command line --client NAME), or "
            f"give a partition (--set 'data.partition={{kind=\"dirichlet\", K=20, alpha=0.5}}'); got {few(columns)}"
        )
    if partition is not None and (how.client or "client" in columns):
        raise ValueError(f"{owner} has clients, so partition must be left out")
    test = None if table.test is None else _test(table.test, roles.x, roles.y, owner, exact=exact)
    holders = None if partition is not None else table.written.get(roles.client, columns[roles.client])
    with _counted(table, owner):
        x = narrow("x", x, roles.x, exact)
        words = tuple(each.get(roles.y, ()) for each in (table.words, table.test_words))
        y, test_y, labels = _labels(y, None if test is None else test[1], roles.y, words)
        if partition is None:
            client = plain(holders)
            if client.shape != y.shape:
                raise ValueError(f"client must have one entry per sample ({len(y)}), got shape {client.shape}")
            client, clients = number(client, roles.client)
        else:
            client, clients = _dealt_out(y, partition), ()
    if test is None:
        out = held_out(client, how.test_share, how.seed, name)
        test_x, test_y, x, y, client = x[out], y[out], x[~out], y[~out], client[~out]
    else:
        test_x = narrow(f"{owner}: test x", test[0], roles.x, exact)
        check_mixed(owner, x, test_x)
    if how.standardize:
        x, test_x = _standardized(x, test_x)
    elif not (x.dtype == np.uint8 or how.codes):
        _warn_of_scale(x, roles.x, name)
    elif not how.codes and len(x) >= COINCIDENCE and x.max() < DARK:
        what = f"bytes are taken for pixels from 0 to 255, and none is above {x.max(initial=0)}"
        cure = "save numbers as float32; standardize = true (--standardize) scales them, codes = true keeps codes"
        warnings.warn(f"{name}: {what}, so that inputs hardly differ; {cure}", stacklevel=2)
    _warn_of_unseen(y, test_y, labels, name)
    if len(labels) > COINCIDENCE and len(y) < FEW_OF_EACH * len(labels):
        what = f"{roles.y} has {len(labels):,} labels in {len(y):,} samples"
        warnings.warn(f"{name}: {what}; each is a class of its own, also where it is a number", stacklevel=2)
    else:
        _warn_of_codes(x, y, roles, name)
    if not how.x:  # what is named leaves out the rest
        _warn_of_unused(table, (*roles.x, roles.y), roles.client, name)
    return Federation.from_arrays(
        x,
        y,
        client,
        test=(test_x, test_y),
        num_clients=getattr(partition, "K", None),
        classes=len(labels) or None,
        prepare=pixels if x.dtype == np.uint8 and not how.codes else as_float,
        name=name,
        names=Names(_unless_numbers(clients), _unless_numbers(labels)),
    )


def _test(
    columns: Mapping[str, Numbers], x: Sequence[str], y: str, owner: str, *, exact: bool
) -> tuple[Numbers, Numbers]:
    for column in (*x, y):
        if column not in columns:
            found = columns.entries.values() if isinstance(columns, Archive) else (f"test_{name}" for name in columns)
            raise ValueError(f"{owner} must hold test_{column}, got {few(found)}")
    return stack_inputs(columns, x, f"{owner}: test", exact=exact), columns[y]


def _labels(
    y: Numbers, test_y: Numbers | None, name: str, words: tuple[tuple[str, ...], ...]
) -> tuple[Numbers, Numbers, tuple[str, ...]]:
    """Labels of any names as 0, 1, ... in their order, of both sets together; and the names.

    ``words`` are what the numbers of the training data and of the test set stand for, where the file says so.
    """
    both = [plain(part) for part in (y, test_y) if part is not None]
    called = (name, f"test_{name}")
    for part, each in zip(both, called, strict=False):
        if part.ndim != 1:
            raise ValueError(f"{each} must be one label per sample, got shape {part.shape}{reshaped(part)}")
    numbers, labels = number(joined(name, both), name, REGRESSION)
    if words[0] and both[0].dtype.kind in "iu":
        own = (words[0], words[1] or words[0])
        numbers = joined(name, [_as_named(*each, words[0]) for each in zip(both, called, own, strict=False)])
        labels = words[0]
    return numbers[: len(y)], numbers[len(y) :], labels


def _as_named(labels: Numbers, called: str, own: tuple[str, ...], words: tuple[str, ...]) -> Numbers:
    """Labels that count in their ``own`` names as labels that count in ``words``, those of the training data."""
    bad = np.flatnonzero((labels < 0) | (labels >= len(own)))
    if len(bad):
        rule = f"must be at least 0 and below {len(own)}, as it has so many names"
        raise ValueError(f"{called} {rule}, got {labels[bad[0]]} in row {bad[0]}")
    other = [word for word in own if word not in words]
    if other:
        raise ValueError(f"{called} must have names of the training data's, {few(words)}, got {few(other)}")
    return np.array([words.index(word) for word in own])[labels.astype(np.int64)]


def _dealt_out(y: Numbers, partition: Partition) -> Numbers:
    """The client of each sample by a partition, which may be one's own."""
    client, _ = numbered("client", samples("client", partition(y)))
    check_labels("client", client, len(y))
    check_below("client", client, getattr(partition, "K", int(client.max()) + 1), "num_clients")
    return client


def _unless_numbers(names: tuple[str, ...]) -> tuple[str, ...]:
    return () if names == tuple(map(str, range(len(names)))) else names


def _standardized(x: Numbers, test_x: Numbers) -> tuple[Numbers, Numbers]:
    """In double precision, and rounded after it: of seconds since 1970, float32 would make one number."""
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    scale = np.where(x.max(axis=0) > x.min(axis=0), deviation, 1.0)  # that of a constant is a rounding error
    first, second = ((part - mean) / scale for part in (x, test_x))
    return first.astype(np.float32), second.astype(np.float32)


def _warn_of_scale(x: Numbers, names: Sequence[str], name: str) -> None:
    rows = x[:: max(1, len(x) // SAMPLED)].reshape(-1, int(np.prod(x.shape[1:])) if x.ndim > 1 else 1)
    size = np.sqrt(np.mean(np.square(rows, dtype=np.float64), axis=0))
    if size.max() > SCALE:
        worst = int(size.argmax())
        what = names[worst] if len(names) == len(size) else f"input {worst}"
        cure = "training may not succeed; standardize = true (on the command line: --standardize) scales them"
        warnings.warn(f"{name}: inputs are of the size of {size[worst]:,.0f} ({what}); {cure}", stacklevel=2)


def _warn_of_codes(x: Numbers, y: Numbers, roles: Roles, name: str) -> None:
    """Name inputs each value of which stands for one label: the label in another code, which no client can know."""
    rows = x.reshape(len(x), -1)
    labels, first, which = np.unique(y, return_index=True, return_inverse=True)
    if len(y) < COINCIDENCE or len(labels) < 2:
        return
    found = [place for place in range(rows.shape[1]) if len(np.unique(rows[first, place])) == len(labels)]
    for some in (slice(SAMPLED), slice(None)):  # few are left for all rows
        found = [place for place in found if (rows[first, place][which[some]] == rows[some, place]).all()]
    if found:
        what = few(roles.x[place] if len(roles.x) == rows.shape[1] else f"input {place}" for place in found)
        text = f"every value of {what} stands for one label of {roles.y}, as if it were the label in another code"
        warnings.warn(f"{name}: {text}; leave it out (x=, --x) if a client would not know it", stacklevel=2)


def _warn_of_unused(table: Table, used: Sequence[str], client: str, name: str) -> None:
    """Name the arrays of an archive that nothing is made of: they may be meant to be something."""
    if isinstance(table.columns, Archive):
        left = [entry for column, entry in table.columns.entries.items() if column not in (*used, client)]
        if isinstance(table.test, Archive):
            left += [entry for column, entry in table.test.entries.items() if column not in used]
        if left:
            warnings.warn(f"{name}: arrays that are not used: {few(left)}", stacklevel=2)


def _warn_of_unseen(y: Numbers, test_y: Numbers, labels: tuple[str, ...], name: str) -> None:
    unseen = np.setdiff1d(test_y, y)
    if len(unseen):
        part = np.isin(test_y, unseen).mean()
        listed = few(labels[label] for label in unseen)
        text = f"labels of the test set that the training data do not have: {listed} ({part:.0%} of the test samples)"
        warnings.warn(f"{name}: {text}", stacklevel=2)


@contextlib.contextmanager
def _counted(table: Table, owner: str) -> Iterator[None]:
    """Errors of rows, counted as people count them in the file."""
    try:
        yield
    except ValueError as error:
        found = re.fullmatch(r"(.* in )row (\d+)(, column .*)?", str(error), re.DOTALL)
        counted = f"{found[1]}{table.unit} {int(found[2]) + table.first}{found[3] or ''}" if found else str(error)
        raise ValueError(f"{owner}: {counted}") from None
