"""What is compared, and on what: a named task, a TOML file or an .npz of one's own, made into experiments."""

import copy
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpick import selectors
from fedpick.experiment import Experiment, from_dict, nearest, override, plain
from fedpick.validation import require

STRATEGIES = ("rand", "pow-d", "cpow-d", "rpow-d", "afl")
SEEDS = 10

# Settings of the paper where it has the problem, with fewer rounds; the evaluations are some fifty.
TASKS: dict[str, dict[str, Any]] = {
    "synthetic": {
        "data": {"kind": "synthetic"},
        "model": {"kind": "logistic"},
        "local": {"tau": 30, "b": 50, "eta": 0.05},
        "rounds": 150,
        "metrics": {"every": 2},
    },
    "quadratic": {
        "data": {"kind": "quadratic"},
        "model": {"kind": "quadratic"},
        "local": {"tau": 2, "b": 1, "eta": 2e-5},
        "rounds": 15_000,
        "metrics": {"every": 200},
    },
    "digits": {
        "data": {"kind": "digits"},
        "partition": {"kind": "dirichlet", "K": 30, "alpha": 0.3},
        "model": {"kind": "mlp", "hidden": [32], "dropout": 0.0},
        "local": {"tau": 5, "b": 16, "eta": 0.05},
        "rounds": 100,
    },
    "fashion-mnist": {
        "data": {"kind": "fashion-mnist"},
        "partition": {"kind": "dirichlet", "K": 100, "alpha": 0.3},
        "model": {"kind": "mlp"},
        "local": {"tau": 30, "b": 64, "eta": 0.005, "weight_decay": 1e-4},
        "rounds": 100,
        "seeds": 3,
        "metrics": {"every": 5},
    },
}
OWN: dict[str, Any] = {
    "model": {"kind": "logistic"},
    "local": {"tau": 10, "b": 20, "eta": 0.05},
    "rounds": 100,
    "metrics": {"every": 2},
}
PAPERS_SEATS = {"fashion-mnist": 3}  # elsewhere a tenth of the clients


@dataclass(frozen=True)
class Choices:
    """What a user may choose beside the task; None is the task's own, or the usual.

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
    objective: str | None = None
    settings: Sequence[str] = ()


def experiments(task: str, choices: Choices = Choices()) -> list[Experiment]:
    """One experiment for each strategy (and each d), on a task of ``TASKS`` or a ``.toml`` or ``.npz`` file.

    >>> [selectors.short_name(e.selector) for e in experiments("synthetic", Choices(("rand", "pow-d")))]
    ['rand, m = 3', 'pow-d, m = 3, d = 6']
    """
    data = _task(task)
    for name in ("rounds", "seeds", "objective"):
        if getattr(choices, name) is not None:
            data[name] = getattr(choices, name)
    data.setdefault("seeds", SEEDS)
    for part, kind in (("model", choices.model), ("availability", choices.availability)):
        if kind is not None and data.get(part, {}).get("kind") != kind:
            data[part] = {"kind": kind}
    if choices.eta is not None:
        data.setdefault("local", {})["eta"] = choices.eta
    for setting in choices.settings:
        override(data, setting)
    folder = Path(task).parent if task.endswith(".toml") else Path()
    if choices.strategies or choices.m is not None or choices.d or "selector" not in data:
        data["selector"] = {"kind": "rand", "m": 1}
        (first, *_) = from_dict(data, folder)
        K = first.for_seed(first.seeds[0]).federation().num_clients
        data["selector"] = list(_selectors(task, choices, K, first.rounds))
    found = from_dict(data, folder)
    for experiment in found:
        experiment.check()  # a mistake is an error now, and not when the others have run
    return found


def _task(task: str) -> dict[str, Any]:
    if task in TASKS:
        return copy.deepcopy(TASKS[task])
    if task.endswith((".toml", ".json")):
        return plain(task)
    if task.endswith(".npz"):
        return {**copy.deepcopy(OWN), "data": {"kind": "arrays", "path": task}}
    rule = f"one of {', '.join(TASKS)}, a .toml file or an .npz file"
    raise ValueError(f"compare: the task must be {rule}, got {task!r}{nearest(task, TASKS)}")


def _selectors(task: str, choices: Choices, K: int, rounds: int) -> Iterable[dict[str, Any]]:
    m = choices.m if choices.m is not None else PAPERS_SEATS.get(task, max(1, K // 10))
    require("compare", "m", m, f"at least 1 and at most the {K} clients", lambda m: (m >= 1) & (m <= K), whole=True)
    for name in choices.strategies or STRATEGIES:
        if name not in selectors.STRATEGIES:
            rule = f"strategies must be among {', '.join(selectors.STRATEGIES)}"
            raise ValueError(f"compare: {rule}, got {name!r}{nearest(name, selectors.STRATEGIES)}")
        takes = inspect.signature(selectors.STRATEGIES[name].build).parameters
        given = {"m": m} if "m" in takes else {}
        given |= {"rounds": rounds} if "rounds" in takes else {}
        for d in (choices.d or (min(2 * m, K),)) if "d" in takes else (None,):
            if d is not None and not m <= d <= K:
                raise ValueError(f"compare: d must be at least m={m} and at most the {K} clients, got {d}")
            yield {"kind": name, **given, **({} if d is None else {"d": d})}
