"""What a strategy gains over rand on a problem: speed-ups on the way down, in three currencies, and where it ends."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedpick.compare import CURRENCIES, totals
from fedpick.metrics import Numbers
from fedpick.results import Result

LEVELS = (0.5, 0.8, 0.95)  # of rand's way down
LEAST = 0.02  # of its first loss that rand must gain; where it does not learn there is nothing to compare


class Scores(NamedTuple):
    """What each strategy gains on one problem, as logarithms, one per seed, [S, R]; above 0 is better than rand.

    ``speed`` is, by currency, the mean of the speed-ups to three levels of rand's way down; ``final`` compares the last
    losses, ``worst`` those of the worst client, ``spread`` their standard deviations over the clients, and ``accuracy``
    is the difference of the last test accuracies.
    """

    names: tuple[str, ...]
    speed: dict[str, Numbers]
    final: Numbers
    worst: Numbers
    spread: Numbers
    accuracy: Numbers


def score(results: Mapping[str, Result]) -> Scores | None:
    """The scores of strategies on a problem; None where rand does not learn.

    A run that does not reach a level counts as if it did at its end, so that speed-ups are rather too near to 1.

    Args:
        results: The result of each strategy, with the same seeds; rand is among them.
    """
    losses = {name: result.metric("loss") for name, result in results.items()}
    last = _at_the_end(losses["rand"])
    speed: dict[str, Any] = {}
    for currency in CURRENCIES:
        axes = {name: totals(result, currency)[:, result.evaluated] for name, result in results.items()}
        found = log_speed_ups(losses, axes)
        if found is None:
            return None
        speed[currency] = np.stack(list(found.values()))
    final, worst, variance = (
        np.stack(list(log_final({name: result.metric(metric) for name, result in results.items()}).values()))
        for metric in ("loss", "worst_loss", "loss_variance")
    )
    right = {name: result.metric("test_accuracy")[:, -last:].mean(axis=1) for name, result in results.items()}
    return Scores(
        tuple(results),
        speed,
        final,
        worst,
        variance / 2,
        np.stack([own - right["rand"] for own in right.values()]),
    )


def log_speed_ups(losses: Mapping[str, Numbers], axes: Mapping[str, Numbers]) -> dict[str, Numbers] | None:
    """The logarithm of each strategy's speed-up over rand, the mean over three levels, [R]; None: rand does not learn.

    Args:
        losses: The training loss of each strategy at its evaluations, [R, E]; rand is among them.
        axes: What each has spent at these, [R, E].
    """
    mean, last = losses["rand"].mean(axis=0), _at_the_end(losses["rand"])
    first, end = mean[0], mean[-last:].mean()
    if not np.isfinite(end) or not end < first - LEAST * abs(first):
        return None
    targets = [first - level * (first - end) for level in LEVELS]
    spent = {
        name: np.array([[_crossing(*run, target) for run in zip(loss, axes[name], strict=True)] for target in targets])
        for name, loss in losses.items()
    }
    return {name: np.log(spent["rand"] / own).mean(axis=0) for name, own in spent.items()}


def log_final(losses: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The logarithm of rand's last loss over that of each strategy, [R].

    Args:
        losses: A loss of each strategy at its evaluations, [R, E]; rand is among them.
    """
    last = _at_the_end(losses["rand"])
    ends = {name: _last(loss, last) for name, loss in losses.items()}
    return {name: np.log(ends["rand"] / own) for name, own in ends.items()}


def _at_the_end(losses: Numbers) -> int:
    """How many evaluations are the last ones."""
    return max(1, int(losses.shape[1]) // 20)


def _last(values: Numbers, number: int) -> Numbers:
    """The mean of the last values of each run; a run that diverged ends where a thousand times its first value is."""
    end = values[:, -number:].mean(axis=1)
    most = 1e3 * np.abs(values[:, 0])
    found: Numbers = np.maximum(np.where(np.isfinite(end), np.minimum(end, most), most), 1e-9)
    return found


def _crossing(loss: Numbers, axis: Numbers, target: float) -> float:
    hit = np.flatnonzero(np.isfinite(loss) & (loss <= target))
    if not len(hit):
        return float(axis[-1])
    i = int(hit[0])
    if i == 0:
        return float(axis[1]) / 10
    part = (loss[i - 1] - target) / max(loss[i - 1] - loss[i], 1e-12)
    part = part if np.isfinite(part) else 1.0
    return float(axis[i - 1] + part * (axis[i] - axis[i - 1]))
