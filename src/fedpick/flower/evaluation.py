"""Evaluation on clients and by the server: done by the strategy inside, without unusable replies, and recorded."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedpick.flower.clients import ClientTable
from fedpick.flower.messages import FilteredGrid, drop_uncommon_metrics, read_metric
from fedpick.flower.wrapped import Wrapped

LOG = logging.getLogger("flwr.fedpick")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class ClientEvaluation:
    """One round's evaluation on the clients that are available."""

    def __init__(self, wrapped: Wrapped) -> None:
        self.wrapped = wrapped
        self.asked: list[tuple[Message, int]] = []  # and the client that it went to

    def configure(
        self, grid: Grid, table: ClientTable, configure: Callable[[Grid], Iterable[Message]]
    ) -> list[Message]:
        """The messages that the strategy sends when it sees the available clients only."""
        nodes = [table.node_of[client] for client in np.flatnonzero(table.available()).tolist()]
        self.asked = []
        if nodes:
            with self.wrapped.evaluate_at_most(len(nodes)):
                messages = list(configure(FilteredGrid(grid, nodes)))
            self.asked = [(message, table.client_at.get(message.metadata.dst_node_id, -1)) for message in messages]
        return [message for message, _ in self.asked]

    def silent(self, replies: Iterable[Message]) -> list[int]:
        """The clients that said nothing.

        An error of a client's own is an answer (an app may have no evaluation at all); one that the SuperLink made for
        it is not.
        """
        senders = {reply.metadata.src_node_id for reply in replies}
        return sorted({k for message, k in self.asked if k >= 0 and message.metadata.dst_node_id not in senders})

    def usable(self, replies: Iterable[Message]) -> list[Message]:
        """The replies that the strategy can average, by client; a single other one would end the run."""
        clients = {message.metadata.message_id: client for message, client in self.asked}
        key = self.wrapped.weight_key
        found = [
            (clients[reply.metadata.reply_to_message_id], reply)
            for reply in replies
            if reply.metadata.reply_to_message_id in clients
            and reply.has_content()
            and len(reply.content.metric_records) == 1
            and 0 <= read_metric(reply, key) < math.inf
        ]
        usable = [reply for _, reply in sorted(found, key=lambda pair: pair[0])]
        if sum(read_metric(reply, key) for reply in usable) <= 0:
            return []
        for name in drop_uncommon_metrics(usable):
            LOG.warning("fedpick: metric %r is missing on some clients; left out of the evaluation", name)
        return usable


def client_metrics(replies: list[Message], key: str) -> dict[str, float]:
    """The metrics over clients; ``loss`` weighs them by the metric ``key``, in all others each client counts once."""
    weight = np.array([read_metric(reply, key) for reply in replies])
    records = [next(iter(reply.content.metric_records.values())) for reply in replies]
    loss, accuracy = (np.array([_find(record, word) for record in records]) for word in ("loss", "acc"))
    return {
        "loss": float(np.average(loss, weights=weight)),
        "mean_loss": float(loss.mean()),
        "worst_loss": float(loss.max()),
        "loss_variance": float(loss.var()),
        "mean_accuracy": float(accuracy.mean()),
        "worst_accuracy": float(accuracy.min()),
    }


def server_metrics(found: MetricRecord) -> dict[str, float]:
    """The metrics that the server's own evaluation gives."""
    return {"test_loss": _find(found, "loss"), "test_accuracy": _find(found, "acc")}


def _find(metrics: Mapping[str, Any], word: str) -> float:
    """The first number whose name contains this word, such as eval_loss; NaN where there is none."""
    for key, value in metrics.items():
        if word in key.lower() and isinstance(value, int | float):
            return float(value)
    return math.nan
