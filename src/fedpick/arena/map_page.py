"""What the map says: pictures, tables, and how good the advice is on families that it has not seen."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedpick.arena.advice import LEVEL, Trial, leave_families_out
from fedpick.arena.design import make_cells
from fedpick.arena.features import Features
from fedpick.arena.map import Map
from fedpick.arena.tables import markdown_table
from fedpick.metrics import Numbers
from fedpick.report import Chart, ChartRow, dot, write_chart
from fedpick.results import Interval
from fedpick.storage import write_atomic

PARTS = 6  # of equal numbers of problems, along the axis of a picture
DRAWS = 1000  # of the bootstrap over cells
SURE = 0.95
AXES: dict[str, Callable[[Features], float]] = {
    "step size over the largest stable one": lambda one: float(one.step or 0),
    "local steps": lambda one: float(one.tau or 0),
    "path: rounds x local steps x step size": lambda one: float(one.rounds or 0) * (one.tau or 0) * (one.step or 0),
    "clients K": lambda one: float(one.K),
    "fraction C = m / K": lambda one: one.fraction,
    "gradients: mean of squares over square of mean": lambda one: float(one.gradients or 0),
    "labels: mean total variation": lambda one: float(one.labels or 0),
    "sizes: Gini's coefficient": lambda one: float(one.gini or 0),
}
LINEAR = 2  # of them, the last ones; the others are shown by their logarithms


def write_map_page(where: Map, folder: str | Path) -> Path:
    """Write when-it-pays.md, and its pictures to img/, into a folder.

    Args:
        where: The map.
        folder: Where documentation is.
    """
    goal = Path(folder)
    for chart in charts(where):
        write_chart(chart, goal / "img" / f"{chart.name}.svg")
    return write_atomic(goal / "when-it-pays.md", map_markdown(where), owner="map")


def charts(where: Map) -> list[Chart]:
    """How many times as fast as rand each strategy is, along what one can know beforehand.

    Args:
        where: The map.
    """
    text = "Times as fast as rand, in rounds: the median of a sixth of the problems, and the middle half of them."
    names = list(AXES)
    found = []
    for name, shown, log in (("map-training", names[:-LINEAR], True), ("map-data", names[-LINEAR:], False)):
        rows = tuple(row for axis in shown for row in _curves(where, axis))
        chart = Chart(
            name, "lines", title="Times as fast as rand", text=text, rows=rows, log_x=log, log_y=True, rule=1.0
        )
        found.append(chart)
    return found


def _curves(where: Map, axis: str) -> list[ChartRow]:
    values = np.array([AXES[axis](one) for one in where.features])
    rows = []
    for i, name in enumerate(where.strategies):
        for part in np.array_split(np.argsort(values, kind="stable"), min(PARTS, len(values))):
            low, middle, high = np.exp(np.quantile(where.speed[part, i], (0.25, 0.5, 0.75)))
            at = float(f"{np.median(values[part]):.3g}")
            rows.append(dot(name, axis, at, value=middle, low=low, high=high))
    return rows


def map_markdown(where: Map) -> str:
    """The page, as Markdown.

    Args:
        where: The map.
    """
    about, trial = where.about, leave_families_out(where)
    families, whole = len(set(where.families)), len(make_cells())
    cells = f"{about['cells']} cells" if about["cells"] == whole else f"only {about['cells']} of the {whole} cells"
    parts = [
        "# When it pays",
        f"What strategies gain over rand on {about['learnt']:,} federations of {families} families: those of "
        f"{about['federations']:,}, in {cells}, on which rand learns, {about['seeds']} seeds each. "
        "[The arena](arena.md#the-map) says how they are drawn and scored. Written by `fedpick map --docs docs` from "
        f"`src/fedpick/arena/map.csv`, which `fedpick map` has played ({'; '.join(about['played'])}).",
        "```sh\nfedpick advise my.npz -m 5 --eta 0.05                                        # your data\n"
        "fedpick advise --clients 200 -m 10 --tau 10 --step 0.1 --labels 0.4          # or numbers about them\n```",
        "## In all",
        markdown_table(
            ["strategy", "times as fast as rand [95 %]", "faster", "last loss over rand's [95 %]"], _all(where)
        ),
        '"faster" is the part of the problems on which it needs fewer rounds. Intervals are over cells, of which all '
        "federations with the same clients, seats and steps are one.",
        "## Along what one can know",
        *(f"![{chart.title}: {', '.join(chart.panels)}](img/{chart.name}.svg)" for chart in charts(where)),
        "## Rules",
        "The third of the problems with the lowest values against the third with the highest: times as fast as rand, "
        "and the part of the problems on which it is faster. The last column is the ratio of the two speed-ups; where "
        "its interval is on one side of 1, in bold type, the rule is supported.",
        *(
            markdown_table([name, "lowest third", "highest third", "highest over lowest [95 %]"], rules(where, i))
            for i, name in enumerate(where.strategies)
        ),
        "## By family",
        markdown_table(["family", "problems", *where.strategies, "advised"], _families(where, trial)),
        'Times as fast as rand, the geometric mean; "advised" is what advice from the other families gains.',
        "## How good advice is",
        f"Each family is advised from all others. The intervals of {LEVEL:.0%} hold the truth in "
        + ", ".join(
            f"{share:.0%} ({name})" for name, share in zip(where.strategies, trial.covered.mean(axis=0), strict=True)
        )
        + f" of the problems; of {1 - trial.known.mean():.0%} of them it says that nothing is known.",
        markdown_table(["use", "times as fast as rand", "last loss over rand's"], policies(where, trial)),
    ]
    return "\n\n".join(parts) + "\n"


def policies(where: Map, trial: Trial) -> list[list[str]]:
    """A row for each way to choose: advice, and always the same; the geometric means of what it gains.

    Args:
        where: The map.
        trial: How advice does.
    """
    ways = {"what is advised": (trial.speed, trial.final), "always rand": (0 * trial.speed, 0 * trial.final)}
    for i, name in enumerate(where.strategies):
        ways[f"always {name}"] = (where.speed[:, i], where.final[:, i])
    return [[name, f"{np.exp(s.mean()):.3f}", f"{np.exp(-f.mean()):.3f}"] for name, (s, f) in ways.items()]


def rules(where: Map, strategy: int) -> list[list[str]]:
    """A row for each axis: its lowest and its highest third, and how much larger the gain is in the highest.

    Args:
        where: The map.
        strategy: Which of its strategies.
    """
    rows = []
    speed, cells = where.speed[:, strategy], _cells(where)
    for name, value in AXES.items():
        values = np.array([value(one) for one in where.features])
        ends = np.quantile(values, (1 / 3, 2 / 3))
        low, high = values <= ends[0], values >= ends[1]
        ratio = _over_cells(cells, np.where(high, speed, np.nan), np.where(low, speed, np.nan))
        sides = [
            f"{sign} {end:.2g}: {np.exp(speed[side].mean()):.2f}, {np.mean(speed[side] > 0):.0%}"
            for sign, end, side in (("up to", ends[0], low), ("from", ends[1], high))
        ]
        mark = "**" if ratio.low > 1 or ratio.high < 1 else ""
        rows.append([name, *sides, f"{mark}{_text(ratio)}{mark}"])
    return rows


def _all(where: Map) -> list[list[str]]:
    cells = _cells(where)
    rows = []
    for i, name in enumerate(where.strategies):
        speed, final = where.speed[:, i], where.final[:, i]
        times, last = (_over_cells(cells, values) for values in (speed, -final))
        rows.append([name, _text(times), f"{np.mean(speed > 0):.0%}", _text(last)])
    return rows


def _families(where: Map, trial: Trial) -> list[list[str]]:
    rows = []
    for family in dict.fromkeys(where.families.tolist()):
        own = where.families == family
        gains = [*where.speed[own].mean(axis=0), trial.speed[own].mean()]
        rows.append([family, str(own.sum()), *(f"{np.exp(gain):.2f}" for gain in gains)])
    return rows


def _cells(where: Map) -> list[Numbers]:
    """The problems of each cell."""
    found: dict[tuple[object, ...], list[int]] = {}
    for i, (family, one) in enumerate(zip(where.families, where.features, strict=True)):
        found.setdefault((family, one.K, one.m, one.tau, one.rounds), []).append(i)
    return [np.array(rows) for rows in found.values()]


def _over_cells(cells: Sequence[Numbers], values: Numbers, others: Numbers | None = None) -> Interval:
    """exp of the mean of values, less that of others, with a bootstrap interval over cells; NaN does not count."""

    def mean(numbers: Numbers) -> float:
        counted = numbers[np.isfinite(numbers)]
        return float(counted.mean()) if len(counted) else float("nan")

    def measure(chosen: Sequence[Numbers]) -> float:
        rows = np.concatenate(chosen)
        return mean(values[rows]) - (0.0 if others is None else mean(others[rows]))

    rng = np.random.default_rng(0)
    draws = [measure([cells[i] for i in rng.integers(len(cells), size=len(cells))]) for _ in range(DRAWS)]
    ends = np.nanquantile(draws, ((1 - SURE) / 2, (1 + SURE) / 2))
    return Interval(*(float(np.exp(x)) for x in (measure(cells), *ends)))


def _text(found: Interval) -> str:
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
