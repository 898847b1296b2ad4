"""What a server remembers of its clients: last loss, times trained, round last trained."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from fedpick.protocol import Clients, Report, Selection
from fedpick.validation import natural, owner_name


class Ledger(NamedTuple):
    """One line per client, and the number of rounds that were observed.

    ``loss`` is NaN and ``last`` is -1 until a client has trained. A seat that is empty or silent teaches nothing. A
    client that reported from several seats of a round is entered with the mean of what it said.

    >>> ledger = Ledger.init(3)
    >>> selection = Selection(jnp.array([2, -1]), jnp.array([1.0, 0.0]))
    >>> ledger = ledger.observe(selection, Report(loss=jnp.array([0.5, jnp.nan])))
    >>> ledger.loss, ledger.times
    (Array([nan, nan, 0.5], dtype=float32), Array([0, 0, 1], dtype=int32))
    """

    loss: Float[Array, " K"]
    times: Int[Array, " K"]
    last: Int[Array, " K"]
    round: Int[Array, ""]

    @classmethod
    def init(cls, num_clients: int) -> "Ledger":
        """Nobody has trained yet."""
        num_clients = natural("Ledger", "num_clients", num_clients)
        return cls(
            loss=jnp.full(num_clients, jnp.nan, jnp.float32),
            times=jnp.zeros(num_clients, jnp.int32),
            last=jnp.full(num_clients, -1, jnp.int32),
            round=jnp.int32(0),
        )

    def fits(self, clients: Clients) -> None:
        """Raise unless there is a line for each of these clients."""
        fits("Ledger", self.loss, clients)

    def observe(self, selection: Selection, report: Report) -> "Ledger":
        """The ledger after a round."""
        loss = jnp.asarray(report.loss, jnp.float32)
        if not loss.shape == selection.clients.shape == selection.weights.shape:
            shapes = f"{selection.clients.shape}, weights {selection.weights.shape} and loss {loss.shape}"
            raise ValueError(f"Ledger: clients, weights and loss must have one shape (m,), got clients {shapes}")
        after: Ledger = _observe(self, selection.clients, selection.weights, loss)
        return after


def fits(owner: object, table: Shaped[Array, "K ..."], clients: Clients) -> None:
    """Raise unless a table has a row for each of these clients.

    Args:
        owner: Whose name the error message begins with.
        table: One row per client.
        clients: The facts of the round.
    """
    if table.shape[0] != clients.size.shape[0]:
        K, rows = clients.size.shape[0], table.shape[0]
        raise ValueError(f"{owner_name(owner)}: K must be {K} as in size, got a state of {rows}")


def enter(table: Float[Array, "K ..."], selection: Selection, values: Float[Array, "m ..."]) -> Float[Array, "K ..."]:
    """A table of what each client last said, after a round; a seat that is empty or said NaN changes nothing.

    A client that spoke from several seats is entered with the mean of what it said. It costs m^2, whatever K is.

    Args:
        table: One row per client.
        selection: The seats.
        values: What the seats said: a number each, or a vector such as a sketch.

    >>> enter(jnp.zeros(3), Selection(jnp.array([2, -1]), jnp.array([1.0, 0.0])), jnp.array([0.5, 9.0]))
    Array([0. , 0. , 0.5], dtype=float32)
    """
    after: Float[Array, "K ..."] = _enter(table, selection, jnp.asarray(values, jnp.float32))
    return after


def visit(visited: Bool[Array, " K"], selection: Selection) -> Bool[Array, " K"]:
    """Who has had a seat, after a round, whether or not anything was heard from it.

    Args:
        visited: Who had one before.
        selection: The seats.

    >>> visit(jnp.zeros(3, bool), Selection(jnp.array([2, -1]), jnp.array([1.0, 0.0])))
    Array([False, False,  True], dtype=bool)
    """
    K = visited.shape[0]
    return visited.at[jnp.where(selection.weights > 0, selection.clients, K)].set(True, mode="drop")


@jax.jit
def _enter(table: Float[Array, "K ..."], selection: Selection, values: Float[Array, "m ..."]) -> Float[Array, "K ..."]:
    K, m = table.shape[0], values.shape[0]
    spoke = (selection.weights > 0) & ~jnp.isnan(values.reshape(m, -1)).any(axis=1)
    line = jnp.where(spoke, selection.clients, K)  # beyond the last row: dropped
    rows = jnp.where(spoke.reshape(m, *[1] * (values.ndim - 1)), values, jnp.float32(0))
    together = ((line[:, None] == line[None, :]) & spoke[None, :]).astype(jnp.float32)
    mean = jnp.tensordot(together / jnp.maximum(together.sum(axis=1, keepdims=True), 1), rows, 1)
    return table.at[line].set(mean, mode="drop")


@jax.jit  # one program in a plain Python loop over rounds
def _observe(
    ledger: Ledger, clients: Int[Array, " m"], weights: Float[Array, " m"], loss: Float[Array, " m"]
) -> Ledger:
    spoke = (weights > 0) & ~jnp.isnan(loss)
    K = ledger.loss.shape[0]
    line = jnp.where(spoke, clients, K)  # beyond the last line: dropped
    times = jnp.zeros(K, jnp.int32).at[line].add(1, mode="drop")
    total = jnp.zeros(K, jnp.float32).at[line].add(loss, mode="drop")
    return Ledger(
        loss=jnp.where(times > 0, total / times.astype(jnp.float32), ledger.loss),
        times=ledger.times + times,
        last=jnp.where(times > 0, ledger.round, ledger.last),
        round=ledger.round + 1,
    )


def rounded(product: Float[Array, "..."]) -> Float[Array, "..."]:
    """A product that something is then added to, rounded before that in every program, to 22 bits of mantissa.

    A compiler may round a product and a sum at once; XLA does so on a CPU where it fuses them, and its barrier does not
    prevent it. What a server remembers would then differ from what a simulation does, by the last bit.

    Args:
        product: Of two numbers.
    """
    return jax.lax.reduce_precision(product, exponent_bits=8, mantissa_bits=22)
