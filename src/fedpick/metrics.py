"""The metrics of a federation, simulated or real, and the messages and bytes of its rounds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]  # of any shape
OVER_CLIENTS: dict[str, tuple[str, Callable[..., Any]]] = {  # of what; each client counts once
    "mean_loss": ("loss", np.mean),
    "worst_loss": ("loss", np.max),
    "loss_variance": ("loss", np.var),
    "mean_accuracy": ("accuracy", np.mean),
    "worst_accuracy": ("accuracy", np.min),
}
PARTS = ("test_f1", "test_auc", "test_calibration")  # which lie between 0 and 1, as accuracies do
METRICS = ("loss", "test_loss", "test_accuracy", "skew", *OVER_CLIENTS)
SCALAR = 4  # bytes of a loss in a reply


def is_accuracy(metric: str) -> bool:
    """Whether a metric is a part of 1 that is better the higher it is; all others are losses, better the lower.

    >>> is_accuracy("worst_accuracy"), is_accuracy("skew")
    (True, False)
    """
    return metric.endswith("accuracy")


def is_part(metric: str) -> bool:
    """Whether a metric is known to lie between 0 and 1.

    >>> is_part("test_f1"), is_part("loss")
    (True, False)
    """
    return metric in PARTS or is_accuracy(metric)


def goal_of(metric: str, value: float) -> str:
    """A target in words.

    >>> goal_of("test_accuracy", 0.8), goal_of("loss", 0.59)
    ('test accuracy 80.0%', 'loss 0.59')
    """
    return f"{metric.replace('_', ' ')} {value:{'.1%' if is_accuracy(metric) else 'g'}}"


def check_part(owner: str, parameter: str, metric: str, value: float) -> None:
    """Raise where the value of an accuracy of ``METRICS``, or of F1, AUC or calibration, is not a part of 1.

    It cannot be reached. An infinite one is what nothing reaches, and says so.

    >>> check_part("Result", "value", "test_accuracy", 0.8)
    """
    if metric in (*METRICS, *PARTS) and is_part(metric) and np.isfinite(value) and not 0 <= value <= 1:
        rule = f"{parameter} of {metric} must be a part, such as 0.8 for 80 %"
        raise ValueError(f"{owner}: {rule}, got {value:g}")


def name_on_test_set(metric: str) -> str:
    """What a metric of the test set is called in a result, by its name or its address.

    >>> name_on_test_set("f1"), name_on_test_set("my.module:Brier.score")
    ('test_f1', 'test_score')
    """
    return "test_" + metric.rpartition(":")[2].rpartition(".")[2]


class Payload(NamedTuple):
    """What the messages of a strategy carry: scalars in a reply and models in a request, of training and of a poll."""

    reply_scalars: int = 1
    request_models: int = 1
    poll_models: int = 1
    poll_scalars: int = 1


def traffic(
    polled: Any, trained: Any, returned: Any, *, model_bytes: Any, payload: Payload = Payload()
) -> dict[str, Any]:
    """The messages and bytes of a round.

    Args:
        polled: The number of clients polled.
        trained: The number of seats sent to train.
        returned: The number of seats that came back.
        model_bytes: The size of the model.
        payload: What the messages carry.

    >>> traffic(polled=6, trained=3, returned=2, model_bytes=100)
    {'messages': 17, 'bytes_down': 900, 'bytes_up': 232}
    """
    # A poll by training brings the model; in a round without one the request does.
    request_models = payload.request_models + (1 - payload.request_models) * (polled == 0)
    return {
        "messages": 2 * polled + trained + returned,
        "bytes_down": model_bytes * (payload.poll_models * polled + request_models * trained),
        "bytes_up": SCALAR * payload.poll_scalars * polled + (model_bytes + SCALAR * payload.reply_scalars) * returned,
    }
