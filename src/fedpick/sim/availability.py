"""The clients' devices: who is available, who drops out, and how fast they are on the simulated clock."""

import dataclasses
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.metrics import SCALAR
from fedpick.pytrees import pytree
from fedpick.validation import known, natural, require

TRAINING = 3.0  # passes over a sample: forward, and backward at twice its cost


class Availability(Protocol):
    """Who is there in round t, Bool[K]."""

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]: ...


@pytree
class Always:
    """Everybody, always.

    >>> import jax
    >>> Always()(jax.random.key(0), 0, 3)
    Array([ True,  True,  True], dtype=bool)
    """

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        return jnp.ones(K, bool)


@pytree
class AlternatingHalves:
    """The paper's intermittent availability: two fixed halves take turns, and a random part of the active one is away.

    The halves are the clients below K/2 and the others.

    Args:
        away: Fraction of the active half that is away, rounded to whole clients; the paper's text says 0.1, its code
            0.2.

    >>> import jax
    >>> AlternatingHalves(away=0.0)(jax.random.key(0), 1, 4)
    Array([False, False,  True,  True], dtype=bool)
    """

    away: float | Float[Array, ""] = 0.1

    def __post_init__(self) -> None:
        require(self, "away", self.away, "at least 0 and below 1", lambda x: (x >= 0) & (x < 1))

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        active = (jnp.arange(K, dtype=jnp.int32) >= K // 2) == (jnp.asarray(t, jnp.int32) % 2 == 1)
        number = jnp.sum(active, dtype=jnp.float32)
        stay = (number - jnp.round(jnp.asarray(self.away, jnp.float32) * number)).astype(jnp.int32)
        return sampling.race(key, active.astype(jnp.float32), stay)


@pytree
class Bernoulli:
    """Each client is there with its own probability, independently in each round.

    Args:
        probability: Probability of being there: one number, or one per client (names are in sorted order).

    >>> import jax
    >>> Bernoulli(probability=1.0)(jax.random.key(0), 0, 2)
    Array([ True,  True], dtype=bool)
    """

    probability: float | Float[Array, " K"]

    def __post_init__(self) -> None:
        _lists_as_arrays(self, "probability")
        _probability(self, "probability", self.probability)

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        return sampling.uniforms(key, (K,)) < _per_client(self, "probability", self.probability, K)


@pytree
class DayAndNight:
    """Clients come and go with the hour: the probability that a client is there follows a sine.

    The clients' peaks are spread evenly over the period, as time zones are.

    Args:
        period: Rounds in a day.
        day: Probability of being there at the peak.
        night: Probability of being there half a period later.

    >>> import jax
    >>> DayAndNight(period=24, day=1.0, night=1.0)(jax.random.key(0), 5, 2)
    Array([ True,  True], dtype=bool)
    """

    period: float | Float[Array, ""] = 24.0
    day: float | Float[Array, ""] = 0.9
    night: float | Float[Array, ""] = 0.1

    def __post_init__(self) -> None:
        require(self, "period", self.period, "above 0", lambda x: x > 0)
        _probability(self, "day", self.day)
        _probability(self, "night", self.night)

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        phase = jnp.arange(K, dtype=jnp.float32) / K
        angle = 2 * jnp.pi * (jnp.asarray(t, jnp.float32) / jnp.asarray(self.period, jnp.float32) + phase)
        day, night = jnp.asarray(self.day, jnp.float32), jnp.asarray(self.night, jnp.float32)
        return sampling.uniforms(key, (K,)) < night + (day - night) * (1 + jnp.sin(angle)) / 2


@pytree
class Trace:
    """A record of availability; after its last round it starts again.

    Args:
        present: Who was there, a row for each round.

    >>> import jax
    >>> Trace(jnp.array([[True, False], [False, True]]))(jax.random.key(0), 3, 2)
    Array([False,  True], dtype=bool)
    """

    present: Bool[Array, "rounds K"]

    def __post_init__(self) -> None:
        numbers = known(self.present)
        if numbers is not None and (numbers.ndim != 2 or numbers.dtype != bool or not len(numbers)):
            got = f"shape {numbers.shape}, dtype {numbers.dtype}"
            raise ValueError(f"Trace: present must be Bool[rounds, K] with a round at least, got {got}")

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        present = jnp.asarray(self.present)
        if present.shape[1] != K:
            raise ValueError(f"Trace: present must have a column for each of K={K} clients, got {present.shape[1]}")
        return present[jnp.asarray(t, jnp.int32) % present.shape[0]]


@pytree
class Failures:
    """Who, once selected, drops out in the middle of the round.

    Args:
        probability: Probability of dropping out: one number, or one per client (names are in sorted order).
        dropped: A record of who fails if selected, a row for each round, in addition to the probability.

    >>> import jax
    >>> Failures(probability=0.0)(jax.random.key(0), 0, 2)
    Array([False, False], dtype=bool)
    """

    probability: float | Float[Array, " K"] = 0.0
    dropped: Bool[Array, "rounds K"] | None = None

    def __post_init__(self) -> None:
        _lists_as_arrays(self, "probability")
        _probability(self, "probability", self.probability)

    def __call__(self, key: PRNGKeyArray, t: Any, K: int) -> Bool[Array, " K"]:
        fails = sampling.uniforms(key, (K,)) < _per_client(self, "probability", self.probability, K)
        return fails if self.dropped is None else fails | Trace(self.dropped)(key, t, K)


@pytree
class Devices:
    """Speeds of the clients, each one number for all or one per client (names are in sorted order).

    Args:
        speed: Samples per second in a forward pass; training a sample costs three.
        bandwidth: Bytes per second each way.
        latency: Seconds per message.
        deadline: Seconds to train in; a selected client that takes longer leaves its seat empty, and the round lasts
            until then.

    >>> Devices(speed=100.0, bandwidth=1e6).poll_seconds(jnp.array([50]), model_bytes=10**6)
    Array([1.6000041], dtype=float32)
    """

    speed: float | Float[Array, " K"] = 1000.0
    bandwidth: float | Float[Array, " K"] = 1e6
    latency: float | Float[Array, " K"] = 0.05
    _: dataclasses.KW_ONLY
    deadline: float = float("inf")

    def __post_init__(self) -> None:
        _lists_as_arrays(self, "speed", "bandwidth", "latency")
        rule = "finite where there is one for each client"  # infinity alone is stored as a text
        for name in ("speed", "bandwidth", "deadline"):
            require(self, name, getattr(self, name), "above 0", lambda x: x > 0)
            require(self, name, getattr(self, name), rule, lambda x: (x < np.inf) | (np.ndim(x) == 0))
        require(self, "deadline", self.deadline, "one number", lambda x: np.ndim(x) == 0)
        require(self, "latency", self.latency, "at least 0", lambda x: x >= 0)
        require(self, "latency", self.latency, rule, lambda x: (x < np.inf) | (np.ndim(x) == 0))

    @classmethod
    def lognormal(cls, num_clients: int, spread: float = 1.0, seed: int = 0, **options: Any) -> "Devices":
        """Devices whose speed and bandwidth differ by a log-normal factor of median 1, as phones do.

        Args:
            num_clients: K.
            spread: Standard deviation of the logarithm of the factor.
            seed: Seed of the factors.
            **options: Fields of ``Devices``, to which the factors apply.

        >>> Devices.lognormal(3).speed.shape
        (3,)
        """
        K = natural(cls, "num_clients", num_clients)
        require(cls, "spread", spread, "at least 0 and at most 10", lambda x: (x >= 0) & (x <= 10) & (np.ndim(x) == 0))
        require(cls, "seed", seed, "at least 0", lambda n: n >= 0, whole=True)
        rng = np.random.default_rng(seed)
        plain = cls(**options)
        fast, wide = rng.lognormal(0.0, spread, (2, K)).astype(np.float32)
        return dataclasses.replace(
            plain, speed=jnp.asarray(plain.speed * fast), bandwidth=jnp.asarray(plain.bandwidth * wide)
        )

    def poll_seconds(self, samples: Int[Array, " K"], model_bytes: int, trains: bool = False) -> Float[Array, " K"]:
        """How long each client takes to get the model, evaluate it on so many samples, and answer with a scalar.

        Args:
            samples: Samples of each client.
            model_bytes: Size of the model.
            trains: Whether it trains on them instead.
        """
        passes = samples.astype(jnp.float32)
        return self._seconds(TRAINING * passes if trains else passes, model_bytes + SCALAR)

    def train_seconds(self, samples: Int[Array, " K"], model_bytes: int) -> Float[Array, " K"]:
        """How long each client takes to get the model, train on so many samples, and send it back with its loss."""
        return self._seconds(TRAINING * samples.astype(jnp.float32), 2 * model_bytes + SCALAR)

    def upload_seconds(self, model_bytes: int, num_clients: int) -> Float[Array, " K"]:
        """How long each client takes to send its update.

        Args:
            model_bytes: Size of the model.
            num_clients: K.
        """
        names = ("bandwidth", "latency")
        bandwidth, latency = (_per_client(self, name, getattr(self, name), num_clients) for name in names)
        seconds: Float[Array, " K"] = latency + jnp.float32(model_bytes + SCALAR) / bandwidth
        return seconds

    def _seconds(self, passes: Float[Array, " K"], traffic: float) -> Float[Array, " K"]:
        names = ("speed", "bandwidth", "latency")
        speed, bandwidth, latency = (_per_client(self, name, getattr(self, name), len(passes)) for name in names)
        seconds: Float[Array, " K"] = 2 * latency + jnp.float32(traffic) / bandwidth + passes / speed
        return seconds


def _lists_as_arrays(owner: object, *names: str) -> None:
    """Make an array of each of these fields that is a list or tuple of numbers, one for each client."""
    for name in names:
        value = getattr(owner, name)
        numbers = isinstance(value, list | tuple) and all(isinstance(one, int | float | np.number) for one in value)
        if numbers and value and not any(isinstance(one, bool) for one in value):
            object.__setattr__(owner, name, np.asarray(value, np.float32))


def _probability(owner: object, name: str, value: Any) -> None:
    require(owner, name, value, "at least 0 and at most 1", lambda x: (x >= 0) & (x <= 1))


def _per_client(owner: object, name: str, value: Any, K: int) -> Float[Array, " K"]:
    value = jnp.asarray(value, jnp.float32)
    if value.shape not in ((), (K,)):
        got = f"shape {value.shape}; in a file, a sweep of it is a list of tables"
        raise ValueError(f"{type(owner).__name__}: {name} must be one number or one for each of K={K}, got {got}")
    return jnp.broadcast_to(value, (K,))
