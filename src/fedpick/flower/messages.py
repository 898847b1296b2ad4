"""Messages to Flower nodes: sending with a time-out, a grid limited to some nodes, and the messages of the seats."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two pulls


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float | None, seconds: dict[str, float] | None = None
) -> list[Message | None]:
    """Send messages and wait: the reply to each of them, None where none came in time.

    ``seconds`` is filled with the time that each reply took, by the id of the message that it answers.

    Replies come in any order, and an error made by the SuperLink names the SuperLink as its sender: only the id of the
    message that it answers says whose it is. Messages expire with the time-out, so that no work is left behind.
    """
    for message in messages:
        if timeout is not None:
            message.metadata.ttl = min(message.metadata.ttl, timeout)
    replies: list[Message | None] = [None] * len(messages)
    if not messages:
        return replies
    sent = list(grid.push_messages(list(messages)))  # a generator would kill a deployment
    if len(sent) == len(messages):
        waiting = {name: i for i, name in enumerate(sent) if name}  # None: refused by the SuperLink
    else:  # this grid leaves out what was refused, but has set the ids
        ids = {message.metadata.message_id: i for i, message in enumerate(messages)}
        waiting = {name: ids[name] for name in sent if name in ids}
    begun = time.monotonic()
    end = None if timeout is None else begun + timeout
    pause = FIRST_PAUSE
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            i = waiting.pop(reply.metadata.reply_to_message_id, None)
            if i is not None:
                replies[i] = reply
                if seconds is not None:
                    seconds[reply.metadata.reply_to_message_id] = time.monotonic() - begun
        left = pause if end is None else end - time.monotonic()
        if not waiting or left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE)
    return replies


class FilteredGrid(Grid):
    """A grid that lists only some nodes, all for None, and that pulls replies more often than every three seconds.

    ``seconds`` has the time that each reply took, by the id of the message that it answers.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int] | None = None) -> None:
        self.grid, self.nodes = grid, nodes
        self.seconds: dict[str, float] = {}

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids() if self.nodes is None else list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        self.seconds.clear()
        return [reply for reply in exchange(self.grid, list(messages), timeout, self.seconds) if reply is not None]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(list(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)

    def create_message(self, *args: Any, **options: Any) -> Message:
        return self.grid.create_message(*args, **options)

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run


class AppId(NamedTuple):
    """Which app runs on a grid: Flower's name of it, and the checksum of its files and settings; empty if unknown."""

    name: str = ""
    digest: str = ""

    @classmethod
    def of(cls, grid: Grid) -> "AppId":
        """The app of the grid's run."""
        return cls(grid.run.fab_id, grid.run.fab_hash)


def changed(before: Mapping[str, Any], config: ConfigRecord) -> dict[str, Any]:
    """What a strategy has changed in a config, but for the round and for bytes, which a checkpoint does not hold.

    >>> changed({"lr": 1.0, "epochs": 2}, ConfigRecord({"lr": 0.5, "epochs": 2, "server-round": 1}))
    {'lr': 0.5}
    """
    found = {name: value for name, value in config.items() if name != "server-round" and before.get(name) != value}
    parts = ((name, value if isinstance(value, list) else [value]) for name, value in found.items())
    return {name: found[name] for name, each in parts if not any(isinstance(part, bytes) for part in each)}


def messages_by_seat(
    messages: Iterable[Message],
    clients: Mapping[int, int],
    nodes: Mapping[int, int],
    told: Mapping[str, float],
) -> dict[int, Message]:
    """The strategy's training messages by seat, each with its seat in its config: a client in two seats trains twice.

    ``clients`` and ``nodes`` are those of each taken seat. Messages to nodes without a seat are dropped; one that must
    serve two seats of a node is copied. What clients are ``told`` goes along.
    """
    by_node: dict[int, list[Message]] = {}
    for message in messages:
        by_node.setdefault(message.metadata.dst_node_id, []).append(message)
    found: dict[int, Message] = {}
    for seat, node in nodes.items():
        own = by_node.get(node)
        if own:
            message = own.pop(0) if len(own) > 1 else own[0]
            about, content = message.metadata, RecordDict(dict(message.content.items()))
            name = next(iter(content.config_records), "config")
            settings = dict(content.config_records.get(name, {}))
            content[name] = ConfigRecord({**settings, **told, "fedpick-seat": seat, "fedpick-client": clients[seat]})
            found[seat] = Message(
                content, dst_node_id=node, message_type=about.message_type, ttl=about.ttl, group_id=about.group_id
            )
    return found
