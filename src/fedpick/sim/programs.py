"""The compiled programs: the start of a bundle of runs and a chunk of its rounds; and their place on disk."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

from fedpick.sim.evaluation import Evaluation
from fedpick.sim.loop import Progress, Record, Setup, Varied, World, begin, evaluate, play
from fedpick.sim.models import Model


def start(model: Model, world: World, varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
    """Every run before its first round."""

    def one(varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
        whole = Setup.of(model, world, varied)
        return evaluate(whole, begin(whole, seed))

    started: tuple[Progress, Evaluation] = _together(one, varied, seed)
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
) -> tuple[Progress, tuple[Record, Evaluation]]:
    """A chunk of rounds of every run: records [R, blocks, every, ...] and evaluations [R, blocks, ...]."""

    def one(varied: Varied, seed: Any, now: Progress) -> tuple[Progress, tuple[Record, Evaluation]]:
        return play(Setup.of(model, world, varied), seed, now, first, stop, every, blocks)

    played: tuple[Progress, tuple[Record, Evaluation]] = _together(one, varied, seed, now)
    return played


def _together(one: Callable[..., Any], varied: Varied, seed: Any, *now: Progress) -> Any:
    """vmap over the runs; a single run goes without, because a batch of one is slower than none."""
    if seed.shape[0] > 1:
        # What all runs share stays a single number: a copy for each would be read at every step.
        shared = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, varied)
        return jax.vmap(one, in_axes=(shared, 0, *[0] * len(now)))(varied, seed, *now)
    alone = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, (varied, seed, *now))
    return jax.tree.map(lambda leaf: leaf[None], one(*alone))


@functools.cache
def jitted(program: Callable[..., Any], for_training: bool = False) -> Any:
    """The program for JAX to compile, as suits its work.

    On a CPU, XLA's own matrix products take a fifth less time with the small batches of training than the library that
    it hands them to (YNNPACK), and a tenth more in an evaluation.
    """
    options = {"xla_cpu_experimental_ynn_fusion_type": ""} if for_training and jax.default_backend() == "cpu" else None
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(jnp.float32(0)).compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        options = None
    static = ("model", "every", "blocks") if program is chunk else ("model",)
    return jax.jit(program, static_argnames=static, compiler_options=options)


def traced(
    model: Model, world: World, varied: Varied, seed: Any, stop: int | None, every: int, blocks: int
) -> tuple[Any, Any]:
    """The program of a chunk of these runs as JAX writes it down, and the shapes of what it gives; nothing is run."""
    now, _ = jax.eval_shape(functools.partial(start, model), world, varied, seed)
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
