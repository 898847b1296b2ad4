"""Compiling the programs of the batches to come, in a thread, while an earlier one is played."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from fedpick.results import Result

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
        batches: Batches that are played one after the other; those on a GPU, or on several hosts, are left alone.
    """

    def __init__(self, batches: Sequence[Playable]) -> None:
        alone = jax.default_backend() == "cpu" and jax.process_count() == 1
        self.waiting = list(batches[1:MOST]) if alone else []
        self.compiled = {id(batch): threading.Event() for batch in self.waiting}
        self.stopped = False
        self.thread: threading.Thread | None = None

    def __enter__(self) -> "Ahead":
        return self

    def start(self) -> None:
        """Begin, once the first batch has its programs: the others share some of them."""
        if self.thread is None and self.waiting:
            self.thread = threading.Thread(target=self._compile, name="fedpick-ahead")
            self.thread.start()

    def wait(self, batch: Playable) -> None:
        """Wait until nothing of this batch is being compiled, which would otherwise be done twice."""
        if self.thread is not None and id(batch) in self.compiled:
            self.compiled[id(batch)].wait()

    def _compile(self) -> None:
        def leave(result: Result) -> None:
            raise _CompiledError

        for batch in self.waiting:
            with contextlib.suppress(Exception):  # raised again when the batch is played
                if not self.stopped:
                    batch.simulate(None, leave)
            self.compiled[id(batch)].set()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.stopped = True
        if self.thread is not None and kind is not KeyboardInterrupt:  # nobody waits for a compiler after Ctrl-C
            self.thread.join()
