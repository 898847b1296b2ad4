"""Optimisers by name, of clients and of the server, and schedules of the learning rate."""

import dataclasses
import functools
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool, Float, Int

from fedpick import registry
from fedpick.pytrees import pytree, static
from fedpick.sim.models import Params
from fedpick.text import shown
from fedpick.validation import known, one_of, owner_name, require

TRIMMED = 5  # of as many seats one is left out at each end
Optimizer = Callable[[Any], optax.GradientTransformation]
Number = float | Float[Array, ""]


def optimizer(owner: object, chosen: Any) -> Optimizer:
    """The function of the learning rate that a name stands for; a function is itself."""
    if isinstance(chosen, str):
        try:
            row = registry.find("Optimizer", chosen)
        except ValueError as error:
            raise ValueError(f"{owner_name(owner)}: {error}") from None
        chosen = functools.partial(registry.load(row.address), **row.fixed)
    if not callable(chosen):
        rule = "a name, or a function of the learning rate such as optax.adam and not optax.adam(0.1)"
        raise ValueError(f"{owner_name(owner)}: optimizer must be {rule}, got {type(chosen).__name__}")
    return chosen  # type: ignore[no-any-return]


@pytree
class Server:
    """What the server does with the averaged update: adds it (plain FedAvg), or hands it to an optimiser.

    Args:
        optimizer: "average", or as in ``Local``: "adam" is FedAdam.
        eta: Learning rate of the server.

    >>> Server("adam", eta=0.01).eta
    0.01
    """

    optimizer: str | Optimizer = static(default="average")
    eta: Number = 1.0

    def __post_init__(self) -> None:
        require(self, "eta", self.eta, "finite and above 0", lambda x: (x > 0) & (x < jnp.inf))
        if not (isinstance(self.optimizer, str) and self.optimizer == "average"):
            optimizer(self, self.optimizer)

    def init(self, params: Params) -> Any:
        """The optimiser's memory."""
        return () if self.optimizer == "average" else optimizer(self, self.optimizer)(self.eta).init(params)

    def combine(self, weights: Float[Array, " m"], trained: Params, before: Params) -> Params:
        """The weighted sum of the seats' updates.

        Args:
            weights: The weights of the seats, 0 for those that did not return.
            trained: Their models, [m, ...].
            before: The model that they began with.
        """
        return jax.tree.map(lambda new, old: weighted_sum(weights, new - old[None]), trained, before)

    def update(self, params: Params, average: Params, state: Any, anybody: Bool[Array, ""]) -> tuple[Params, Any]:
        """The next model from the weighted sum of the seats' updates; without anybody, nothing moves."""
        if self.optimizer == "average":
            eta = jnp.asarray(self.eta, jnp.float32)
            return jax.tree.map(lambda w, change: w + eta * change, params, average), state
        gradient = jax.tree.map(jnp.negative, average)
        change, moved = optimizer(self, self.optimizer)(self.eta).update(gradient, state, params)
        keep = lambda new, old: jnp.where(anybody, new, old)  # noqa: E731
        return jax.tree.map(keep, optax.apply_updates(params, change), params), jax.tree.map(keep, moved, state)


@pytree
class RobustServer(Server):
    """A server that bounds what a single update can do: by its norm, and by an average that outliers do not move.

    The norm bound is that of ``Selecting(norm_bound=...)``, "median" and "trimmed" are Flower's FedMedian and
    FedTrimmedAvg: averages of the seats for each number of the model, whatever the weights.

    Args:
        optimizer: As in ``Server``.
        eta: As in ``Server``.
        norm_bound: An update that is longer than so many times the median of the round is shortened to that.
        average: "mean", by the weights; "median"; or "trimmed", without the highest and the lowest fifth, rounded
            down: none of fewer than five seats.

    >>> RobustServer(norm_bound=2.0, average="median").average
    'median'
    """

    _: dataclasses.KW_ONLY
    norm_bound: Number = float("inf")
    average: Literal["mean", "median", "trimmed"] = static(default="mean")

    def __post_init__(self) -> None:
        Server.__post_init__(self)  # a bare super() would look for the class before its decorator
        require(self, "norm_bound", self.norm_bound, "above 0", lambda x: x > 0)
        one_of(self, "average", self.average, ("mean", "median", "trimmed"))

    def combine(self, weights: Float[Array, " m"], trained: Params, before: Params) -> Params:
        there = weights > 0
        updates = jax.tree.map(lambda new, old: new - old[None], trained, before)
        square = sum(jnp.square(leaf).reshape(len(weights), -1).sum(axis=1) for leaf in jax.tree.leaves(updates))
        norms = jnp.where(there, jnp.sqrt(square), jnp.nan)
        most = jnp.asarray(self.norm_bound, jnp.float32) * jnp.nanmedian(norms)
        scale = jnp.where(norms > most, most / norms, jnp.float32(1))
        updates = jax.tree.map(lambda leaf: leaf * scale.reshape(-1, *[1] * (leaf.ndim - 1)), updates)
        if self.average == "mean":
            return jax.tree.map(lambda leaf: weighted_sum(weights, leaf), updates)
        return jax.tree.map(lambda leaf: weights.sum() * self._middle(leaf, there), updates)

    def warn_of_no_effect(self, m: int) -> None:
        """Warn where a trimmed average leaves nothing out.

        Args:
            m: The number of seats.
        """
        if self.average == "trimmed" and m < TRIMMED:
            rule = f'average="trimmed" must have at least {TRIMMED} seats to leave one out at each end'
            warnings.warn(f'RobustServer: {rule}, got m={m}: it is a plain mean; "median" is not', stacklevel=3)

    def _middle(self, x: Float[Array, "m ..."], there: Bool[Array, " m"]) -> Float[Array, "..."]:
        """The mean of the middle ranks of those who are there, for each number; 0 where nobody is."""
        number, shape = there.sum(dtype=jnp.int32), (-1, *[1] * (x.ndim - 1))
        cut = number // TRIMMED if self.average == "trimmed" else jnp.maximum(number - 1, 0) // 2
        ordered = jnp.sort(jnp.where(there.reshape(shape), x, jnp.inf), axis=0)
        ranks = jnp.arange(len(there), dtype=jnp.int32)
        kept = (ranks >= cut) & (ranks < number - cut)
        total = jnp.where(kept.reshape(shape), ordered, jnp.float32(0)).sum(axis=0)
        return total / jnp.maximum(kept.sum(dtype=jnp.int32), 1).astype(jnp.float32)


def weighted_sum(weights: Float[Array, " m"], x: Float[Array, "m ..."]) -> Float[Array, " ..."]:
    """The sum over the seats; one without weight must not count even when its model is NaN."""
    column = weights.reshape(-1, *[1] * (x.ndim - 1))
    return jnp.sum(jnp.where(column > 0, column * x, jnp.float32(0)), axis=0)


class RateSchedule(Protocol):
    """The multiple of the learning rate in round t."""

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]: ...


@pytree
class StepDecay:
    """A learning rate that is multiplied by a factor at some rounds.

    Args:
        at: The rounds.
        factor: The factor.

    >>> [float(StepDecay(at=(150, 300))(jnp.int32(t))) for t in (0, 150, 400)]
    [1.0, 0.5, 0.25]
    """

    at: tuple[int, ...] = static(default=())
    factor: Number = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.at, tuple):
            raise ValueError(f"StepDecay: at must be a tuple of rounds, got {shown(self.at)}")
        for at in self.at:
            require(self, "at", at, "at least 0", lambda t: t >= 0, whole=True, one=True)
        require(self, "factor", self.factor, "finite and at least 0", lambda x: (x >= 0) & (x < jnp.inf))
        factor = known(self.factor)
        if not self.at and factor is not None and (factor != 0.5).any():
            raise ValueError(f"StepDecay: factor must come with at, the rounds, got factor={shown(self.factor)} alone")

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        passed = sum((t >= at).astype(jnp.float32) for at in self.at) if self.at else jnp.float32(0)
        return jnp.asarray(self.factor, jnp.float32) ** passed


class _Arguments(dict[str, float]):
    """Arguments that can be hashed, as static fields must be."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


# Those whose arguments are numbers; others are made of schedules.
SCHEDULES = tuple(name for name in dir(optax.schedules) if re.fullmatch(r"[a-z]\w*_(schedule|decay)", name))


@pytree
class OptaxSchedule:
    """A schedule of optax by its name, such as "cosine_decay_schedule"; it gives the multiple of eta.

    In Python a schedule itself will do: ``Local(..., schedule=optax.cosine_decay_schedule(1.0, 500))``.

    Args:
        name: A function of ``optax.schedules``.
        arguments: Its arguments.

    >>> arguments = {"init_value": 1.0, "end_value": 0.0, "transition_steps": 4}
    >>> float(OptaxSchedule("linear_schedule", arguments)(jnp.int32(1)))
    0.75
    """

    name: str = static()
    arguments: Mapping[str, float] = static(default=_Arguments())

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", _Arguments(self.arguments))
        one_of(self, "name", self.name, SCHEDULES)
        try:
            first = float(self(jnp.int32(0)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"OptaxSchedule: arguments must suit {self.name} ({error}), got {self.arguments}"
            ) from None
        if not 0 <= first < math.inf:
            rule = f"arguments must give {self.name} a value that is finite and at least 0 in round 0"
            raise ValueError(f"OptaxSchedule: {rule}, got {first} of {self.arguments}")

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        return OwnSchedule(getattr(optax.schedules, self.name)(**self.arguments))(t)


@pytree
class OwnSchedule:
    """Any function of the round, such as an optax schedule; ``Local(schedule=function)`` wraps it for you.

    >>> float(OwnSchedule(lambda t: 1 / (1 + t))(jnp.int32(1)))
    0.5
    """

    function: Callable[[Any], Any] = static()

    def __call__(self, t: Int[Array, ""]) -> Float[Array, ""]:
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            return jnp.asarray(self.function(t), jnp.float32)
