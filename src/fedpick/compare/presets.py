"""What is compared, and on what: a named task, a TOML file or data of one's own, made into experiments."""

import copy
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedpick import config, registry
from fedpick.compare.strategies import make_selectors, set_parameters, shared_seats
from fedpick.compare.tasks import BY_LOSS, OWN, SEATS, TASKS
from fedpick.config import Plain
from fedpick.experiment import Experiment, from_plain
from fedpick.registry import nearest
from fedpick.sim import check_is_table, is_table
from fedpick.text import shown

DEFAULT_STRATEGIES = ("rand", "pow-d", "cpow-d", "rpow-d", "afl", "auto")
SEEDS = 10
OPTIONS = {  # by the setting that each of them is
    "rounds": "rounds",
    "seeds": "seeds",
    "eta": "local.eta",
    "model": "model.kind",
    "objective": "model.objective",
    "availability": "availability.kind",
    "devices": "devices.kind",
    "deadline": "devices.deadline",
    "failures": "failures.probability",
    "strategies": "selector.kind",
    "m": "selector.m",
    "d": "selector.d",
    "x": "data.x",
    "y": "data.y",
    "client": "data.client",
    "standardize": "data.standardize",
    "metrics": "metrics.test",
}


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a user may choose beside the task; None is the task's own, or the default.

    Args:
        strategies: Names of the registry, "package.module:Class", or a wrapper such as "cooldown(pow-d)".
        m: Clients per round; by default K/10, or that of the file.
        d: Candidates, a strategy for each; by default 2m.
        rounds: Rounds.
        seeds: Runs of each strategy.
        eta: Learning rate.
        model: The model's kind, or the address of a network, such as "mynet.py:CNN".
        availability: The availability's kind, or the path of a file that ``TraceFile`` reads.
        devices: "lognormal", or the path of FedScale's client_device_capacity.
        deadline: Seconds to train in.
        failures: The probability that a selected client drops out.
        objective: The model's objective.
        x: Columns of inputs in a file of yours, or patterns such as "pixel*".
        y: The column of labels.
        client: The column of clients.
        standardize: Whether its inputs are brought to mean 0 and standard deviation 1.
        metrics: What else is measured on the test set: "f1", "auc", "calibration", or "my.module:metric".
        settings: Any other setting, such as "local.tau=5".

    >>> Choices(strategies=("rand", "pow-d"), d=(6, 12)).m is None
    True
    """

    strategies: Sequence[str] = ()
    m: int | None = None
    d: Sequence[int] = ()
    rounds: int | None = None
    seeds: int | None = None
    eta: float | None = None
    model: str | None = None
    availability: str | None = None
    devices: str | None = None
    deadline: float | None = None
    failures: float | None = None
    objective: str | None = None
    x: Sequence[str] = ()
    y: str | None = None
    client: str | None = None
    standardize: bool | None = None
    metrics: Sequence[str] = ()
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("strategies", "d", "x", "metrics", "settings"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple):
                raise ValueError(f"compare: {name} must be a list or a tuple, got {shown(value)}")


def make_experiments(task: str, choices: Choices = Choices(), *, train: bool = True) -> list[Experiment]:
    """One experiment for each strategy (and each d) on a task.

    Args:
        task: A task of ``TASKS``, or the path of a ``.toml`` file or of data that ``Arrays`` reads.
        choices: What replaces the task's own settings.
        train: Whether they are to be trained; else only their data are checked.

    >>> [config.describe(e.selector) for e in make_experiments("synthetic", Choices(strategies=("rand", "pow-d")))]
    ['rand, m = 3', 'pow-d, m = 3, d = 6']
    """
    plain = _task(task)
    _check_given_once(choices)
    for name in ("rounds", "seeds"):
        if getattr(choices, name) is not None:
            plain[name] = getattr(choices, name)
    plain.setdefault("seeds", SEEDS)
    if choices.model is not None and _table(plain, choices, "model").get("kind") != choices.model:
        plain["model"] = {"kind": choices.model}
    folder = Path(task).parent if config.is_plain(task) and not is_table(task) else Path()
    _set_world(plain, choices, folder)
    for name in ("eta", "objective", "y", "client", "standardize"):
        if getattr(choices, name) is not None:
            _table(plain, choices, name)[name] = getattr(choices, name)
    if choices.x:
        _table(plain, choices, "x")["x"] = list(choices.x)
    if choices.metrics:
        asked = _table(plain, choices, "metrics")
        if isinstance(asked.setdefault("test", []), list):  # others are refused below
            asked["test"] = list(dict.fromkeys([*asked["test"], *choices.metrics]))
    for setting in choices.settings:
        if not _path(setting).startswith("selector."):
            config.override(plain, setting)
    given = _parameters(choices)
    if choices.strategies or not ("selector" in plain or "kind" in given):
        own = plain.pop("selector", ())
        seats = shared_seats(own)
        plain["selector"] = {"kind": "rand", "m": 1}  # until K is known
        found = [
            replace(base, selector=chosen)
            for base in from_plain(plain, folder)
            for chosen in make_selectors(
                choices.strategies or DEFAULT_STRATEGIES, given, base, seats or _seats(task, base), own
            )
        ]
    else:
        plain["selector"] = set_parameters(plain.get("selector", {}), given)
        found = from_plain(plain, folder)
    different = drop_repeats(found)
    if len(different) > 1:
        _check_choice(different)
    for experiment in different:
        experiment.check() if train else experiment.check_data()  # an error now, and not when the others have run
    return different


def drop_repeats(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments, each of them once: the same runs side by side are no comparison.

    Args:
        experiments: Some of which may be the same, such as points of a sweep that were tuned to one learning rate.
    """
    return list({json.dumps(one.to_plain(), sort_keys=True): one for one in experiments}.values())


def _check_choice(experiments: Sequence[Experiment]) -> None:
    """Raise where there is one client, and warn where all of them train in every round: strategies have no choice."""
    K = experiments[0].federation().num_clients
    if K == 1:
        rule = "there must be at least 2 clients to choose from"
        raise ValueError(f"compare: {rule}, got 1, on which every strategy would train")
    if all((one.selector.m or K) >= K for one in experiments):
        what = f"m = {K} is every client, so that there is nothing to choose"
        warnings.warn(f"compare: {what}; strategies differ in weights and in repeated seats alone", stacklevel=2)


def _set_world(plain: Plain, choices: Choices, folder: Path) -> None:
    """Who is there, how fast the devices are, and who fails; paths are those of the working folder, as given."""
    kind = choices.availability
    if kind is not None and _table(plain, choices, "availability").get("kind") != kind:
        known = kind in registry.ROLES["Availability"] or registry.is_address(kind)
        if not known and not Path(kind).is_file():
            rule = f"one of {', '.join(registry.ROLES['Availability'])}, or a file that is there"
            raise ValueError(f"compare: availability must be {rule}, got {shown(kind)}")
        plain["availability"] = {"kind": kind} if known else {"kind": "trace-file", "path": _path_from(folder, kind)}
    if choices.devices == "lognormal":
        _table(plain, choices, "devices")["kind"] = "lognormal"
    elif choices.devices is not None:
        _table(plain, choices, "devices").update(kind="fedscale", path=_path_from(folder, choices.devices))
    if choices.deadline is not None:
        _table(plain, choices, "deadline")["deadline"] = choices.deadline
    if choices.failures is not None:
        _table(plain, choices, "failures")["probability"] = choices.failures


def _table(plain: Plain, choices: Choices, name: str) -> Plain:
    """The table that an option is for, made where the file has none."""
    return config.table_at(plain, OPTIONS[name], owner="compare", setting=getattr(choices, name))


def _path_from(folder: Path, path: str) -> str:
    """A path of the working folder, as seen from that of the task's file; an absolute one stays so."""
    return path if folder == Path() or Path(path).is_absolute() else os.path.relpath(path, folder)


def _check_given_once(choices: Choices) -> None:
    """Raise where a setting is given twice: one of the two would not count."""
    given = {path: name for name, path in OPTIONS.items() if getattr(choices, name) not in (None, ())}
    for setting in choices.settings:
        path = _path(setting)
        for known, name in given.items():
            if known == path or known.startswith(f"{path}."):
                raise ValueError(f"compare: {known} must be given once, got {name} and --set {setting}")
        given[path] = f"--set {path}"


def _parameters(choices: Choices) -> Plain:
    """The parameters of strategies: m, d, and those of the settings."""
    plain: Plain = {"selector": {}}
    for setting in choices.settings:
        if _path(setting).startswith("selector."):
            config.override(plain, setting)
    given: Plain = plain["selector"]
    if choices.m is not None:
        given["m"] = choices.m
    if choices.d:
        given["d"] = list(choices.d) if len(choices.d) > 1 else choices.d[0]
    return given


def _path(setting: str) -> str:
    return setting.partition("=")[0].strip()


def _seats(task: str, base: Experiment) -> int:
    return SEATS.get(task, max(1, base.federation().num_clients // 10))


def _task(task: str) -> Plain:
    if task in TASKS:
        return copy.deepcopy(TASKS[task])
    if is_table(task):
        return {**copy.deepcopy(OWN), "data": {"kind": "arrays", "path": task}}
    if config.is_plain(task):
        return config.read_plain(task)
    if task in registry.ROLES["Data"] or registry.is_address(task):
        return {**copy.deepcopy(OWN), "data": {"kind": task}}
    check_is_table(task, "compare")
    rule = f"one of {', '.join(TASKS)}, a .toml file, or data of yours (.npz, .csv, .parquet, a folder)"
    raise ValueError(f"compare: the task must be {rule}, got {shown(task)}{nearest(task, TASKS)}")


def choose_target(
    experiments: Sequence[Experiment], metric: str | None, value: float | None, *, percent: bool, test: bool
) -> tuple[str, float | None]:
    """The metric and the value of a comparison's target; a value of None is what every run of the baseline reaches.

    What is not given is that of the experiments' ``metrics``, one for all. Where these have none, the metric is the
    test accuracy where there is a test set, but the loss for the data of ``BY_LOSS``, such as the paper's own problems.
    A value in per cent is an accuracy.

    Args:
        experiments: The experiments.
        metric: The metric that was named; None for none.
        value: The value that was given; None for none.
        percent: Whether it was given in per cent.
        test: Whether there is a test set of which accuracies say something.
    """
    own, goals = experiments[0].metrics, {(one.metrics.target, one.metrics.value) for one in experiments}
    if len(goals) > 1 and (metric is None or value is None):
        rule = "must be one for all, or be given with --metric and --target"
        raise ValueError(f"compare: metrics.target and value {rule}, got {len(goals)} different ones")
    if metric is None and not (percent and (own.target or "loss").endswith("loss")):
        metric = own.target
    if metric is not None:
        return metric, own.value if value is None and metric == own.target else value
    kind = config.unstructure(experiments[0].data, "Data").get("kind")
    by_loss = not percent and (kind in BY_LOSS or not test)
    return ("loss" if by_loss else "test_accuracy"), value
