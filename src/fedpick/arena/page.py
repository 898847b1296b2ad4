"""The arena as one page: who leads, ranks by currency, a matrix of problems, and each of them by itself."""

from collections.abc import Mapping

import numpy as np

from fedpick.arena.ranks import agreement, rank
from fedpick.arena.scores import Scores
from fedpick.arena.suite import STEPS
from fedpick.arena.tables import (
    ENDS,
    RANKS,
    ROBUSTNESS,
    end_table,
    family_table,
    rank_table,
    ranking_sentence,
    robustness_table,
    speed_table,
    step_table,
)
from fedpick.compare import CURRENCIES
from fedpick.report import Chart, dot, figure, heading, page, paragraph, part, table
from fedpick.results import interval

OTHERS = "By bytes, where polls count, and by seconds, on devices of unequal speed, others may lead: see below."


def render_arena(scores: Mapping[str, Scores], about: str) -> str:
    """The page of the arena, as HTML.

    Args:
        scores: The scores of each problem.
        about: What was played, in a line.
    """
    names = list(next(iter(scores.values())).names)
    leader = rank(scores)
    behind = [name for name in leader.names[1:] if leader.differ(leader.names[0], name)]
    sure = f"It is surely ahead of {', '.join(behind)}." if behind else "Nobody is surely behind it."
    sure += f" {OTHERS}"
    parts = [
        paragraph(about, "soft"),
        part(
            "answer",
            f"By rounds, {leader.names[0]} has the best mean rank: {leader.ranks[0]:.2f} of {len(names)}.",
            sure,
        ),
        figure(_gains(scores)),
    ]
    for currency in CURRENCIES:
        ranking, agreed = rank(scores, currency), agreement(scores, currency)
        parts += [heading(f"By {currency}"), paragraph(ranking_sentence(ranking, *agreed), "soft")]
        parts.append(table("", RANKS, rank_table(ranking)))
    sections = (
        ("Where they end", "Parts of rand's last losses, and points of test accuracy.", ENDS, end_table),
        ("By step size", "Times as fast as rand, in rounds.", STEPS, step_table),
        (
            "Where clients come and go",
            "Times as fast as rand, in rounds, on the same data and model.",
            ROBUSTNESS,
            robustness_table,
        ),
    )
    for title, text, columns, rows in sections:
        parts += [heading(title), paragraph(text, "soft"), table("", ("strategy", *columns), rows(scores))]
    parts += [heading("By family"), paragraph("Times as fast as rand, in rounds, over the step sizes.", "soft")]
    parts.append(table("", ("family", *names), family_table(scores)))
    links = [f"problem-{place}" for place in range(len(scores))]
    parts += [heading("By problem"), paragraph("Times as fast as rand, in rounds; click a problem.", "soft")]
    parts.append(table("", ("problem", *names), speed_table(scores), links=links))
    for link, (problem, one) in zip(links, scores.items(), strict=True):
        parts += [heading(problem, 3, anchor=link), table("", PROBLEM, _problem(one))]
    return page("The arena", parts, kicker="Client selection")


PROBLEM = ("strategy", *(f"{currency} [95 %]" for currency in CURRENCIES), *ENDS)


def _problem(one: Scores) -> list[list[str]]:
    """A row for each strategy on one problem, as parts of rand's."""
    rows = []
    for i, name in enumerate(one.names):
        gains = [np.exp(interval(one.speed[currency][i])) for currency in CURRENCIES]
        ends = [f"{np.exp(-values[i].mean()):.3f}" for values in (one.final, one.worst, one.spread)]
        times = [f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in gains]
        points = f"{100 * np.nanmean(one.accuracy[i]):+.1f}" if np.isfinite(one.accuracy[i]).any() else "-"
        rows.append([name, *times, *ends, points])
    return rows


def _gains(scores: Mapping[str, Scores]) -> Chart:
    """How many times as fast as rand each strategy is: the middle half of the problems, and their median."""
    rows = []
    names = next(iter(scores.values())).names
    for currency in CURRENCIES:
        for i, name in enumerate(names):
            gains = np.exp([one.speed[currency][i].mean() for one in scores.values()])
            low, middle, high = np.quantile(gains, (0.25, 0.5, 0.75))
            rows.append(dot(name, currency, name, value=middle, low=low, high=high))
    text = "Times as fast as rand: the median over the problems, and the middle half of them."
    return Chart("gains", "dots", title="Times as fast as rand", text=text, rows=tuple(rows), rule=1.0)
