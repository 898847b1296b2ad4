"""Metrics of a classifier over the whole test set: F1, AUC, calibration, or a function of your own.

A metric is a JAX function of the logits [n, classes] and the labels [n] that gives one number. Its attribute
``higher_is_better`` (True or False) says which way it improves; without one it is measured, and cannot be a target.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from fedpick import registry
from fedpick.metrics import METRICS, is_accuracy, name_on_test_set
from fedpick.sim.federation import Federation
from fedpick.text import shown

BINS = 15  # of the calibration error, as in Guo et al. 2017


class NamedMetric(NamedTuple):
    """A metric by its name in a result, the function, and whether higher is better; None where it does not say."""

    name: str
    function: Callable[[Array, Array], Any]
    higher: bool | None


def f1(logits: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """The mean F1 over the classes that occur among the labels or the predictions (macro).

    Args:
        logits: What the model gives for each sample and class.
        labels: The label of each sample.

    >>> f1(jnp.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), jnp.array([0, 1, 0]))
    Array(1., dtype=float32)
    """
    classes = jnp.arange(logits.shape[1], dtype=jnp.int32)[None, :]
    predicted, true = jnp.argmax(logits, axis=1)[:, None] == classes, labels[:, None] == classes
    both = jnp.sum(predicted & true, axis=0, dtype=jnp.int32)
    either = jnp.sum(predicted, axis=0, dtype=jnp.int32) + jnp.sum(true, axis=0, dtype=jnp.int32)
    each = 2 * both.astype(jnp.float32) / jnp.maximum(either, 1).astype(jnp.float32)
    mean = each.sum() / jnp.sum(either > 0).astype(jnp.float32)
    return _unless_nan(logits, mean)


def auc(logits: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """The area under the ROC curve: of class 1 where there are two, else the mean over classes, each against the rest.

    Samples are ranked by probability, and ties count half. A class that no sample has, or every one, does not count;
    where none is left the area is NaN.

    Args:
        logits: What the model gives for each sample and class.
        labels: The label of each sample.

    >>> auc(jnp.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 2.0]]), jnp.array([0, 1, 1, 0]))
    Array(0.875, dtype=float32)
    """
    odds = _log_odds(logits)

    def area(k: Int[Array, ""]) -> Float[Array, ""]:
        return _area(odds[:, k], labels == k)

    areas: Array = lax.map(area, jnp.arange(1 if logits.shape[1] == 2 else 0, logits.shape[1], dtype=jnp.int32))
    known = jnp.isfinite(areas)
    mean = jnp.sum(areas, where=known) / known.sum().astype(jnp.float32)
    return _unless_nan(odds, mean)


def _log_odds(logits: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """log p / (1 - p), which ranks as the probability p does; those near 1 would be level in float32."""
    highest, place = logits.max(axis=1, keepdims=True), jnp.argmax(logits, axis=1)[:, None]
    first = jnp.arange(logits.shape[1], dtype=jnp.int32)[None, :] == place
    rest = jax.nn.logsumexp(jnp.where(first, -jnp.inf, logits), axis=1, keepdims=True)
    log_probability = jax.nn.log_softmax(logits)
    below = log_probability - jnp.log1p(-jnp.exp(jnp.minimum(log_probability, jnp.log(jnp.float32(0.5)))))
    return jnp.where(logits == highest, highest - rest, below)


def _area(ranked: Float[Array, " n"], positive: Any) -> Float[Array, ""]:
    """The mean over the positives of the share of negatives that are ranked below, with half of those level."""
    ranked, positive = lax.sort((ranked, positive.astype(jnp.int32)), num_keys=1)
    ends = ranked[1:] != ranked[:-1]  # of a group of samples that are level
    through = jnp.cumsum(1 - positive, dtype=jnp.int32)
    first, last = jnp.append(jnp.array([True]), ends), jnp.append(ends, jnp.array([True]))
    below = lax.cummax(jnp.where(first, through - (1 - positive), 0))
    up_to = lax.cummin(jnp.where(last, through, through[-1]), reverse=True)
    negatives, positives = through[-1].astype(jnp.float32), positive.sum().astype(jnp.float32)
    share = (below + up_to).astype(jnp.float32) / (2 * negatives)
    area: Array = jnp.sum(jnp.where(positive > 0, share, jnp.float32(0))) / positives
    return area


def calibration(logits: Float[Array, "n c"], labels: Int[Array, " n"]) -> Float[Array, ""]:
    """The expected calibration error: how far confidence is from accuracy, over 15 bins of equal width.

    Args:
        logits: What the model gives for each sample and class.
        labels: The label of each sample.

    >>> calibration(jnp.zeros((4, 2)), jnp.array([0, 0, 1, 1]))
    Array(0., dtype=float32)
    """
    probability = jax.nn.softmax(logits)
    sure = probability.max(axis=1)
    right = (jnp.argmax(logits, axis=1) == labels).astype(jnp.float32)
    place = jnp.clip(jnp.ceil(sure * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
    bins = place[:, None] == jnp.arange(BINS, dtype=jnp.int32)[None, :]
    gap = jnp.sum(jnp.where(bins, (right - sure)[:, None], jnp.float32(0)), axis=0)
    return _unless_nan(probability, jnp.abs(gap).sum() / labels.shape[0])


f1.higher_is_better = auc.higher_is_better = True  # type: ignore[attr-defined]
calibration.higher_is_better = False  # type: ignore[attr-defined]


def _unless_nan(values: Array, metric: Array) -> Array:
    """NaN where a model has come to NaN: a number would look like a result."""
    return jnp.where(jnp.isnan(values).any(), jnp.nan, metric)


def resolve_metrics(owner: str, metrics: Iterable[Any]) -> tuple[NamedMetric, ...]:
    """The metrics of these names, addresses or functions.

    Args:
        owner: What error messages begin with.
        metrics: Names of the registry, addresses such as "my.module:metric", or functions.

    >>> [metric.name for metric in resolve_metrics("simulate", ["f1", "calibration"])]
    ['test_f1', 'test_calibration']
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ValueError(f"{owner}: metrics must be a list, such as ['f1', 'auc'], got {shown(metrics)}")
    found = tuple(_resolved(owner, metric) for metric in metrics)
    names = [metric.name for metric in found]
    for name in names:
        if names.count(name) > 1 or name in METRICS:
            taken = "every result has" if name in METRICS else "is given twice"
            raise ValueError(f"{owner}: metrics must have different names, got {name}, which {taken}")
    return found


def _resolved(owner: str, metric: Any) -> NamedMetric:
    if isinstance(metric, str):
        rows = registry.ROLES["Metric"]
        if metric not in rows and not registry.is_address(metric):
            rule = f"metrics must be among {', '.join(rows)}, or my.module:metric"
            raise ValueError(f"{owner}: {rule}, got {shown(metric)}{registry.nearest(metric, rows)}")
        function, name = registry.load(registry.find("Metric", metric).address), name_on_test_set(metric)
    else:
        function, name = metric, f"test_{getattr(metric, '__name__', type(metric).__name__)}"
    called = name.removeprefix("test_")
    if isinstance(function, type) or not callable(function) or not called.isidentifier():
        rule = "metrics must be names, addresses or functions with a name, of logits and labels"
        raise ValueError(f"{owner}: {rule}, got {shown(metric)}")
    try:
        hash(function)
    except TypeError:
        raise ValueError(f"{owner}: metric {called} must be hashable, got {shown(metric)}") from None
    higher = getattr(function, "higher_is_better", True if is_accuracy(name) else None)
    if higher not in (True, False, None):
        raise ValueError(f"{owner}: higher_is_better of metric {called} must be True or False, got {shown(higher)}")
    return NamedMetric(name, function, higher)


NO_TEST_SET = " (give one, or a larger test_share, in a file data.test_share)"


def check_test_set(owner: str, target: str, federation: Federation) -> None:
    """Raise where the metric of a target is one of the test set, and there is none, or none that it can be told from.

    Args:
        owner: What the error begins with.
        target: The metric of the target.
        federation: The data.
    """
    if target.startswith("test_") and not federation.test_y.shape[0]:
        raise ValueError(f"{owner}: metric {target} needs a test set; {federation.name} has none{NO_TEST_SET}")
    if target == "test_auc" and len(np.unique(federation.test_y)) < 2:
        raise ValueError(f"{owner}: metric test_auc needs a test set of two labels; that of {federation.name} has one")
