"""Runs in bundles, one compiled program each, distributed over the devices and cores of this host.

On a GPU a bundle is a batch of runs, as many as fit into its memory. On a CPU it is a single run, because a batch of
small matrix products is no faster there than one after the other, and many bundles keep all cores busy. A run then
depends on no other run, bit for bit, however many there are and wherever they are played.

Where the seats are spread, all devices of all hosts play every bundle together: they are one place.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedpick.sim._engine.compilation import (
    EvaluationProgram,
    SplitPrograms,
    compile_chunk,
    first_models,
    jit_program,
    start,
)
from fedpick.sim._engine.cpu import cpu_form
from fedpick.sim._engine.dense_kernel import gpu_form
from fedpick.sim._engine.multihost import divide
from fedpick.sim._engine.phases import FEW, PhasePrograms
from fedpick.sim._engine.runner import Cadence, Chunk, Runs, Tree, concatenate, rows
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.memory import free_memory
from fedpick.sim.round import RunState
from fedpick.sim.spread import AXIS, EVERYWHERE

ON_CPU = 1  # runs in a bundle
MUCH = 10**9  # samples times parameters: some milliseconds
MANY_SEATS = 128  # as many as a GPU trains side by side in a kernel, in which a single one is slow
FEW_SEATS = 10  # of all runs of a bundle, in which kernels do little
STRETCH = 5  # steps without a loop around them; more take less time, and long to compile


Place: TypeAlias = jax.Device | NamedSharding
Form = tuple[Place, int, int]  # what decides a program: the place, the number of runs, and the federation's part


class Bundle(NamedTuple):
    """Some of the runs, and where they are."""

    place: Place
    runs: range


class Bundles:
    """The compiled ``Runner``: the runs of this host in bundles, whose states stay on the devices.

    Args:
        runs: The runs.
        spread_seats: Whether all devices, of all hosts, play each run together; otherwise each has runs of its own.
    """

    def __init__(self, runs: Runs, spread_seats: bool = False) -> None:
        self.runs, self.number = runs, len(runs.seeds)
        self.mesh = Mesh(np.asarray(jax.devices()), (AXIS,)) if spread_seats else None
        places = _devices()[: self.number] if self.mesh is None else [NamedSharding(self.mesh, EVERYWHERE)]
        setup = dataclasses.replace(runs.setup, mesh=self.mesh)
        self.setups = {place: _put(setup, place) for place in places}
        self.progress: list[RunState] = []  # of each bundle
        self._divide(at_most=self.number)

    def begin(self, cadence: Cadence) -> Evaluation:
        self.progress = []
        for bundle, own in zip(self.bundles, self.own, strict=True):
            models = jit_program(first_models)(own.setup.model, own.seeds)
            # A state that is the same for all runs, such as zeros, would otherwise be on the default device.
            self.progress.append(_put(jit_program(start)(own, models), bundle.place))
        if self.mesh is None:
            # Who watches the start knows that all is compiled; JAX keeps the programs.
            self._compile(functools.partial(self._programs(cadence), cadence), 0, cadence.stop)
        first: Evaluation = self._run(self._compile(EvaluationProgram))
        return first

    def play(self, first: int, cadence: Cadence, tick: Callable[[float], None]) -> Chunk:
        programs = self._compile(functools.partial(self._programs(cadence), cadence), first, cadence.stop)
        new: Chunk = self._run(programs, first, cadence.stop, tick=tick)
        return new

    @property
    def state(self) -> RunState:
        progress: RunState = concatenate(self.progress)
        return progress

    @state.setter
    def state(self, progress: RunState) -> None:
        self.progress = [_put(rows(progress, bundle.runs), bundle.place) for bundle in self.bundles]

    def _compile(self, compile_for: Callable[..., Any], *arguments: int | None) -> dict[Form, Any]:
        """A program for every form of bundle; the bundles are made smaller until all fit into memory.

        Not in the threads of ``_run``, which do not see the settings of a ``with jax....:`` around us.
        """
        programs: dict[Form, Any] = {}
        for bundle, own, progress in zip(self.bundles, self.own, self.progress, strict=True):
            number = len(bundle.runs)
            if _form(bundle, own) not in programs:
                program = compile_for(own, progress, *arguments)
                fits = _runs_that_fit(program, bundle.place, number)
                if fits < number:
                    state = self.state
                    self._divide(at_most=fits)
                    self.state = state
                    return self._compile(compile_for, *arguments)
                programs[_form(bundle, own)] = program
        return programs

    def _run(
        self,
        programs: dict[Form, Any],
        *arguments: int | None,
        tick: Callable[[float], None] = lambda fraction: None,
    ) -> Any:
        """Run every bundle's program in threads: its output as NumPy arrays [R, ...], its state left on the device."""
        finished: list[int] = []

        def run(bundle: Bundle, own: Runs, progress: RunState) -> Any:
            progress, output = programs[_form(bundle, own)](own, progress, *arguments)
            output = jax.tree.map(np.asarray, output)
            finished.append(len(bundle.runs))
            tick(sum(finished) / self.number)
            return progress, output

        at_once = 1  # devices that wait for one another must have one order
        if self.mesh is None and _on_cpu(self.bundles[0].place):
            at_once = max(1, (os.cpu_count() or 1) // len(self.setups))
        pools = {place: ThreadPoolExecutor(at_once) for place in self.setups}
        try:
            futures = [
                pools[bundle.place].submit(run, bundle, own, progress)
                for bundle, own, progress in zip(self.bundles, self.own, self.progress, strict=True)
            ]
            done = [future.result() for future in futures]
        finally:
            for pool in pools.values():
                pool.shutdown(wait=True, cancel_futures=True)
        self.progress = [progress for progress, _ in done]
        return concatenate([output for _, output in done])

    def _divide(self, at_most: int) -> None:
        """Divide the runs into bundles of at most this size, and put each bundle's own numbers where it is."""
        self.bundles = _deal(self.number, list(self.setups), at_most)
        self.own: list[Runs] = []
        for place, runs in self.bundles:
            setup, seeds = Runs(self.setups[place], self.runs.seeds).rows(runs)
            seats = len(runs) * (setup.selector.m or setup.federation.num_clients)
            if not _on_cpu(place) and seats <= FEW_SEATS:  # a loop would take as long as the kernels in it
                setup = dataclasses.replace(setup, unroll=STRETCH)
            if _on_cpu(place):
                setup = dataclasses.replace(setup, model=cpu_form(setup.model, setup.federation, setup.local.b))
            elif _device(place).platform == "gpu" and self.mesh is None and seats >= MANY_SEATS:
                setup = dataclasses.replace(setup, model=gpu_form(setup.model, setup.federation, setup.local))
            self.own.append(Runs(setup, _put(seeds, place)))

    def _programs(self, cadence: Cadence) -> Callable[..., Any]:
        if self.mesh is not None:
            return compile_chunk
        if not _on_cpu(self.bundles[0].place) or self._evaluates_mostly(cadence.every):
            return SplitPrograms
        return PhasePrograms if cadence.rounds <= FEW else compile_chunk

    def _evaluates_mostly(self, every: int) -> bool:
        """Whether an evaluation is more work than the rounds before it, and much."""
        federation, selector, local = self.runs.setup.federation, self.runs.setup.selector, self.runs.setup.local
        trained = every * (selector.m or federation.num_clients) * local.tau * local.b * 3  # a step is three passes
        tests = federation.test_y if federation.test_order is None else federation.test_order
        evaluated = federation.num_samples + tests.shape[-1]
        parameters = sum(leaf[0].size for leaf in jax.tree.leaves(self.progress[0].params))
        return evaluated > trained and evaluated * parameters > MUCH


def _devices() -> list[jax.Device]:
    """All of this host, or the one set as ``jax.default_device``."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None:
        return list(jax.local_devices())
    return [jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen]


def _put(tree: Tree, place: Place) -> Tree:
    """A pytree of arrays at a place; on devices of other hosts, too, which have the same arrays."""
    if isinstance(place, jax.Device) or place.is_fully_addressable:
        put: Tree = jax.device_put(tree, place)
        return put

    def everywhere(leaf: Any) -> Any:
        array = np.asarray(jnp.asarray(leaf))
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    put = jax.tree.map(everywhere, tree)
    return put


def _deal(number: int, places: list[Place], at_most: int) -> list[Bundle]:
    """An even share of the runs for each place, in bundles of nearly the same size and no larger than allowed."""
    bundles = []
    for place, share in zip(places, divide(range(number), len(places)), strict=True):
        size = ON_CPU if _on_cpu(place) else at_most
        bundles += [Bundle(place, runs) for runs in divide(share, -(-len(share) // size))]
    return bundles


def _form(bundle: Bundle, own: Runs) -> Form:
    return bundle.place, len(bundle.runs), own.setup.federation.part


def _device(place: Place) -> jax.Device:
    """One of the devices."""
    return place if isinstance(place, jax.Device) else min(place.addressable_devices, key=lambda device: device.id)


def _on_cpu(place: Place) -> bool:
    return bool(_device(place).platform == "cpu")


def _runs_that_fit(program: Any, place: Place, number: int) -> int:
    """How many of the runs fit into the free memory of a device, by the compiler's estimate."""
    free = free_memory(_device(place))
    if free is None:
        return number
    estimate = program.memory_analysis()
    need = estimate.temp_size_in_bytes + estimate.output_size_in_bytes
    return number if need <= free else max(1, min(number - 1, int(0.9 * number * free / need)))
