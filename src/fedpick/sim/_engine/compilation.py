"""The compiled programs of a bundle of runs, and the folder in which they are kept."""

import functools
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh

from fedpick.sim._engine.loops import play, train_only
from fedpick.sim._engine.runner import Cadence, Chunk, Runs, Tree
from fedpick.sim.classification import NamedMetric
from fedpick.sim.evaluation import Evaluation, evaluate
from fedpick.sim.federation import Federation
from fedpick.sim.models import Model, Params
from fedpick.sim.records import Record
from fedpick.sim.round import RunState, Setup, begin, first_model
from fedpick.sim.spread import over
from fedpick.storage import cache_folder

COMPILERS = ThreadPoolExecutor(thread_name_prefix="fedpick-compiler")
MAPS = 30_000  # of memory, from which on programs are released


def first_models(model: Model, seeds: Any) -> Params:
    """The initial model of every run.

    A program of its own, because it is the same for all selectors and takes long to compile.
    """
    if seeds.shape[0] > 1:
        return jax.vmap(functools.partial(first_model, model))(seeds)
    return jax.tree.map(lambda leaf: leaf[None], first_model(model, seeds[0]))


def start(runs: Runs, params: Params) -> RunState:
    """Every run before its first round."""
    return each_run(lambda setup, seed, params: begin(setup, params), runs, params)


def chunk(runs: Runs, progress: RunState, first: Any, stop: Any, *, every: int, blocks: int) -> tuple[RunState, Chunk]:
    """A chunk of rounds of every run, with its evaluations."""

    def one(setup: Setup, seed: Any, progress: RunState) -> tuple[RunState, Chunk]:
        return play(setup, seed, progress, first, stop, every, blocks)

    return each_run(one, runs, progress)


def rounds(runs: Runs, progress: RunState, first: Any, stop: Any, *, every: int) -> tuple[RunState, Record]:
    """The rounds of every run from one evaluation to the next: records [R, every, ...]."""

    def one(setup: Setup, seed: Any, progress: RunState) -> tuple[RunState, Record]:
        return train_only(setup, seed, progress, first, stop, every)

    return each_run(one, runs, progress)


def evaluation(
    federation: Federation,
    model: Model,
    params: Params,
    chosen: Any,
    *,
    mesh: Mesh | None = None,
    metrics: tuple[NamedMetric, ...] = (),
) -> Evaluation:
    """The metrics of every run's model.

    Of the setup it takes no more than it needs, so that it too is the same program for all selectors.
    """

    def one(federation: Federation, params: Params, chosen: Any) -> Evaluation:
        with over(mesh):
            return evaluate(federation, model, params, chosen, metrics)

    found: Evaluation
    if chosen.shape[0] > 1:
        found = jax.vmap(one, in_axes=(federation.axes(), 0, 0))(federation, params, chosen)
    else:
        alone = one(federation.rows(0), *jax.tree.map(lambda leaf: leaf[0], (params, chosen)))
        found = jax.tree.map(lambda leaf: leaf[None], alone)
    return found


def each_run(one: Callable[[Setup, Any, Any], Tree], runs: Runs, state: Any) -> Tree:
    """``one(setup, seed, state)`` under vmap; a single run goes without, because a batch of one is slower than none."""
    setup, seeds = runs
    with over(setup.mesh):
        if seeds.shape[0] > 1:
            return jax.vmap(one, in_axes=(setup.axes(), 0, 0))(setup, seeds, state)
        seed, state = jax.tree.map(lambda leaf: leaf[0], (seeds, state))
        # A strategy's state may have numbers of Python's.
        alone: Tree = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one(setup.rows(0), seed, state))
        return alone


@functools.cache
def jit_program(program: Callable[..., Any]) -> Any:
    """The program under ``jax.jit``.

    On a CPU, matrix products stay with the library that XLA hands them to (YNNPACK). XLA's own take a fifth less time
    with the small batches of training, but give wrong numbers (seen in JAX 0.10) where two threads run a program with
    large ones, as a chunk with its evaluations is.
    """
    names = ("mesh", "metrics", "every", "blocks", "request")
    static = [name for name in names if name in inspect.signature(program).parameters]
    return jax.jit(program, static_argnames=static)


class Program:
    """A program that is compiled in a thread, where XLA does not hold Python's lock; a call waits until it is."""

    def __init__(self, lowered: Any) -> None:
        self.out_info = lowered.out_info
        self._compiled: Future[Any] = COMPILERS.submit(lowered.compile)

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        return self._compiled.result()(*arguments)

    def memory_analysis(self) -> Any:
        """The compiler's estimate of what it needs."""
        return self._compiled.result().memory_analysis()


def compile_chunk(cadence: Cadence, *arguments: Any) -> Program:
    """``chunk`` for arguments of these shapes, as one program."""
    return Program(jit_program(chunk).lower(*arguments, every=cadence.every, blocks=cadence.blocks))


class EvaluationProgram:
    """``evaluation`` for runs and progress of these shapes."""

    def __init__(self, runs: Runs, progress: RunState) -> None:
        setup, state = runs.setup, (progress.params, progress.chosen)
        fixed: Any = {"mesh": setup.mesh, "metrics": setup.metrics}
        self.program = Program(jit_program(evaluation).lower(setup.federation, setup.model, *state, **fixed))
        self.memory_analysis = self.program.memory_analysis

    def __call__(self, runs: Runs, progress: RunState) -> tuple[RunState, Evaluation]:
        """The metrics beside the state, which stays as it is."""
        return progress, self.program(runs.setup.federation, runs.setup.model, progress.params, progress.chosen)


class SplitPrograms:
    """``chunk`` as two programs: an evaluation is computed beside the rounds that come after it.

    On a CPU this keeps all cores busy where a single matrix product or a sum does not, and each of the two programs is
    compiled as suits it. On a GPU they are compiled side by side, and the evaluation once. A program that does little
    on a CPU is not worth the calls.
    """

    def __init__(self, cadence: Cadence, runs: Runs, progress: RunState, first: int, stop: int | None) -> None:
        self.cadence = cadence
        self.rounds = Program(jit_program(rounds).lower(runs, progress, first, stop, every=cadence.every))
        self.evaluation = EvaluationProgram(runs, progress)

    def memory_analysis(self) -> Any:
        """Of the program that needs more."""
        return largest([self.rounds, self.evaluation])

    def __call__(self, runs: Runs, progress: RunState, first: int, stop: int | None) -> tuple[RunState, Chunk]:
        """As ``chunk``, without rows beyond the last round."""
        wait: Any = jax.block_until_ready
        records: list[Record] = []
        evaluations: list[Future[Evaluation]] = []
        with ThreadPoolExecutor(1) as beside:
            for t in range(first, first + self.cadence.step(first), self.cadence.every):
                progress, record = wait(self.rounds(runs, progress, t, stop))
                records.append(record)
                evaluations.append(beside.submit(lambda state: wait(self.evaluation(runs, state)[1]), progress))
                if len(evaluations) > 1:
                    evaluations[-2].result()  # no more than one model waits
        return progress, (stack_blocks(records), stack_blocks([each.result() for each in evaluations]))


def largest(programs: Sequence[Program | EvaluationProgram]) -> Any:
    """The memory analysis of the program that needs most."""
    found = [program.memory_analysis() for program in programs]
    return max(found, key=lambda one: one.temp_size_in_bytes + one.output_size_in_bytes)


def stack_blocks(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *jax.device_get(trees))


def trace_chunk(runs: Runs, cadence: Cadence) -> Any:
    """The jaxpr of a chunk of these runs; nothing is run.

    A checkpoint belongs to this text: what changes it makes older checkpoints unreadable.
    """
    params = jax.eval_shape(functools.partial(first_models, runs.setup.model), runs.seeds)
    progress = jax.eval_shape(start, runs, params)
    program = functools.partial(chunk, every=cadence.every, blocks=cadence.blocks)
    return jax.make_jaxpr(program)(runs, progress, 0, cadence.stop)


def keep_programs() -> None:
    """Set JAX's compilation cache to a folder of the user's, unless it has one.

    ``FEDPICK_CACHE`` names another folder; empty, nothing is kept. JAX's own ``jax_compilation_cache_dir`` goes
    before both.
    """
    kept = cache_folder()
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None or kept is None:
        return
    folder = kept / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: compile each time
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    # A program of a tenth of a second is worth a file: there are a dozen of them in a comparison.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once whether there is a cache, at the first compilation


def release_programs(limit: int = MAPS) -> None:
    """Release all compiled programs once they hold many memory maps.

    Linux allows a process 65,530 of them, a program holds some hundreds, and XLA crashes at the limit: call this
    between simulations of ever new shapes.

    Args:
        limit: The number of memory maps up to which nothing is released.

    >>> release_programs()
    """
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > limit:
        jax.clear_caches()  # type: ignore[no-untyped-call]
