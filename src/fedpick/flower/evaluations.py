"""What evaluations measure: which of their numbers are the loss and the accuracy, and the metrics over clients."""

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord
from numpy.typing import NDArray

from fedpick.flower.history import EVALUATED, EVALUATORS, PER_CENT, History
from fedpick.flower.replies import read_metric
from fedpick.metrics import OVER_CLIENTS

WORDS = {"loss": ("loss",), "acc": ("accuracy", "acc")}  # what a name must contain -> what it may be as a whole
PREFIXES = ("test", "eval", "evaluation", "val", "valid", "validation", "server", "central", "centralized", "global")
SPREADS = {"std", "stdev", "stddev", "var", "variance"}  # a part of a name that is of a spread
OUTSIDE = "the accuracy is not between 0 and 1: is it in per cent? (a loss is used)"
ROUNDING = 1e-6  # by which an accuracy in float32 may be above 1


def client_metrics(replies: Sequence[Message], key: str, history: History, strict: bool = False) -> dict[str, float]:
    """The metrics over the clients that report them; ``loss`` weighs them by ``key``, else each client counts once.

    An accuracy that is not between 0 and 1 is an error where this is ``strict``, and else it is counted and left out.
    """
    weights = np.array([read_metric(reply, key) for reply in replies])
    records = [next(iter(reply.content.metric_records.values())) for reply in replies]
    loss, accuracy = (np.array([_find(record, word) for record in records]) for word in ("loss", "acc"))
    for name, found in (("a loss", loss), ("an accuracy", accuracy)):
        if not np.isnan(found).all():
            history.count_unusable("clients", f"without {name}, which others report", int(np.isnan(found).sum()))
    values = {"loss": loss, "accuracy": _parts(accuracy, "clients", history, strict)}
    known = {name: part[~np.isnan(part)] for name, part in values.items()}
    over_clients = {
        name: float(function(known[measured])) if known[measured].size else math.nan
        for name, (measured, function) in OVER_CLIENTS.items()
    }
    weights = weights[~np.isnan(loss)]
    weighted = float(np.average(known["loss"], weights=weights)) if weights.any() else math.nan
    return {"loss": weighted, **over_clients, EVALUATED: len(replies)}


def evaluators(identities: Sequence[str | None]) -> dict[str, float]:
    """A number for whom an evaluation is of, whatever their order.

    >>> evaluators(["name=a", "name=b"]) == evaluators(["name=b", "name=a"]) != evaluators(["name=a", "name=c"])
    True
    """
    return {EVALUATORS: zlib.crc32("\n".join(sorted(map(str, identities))).encode())}


def eval_losses(replies: Sequence[Message], clients: Mapping[str, int]) -> dict[int, float]:
    """The losses that evaluations report, by client; NaN where one is not finite.

    ``clients`` has the client of each message that counts, by its id.
    """
    senders = {reply.metadata.reply_to_message_id: loss for reply in replies for loss in _eval_loss(reply)}
    return {clients[name]: loss for name, loss in senders.items() if name in clients}


def is_known(metrics: Mapping[str, Any], training: bool = True) -> bool:
    """Whether there is a number that is a model's loss or accuracy."""
    return any(_named(metrics, word, training) is not None for word in WORDS)


def _eval_loss(reply: Message) -> list[float]:
    """The loss that an evaluation reports; none where it reports none."""
    records = list(reply.content.metric_records.values()) if reply.has_content() else []
    numbers = [{key: value for key, value in record.items() if isinstance(value, int | float)} for record in records]
    return [_find(record, "loss") for record in numbers[:1] if _named(record, "loss") is not None]


def server_metrics(record: MetricRecord, history: History, strict: bool = False) -> dict[str, float]:
    """The metrics that the server's own evaluation gives; accuracies as in ``client_metrics``."""
    accuracy = np.array([_find(record, "acc", training=False)])
    found = float(_parts(accuracy, "the server", history, strict)[0])
    return {"test_loss": _find(record, "loss", training=False), "test_accuracy": found}


def has_loss(record: MetricRecord) -> bool:
    """Whether the server's own evaluation gives a loss, be it NaN."""
    return _named(record, "loss", training=False) is not None


def _parts(accuracies: NDArray[Any], where: str, history: History, strict: bool) -> NDArray[Any]:
    """The accuracies of an evaluation, NaN where they are not between 0 and 1.

    Once most are above 1, all are in per cent, and so were those before, as of a first model that is right for 1 %.
    """
    known, above = ~np.isnan(accuracies), accuracies > 1 + ROUNDING
    wrong = above | (accuracies < 0)
    if strict and wrong.any():
        said = f"an accuracy must be between 0 and 1, got {accuracies[wrong][0]:g} from an evaluation"
        raise ValueError(f"Selecting: {said}: is it in per cent?")
    if known.any() and (history.unusable[where, PER_CENT] or 2 * above.sum() > known.sum()):
        history.count_unusable(where, PER_CENT, int(known.sum()))
        history.forget_accuracies()
        return np.full_like(accuracies, math.nan)
    history.count_unusable(where, OUTSIDE, int(wrong.sum()))
    return np.where(wrong, math.nan, np.minimum(accuracies, 1.0))


def _named(metrics: Mapping[str, Any], word: str, training: bool = True) -> str | None:
    """The name of the number that is a model's loss or accuracy; None where there is none.

    It is the one that has just this name, or it with a prefix such as test or eval; or else the first that contains it,
    and one of training only where there is no other, if at all. A spread is neither, and nor is an inaccuracy; what is
    right among several (top5) counts where there is no other.

    >>> _named({"train_loss": 9.0, "top5_loss": 2.0, "eval_loss": 1.0}, "loss")
    'eval_loss'
    >>> _named({"accuracy_std": 0.1, "inaccuracy": 0.3, "top5_accuracy": 0.9, "top1_accuracy": 0.7}, "acc")
    'top1_accuracy'
    """

    def rank(name: str) -> int:
        first, *rest = re.split(r"[^a-z0-9]+", name.lower())
        known = WORDS[word]
        if "train" in name.lower():
            return 4
        if re.search(r"top[_-]?([2-9]|1\d)", name.lower()):
            return 3
        return 0 if first in known and not rest else 1 if first in PREFIXES and rest[-1:] and rest[-1] in known else 2

    found = [key for key, value in metrics.items() if word in key.lower() and isinstance(value, int | float)]
    found = [key for key in found if not SPREADS & {*re.split(r"[^a-z]+", key.lower())} and "inacc" not in key.lower()]
    found = [key for key in found if training or rank(key) < 4]
    return min(found, key=rank) if found else None


def _find(metrics: Mapping[str, Any], word: str, training: bool = True) -> float:
    """That number, such as eval_loss; NaN where there is none."""
    name = _named(metrics, word, training)
    return math.nan if name is None else float(metrics[name])
