"""What is measured of a federation, simulated or real: the metrics, and what a round's messages come to."""

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]  # an array of any shape and dtype
METRICS = (
    "loss",
    "test_loss",
    "test_accuracy",
    "skew",
    "mean_loss",
    "worst_loss",
    "loss_variance",
    "mean_accuracy",
    "worst_accuracy",
)
SCALAR = 4  # bytes of a loss in a reply


def traffic(polled: Any, trained: Any, returned: Any, model_bytes: int) -> dict[str, Any]:
    """Messages and bytes where so many were polled, sent to train and came back.

    >>> traffic(polled=6, trained=3, returned=2, model_bytes=100)
    {'messages': 17, 'bytes_down': 900, 'bytes_up': 232}
    """
    return {
        "messages": 2 * polled + trained + returned,
        "bytes_down": model_bytes * (polled + trained),
        "bytes_up": SCALAR * polled + (model_bytes + SCALAR) * returned,
    }
