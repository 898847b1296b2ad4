"""Compiling the programs of the batches to come, in threads, while an earlier one is played."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax

from fedpick.results import Result
from fedpick.storage import usable_cores

MOST = 8  # batches whose programs are held at once


class Playable(Protocol):
    """What ``Batch`` is to this file."""

    def simulate(self, checkpoint: Any = None, watch: Callable[[Result], None] | None = None) -> Result:
        """Play it."""


class _CompiledError(Exception):
    """Raised in place of the first round."""


class Ahead:
    """The programs of some batches, compiled in their order as soon as ``start`` is called.

    A batch's simulation is begun and left before its first round; JAX keeps the programs. What goes wrong here goes
    wrong again when the batch is played, and is raised there.

    Args:
        batches: Batches that are played one after the other; those on several hosts, or on a GPU whose memory is half
            full, are left alone.
    """

    def __init__(self, batches: Sequence[Playable]) -> None:
        self.waiting = list(batches[1:MOST]) if jax.process_count() == 1 else []
        self.compiled = {id(batch): threading.Event() for batch in self.waiting}
        self.stopped = False
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> "Ahead":
        return self

    def start(self) -> None:
        """Begin, once the first batch has its programs: the others share some of them."""
        if not self.threads and self.waiting:
            # A CPU that compiles does not play. Beside a GPU there are cores to spare, and a program takes them long.
            number = 1 if jax.default_backend() == "cpu" else max(1, min(MOST, usable_cores() // 4))
            left = iter(self.waiting)
            lock = threading.Lock()
            for place in range(number):
                thread = threading.Thread(target=self._compile, args=(left, lock), name=f"fedpick-ahead-{place}")
                self.threads.append(thread)
                thread.start()

    def wait(self, batch: Playable) -> None:
        """Wait until nothing of this batch is being compiled, which would otherwise be done twice."""
        if self.threads and id(batch) in self.compiled:
            self.compiled[id(batch)].wait()

    def _compile(self, left: Iterator[Playable], lock: threading.Lock) -> None:
        def leave(result: Result) -> None:
            raise _CompiledError

        while True:
            with lock:
                batch = next(left, None)
            if batch is None:
                return
            with contextlib.suppress(Exception):  # raised again when the batch is played
                if not self.stopped and _has_room():
                    batch.simulate(None, leave)
            self.compiled[id(batch)].set()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.stopped = True
        if kind is not KeyboardInterrupt:  # nobody waits for a compiler after Ctrl-C
            for thread in self.threads:
                thread.join()


def _has_room() -> bool:
    """Whether half of the first device's memory is free, where it says."""
    stats = jax.local_devices()[0].memory_stats()
    return not stats or "bytes_limit" not in stats or stats["bytes_in_use"] < stats["bytes_limit"] / 2
