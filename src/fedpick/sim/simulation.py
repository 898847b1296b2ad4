"""Run a federation: many runs at once, in chunks of rounds between which one can watch, stop and resume."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.metrics import METRICS
from fedpick.protocol import init_key
from fedpick.results.result import Result
from fedpick.sim._engine import checkpoint as disk
from fedpick.sim._engine import multihost as hosts
from fedpick.sim._engine.batching import Bundles, rows
from fedpick.sim._engine.compilation import keep_programs, traced
from fedpick.sim._engine.eager import EagerRuns
from fedpick.sim._engine.progress import Bar
from fedpick.sim.availability import Always, Availability, Failures
from fedpick.sim.datasets import Data
from fedpick.sim.devices import Devices
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.federation import Federation
from fedpick.sim.local import Local
from fedpick.sim.models import Model, ModelSpec
from fedpick.sim.preflight import (
    check_first_losses,
    check_kinds,
    check_selectors,
    is_number,
    notice_few_available,
    notice_small_clients,
    resolve,
)
from fedpick.sim.round import Record, Varied, World
from fedpick.sim.server import Server
from fedpick.validation import require

CHUNK = 100  # rounds, about


def simulate(
    federation: Federation | Data,
    model: Model | ModelSpec,
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
    watch: Callable[[Result], object] | None = None,
    jit: bool = True,
) -> Result:
    """Federated averaging with this selector, ``rounds`` rounds for each seed, all runs in one program.

    ``seeds`` is a number of runs or the seeds themselves. A number in ``selector``, ``local`` or ``server`` may be an
    array of values (d, eta, alpha1, ...): each value is run with every seed, and several arrays go hand in hand. The
    model is evaluated before the first round and after ``every`` rounds (by default fifty times).
    ``until=("test_accuracy", 0.6)`` stops once every run has reached the target. ``checkpoint`` names a file from which
    an interrupted call goes on, bit for bit. Ctrl-C returns what is done. ``watch`` is called with the result so far,
    to look at and not to change, before the first round and after each chunk of about a hundred, in the thread of this
    call. ``jit=False`` plays in plain Python: slow, and errors name round and client.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Quadratic, QuadraticModel
    >>> local = Local(tau=2, b=1, eta=1e-3)
    >>> result = simulate(Quadratic(K=5), QuadraticModel(), Rand(m=2), local, rounds=4, seeds=3)
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
    if watch is not None and not callable(watch):
        raise ValueError(f"simulate: watch must be something to call with a Result, got {watch!r}")
    federation, model = resolve(federation, model)
    check_kinds(federation, model, selector, local, server, failures, devices)
    varied, runs = _runs((selector, local, server), seeds)
    # Names and sizes that the program does not need must not make it another program.
    largest = federation.largest if local.batches == "epochs" else 0
    data = dataclasses.replace(federation, name="", largest=largest)
    world: World = (data, availability, failures, devices)
    check_selectors(federation, varied[0], availability, failures)
    notice_small_clients(federation, local)

    keep_programs()
    seed = np.asarray([run["seed"] for run in runs], np.int32)
    mine = hosts.shares(len(runs))[jax.process_index()]
    hosts.same_everywhere(int(watch is not None), "watch must be given to every host (the first calls it) or to none")
    runner = (Bundles if jit else EagerRuns)(model, world, rows(varied, mine), seed[mine.start : mine.stop])
    blocks, chunks = _even_chunks(rounds, every)
    stop = None if every * blocks * chunks == rounds else rounds
    program = functools.partial(traced, model, world, varied, seed, stop, every, blocks)
    done, tables = 0, _Tables.begin(runner.begin(), selector.m or federation.num_clients)
    file, owner = None if checkpoint is None else Path(checkpoint), ""
    if file is not None:
        owner = disk.fingerprint(program()[0], world, varied, seed, rounds, every)
        done, saved = disk.load(file, owner, like=(runner.state, tables))
        hosts.same_everywhere(done, "checkpoint must be a file that every host sees, at the same round")
        if done:
            runner.state, tables = rows(saved, mine)
    check_first_losses(tables.evaluations.client_loss[:, 0])
    shapes = jax.eval_shape(lambda: model.init(init_key(0)))

    def result(tables: _Tables, params: Any = None) -> Result:
        return Result(
            runs=[dict(run) for run in runs],
            share=np.asarray(federation.share),
            model_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)),
            evaluated=np.minimum(np.arange(tables.evaluations.loss.shape[1]) * every, done),
            metrics=tables.evaluations._asdict(),
            records=tables.records._asdict(),
            params=params,
            finished=done == rounds,
        )

    def show() -> None:
        if watch is not None:
            whole = hosts.gathered(tables, len(runs))
            if jax.process_index() == 0:
                watch(result(jax.tree.map(_read_only, whole)))

    with Bar(rounds, done, progress if jax.process_index() == 0 else False) as bar:
        try:
            show()
            while done < rounds and not (until and hosts.all_agree(_reached(until, tables.evaluations))):
                step = min(every * blocks, rounds - done)
                tick = functools.partial(_tick, bar, done, step, tables.evaluations.loss[:, -1])
                new = runner.play(done, stop, every, blocks, tick)
                done, tables = done + step, tables.append(new, step, -(-step // every))
                if file is not None:
                    whole = hosts.gathered((runner.state, tables), len(runs))
                    if jax.process_index() == 0:
                        disk.save(file, owner, done, whole)
                bar.update(done, tables.evaluations.loss[:, -1])
                show()
        except KeyboardInterrupt:
            if hosts.several():
                raise  # the others would wait for this one's results
            bar.note(f"stopped after round {done} of {rounds}; everything up to there is in the result")
    params, tables = hosts.gathered((runner.state.params, tables), len(runs))
    notice_few_available(selector, tables.records)
    return result(tables, params)


class _Tables(NamedTuple):
    """What is known of the runs so far: records [R, T, ...] and evaluations [R, E, ...]."""

    records: Record
    evaluations: Evaluation

    @classmethod
    def begin(cls, first: Evaluation, seats: int) -> "_Tables":
        """Before the first round: an evaluation, and records without a row."""

        def none(dtype: Any, *more: int) -> Any:
            return np.zeros((first.loss.shape[0], 0, *more), dtype)

        records = Record(*[none(np.int32)] * len(Record._fields))._replace(
            clients=none(np.int32, seats),
            weights=none(np.float32, seats),
            train_loss=none(np.float32),
            seconds=none(np.float32),
        )
        return cls(records, jax.tree.map(lambda leaf: leaf[:, None], first))

    def append(self, new: tuple[Record, Evaluation], rounds: int, evaluations: int) -> "_Tables":
        """With a chunk's rows behind them; what lies beyond the last round is cut off."""

        def join(old: Any, more: Any, number: int) -> Any:
            return np.concatenate([old, more[:, :number]], axis=1) if old.size else more[:, :number]

        records = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), new[0])
        return _Tables(
            jax.tree.map(lambda old, more: join(old, more, rounds), self.records, records),
            jax.tree.map(lambda old, more: join(old, more, evaluations), self.evaluations, new[1]),
        )


def _read_only(array: Any) -> Any:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _even_chunks(rounds: int, every: int) -> tuple[int, int]:
    """How many evaluations in a chunk of about ``CHUNK`` rounds, and how many chunks: all as full as the last."""
    evaluations = -(-rounds // every)
    chunks = -(-evaluations // max(1, CHUNK // every))
    return -(-evaluations // chunks), chunks


def _tick(bar: Bar, done: int, step: int, losses: Any, part: float) -> None:
    """This part of the chunk's work is done."""
    bar.update(int(done + step * part), losses)


def _runs(varied: Varied, seeds: int | Iterable[int]) -> tuple[Varied, list[dict[str, Any]]]:
    """What is swept with one entry per run, all else as it is; and what each run is."""
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
        return jnp.repeat(leaf, len(numbers)) if leaf.ndim else leaf

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
