"""Runs in bundles, one compiled program each, distributed over the devices and cores of this host.

On a GPU a bundle is a batch of runs, as many as fit into its memory. On a CPU it is a single run, because a batch of
small matrix products is no faster there than one after the other, and many bundles keep all cores busy. A run then
depends on no other run, bit for bit, however many there are and wherever they are played.

Where the seats are spread, all devices of all hosts play every bundle together: they are one place.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from fedpick.sim._engine.compilation import (
    EvaluationProgram,
    Program,
    SplitPrograms,
    compile_chunk,
    first_models,
    jit_program,
    start,
)
from fedpick.sim._engine.convolutions import cpu_form, gpu_form, only_products
from fedpick.sim._engine.dense_kernel import kernel_form
from fedpick.sim._engine.multihost import divide
from fedpick.sim._engine.phases import FEW, PhasePrograms
from fedpick.sim._engine.runner import Cadence, Chunk, Runs, Tree, concatenate, rows
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.memory import free_memory
from fedpick.sim.models import Model
from fedpick.sim.round import RunState, Setup
from fedpick.sim.spread import AXIS, EVERYWHERE
from fedpick.sim.stacking import sizes_of_test_sets, trim_test_set
from fedpick.storage import usable_cores

ON_CPU = 1  # runs in a bundle
MUCH = 10**9  # samples times parameters: some milliseconds
MANY_SEATS = 128  # as many as a GPU trains side by side in a kernel, in which a single one is slow
FEW_SEATS = 10  # of all runs of a bundle, in which kernels do little
STRETCH = 5  # steps without a loop around them; more take less time, and long to compile


Place: TypeAlias = jax.Device | NamedSharding
# What decides a program: the place, the number of runs, the federation's part, and the size of the test set.
Form = tuple[Place, int, int, int]


class Bundle(NamedTuple):
    """Some of the runs, and where they are."""

    place: Place
    runs: range


class _Programs(NamedTuple):
    """What plays the bundles and what evaluates them, by form."""

    play: dict[Form, Any]
    evaluation: dict[Form, Any]

    def all(self) -> list[tuple[Form, Any]]:
        """Each with its form."""
        return [*self.play.items(), *self.evaluation.items()]


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
        # A metric of the whole test set must not see more than the run has: then each is a bundle of its own.
        self.test_sizes = sizes_of_test_sets(setup.federation) if setup.metrics else None
        self.progress: list[RunState] = []  # of each bundle
        self.bundles: list[Bundle] = []
        self.own: list[Runs] = []

    def begin(self, cadence: Cadence) -> Evaluation:
        too_many = [self.number]
        while too_many:
            self._divide(at_most=min(too_many))
            self._compile(cadence)
            self.progress = [self._start(bundle, own) for bundle, own in zip(self.bundles, self.own, strict=True)]
            fitting = [(form[1], _runs_that_fit(program, *form[:2])) for form, program in self.programs.all()]
            too_many = [fits for number, fits in fitting if fits < number]
        first: Evaluation = self._run(self.programs.evaluation)
        return first

    def play(self, first: int, cadence: Cadence, tick: Callable[[float], None]) -> Chunk:
        new: Chunk = self._run(self.programs.play, first, cadence.stop, tick=tick)
        return new

    @property
    def state(self) -> RunState:
        progress: RunState = concatenate(self.progress)
        return progress

    @state.setter
    def state(self, progress: RunState) -> None:
        self.progress = [_put(rows(progress, bundle.runs), bundle.place) for bundle in self.bundles]

    def _compile(self, cadence: Cadence) -> None:
        """Begin to compile the programs of every form of bundle, in threads; JAX keeps them.

        Traced here and not in the threads, which do not see the settings of a ``with jax....:`` around us.
        """
        self.programs = _Programs({}, {})
        for bundle, own in zip(self.bundles, self.own, strict=True):
            form = _form(bundle, own)
            if form not in self.programs.play:
                shapes = _shapes(own, bundle.place)
                kind = self._kind(cadence, shapes)
                program = self.programs.play[form] = kind(cadence, own, shapes, 0, cadence.stop)
                whole = isinstance(program, Program)  # a chunk, with its evaluations inside
                self.programs.evaluation[form] = EvaluationProgram(own, shapes) if whole else program.evaluation

    def _start(self, bundle: Bundle, own: Runs) -> RunState:
        models = jit_program(first_models)(own.setup.model, own.seeds)
        # A state that is the same for all runs, such as zeros, would otherwise be on the default device.
        progress: RunState = _put(jit_program(start)(own, models), bundle.place)
        return progress

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
            at_once = max(1, usable_cores() // len(self.setups))
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
        self.bundles = _deal(self.number, list(self.setups), at_most if self.test_sizes is None else 1)
        self.own = []
        for place, runs in self.bundles:
            setup, seeds = Runs(self.setups[place], self.runs.seeds).rows(runs)
            if self.test_sizes is not None:
                trimmed = trim_test_set(setup.federation, int(self.test_sizes[runs.start]))
                setup = dataclasses.replace(setup, federation=trimmed)
            few = self._seats(runs) <= FEW_SEATS and only_products(setup.model, setup.federation, setup.local.b)
            if not _on_cpu(place) and few:  # a loop would take as long as the kernels in it
                setup = dataclasses.replace(setup, unroll=STRETCH)
            setup = dataclasses.replace(setup, model=self._model(setup, place, self._seats(runs)))
            self.own.append(Runs(setup, _put(seeds, place)))

    def _seats(self, runs: range) -> int:
        """How many clients they train at the same time."""
        setup = self.runs.setup
        return len(runs) * (setup.selector.m or setup.federation.num_clients)

    def _model(self, setup: Setup, place: Place, seats: int) -> Model:
        """The model in the form that is fastest there."""
        model, data, local = setup.model, setup.federation, setup.local
        if _on_cpu(place):
            return cpu_form(model, data, local.b)
        if _device(place).platform != "gpu" or self.mesh is not None:
            return model
        model = gpu_form(model, data, local.b) if seats > 1 else model
        return kernel_form(model, data, local) if seats >= MANY_SEATS else model

    def _kind(self, cadence: Cadence, shapes: RunState) -> Callable[..., Any]:
        if self.mesh is not None:
            return compile_chunk
        on_cpu = _on_cpu(self.bundles[0].place)
        if on_cpu and self._evaluates_mostly(cadence.every, shapes):
            return SplitPrograms
        if on_cpu:
            return PhasePrograms if cadence.rounds <= FEW else compile_chunk
        many = self._seats(self.bundles[0].runs) >= MANY_SEATS  # a round takes longer than its calls
        return PhasePrograms if many else SplitPrograms

    def _evaluates_mostly(self, every: int, shapes: RunState) -> bool:
        """Whether an evaluation is more work than the rounds before it, and much."""
        federation, selector, local = self.runs.setup.federation, self.runs.setup.selector, self.runs.setup.local
        trained = every * (selector.m or federation.num_clients) * local.tau * local.b * 3  # a step is three passes
        tests = federation.test_y if federation.test_order is None else federation.test_order
        evaluated = federation.num_samples + tests.shape[-1]
        parameters = sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(shapes.params))
        return evaluated > trained and evaluated * parameters > MUCH


def _shapes(runs: Runs, place: Place) -> RunState:
    """The state of runs as shapes at a place, for which programs can be compiled before it is there."""
    sharding = SingleDeviceSharding(place) if isinstance(place, jax.Device) else place
    models = jax.eval_shape(first_models, runs.setup.model, runs.seeds)

    def shape(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)  # type: ignore[no-untyped-call]

    shapes: RunState = jax.tree.map(shape, jax.eval_shape(start, runs, models))
    return shapes


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
    federation = own.setup.federation
    tests = federation.test_y if federation.test_order is None else federation.test_order
    return bundle.place, len(bundle.runs), federation.part, int(tests.shape[-1])


def _device(place: Place) -> jax.Device:
    """One of the devices."""
    return place if isinstance(place, jax.Device) else min(place.addressable_devices, key=lambda device: device.id)


def _on_cpu(place: Place) -> bool:
    return bool(_device(place).platform == "cpu")


def _runs_that_fit(program: Any, place: Place, number: int) -> int:
    """How many of the runs fit into the free memory of a device, by the compiler's estimate."""
    estimate = program.memory_analysis()  # and so it is compiled, on every platform, when the runs start
    free = free_memory(_device(place))
    if free is None:
        return number
    need = estimate.temp_size_in_bytes + estimate.output_size_in_bytes
    return number if need <= free else max(1, min(number - 1, int(0.9 * number * free / need)))
