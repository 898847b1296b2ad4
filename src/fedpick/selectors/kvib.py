"""K-Vib (Zeng et al. 2023): optimal client sampling by what is remembered of the norms, without a poll."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import rounded
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

LARGEST = 1e18  # a norm beyond counts as this, so that its square is a number


class Norms(NamedTuple):
    """What K-Vib remembers: for each client the sum of weight times squared norm, and the largest norm."""

    square: Float[Array, " K"]
    largest: Float[Array, " K"]


@pytree
class KVib:
    """K-Vib: m clients by the estimated sum of their squared updates so far, unbiased.

    1. omega_k is the sum over the rounds of (p_k |Delta_k|)^2 / pi_k, in which a round without client k counts 0: an
       unbiased estimate of what the sum would be if it trained always.
    2. pi_k = (1 - theta) min(1, c sqrt(omega_k + gamma)) + theta m / K, with c such that the first part sums to m,
       theta = (K / (m rounds))^(1/3) and gamma = regularization G^2 K / (theta m), where G is the largest
       p_k |Delta_k| seen so far.
    3. m distinct clients are drawn with these probabilities (systematic sampling); weights p_k / pi_k, with which the
       average is right in expectation.

    p_k and K are those of the clients that are available and hold data.

    Args:
        m: Seats, the clients that train in a round.
        rounds: Rounds of the run; the more there are, the less is drawn uniformly.
        regularization: How slowly the probabilities leave the uniform ones; 1 is the paper's bound.

    >>> KVib(m=3, rounds=100)
    KVib(m=3, rounds=100, regularization=0.1)
    """

    m: int = static()
    rounds: int | Int[Array, ""]
    regularization: float | Float[Array, ""] = 0.1

    poll: ClassVar[Poll] = "none"
    needs: ClassVar[frozenset[str]] = frozenset({"norm"})
    unbiased: ClassVar[bool] = True
    weights_sum_to_1: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", natural(self, "m", self.m))
        require(self, "rounds", self.rounds, "at least 1 and below 2**31", lambda x: (x >= 1) & (x < 2**31), whole=True)
        require(
            self,
            "regularization",
            self.regularization,
            "above 0 and finite",
            lambda x: (x > 0) & (x < float("inf")),
        )

    def init(self, num_clients: int) -> Norms:
        at_most_clients(self, "m", self.m, num_clients)
        return Norms(jnp.zeros(num_clients, jnp.float32), jnp.zeros(num_clients, jnp.float32))

    def propose(self, key: PRNGKeyArray, state: Norms, clients: Clients) -> Mask:
        return clients.available & (clients.size > 0)

    def select(self, key: PRNGKeyArray, state: Norms, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        if clients.size.shape != state.square.shape:
            rule = f"K must be {clients.size.shape[0]} as in size"
            raise ValueError(f"KVib: {rule}, got a state of {state.square.shape[0]}")
        share = sampling.shares(jnp.where(candidates, clients.size, jnp.float32(0)))
        K = jnp.maximum(jnp.sum(candidates, dtype=jnp.float32), 1)
        theta = jnp.minimum(jnp.cbrt(K / (jnp.asarray(self.rounds, jnp.float32) * self.m)), jnp.float32(1))
        largest = jnp.max(share * state.largest)
        # In units of G, so that no square leaves the range of float32.
        unit = jnp.where(largest > 0, largest, jnp.float32(1))
        omega = jnp.sqrt(share) / unit * jnp.sqrt(state.square)
        gamma = jnp.asarray(self.regularization, jnp.float32) * K / (theta * self.m)
        weight = jnp.where(candidates, jnp.sqrt(rounded(omega * omega) + gamma), jnp.float32(0))
        uniform = jnp.where(candidates, jnp.minimum(self.m / K, jnp.float32(1)), jnp.float32(0))
        best = sampling.inclusion_probabilities(weight, self.m)
        probability = rounded((1 - theta) * best) + rounded(theta * uniform)
        chosen, filled = sampling.systematic(key, probability, self.m)
        return sampling.weighted(chosen, jnp.where(filled, share[chosen] / probability[chosen], jnp.float32(0)))

    def observe(self, state: Norms, selection: Selection, report: Report) -> Norms:
        assert report.norm is not None
        norm = jnp.asarray(report.norm, jnp.float32)
        spoke = (selection.weights > 0) & (norm >= 0)
        norm = jnp.minimum(jnp.where(spoke, norm, jnp.float32(0)), jnp.float32(LARGEST))
        line = jnp.where(spoke, selection.clients, state.square.shape[0])  # beyond the last line: dropped
        # weight = p_k / pi_k, so that p_k times this sum is omega_k, with the p_k of the round in which it is used.
        square = state.square.at[line].add(rounded(selection.weights * norm * norm), mode="drop")
        return Norms(jnp.minimum(square, jnp.float32(1e38)), state.largest.at[line].max(norm, mode="drop"))
