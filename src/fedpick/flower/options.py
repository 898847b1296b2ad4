"""How a real federation is to be treated: time-outs, quarantine, fall-back, names of metrics, where things are kept."""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedpick.validation import natural, one_of, require


@dataclass(frozen=True)
class Options:
    """What ``Selecting`` takes beside a strategy and a selector.

    ``clients`` is how many clients are expected (K); before the first round they are waited for, at most ``wait``
    seconds, and otherwise for as many as there are seats. ``query`` is the type of the messages that ask for sizes and
    losses, ``poll_timeout`` the seconds that a client has to answer one. Who does not answer, or does not come back
    from training, stays in quarantine for ``quarantine`` rounds, then twice as many, up to eight times; it comes back
    when it answers the roll call. ``fallback`` says what happens when nobody answers a poll: ``"rand"`` draws the
    seats by size among the others, ``"skip"`` leaves the model as it is for a round. ``batch`` is cpow-d's b.

    ``poll_loss`` and ``train_loss`` name the losses in the metrics of the replies. A loss outside ``loss_range`` is a
    lie or a mistake and counts as no answer. ``weights="selection"`` averages as the selector says (plainly, for
    Power-of-Choice), ``"examples"`` leaves the clients' own num-examples. ``folder`` is where the state and the record
    are kept: a server that starts again with the same folder goes on from there.

    >>> Options(poll_timeout=5).fallback
    'rand'
    """

    seed: int = 0
    clients: int | None = None
    wait: float = 120.0
    query: str = "query.loss"
    poll_timeout: float = 30.0
    quarantine: int = 2
    fallback: Literal["rand", "skip"] = "rand"
    batch: int | None = None
    poll_loss: str = "loss"
    train_loss: str = "train_loss"
    loss_range: tuple[float, float] = (0.0, math.inf)
    weights: Literal["selection", "examples"] = "selection"
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        require("Selecting", "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True)
        for name in ("clients", "batch"):
            if getattr(self, name) is not None:
                natural("Selecting", name, getattr(self, name))
        natural("Selecting", "quarantine", self.quarantine)
        require("Selecting", "wait", self.wait, "finite and at least 0", lambda x: (x >= 0) & (x < math.inf))
        require(
            "Selecting", "poll_timeout", self.poll_timeout, "finite and above 0", lambda x: (x > 0) & (x < math.inf)
        )
        one_of("Selecting", "fallback", self.fallback, ("rand", "skip"))
        one_of("Selecting", "weights", self.weights, ("selection", "examples"))
        for name in ("query", "poll_loss", "train_loss"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"Selecting: {name} must be a name, got {getattr(self, name)!r}")
        low, high = self.loss_range
        if not low < high:
            raise ValueError(f"Selecting: loss_range must be (lowest, highest), got {self.loss_range!r}")

    @classmethod
    def of(cls, **options: Any) -> "Options":
        """The options of these names; one that does not exist is named, with those that do.

        >>> Options.of(seed=3).seed
        3
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in names:
                raise ValueError(f"Selecting: option must be one of {', '.join(names)}, got {name!r}")
        return cls(**options)
