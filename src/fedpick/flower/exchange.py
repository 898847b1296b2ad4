"""Messages out and replies back: a loop of our own, with its own time-out, and the part of a grid that one may see."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks at what has come


def exchange(grid: Grid, messages: Sequence[Message], timeout: float | None) -> list[Message | None]:
    """The reply to each message, None where there was none in time.

    Replies come in any order, and an error that the SuperLink made names the SuperLink as its sender: only the id of
    the message that is answered tells whose it is. Messages expire with the time-out, so that no work is left behind.
    """
    for message in messages:
        if timeout is not None:
            message.metadata.ttl = min(message.metadata.ttl, timeout)
    replies: list[Message | None] = [None] * len(messages)
    if not messages:
        return replies
    sent = list(grid.push_messages(list(messages)))  # a generator would kill a deployment
    if len(sent) != len(messages):  # this grid does not say which were refused, but has numbered the messages
        sent = [message.metadata.message_id for message in messages if message.metadata.message_id in set(sent)]
        place = {message.metadata.message_id: i for i, message in enumerate(messages)}
        waiting = {name: place[name] for name in sent}
    else:
        waiting = {name: i for i, name in enumerate(sent) if name}  # None: refused by the SuperLink
    end = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            place_of = waiting.pop(reply.metadata.reply_to_message_id, None)
            if place_of is not None:
                replies[place_of] = reply
        left = pause if end is None else end - time.monotonic()
        if not waiting or left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, LONGEST_PAUSE)
    return replies


class Window(Grid):
    """A grid that lists only some nodes (a node once for each of its seats), and that waits with short pauses.

    Flower's own wait looks for replies every three seconds.
    """

    def __init__(self, grid: Grid, nodes: Sequence[int] | None = None) -> None:
        self.grid, self.nodes = grid, nodes

    def get_node_ids(self) -> Iterable[int]:
        """The nodes in sight."""
        return self.grid.get_node_ids() if self.nodes is None else list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and wait for the replies."""
        return [reply for reply in exchange(self.grid, list(messages), timeout) if reply is not None]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid does it."""
        return self.grid.push_messages(list(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid does it."""
        return self.grid.pull_messages(message_ids)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As the grid does it."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def set_run(self, run: Any) -> None:
        """As the grid does it."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """The grid's run."""
        return self.grid.run
