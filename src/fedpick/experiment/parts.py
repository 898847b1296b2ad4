"""How it is learnt: the model, the training and what is kept, as plain settings that build the real thing."""

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optax  # type: ignore[import-untyped]

from fedpick.metrics import METRICS
from fedpick.sim import (
    AlternatingHalves,
    Always,
    Bernoulli,
    DayAndNight,
    Federation,
    Local,
    Model,
    Server,
    StepDecay,
    logistic,
    mlp,
    quadratic_model,
)
from fedpick.sim.models import Objective
from fedpick.validation import one_of, require

# One object for each name, so that the same name is the same compiled program.
OPTIMIZERS: dict[str, Any] = {
    "sgd": optax.sgd,
    "momentum": functools.partial(optax.sgd, momentum=0.9),
    "adam": optax.adam,
    "adagrad": optax.adagrad,
    "yogi": optax.yogi,
}

AvailabilityPart = Always | AlternatingHalves | Bernoulli | DayAndNight


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression from zero.

    >>> Logistic()
    Logistic()
    """

    def build(self, federation: Federation, objective: Objective) -> Model:
        """The model for these data."""
        return logistic(_dim(federation), federation.classes, objective)


@dataclass(frozen=True)
class MLP:
    """A ReLU network; the default is the paper's.

    >>> MLP(hidden=(32,)).dropout
    0.5
    """

    hidden: tuple[int, ...] = (64, 30)
    dropout: float = 0.5

    def build(self, federation: Federation, objective: Objective) -> Model:
        """The model for these data."""
        return mlp(_dim(federation), federation.classes, self.hidden, self.dropout, objective)


@dataclass(frozen=True)
class QuadraticModel:
    """The model of the quadratic problem, started N(0, spread^2) per entry.

    >>> QuadraticModel().spread
    100.0
    """

    spread: float = 100.0

    def build(self, federation: Federation, objective: Objective) -> Model:
        """The model for these data, which bring their own objective."""
        return quadratic_model(_dim(federation) - 1, self.spread)


ModelPart = Logistic | MLP | QuadraticModel


def _dim(federation: Federation) -> int:
    return int(np.prod(federation.x.shape[1:]))


@dataclass(frozen=True)
class LocalPart:
    """Local training; ``eta`` is multiplied by ``decay`` at each of the rounds ``decay_at``.

    >>> LocalPart(tau=30, b=64, eta=0.005, decay_at=(150, 300)).build().tau
    30
    """

    tau: int
    b: int
    eta: float
    decay_at: tuple[int, ...] = ()
    decay: float = 0.5
    weight_decay: float | None = None
    prox: float | None = None
    batches: Literal["distinct", "replace", "epochs"] = "distinct"
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        one_of("local", "optimizer", self.optimizer, tuple(OPTIMIZERS))
        self.build()

    def build(self) -> Local:
        """What the simulator takes."""
        schedule = StepDecay(self.decay_at, self.decay)
        optimizer = OPTIMIZERS[self.optimizer]
        return Local(self.tau, self.b, self.eta, schedule, self.weight_decay, self.prox, self.batches, optimizer)


@dataclass(frozen=True)
class ServerPart:
    """What the server does with the average: takes it ("average"), or hands it to an optimiser.

    >>> ServerPart("adam", eta=0.01).build().eta
    0.01
    """

    optimizer: str = "average"
    eta: float = 1.0

    def __post_init__(self) -> None:
        one_of("server", "optimizer", self.optimizer, ("average", *OPTIMIZERS))
        self.build()

    def build(self) -> Server:
        """What the simulator takes."""
        return Server(OPTIMIZERS.get(self.optimizer), self.eta)


@dataclass(frozen=True)
class Metrics:
    """What is looked at and kept: evaluations after ``every`` rounds, the first round where ``target`` is at ``value``.

    ``clients`` keeps every client's loss and accuracy, ``model`` the final model.

    >>> Metrics(every=10, target="test_accuracy", value=0.6).target
    'test_accuracy'
    """

    every: int | None = None
    target: str | None = None
    value: float | None = None
    clients: bool = True
    model: bool = False

    def __post_init__(self) -> None:
        if self.every is not None:
            require("metrics", "every", self.every, "at least 1", lambda n: n >= 1, whole=True)
        if self.target is not None:
            one_of("metrics", "target", self.target, METRICS)
        if (self.target is None) != (self.value is None):
            raise ValueError(f"metrics: target and value must be given together, got {self.target!r}, {self.value!r}")
