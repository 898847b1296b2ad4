"""Runs played together: cut into bundles, one program each, that are dealt to the devices and cores at hand.

On a GPU a bundle is a batch of runs, as many as fit into its memory. On a CPU it is a single run, because a batch of
small matrix products is no faster there than one after the other, and so many of them keep all cores busy; and what a
run does then depends on no other run, bit for bit, however many there are and wherever they are played.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.sim.evaluation import Evaluation
from fedpick.sim.hosts import divide
from fedpick.sim.loop import Progress, Record, Setup, Varied, World, begin, evaluate, play
from fedpick.sim.models import Model

Played = tuple[Progress, tuple[Record, Evaluation]]
ON_CPU = 1  # runs in a bundle


class Bundle(NamedTuple):
    """These runs, on this device."""

    device: jax.Device
    runs: range


class Bundles:
    """The runs of this host, where they are and how far they have come.

    ``varied`` has an entry for each run in what differs between them, and a single number in what does not.
    """

    def __init__(self, model: Model, world: World, varied: Varied, seed: Any) -> None:
        self.model, self.varied, self.seed = model, varied, np.asarray(seed)
        devices = jax.local_devices()[: len(self.seed)]
        self.world = {device: jax.device_put(world, device) for device in devices}
        self.now: list[Progress] = []
        self.bundles = _deal(len(self.seed), devices, len(self.seed))

    def begin(self) -> Evaluation:
        """Start every run; how good the first models are, [R, ...]."""
        started = self._each(_begin)
        self.now = [now for now, _ in started]
        found: Evaluation = _joined([found for _, found in started])
        return found

    def play(
        self, start: int, stop: int | None, every: int, blocks: int, tick: Callable[[int], None]
    ) -> tuple[Record, Evaluation]:
        """A chunk of every run, [R, blocks, every, ...] and [R, blocks, ...]; ``tick`` hears how many runs have it."""
        device = self.bundles[0].device
        chunk = _compiled_for(device.platform, self._trains_mostly(every))
        played = self._each(chunk, {"every": every, "blocks": blocks}, lambda now: (stop, now, start), tick)
        self.now = [now for now, _ in played]
        new: tuple[Record, Evaluation] = _joined([new for _, new in played])
        return new

    @property
    def standing(self) -> Progress:
        """Where every run stands, [R, ...]."""
        now: Progress = _joined(self.now)
        return now

    @standing.setter
    def standing(self, now: Progress) -> None:
        self.now = [jax.device_put(rows(now, bundle.runs), bundle.device) for bundle in self.bundles]

    def _each(
        self,
        program: Any,
        options: dict[str, int] | None = None,
        state: Callable[[Progress], tuple[Any, ...]] | None = None,
        tick: Callable[[int], None] = lambda runs: None,
    ) -> list[Any]:
        """What the program gives for each bundle: the new state, left on its device, and all else, fetched."""
        arguments: list[Any] = []
        compiled: dict[tuple[jax.Device, int], Any] = {}
        for place, (device, runs) in enumerate(self.bundles):
            mine = jax.device_put((rows(self.varied, runs), self.seed[runs.start : runs.stop]), device)
            arguments.append((self.world[device], *mine, *(state(self.now[place]) if state else ())))
            if (device, len(runs)) not in compiled:
                # Here and not in the threads below, which do not see the settings of a ``with jax....:`` around us.
                made = program.lower(self.model, *arguments[-1], **options or {}).compile()
                fits = _that_fit(made, device, len(runs))
                if fits < len(runs):
                    self._cut(fits)
                    return self._each(program, options, state, tick)
                compiled[device, len(runs)] = made
        finished: list[int] = []

        def one(bundle: Bundle, arguments: Any) -> Any:
            now, found = compiled[bundle.device, len(bundle.runs)](*arguments)
            found = jax.tree.map(np.asarray, found)
            finished.append(len(bundle.runs))
            tick(sum(finished))
            return now, found

        at_once = max(1, (os.cpu_count() or 1) // len(self.world)) if _on_cpu(self.bundles[0].device) else 1
        pools = {device: ThreadPoolExecutor(at_once) for device in self.world}
        try:
            work = zip(self.bundles, arguments, strict=True)
            futures = [pools[bundle.device].submit(one, bundle, mine) for bundle, mine in work]
            return [future.result() for future in futures]
        finally:
            for pool in pools.values():
                pool.shutdown(wait=True, cancel_futures=True)

    def _trains_mostly(self, every: int) -> bool:
        """Whether training passes over more samples than evaluation; a step is three passes."""
        federation, (selector, local, _) = next(iter(self.world.values()))[0], self.varied
        seats = selector.m or federation.num_clients
        evaluated = federation.y.shape[0] + federation.test_y.shape[0]
        return bool(every * seats * local.tau * local.b * 3 > evaluated)

    def _cut(self, at_most: int) -> None:
        """Smaller bundles, from where the runs stand."""
        now = self.standing if self.now else None
        self.bundles = _deal(len(self.seed), list(self.world), at_most)
        if now is not None:
            self.standing = now


def _deal(number: int, devices: list[jax.Device], at_most: int) -> list[Bundle]:
    """An even share of the runs for each device, in bundles of nearly the same size and no larger than allowed."""
    bundles = []
    for device, share in zip(devices, divide(range(number), len(devices)), strict=True):
        size = ON_CPU if _on_cpu(device) else at_most
        bundles += [Bundle(device, runs) for runs in divide(share, -(-len(share) // size))]
    return bundles


def _on_cpu(device: jax.Device) -> bool:
    return bool(device.platform == "cpu")


def _that_fit(compiled: Any, device: jax.Device, number: int) -> int:
    """How many of the runs fit into what is free on the device, by what the compiler says that the program takes."""
    free = free_memory(device)
    if free is None:
        return number
    taken = compiled.memory_analysis()
    need = taken.temp_size_in_bytes + taken.output_size_in_bytes
    return number if need <= free else max(1, min(number - 1, int(0.9 * number * free / need)))


def free_memory(device: jax.Device) -> int | None:
    """Bytes that a program may still take on a device; None where the device does not say, as a CPU does not."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"] if stats and "bytes_limit" in stats else None


def rows(tree: Any, runs: range) -> Any:
    """What belongs to these runs: their rows, and numbers that all runs share."""
    return jax.tree.map(lambda leaf: leaf[runs.start : runs.stop] if jnp.ndim(leaf) else leaf, tree)


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


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
) -> Played:
    """A chunk of rounds of every run: records [R, blocks, every, ...] and evaluations [R, blocks, ...]."""

    def one(varied: Varied, seed: Any, now: Progress) -> Played:
        return play(Setup.of(model, world, varied), seed, now, start, stop, every, blocks)

    played: Played = _together(one, varied, seed, now)
    return played


@functools.partial(jax.jit, static_argnames=("model",))
def _begin(model: Model, world: World, varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
    """Every run before its first round."""

    def one(varied: Varied, seed: Any) -> tuple[Progress, Evaluation]:
        whole = Setup.of(model, world, varied)
        return evaluate(whole, begin(whole, seed))

    started: tuple[Progress, Evaluation] = _together(one, varied, seed)
    return started


def _together(one: Callable[..., Any], varied: Varied, seed: Any, *now: Progress) -> Any:
    """vmap over the runs; a single run goes without, because a batch of one is slower than none."""
    if seed.shape[0] > 1:
        # What all runs share stays a single number: a copy for each would be read at every step.
        shared = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, varied)
        return jax.vmap(one, in_axes=(shared, 0, *[0] * len(now)))(varied, seed, *now)
    alone = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, (varied, seed, *now))
    return jax.tree.map(lambda leaf: leaf[None], one(*alone))


@functools.cache
def _compiled_for(platform: str, trains_mostly: bool) -> Any:
    """``_chunk``, compiled as suits the device and the work.

    On a CPU, XLA's own matrix products take a fifth less time in training, with its small batches, than the library
    that it hands them to (YNNPACK), and a tenth more in an evaluation.
    """
    options = {"xla_cpu_experimental_ynn_fusion_type": ""} if platform == "cpu" and trains_mostly else None
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(jnp.float32(0)).compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such option
        options = None
    return jax.jit(_chunk, static_argnames=("model", "every", "blocks"), compiler_options=options)


def traced(
    model: Model, world: World, varied: Varied, seed: Any, stop: int | None, every: int, blocks: int
) -> tuple[Any, Any]:
    """The program of a chunk of these runs as JAX writes it down, and the shapes of what it gives; nothing is run."""
    now, _ = jax.eval_shape(functools.partial(_begin, model), world, varied, seed)
    chunk = functools.partial(_chunk, model, every=every, blocks=blocks)
    program, shapes = jax.make_jaxpr(chunk, return_shape=True)(world, varied, seed, stop, now, 0)
    return program, shapes
