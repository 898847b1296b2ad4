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

from fedpick.sim._engine.compilation import SplitPrograms, chunk_compiled, first_models, jitted, start
from fedpick.sim._engine.multihost import divide
from fedpick.sim.evaluation import Evaluation
from fedpick.sim.models import Model
from fedpick.sim.round import Progress, Record, Varied, World

ON_CPU = 1  # runs in a bundle
MUCH = 10**9  # samples times parameters: some milliseconds


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
        devices = _devices()[: len(self.seed)]
        self.world = {device: jax.device_put(world, device) for device in devices}
        self.now: list[Any] = []  # of each bundle: its first models, and from then on its Progress
        self.bundles = _deal(len(self.seed), devices, len(self.seed))

    def begin(self) -> Evaluation:
        """Start every run; how good the first models are, [R, ...]."""
        for device, runs in self.bundles:
            seed = jax.device_put(self.seed[runs.start : runs.stop], device)
            self.now.append(jitted(first_models)(self.model, seed))
        found: Evaluation = self._each(lambda *own: jitted(start).lower(*own).compile())
        return found

    def play(
        self, first: int, stop: int | None, every: int, blocks: int, tick: Callable[[float], None]
    ) -> tuple[Record, Evaluation]:
        """A chunk of every run, [R, blocks, every, ...] and [R, blocks, ...]; ``tick`` hears what part is done."""
        form = SplitPrograms if self._evaluates_mostly(every) else chunk_compiled
        new: tuple[Record, Evaluation] = self._each(functools.partial(form, every, blocks), (first, stop), tick)
        return new

    @property
    def state(self) -> Progress:
        """Where every run stands, [R, ...]."""
        now: Progress = _joined(self.now)
        return now

    @state.setter
    def state(self, now: Progress) -> None:
        self.now = [jax.device_put(rows(now, bundle.runs), bundle.device) for bundle in self.bundles]

    def _each(
        self,
        compile_for: Callable[..., Any],
        arguments: tuple[int | None, ...] = (),
        tick: Callable[[float], None] = lambda part: None,
    ) -> Any:
        """What the program for a bundle finds, [R, ...]; the state that it leaves behind stays on the devices."""
        work: list[Any] = []
        compiled: dict[tuple[jax.Device, int], Any] = {}
        for place, (device, runs) in enumerate(self.bundles):
            own = jax.device_put((rows(self.varied, runs), self.seed[runs.start : runs.stop]), device)
            work.append((self.world[device], *own, *self.now[place : place + 1], *arguments))
            if (device, len(runs)) not in compiled:
                # Here and not in the threads below, which do not see the settings of a ``with jax....:`` around us.
                made = compile_for(self.model, *work[-1])
                fits = _that_fit(made, device, len(runs))
                if fits < len(runs):
                    self._cut(fits)
                    return self._each(compile_for, arguments, tick)
                compiled[device, len(runs)] = made
        finished: list[int] = []

        def one(bundle: Bundle, own: Any) -> Any:
            now, found = compiled[bundle.device, len(bundle.runs)](*own)
            found = jax.tree.map(np.asarray, found)
            finished.append(len(bundle.runs))
            tick(sum(finished) / len(self.seed))
            return now, found

        at_once = max(1, (os.cpu_count() or 1) // len(self.world)) if _on_cpu(self.bundles[0].device) else 1
        pools = {device: ThreadPoolExecutor(at_once) for device in self.world}
        try:
            futures = [
                pools[bundle.device].submit(one, bundle, own) for bundle, own in zip(self.bundles, work, strict=True)
            ]
            done = [future.result() for future in futures]
        finally:
            for pool in pools.values():
                pool.shutdown(wait=True, cancel_futures=True)
        self.now = [now for now, _ in done]
        return _joined([found for _, found in done])

    def _evaluates_mostly(self, every: int) -> bool:
        """Whether a CPU has more to do in an evaluation than in the rounds before it, and much."""
        federation, (selector, local, _) = next(iter(self.world.values()))[0], self.varied
        passed = every * (selector.m or federation.num_clients) * local.tau * local.b * 3  # a step is three passes
        evaluated = federation.y.shape[0] + federation.test_y.shape[0]
        parameters = sum(leaf[0].size for leaf in jax.tree.leaves(self.now[0].params))
        return _on_cpu(self.bundles[0].device) and evaluated > passed and evaluated * parameters > MUCH

    def _cut(self, at_most: int) -> None:
        """Smaller bundles, from where the runs stand."""
        now = self.state if self.now else None
        self.bundles = _deal(len(self.seed), list(self.world), at_most)
        if now is not None:
            self.state = now


def _devices() -> list[jax.Device]:
    """All of this host, unless JAX was told to use one (``jax.default_device``)."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None:
        return list(jax.local_devices())
    return [jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen]


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
