"""`simulate`: many runs at once, in chunks of rounds between which one can watch, stop and resume."""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpick.metrics import Numbers, Payload
from fedpick.protocol import Selector, payload
from fedpick.results import Result
from fedpick.sim import preflight
from fedpick.sim._engine import multihost as hosts
from fedpick.sim._engine.batching import Bundles
from fedpick.sim._engine.checkpoint import Checkpoint, fingerprint
from fedpick.sim._engine.compilation import keep_programs, trace_chunk
from fedpick.sim._engine.eager import EagerRuns
from fedpick.sim._engine.progress import Bar
from fedpick.sim._engine.runner import Cadence, Chunk, Runner, rows, sweep
from fedpick.sim.availability import Always, Availability, Devices, Failures
from fedpick.sim.classification import check_test_set, resolve_metrics
from fedpick.sim.datasets import Data
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.federation import Federation
from fedpick.sim.fit import check_fit, for_clients
from fedpick.sim.liars import Liars
from fedpick.sim.local import Local
from fedpick.sim.lowest import check_lowest, check_measured
from fedpick.sim.models import Model, ModelSpec
from fedpick.sim.optimizers import RobustServer, Server
from fedpick.sim.records import Record
from fedpick.sim.round import Setup
from fedpick.sim.rows import Names
from fedpick.storage import forget_outdated
from fedpick.validation import require

CHUNK = 100  # rounds, about
RECORDED = 10  # a checkpoint is written as a whole, when this part of its rounds is new: what is written stays linear
LOG = logging.getLogger("fedpick")


def simulate(
    federation: Federation | Data | Sequence[Federation | Data],
    model: Model | ModelSpec,
    selector: Selector[Any],
    local: Local,
    *,
    rounds: int,
    seeds: int | Iterable[int] = 1,
    server: Server = Server(),
    availability: Availability = Always(),
    failures: Failures = Failures(),
    devices: Devices = Devices(),
    liars: Liars = Liars(),
    every: int | None = None,
    metrics: Iterable[str | Callable[..., Any]] = (),
    until: tuple[str, float] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_after: float = 0.0,
    progress: bool | None = None,
    watch: Callable[[Result], object] | None = None,
    jit: bool = True,
    spread_seats: bool = False,
) -> Result:
    """Federated averaging with any strategy: ``rounds`` rounds for each seed, all runs in one compiled program.

    A number in ``selector``, ``local`` or ``server`` may be an array of values (d, eta, alpha1, ...): each value is
    run with every seed, and several arrays are taken together, entry by entry. Ctrl-C returns the rounds that are done.

    Args:
        federation: The clients and their data, or a description of them such as ``Synthetic(1, 1)``; or a list with one
            for each seed.
        model: The model that they train, or a description of it such as ``Logistic()``.
        selector: The strategy, such as ``PowerOfChoice(m=3, d=6)``.
        local: Local training: steps, mini-batches, learning rate.
        rounds: The number of rounds.
        seeds: A number of seeds, or the seeds.
        server: The server's optimiser.
        availability: Which clients are available in each round.
        failures: Which clients drop out after they were selected.
        devices: How fast clients compute and communicate; sets the simulated clock.
        liars: Which clients lie, and about what.
        every: The number of rounds between evaluations; a fiftieth of all by default.
        metrics: What else is measured on the test set, such as ``["f1", "auc", "calibration"]``: names, addresses
            ("my.module:metric"), or JAX functions of the logits [n, classes] and the labels [n]. The result has them as
            ``test_f1``, ... A function whose attribute ``higher_is_better`` is True or False can be a target.
        until: Stop once every run has reached a target, such as ``("test_accuracy", 0.6)``; looked at after each chunk
            of about 100 rounds.
        checkpoint: A file that is written after each chunk, in long runs each time that a tenth of the rounds is new,
            and where Ctrl-C or ``until`` ends the call; the same call resumes from it bit for bit.
        checkpoint_after: Seconds of this call before which it is written only where the call is stopped.
        progress: Whether to show a progress bar; by default on a terminal only.
        watch: Called with the result so far (read-only) before the first round and after each chunk of about a
            hundred, in the thread of this call.
        jit: False plays without compilation: slow, and errors name the round and the client.
        spread_seats: Whether all devices, of all hosts, play each run together, with its seats, candidates and
            evaluations divided among them; by default each device plays runs of its own.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Quadratic, QuadraticModel
    >>> local = Local(tau=2, b=1, eta=1e-3)
    >>> result = simulate(Quadratic(K=5), QuadraticModel(), Rand(m=2), local, rounds=4, seeds=3)
    >>> result.metrics["loss"].shape
    (3, 5)
    """
    began = time.monotonic()
    flags = {"jit": jit, "spread_seats": spread_seats, "progress": progress is None or progress}
    own = resolve_metrics("simulate", metrics)
    every = preflight.check_options(rounds, every, until, watch, checkpoint, own, **flags)
    require("simulate", "checkpoint_after", checkpoint_after, "at least 0", lambda seconds: seconds >= 0, one=True)
    if checkpoint is None and checkpoint_after:
        raise ValueError(f"simulate: checkpoint_after must come with checkpoint, got {checkpoint_after} without one")
    data, built = preflight.resolve(federation, model)
    preflight.check_kinds(data, built, selector, local, server, availability, failures, devices, liars)
    functions = [metric.function for metric in own]
    forget_outdated(
        [selector, local, server, availability, failures, devices, liars, *built.own_functions(), *functions]
    )
    preflight.check_metrics(own, data, built, owner="simulate")
    check_test_set("simulate", until[0] if until else "loss", data)
    check_lowest(selector, built, liars.attack if liars.share > 0 else "none")
    if jit:
        preflight.check_schedule(local, rounds)
    preflight.warn_of_small_clients(data, local)
    preflight.warn_of_long_rests(selector, data.num_clients, rounds)
    liars.warn_of_no_effect(data.num_clients, rounds)
    if isinstance(server, RobustServer):
        server.warn_of_no_effect(selector.m or data.num_clients)
    local = preflight.cut_batches(local, data.largest)
    # Names and sizes that the program does not need must not make it another program.
    lean = dataclasses.replace(data, name="", names=Names(), largest=data.largest if local.batches == "epochs" else 0)
    availability = for_clients(availability, data)
    world = (availability, failures, devices, liars.lies(built.lowest) if liars.share > 0 else None)
    runs, names = sweep(Setup(lean, built, selector, local, server, *world, metrics=own), seeds)
    check_fit(data, selector, availability, failures, compiled=jit)
    seats = selector.m or data.num_clients
    model_bytes = preflight.check_room(data, built, seats, runs=len(names), rounds=rounds, every=every)
    mine = range(len(names)) if spread_seats else hosts.shares(len(names))[jax.process_index()]
    hosts.same_everywhere(int(watch is not None), "watch must be given to every host (the first calls it) or to none")

    keep_programs()
    runner: Runner = Bundles(runs.rows(mine), spread_seats) if jit else EagerRuns(runs.rows(mine))
    cadence = Cadence.even(rounds, every, CHUNK)
    tables = _Tables.begin(runner.begin(cadence), seats)
    file = None
    if checkpoint is not None:
        owner = functools.cache(lambda: fingerprint(trace_chunk(runs, cadence), runs, rounds, every))
        file = Checkpoint(Path(checkpoint), owner)
        saved = file.load(like=(runner.state, tables))
        done = 0 if saved is None else saved[1].rounds
        hosts.same_everywhere(done, "checkpoint must be a file that every host sees, at the same round")
        if saved is not None:
            runner.state, tables = rows(saved, mine)
    preflight.check_first_losses(tables.evaluations.client_loss[:, 0], data.names.clients)
    check_measured(selector, built, tables.evaluations.client_loss[:, 0], played=False)
    share = np.asarray(runs.setup.federation.share)
    better = {metric.name: metric.higher for metric in own}
    told = (watch, data.names.clients, better)
    output = _Output(names, mine, share, model_bytes, payload(selector), cadence, file, *told)
    kept = tables.rounds
    try:
        with Bar(rounds, tables.rounds, progress if jax.process_index() == 0 else False) as bar:
            bar.update(tables.rounds, tables.evaluations.loss[:, -1])
            output.show(tables)
            while tables.rounds < rounds and not (until and hosts.all_agree(output.reached(until, tables))):
                tick = functools.partial(bar.part, tables.rounds, cadence.step(tables.rounds))
                first = tables.rounds
                tables = tables.append(runner.play(first, cadence, tick), cadence)
                preflight.check_seats(selector, tables.records, first)
                new = tables.rounds == rounds or tables.rounds - kept >= tables.rounds // RECORDED
                if file is not None and new and hosts.all_agree(time.monotonic() - began >= checkpoint_after):
                    output.save(runner, tables)
                    kept = tables.rounds
                bar.update(tables.rounds, tables.evaluations.loss[:, -1])
                output.show(tables)
    except KeyboardInterrupt:
        if hosts.several():
            raise  # the others would wait for this one's results
        LOG.warning("simulate: stopped after round %d of %d; the result ends there", tables.rounds, rounds)
    if tables.rounds > kept and (tables.rounds < rounds or not checkpoint_after):
        with contextlib.suppress(KeyboardInterrupt):  # a second one: what was played is given all the same
            output.save(runner, tables)
    params, tables = output.whole((runner.state.params, tables))
    preflight.warn_of_few_available(runs.setup.selector, tables.records)
    check_measured(selector, built, tables.evaluations.client_loss, played=True)
    result = output.result(tables, params)
    preflight.warn_of_idle_runs(result)
    return result


class _Tables(NamedTuple):
    """The runs so far: records [R, T, ...] and evaluations [R, E, ...]."""

    records: Record
    evaluations: Evaluation

    @classmethod
    def begin(cls, first: Evaluation, seats: int) -> "_Tables":
        """One evaluation, and records without a row."""

        def none(dtype: Any, *more: int) -> Any:
            return np.zeros((first.loss.shape[0], 0, *more), dtype)

        records = Record(*[none(np.int32)] * len(Record._fields))._replace(
            clients=none(np.int32, seats),
            selected=none(np.int32, seats),
            weights=none(np.float32, seats),
            train_loss=none(np.float32),
            seconds=none(np.float32),
        )
        return cls(records, jax.tree.map(lambda leaf: leaf[:, None], first))

    @property
    def rounds(self) -> int:
        """The number of rounds done."""
        return int(self.records.seconds.shape[1])

    def append(self, new: Chunk, cadence: Cadence) -> "_Tables":
        """Add the rows of a chunk, without those beyond the last round."""

        def join(number: int, old: Any, more: Any) -> Any:
            return np.concatenate([old, more[:, :number]], axis=1) if old.size else more[:, :number]

        step = cadence.step(self.rounds)
        records = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), new[0])
        return _Tables(
            jax.tree.map(functools.partial(join, step), self.records, records),
            jax.tree.map(functools.partial(join, -(-step // cadence.every)), self.evaluations, new[1]),
        )


class _Output(NamedTuple):
    """What is made of the tables: the result, the checkpoint, and what a watch sees."""

    runs: list[dict[str, Any]]
    mine: range
    share: Numbers
    model_bytes: int
    payload: Payload
    cadence: Cadence
    file: Checkpoint | None
    watch: Callable[[Result], object] | None
    clients: tuple[str, ...] = ()
    better: Mapping[str, bool | None] = {}

    def result(self, tables: _Tables, params: Any = None) -> Result:
        """The result so far."""
        return Result(
            runs=[dict(run) for run in self.runs],
            share=self.share,
            model_bytes=self.model_bytes,
            evaluated=np.minimum(np.arange(tables.evaluations.loss.shape[1]) * self.cadence.every, tables.rounds),
            metrics=tables.evaluations.by_name(),
            records=tables.records._asdict(),
            params=params,
            finished=tables.rounds == self.cadence.rounds,
            payload=self.payload,
            clients=self.clients,
            better=dict(self.better),
        )

    def whole(self, tree: Any) -> Any:
        """The rows of all runs, from those of each host where it has only its own."""
        return tree if len(self.mine) == len(self.runs) else hosts.gather(tree, len(self.runs))

    def reached(self, until: tuple[str, float], tables: _Tables) -> bool:
        """Whether every run of this host has reached the target."""
        return bool(np.isfinite(self.result(tables).rounds_to(*until)).all())

    def save(self, runner: Runner, tables: _Tables) -> None:
        """Write the checkpoint, if there is to be one."""
        if self.file is not None:
            whole = self.whole((runner.state, tables))
            if jax.process_index() == 0:
                self.file.save(whole)

    def show(self, tables: _Tables) -> None:
        """Call the watch, if there is one."""
        if self.watch is not None:
            whole = self.whole(tables)
            if jax.process_index() == 0:
                self.watch(self.result(jax.tree.map(_read_only, whole)))


def _read_only(array: Any) -> Any:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
