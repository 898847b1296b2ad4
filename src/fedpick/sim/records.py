"""What a round passes on: the decision, what the seats made of it, and the row of the table that it becomes."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from fedpick.protocol import Clients, Selection, Selector, needs
from fedpick.sim.models import Params
from fedpick.sim.polls import POLLS

UNLAWFUL = -(2**31)  # a seat of a client who is away or no candidate, in the records of a run that then ends
UNWEIGHTED = UNLAWFUL + 1  # a seat whose weight is negative or not finite, likewise
UPDATES = frozenset({"norm", "sketch", "head"})  # of ``Report``: what each strategy measures its own way


class Record(NamedTuple):
    """What happened in a round. Counts are exact; bytes follow from them and the size of the model.

    ``selected`` has the client of every seat that was filled, ``clients`` of those whose update came back.
    """

    clients: Int[Array, " m"]
    selected: Int[Array, " m"]
    weights: Float[Array, " m"]
    train_loss: Float[Array, ""]
    available: Int[Array, ""]
    polled: Int[Array, ""]
    trained: Int[Array, ""]
    returned: Int[Array, ""]
    poll_samples: Int[Array, ""]
    train_samples: Int[Array, ""]
    seconds: Float[Array, ""]


class Choice(NamedTuple):
    """The decision of a round: the facts, who was asked (and about how many samples), the answers, who has the seats.

    With it go the data of the keys of what happens next: who fails, and the training.
    """

    clients: Clients
    asked: Bool[Array, " K"]
    evaluated: Int[Array, " K"]
    answers: Float[Array, " K"]
    selection: Selection
    fails: UInt[Array, " 2"]
    train: UInt[Array, " 2"]


class Outcome(NamedTuple):
    """What the seats made of a decision: the new model, and what is known of each seat, NaN where it did not return.

    ``claimed`` are the seats whose losses are lies.
    """

    params: Params
    server: Any
    chosen: Float[Array, " K"]
    seats: dict[str, Array]
    poll_duration: Float[Array, ""]
    claimed: Bool[Array, " m"] | None = None


class Request(NamedTuple):
    """What a strategy asks of the training of its seats beside the losses, which is mostly nothing.

    Where the candidates have ``trained`` for the poll, the seats only send what they have.
    """

    trained: bool
    measured: frozenset[str]
    enquires: bool = False  # the candidates are asked for facts alone, which takes no time

    @classmethod
    def of(cls, selector: Selector[Any]) -> "Request":
        """The request of a strategy."""
        kind = POLLS.get(selector.poll)
        enquires = selector.poll == "none" and getattr(selector, "enquires", 0) > 0
        return cls(kind is not None and kind.trains, needs(selector) & (UPDATES | {"square_loss"}), enquires)


def lawful(selection: Selection, candidates: Bool[Array, " K"], available: Bool[Array, " K"]) -> Selection:
    """The selection; seats of clients who are no candidates or are away, or all where a candidate is, are UNLAWFUL.

    Seats whose weight is none are UNWEIGHTED.

    Args:
        selection: What a strategy selected.
        candidates: Its candidates.
        available: Who is there.
    """
    seats, K = selection.clients, available.shape[0]
    there = (seats >= 0) & (seats < K) & (candidates & available)[jnp.clip(seats, 0, K - 1)]
    known = (selection.weights >= 0) & (selection.weights < jnp.inf)
    wrong = ((selection.weights > 0) & ~there) | (candidates & ~available).any()
    seats = jnp.where(wrong, UNLAWFUL, jnp.where(known, seats, UNWEIGHTED))
    return Selection(seats, jnp.where(wrong | ~known, jnp.float32(0), selection.weights))
