"""Exercises of the shoulder, measured by a watch and held by who wore it: a file of the package seglearn."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.installed import Installed
from fedpick.sim.natural import TEST_SHARE, Samples, check_choice, choose_clients
from fedpick.sim.pickles import read_object
from fedpick.sim.rows import Names, number
from fedpick.validation import require

WATCH = Installed(
    "seglearn",
    "1.2.5",
    ("seglearn/data/watch_dataset.npy",),
    "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537",
)


@dataclass(frozen=True)
class Watch:
    """Seven exercises of the shoulder by ten people with a watch (``seglearn``): a person a client.

    A sample is a window of one of the 140 recordings (a person, an exercise, an arm; 50 measurements a second of three
    accelerations in g and three angular velocities in rad/s); windows do not overlap. x: mean, standard deviation,
    least, greatest and mean absolute step of each of the six, and which arm. y: the exercise. The last fifth of each
    recording's windows, rounded down, is the test set.

    Args:
        least: Samples that a person must have, those of the test set included.
        most: People at most, drawn among these; by default all.
        seed: What they are drawn by.
        length: Measurements in a window.

    >>> Watch().length
    100
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = WATCH
    length: int = 100
    extent = (2_400, 31, 7)

    def __post_init__(self) -> None:
        check_choice(self)
        require(self, "length", self.length, "at least 2", lambda n: n >= 2, whole=True)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "watch, by wearer")

    def samples(self) -> Samples:
        """Those of all people."""
        stored = read_object(self.package.read(self)[0])
        shortest = min(map(len, stored["X"]))
        require(self, "length", self.length, f"at most {shortest}, the shortest recording", lambda n: n <= shortest)
        parts = list(_windows(stored["X"], stored["side"], self.length))
        windows = [len(x) for x, _ in parts]
        client, people = number(np.repeat(np.asarray(stored["subject"], np.int64), windows), "client")
        return Samples(
            np.concatenate([x for x, _ in parts]),
            np.repeat(np.asarray(stored["y"], np.int64), windows),
            client,
            np.concatenate([test for _, test in parts]),
            Names(tuple(f"person {name}" for name in people), tuple(map(str, stored["y_labels"]))),
        )


def _windows(recordings: list[Numbers], sides: Numbers, length: int) -> Iterator[tuple[Numbers, Numbers]]:
    """The inputs of each recording's windows, and which of them are the test set."""
    for recording, side in zip(recordings, sides, strict=True):
        total = len(recording) // length
        window = recording[: total * length].reshape(total, length, -1)
        steps = np.abs(np.diff(window, axis=1)).mean(axis=1)
        arm = np.full((total, 1), side)
        x = [window.mean(axis=1), window.std(axis=1), window.min(axis=1), window.max(axis=1), steps, arm]
        yield np.concatenate(x, axis=1).astype(np.float32), np.arange(total) >= total - int(TEST_SHARE * total)
