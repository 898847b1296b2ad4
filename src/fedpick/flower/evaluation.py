"""Evaluation on the clients and by the server: as the strategy does it, without those who cannot be read, recorded."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedpick.flower import replies as read
from fedpick.flower.exchange import Window
from fedpick.flower.inner import no_more_than, setting
from fedpick.flower.roster import Roster

LOG = logging.getLogger("flwr.fedpick")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class Evaluation:
    """One round's evaluation on the clients that are there and trusted."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.lines: dict[int, int] = {}
        self.messages: list[Message] = []

    def configure(self, grid: Grid, roster: Roster, configure: Callable[[Grid], Iterable[Message]]) -> list[Message]:
        """The strategy's own messages, to some of the nodes that may be asked."""
        nodes = [roster.node[line] for line in np.flatnonzero(roster.available()).tolist()]
        self.messages, self.lines = [], dict(roster.line)
        if nodes:
            with no_more_than(self.strategy, len(nodes)):
                self.messages = list(configure(Window(grid, nodes)))
        return self.messages

    def silent(self, replies: Iterable[Message]) -> list[int]:
        """The lines of those who said nothing; an error of their own is an answer, one that the SuperLink made is not.

        An app may have no evaluation at all, which is no reason to mistrust its clients.
        """
        spoke = {reply.metadata.src_node_id for reply in replies}
        return sorted({line for node, line in self.asked.items() if node not in spoke})

    @property
    def asked(self) -> dict[int, int]:
        """Node and line of those who were asked."""
        nodes = [message.metadata.dst_node_id for message in self.messages]
        return {node: self.lines[node] for node in nodes if node in self.lines}

    def believed(self, replies: Iterable[Message]) -> list[Message]:
        """The replies that the strategy can average, by client; a single one that it cannot would end the run."""
        asked = {m.metadata.message_id: self.lines.get(m.metadata.dst_node_id, -1) for m in self.messages}
        key = setting(self.strategy, "weighted_by_key", "num-examples")
        found = [
            (asked[reply.metadata.reply_to_message_id], reply)
            for reply in replies
            if reply.metadata.reply_to_message_id in asked
            and reply.has_content()
            and len(reply.content.metric_records) == 1
            and 0 <= read.metric(reply, key) < math.inf
        ]
        good = [reply for _, reply in sorted(found, key=lambda pair: pair[0])]
        if sum(read.metric(reply, key) for reply in good) <= 0:
            return []
        for word in read.agree(good):
            LOG.warning("fedpick: not all clients have a metric %r; it is left out of the evaluation", word)
        return good


def over_clients(replies: list[Message], key: str) -> dict[str, float]:
    """The metrics of a record that follow from what each client evaluated; clients count once but in ``loss``."""
    weight = np.array([read.metric(reply, key) for reply in replies])
    loss, accuracy = (np.array([named(_metrics(reply), word) for reply in replies]) for word in ("loss", "acc"))
    return {
        "loss": float(np.average(loss, weights=weight)),
        "mean_loss": float(loss.mean()),
        "worst_loss": float(loss.max()),
        "loss_variance": float(loss.var()),
        "mean_accuracy": float(accuracy.mean()),
        "worst_accuracy": float(accuracy.min()),
    }


def by_server(found: MetricRecord) -> dict[str, float]:
    """The metrics of a record that the server itself evaluates."""
    return {"test_loss": named(found, "loss"), "test_accuracy": named(found, "acc")}


def named(metrics: Mapping[str, Any], word: str) -> float:
    """The first number whose name has this word in it, such as eval_loss; NaN where there is none."""
    for key, value in metrics.items():
        if word in key.lower() and isinstance(value, int | float):
            return float(value)
    return math.nan


def _metrics(reply: Message) -> MetricRecord:
    return next(iter(reply.content.metric_records.values()))
