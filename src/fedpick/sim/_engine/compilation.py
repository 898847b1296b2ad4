"""The compiled programs: the start of a bundle of runs and a chunk of its rounds; and their place on disk."""

import functools
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from fedpick.sim.evaluation import Evaluation
from fedpick.sim.models import Model, Params
from fedpick.sim.round import Progress, Record, Setup, Varied, World, begin, evaluate, first_model, play, train_only

FEW_SEATS = 10  # of all runs together, in which kernels do little
MAPS = 30_000  # of memory, from which on programs are let go
STRETCH = 5  # steps without a loop around them; more take less time, and long to compile


def first_models(model: Model, seed: Any) -> Params:
    """Every run's first model.

    A program of its own, because it is the same for all selectors and takes long to compile.
    """
    return _together(lambda _, seed: first_model(model, seed), (), seed)


def start(model: Model, world: World, varied: Varied, seed: Any, params: Params) -> tuple[Progress, Evaluation]:
    """Every run before its first round."""

    def one(varied: Varied, seed: Any, params: Params) -> tuple[Progress, Evaluation]:
        whole = Setup.of(model, world, varied)
        first = begin(whole, params)
        return first, evaluate(whole, first)

    started: tuple[Progress, Evaluation] = _together(one, varied, seed, params)
    return started


def chunk(
    model: Model,
    world: World,
    varied: Varied,
    seed: Any,
    now: Progress,
    first: Any,
    stop: Any,
    *,
    every: int,
    blocks: int,
    unroll: int = 1,
) -> tuple[Progress, tuple[Record, Evaluation]]:
    """A chunk of rounds of every run: records [R, blocks, every, ...] and evaluations [R, blocks, ...]."""

    def one(varied: Varied, seed: Any, now: Progress) -> tuple[Progress, tuple[Record, Evaluation]]:
        return play(Setup.of(model, world, varied, unroll), seed, now, first, stop, every, blocks)

    played: tuple[Progress, tuple[Record, Evaluation]] = _together(one, varied, seed, now)
    return played


def rounds(
    model: Model, world: World, varied: Varied, seed: Any, now: Progress, first: Any, stop: Any, *, every: int
) -> tuple[Progress, Record]:
    """The rounds of every run from one evaluation to the next: records [R, every, ...]."""

    def one(varied: Varied, seed: Any, now: Progress) -> tuple[Progress, Record]:
        return train_only(Setup.of(model, world, varied), seed, now, first, stop, every)

    played: tuple[Progress, Record] = _together(one, varied, seed, now)
    return played


def evaluation(model: Model, world: World, varied: Varied, seed: Any, now: Progress) -> Evaluation:
    """How good every run's model is."""

    def one(varied: Varied, seed: Any, now: Progress) -> Evaluation:
        return evaluate(Setup.of(model, world, varied), now)

    found: Evaluation = _together(one, varied, seed, now)
    return found


def _together(one: Callable[..., Any], varied: Any, seed: Any, *now: Any) -> Any:
    """vmap over the runs; a single run goes without, because a batch of one is slower than none."""
    if seed.shape[0] > 1:
        # What all runs share stays a single number: a copy for each would be read at every step.
        shared = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, varied)
        return jax.vmap(one, in_axes=(shared, 0, *[0] * len(now)))(varied, seed, *now)
    alone = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, (varied, seed, *now))
    return jax.tree.map(lambda leaf: leaf[None], one(*alone))


@functools.cache
def jitted(program: Callable[..., Any]) -> Any:
    """The program for JAX to compile, as suits its work.

    On a CPU, XLA's own matrix products take a fifth less time with the small batches of training than the library that
    it hands them to (YNNPACK), and a tenth more in an evaluation.
    """
    trains = program in (chunk, rounds)
    options = {"xla_cpu_experimental_ynn_fusion_type": ""} if trains and jax.default_backend() == "cpu" else None
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(jnp.float32(0)).compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        options = None
    static = [name for name in ("model", "every", "blocks", "unroll") if name in inspect.signature(program).parameters]
    return jax.jit(program, static_argnames=static, compiler_options=options)


def chunk_compiled(every: int, blocks: int, model: Model, *own: Any) -> Any:
    """A chunk as one program.

    On a GPU, a loop around kernels that do little takes as long as they do.
    """
    (federation, *_), (selector, *_), seed, *_ = own
    (device,) = seed.devices()
    seats = len(seed) * (selector.m or federation.num_clients)
    little = device.platform != "cpu" and seats <= FEW_SEATS
    options = {"every": every, "blocks": blocks, "unroll": STRETCH if little else 1}
    return jitted(chunk).lower(model, *own, **options).compile()


class SplitPrograms:
    """A chunk as two programs: an evaluation is computed beside the rounds that come after it.

    On a CPU this keeps all cores busy where a single matrix product or a sum does not, and each of the two programs is
    compiled as suits it. A program that does little is not worth the calls.
    """

    def __init__(self, every: int, blocks: int, model: Model, *own: Any) -> None:
        self.every, self.blocks = every, blocks
        self.rounds = jitted(rounds).lower(model, *own, every=every).compile()
        self.evaluation = jitted(evaluation).lower(model, *own[:-2]).compile()  # but for the rounds

    def __call__(
        self, world: World, varied: Varied, seed: Any, now: Progress, first: int, stop: int | None
    ) -> tuple[Progress, tuple[Record, Evaluation]]:
        """As ``chunk``, but for rows beyond the last round."""
        last = first + self.every * self.blocks
        records: list[Record] = []
        found: list[Future[Evaluation]] = []
        with ThreadPoolExecutor(1) as beside:
            for t in range(first, last if stop is None else min(last, stop), self.every):
                now, record = _done(self.rounds(world, varied, seed, now, t, stop))
                records.append(record)
                found.append(beside.submit(self._evaluated, world, varied, seed, now))
                if len(found) > 1:
                    found[-2].result()  # no heap of models that wait
        evaluations = [each.result() for each in found]
        return now, (_by_block(records), _by_block(evaluations))

    def _evaluated(self, *own: Any) -> Evaluation:
        found: Evaluation = _done(self.evaluation(*own))
        return found


def _done(found: Any) -> Any:
    return jax.block_until_ready(found)  # type: ignore[no-untyped-call]


def _by_block(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *trees)


def traced(
    model: Model, world: World, varied: Varied, seed: Any, stop: int | None, every: int, blocks: int
) -> tuple[Any, Any]:
    """The program of a chunk of these runs as JAX writes it down, and the shapes of what it gives; nothing is run."""
    params = jax.eval_shape(functools.partial(first_models, model), seed)
    now, _ = jax.eval_shape(functools.partial(start, model), world, varied, seed, params)
    whole = functools.partial(chunk, model, every=every, blocks=blocks)
    program, shapes = jax.make_jaxpr(whole, return_shape=True)(world, varied, seed, now, 0, stop)
    return program, shapes


def keep_programs() -> None:
    """Let JAX keep what it compiles in the user's cache, unless it has a folder already.

    ``FEDPICK_CACHE`` names another folder; empty, nothing is kept. JAX's own ``jax_compilation_cache_dir`` goes
    before both.
    """
    named = os.environ.get("FEDPICK_CACHE")
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None or named == "":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpick"
    folder = Path(named or home) / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: compile each time, as without
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # it may have settled on having no folder when something was compiled before


def release_programs(limit: int = MAPS) -> None:
    """Let go of all compiled programs where they have come to hold many memory maps.

    Linux allows a process 65,530 of them, a program holds some hundreds, and XLA dies at the limit: whoever runs
    simulations of ever new shapes calls this in between.
    """
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > limit:
        jax.clear_caches()  # type: ignore[no-untyped-call]
