"""What one can know of a federation before it trains: the numbers by which the map says where selection pays."""

from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

import numpy as np

from fedpick.arena.slopes import slopes
from fedpick.metrics import Numbers
from fedpick.sim import Federation, Local, Logistic, Model, ModelSpec, QuadraticModel
from fedpick.validation import flag, natural, require


@dataclass(frozen=True)
class Features:
    """A federation in numbers; None is what is not known.

    Args:
        K: Clients.
        m: Clients per round.
        tau: Local steps.
        rounds: Rounds that are planned.
        step: The learning rate as a part of the largest stable one, eta L / 2, where L is the largest eigenvalue of the
            Hessian of the global loss at the first model.
        labels: How far the clients' labels differ from those of all, as mean total variation: 0 is alike, 1 is apart.
        gradients: The mean of the clients' |grad F_k|^2 over |grad F|^2, at the first model; 1 is alike.
        gini: Gini's coefficient of the clients' sizes; 0 is equal.
        convex: Whether the loss is convex in the parameters.

    >>> Features(K=100, m=5, tau=10).fraction
    0.05
    """

    K: int
    m: int
    _: KW_ONLY
    tau: int | None = None
    rounds: int | None = None
    step: float | None = None
    labels: float | None = None
    gradients: float | None = None
    gini: float | None = None
    convex: bool | None = None

    def __post_init__(self) -> None:
        natural("advise", "clients", self.K)
        require(
            "advise", "m", self.m, f"from 1 to the {self.K} clients", lambda m: (m >= 1) & (m <= self.K), whole=True
        )
        rules: Any = {
            "step": ("finite and above 0", lambda x: (x > 0) & (x < np.inf)),
            "labels": ("from 0 to 1", lambda x: (x >= 0) & (x <= 1)),
            "gradients": ("finite and at least 1", lambda x: (x >= 1) & (x < np.inf)),
            "gini": ("at least 0 and below 1", lambda x: (x >= 0) & (x < 1)),
        }
        for name, (rule, holds) in rules.items():
            if getattr(self, name) is not None:
                require("advise", name, getattr(self, name), rule, holds)
        for name in ("tau", "rounds"):
            if getattr(self, name) is not None:
                natural("advise", name, getattr(self, name))
        if self.convex is not None:
            flag("advise", "convex", self.convex)

    @property
    def fraction(self) -> float:
        """C = m / K."""
        return self.m / self.K

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def vector(self) -> Numbers:
        """The coordinates by which federations are near or far, in the order of ``AXES``; NaN is not known."""
        none = float("nan")
        given = {name: none if value is None else float(value) for name, value in asdict(self).items()}
        path = given["rounds"] * given["tau"] * given["step"]
        return np.array(
            [
                np.log(self.K),
                np.log(self.fraction),
                np.log(given["tau"]),
                np.log(given["step"]),
                np.log(path),
                given["labels"],
                np.log(given["gradients"]),
                given["gini"],
                given["convex"],
            ]
        )


AXES = ("log K", "log C", "log tau", "log step", "log path", "labels", "log gradients", "gini", "convex")


def describe(federation: Federation, model: Model | ModelSpec, *, m: int, local: Local, rounds: int) -> Features:
    """The features of a federation, from its data and its first model.

    Args:
        federation: The clients and their data; the first run's where each has its own.
        model: The model, or a description of it. Logistic regression and quadratics are known to be convex.
        m: Clients per round.
        local: Local training, with one learning rate, which is the step size of plain SGD alone.
        rounds: Rounds that are planned.

    >>> from fedpick.sim import Quadratic
    >>> found = describe(Quadratic(K=9).federation(), QuadraticModel(), m=3, local=Local(2, 1, 0.01), rounds=50)
    >>> found.K, round(found.labels, 3), 0 < found.step < 0.1
    (9, 0.0, True)
    """
    one = federation.rows(0)
    curvature, gradients = slopes(one, model)
    return Features(
        K=one.num_clients,
        m=m,
        tau=local.tau,
        rounds=rounds,
        step=float(local.eta) * curvature / 2 if local.optimizer == "sgd" else None,  # others scale their steps
        labels=label_distance(one.summary().labels, np.asarray(one.share)),
        gradients=gradients,
        gini=gini(np.asarray(one.size)),
        convex=is_convex(model),
    )


def is_convex(model: Any) -> bool:
    """Whether the loss of a model is known to be convex.

    Args:
        model: The model, or a description of it.
    """
    return isinstance(model, QuadraticModel) or model == Logistic()


def gini(sizes: Any) -> float:
    """Gini's coefficient: half the mean difference between two of them, over their mean.

    Args:
        sizes: Numbers above 0.

    >>> gini([1, 1, 1]), round(gini([0, 0, 3]), 3)
    (0.0, 0.667)
    """
    ordered = np.sort(np.asarray(sizes, float))
    n = len(ordered)
    return max(0.0, float(np.sum((2 * np.arange(1, n + 1) - n - 1) * ordered) / (n * ordered.sum())))


def label_distance(labels: Any, share: Any) -> float:
    """The mean total variation between a client's labels and those of all, weighted by share.

    Args:
        labels: Samples of each label at each client, [K, classes].
        share: p_k.

    >>> label_distance([[2, 0], [0, 2]], [0.5, 0.5])
    0.5
    """
    held = np.asarray(labels, float)
    own, weight = held / held.sum(axis=1, keepdims=True), np.asarray(share, float)
    apart = np.abs(own - weight @ own).sum(axis=1) / 2
    return float(np.clip(weight @ apart / weight.sum(), 0, 1))
