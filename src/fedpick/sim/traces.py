"""Records of real devices from files: who was there (tables, FedScale, FLASH), and how fast they are (FedScale)."""

import functools
import json
import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from fedpick.metrics import Numbers
from fedpick.pytrees import pytree, static
from fedpick.sim.availability import Devices, Trace
from fedpick.sim.files import read_table
from fedpick.sim.pickles import read_plain
from fedpick.sim.rows import few
from fedpick.storage import file_sha256
from fedpick.text import brief, shown
from fedpick.validation import natural, require

LOG = logging.getLogger("fedpick")
TABLES = (".csv", ".tsv", ".npz", ".parquet", ".arrow")
MOST_ROUNDS = 100_000
ROUNDS = ("round", "rounds", "t", "time", "index", "unnamed: 0")  # columns that are no clients
TIMES, CAPACITY = "a table of devices, as FedScale and FLASH have", "FedScale's client_device_capacity"
STATES = {  # of FLASH's messages
    "screen_off": ("dark", True),
    "screen_on": ("dark", False),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "battery_charged_on": ("charging", True),
    "battery_charged_off": ("charging", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("2G", "3G", "4G", "5G", "Unknown", "unknown"), ("wifi", False)),
}


@pytree
class TraceFile:
    """Availability as a file has it; after its end it starts again.

    A table (``.csv``, ``.npz``, ...) has a row per round and a column per client, 0 or 1. Columns with the names of
    clients, or their numbers where they have none, are theirs; others are the clients in their order, and a CSV file of
    them needs no header. FedScale's ``client_behave_trace`` (a pickle, of which only plain data are read, or the same
    as json) and FLASH's ``state_traces.json`` have devices and times: a FLASH device is available while it charges, is
    on Wi-Fi, and its screen is off or locked.

    Args:
        path: The file.
        seconds: Seconds from one round to the next, where the file has times.
        seed: What the devices are drawn by, one for each client; without replacement while there are enough.

    >>> TraceFile("state_traces.json", seconds=600.0).seconds
    600.0
    """

    path: str = static()
    seconds: float = static(default=60.0)
    seed: int = static(default=0)

    def __post_init__(self) -> None:
        require(self, "seconds", self.seconds, "finite and above 0", lambda x: (x > 0) & (x < np.inf))
        require(self, "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True, one=True)

    @property
    def sha256(self) -> str:
        """What the file holds, as a sum."""
        return file_sha256(_existing(self.path))

    def for_clients(self, names: Sequence[str], K: int) -> Trace:
        """What the file holds now, for these clients: where columns of the table are called as they are, by name.

        Args:
            names: The clients' names; their numbers, 0 to K-1, where they have none.
            K: Their number.
        """
        file = _existing(self.path)
        called, present = _table(file, names) if names and file.suffix.lower() in TABLES else ([], np.empty(0))
        place = {name: column for column, name in enumerate(called)}
        absent = [name for name in names if name not in place]
        if called and not absent:
            return Trace(jnp.asarray(present[:, [place[name] for name in names]]))
        if called:
            numbers = tuple(names) == tuple(map(str, range(len(names))))  # which nobody may have thought of as names
            if not numbers and len(absent) < len(names):
                rule = f"{str(file)!r} must have a column for each client"
                raise ValueError(f"TraceFile: {rule}, got none for {few(absent)}")
            lacks = f"does not name the clients, 0 to {len(names) - 1}" if numbers else "has none of the clients' names"
            _say(f"TraceFile: {str(file)!r} {lacks}: its columns are the clients in their order")
        return Trace(jnp.asarray(_present(file, self.seconds, self.seed, K, file.stat().st_mtime_ns)))

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        return self.for_clients((), K)(key, t, K)


class _Times(NamedTuple):
    """When a device was there: from ``active`` to ``inactive``, all over again after ``end``."""

    active: Numbers
    inactive: Numbers
    end: float

    def at(self, seconds: Numbers) -> Numbers:
        """Whether it is there at these times."""
        now = seconds % self.end
        last = np.searchsorted(self.active, now, side="right") - 1
        return (last >= 0) & (now <= self.inactive[np.maximum(last, 0)])


@functools.lru_cache(maxsize=4)
def _present(file: Path, seconds: float, seed: int, K: int, changed: int) -> Numbers:
    """Who is there, [rounds, K]."""
    if file.suffix.lower() in TABLES:
        return _table(file)[1]
    devices = [times for times in map(_times, _devices(file, "TraceFile", TIMES)) if times is not None]
    if not devices:
        raise ValueError(f"TraceFile: {str(file)!r} must hold devices that were there, got none")
    rounds = int(min(MOST_ROUNDS, max(1, max(times.end for times in devices) // seconds)))
    clock = seconds * np.arange(rounds)
    return np.stack([devices[place].at(clock) for place in _drawn(len(devices), K, seed)], axis=1)


def _table(file: Path, clients: Sequence[str] = ()) -> tuple[list[str], Numbers]:
    """The names of the columns, none where the file has no header or one array, and who is there, [rounds, K].

    A first line with the names of all clients is one of names, be they numbers.
    """
    called: list[str] = []
    rows, first, unit = _without_header(file) if file.suffix.lower() in (".csv", ".tsv") else None, 1, "line"
    present = [] if rows is None else list(rows.T)
    if rows is None:
        content = read_table(str(file), names=clients)
        columns, first, unit = content.columns, content.first, content.unit
        shapes = {np.shape(column) for column in columns.values()}
        if np.ndim(columns["present"]) != 2 if "present" in columns else [len(shape) for shape in shapes] != [1]:
            rule = "must hold present, [rounds, K], or a column of 0 and 1 for each client"
            raise ValueError(f"TraceFile: {str(file)!r} {rule}, got {', '.join(columns) or 'nothing'}")
        called = [] if "present" in columns else list(columns)
        present = list(columns["present"].T) if "present" in columns else list(columns.values())
    if not present or not len(present[0]):
        raise ValueError(f"TraceFile: {str(file)!r} must hold a round and a client at least, got none")
    if len(present) > 1 and _counts(present[0], called[0] if called else ""):
        _say(f"TraceFile: the first column of {str(file)!r} counts the rounds, and is left out")
        called, present = called[1:], present[1:]
    for place, column in enumerate(present):
        bad = ~np.isin(column, (0, 1))
        if bad.any():
            row, name = int(bad.argmax()), called[place] if called else place + (unit == "line")
            rule = "must hold 0 and 1 alone, a row per round and a column per client"
            found = f"{shown(column[row].item())} in {unit} {row + first}, column {name}"
            raise ValueError(f"TraceFile: {str(file)!r} {rule}, got {found}; leave out columns that are no clients'")
    return called, np.stack(present, axis=1).astype(bool)


def _counts(column: Numbers, name: str) -> bool:
    """Whether a column counts the rounds, from 0 or 1; what may be a client's 0 and 1 does by its name alone.

    >>> _counts(np.array([1, 2, 3]), "a"), _counts(np.array([0, 1]), "a"), _counts(np.array([0, 1]), "round")
    (True, False, True)
    """
    counting = any(np.array_equal(column, first + np.arange(len(column))) for first in (0, 1))
    return counting and (bool((column > 1).any()) or name.lower() in ROUNDS)


@functools.cache
def _say(what: str) -> None:
    """Say it once, however many runs there are."""
    LOG.warning("%s", what)


def _without_header(file: Path) -> Numbers | None:
    """The numbers of a CSV file whose first line is a round, as numpy.savetxt writes it; None where it has names."""
    with file.open(encoding="utf-8-sig") as lines:
        first = lines.readline().strip()
    mark = max(",;\t ", key=first.count)
    cells = [cell.strip() for cell in first.split(mark)]
    if sorted(cells) == ["0", "1"]:
        rule = f"must name its columns, got {' and '.join(cells)}, which may be names or a round"
        raise ValueError(f"TraceFile: {str(file)!r} {rule}")
    try:
        if not set(map(float, cells)) <= {0.0, 1.0}:
            return None
        return np.loadtxt(file, delimiter=mark, ndmin=2, encoding="utf-8-sig")
    except ValueError:
        return None


def _drawn(number: int, K: int, seed: int) -> Numbers:
    """A device for each of K clients: all different while there are enough."""
    rng = np.random.default_rng(seed)
    order = [rng.permutation(number) for _ in range(-(-K // number))]
    return np.concatenate(order)[:K]


def _devices(file: Path, owner: str, rule: str) -> list[Mapping[str, Any]]:
    content = _plain(file, owner, rule)
    if not isinstance(content, Mapping) or not all(isinstance(one, Mapping) for one in content.values()):
        raise ValueError(f"{owner}: {str(file)!r} must be {rule}, got no table of tables")
    return list(content.values())


def _times(device: Mapping[str, Any]) -> _Times | None:
    if "messages" in device:
        return _flash(str(device["messages"]))
    active, inactive = (np.asarray(device.get(name, ()), float) for name in ("active", "inactive"))
    number = min(len(active), len(inactive))
    end = float(device.get("finish_time", inactive.max(initial=0)))
    return _Times(active[:number], inactive[:number], end) if number and end > 0 else None


def _flash(messages: str) -> _Times | None:
    """When a phone charges, is on Wi-Fi, and its screen is off or locked; a state lasts until the next."""
    state = dict.fromkeys(("dark", "locked", "charging", "wifi"), False)
    active: list[float] = []
    inactive: list[float] = []
    there, now = False, 0.0
    start: datetime | None = None
    for moment, word in _messages(messages):
        start = start or moment
        now = (moment - start).total_seconds()
        if word in STATES:
            name, value = STATES[word]
            state[name] = value
        is_there = (state["dark"] or state["locked"]) and state["charging"] and state["wifi"]
        if is_there != there:
            (active if is_there else inactive).append(now)
            there = is_there
    inactive += [now] if there else []
    return _Times(np.asarray(active), np.asarray(inactive), now) if active and now > 0 else None


def _messages(text: str) -> Iterator[tuple[datetime, str]]:
    found = []
    for line in text.replace("\x00", "").splitlines():
        when, _, word = line.strip().partition("\t")
        try:
            found.append((datetime.strptime(when.strip(), "%Y-%m-%d %H:%M:%S"), word.strip()))
        except ValueError:  # a line that was cut off
            continue
    yield from sorted(found, key=lambda pair: pair[0])


def read_devices(path: str, num_clients: int, seed: int = 0, **options: Any) -> Devices:
    """The speeds of FedScale's ``client_device_capacity``: milliseconds a sample, and kilobits a second.

    Args:
        path: The file, a pickle of which only plain data are read, or the same as json.
        num_clients: K.
        seed: What the devices are drawn by, one for each client.
        **options: Other fields of ``Devices``.
    """
    K = natural("Devices", "num_clients", num_clients)
    require("Devices", "seed", seed, "at least 0", lambda n: n >= 0, whole=True, one=True)
    devices = _devices(_existing(path, "Devices"), "Devices", CAPACITY)
    known = [device for device in devices if {"computation", "communication"} <= device.keys()]
    if not known:
        raise ValueError(f"Devices: {path!r} must hold computation and communication of devices, got none")
    drawn = [known[place] for place in _drawn(len(known), K, seed)]
    speed = [1000 / max(float(device["computation"]), 1e-6) for device in drawn]
    bandwidth = [1000 / 8 * max(float(device["communication"]), 1e-3) for device in drawn]
    return Devices(jnp.asarray(speed, jnp.float32), jnp.asarray(bandwidth, jnp.float32), **options)


def _plain(file: Path, owner: str, rule: str) -> Any:
    content, kinds = file.read_bytes(), f"{rule}, json or a pickle of plain data"
    try:
        if content[:1] in (b"{", b"["):
            return json.loads(content)
        if content[:1] == pickle.PROTO:  # which all pickles of Python 3 begin with
            return read_plain(content)
    except (ValueError, pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{owner}: {str(file)!r} must be {kinds}, got an error: {brief(error)}") from None
    raise ValueError(f"{owner}: {str(file)!r} must be {kinds}, got another file")


def _existing(path: str, owner: str = "TraceFile") -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{owner}: path must be a file, got {path!r}, where there is none")
    return Path(path)
