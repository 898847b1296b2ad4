"""Many rounds of a run as one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedpick.sim.evaluation import Evaluation
from fedpick.sim.records import Record
from fedpick.sim.round import RunState, Setup, one_round


def play(
    setup: Setup, seed: Any, progress: RunState, start: Any, stop: Any, every: int, blocks: int
) -> tuple[RunState, tuple[Record, Evaluation]]:
    """``blocks`` times ``every`` rounds from ``start``, an evaluation after each; nothing happens from ``stop`` on."""

    def block(progress: RunState, first: Any) -> tuple[RunState, tuple[Record, Evaluation]]:
        progress, records = train_only(setup, seed, progress, first, stop, every)
        progress, found = _before(stop, first, lambda progress: (progress, progress.evaluate(setup)), progress)
        return progress, (records, found)

    firsts = start + every * jnp.arange(blocks, dtype=jnp.int32)
    return lax.scan(block, progress, firsts)


def train_only(
    setup: Setup, seed: Any, progress: RunState, first: Any, stop: Any, every: int
) -> tuple[RunState, Record]:
    """The rounds from one evaluation to the next.

    Without a ``stop`` there is nothing to decide in each round, which a GPU would have to ask the host.
    """

    def step(progress: RunState, t: Any) -> tuple[RunState, Record]:
        return _before(stop, t, lambda progress: one_round(setup, seed, progress, t), progress)

    return lax.scan(step, progress.reset_chosen(), first + jnp.arange(every, dtype=jnp.int32))


def _before(stop: Any, t: Any, act: Callable[[Any], tuple[Any, Any]], progress: Any) -> tuple[Any, Any]:
    if stop is None:
        return act(progress)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(act, progress)[1])
    done: tuple[Any, Any] = lax.cond(t >= stop, lambda progress: (progress, nothing), act, progress)
    return done
