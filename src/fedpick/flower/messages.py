"""Messages to Flower nodes: sending with a time-out, a grid limited to some nodes, reading and checking replies.

A reply that is an error, silent, NaN or lacks a key counts as no answer.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

LOG = logging.getLogger("flwr.fedpick")  # below Flower's own logger: its handlers and its level apply
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two pulls
LARGEST = float(np.finfo(np.float32).max)


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


def read_metric(reply: Message | None, key: str) -> float:
    """A number from the metrics of a reply; NaN where there is none that float32 can hold."""
    if reply is not None and reply.has_content():
        for record in reply.content.metric_records.values():
            value = record.get(key)
            if isinstance(value, int | float):
                return float(value) if abs(value) <= LARGEST else math.nan
    return math.nan


def read_loss(reply: Message | None, key: str, bounds: tuple[float, float]) -> float:
    """A loss from a reply; NaN unless it lies within the bounds."""
    value = read_metric(reply, key)
    return value if bounds[0] <= value <= bounds[1] else math.nan


def read_size(reply: Message) -> float:
    """num-examples from a reply; NaN unless it is 0 or between 1e-30 and 1e30."""
    value = read_metric(reply, "num-examples")
    return value if value == 0 or 1e-30 <= value <= 1e30 else math.nan


def read_seconds(reply: Message | None, key: str) -> float:
    """A duration from a reply; NaN unless it is at least 0."""
    value = read_metric(reply, key)
    return value if value >= 0 else math.nan


def read_identity(reply: Message) -> str | None:
    """The stable identity that a node reports: a name (in a ConfigRecord) or its partition-id (a metric)."""
    for record in reply.content.config_records.values():
        if isinstance(name := record.get("name"), str) and name:
            return f"name={name}"
    number = read_metric(reply, "partition-id")
    return f"partition-id={int(number)}" if number >= 0 and number.is_integer() else None


def error_text(reply: Message) -> str:
    """The last line of the error in a reply."""
    lines = [line for line in str(reply.error.reason).strip().splitlines() if line.strip()]
    return f"error: {lines[-1].strip()[:200]}" if lines else "error without a reason"


def update_fault(reply: Message | None, model: Mapping[str, NDArray[Any]]) -> str | None:
    """Why an update cannot enter the average, or None; it needs the model's names and shapes, and finite numbers."""
    if reply is None:
        return "no reply in time"
    if not reply.has_content():
        return error_text(reply) if reply.has_error() else "empty reply"
    records = list(reply.content.array_records.values())
    if len(records) != 1 or len(reply.content.metric_records) > 1:
        return f"{len(records)} array and {len(reply.content.metric_records)} metric records instead of one of each"
    if set(records[0]) != set(model):
        return f"array names differ from the model's: {sorted(set(records[0]) ^ set(model))[:3]}"
    for name, array in records[0].items():
        try:
            values = array.numpy()
        except (ValueError, TypeError, EOFError, OSError) as error:
            return f"array {name!r} cannot be read: {error}"
        if values.shape != model[name].shape:
            return f"array {name!r} has shape {values.shape}, the model has {model[name].shape}"
        if values.dtype.kind not in "biufc" or not np.isfinite(values).all():
            return f"array {name!r} is not finite"
    return None


def difference(reply: Message, model: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The update of a valid reply, its arrays less the model's; what is no floating-point array is left out."""
    (record,) = reply.content.array_records.values()
    floats = [name for name, values in model.items() if values.dtype.kind == "f"]
    return {name: (record[name].numpy() - model[name]).astype(np.float32) for name in floats}


def usable_evaluations(replies: Iterable[Message], clients: Mapping[str, int], key: str) -> list[Message]:
    """The evaluations that a strategy can average by the metric ``key``; a single other one would end the run.

    ``clients`` has the client of each message that was sent, by its id; the evaluations come in their order.
    """
    usable = [
        reply
        for reply in replies
        if reply.metadata.reply_to_message_id in clients
        and reply.has_content()
        and len(reply.content.metric_records) == 1
        and read_metric(reply, key) >= 0
    ]
    if not any(read_metric(reply, key) for reply in usable):
        return []
    usable.sort(key=lambda reply: clients[reply.metadata.reply_to_message_id])
    _drop_uncommon_metrics(usable)
    return usable


def weigh(
    updates: Sequence[Message], weights: NDArray[Any] | None, model: Mapping[str, NDArray[Any]], key: str
) -> None:
    """Have a strategy that averages by the metric ``key`` average with these weights; None leaves the clients' own.

    An average divides by their sum; where that is not 1, every update, the difference to the model, is scaled by it.
    """
    if weights is None:
        examples = [read_metric(reply, key) for reply in updates]
        if not all(number >= 0 for number in examples) or not any(examples):
            LOG.warning("fedpick: some clients report no valid %s; all clients get the same weight", key)
            for reply in updates:
                _metrics(reply)[key] = 1.0
    else:
        total = float(weights.sum(dtype=np.float64))
        for reply, weight in zip(updates, weights.tolist(), strict=True):
            _metrics(reply)[key] = weight
            if abs(total - 1) > 1e-5:
                (name, record), *_ = reply.content.array_records.items()
                scaled = {part: _scale(array, model[part], total) for part, array in record.items()}
                reply.content[name] = ArrayRecord(scaled)
    _drop_uncommon_metrics(updates)


def messages_by_seat(
    messages: Iterable[Message], clients: Mapping[int, int], nodes: Mapping[int, int]
) -> dict[int, Message]:
    """The strategy's training messages by seat, each with its seat in its config: a client in two seats trains twice.

    ``clients`` and ``nodes`` are those of each taken seat. Messages to nodes without a seat are dropped; one that must
    serve two seats of a node is copied.
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
            content[name] = ConfigRecord({**settings, "fedpick-seat": seat, "fedpick-client": clients[seat]})
            found[seat] = Message(
                content, dst_node_id=node, message_type=about.message_type, ttl=about.ttl, group_id=about.group_id
            )
    return found


def _scale(array: Array, before: NDArray[Any], factor: float) -> Array:
    values = array.numpy()
    if values.dtype.kind != "f":
        return array
    return Array(np.asarray(before + factor * (values - before), values.dtype))


def _metrics(reply: Message) -> MetricRecord:
    """The record of metrics, made where there is none."""
    for record in reply.content.metric_records.values():
        return record
    reply.content["metrics"] = MetricRecord()
    return _metrics(reply)


def _drop_uncommon_metrics(replies: Sequence[Message]) -> None:
    """Remove metrics that not all replies have in one form, and give the records one name: strategies require it."""
    shapes = [{key: np.shape(value) for key, value in _metrics(reply).items()} for reply in replies]
    common = {key for key, shape in shapes[0].items() if all(other.get(key) == shape for other in shapes)}
    for key in sorted(set().union(*shapes) - common):
        LOG.warning("fedpick: metric %r is missing on some clients; left out", key)
    name = next(iter(replies[0].content.metric_records))
    for reply in replies:
        values = {key: value for key, value in _metrics(reply).items() if key in common}
        for old in list(reply.content.metric_records):
            del reply.content[old]
        reply.content[name] = MetricRecord(values)
