"""A metric of your own: how well the label that fares worst is recognised, beside F1, AUC and calibration.

    python examples/own_metric.py

    fedpick compare digits --metrics f1,examples/own_metric.py:worst_recall --metric test_worst_recall

A metric is a JAX function of the logits [n, classes] and the labels [n] of the whole test set.
"""

import jax.numpy as jnp
from jax import Array

from fedpick import PowerOfChoice, Rand
from fedpick.sim import Digits, Dirichlet, Local, Logistic, simulate


def worst_recall(logits: Array, labels: Array) -> Array:
    """The part of its samples that is recognised of the label that fares worst: what a mean over samples hides."""
    true = labels[:, None] == jnp.arange(logits.shape[1])[None, :]
    right = true & (jnp.argmax(logits, axis=1) == labels)[:, None]
    recall = right.sum(axis=0) / true.sum(axis=0)
    return jnp.nanmin(recall)  # of labels that the test set has


worst_recall.higher_is_better = True  # type: ignore[attr-defined]  # without it, it could not be a target


def main() -> None:
    """Two strategies on the digits, by four metrics."""
    data, local = Digits(Dirichlet(K=30, alpha=0.3)), Local(tau=5, b=16, eta=0.05)
    for selector in (Rand(m=3), PowerOfChoice(m=3, d=9)):
        result = simulate(
            data, Logistic(), selector, local, rounds=50, seeds=3, metrics=["f1", "auc", "calibration", worst_recall]
        )
        ends = {name: round(float(result.metric(name)[:, -1].mean()), 3) for name in result.better}
        print(type(selector).__name__, ends, "rounds to 0.5:", result.rounds_to("test_worst_recall", 0.5))


if __name__ == "__main__":
    main()
