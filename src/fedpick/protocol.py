"""What a selection strategy is: the facts it gets, the answer it gives, what it learns, and its random keys.

A round, in the simulator and on a real server alike::

    keys = round_keys(seed, t)
    candidates = selector.propose(keys.propose, state, clients)
    losses     = ...ask the candidates, unless selector.poll == "none"...
    selection  = selector.select(keys.select, state, clients, candidates, losses)
    report     = ...train the seats, average their models by selection.weights...
    state      = selector.observe(state, selection, report)
"""

import operator
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Real

State = TypeVar("State")
Poll = Literal["none", "full", "batch"]


class Clients(NamedTuple):
    """The facts about the K clients, given anew each round.

    ``size`` is D_k, the number of local training samples; any non-negative numbers in proportion to it will do.

    >>> Clients(size=jnp.array([120, 30, 50]), available=jnp.array([True, True, False])).available.sum()
    Array(2, dtype=int32)
    """

    size: Real[Array, " K"]
    available: Bool[Array, " K"]


class Selection(NamedTuple):
    """The seats of a round: who trains, and with what weight each model enters the average.

    A weight of 0 is an empty seat, whose client is -1. A client in two seats trains twice, independently.

    >>> Selection(clients=jnp.array([4, 4, -1]), weights=jnp.array([0.5, 0.5, 0.0])).weights.sum()
    Array(1., dtype=float32)
    """

    clients: Int[Array, " m"]
    weights: Float[Array, " m"]


class Report(NamedTuple):
    """What the seats said after training; NaN is silence.

    ``loss`` is the mean of the tau mini-batch losses that the client saw while it trained.

    >>> Report(loss=jnp.array([0.7, jnp.nan])).loss.shape
    (2,)
    """

    loss: Float[Array, " m"]


class Selector(Protocol[State]):
    """A client selection strategy pi: a frozen dataclass, registered as a pytree, with four pure methods.

    ``m`` is the number of seats, static because it sets a shape; None stands for a seat for every client. ``poll`` is
    what candidates are asked before the choice: nothing, their loss over all local data, or over one mini-batch.

    A strategy may also declare, and ``fedpick.check_selector`` then holds it to: ``weights_sum_to_1 = False`` (the
    default is True), ``unbiased = True`` (the mean weight of a client is its share, whatever the losses),
    ``candidates_by_share = True`` (the candidates are drawn without replacement, by size) and
    ``highest_loss_first = True`` (the seats go to the candidates of highest loss, ties broken at random).

    >>> from fedpick import Rand
    >>> selector: Selector[tuple[()]] = Rand(m=2)
    >>> selector.poll
    'none'
    """

    @property
    def m(self) -> int | None: ...

    @property
    def poll(self) -> Poll: ...

    def init(self, num_clients: int) -> State:
        """The memory before the first round."""

    def propose(self, key: PRNGKeyArray, state: State, clients: Clients) -> Bool[Array, " K"]:
        """The candidates: whom to ask, and among whom to choose."""

    def select(
        self,
        key: PRNGKeyArray,
        state: State,
        clients: Clients,
        candidates: Bool[Array, " K"],
        losses: Float[Array, " K"],
    ) -> Selection:
        """The seats. ``losses`` holds what the candidates answered; NaN is silence, and all is NaN without a poll."""

    def observe(self, state: State, selection: Selection, report: Report) -> State:
        """The memory after the round: the only place where state is made."""


class RoundKeys(NamedTuple):
    """One random key for each thing that chance decides in a round."""

    world: PRNGKeyArray
    propose: PRNGKeyArray
    poll: PRNGKeyArray
    select: PRNGKeyArray
    train: PRNGKeyArray


def round_keys(seed: int | Int[Array, ""], t: int | Int[Array, ""]) -> RoundKeys:
    """The keys of round t: the one source of all randomness, a function of (seed, round) and of nothing else.

    The generator is pinned (threefry): neither x64 nor JAX's default generator changes a pick (only switching
    ``jax_threefry_partitionable`` off would). Noise within a phase is keyed further by ``client_key`` and ``seat_key``.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(keys.propose == round_keys(seed=7, t=0).propose), bool(keys.propose == keys.select)
    (True, False)
    """
    key = jax.random.fold_in(_seed_key(seed), _whole("t", t, 2**32 - 1))
    return RoundKeys(*(jax.random.fold_in(key, purpose) for purpose in range(len(RoundKeys._fields))))


def init_key(seed: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of what chance decides before the first round, such as the first model.

    >>> bool(init_key(7) == round_keys(seed=7, t=0).world)
    False
    """
    return jax.random.fold_in(_seed_key(seed), 2**32 - 1)


def client_key(key: PRNGKeyArray, client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client within a phase, whoever else takes part and in whatever order answers arrive.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(client_key(keys.poll, 3) == client_key(keys.poll, 4))
    False
    """
    return jax.random.fold_in(key, client)


def seat_key(key: PRNGKeyArray, seat: int | Int[Array, ""], client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client in one seat, so that a client in two seats trains independently in each.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(seat_key(keys.train, 0, 3) == seat_key(keys.train, 1, 3))
    False
    """
    return jax.random.fold_in(client_key(key, client), seat)


def _seed_key(seed: Any) -> PRNGKeyArray:
    seed = _whole("seed", seed, 2**64)
    if isinstance(seed, int):
        low, high = jnp.uint32(seed & 0xFFFFFFFF), jnp.uint32(seed >> 32)
    else:
        wide = seed.dtype.itemsize == 8
        low, high = seed.astype(jnp.uint32), (seed >> 32).astype(jnp.uint32) if wide else jnp.uint32(0)
    key: PRNGKeyArray = jax.random.wrap_key_data(jnp.stack([high, low]), impl="threefry2x32")
    return key


def _whole(name: str, value: Any, limit: int) -> Any:
    """A plain int within its limits; a traced integer as it is."""
    if isinstance(value, jax.core.Tracer) and jnp.issubdtype(value.dtype, jnp.integer):
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"round_keys: {name} must be a whole number, got {value!r}") from None
    if not 0 <= number < limit:
        raise ValueError(f"round_keys: {name} must be at least 0 and below {limit}, got {number}")
    return number
