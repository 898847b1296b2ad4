"""Ranks of strategies over problems, with what can be said for sure."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.stats  # type: ignore[import-untyped]

from fedpick.arena.scores import Scores
from fedpick.metrics import Numbers
from fedpick.results import Interval, interval

SURE = 0.95


@dataclass(frozen=True)
class Ranking:
    """Strategies over problems in one currency, the best first.

    Args:
        names: The strategies, by their mean rank.
        ranks: The mean rank of each, from 1.
        critical: Two mean ranks that differ by more are surely different (Nemenyi, 95 % for all pairs together).
        p_value: Of Friedman's test that all strategies are alike.
        speed_ups: The geometric mean over the problems, with a 95 % interval over them.
        wins: On how many problems each is surely faster than rand.
        losses: On how many it is surely slower.
        problems: On how many they were compared.
    """

    names: tuple[str, ...]
    ranks: Numbers
    critical: float
    p_value: float
    _: KW_ONLY
    speed_ups: tuple[Interval, ...]
    wins: tuple[int, ...]
    losses: tuple[int, ...]
    problems: int

    def differ(self, one: str, other: str) -> bool:
        """Whether the mean ranks of two strategies surely differ.

        Args:
            one: A strategy.
            other: Another one.
        """
        first, second = (self.ranks[self.names.index(name)] for name in (one, other))
        return bool(abs(first - second) > self.critical)


def rank(scores: Mapping[str, Scores], currency: str = "rounds", rows: Sequence[int] | None = None) -> Ranking:
    """The ranking of the strategies over these problems.

    On each problem strategies are ranked by the mean of their speed-ups over the seeds, equal ones alike.

    Args:
        scores: The scores of each problem, of the same strategies.
        currency: "rounds", "bytes" or "seconds".
        rows: The seeds to count; all unless given.
    """
    if not scores:
        raise ValueError("arena: problems must be one or more on which rand learns, got none")
    names = next(iter(scores.values())).names
    runs = np.stack([one.speed[currency][:, slice(None) if rows is None else list(rows)] for one in scores.values()])
    means = runs.mean(axis=2)  # [problems, strategies]
    order = scipy.stats.rankdata(-np.round(means, 9), axis=1)
    mean_ranks = order.mean(axis=0)
    number, strategies = means.shape
    alike = number < 2 or strategies < 3 or bool((order == order[:, :1]).all())
    p_value = float("nan") if alike else float(scipy.stats.friedmanchisquare(*order.T).pvalue)
    wins, losses = _sure(runs, names.index("rand"))
    best = np.argsort(mean_ranks, kind="stable")
    gains = [Interval(*(float(np.exp(x)) for x in interval(means[:, i]))) for i in best]
    return Ranking(
        tuple(names[i] for i in best),
        mean_ranks[best],
        critical_difference(strategies, number),
        p_value,
        speed_ups=tuple(gains),
        wins=tuple(int(wins[i]) for i in best),
        losses=tuple(int(losses[i]) for i in best),
        problems=number,
    )


def critical_difference(strategies: int, problems: int) -> float:
    """How far two mean ranks must be apart to differ for sure (Nemenyi's test, 95 %, over all pairs).

    Args:
        strategies: The number of strategies.
        problems: The number of problems.

    >>> round(critical_difference(5, 30), 2)
    1.11
    """
    if strategies < 2:
        return float("inf")
    q = scipy.stats.studentized_range.ppf(SURE, strategies, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(strategies * (strategies + 1) / (6 * problems)))


def agreement(scores: Mapping[str, Scores], currency: str = "rounds") -> tuple[float, int]:
    """How far two halves of the seeds agree on who is better: Kendall's tau over the pairs that differ for sure.

    Args:
        scores: The scores of each problem.
        currency: "rounds", "bytes" or "seconds".

    Returns tau, from -1 to 1 (NaN without such pairs), and the number of pairs.
    """
    everything = rank(scores, currency)
    seeds = next(iter(scores.values())).final.shape[1]
    halves = [rank(scores, currency, range(first, seeds, 2)) for first in (0, 1)] if seeds > 1 else []
    pairs = [
        (one, other)
        for i, one in enumerate(everything.names)
        for other in everything.names[i + 1 :]
        if everything.differ(one, other)
    ]
    if not halves or not pairs:
        return float("nan"), len(pairs)
    gaps = np.array(
        [[half.ranks[half.names.index(b)] - half.ranks[half.names.index(a)] for a, b in pairs] for half in halves]
    )
    return float(np.sign(gaps[0] * gaps[1]).mean()), len(pairs)


def _sure(runs: Numbers, rand: int) -> tuple[Any, Any]:
    """On how many problems each is surely faster, and slower, than rand: paired seeds, 95 % for all strategies."""
    strategies, seeds = runs.shape[1:]
    if seeds < 2:
        none = np.zeros(strategies, int)
        return none, none
    level = 1 - (1 - SURE) / max(1, strategies - 1)  # Bonferroni over the strategies
    found = np.array([[interval(run, level)[1:] for run in problem] for problem in runs])
    same = np.arange(strategies) == rand
    return ((found[:, :, 0] > 1e-9) & ~same).sum(axis=0), ((found[:, :, 1] < -1e-9) & ~same).sum(axis=0)
