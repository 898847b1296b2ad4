"""A trial: one strategy with one seed in place of the app's own, for ``fedpick compare --app``."""

import contextlib
import dataclasses
import functools
import json
import random
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedpick import config
from fedpick.flower.options import Options
from fedpick.flower.round import Adapter
from fedpick.protocol import Selector, check_strategy
from fedpick.registry import fitting_strategy, parameters_of, parse_name

PATIENCE = 3600.0  # seconds: simulated clients answer one after the other, and none of them is dead
MISSING = (
    "the app's strategy must be wrapped before start(), as in Selecting(FedAvg(), PowerOfChoice(m=3, d=6)) with "
    "`from fedpick.flower import Selecting`"
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What ``Selecting`` takes in place of its own selector, seed and folder while the trial is under way.

    Args:
        strategy: A name as ``fitting_strategy`` takes it.
        seed: The random seed.
        clients: K, the number of clients.
        folder: Where the state and the history are kept.
        m: Clients per round; by default those of the app's own selector.
        d: Candidates; by default those of the app's own selector, or 2m.
        rounds: Rounds; by default the app's own.
        parameters: Other parameters of the strategy.

    >>> Trial(strategy="pow-d", seed=0, clients=10, folder="runs").selector(own=None, rounds=5)
    PowerOfChoice(m=1, d=2, loss='full', score=LocalLoss(by_size=False))
    """

    strategy: str
    seed: int
    clients: int
    folder: str
    m: int | None = None
    d: int | None = None
    rounds: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def selector(self, own: Selector[Any] | None, rounds: int) -> Selector[Any]:
        """The strategy, with the seats and candidates of the app's own selector where none are given.

        Args:
            own: The app's selector.
            rounds: The number of rounds.
        """
        m = self.m or min(getattr(own, "m", 0) or 1, self.clients)
        held: Any = own
        while held is not None and not hasattr(held, "d"):
            held = getattr(held, "selector", None)  # of a wrapper
        d = getattr(held, "d", None)
        if not isinstance(d, int) or not m <= d <= self.clients:
            d = min(2 * m, self.clients)
        offered = {"m": m, "d": self.d or d, "rounds": rounds}
        outer = parameters_of("Selector", parse_name(self.strategy)[0])
        inner = {name: value for name, value in self.parameters.items() if name not in outer}  # of what a wrapper holds
        found: Selector[Any] = fitting_strategy(self.strategy, **{**self.parameters, **offered, **inner})
        # A wrapper's own have their defaults.
        others = {name: value for name, value in self.parameters.items() if name in outer}
        if not others:
            return found
        plain = {**config.unstructure(found, "Selector"), **others}
        return config.structure(plain, Selector, "compare")  # type: ignore[no-any-return]

    def check_form(self, owner: str) -> None:
        """Raise where the strategy has not the form of one: nothing needs to be played to know it.

        Args:
            owner: What the error begins with.
        """
        try:
            selector = self.selector(own=None, rounds=self.rounds or 1)
        except ValueError:  # of a number of seats that the app is to give: it is made again there
            return
        check_strategy(owner, selector, self.strategy)

    def take_over(self, adapter: Adapter, rounds: int) -> Adapter:
        """The adapter of the app's strategy, with this trial's selector, seed and folder; for all that it starts, one.

        Args:
            adapter: That of the app.
            rounds: The number of rounds.
        """
        if adapter.options.folder == self.folder:
            return adapter
        given = {each.name: getattr(adapter.options, each.name) for each in dataclasses.fields(Options)}
        given |= {"seed": self.seed, "clients": self.clients, "folder": self.folder}
        given["identity"] = "reported"  # node ids are random in each run, and runs are paired by their clients
        given |= {name: self.patience(given[name]) for name in ("wait", "poll_timeout")}
        strategy = adapter.wrapped.layers[0]
        found = Adapter(self.selector(adapter.selector, rounds), Options(**given), strategy, adapter.inside)
        found.check_reports.strict = True
        found.reseed = functools.partial(seed_everything, self.seed)
        return found

    def patience(self, seconds: float) -> float:
        """A time-out of the app's, long enough for clients that wait for their turn.

        Args:
            seconds: That of the app.
        """
        return max(seconds, PATIENCE)

    def check_played(self) -> None:
        """Raise where the app has ended without a round, as one of Flower's older API does."""
        if not any((Path(self.folder) / "state").glob("*.state")):
            raise ValueError(f"compare: {MISSING}; got an app that ended without a round")

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Within this context ``Selecting`` takes part in the trial, and a strategy without it is refused."""
        start = Strategy.start

        def wrapped_only(strategy: Strategy, *args: Any, **options: Any) -> Any:
            if not hasattr(strategy, "adapter"):
                raise ValueError(f"compare: {MISSING}, got {type(strategy).__name__}")
            return start(strategy, *args, **options)

        token = TRIAL.set(self)
        Strategy.start = wrapped_only  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            Strategy.start = start  # type: ignore[method-assign]
            TRIAL.reset(token)


def seed_everything(*parts: Any) -> None:
    """Seed Python's, NumPy's and, where they are imported, PyTorch's and TensorFlow's random numbers."""
    seed = zlib.crc32(json.dumps(parts, default=str).encode())
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(seed)


TRIAL: ContextVar[Trial | None] = ContextVar("TRIAL", default=None)
