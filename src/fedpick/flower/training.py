"""The training of a round: its messages, what the seats report of it, and its row in the history."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedpick.flower.clients import ClientTable
from fedpick.flower.history import RoundRow
from fedpick.flower.options import Options
from fedpick.flower.queries import Queries
from fedpick.flower.replies import difference, read_loss, read_seconds, scale
from fedpick.flower.selection import Choice, SilentQueries, choose, observe
from fedpick.protocol import OF_SEATS, Report, Selector, needs
from fedpick.tracing import check_methods
from fedpick.updates import lengths, measure

LOG = logging.getLogger("flwr.fedpick")
_measure = jax.jit(measure)


class Round(NamedTuple):
    """A round under way: the decision, the training messages by seat, and the model that they carry."""

    choice: Choice
    messages: dict[int, Message]
    began: float
    model: dict[str, NDArray[Any]]

    def report(
        self,
        selector: Selector[Any],
        options: Options,
        *,
        updates: Mapping[int, Message],
        seconds: Mapping[str, float],
        table: ClientTable,
    ) -> Report:
        """What the seats that returned report, and of the rest what the selector needs; NaN for the others.

        ``seconds`` has the time that each reply took, by the id of the message that it answers; the table gets it.
        """
        choice, wanted, wide = self.choice, needs(selector), lengths(selector)
        names = ("loss", *(name for name in OF_SEATS if name in wanted))
        m = len(choice.selection.weights)
        found = {name: np.full((m, wide[name]) if name in wide else m, np.nan, np.float32) for name in names}
        for i, reply in updates.items():
            took = seconds.get(self.messages[i].metadata.message_id, math.nan)
            if options.duration is not None:
                took = read_seconds(reply, options.duration)
            if not math.isnan(took):
                table.expected_duration[choice.seats[i]] = took
            values: dict[str, Any] = {
                "loss": read_loss(reply, options.train_loss, options.loss_range),
                "duration": took,
                "square_loss": read_seconds(reply, options.square_loss),
            }
            if wanted & {"norm", "sketch", "head"}:
                values |= _measure(selector, *_by_name(difference(reply, self.model)))
            for name in names:
                found[name][i] = values[name]
        of_round: dict[str, Any] = {"polled": choice.losses, "poll_duration": choice.poll_seconds, "size": choice.size}
        of_round = {name: value for name, value in of_round.items() if name in wanted}
        return Report(**{name: jnp.asarray(value) for name, value in (found | of_round).items()})

    def norms(
        self, updates: Mapping[int, Message], bound: float | None, names: Sequence[str | None]
    ) -> dict[int, float]:
        """The norm of each client's update, of two the larger one's; those above a bound are shortened to it.

        ``bound`` is in medians of the round, and ``names`` has what the clients are called in the log.
        """
        found: dict[int, float] = {}
        by_seat = {i: _norm(difference(reply, self.model)) for i, reply in updates.items()}
        most = math.inf if bound is None or not by_seat else bound * float(np.median(list(by_seat.values())))
        for i, norm in by_seat.items():
            client = self.choice.seats[i]
            if norm > most:
                LOG.warning("fedpick: the update of %s, of norm %.4g, is shortened to %.4g", names[client], norm, most)
                scale(updates[i], self.model, most / norm)
            found[client] = max(min(norm, most), found.get(client, 0.0))
        return found

    def poll_samples(self, batch: int | None, table: ClientTable) -> float:
        """The samples on which the clients that were asked evaluated the model: all, or those of a mini-batch."""
        samples = table.sizes()[list(self.choice.asked)]
        return float(np.minimum(samples, math.inf if batch is None else batch).sum())

    def row(self, returned: list[int], weights: NDArray[Any], losses: NDArray[Any], poll_samples: float) -> RoundRow:
        """The row of the history: the seats that returned, their weights and training losses, and the costs."""
        choice, seats = self.choice, self.choice.seats
        known = [i for i in returned if losses[i] == losses[i]]
        return RoundRow(
            clients=[seats[i] if i in returned else -1 for i in range(len(weights))],
            weights=weights.tolist(),
            train_loss=float(weights[known] @ losses[known]) / float(weights[known].sum()) if known else math.nan,
            available=choice.available,
            polled=len(choice.asked),
            trained=len(self.messages),
            returned=len(returned),
            poll_samples=poll_samples,
            train_samples=math.nan,  # the server does not know how many passes a client makes over its data
            seconds=time.monotonic() - self.began,
            asked=choice.asked,
            spent=len(choice.asked) - choice.answered - len(choice.faults),
            answers=tuple(np.asarray(choice.losses)[list(choice.asked)].astype(float).tolist()) if choice.asked else (),
        )


def compile_selector(selector: Selector[Any], queries: Queries) -> None:
    """Check a strategy, and play a round of its decision that is thrown away: compiling is no part of a round."""
    state = queries.state
    check_methods(selector, len(state.clients))
    choice = choose(selector, SilentQueries(*queries))
    nothing: dict[Any, Any] = {}
    played = Round(choice, nothing, 0.0, nothing)
    report = played.report(selector, queries.options, updates=nothing, seconds=nothing, table=state.clients)
    after = observe(selector, state.memory, choice.selection, report)
    if hasattr(selector, "status"):
        selector.status(after)
    if hasattr(selector, "explain"):
        selector.explain(state.memory, after)


def _norm(update: Mapping[str, NDArray[Any]]) -> float:
    return math.sqrt(sum(float(np.square(part, dtype=np.float64).sum()) for part in update.values()))


def _by_name(update: Mapping[str, NDArray[Any]]) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
    """The arrays of an update in the order of their names, as the simulator has them, and that of the output bias.

    The bias is the last array with one axis in the model's own order, which names need not follow.
    """
    vectors = [values for values in update.values() if values.ndim == 1]
    return [update[name] for name in sorted(update)], vectors[-1] if vectors else None


def rescale(weights: NDArray[np.float32], returned: list[int]) -> NDArray[np.float32]:
    """The weights of the seats that returned, scaled up to the total of all."""
    left = np.zeros_like(weights)
    left[returned] = weights[returned]
    total = left.sum()
    return left * (weights.sum() / total) if total > 0 else left
