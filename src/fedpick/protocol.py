"""What a selection strategy is: the facts it gets, the answer it gives, what it learns, and its random keys.

A round, in the simulator and on a real server alike::

    keys   = round_keys(seed, t)
    picked = pick(selector, keys, state, clients, poll)     # propose, poll the candidates, select
    report = ...train picked.selection.clients, average their models by picked.selection.weights...
    state  = selector.observe(state, picked.selection, report)
"""

import operator
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Real

from fedpick.validation import known, owner_name

State = TypeVar("State")
Poll = Literal["none", "full", "batch"]
Mask = Bool[Array, " K"]
Losses = Float[Array, " K"]


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

    def propose(self, key: PRNGKeyArray, state: State, clients: Clients) -> Mask:
        """The candidates: whom to ask, and among whom to choose."""

    def select(self, key: PRNGKeyArray, state: State, clients: Clients, candidates: Mask, losses: Losses) -> Selection:
        """The seats. ``losses`` holds what the candidates answered; NaN is silence, and all is NaN without a poll."""

    def observe(self, state: State, selection: Selection, report: Report) -> State:
        """The memory after the round: the only place where state is made."""


class Picked(NamedTuple):
    """The decision of a round: who was asked or could be chosen, what they answered, and who trains."""

    candidates: Mask
    losses: Losses
    selection: Selection


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

    Args:
        seed: Seed of the run, at least 0 and below 2**64.
        t: Round, counted from 0.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(keys.propose == round_keys(seed=7, t=0).propose), bool(keys.propose == keys.select)
    (True, False)
    """
    t = _whole("t", t, 2**32 - 1)
    keys: RoundKeys = _round_keys(_seed_words(seed), np.uint32(t) if isinstance(t, int) else t)
    return keys


@jax.jit  # one program in a plain Python loop over rounds
def _round_keys(seed: Any, t: Any) -> RoundKeys:
    key = jax.random.fold_in(_key(seed), t)
    return RoundKeys(*(jax.random.fold_in(key, purpose) for purpose in range(len(RoundKeys._fields))))


def init_key(seed: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of what chance decides before the first round, such as the first model.

    >>> bool(init_key(7) == round_keys(seed=7, t=0).world)
    False
    """
    return jax.random.fold_in(_key(_seed_words(seed)), 2**32 - 1)


def pick(
    selector: Selector[State],
    keys: RoundKeys,
    state: State,
    clients: Clients,
    poll: Callable[[PRNGKeyArray, Mask], Losses],
) -> Picked:
    """The decision of one round: propose candidates, poll them, select the seats.

    The simulator, the checks, the theory and the Flower adapter all decide by this function.

    Args:
        selector: The strategy.
        keys: The round's keys, from ``round_keys``.
        state: The strategy's memory, from ``init`` or ``observe``.
        clients: The facts about the clients; they are checked here, once, and brought to pinned dtypes.
        poll: ``poll(key, asked)`` asks these clients and gives their losses, NaN for silence; it is called only
            where ``selector.poll`` is not "none".

    >>> from fedpick import PowerOfChoice
    >>> selector = PowerOfChoice(m=1, d=2)
    >>> clients = Clients(size=jnp.array([5, 5, 5]), available=jnp.array([True, False, True]))
    >>> answers = jnp.array([0.3, jnp.nan, 0.9])
    >>> pick(selector, round_keys(0, 0), selector.init(3), clients, lambda key, asked: answers).selection.clients
    Array([2], dtype=int32)
    """
    clients = check_clients(selector, clients)
    candidates = selector.propose(keys.propose, state, clients)
    losses = jnp.full(clients.size.shape, jnp.nan, jnp.float32)
    if selector.poll != "none":
        answers = jnp.asarray(poll(keys.poll, candidates), jnp.float32)
        if answers.shape != clients.size.shape:
            expected = f"must have shape (K,) = {clients.size.shape}"
            raise ValueError(f"{owner_name(selector)}: losses {expected}, got shape {answers.shape}")
        losses = jnp.where(candidates, answers, jnp.nan)
    return Picked(candidates, losses, selector.select(keys.select, state, clients, candidates, losses))


def check_clients(owner: object, clients: Clients) -> Clients:
    """The facts about the clients, checked and in pinned dtypes: a size that no strategy can use becomes 0.

    Args:
        owner: Whose name error messages begin with, usually the strategy.
        clients: The facts of the round.
    """
    name = owner_name(owner)
    size, available = (x if hasattr(x, "shape") else np.asarray(x) for x in clients)
    if size.ndim != 1 or size.shape[0] < 1:
        raise ValueError(f"{name}: size must have shape (K,) with K at least 1, got shape {size.shape}")
    if available.shape != size.shape:
        raise ValueError(f"{name}: available must have shape (K,) = {size.shape}, got shape {available.shape}")
    if available.dtype != bool:
        raise ValueError(f"{name}: available must be Bool[K], got dtype {available.dtype}")
    numbers = known(size)
    if numbers is not None:
        if not jnp.issubdtype(numbers.dtype, jnp.number):
            raise ValueError(f"{name}: size must be numbers, got dtype {numbers.dtype}")
        bad = ~((numbers == 0) | ((numbers >= 1e-30) & (numbers <= 1e30)))
        if bad.any():
            k = int(bad.argmax())
            raise ValueError(f"{name}: size must be 0 or between 1e-30 and 1e30, got {numbers[k]} for client {k}")
        if not numbers.any():
            raise ValueError(f"{name}: size must be above 0 for at least one client, got all zero")
        size = numbers.astype(np.float32)  # before JAX, which would cut 64 bits to 32
    size = jnp.asarray(size).astype(jnp.float32)
    usable = (size >= 1e-30) & (size <= 1e30)
    return Clients(jnp.where(usable, size, jnp.float32(0)), jnp.asarray(available))


def client_key(key: PRNGKeyArray, client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client within a phase, whoever else takes part and in whatever order answers arrive.

    Args:
        key: A phase's key, such as ``round_keys(seed, t).poll``.
        client: The client, 0..K-1.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(client_key(keys.poll, 3) == client_key(keys.poll, 4))
    False
    """
    return jax.random.fold_in(key, client)


def seat_key(key: PRNGKeyArray, seat: int | Int[Array, ""], client: int | Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client in one seat, so that a client in two seats trains independently in each.

    Args:
        key: A phase's key, such as ``round_keys(seed, t).train``.
        seat: The seat, 0..m-1.
        client: The client in it.

    >>> keys = round_keys(seed=7, t=0)
    >>> bool(seat_key(keys.train, 0, 3) == seat_key(keys.train, 1, 3))
    False
    """
    return jax.random.fold_in(client_key(key, client), seat)


def _seed_words(seed: Any) -> Any:
    """The high and the low word of a seed, UInt[2] of NumPy or JAX."""
    seed = _whole("seed", seed, 2**64)
    if isinstance(seed, int):
        return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    wide = seed.dtype.itemsize == 8
    return jnp.stack([(seed >> 32).astype(jnp.uint32) if wide else jnp.uint32(0), seed.astype(jnp.uint32)])


def _key(words: Any) -> PRNGKeyArray:
    key: PRNGKeyArray = jax.random.wrap_key_data(words, impl="threefry2x32")
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
