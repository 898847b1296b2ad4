"""What the arena says, as Markdown and as plain data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.arena.ranks import Ranking, agreement, rank
from fedpick.arena.scores import Scores
from fedpick.compare import CURRENCIES
from fedpick.metrics import Numbers

RANKS = ["strategy", "mean rank", "times as fast as rand [95 %]", "won", "lost"]


def ranking_sentence(ranking: Ranking, tau: float, pairs: int) -> str:
    """What is sure of a ranking, in a sentence.

    Args:
        ranking: The ranking.
        tau: How far two halves of the seeds agree.
        pairs: On how many pairs.
    """
    halves = f"two halves of the seeds agree on the {pairs} pairs that do with Kendall's tau = {tau:.2f}"
    return (
        f"{ranking.problems} problems; mean ranks that differ by more than {ranking.critical:.2f} differ for sure "
        f"(Nemenyi, 95 %); Friedman's p = {ranking.p_value:.2g}; {halves if pairs else 'no two strategies do'}."
    )


def rank_table(ranking: Ranking) -> list[list[str]]:
    """A row for each strategy: its name, mean rank, speed-up over rand, and problems won and lost for sure.

    Args:
        ranking: The ranking.
    """
    return [
        [name, f"{mean:.2f}", f"{gain.mean:.2f} [{gain.low:.2f}, {gain.high:.2f}]", str(won), str(lost)]
        for name, mean, gain, won, lost in zip(
            ranking.names, ranking.ranks, ranking.speed_ups, ranking.wins, ranking.losses, strict=True
        )
    ]


def speed_table(scores: Mapping[str, Scores], currency: str = "rounds") -> list[list[str]]:
    """A row for each problem: its name, and the speed-up of each strategy over rand.

    Args:
        scores: The scores of each problem.
        currency: "rounds", "bytes" or "seconds".
    """
    return [[name, *(f"{np.exp(run.mean()):.2f}" for run in one.speed[currency])] for name, one in scores.items()]


def end_table(scores: Mapping[str, Scores]) -> list[list[str]]:
    """A row for each strategy: the last loss, that of the worst client (as parts of rand's), and points of accuracy.

    Args:
        scores: The scores of each problem.
    """
    names = next(iter(scores.values())).names
    rows = []
    for i, name in enumerate(names):
        final, worst = (
            np.exp(-np.mean([getattr(one, what)[i].mean() for one in scores.values()])) for what in ("final", "worst")
        )
        points = 100 * np.nanmean([np.nanmean(one.accuracy[i]) for one in scores.values()])
        rows.append([name, f"{final:.3f}", f"{worst:.3f}", f"{points:+.1f}"])
    return rows


def markdown(scores: Mapping[str, Scores], about: str) -> str:
    """All tables.

    Args:
        scores: The scores of each problem.
        about: What was played, in a line.
    """
    parts = [about]
    for currency in CURRENCIES:
        ranking = rank(scores, currency)
        said = ranking_sentence(ranking, *agreement(scores, currency))
        parts += [f"## By {currency}", said, _table(RANKS, rank_table(ranking))]
    names = list(next(iter(scores.values())).names)
    parts += ["## Where they end", _table(["strategy", "last loss", "worst client's", "accuracy"], end_table(scores))]
    parts += ["## By problem", "Times as fast as rand, in rounds.", _table(["problem", *names], speed_table(scores))]
    return "\n\n".join(parts) + "\n"


def to_plain(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """The scores as plain data, to four digits: what JSON holds.

    Args:
        scores: The scores of each problem.
    """
    return {
        problem: {
            "strategies": list(one.names),
            "speed": {currency: _short(values) for currency, values in one.speed.items()},
            **{name: _short(getattr(one, name)) for name in ("final", "worst", "accuracy")},
        }
        for problem, one in scores.items()
    }


def _short(values: Numbers) -> list[list[float]]:
    return [[float(f"{x:.4g}") for x in row] for row in values]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
