"""How fast the clients are: a simulated clock, and stragglers that miss a deadline."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedpick.metrics import SCALAR
from fedpick.pytrees import pytree
from fedpick.validation import require

TRAINING = 3.0  # passes over a sample: forward, and backward at twice its cost


@pytree
class Devices:
    """Speeds of the clients, each one number for all or one per client.

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
    deadline: float = float("inf")

    def __post_init__(self) -> None:
        for name in ("speed", "bandwidth", "deadline"):
            require(self, name, getattr(self, name), "above 0", lambda x: x > 0)
        require(self, "deadline", self.deadline, "one number", lambda x: np.ndim(x) == 0)
        require(self, "latency", self.latency, "at least 0", lambda x: x >= 0)

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
        rng = np.random.default_rng(seed)
        plain = cls(**options)
        fast, wide = rng.lognormal(0.0, spread, (2, num_clients)).astype(np.float32)
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
        bandwidth, latency = (_row(x, num_clients) for x in (self.bandwidth, self.latency))
        seconds: Float[Array, " K"] = latency + jnp.float32(model_bytes + SCALAR) / bandwidth
        return seconds

    def _seconds(self, passes: Float[Array, " K"], traffic: float) -> Float[Array, " K"]:
        speed, bandwidth, latency = (_row(x, passes.shape[0]) for x in (self.speed, self.bandwidth, self.latency))
        seconds: Float[Array, " K"] = 2 * latency + jnp.float32(traffic) / bandwidth + passes / speed
        return seconds


def _row(value: Any, K: int) -> Float[Array, " K"]:
    value = jnp.asarray(value, jnp.float32)
    if value.shape not in ((), (K,)):
        raise ValueError(f"Devices: each speed must be one number or one for each of K={K}, got shape {value.shape}")
    return jnp.broadcast_to(value, (K,))
