"""What a reply says, and whether it may be believed: error, silence, NaN and a missing key are all no answer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord

Numbers = np.ndarray[Any, Any]

LARGEST = float(np.finfo(np.float32).max)


def metric(reply: Message | None, key: str) -> float:
    """A number from the metrics of a reply; NaN where there is no such number."""
    if reply is None or not reply.has_content():
        return math.nan
    for record in reply.content.metric_records.values():
        value = record.get(key)
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return math.nan
    return math.nan


def loss(reply: Message | None, key: str, bounds: tuple[float, float]) -> float:
    """A loss from a reply; NaN unless it is a number that float32 can hold and that lies within the bounds."""
    value = metric(reply, key)
    believed = abs(value) <= LARGEST and bounds[0] <= value <= bounds[1]
    return value if believed else math.nan


def size(reply: Message | None) -> float:
    """num-examples from a reply; NaN unless it is 0 or a number between 1e-30 and 1e30."""
    value = metric(reply, "num-examples")
    return value if value == 0 or 1e-30 <= value <= 1e30 else math.nan


def identity(reply: Message | None) -> str | None:
    """The stable id that a node reports: a name (in a ConfigRecord), or its partition-id (among the metrics)."""
    if reply is None or not reply.has_content():
        return None
    for record in reply.content.config_records.values():
        if isinstance(name := record.get("name"), str) and name:
            return f"name={name}"
    number = metric(reply, "partition-id")
    return f"partition-id={int(number)}" if number >= 0 and number.is_integer() else None


def fault(reply: Message | None, model: Mapping[str, Numbers]) -> str | None:
    """Why an update may not enter the average, or None: it must have the model's names and shapes, and be finite."""
    if reply is None:
        return "no reply in time"
    if not reply.has_content():
        return complaint(reply) if reply.has_error() else "an empty reply"
    records = list(reply.content.array_records.values())
    if len(records) != 1 or len(reply.content.metric_records) > 1:
        found = f"{len(records)} and {len(reply.content.metric_records)}"
        return f"{found} records where one of arrays and one of metrics are wanted"
    if set(records[0]) != set(model):
        return f"arrays with other names than the model's, {sorted(set(records[0]) ^ set(model))[:3]}"
    for name, array in records[0].items():
        try:
            values = array.numpy()
        except (ValueError, TypeError, EOFError, OSError) as error:
            return f"an array {name!r} that cannot be read, {error}"
        if values.shape != model[name].shape:
            return f"an array {name!r} of shape {values.shape} where the model's is {model[name].shape}"
        if values.dtype.kind not in "biufc" or not np.isfinite(values).all():
            return f"an array {name!r} that is not finite"
    return None


def complaint(reply: Message) -> str:
    """The error in a reply, in a line."""
    lines = [line for line in str(reply.error.reason).strip().splitlines() if line.strip()]
    return f"an error, {lines[-1].strip()[:200]}" if lines else "an error without a reason"


def weigh(replies: Sequence[Message], weights: Sequence[float], key: str) -> None:
    """Write the weights of the average over what the clients called their number of examples."""
    for reply, weight in zip(replies, weights, strict=True):
        record = _metrics(reply)
        record[key] = float(weight)


def agree(replies: Sequence[Message]) -> list[str]:
    """Leave only the metrics that all replies have in one form, which strategies insist on; the others' names."""
    if not replies:
        return []
    forms = [{key: _form(value) for key, value in _metrics(reply).items()} for reply in replies]
    common = {key for key, form in forms[0].items() if all(other.get(key) == form for other in forms[1:])}
    left_out = sorted({key for form in forms for key in form} - common)
    if left_out or len({next(iter(reply.content.metric_records)) for reply in replies}) > 1:
        name = next(iter(replies[0].content.metric_records))
        for reply in replies:
            kept = {key: value for key, value in _metrics(reply).items() if key in common}
            for old in list(reply.content.metric_records):
                del reply.content[old]
            reply.content[name] = MetricRecord(kept)
    return left_out


def scale(replies: Sequence[Message], model: Mapping[str, Numbers], total: float) -> None:
    """Make every update ``total`` times as large, for selectors whose weights do not sum to 1: an average divides by
    their sum, and this takes it back."""
    for reply in replies:
        (name, record), *_ = reply.content.array_records.items()
        reply.content[name] = ArrayRecord({key: _scaled(array, model[key], total) for key, array in record.items()})


def _scaled(array: Array, before: Numbers, total: float) -> Array:
    values = array.numpy()
    if values.dtype.kind != "f":
        return array
    return Array(np.asarray(before + total * (values - before), values.dtype))


def _metrics(reply: Message) -> MetricRecord:
    """The one record of metrics, made where there is none."""
    for record in reply.content.metric_records.values():
        return record
    reply.content["metrics"] = MetricRecord()
    return _metrics(reply)


def _form(value: Any) -> tuple[bool, int]:
    return isinstance(value, list), len(value) if isinstance(value, list) else 1
