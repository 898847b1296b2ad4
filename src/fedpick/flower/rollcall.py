"""Questions to the clients: who is there and with how much data, and what their loss is."""

import logging
import time
from typing import NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpick.flower import replies as read
from fedpick.flower.exchange import exchange
from fedpick.flower.options import Options
from fedpick.flower.roster import Roster, in_order

LOG = logging.getLogger("flwr.fedpick")  # below Flower's own logger: its handlers and its level apply


class Letter(NamedTuple):
    """What a question is sent with: the model, and under which names a strategy sends models and settings."""

    arrays: ArrayRecord
    arrays_key: str
    config_key: str
    server_round: int


class Rollcall:
    """The roster, and the calls that keep it true: newcomers are asked once, others when they come back."""

    def __init__(self, options: Options, lines: int) -> None:
        self.options, self.roster = options, Roster(lines)
        self.first = True
        self.nameless = False  # whether it was said that a client has no stable id

    def call(self, grid: Grid, t: int, wanted: int, letter: Letter) -> Roster:
        """The roster as it is now. The first call waits until as many clients as are wanted have answered."""
        end = time.monotonic() + (self.options.wait if self.first else 0.0)
        told = -float("inf")
        answers: dict[int, Message] = {}
        while True:
            listed = list(grid.get_node_ids())
            self.roster.seen(listed)
            answers = {node: reply for node, reply in answers.items() if node in set(listed)}
            answers |= self._ask(grid, [n for n in self.roster.to_ask(listed, t) if n not in answers], t, letter)
            here = len(answers) + int(self.roster.available().sum())
            left = end - time.monotonic()
            if here >= wanted or left <= 0:
                break
            if time.monotonic() - told > 10:
                told = time.monotonic()
                LOG.info("fedpick: %d of %d clients are here; waiting %.0f s at most", here, wanted, left)
            time.sleep(min(0.5, left))
        if self.first:
            self.roster.grow(len(answers))
        self.first = False
        self._enter(answers, t)
        return self.roster

    def poll(self, grid: Grid, t: int, lines: list[int], letter: Letter, batch: int | None) -> dict[int, float]:
        """The losses of those who answered in time and believably; the others go into quarantine."""
        sent = [self._question(self.roster.node[line], letter, {"fedpick-client": line}, batch) for line in lines]
        answers = {}
        for line, reply in zip(lines, exchange(grid, sent, self.options.poll_timeout), strict=True):
            loss = read.loss(reply, self.options.poll_loss, self.options.loss_range)
            if loss == loss:
                answers[line] = loss
                self.roster.good([line])
            else:
                LOG.warning("fedpick: %s did not answer the poll: %s", self.roster.identities[line], self._why(reply))
                self.roster.strike(line, t, self.options.quarantine)
        return answers

    def _ask(self, grid: Grid, nodes: list[int], t: int, letter: Letter) -> dict[int, Message]:
        # A handler of evaluate messages, which may serve as well, expects a model in each of them.
        content = letter if self.options.query.startswith("evaluate") else letter._replace(arrays=ArrayRecord())
        sent = [self._question(node, content, {}, None) for node in nodes]
        answers = {}
        for node, reply in zip(nodes, exchange(grid, sent, self.options.poll_timeout), strict=True):
            if reply is not None and reply.has_content():
                answers[node] = reply
            else:
                who = self.roster.identities[self.roster.line[node]] if node in self.roster.line else f"node {node}"
                LOG.warning("fedpick: %s did not answer the roll call: %s", who, self._why(reply))
                self.roster.strike_node(node, t, self.options.quarantine)
        return answers

    def _enter(self, answers: dict[int, Message], t: int) -> None:
        """Join those who answered, in an order that depends on who they are and not on when they answered."""
        named: list[tuple[str, int, float]] = []
        for node, reply in answers.items():
            identity = read.identity(reply)
            if identity is None and not self.nameless:
                self.nameless = True
                LOG.warning(
                    "fedpick: clients should report a partition-id or a name; known by their node id alone they are "
                    "strangers after a restart, and picks cannot be repeated"
                )
            named.append((identity or f"node={node}", node, read.size(reply)))
        for identity, node, size in sorted(named, key=lambda entry: (in_order(entry[0]), entry[1])):
            before = self.roster.where(identity)
            self.roster.join(node, identity, size, t)
            if before not in (None, node):
                LOG.warning("fedpick: nodes %s and %s say that they are %s; the second is it", before, node, identity)

    def _question(self, node: int, letter: Letter, settings: dict[str, int], batch: int | None) -> Message:
        config = ConfigRecord({"server-round": letter.server_round, **settings})
        if batch is not None:
            config["batch-size"] = batch
        content = RecordDict({letter.config_key: config})
        if len(letter.arrays):
            content[letter.arrays_key] = letter.arrays
        return Message(
            content, dst_node_id=node, message_type=self.options.query, ttl=self.options.poll_timeout,
            group_id=str(letter.server_round),
        )  # fmt: skip

    def _why(self, reply: Message | None) -> str:
        if reply is None:
            return f"silence for {self.options.poll_timeout:g} s"
        return read.complaint(reply) if reply.has_error() else "no loss that can be believed"
