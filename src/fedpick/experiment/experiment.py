"""An experiment: everything that decides a result, as a frozen dataclass with an identity and a name."""

import copy
import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick import config, registry, sim
from fedpick.config import Plain
from fedpick.experiment.code import check_current, content_of, own_code
from fedpick.experiment.devices import make_devices
from fedpick.experiment.metrics import Metrics
from fedpick.protocol import Selector, check_strategy
from fedpick.pytrees import leaves_by_name, whole_fields
from fedpick.text import shown
from fedpick.validation import MOST_SEEDS, check_kind, check_texts, flag, require

FORMAT = 2  # of the identity: raised when the same settings come to give other results, or are written differently
MOST_RUNS = 1_000_000
_PARTS: dict[str, type[Any]] = {"local": sim.Local, "server": sim.Server, "failures": sim.Failures}
_PARTS |= {"devices": sim.Devices, "liars": sim.Liars}
KINDS: dict[str, type[Any]] = {**_PARTS, "metrics": Metrics, "seeds": tuple, "name": str}
EXTENT = (20_000, 100, 10)  # samples, inputs and outputs of data that do not say theirs


@dataclass(frozen=True)
class Experiment:
    """Federated averaging with one strategy on one problem, for each of the seeds: what ``simulate`` takes, as data.

    Args:
        data: The federation's data, such as ``Synthetic()``.
        model: The model, such as ``Logistic()``.
        selector: The strategy.
        local: Local training.
        rounds: Rounds.
        seeds: A run for each.
        redraw: Whether every seed draws data and partition anew; otherwise their own ``seed`` draws them for all.
        server: What the server does with the average.
        availability: Who is there in each round.
        failures: Who drops out in the middle of a round.
        devices: How fast the clients are.
        liars: Which clients lie, and about what.
        metrics: What is evaluated and stored.
        name: For people; no part of the identity.

    >>> from fedpick import PowerOfChoice
    >>> from fedpick.sim import Local, Logistic, Synthetic
    >>> local = Local(tau=30, b=50, eta=0.05)
    >>> experiment = Experiment(Synthetic(), Logistic(), PowerOfChoice(m=3, d=6), local, rounds=100, seeds=(0, 1, 2))
    >>> len(experiment.identity(seed=0))
    16
    """

    data: sim.Data
    model: sim.ModelSpec
    selector: Selector[Any]
    local: sim.Local
    _: KW_ONLY
    rounds: int
    seeds: tuple[int, ...] = (0,)
    redraw: bool = False
    server: sim.Server = sim.Server()
    availability: sim.Availability = sim.Always()
    failures: sim.Failures = sim.Failures()
    devices: sim.Devices = sim.Devices()
    liars: sim.Liars = sim.Liars()
    metrics: Metrics = Metrics()
    name: str = ""

    def __post_init__(self) -> None:
        require("experiment", "rounds", self.rounds, "at least 1", lambda n: n >= 1, whole=True, one=True)
        for name, method in (("data", "federation"), ("model", "build"), ("availability", "__call__")):
            value = getattr(self, name)
            if isinstance(value, type) or not hasattr(value, method):
                rule = f"a description that has {method}()" + (', such as Network("mine.py:net")' * (name == "model"))
                raise ValueError(f"experiment: {name} must be {rule}, got {shown(value)}")
        for name, kind in KINDS.items():
            check_kind("experiment", name, getattr(self, name), kind)
        check_strategy("experiment", self.selector)
        whole = whole_fields(self.selector)
        for part in ("selector", "local", "server"):
            for name, leaf in leaves_by_name(getattr(self, part)):
                if np.ndim(leaf) and not (part == "selector" and name in whole):
                    rule = "one value: several are several experiments, or a list in a file"
                    raise ValueError(f"experiment: {part}.{name} must be {rule}, got {shown(leaf)}")
        flag("experiment", "redraw", self.redraw)
        if not all(isinstance(seed, int) for seed in self.seeds):
            raise ValueError(f"experiment: seeds must be whole numbers, got {shown(self.seeds)}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0 or max(self.seeds) >= 2**31:
            rule = "one or more different numbers, at least 0 and below 2**31"
            raise ValueError(f"experiment: seeds must be {rule}, got {shown(list(self.seeds))}")

    def for_seed(self, seed: int) -> "Experiment":
        """The run of this seed alone, with the data that it draws."""
        if not self.redraw:
            return dataclasses.replace(self, seeds=(seed,))
        return dataclasses.replace(self, seeds=(seed,), data=_reseeded(self.data, seed), redraw=False)

    def to_plain(self) -> Plain:
        """The experiment as plain data, defaults included: what JSON holds and ``from_plain`` reads."""
        return copy.deepcopy(self._plain)

    @functools.cached_property
    def _plain(self) -> Plain:
        plain: Plain = config.unstructure(self)
        return plain

    @property
    def contents(self) -> dict[str, str]:
        """The files that decide its runs, with their SHA-256 sums: data by path, code of one's own by address."""
        files = ((self.data, "path"), (self.availability, "path"), (self.model, "base"))
        named = ((getattr(part, field, type(part).__name__), getattr(part, "sha256", None)) for part, field in files)
        sums = {str(name): found for name, found in named if found}
        return sums | own_code({name: part for name, part in self._plain.items() if name != "name"})

    def canonical(self, seed: int) -> Plain:
        """All that decides the run of this seed as plain data; data files and code of one's own by their content."""
        for part in dataclasses.fields(self):
            check_current(part.name, getattr(self, part.name))
        plain = {name: part for name, part in self._plain.items() if name not in ("name", "redraw")}
        data: Any = _reseeded(self.data, seed) if self.redraw else self.data
        if self.redraw:
            plain["data"] = config.unstructure(data, "Data")
        if hasattr(data, "sha256"):
            rest = {name: part for name, part in plain["data"].items() if name != "path"}
            plain["data"] = {**rest, "sha256": data.sha256}
        if self.liars == sim.Liars():
            del plain["liars"]  # runs of versions that did not know them are the same runs
        measured = {name: part for name, part in plain["metrics"].items() if name != "test"}
        plain["metrics"] = {**measured, "test": sorted(self.metrics.test)} if self.metrics.test else measured
        trace = getattr(self.availability, "sha256", None)
        if trace is not None:
            rest = {name: part for name, part in plain["availability"].items() if name != "path"}
            plain["availability"] = {**rest, "sha256": trace}
        base = getattr(self.model, "sha256", None)
        if base is not None:
            plain["model"] = {**plain["model"], "base": base}
        code = own_code(plain)
        return {**plain, **({"code": code} if code else {}), "seeds": [seed]}

    def identity(self, seed: int) -> str:
        """A hash of the canonical form: two runs are the same exactly if this is the same."""
        canonical = [FORMAT, self.canonical(seed)]
        try:
            text = json.dumps(canonical, sort_keys=True, allow_nan=False)
        except ValueError:
            raise ValueError("experiment: numbers in lists must be finite, got NaN or infinity among them") from None
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def seconds(self) -> float:
        """About how long a run takes on two cores of a CPU: a guess for people who wait, and nothing else.

        A step of training passes each sample three times through the model; an evaluation all samples once.
        """
        samples, inputs, outputs = getattr(self.data, "extent", EXTENT)
        width = hidden if isinstance(hidden := getattr(self.model, "hidden", ()), int) else next(iter(hidden), outputs)
        training = 3 * (self.selector.m or 100) * self.local.tau * self.local.b
        every = self.metrics.every or max(1, self.rounds // 50)
        passes = self.rounds * (training + samples / every)
        return float(1e-4 * self.rounds + 1.8e-11 * passes * (inputs * width + 5_000))

    def check(self) -> None:
        """Raise where the model, the data and the strategy do not go together; nothing is trained."""
        federation = self.check_data()
        model = self.model.build(federation)
        sim.check_shapes(federation, model, owner="experiment")
        seats, every = self.selector.m or federation.num_clients, self.metrics.every or max(1, self.rounds // 50)
        sim.check_room(federation, model, seats, runs=len(self.seeds), rounds=self.rounds, every=every)
        sim.check_fit(federation, self.selector, self.availability, self.failures)
        sim.check_lowest(self.selector, model, self.liars.attack if self.liars.share > 0 else "none")
        own = sim.resolve_metrics("experiment", self.metrics.test)
        sim.check_metrics(own, federation, model, owner="experiment")
        if self.metrics.target is not None:
            sim.check_direction("experiment", self.metrics.target, own)

    def check_data(self) -> sim.Federation:
        """The data, or why they cannot be made; a warning of settings that have no effect on them."""
        for name, why in getattr(self.data, "without_effect", {}).items():
            if getattr(self.data, name) != getattr(type(self.data), name, None):
                kind = type(self.data).__name__
                warnings.warn(f"experiment: data.{name} of {kind} has no effect on the data: {why}", stacklevel=2)
        if self.redraw and repr(_reseeded(self.data, 0)) == repr(_reseeded(self.data, 1)):
            why = f"{type(self.data).__name__} has no seed by which it would be drawn anew"
            warnings.warn(f"experiment: redraw has no effect on the data: {why}", stacklevel=2)
        return self.federation()

    def federation(self, seed: int | None = None) -> sim.Federation:
        """The clients and their data, by default those of the first seed; the last two are kept in memory."""
        data: Any = self.for_seed(self.seeds[0] if seed is None else seed).data
        try:
            return _federation(data, content_of(data))
        except TypeError:  # a description of data that has no hash
            return sim.make_federation(data)


def _derived(name: str, part: Plain) -> Any:
    """A part of a class of one's own, which is derived from fedpick's."""
    made = registry.load(part["kind"])
    if not isinstance(made, type) or not issubclass(made, _PARTS[name]):
        rule = f"a class that is derived from {_PARTS[name].__name__}"
        raise ValueError(f"experiment: {name}.kind must be {rule}, got {shown(part['kind'])}")
    return config.structure({key: value for key, value in part.items() if key != "kind"}, made, f"experiment: {name}")


@functools.lru_cache(maxsize=2)
def _federation(data: Any, content: tuple[Any, ...]) -> sim.Federation:
    return sim.make_federation(data)


def _reseeded(part: Any, seed: int) -> Any:
    """The same description drawn by this seed, and so the descriptions inside it, such as a partition."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    changes = {field.name: _reseeded(getattr(part, field.name), seed) for field in dataclasses.fields(part)}
    if "seed" in changes:
        changes["seed"] = seed
    return dataclasses.replace(part, **changes)


def read(path: str | Path, settings: Iterable[str] = ()) -> list[Experiment]:
    """The experiments of a TOML or JSON file.

    A list of numbers where one number belongs is a sweep, and so is a list of tables where one table belongs: every
    combination is an experiment.

    Args:
        path: The file; paths to data in it are relative to it.
        settings: Settings such as "selector.d=12" that replace those of the file.
    """
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        rule = "a list, such as ['selector.d=12']"
        raise ValueError(f"experiment: settings must be {rule}, got {shown(settings)}")
    plain, given = config.read_plain(path), list[str]()
    for setting in settings:
        check_texts("experiment", settings=setting)
        name = setting.partition("=")[0].strip()
        for other in given:
            if other == name or other.startswith(f"{name}."):  # what was given first would not count
                raise ValueError(f"experiment: {other} must be given once, got --set {other} and --set {setting}")
        given.append(name)
        config.override(plain, setting)
    return from_plain(plain, Path(path).parent)


def from_plain(plain: Mapping[str, Any], folder: Path = Path()) -> list[Experiment]:
    """The experiments that plain data describe; more than one where there are sweeps.

    Args:
        plain: Plain data, as a TOML file holds them.
        folder: What paths in them are relative to, and where classes of one's own are looked for, too.

    >>> plain = {"data": {"kind": "synthetic"}, "model": {"kind": "logistic"}, "rounds": 5, "seeds": 2}
    >>> local = {"tau": 2, "b": 5, "eta": [0.1, 0.2]}
    >>> [e.local.eta for e in from_plain({**plain, "local": local, "selector": {"kind": "rand", "m": 3}})]
    [0.1, 0.2]
    """
    if not isinstance(plain, Mapping):
        raise ValueError(f"experiment: must be a table, got {shown(plain)}")
    if folder != Path():
        registry.look_in(folder)
    points = config.expand(plain, Experiment)
    counts = (point.get("seeds") for point in points)
    runs = sum(count for count in counts if isinstance(count, int) and count <= MOST_SEEDS)
    if runs > MOST_RUNS:
        raise ValueError(f"experiment: seeds and sweeps must give at most {MOST_RUNS:,} runs, got {runs:,}")
    return [_one(point, folder) for point in points]


def _one(point: Plain, folder: Path) -> Experiment:
    count = point.get("seeds")
    if count is not None and not isinstance(count, list | tuple):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_SEEDS:
            rule = f"1 to {MOST_SEEDS:,} runs, or the seeds themselves"
            raise ValueError(f"experiment: seeds must be {rule}, got {shown(count)}")
        point = {**point, "seeds": list(range(count))}
    named = {name: part for name, part in point.items() if name in _PARTS and isinstance(part, dict) and "kind" in part}
    own = {name: part for name, part in named.items() if name != "local" and registry.is_address(part["kind"])}
    drawn = None if "devices" in own else named.get("devices")
    rest = {name: part for name, part in point.items() if name not in own and not (drawn and name == "devices")}
    plain: Experiment = config.structure(rest, Experiment, "experiment")
    experiment = dataclasses.replace(plain, **{name: _derived(name, table) for name, table in own.items()})
    for part, field in (("data", "path"), ("model", "base"), ("availability", "path")):
        value = getattr(experiment, part)
        path = getattr(value, field, None)
        if isinstance(path, str):
            experiment = dataclasses.replace(
                experiment, **{part: dataclasses.replace(value, **{field: str(folder / path)})}
            )
    if drawn is None:
        return experiment
    return dataclasses.replace(experiment, devices=make_devices(drawn, experiment.federation().num_clients, folder))
