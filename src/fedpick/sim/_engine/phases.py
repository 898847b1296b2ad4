"""A round as three programs, of which the largest is the same for all strategies: for few or long rounds.

Compiling a whole chunk takes seconds for each strategy, most of them for what strategies share: the training, and the
evaluation. Here these are compiled once, and what is the strategy's own is small. Each round costs three calls from
Python, a tenth of a millisecond on a CPU and more on a GPU, which is why many short rounds are worth a program of their
own (``chunk``, ``rounds``). The numbers are
the same, bit for bit.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpick.sim._engine.compilation import EvaluationProgram, Program, each_run, jit_program, largest, stack_blocks
from fedpick.sim._engine.runner import Cadence, Chunk, Runs
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.records import UPDATES, Choice, Outcome, Record, Request
from fedpick.sim.round import RunState, Setup, choose, learn, work

FEW = 200  # rounds


def choices(runs: Runs, state: Any, params: Any, t: Any) -> tuple[Choice, Any]:
    """Every run's decision in round t, and the next round."""
    return each_run(lambda setup, seed, own: choose(setup, seed, own[0], own[1], t), runs, (state, params)), t + 1


def outcomes(runs: Runs, progress: RunState, t: Any, choice: Choice, *, request: Request) -> tuple[Outcome, Record]:
    """What every run's seats make of it: without the selector in the setup, the same program for all of them."""

    def one(setup: Setup, seed: Any, own: tuple[RunState, Choice]) -> tuple[Outcome, Record]:
        return work(setup, own[0], t, own[1], request)

    return each_run(one, runs, (progress, choice))


def lessons(runs: Runs, state: Any, choice: Choice, outcome: Outcome) -> Any:
    """The state of every run's strategy after the round."""
    return each_run(lambda setup, seed, own: learn(setup.selector, *own), runs, (state, choice, outcome))


class PhasePrograms:
    """``chunk`` as a program for each phase of a round, compiled side by side, and one for the evaluation."""

    def __init__(self, cadence: Cadence, runs: Runs, progress: RunState, first: int, stop: int | None) -> None:
        self.cadence, self.request = cadence, Request.of(runs.setup.selector)
        t, state, common = _round(first), progress.selector, progress._replace(selector=None)
        self.choices = Program(jit_program(choices).lower(runs, state, progress.params, t))
        choice = self.choices.out_info[0]
        lowered = jit_program(outcomes).lower(self._shared(runs), common, t, choice, request=self.request)
        self.outcomes, self.lessons = Program(lowered), []
        if jax.tree.leaves(state):
            self.lessons.append(Program(jit_program(lessons).lower(runs, state, choice, self.outcomes.out_info[0])))
        self.evaluation = EvaluationProgram(runs, progress)

    def memory_analysis(self) -> Any:
        """Of the program that needs most."""
        return largest([self.choices, self.outcomes, *self.lessons, self.evaluation])

    def __call__(self, runs: Runs, progress: RunState, first: int, stop: int | None) -> tuple[RunState, Chunk]:
        """As ``chunk``, without rows beyond the last round."""
        shared, every, step = self._shared(runs), self.cadence.every, self.cadence.step(first)
        t, none = _round(first), jnp.zeros_like(progress.chosen)
        records: list[Record] = []
        evaluations: list[Evaluation] = []
        for played in range(1, step + 1):
            choice, following = self.choices(runs, progress.selector, progress.params, t)
            outcome, record = self.outcomes(shared, progress._replace(selector=None), t, choice)
            state, t = progress.selector, following
            for learned in self.lessons:
                state = learned(runs, state, choice, outcome)
            progress = RunState(outcome.params, state, outcome.server, outcome.chosen)
            records.append(record)
            if played % every == 0 or played == step:
                evaluations.append(self.evaluation(runs, progress)[1])
                progress = progress._replace(chosen=none)
        rows = jax.tree.map(lambda leaf: leaf[:, None], stack_blocks(records))
        return progress, (rows, stack_blocks(evaluations))

    def _shared(self, runs: Runs) -> Runs:
        """The runs without their strategy, where the training does not have to know it."""
        if self.request.measured & UPDATES:
            return runs
        nobody: Any = None
        return runs._replace(setup=dataclasses.replace(runs.setup, selector=nobody))


def _round(t: int) -> Any:
    return jnp.asarray(t, jnp.int32)
