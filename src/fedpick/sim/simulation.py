"""Run a federation: many runs as one compiled program, in chunks between which one can watch, stop and resume."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.arguments import require
from fedpick.sim import checkpoint as disk
from fedpick.sim.availability import Always, Availability, Failures
from fedpick.sim.debugging import play_plainly
from fedpick.sim.devices import Devices
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.federation import Federation
from fedpick.sim.inspection import (
    check_first_losses,
    check_kinds,
    check_selectors,
    is_number,
    notice_few_available,
    notice_small_clients,
)
from fedpick.sim.local import Local, Server
from fedpick.sim.loop import Progress, Record, Setup, Varied, World, begin, evaluate, play
from fedpick.sim.models import Model
from fedpick.sim.progress import Bar
from fedpick.sim.result import METRICS, Result

CHUNK = 100  # rounds, about


def simulate(
    federation: Federation,
    model: Model,
    selector: Any,
    local: Local,
    *,
    rounds: int,
    seeds: int | Iterable[int] = 1,
    server: Server = Server(),
    availability: Availability = Always(),
    failures: Failures = Failures(),
    devices: Devices = Devices(),
    every: int | None = None,
    until: tuple[str, float] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    jit: bool = True,
) -> Result:
    """Federated averaging with this selector, ``rounds`` rounds for each seed, all runs in one program.

    ``seeds`` is a number of runs or the seeds themselves. A number in ``selector``, ``local`` or ``server`` may be an
    array of values (d, eta, alpha1, ...): each value is run with every seed, and several arrays go hand in hand. The
    model is evaluated before the first round and after ``every`` rounds (by default fifty times).
    ``until=("test_accuracy", 0.6)`` stops once every run has reached the target. ``checkpoint`` names a file from which
    an interrupted call goes on, bit for bit. Ctrl-C returns what is done. ``jit=False`` plays in plain Python: slow,
    and errors name round and client.

    >>> from fedpick import Rand
    >>> from fedpick.sim import quadratic, quadratic_model
    >>> result = simulate(quadratic(K=5), quadratic_model(5), Rand(m=2), Local(tau=2, b=1, eta=1e-3), rounds=4, seeds=3)
    >>> result.metrics["loss"].shape
    (3, 5)
    """
    require("simulate", "rounds", rounds, "at least 1", lambda n: n >= 1, whole=True)
    every = max(1, rounds // 50) if every is None else every
    require("simulate", "every", every, "at least 1", lambda n: n >= 1, whole=True)
    if until is not None and not (
        isinstance(until, tuple) and len(until) == 2 and until[0] in METRICS and is_number(until[1])
    ):
        raise ValueError(f"simulate: until must be a pair of one of {', '.join(METRICS)} and a number, got {until!r}")
    check_kinds(federation, model, selector, local, server, failures, devices)
    varied, runs = _runs((selector, local, server), seeds)
    # Names and sizes that the program does not need must not make it another program.
    largest = federation.largest if local.batches == "epochs" else 0
    data = dataclasses.replace(federation, name="", largest=largest)
    world: World = (data, availability, failures, devices)
    check_selectors(world, varied)
    notice_small_clients(federation, local)

    seed = jnp.asarray([run["seed"] for run in runs], jnp.int32)
    chunk = functools.partial(_chunk if jit else play_plainly, model, world, varied, seed, rounds)
    blocks = max(1, min(CHUNK, rounds) // every)
    with jax.disable_jit(not jit):
        kept = _before(model, world, varied, seed)
    done, file, owner = 0, None if checkpoint is None else Path(checkpoint), ""
    if file is not None:
        program = jax.make_jaxpr(functools.partial(_chunk, model, every=every, blocks=blocks))
        owner = disk.fingerprint(program(world, varied, seed, rounds, kept.now, 0), world, varied, seed, rounds, every)
        done, kept = disk.load(file, owner, like=kept)
    check_first_losses(kept.evaluations.client_loss[:, 0])
    with Bar(rounds, done, progress) as bar:
        try:
            while done < rounds and not (until and _reached(until, kept.evaluations)):
                now, new = chunk(kept.now, done, every=every, blocks=blocks)
                step = min(every * blocks, rounds - done)
                kept, done = _Kept(now, *_append(kept, new, step, -(-step // every))), done + step
                if file is not None:
                    disk.save(file, owner, done, kept)
                bar.update(done, kept.evaluations.loss[:, -1])
        except KeyboardInterrupt:
            bar.note(f"stopped after round {done} of {rounds}; everything up to there is in the result")
    if done == 0:  # interrupted in the first chunk: tables without a row
        first = functools.partial(_chunk, model, every=every, blocks=blocks)
        _, shapes = jax.eval_shape(first, world, varied, seed, 0, kept.now, 0)
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        kept = _Kept(kept.now, *_append(kept, nothing, 0, 0))
    notice_few_available(selector, kept.records)
    return Result(
        runs=runs,
        share=np.asarray(federation.share),
        model_bytes=sum(leaf[0].nbytes for leaf in jax.tree.leaves(kept.now.params)),
        evaluated=np.minimum(np.arange(kept.evaluations.loss.shape[1]) * every, done),
        metrics=kept.evaluations._asdict(),
        records=kept.records._asdict(),
        params=jax.tree.map(np.asarray, kept.now.params),
        finished=done == rounds,
    )


class _Kept(NamedTuple):
    """All there is between two chunks: where the runs stand, records [R, T, ...] and evaluations [R, E, ...]."""

    now: Progress
    records: Record
    evaluations: Evaluation


@functools.partial(jax.jit, static_argnames=("model", "every", "blocks"))
def _chunk(
    model: Model,
    world: World,
    varied: Varied,
    seed: Any,
    stop: Any,
    now: Progress,
    start: Any,
    *,
    every: int,
    blocks: int,
) -> tuple[Progress, tuple[Record, Evaluation]]:
    """A chunk of rounds of every run: records [R, blocks, every, ...] and evaluations [R, blocks, ...]."""

    def one(varied: Varied, seed: Any, now: Progress) -> tuple[Progress, tuple[Record, Evaluation]]:
        return play(Setup.of(model, world, varied), seed, now, start, stop, every, blocks)

    played: tuple[Progress, tuple[Record, Evaluation]] = _each(one)(varied, seed, now)
    return played


@functools.partial(jax.jit, static_argnames=("model",))
def _begin(model: Model, world: World, varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
    """Every run before its first round."""

    def one(varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
        whole = Setup.of(model, world, varied)
        return evaluate(whole, begin(whole, seed))

    started: tuple[Progress, Evaluation] = _each(one)(varied, seed)
    return started


def _each(one: Callable[..., Any]) -> Callable[..., Any]:
    """vmap over the runs; a single run goes without, because a batch of one is slower than none."""

    def every_run(*arguments: Any) -> Any:
        if arguments[1].shape[0] > 1:
            return jax.vmap(one)(*arguments)
        alone = jax.tree.map(lambda leaf: leaf[0], arguments)
        return jax.tree.map(lambda leaf: leaf[None], one(*alone))

    return every_run


def _before(model: Model, world: World, varied: Varied, seed: Any) -> _Kept:
    now, first = _begin(model, world, varied, seed)
    none: Any = np.zeros(0)
    return _Kept(
        now, Record(*[none] * len(Record._fields)), jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], first)
    )


def _append(kept: _Kept, new: tuple[Record, Evaluation], rounds: int, evaluations: int) -> tuple[Any, Any]:
    """The tables with a chunk's rows behind them; what lies beyond the last round is cut off."""

    def join(old: Any, more: Any, number: int) -> Any:
        return np.concatenate([old, more[:, :number]], axis=1) if old.size else more[:, :number]

    records = jax.tree.map(lambda x: np.asarray(x).reshape(x.shape[0], -1, *x.shape[3:]), new[0])
    return (
        jax.tree.map(lambda old, more: join(old, more, rounds), kept.records, records),
        jax.tree.map(lambda old, more: join(old, np.asarray(more), evaluations), kept.evaluations, new[1]),
    )


def _runs(varied: Varied, seeds: int | Iterable[int]) -> tuple[Varied, list[dict[str, Any]]]:
    """Every leaf with one entry per run, and what each run is."""
    try:
        chosen: Any = range(operator.index(seeds)) if is_number(seeds) else seeds  # type: ignore[arg-type]
        numbers = [operator.index(seed) for seed in chosen]
    except TypeError:
        raise ValueError(f"simulate: seeds must be a whole number or whole numbers, got {seeds!r}") from None
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**31:
        raise ValueError(f"simulate: seeds must be one or more numbers, at least 0 and below 2**31, got {seeds!r}")
    named = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(varied):
        name = jax.tree_util.keystr(path[1:], simple=True, separator=".")
        # Both a client and a server have an eta.
        named.append((f"server.{name}" if path[0].idx == 2 else name, np.asarray(leaf)))
    swept = {name: leaf for name, leaf in named if leaf.ndim == 1}
    lengths = {name: len(leaf) for name, leaf in swept.items()}
    if len(set(lengths.values())) > 1 or any(leaf.ndim > 1 for _, leaf in named):
        got = {name: leaf.shape for name, leaf in named if leaf.ndim}
        raise ValueError(f"simulate: swept fields must be arrays of one length, got {got}")
    values = next(iter(lengths.values()), 1)

    def per_run(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        leaf = leaf if leaf.ndim else leaf[None]
        return jnp.repeat(jnp.broadcast_to(leaf, (values,)), len(numbers))

    points = [{name: _plain(leaf[v]) for name, leaf in swept.items()} for v in range(values)]
    runs = [{"seed": seed, **point} for point in points for seed in numbers]
    return jax.tree.map(per_run, varied), runs


def _plain(number: Any) -> int | float:
    """A Python number; 0.1 and not 0.10000000149 for a float32."""
    return int(number) if number.dtype.kind in "iu" else float(str(number))


def _reached(until: tuple[str, float], evaluations: Evaluation) -> bool:
    runs, number = evaluations.loss.shape
    so_far = Result([{}] * runs, np.zeros(0), 0, np.arange(number), evaluations._asdict(), {})
    return bool(np.isfinite(so_far.rounds_to(*until)).all())
