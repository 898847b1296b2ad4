"""The interface of what plays runs, compiled or eager, and the values that pass through it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from fedpick.sim.evaluation import Evaluation
from fedpick.sim.round import Progress, Record, Setup

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


class Schedule(NamedTuple):
    """When to evaluate: after ``every`` rounds, ``blocks`` times in a chunk of rounds."""

    rounds: int
    every: int
    blocks: int

    @classmethod
    def even(cls, rounds: int, every: int, chunk: int) -> "Schedule":
        """Chunks of about ``chunk`` rounds, all nearly as full as the others.

        >>> Schedule.even(rounds=250, every=10, chunk=100)
        Schedule(rounds=250, every=10, blocks=9)
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
    def state(self) -> Progress:
        """The state of every run; set to resume from another."""

    @state.setter
    def state(self, progress: Progress) -> None: ...

    def begin(self) -> Evaluation:
        """Start every run and evaluate the initial models."""

    def play(self, first: int, schedule: Schedule, tick: Callable[[float], None]) -> Chunk:
        """Play a chunk of every run from round ``first`` on; ``tick`` is called with the fraction that is done."""


def rows(tree: Tree, runs: range) -> Tree:
    """The rows of these runs in arrays [R, ...]."""
    part: Tree = jax.tree.map(lambda leaf: leaf[runs.start : runs.stop], tree)
    return part


def concatenate(trees: list[Tree]) -> Tree:
    """Rows below rows, as NumPy arrays."""
    whole: Tree = jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)
    return whole
