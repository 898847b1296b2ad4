"""The runs of a call of `simulate`, and the interface of what plays them, compiled or eager."""

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.pytrees import leaves_by_name, whole_fields
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.preflight import is_number
from fedpick.sim.records import Record
from fedpick.sim.round import RunState, Setup
from fedpick.text import shown
from fedpick.validation import MOST_SEEDS

Tree = TypeVar("Tree")
Chunk = tuple[Record, Evaluation]  # records [R, blocks, every, ...] and evaluations [R, blocks, ...]


class Runs(NamedTuple):
    """Runs that are played together: their setup, and the seed of each, Int[R]."""

    setup: Setup
    seeds: Any

    def rows(self, runs: range) -> "Runs":
        """These runs alone."""
        own = slice(runs.start, runs.stop)
        return Runs(self.setup.rows(own), self.seeds[own])


def sweep(setup: Setup, seeds: int | Iterable[int]) -> tuple[Runs, list[dict[str, Any]]]:
    """The runs of a setup whose swept numbers are arrays, and the seed and values of each run by name.

    Args:
        setup: Its selector, local and server may have fields that are arrays of values, all of one length; where it
            has a federation for each run, these are the seeds'.
        seeds: A number of seeds, or the seeds.
    """
    if is_number(seeds) and seeds > MOST_SEEDS:  # type: ignore[operator]
        rule = f"1 to {MOST_SEEDS:,} runs, or the seeds themselves, such as [20240101]"
        raise ValueError(f"simulate: seeds must be {rule}, got {shown(seeds)}")
    try:
        chosen: Any = range(operator.index(seeds)) if is_number(seeds) else seeds  # type: ignore[arg-type]
        numbers = [operator.index(seed) for seed in chosen]
    except TypeError:
        raise ValueError(f"simulate: seeds must be a whole number or whole numbers, got {shown(seeds)}") from None
    repeated = len(set(numbers)) < len(numbers) and setup.federation.num_runs is None  # one run, counted twice
    if not numbers or repeated or min(numbers) < 0 or max(numbers) >= 2**31:
        rule = f"one or more {'different ' * repeated}numbers, at least 0 and below 2**31"
        raise ValueError(f"simulate: seeds must be {rule}, got {shown(seeds)}")
    # Both a client and a server have an eta.
    parts = (("", setup.selector), ("", setup.local), ("server.", setup.server))
    whole = whole_fields(setup.selector)
    named = [
        (prefix + name, np.asarray(leaf))
        for prefix, part in parts
        for name, leaf in leaves_by_name(part)
        if not (part is setup.selector and name in whole)
    ]
    swept = {name: leaf for name, leaf in named if leaf.ndim == 1}
    lengths = {len(leaf) for leaf in swept.values()}
    if len(lengths) > 1 or any(leaf.ndim > 1 for _, leaf in named):
        got = {name: leaf.shape for name, leaf in named if leaf.ndim}
        raise ValueError(f"simulate: swept fields must be arrays of one length, got {got}")
    points = [{name: _plain(leaf[v]) for name, leaf in swept.items()} for v in range(max(lengths, default=1))]
    seed = np.asarray(numbers * len(points), np.int32)
    federation = setup.federation
    if federation.num_runs not in (None, len(numbers)):
        raise ValueError(
            f"simulate: seeds must be as many as the {federation.num_runs} federations, got {len(numbers)}"
        )
    if len(points) > 1:
        federation = federation.rows(np.tile(np.arange(len(numbers)), len(points)))
    fields, tree = leaves_by_name(setup.selector), jax.tree.structure(setup.selector)
    given = [_per_run(leaf, len(numbers), len(seed) if name in whole else None) for name, leaf in fields]
    rest = setup.map_own(lambda leaf: _per_run(leaf, len(numbers)))
    own = dataclasses.replace(rest, selector=jax.tree.unflatten(tree, given), federation=federation)
    return Runs(own, seed), [{"seed": seed, **point} for point in points for seed in numbers]


def _per_run(leaf: Any, seeds: int, everywhere: int | None = None) -> Any:
    """The values of a leaf by run: those of a sweep once for each seed, or the same array for so many runs."""
    leaf = jnp.asarray(leaf)
    if everywhere is not None and leaf.ndim:
        return jnp.broadcast_to(leaf, (everywhere, *leaf.shape))
    return jnp.repeat(leaf, seeds, axis=0) if leaf.ndim else leaf


def _plain(number: Any) -> int | float:
    """A Python number, or True or False; 0.1 and not 0.10000000149 for a float32."""
    if number.dtype.kind == "b":
        return bool(number)
    return int(number) if number.dtype.kind in "iu" else float(str(number))


class Cadence(NamedTuple):
    """When to evaluate: after ``every`` rounds, ``blocks`` times in a chunk of rounds."""

    rounds: int
    every: int
    blocks: int

    @classmethod
    def even(cls, rounds: int, every: int, chunk: int) -> "Cadence":
        """Chunks of about ``chunk`` rounds, all nearly as full as the others.

        >>> Cadence.even(rounds=250, every=10, chunk=100)
        Cadence(rounds=250, every=10, blocks=9)
        """
        evaluations = -(-rounds // every)
        chunks = -(-evaluations // max(1, chunk // every))
        return cls(rounds, every, -(-evaluations // chunks))

    @property
    def stop(self) -> int | None:
        """The round at which the last chunk ends early; None where all chunks are full."""
        return self.rounds if self.rounds % (self.every * self.blocks) else None

    def step(self, first: int) -> int:
        """The number of rounds in the chunk that begins with this one."""
        return min(self.every * self.blocks, self.rounds - first)


class Runner(Protocol):
    """Plays the runs of this host and holds their state, [R, ...]."""

    @property
    def state(self) -> RunState:
        """The state of every run; set to resume from another."""

    @state.setter
    def state(self, progress: RunState) -> None: ...

    def begin(self, cadence: Cadence) -> Evaluation:
        """Start every run, to be played at this cadence, and evaluate the initial models."""

    def play(self, first: int, cadence: Cadence, tick: Callable[[float], None]) -> Chunk:
        """Play a chunk of every run from round ``first`` on; ``tick`` is called with the fraction that is done."""


def rows(tree: Tree, runs: range) -> Tree:
    """The rows of these runs in arrays [R, ...]."""
    part: Tree = jax.tree.map(lambda leaf: leaf[runs.start : runs.stop], tree)
    return part


def concatenate(trees: list[Tree]) -> Tree:
    """Rows below rows, as NumPy arrays."""
    whole: Tree = jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)
    return whole
