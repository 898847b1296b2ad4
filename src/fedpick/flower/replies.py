"""Replies of Flower nodes: reading what they say, and checking it before anything of it is deserialised.

A reply that is an error, silent, NaN or lacks a key counts as no answer.
"""

import io
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

LOG = logging.getLogger("flwr.fedpick")  # below Flower's own logger: its handlers and its level apply
LARGEST = float(np.finfo(np.float32).max)
NOT_FINITE, TOO_LARGE = "is not finite", "has numbers that are too large"
GONE = (3, 4, 5)  # Flower's codes of errors that the SuperLink makes for a node that did not answer in time
LONGEST_NAME, LONGEST_HEADER = 200, 1000  # characters of a name; bytes of the header of an array


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
    """The stable identity that a node reports: a name (in a ConfigRecord) or its partition-id (a metric).

    A name is of at most 200 characters, all of them printable.
    """
    for record in reply.content.config_records.values():
        if isinstance(name := record.get("name"), str) and 0 < len(name) <= LONGEST_NAME and name.isprintable():
            return f"name={name}"
    number = read_metric(reply, "partition-id")
    return f"partition-id={int(number)}" if number >= 0 and number.is_integer() else None


def is_silence(reply: Message | None) -> bool:
    """Whether a node did not answer at all: an error of its own is an answer."""
    return reply is None or (reply.has_error() and reply.error.code in GONE)


def error_text(reply: Message) -> str:
    """The last line of the error in a reply, less the end of the "<class ...>:<'...'>" that Flower puts around it."""
    reason = str(reply.error.reason).strip()
    reason = reason.removesuffix("'>") if ":<'" in reason else reason
    lines = [line for line in reason.splitlines() if line.strip()]
    return printable(f"error: {lines[-1].strip()}") if lines else "error without a reason"


def check_update(reply: Message | None, model: Mapping[str, NDArray[Any]], needed: str | None = None) -> str | None:
    """Why an update cannot enter the average, or None; one that can is then of at most the model's precision.

    It needs the model's names, shapes and kinds of numbers, all of them finite in the model's own precision. Whatever
    else is wrong with it, it is the fault of this client alone. ``needed`` is a loss by which the strategy averages.
    """
    try:
        if reply is None:
            return "no reply in time"
        if not reply.has_content():
            return error_text(reply) if reply.has_error() else "empty reply"
        records, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
        if len(records) != 1 or len(metrics) > 1:
            return f"{len(records)} array and {len(metrics)} metric records instead of one of each"
        if set(records[0]) != set(model):
            return f"array names differ from the model's: {sorted(set(records[0]) ^ set(model))[:3]!r:.200}"
        arrays = {name: _checked(name, records[0][name], values) for name, values in model.items()}
        reply.content[next(iter(reply.content.array_records))] = ArrayRecord(arrays)
        if needed is not None and not read_metric(reply, needed) >= 0:
            return f"no valid {needed!r}, by which the strategy averages"
    except Exception as error:
        return printable(f"{type(error).__name__}: {error}" if not isinstance(error, UpdateError) else str(error))
    return None


class UpdateError(ValueError):
    """An array that cannot enter the average."""


def _checked(name: str, array: Array, model: NDArray[Any]) -> Array:
    """An array of an update, of at most the model's precision; nothing is allocated before its header is checked."""
    try:
        if array.stype != "numpy.ndarray":
            raise ValueError(f"it is of type {array.stype!r:.50}")
        start = io.BytesIO(array.data[: LONGEST_HEADER + 12])
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(start)]
        shape, by_column, dtype = read(start, LONGEST_HEADER)
    except Exception as error:  # what a damaged header raises depends on where it is damaged
        raise UpdateError(f"array {name!r} cannot be read: {type(error).__name__}: {error}") from None
    if shape != model.shape:
        raise UpdateError(f"array {name!r} has shape {shape}, the model has {model.shape}")
    kinds = ("iu", "iu") if model.dtype.kind in "iu" else (model.dtype.kind, "bfc")
    if dtype.kind not in kinds[0] or dtype.kind not in kinds[1]:
        raise UpdateError(f"array {name!r} has numbers of type {dtype}, the model {model.dtype}")
    if len(array.data) != start.tell() + math.prod(shape) * dtype.itemsize:
        raise UpdateError(f"array {name!r} cannot be read: it has {len(array.data)} bytes")
    values = np.frombuffer(array.data, dtype, offset=start.tell()).reshape(shape, order="F" if by_column else "C")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(model.dtype, copy=False)
    if dtype.kind in "fc" and not (np.abs(converted) <= largest(model.dtype)).all():
        finite = np.isfinite(converted).all()
        raise UpdateError(f"array {name!r} {TOO_LARGE if finite else NOT_FINITE}")
    if dtype.kind in "iu" and not np.array_equal(converted, values):
        raise UpdateError(f"array {name!r} has numbers that are too large for {model.dtype}")
    narrower = dtype.isnative and dtype.itemsize <= model.dtype.itemsize
    return array if narrower else Array(np.ascontiguousarray(converted).reshape(shape))


def largest(dtype: np.dtype[Any]) -> float:
    """The largest number of a model: a sum of squares of them is finite, in 32 bits for floats of fewer."""
    return float(np.sqrt(max(np.finfo(dtype).max, LARGEST))) / 1e6


def printable(text: str, length: int = LONGEST_NAME) -> str:
    """A text of a client on one line of a log, which it can then not forge.

    >>> printable("a\\nfedpick round 9: done")
    'a?fedpick round 9: done'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:length])


def keep_whole(arrays: ArrayRecord, model: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """What a strategy has made of the updates; where the model has whole numbers or truth values, it keeps them.

    Floats are as the strategy returns them: some (FedAdam) change their precision.
    """
    whole = {name: values.dtype for name, values in model.items() if values.dtype.kind in "biu"}
    changed = {name: np.rint(arrays[name].numpy()).astype(dtype) for name, dtype in whole.items() if name in arrays}
    return ArrayRecord({name: Array(changed[name]) if name in changed else part for name, part in arrays.items()})


def is_finite(arrays: ArrayRecord) -> bool:
    """Whether all numbers of a model are finite."""
    return all(np.isfinite(array.numpy()).all() for array in arrays.values())


def difference(reply: Message, model: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The update of a valid reply, its arrays less the model's; what is no floating-point array is left out."""
    (record,) = reply.content.array_records.values()
    floats = [name for name, values in model.items() if values.dtype.kind == "f"]
    return {name: (record[name].numpy() - model[name]).astype(np.float32) for name in floats}


def scale(reply: Message, model: Mapping[str, NDArray[Any]], factor: float) -> None:
    """Scale the update of a valid reply, the difference to the model."""
    (name, record), *_ = reply.content.array_records.items()
    reply.content[name] = ArrayRecord({part: _scale(array, model[part], factor) for part, array in record.items()})


def trained_loss(reply: Message, fault: str | None, key: str) -> float:
    """The loss in training, to judge the model by: NaN where it or the update broke, 0 where it is not reported."""
    if fault is not None and fault.endswith((NOT_FINITE, TOO_LARGE)):
        return math.nan
    reported = any(key in record for record in reply.content.metric_records.values())
    return read_metric(reply, key) if reported else 0.0


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
    usable = [reply for reply in usable if is_credible(reply)]
    if not any(read_metric(reply, key) for reply in usable):
        return []
    return sorted(usable, key=lambda reply: clients[reply.metadata.reply_to_message_id])


def unify_names(updates: Sequence[Message], arrays_key: str) -> None:
    """Give the records of all updates the same names, where they differ: strategies require it."""
    names = {(*reply.content.array_records, *reply.content.metric_records) for reply in updates}
    if len(names) == 1 and len(next(iter(names))) == 2:
        return
    metrics_key = "metrics" if arrays_key != "metrics" else "fedpick-metrics"
    for reply in updates:
        content, old = RecordDict(), reply.content
        (content[arrays_key],) = old.array_records.values()
        content[metrics_key] = MetricRecord(dict(*old.metric_records.values()))
        for name, config in old.config_records.items():
            if name not in content:
                content[name] = config
        reply.content = content


def bound_examples(replies: Sequence[Message], key: str, bound: Callable[[list[float]], NDArray[np.float64]]) -> None:
    """Bound the examples (the metric ``key``) by which replies are averaged, as ``bound`` has it of the claims."""
    claims = [read_metric(reply, key) for reply in replies]
    bounds = bound(claims).tolist() if all(claim >= 0 for claim in claims) else claims
    for reply, claim, bounded in zip(replies, claims, bounds, strict=True):
        if bounded < claim and any(bounds):  # where nobody may count, there is no average
            _metrics(reply)[key] = bounded


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
                scale(reply, model, total)
    drop_uncommon_metrics(updates)


def used_weights(updates: Sequence[Message], key: str) -> NDArray[np.float32]:
    """The weights with which a strategy averages by the metric ``key``: parts of 1."""
    examples = np.array([read_metric(reply, key) for reply in updates])
    return np.asarray(examples / examples.sum(), np.float32)


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


def is_credible(reply: Message) -> bool:
    """Whether all numbers of the metrics can be averaged."""
    parts = (value if isinstance(value, list) else [value] for value in _metrics(reply).values())
    return all(abs(number) <= LARGEST for part in parts for number in part)


def drop_uncommon_metrics(replies: Sequence[Message]) -> None:
    """Remove metrics that not all replies have in one form, and give the records one name: strategies require it."""
    shapes = [{key: np.shape(value) for key, value in _metrics(reply).items()} for reply in replies]
    common = {key for key, shape in shapes[0].items() if all(other.get(key) == shape for other in shapes)}
    for key in sorted(set().union(*shapes) - common):
        LOG.warning("fedpick: metric %.200r is missing on some clients; left out", key)
    name = next(iter(replies[0].content.metric_records))
    for reply in replies:
        values = {key: value for key, value in _metrics(reply).items() if key in common}
        for old in [old for old in reply.content if old == name or old in reply.content.metric_records]:
            del reply.content[old]
        reply.content[name] = MetricRecord(values)
