"""The same comparison for many targets, in every currency: what a page shows when its reader moves the target."""

from collections.abc import Iterator

import numpy as np

from fedpick.compare.answer import seeds_of
from fedpick.compare.charts import Section, seeds_chart, shown_scale
from fedpick.compare.comparison import Comparison
from fedpick.compare.summary import CURRENCIES, SIGNS
from fedpick.metrics import is_accuracy
from fedpick.report import Chart, ChartRow, dot

NUMBER = 20  # of targets evenly by value, and as many evenly by round
WIDE = 30.0  # times between the ends of losses that are better seen on a logarithmic scale


def targets(compared: Comparison) -> list[float]:
    """Values to reach from easy to hard, with the comparison's own among them; none where nothing was measured."""
    if not np.isfinite(compared.threshold):
        return []
    sign = -1 if compared.rises else 1
    curves = []
    for result in compared.results:
        values = sign * result.metric(compared.metric)
        middle = np.median(np.where(np.isfinite(values), values, np.inf), axis=0)
        if np.isfinite(middle[1:]).any():
            curves.append(np.minimum.accumulate(middle[1:]))
    found = {compared.threshold}
    if curves:
        best = min(curves, key=lambda curve: curve[-1])
        best = best[np.isfinite(best)]
        at = np.linspace(0, len(best) - 1, min(NUMBER, len(best))).round().astype(int)
        for value in (*np.linspace(best[0], best[-1], NUMBER), *best[at]):
            found.add(_rounded(sign * float(value), compared.metric))
    kept = [value for value in found if value == compared.threshold or not compared.at(value).says_nothing]
    return sorted(kept, reverse=sign > 0)


def _rounded(value: float, metric: str) -> float:
    return round(value, 3) if is_accuracy(metric) else float(f"{value:.3g}")


def winner_of(compared: Comparison) -> str:
    """The strategy that wins according to the answer; "" where none does."""
    words = [f"{name} wins{mark}" for name in compared.names for mark in (":", ".", " ")]
    won = next((place for place, start in enumerate(words) if compared.answer.startswith(start)), None)
    return "" if won is None else compared.names[won // 3]


def leader_of(compared: Comparison) -> str:
    """The strategy that the cards are about: the winner, or who of the others gets there most often, and first.

    Of those that are equal in both, it is who sends less.
    """
    others = [name for name in compared.names if name != compared.baseline]
    won = winner_of(compared)
    if (won and won != compared.baseline) or not others:
        return won or compared.baseline
    often = {name: np.isfinite(compared.rounds_of(name)).mean() for name in others}
    return max(others, key=lambda name: (often[name], compared.speed_up(name).mean, -compared.traffic(name)))


def speed_up_chart(compared: Comparison, moved: list[Comparison]) -> Chart | None:
    """How many times as fast as the baseline to every target; None where there is nothing to compare.

    Args:
        compared: The comparison.
        moved: The same at each target, in its currency.
    """
    rows = tuple(_speed_ups(moved))
    if len({row["x"] for row in rows}) < 2:
        return None
    scale = shown_scale(compared.metric)
    values = [one.threshold for one in moved]
    words = f"How many times as {moved[0].currency.adjective} as {compared.baseline}, "
    known = any(row["low"] < row["high"] for row in rows)
    one = all(seeds_of(compared, name) == 1 for name in compared.names if name != compared.baseline)
    unknown = "of one seed, with which nothing is sure." if one else "without an interval: some runs never get there."
    words += "with its 95 % interval." if known else unknown
    return Chart(
        "speed-up",
        "lines",
        title="Speed-up against target",
        text=f"{words} A triangle is a bound: at least or at most so much, because some runs do not get there.",
        rows=rows,
        x=f"target: {compared.metric.replace('_', ' ')}" + (", %" if scale == 100 else ""),
        log_x=scale == 1 and min(values) > 0 and max(values) > WIDE * min(values),
        log_y=True,
        reverse_x=not compared.rises,
        rule=1.0,
        target_on="x",
    )


def targets_section(compared: Comparison, moved: list[Comparison]) -> Section:
    """How fast to every target, and what each seed spends to the comparison's own."""
    spent = [compared.spent_of(name) for name in compared.names]
    charts = (speed_up_chart(compared, moved), seeds_chart(compared, spent, most_spent(compared)))
    text = "One target is one opinion: here are all of them. The dashed line is the target that is set above."
    found = tuple(chart for chart in charts if chart is not None)
    return Section("targets", "For which target, and how sure", text, found)


def most_spent(compared: Comparison) -> float:
    """What the whole run takes that takes most: who does not get there is drawn behind all that do."""
    return max(float(compared.total(name, compared.by)[:, -1].max()) for name in compared.names)


def _speed_ups(moved: list[Comparison]) -> Iterator[ChartRow]:
    for one in moved:
        base = one.baseline
        there = np.isfinite(one.rounds_of(base)).any()
        for name in one.names:
            if name == base or not (there or np.isfinite(one.rounds_of(name)).any()):
                continue
            gain, bound = one.speed_up(name), one.bound(name)
            if bound in ("about", "unknown"):  # neither gets there: nothing is known
                continue
            low, high = (gain.low, gain.high) if not bound and np.isfinite(gain.high) else (gain.mean, gain.mean)
            if np.isfinite([gain.mean, low, high]).all() and min(gain.mean, low) > 0:
                x = float(f"{shown_scale(one.metric) * one.threshold:.6g}")
                row = dot(name, "", x, value=gain.mean, low=low, high=high)
                yield {**row, "sign": SIGNS[bound]}


def moved_to(compared: Comparison, values: list[float]) -> dict[str, list[Comparison]]:
    """The comparison at each target, in each currency."""
    return {by: [compared.at(value, by) for value in values] for by in CURRENCIES}
