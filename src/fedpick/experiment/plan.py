"""Runs of experiments, put together so that those which can share a compiled program do."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpick.config import to_dict
from fedpick.experiment.data import Quadratic
from fedpick.experiment.experiment import Experiment
from fedpick.experiment.parts import MLP
from fedpick.results import Result
from fedpick.selectors import short_name
from fedpick.sim import simulate


class Run(NamedTuple):
    """One experiment with one seed: the unit that is kept, and never run twice."""

    experiment: Experiment
    seed: int

    @property
    def identity(self) -> str:
        """What it is kept under."""
        return self.experiment.identity(self.seed)


class Batch(NamedTuple):
    """Runs of one program on the same data: every point with every seed; the points differ in numbers only."""

    points: tuple[Experiment, ...]
    seeds: tuple[int, ...]

    @property
    def runs(self) -> list[Run]:
        """In the order in which ``play`` gives the results."""
        return [Run(point, seed) for point in self.points for seed in self.seeds]

    @property
    def seconds(self) -> float:
        """About how long it takes on two cores of a CPU."""
        return sum(seconds(run.experiment) for run in self.runs)


# Samples, inputs and outputs of the problems, roughly; others are taken to be of middle size.
_EXTENT = {
    "FashionMNIST": (70_000, 784, 10),
    "Synthetic": (10_000, 60, 10),
    "Quadratic": (100, 5, 1),
    "Digits": (1_797, 64, 10),
}


def seconds(experiment: Experiment) -> float:
    """About how long a run takes on two cores of a CPU: a guess for people who wait, and nothing else.

    A step of training passes each sample three times through the model; an evaluation all samples once.
    """
    samples, inputs, outputs = _EXTENT.get(type(experiment.data).__name__, (20_000, 100, 10))
    width = experiment.model.hidden[0] if isinstance(experiment.model, MLP) and experiment.model.hidden else outputs
    training = 3 * (experiment.selector.m or 100) * experiment.local.tau * experiment.local.b
    every = experiment.metrics.every or max(1, experiment.rounds // 50)
    passes = experiment.rounds * (training + samples / every)
    return 1e-4 * experiment.rounds + 1.8e-11 * passes * (inputs * width + 5_000)


def batches(runs: Iterable[Run]) -> list[Batch]:
    """The runs as few batches: those with the same data and seeds that differ only in traced numbers go together."""
    seeds: dict[str, list[int]] = {}
    points: dict[str, Experiment] = {}
    for experiment, seed in runs:
        alone = experiment.for_seed(seed)
        # Where each seed has data of its own, it goes alone.
        name = _text({**to_dict(alone), "seeds": [seed] if experiment.redraw else []})
        points[name] = alone
        if seed not in seeds.setdefault(name, []):
            seeds[name].append(seed)
    together: dict[tuple[str, tuple[int, ...]], list[Experiment]] = {}
    for name, point in points.items():
        together.setdefault((_program(point), tuple(seeds[name])), []).append(point)
    found = [
        Batch(tuple(dataclasses.replace(point, seeds=chosen) for point in members), chosen)
        for (_, chosen), members in together.items()
    ]
    # What shares a program in a row, though its data differ: a process cannot hold many programs.
    order = {_shape(batch.points[0]): place for place, batch in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda batch: order[_shape(batch.points[0])])


def play(batch: Batch, checkpoint: Path | None = None, watch: Callable[[Result], None] | None = None) -> Result:
    """Simulate a batch: a result with a row for each of ``batch.runs``."""
    first = batch.points[0]
    federation = first.federation()
    selectors = [point.selector for point in batch.points]
    etas, decays, proxes = (
        _stacked([getattr(point.local, name) for point in batch.points]) for name in ("eta", "weight_decay", "prox")
    )
    local = dataclasses.replace(first.local.build(), eta=etas, weight_decay=decays, prox=proxes)
    server = dataclasses.replace(first.server.build(), eta=_stacked([point.server.eta for point in batch.points]))
    return simulate(
        federation,
        first.built(federation),
        jax.tree.map(lambda *leaves: _stacked(leaves), *selectors),
        local,
        rounds=first.rounds,
        seeds=batch.seeds,
        server=server,
        availability=first.availability,
        every=first.metrics.every,
        checkpoint=checkpoint,
        progress=False,
        watch=watch,
    )


def _program(point: Experiment) -> str:
    """What two runs must have in common to share a program and its data: all but the numbers that may be traced."""
    leaves, tree = jax.tree.flatten(point.selector)
    plain = to_dict(point)
    plain["selector"] = [str(tree), [np.asarray(leaf).dtype.kind for leaf in leaves]]
    for part, names in (("local", ("eta", "weight_decay", "prox")), ("server", ("eta",))):
        for name in names:
            plain[part][name] = plain[part][name] is None
    return _text({**plain, "seeds": [], "name": "", "metrics": {**plain["metrics"], "target": "", "value": 0}})


def _shape(point: Experiment) -> str:
    """What two runs must have in common to share a program, as far as it shows without the data."""
    data = type(point.data).__name__
    return _program(dataclasses.replace(point, data=Quadratic(), partition=None, rounds=1)) + data


def _stacked(values: Iterable[Any]) -> Any:
    """One number where all are the same, else one for each point."""
    numbers = list(values)
    same = all(value == numbers[0] for value in numbers)
    if same or numbers[0] is None:
        return numbers[0]
    return np.asarray(numbers, np.int32 if all(isinstance(n, int) for n in numbers) else np.float32)


def _text(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True)


def differences(experiments: Iterable[Experiment]) -> Iterator[dict[str, Any]]:
    """For each experiment, the settings in which it differs from the others; of parts of different kinds, the part.

    >>> from fedpick.experiment import from_dict
    >>> plain = {"data": {"kind": "synthetic"}, "model": {"kind": "logistic"}, "rounds": 5, "seeds": 2}
    >>> plain |= {"local": {"tau": 2, "b": 5, "eta": [0.1, 0.2]}, "selector": {"kind": "rand", "m": 3}}
    >>> list(differences(from_dict(plain)))
    [{'local.eta': 0.1}, {'local.eta': 0.2}]
    """
    chosen = list(experiments)
    tables = [to_dict(experiment) for experiment in chosen]
    mixed = [part for part in tables[0] if part == "selector" or _varies(_kind(table[part]) for table in tables)]
    flat = [leaves({k: v for k, v in table.items() if k not in mixed}) for table in tables]
    varied = [path for path in dict.fromkeys(itertools.chain(*flat)) if _varies(own.get(path) for own in flat)]
    for experiment, own in zip(chosen, flat, strict=True):
        whole = {part: _shown(getattr(experiment, part)) for part in mixed}
        yield {
            **{part: text for part, text in whole.items() if _varies(_shown(getattr(e, part)) for e in chosen)},
            **{path: own[path] for path in varied if path in own and path != "name"},
        }


def _kind(part: Any) -> Any:
    return part.get("kind") if isinstance(part, dict) else ""


def _varies(values: Iterable[Any]) -> bool:
    return len({str(value) for value in values}) > 1


def _shown(part: Any) -> str:
    return short_name(part) if hasattr(part, "propose") else str(part)


def leaves(plain: Any, path: str = "") -> dict[str, Any]:
    """Every setting of plain data by its path.

    >>> leaves({"local": {"tau": 2}})
    {'local.tau': 2}
    """
    if not isinstance(plain, dict):
        return {path: plain}
    found: dict[str, Any] = {}
    for name, value in plain.items():
        found |= leaves(value, f"{path}.{name}" if path else str(name))
    return found
