"""The runs of experiments, and which of them are played together: those that can share a program."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedpick.config import leaves as leaves_of
from fedpick.experiment.code import content_of
from fedpick.experiment.experiment import EXTENT, Experiment
from fedpick.pytrees import leaves_by_name, whole_fields
from fedpick.results import Result
from fedpick.sim import Federation, federations_of, simulate
from fedpick.validation import MOST_SEEDS

COMPILING = 6.0  # seconds, on two cores
MOST_BYTES = 4e9  # of data that differ from seed to seed, in a batch


@dataclass(frozen=True)
class Run:
    """One experiment with one seed: the unit that is stored, and never run twice.

    Args:
        experiment: The experiment.
        seed: One of its seeds.
    """

    experiment: Experiment
    seed: int

    @functools.cached_property
    def identity(self) -> str:
        """What it is stored under."""
        return self.experiment.identity(self.seed)


@dataclass(frozen=True)
class Batch:
    """Runs of one program on the same data, or on the data of each seed: every point with every seed.

    Args:
        points: Experiments that differ in numbers only.
        seeds: The seeds of each.
    """

    points: tuple[Experiment, ...]
    seeds: tuple[int, ...]

    @functools.cached_property
    def runs(self) -> list[Run]:
        """In the order of the rows of ``simulate``'s result."""
        return [Run(point, seed) for point in self.points for seed in self.seeds]

    @property
    def compiling(self) -> float:
        """About how many seconds its programs take to compile, where they are not in the cache."""
        return COMPILING

    @property
    def seconds(self) -> float:
        """About how long it takes on two cores of a CPU, once it is compiled."""
        return sum(run.experiment.seconds for run in self.runs)

    def federation(self) -> Federation:
        """The data of all runs, or those of each seed as one value; the last are kept in memory."""
        first = self.points[0]
        if not first.redraw:
            return first.federation()
        data: Any = [first.for_seed(seed).data for seed in self.seeds]
        try:
            return _federations(tuple(data), tuple(map(content_of, data)))
        except TypeError:  # descriptions of data that have no hash
            return federations_of(data)

    def simulate(
        self, checkpoint: Path | None = None, watch: Callable[[Result], None] | None = None, *, after: float = 0.0
    ) -> Result:
        """The result, with a row for each of ``runs``: points that differ in no traced number are played once."""
        first, seeds = self.points[0], len(self.seeds)
        numbers = [_numbers(point) for point in self.points]
        traced = {key: _traced(point) for key, point in zip(numbers, self.points, strict=True)}
        place = {key: row for row, key in enumerate(traced)}
        rows = [place[key] * seeds + seed for key in numbers for seed in range(seeds)]

        def repeated(played: Result) -> Result:
            return played.rows(rows) if len(traced) < len(numbers) else played

        selector, local, server = jax.tree.map(lambda *leaves: _stacked(leaves), *traced.values())
        result = simulate(
            self.federation(),
            first.model,
            selector,
            local,
            rounds=first.rounds,
            seeds=self.seeds,
            server=server,
            availability=first.availability,
            failures=first.failures,
            devices=first.devices,
            liars=first.liars,
            every=first.metrics.every,
            metrics=first.metrics.test,
            checkpoint=checkpoint,
            checkpoint_after=after,
            progress=False,
            watch=None if watch is None else lambda played: watch(repeated(played)),
        )
        return repeated(result)


@functools.lru_cache(maxsize=1)
def _federations(data: tuple[Any, ...], contents: tuple[Any, ...]) -> Federation:
    return federations_of(data)


def plan_batches(runs: Iterable[Run]) -> list[Batch]:
    """The runs as few batches: those with the same data and seeds that differ only in traced numbers go together."""
    seeds: dict[str, list[int]] = {}
    points: dict[str, Experiment] = {}
    for run in runs:
        point = dataclasses.replace(run.experiment, redraw=False)
        name = _text({**point.canonical(run.seed), "seeds": [], "redraw": run.experiment.redraw})
        points.setdefault(name, dataclasses.replace(run.experiment, seeds=(run.seed,)))
        own = seeds.setdefault(name, [])
        if run.seed not in own:
            own.append(run.seed)
    together: dict[tuple[str, tuple[int, ...]], list[Experiment]] = {}
    for name, point in points.items():
        own, number = seeds[name], _seeds_at_once(point)
        for first in range(0, len(own), number):
            together.setdefault((_program(point), tuple(own[first : first + number])), []).append(point)
    found = [
        Batch(tuple(dataclasses.replace(point, seeds=chosen) for point in members), chosen)
        for (_, chosen), members in together.items()
    ]
    # What shares a program in a row, though its data differ: a process cannot hold many programs.
    order = {_shape(batch.points[0]): place for place, batch in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda batch: order[_shape(batch.points[0])])


def _seeds_at_once(point: Experiment) -> int:
    """How many seeds a batch may have: as many as there are, unless each has data of its own, which take memory."""
    if not point.redraw:
        return MOST_SEEDS
    samples, inputs, _ = getattr(point.data, "extent", EXTENT)
    return max(1, int(MOST_BYTES / (4 * samples * (1 if getattr(point.data, "shares_samples", False) else inputs))))


def _traced(point: Experiment) -> Any:
    """What may differ between the runs of a program: its numbers are traced."""
    return point.selector, point.local, point.server


def _numbers(point: Experiment) -> tuple[bytes, ...]:
    """The numbers that are traced, such that they can be looked up; 0 and -0 are one."""
    return tuple((np.asarray(leaf, float) + 0.0).tobytes() for leaf in jax.tree.leaves(_traced(point)))


def _program(point: Experiment, **other: Any) -> str:
    """What two runs must have in common to share a program and its data: all but the numbers that are traced."""
    leaves, tree = jax.tree.flatten(_traced(point))
    plain = {**point.to_plain(), "seeds": [], "name": "", **other}
    plain["metrics"] = {**plain["metrics"], "target": None, "value": None}
    traced = leaves_of({part: plain.pop(part) for part in ("selector", "local", "server")})
    kinds = {path: kind for path, kind in traced.items() if path.endswith("kind")}  # a tree has no modules
    names = whole_fields(point.selector)
    whole = {name: np.asarray(leaf).tolist() for name, leaf in leaves_by_name(point.selector) if name in names}
    return _text([plain, str(tree), kinds, whole, [np.asarray(leaf).dtype.kind for leaf in leaves]])


def _shape(point: Experiment) -> str:
    """What two runs must have in common to share a program, as far as it shows without the data."""
    return _program(point, data=type(point.data).__name__, rounds=1)


def _stacked(values: Iterable[Any]) -> Any:
    """One number where all are the same, else one for each point."""
    numbers = list(values)
    if all(np.array_equal(value, numbers[0]) for value in numbers):
        return numbers[0]
    return np.asarray(numbers, np.int32 if all(isinstance(n, int) for n in numbers) else np.float32)


def _text(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True)
