"""Figure 2b: the selection skew of the quadratic problem."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpick.paper.claims import ABOUT, Check, at_most, claims_of, factor_text, geometric_mean
from fedpick.paper.comparisons import positive
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import quadratic_selectors
from fedpick.report import Chart, dot
from fedpick.sim import Quadratic
from fedpick.theory import federation_problem, grid, skews

SIZES = (30, 100)  # K
REFINE = 1  # best points from which the search goes on: from five of them it found the same to 0.001


class _Extremes(NamedTuple):
    """How rho-bar and the ratio were found: on the grid alone, or by a search, whose numbers bound the true ones."""

    name: str
    rho_bar: int  # the place among the numbers of a draw
    ratio: int
    where: str
    at_most: str = ""
    at_least: str = ""
    more: str = "more"

    def known(self, value: NDArray[Any]) -> bool:
        """Whether these numbers of a strategy [draws, 5 or 3] have them."""
        return self.ratio < np.size(value, axis=1)


GRID = _Extremes("grid", 0, 1, "on the grid")
SEARCH = _Extremes(
    "search",
    *(3, 4),
    where="as far as a search found that goes on from the best point of the grid",
    at_most="at most ",
    at_least="at least ",
    more="more, between two bounds",
)
ALL_PAIRS = 2
DEFINED = ("above rand's", "at most ")  # a grid over all pairs bounds their minimum
NOT_SEARCHED = "searched in the full version alone"


def _figure_2b(runs: ItemRuns) -> Outcome:
    draws, per_axis = min(runs.size.draws, 5), runs.size.grid
    searched = SIZES if runs.size.whole else SIZES[:1]  # the search takes a minute per draw for K = 100
    settings = {"draws": draws, "per_axis": per_axis, "reach": 150, "refine": REFINE, "searched": list(searched)}
    found = runs.store.cached_result("skews", settings, lambda: _skews(draws, per_axis, searched))
    # By K and strategy [draws, 5], or 3 where nothing was searched.
    skew = {K: {name: np.asarray(found[f"{K}"][name]) for name in quadratic_selectors(K)} for K in SIZES}
    rows, table = [], []
    for K, values in skew.items():
        for name, value in values.items():
            for kind in (kind for kind in (GRID, SEARCH) if kind.known(value)):
                for place, measure in ((kind.rho_bar, "rho-bar: speed"), (kind.ratio, "rho-tilde / rho-bar: bias")):
                    spread = value[:, place].std()
                    mean = float(value[:, place].mean())
                    legend = f"K = {K}, {kind.name}"
                    rows.append(dot(legend, measure, name, value=mean, low=mean - spread, high=mean + spread))
            places = (GRID.rho_bar, SEARCH.rho_bar, GRID.ratio, SEARCH.ratio, ALL_PAIRS)
            table.append((f"{K}", name, *(_mean(value, place) for place in places)))
    title = "Selection skew on the quadratic problem: speed against bias"
    text = "rho-bar, and rho-tilde over rho-bar, for rand and pow-d with several d: both rise with d."
    chart = Chart("fig2b", "dots", title=title, text=text, y="skew", rows=tuple(rows))
    columns = (
        *("K", "strategy", "rho-bar (w' = w), grid", "search: at most"),
        *("rho-tilde / rho-bar, grid", "search: at least", "rho-bar over all pairs, grid"),
    )
    points = f"a grid of {per_axis**5} points ({per_axis} per axis) and w*"
    means = Table(f"Means over {draws} draws, on {points}, and by the search", columns, tuple(table))
    remarks = (
        f"The numbers of the grid are those of {points}: a measurement, as the paper's, which does not say how fine "
        "its grid was. They say little of the minimum and the maximum themselves: a search that goes on from the best "
        "point of the grid finds a lower rho-bar and a higher ratio. A search gives bounds: the true rho-bar is at "
        "most, the true ratio at least the number found. So a check that rho-bar is above that of rand is met only as "
        "far as was searched, as is one of a difference between two d; a ratio that is too large is so for certain in "
        "the draws measured. The intervals are over the draws and know nothing of what a search has missed.",
        "rho-bar is defined as a minimum over all pairs of w and w'. Taken so it is far below 1 for every d (last "
        "column of the table); the paper's statements hold where w' = w, as in training with one local step, which is "
        "probably what was measured: the authors' released estimate for K = 30 and d = 6, 9, 15, 30 is 1.31, 1.45, "
        "1.61, 1.80 for rho-bar and 1.78, 2.12, 2.69, 3.55 for the ratio, on another draw. See docs/theory.md.",
    )
    statements = {**_statements(skew, GRID), **_over_all_pairs(skew), **_statements(skew, SEARCH)}
    return Outcome(claims_of("Figure 2b, Section 5", statements), (chart,), (means,), remarks=remarks)


def _statements(skew: dict[int, dict[str, NDArray[Any]]], kind: _Extremes) -> dict[str, list[Check]]:
    """The paper's statements, for the numbers of this kind."""
    above: list[Check] = []
    grow: list[Check] = []
    for K, values in skew.items():
        names = list(values)
        for name in names[1:]:
            unit, bound = "above rand's rho-bar", kind.at_most
            above.append(_more(f"K = {K}, {name}", values[name], values["rand"], kind, kind.rho_bar, unit, bound))
        for less, larger in itertools.pairwise(names[1:]):
            what = f"K = {K}, {less.split(', ')[1]} to {larger.split(', ')[1]}"
            for place, measure in ((kind.rho_bar, "rho-bar"), (kind.ratio, "ratio")):
                grow.append(_more(f"{what}: {measure}", values[larger], values[less], kind, place, kind.more))
    what = "K = 100, d = 15: the ratio is no more than five fourths of rand's"
    near = Check(what, "unclear", NOT_SEARCHED)
    ours, rand = skew[100]["pow-d, d = 15"], skew[100]["rand"]
    if kind.known(ours):
        mean = geometric_mean(ours[:, kind.ratio] / rand[:, kind.ratio])
        near = Check(what, at_most(mean, 1 / ABOUT), kind.at_least + factor_text(mean, len(ours)))
    return {
        f"pow-d has a higher rho-bar than rand for all d (with w' = w), {kind.where}.": above,
        f"As rho-bar increases with d, the solution bias rho-tilde / rho-bar increases too, {kind.where}.": grow,
        f"For d = 15 and K = 100 the ratio is about that of rand, but rho-bar is higher, {kind.where}.": [
            near,
            above[4],
        ],
    }


def _more(
    what: str, ours: NDArray[Any], theirs: NDArray[Any], kind: _Extremes, place: int, unit: str, bound: str = ""
) -> Check:
    """Whether the numbers at this place are larger than those of another strategy."""
    if not kind.known(ours):
        return Check(what, "unclear", NOT_SEARCHED)
    return positive(what, ours[:, place] - theirs[:, place], unit, bound)


def _mean(value: NDArray[Any], place: int) -> str:
    return f"{value[:, place].mean():.2f}" if place < value.shape[1] else "-"


def _over_all_pairs(skew: dict[int, dict[str, NDArray[Any]]]) -> dict[str, list[Check]]:
    """The first statement with rho-bar as the paper defines it."""
    checks = [
        positive(f"K = {K}, {name}: over all pairs", value[:, ALL_PAIRS] - values["rand"][:, ALL_PAIRS], *DEFINED)
        for K, values in skew.items()
        for name, value in values.items()
        if name != "rand"
    ]
    return {
        "The first with rho-bar as the paper defines it, the minimum over all pairs of w and w', on the grid.": checks
    }


def _skews(draws: int, per_axis: int, searched: tuple[int, ...]) -> dict[str, dict[str, list[list[float]]]]:
    """By K, strategy and draw: rho-bar and rho-tilde / rho-bar on the grid, rho-bar over all pairs, both by search."""
    points = grid(-150, 150, per_axis=per_axis, v=5)
    by_size: dict[str, dict[str, list[list[float]]]] = {}
    for K in SIZES:
        by_name: dict[str, list[list[float]]] = {name: [] for name in quadratic_selectors(K)}
        for seed in range(draws):
            problem = federation_problem(Quadratic(K=K, seed=seed).federation())
            for name, selector in quadratic_selectors(K).items():
                same, every = (skews(selector, problem, points, pairs=pairs) for pairs in ("same", "all"))
                found = [same.rho_bar, same.ratio, every.rho_bar]
                if K in searched:
                    further = skews(selector, problem, points, pairs="same", refine=REFINE)
                    found += [further.rho_bar, further.ratio]
                by_name[name].append([float(number) for number in found])
        by_size[f"{K}"] = by_name
    return by_size


FIGURE_2B = Item(
    "fig2b",
    "Figure 2b",
    title="Quadratic problem: selection skew",
    about="rho-bar and rho-tilde / rho-bar on a grid over w with {grid} points per axis (the paper does not say how "
    "many), and by a search that goes on from the best of them. The probabilities of selection are exact, not those of "
    "10,000 simulated selections.",
    conclude=_figure_2b,
)
