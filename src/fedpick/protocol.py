"""What a selection strategy is: the facts it gets, the answer it gives, what it learns, and its random keys.

A round, in the simulator and on a real server alike::

    keys   = round_keys(seed, t)
    picked = pick(selector, keys, state, clients, poll)     # propose, poll the candidates, select
    report = ...train picked.selection.clients, average their models by picked.selection.weights...
    state  = selector.observe(state, picked.selection, report)
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Real

from fedpick.declarations import FACTS as FACTS
from fedpick.declarations import MEASURED as MEASURED
from fedpick.declarations import OF_SEATS as OF_SEATS
from fedpick.declarations import Poll as Poll
from fedpick.declarations import check_fields as check_fields
from fedpick.declarations import check_strategy as check_strategy
from fedpick.declarations import least_clients as least_clients
from fedpick.declarations import needs as needs
from fedpick.declarations import of_nonnegative_losses as of_nonnegative_losses
from fedpick.declarations import payload as payload
from fedpick.declarations import too_few_rested as too_few_rested
from fedpick.form import FormError as FormError
from fedpick.form import check_answers, check_weights, state_errors
from fedpick.form import check_mask as check_mask
from fedpick.form import check_selection as check_selection
from fedpick.keys import RoundKeys as RoundKeys
from fedpick.keys import client_key as client_key
from fedpick.keys import init_key as init_key
from fedpick.keys import round_keys as round_keys
from fedpick.keys import seat_key as seat_key
from fedpick.validation import check_function, check_kind, known, owner_name

_DISGUISE = 2**32 - 1  # beyond the numbers that polls and seats fold into their keys
State = TypeVar("State")
Mask = Bool[Array, " K"]
Losses = Float[Array, " K"]


class Clients(NamedTuple):
    """The facts about the K clients, given anew each round; those that no strategy ``needs`` are None.

    ``size`` is D_k, the number of local training samples; any non-negative numbers in proportion to it will do.
    ``expected_duration`` is the number of seconds from the start of training to the arrival of the update,
    ``upload_duration`` the part of it in which the update is sent (both NaN where unknown), and ``leaving`` marks the
    clients that are expected to be gone in the next round.

    >>> Clients(size=jnp.array([120, 30, 50]), available=jnp.array([True, True, False])).available.sum()
    Array(2, dtype=int32)
    """

    size: Real[Array, " K"]
    available: Bool[Array, " K"]
    expected_duration: Float[Array, " K"] | None = None
    upload_duration: Float[Array, " K"] | None = None
    leaving: Bool[Array, " K"] | None = None


class Selection(NamedTuple):
    """The seats of a round: who trains, and with what weight each model enters the average.

    A weight of 0 is an empty seat, whose client is -1. A client in two seats trains twice, independently.

    >>> Selection(clients=jnp.array([4, 4, -1]), weights=jnp.array([0.5, 0.5, 0.0])).weights.sum()
    Array(1., dtype=float32)
    """

    clients: Int[Array, " m"]
    weights: Float[Array, " m"]


class Report(NamedTuple):
    """What was learnt in a round; NaN is silence, and what the strategy does not need is None.

    ``loss`` is the mean of the tau mini-batch losses that the client of a seat saw while it trained, ``square_loss``
    the mean of the squared losses of its samples, and ``duration`` the seconds until its update arrived. Of the update
    itself, the local model less the global one, ``norm`` is the Euclidean norm, ``sketch`` a random projection and
    ``head`` the part that belongs to the output bias (see ``fedpick.updates``). Of the round, ``polled`` are the
    candidates' answers, ``poll_duration`` the seconds until the last of them, and ``size`` the sizes of the clients
    that were available, 0 for the others.

    >>> Report(loss=jnp.array([0.7, jnp.nan])).loss.shape
    (2,)
    """

    loss: Float[Array, " m"]
    polled: Float[Array, " K"] | None = None
    duration: Float[Array, " m"] | None = None
    norm: Float[Array, " m"] | None = None
    square_loss: Float[Array, " m"] | None = None
    sketch: Float[Array, "m s"] | None = None
    head: Float[Array, "m C"] | None = None
    poll_duration: Float[Array, ""] | None = None
    size: Float[Array, " K"] | None = None


class Selector(Protocol[State]):
    """A client selection strategy pi: a frozen dataclass, registered as a pytree, with four pure methods.

    ``m`` is the number of seats, static because it sets a shape; None stands for a seat for every client. ``poll`` is
    what candidates are asked before the choice: nothing, their loss over all local data ("full") or over one
    mini-batch ("batch"), or to train and say the norm of their update ("norm"), which they send only if selected.

    A strategy may also declare ``needs``, the optional fields of ``Clients`` and ``Report`` that it uses (only these
    are measured); ``sketch_size`` and ``classes``, the lengths of a sketch and of a head; ``skips_poll = True`` (no
    poll where the candidates are no more than the seats); ``enquires``, how many facts they are asked for without a
    poll; ``one_key = True`` (``select`` has the key of ``propose``); and, what ``check_selector`` then holds it to:
    ``weights_sum_to_1 = False`` and ``fills_seats = False`` (the default of both is True; a seat may stay empty though
    a client is available for it), ``unbiased = True`` (the mean weight of a client is its share, whatever the losses),
    ``candidates_by_share = True`` (the candidates are drawn without replacement, by size),
    ``highest_loss_first = True`` (the seats go to the candidates of highest loss, ties broken at random) and
    ``work``, "K" (the default), "K s" or "K^2". ``nonnegative_losses = True``: negative losses would mislead it, and
    are refused. One that decides more than the seats may have ``explain(before, after)``, a sentence on what changed
    between two states or None, and ``status(state)``, named numbers; the record of a federation holds both.
    ``asks(state, candidates)`` polls only some candidates; ``disguise(key, state, losses, clients)`` is what clients
    say instead of their losses, ``encode(state, losses)`` the same without noise, as liars say it, and
    ``question(state)`` a number that they are told before (see ``Private``).

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
        """The seats. ``losses`` holds what the candidates answered; NaN is silence, and all is NaN without a poll.

        With ``poll = "norm"`` the answers are norms.
        """

    def observe(self, state: State, selection: Selection, report: Report) -> State:
        """The memory after the round: the only place where state is made."""


class Picked(NamedTuple):
    """The decision of a round: who was asked or could be chosen, what they answered, and who trains."""

    candidates: Mask
    losses: Losses
    selection: Selection


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
    check_kind("pick", "keys", keys, RoundKeys, ", such as round_keys(seed, t)")
    check_kind("pick", "clients", clients, Clients)
    if selector.poll != "none":
        check_function("pick", "poll", poll, "lambda key, asked: losses")
    clients = check_clients(selector, clients)
    for fact in FACTS:
        if fact in needs(selector) and getattr(clients, fact) is None:
            raise ValueError(f"{owner_name(selector)}: clients.{fact} must be given, got None")
    K = clients.size.shape[0]
    with state_errors(selector, state, K):
        proposed = selector.propose(keys.propose, state, clients)
    candidates = check_mask(f"{owner_name(selector)}.propose", proposed, K)
    losses = jnp.full(clients.size.shape, jnp.nan, jnp.float32)
    if selector.poll != "none":
        asked = check_mask(f"{owner_name(selector)}.asks", polled(selector, candidates, state), K)
        answers = check_answers(selector, poll(keys.poll, asked), K)
        losses = jnp.where(asked, answers, jnp.nan)
    with state_errors(selector, state, K):
        selected = selector.select(select_key(selector, keys), state, clients, candidates, losses)
    selection: Selection = check_selection(selector, selected, K)
    check_weights(selector, selection.weights)
    return Picked(candidates, losses, selection)


def select_key(selector: Selector[Any], keys: RoundKeys) -> PRNGKeyArray:
    """The key of ``select``: that of ``propose`` for a strategy of ``one_key``, else its own.

    Args:
        selector: The strategy.
        keys: The round's keys.

    >>> from fedpick import Rand
    >>> keys = round_keys(seed=7, t=0)
    >>> bool(select_key(Rand(m=3), keys) == keys.select)
    True
    """
    return keys.propose if getattr(selector, "one_key", False) else keys.select


def polled(selector: Selector[Any], candidates: Mask, state: Any = None) -> Mask:
    """Who is polled: the candidates, unless the strategy asks nothing, skips polls that would decide nothing, or
    ``asks`` only some.

    Args:
        selector: The strategy.
        candidates: Its candidates.
        state: Its memory, for strategies with ``asks``.

    >>> from fedpick import PowerOfChoice
    >>> polled(PowerOfChoice(m=1, d=2), jnp.array([True, False, True]))
    Array([ True, False,  True], dtype=bool)
    """
    if selector.poll == "none":
        return jnp.zeros_like(candidates)
    asked = candidates
    if getattr(selector, "skips_poll", False) and selector.m is not None:
        asked = candidates & (jnp.sum(candidates, dtype=jnp.int32) > selector.m)
    asks = getattr(selector, "asks", None)
    return asked if asks is None else asks(state, asked)


def disguised(
    selector: Selector[Any], key: PRNGKeyArray, state: Any, losses: Float[Array, " n"], clients: Int[Array, " n"]
) -> Float[Array, " n"]:
    """What simulated honest clients say of their losses: the truth, unless the strategy lets them disguise it.

    Args:
        selector: The strategy.
        key: The round's key for the poll, or for training.
        state: The strategy's memory.
        losses: The true losses, NaN for silence.
        clients: Whose they are.
    """
    disguise = getattr(selector, "disguise", None)
    return losses if disguise is None else disguise(jax.random.fold_in(key, _DISGUISE), state, losses, clients)


def check_clients(owner: object, clients: Clients) -> Clients:
    """The facts about the clients, checked and in pinned dtypes: a size that no strategy can use becomes 0.

    Args:
        owner: Whose name error messages begin with, usually the strategy.
        clients: The facts of the round.
    """
    name = owner_name(owner)
    size, available = (x if hasattr(x, "shape") else np.asarray(x) for x in clients[:2])
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
    facts = {fact: value for fact in FACTS if (value := getattr(clients, fact)) is not None}
    for fact, value in facts.items():
        if jnp.shape(value) != size.shape:
            raise ValueError(f"{name}: {fact} must have shape (K,) = {size.shape}, got shape {jnp.shape(value)}")
        facts[fact] = jnp.asarray(value, bool if fact == "leaving" else jnp.float32)
    return Clients(jnp.where(usable, size, jnp.float32(0)), jnp.asarray(available), **facts)
