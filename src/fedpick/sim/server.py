"""What the server does with the averaged update."""

from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool

from fedpick.pytrees import pytree, static
from fedpick.sim.models import Params
from fedpick.sim.optimizers import Number, Optimizer, optimizer
from fedpick.validation import require


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
        if self.optimizer != "average":
            optimizer(self, self.optimizer)

    def init(self, params: Params) -> Any:
        """The optimiser's memory."""
        return () if self.optimizer == "average" else optimizer(self, self.optimizer)(self.eta).init(params)

    def update(self, params: Params, average: Params, state: Any, anybody: Bool[Array, ""]) -> tuple[Params, Any]:
        """The next model from the weighted sum of the seats' updates; without anybody, nothing moves."""
        if self.optimizer == "average":
            eta = jnp.asarray(self.eta, jnp.float32)
            return jax.tree.map(lambda w, change: w + eta * change, params, average), state
        gradient = jax.tree.map(jnp.negative, average)
        change, moved = optimizer(self, self.optimizer)(self.eta).update(gradient, state, params)
        keep = lambda new, old: jnp.where(anybody, new, old)  # noqa: E731
        return jax.tree.map(keep, optax.apply_updates(params, change), params), jax.tree.map(keep, moved, state)
