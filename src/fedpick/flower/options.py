"""The options of a federation on Flower, beside the strategy and the selector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedpick.flower.sizes import SizeLimits
from fedpick.text import shown
from fedpick.validation import check_kind, check_path, natural, one_of, require

OWNER = "Selecting"
MOST_CLIENTS = 10_000_000
IDENTITIES = ("partition-id", "name", "node")  # what an identity begins with, before "="
# What a run that resumes may change: how long it waits, and where it is kept.
CHANGEABLE = ("wait", "poll_timeout", "quarantine", "min_clients", "outage", "folder")
RESUME = (
    "start the run again when clients are back, or mended (at a smaller learning rate, where updates were not finite): "
    "with a folder, it resumes"
)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


class OutageError(RuntimeError):
    """Too few clients are here, or none returns an update; a run with a folder resumes when it is started again."""


@dataclass(kw_only=True)
class Options:
    """The keyword options of ``Selecting``, which describes them."""

    seed: int = 0
    clients: int | None = None
    wait: float = 120.0
    query: str = "query.loss"
    poll_timeout: float = 30.0
    quarantine: int = 2
    min_clients: int = 1
    outage: float = 600.0
    fallback: Literal["rand", "skip"] = "rand"
    batch: int | None = None
    poll_loss: str = "loss"
    train_loss: str = "train_loss"
    square_loss: str = "square_loss"
    duration: str | None = None
    loss_range: tuple[float, float] = (0.0, math.inf)
    weights: Literal["selection", "examples"] = "selection"
    folder: str | Path | None = None
    size_cap: float | None = 2.0
    sizes: Mapping[str, float] | None = None
    size_caps: Mapping[str, float] | None = None
    identity: Literal["reported", "node"] = "reported"
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        require(OWNER, "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True)
        for name in ("clients", "batch"):
            if getattr(self, name) is not None:
                natural(OWNER, name, getattr(self, name))
        if self.clients is not None:  # each has a row of the server's memory and of its state on disk
            require(
                OWNER, "clients", self.clients, f"at most {MOST_CLIENTS:,}", lambda n: n <= MOST_CLIENTS, whole=True
            )
        for name in ("quarantine", "min_clients"):
            natural(OWNER, name, getattr(self, name))
        for name in ("wait", "outage"):
            require(OWNER, name, getattr(self, name), "finite and at least 0", lambda x: (x >= 0) & (x < math.inf))
        require(OWNER, "poll_timeout", self.poll_timeout, "finite and above 0", lambda x: (x > 0) & (x < math.inf))
        one_of(OWNER, "fallback", self.fallback, ("rand", "skip"))
        one_of(OWNER, "weights", self.weights, ("selection", "examples"))
        if self.size_cap is not None:
            require(OWNER, "size_cap", self.size_cap, "finite and at least 1", lambda x: (x >= 1) & (x < math.inf))
        for name in ("sizes", "size_caps"):
            if getattr(self, name) is not None:
                check_kind(OWNER, name, getattr(self, name), Mapping, " of identities and numbers")
            for identity, size in (getattr(self, name) or {}).items():
                if not isinstance(identity, str) or identity.partition("=")[0] not in IDENTITIES:
                    rule = "by identity, such as 'partition-id=3' or 'name=Oslo'"
                    raise ValueError(f"{OWNER}: {name} must be {rule}, got {shown(identity)}")
                require(
                    OWNER, f"{name}[{identity!r}]", size, "finite and at least 0", lambda x: (x >= 0) & (x < math.inf)
                )
        one_of(OWNER, "identity", self.identity, ("reported", "node"))
        if self.norm_bound is not None:
            require(
                OWNER, "norm_bound", self.norm_bound, "finite and above 0", lambda x: (x > 0) & (x < math.inf), one=True
            )
        for name in ("query", "poll_loss", "train_loss", "square_loss", "duration"):
            if name == "duration" and self.duration is None:
                continue
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"{OWNER}: {name} must be a name, got {shown(getattr(self, name))}")
        bounds = self.loss_range
        if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not all(map(_is_number, bounds)):
            raise ValueError(f"{OWNER}: loss_range must be (lowest, highest), got {shown(bounds)}")
        if not bounds[0] < bounds[1]:
            raise ValueError(f"{OWNER}: loss_range must be (lowest, highest), got {shown(bounds)}")
        if self.folder is not None:
            check_path(OWNER, "folder", self.folder)

    @property
    def size_limits(self) -> SizeLimits:
        """What bounds the sizes that clients claim."""
        return SizeLimits(self.size_cap, self.sizes or {}, self.size_caps or {})

    @property
    def decisions(self) -> dict[str, str]:
        """The options that decide who trains and what is made of it, as texts; what is said of a client by its own."""
        given = {each.name: getattr(self, each.name) for each in fields(Options) if each.name not in CHANGEABLE}
        of_clients = {name: given.pop(name) or {} for name in ("sizes", "size_caps")}
        found = {name: _as_text(value) for name, value in given.items()}
        for name, values in of_clients.items():
            found |= {f"{name}[{identity!r}]": _as_text(value) for identity, value in values.items()}
        return found


def _as_text(value: Any) -> str:
    """A value of an option, alike for numbers that are equal."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_as_text, value))})"
    if _is_number(value):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return repr(value)
