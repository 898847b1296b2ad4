"""What the arena says, as Markdown and as plain data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick import sim
from fedpick.arena.ranks import Ranking, agreement, rank
from fedpick.arena.scores import Scores
from fedpick.arena.suite import FAMILIES, STEPS, family_of
from fedpick.compare import CURRENCIES
from fedpick.metrics import Numbers
from fedpick.results import Interval
from fedpick.text import counted

STEADY = (sim.Always(), sim.Failures())
UNSTEADY = {family.name for family in FAMILIES.values() if (family.availability, family.failures) != STEADY}
PARTS = ("final", "worst", "spread")
ENDS = ("last loss", "worst client's", "spread", "accuracy")
ROBUSTNESS = ("all are there", "they come, go or fail")
RANKS = ["strategy", "mean rank", "times as fast as rand [95 %]", "won", "lost"]


def ranking_sentence(ranking: Ranking, tau: float, pairs: int) -> str:
    """What is sure of a ranking, in a sentence.

    Args:
        ranking: The ranking.
        tau: How far two halves of the seeds agree.
        pairs: On how many pairs.
    """
    said = [counted(ranking.problems, "problem")]
    if np.isfinite(ranking.critical):
        said.append(f"mean ranks that differ by more than {ranking.critical:.2f} differ for sure (Nemenyi, 95 %)")
    if np.isfinite(ranking.p_value):
        said.append(f"Friedman's p = {ranking.p_value:.2g}")
    elif ranking.problems < 2 or len(ranking.names) < 3:
        said.append("Friedman's test needs three strategies and two problems")
    if not pairs and len(ranking.names) > 1:
        said.append("no two strategies do")
    if np.isfinite(tau):
        said.append(f"two halves of the seeds agree on the {pairs} pairs that do with Kendall's tau = {tau:.2f}")
    return f"{'; '.join(said)}."


def rank_table(ranking: Ranking) -> list[list[str]]:
    """A row for each strategy: its name, mean rank, speed-up over rand, and problems won and lost for sure.

    Args:
        ranking: The ranking.
    """
    return [
        [name, f"{mean:.2f}", _with_interval(gain), str(won), str(lost)]
        for name, mean, gain, won, lost in zip(
            ranking.names, ranking.ranks, ranking.speed_ups, ranking.wins, ranking.losses, strict=True
        )
    ]


def _with_interval(gain: Interval) -> str:
    """The mean, and its interval where there is one: over a single problem there is none."""
    return f"{gain.mean:.2f} [{gain.low:.2f}, {gain.high:.2f}]" if np.isfinite(gain.high) else f"{gain.mean:.2f}"


def speed_table(scores: Mapping[str, Scores], currency: str = "rounds") -> list[list[str]]:
    """A row for each problem: its name, and the speed-up of each strategy over rand.

    Args:
        scores: The scores of each problem.
        currency: "rounds", "bytes" or "seconds".
    """
    return [[name, *(f"{np.exp(run.mean()):.2f}" for run in one.speed[currency])] for name, one in scores.items()]


def family_table(scores: Mapping[str, Scores], currency: str = "rounds") -> list[list[str]]:
    """A row for each family: its name, and the speed-up of each strategy over rand, whatever the step size.

    Args:
        scores: The scores of each problem.
        currency: "rounds", "bytes" or "seconds".
    """
    families: dict[str, list[Scores]] = {}
    for problem, one in scores.items():
        families.setdefault(family_of(problem), []).append(one)
    return [
        [name, *(f"{gain:.2f}" for gain in np.exp(np.mean([one.speed[currency].mean(axis=1) for one in own], axis=0)))]
        for name, own in families.items()
    ]


def step_table(scores: Mapping[str, Scores], currency: str = "rounds") -> list[list[str]]:
    """A row for each strategy: its speed-up over rand for each way to set the step size.

    Args:
        scores: The scores of each problem.
        currency: "rounds", "bytes" or "seconds".
    """
    steps = [problem.rpartition("; ")[2] for problem in scores]
    return _parts(scores, [np.array([own == step for own in steps]) for step in STEPS], currency)


def robustness_table(scores: Mapping[str, Scores]) -> list[list[str]]:
    """A row for each strategy: its speed-up over rand where all clients are there, and where they come, go or fail.

    Like is compared with like: each problem of the second kind with those of the first on the same data and model.

    Args:
        scores: The scores of each problem.
    """
    names = next(iter(scores.values())).names
    gains = {problem: one.speed["rounds"].mean(axis=1) for problem, one in scores.items()}
    there, away = [], []
    for problem in gains:
        kind = family_of(problem).rpartition(",")[0]  # such as synthetic, of "synthetic, day and night"
        steady = [other for other in gains if family_of(other) not in UNSTEADY and _is_of(kind, family_of(other))]
        if family_of(problem) in UNSTEADY and steady:
            there.append(np.mean([gains[other] for other in steady], axis=0))
            away.append(gains[problem])
    cells = [
        [f"{x:.2f}" for x in np.exp(np.mean(part, axis=0))] if part else ["-"] * len(names) for part in (there, away)
    ]
    return [list(row) for row in zip(names, *cells, strict=True)]


def _is_of(kind: str, family: str) -> bool:
    return family == kind or family.startswith(f"{kind},")


def _parts(scores: Mapping[str, Scores], parts: list[Numbers], currency: str) -> list[list[str]]:
    """A row for each strategy: its speed-up over rand on each part of the problems."""
    names = next(iter(scores.values())).names
    gains = np.array([one.speed[currency].mean(axis=1) for one in scores.values()])
    cells = [
        [f"{x:.2f}" for x in np.exp(gains[part].mean(axis=0))] if part.any() else ["-"] * len(names) for part in parts
    ]
    return [list(row) for row in zip(names, *cells, strict=True)]


def end_table(scores: Mapping[str, Scores]) -> list[list[str]]:
    """A row for each strategy, as parts of rand's: the last loss, that of the worst client, and the spread of losses.

    The last column is the difference in test accuracy, in points.

    Args:
        scores: The scores of each problem.
    """
    names = next(iter(scores.values())).names
    rows = []
    for i, name in enumerate(names):
        ends = [np.exp(-np.mean([getattr(one, what)[i].mean() for one in scores.values()])) for what in PARTS]
        points = 100 * np.nanmean([np.nanmean(one.accuracy[i]) for one in scores.values()])
        rows.append([name, *(f"{end:.3f}" for end in ends), f"{points:+.1f}"])
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
        parts += [f"## By {currency}", said, markdown_table(RANKS, rank_table(ranking))]
    names = list(next(iter(scores.values())).names)
    parts += ["## Where they end", markdown_table(["strategy", *ENDS], end_table(scores))]
    parts += [
        "## By step size",
        "Times as fast as rand, in rounds: at rand's best step size, at a fifth of it, and each at its own best.",
        markdown_table(["strategy", *STEPS], step_table(scores)),
        "## Where clients come and go",
        "Times as fast as rand, in rounds: on the problems on which clients come, go or fail, and on those of the same "
        "data and model on which all are there.",
        markdown_table(["strategy", *ROBUSTNESS], robustness_table(scores)),
        "## By family",
        "Times as fast as rand, in rounds, over the step sizes.",
        markdown_table(["family", *names], family_table(scores)),
    ]
    parts += [
        "## By problem",
        "Times as fast as rand, in rounds.",
        markdown_table(["problem", *names], speed_table(scores)),
    ]
    return "\n\n".join(parts) + "\n"


def to_plain(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """The scores as plain data, to three digits: what JSON holds.

    Args:
        scores: The scores of each problem.
    """
    return {
        problem: {
            "strategies": list(one.names),
            "speed": {currency: _short(values) for currency, values in one.speed.items()},
            **{name: _short(getattr(one, name)) for name in (*PARTS, "accuracy")},
        }
        for problem, one in scores.items()
    }


def from_plain(plain: Mapping[str, Any]) -> dict[str, Scores]:
    """The scores that ``to_plain`` wrote.

    Args:
        plain: What JSON holds.
    """
    return {
        problem: Scores(
            tuple(one["strategies"]),
            {currency: np.asarray(values, float) for currency, values in one["speed"].items()},
            *(np.asarray(one[name], float) for name in (*PARTS, "accuracy")),
        )
        for problem, one in plain.items()
    }


def _short(values: Numbers) -> list[list[float]]:
    return [[float(f"{x:.3g}") for x in row] for row in values]


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown.

    Args:
        head: The titles of the columns.
        rows: The rows.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
