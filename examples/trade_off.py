"""The paper's trade-off in numbers and pictures: how fast a biased choice is, and what it costs.

    python examples/trade_off.py [FOLDER]

Prints the skews of the paper's quadratic problem, how loose its bounds are, and draws three figures as SVG into FOLDER
(docs/img unless given): skew against d, the error of rand and pow-d beside the bound, and the two clients of Figure 1.
"""

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from fedpick import PowerOfChoice, Rand
from fedpick.sim import Quadratic
from fedpick.theory import (
    Constants,
    decaying_bound,
    decaying_step,
    fedavg_trajectory,
    federation_problem,
    grid,
    highest_loss_gap,
    quadratic_problem,
    skews,
    skews_along,
    two_clients,
)

Rows = list[dict[str, Any]]


def trade_off() -> Rows:
    """rho_bar and rho_tilde / rho_bar against d, on a grid as in the paper."""
    rows: Rows = []
    points = grid(-150, 150, per_axis=3, v=5)
    print("quadratic problem, skews on a grid of 243 points; in brackets rho_bar over all pairs of w and w'")
    print("   K    m    d   rho_bar (w' = w)   rho_tilde / rho_bar")
    for K, m, ds in ((30, 3, (6, 9, 15, 30)), (100, 10, (15, 30, 60, 100))):
        problem = federation_problem(Quadratic(K=K).federation())
        for d in (0, *ds):
            selector: Any = PowerOfChoice(m=m, d=d) if d else Rand(m=m)
            same, every = (skews(selector, problem, points, pairs=pairs) for pairs in ("same", "all"))
            name = str(d) if d else "rand"
            skew = f"{same.rho_bar:6.2f} ({every.rho_bar:.2f})   {same.ratio:16.2f}"
            print(f"{K:4d} {m:4d} {name:>4s}   {skew}", flush=True)
            for measure, value in (("rho_bar: speed", same.rho_bar), ("rho_tilde / rho_bar: bias", same.ratio)):
                rows.append({"K": f"K = {K}", "d": d or m, "measure": measure, "value": value})
    return rows


def error_and_bound() -> Rows:
    """F(w) - F* of rand and pow-d with the theorem's decaying steps, and its bound."""
    rng = np.random.default_rng(0)
    K, v, tau, sigma, rounds, runs = 10, 3, 2, 1.0, 20_000, 24
    problem = quadratic_problem(rng.dirichlet(np.full(K, 2.0)) + 0.02, rng.uniform(1, 2, K), rng.normal(size=(K, v)))
    start = problem.optimum + 5
    rows: Rows = []
    shown = np.unique(np.geomspace(1, rounds, 60).astype(int))
    print("\ndecaying steps, ten quadratics, error and bound after 20,000 rounds")
    for name, selector in (
        ("rand", Rand(m=2)),
        ("pow-d, d = 4", PowerOfChoice(m=2, d=4)),
        ("pow-d, d = 10", PowerOfChoice(m=2, d=10)),
    ):
        known = Constants.of(problem, start, tau=tau, m=2, sigma=sigma)
        path = fedavg_trajectory(
            problem,
            selector,
            functools.partial(decaying_step, known),
            tau=tau,
            rounds=rounds,
            start=start,
            sigma=sigma,
            runs=runs,
        )
        few = path._replace(w=path.w[:2, :2001], between=path.between[:2, :2000])
        skew = skews_along(selector, problem, few)
        constants = replace(known, G=path.G, rho_bar=skew.rho_bar, rho_tilde=skew.rho_tilde)
        error = problem.excess(path.w[:, shown].reshape(-1, v)).reshape(runs, -1).mean(axis=0)
        bound = decaying_bound(constants, path.iterations[shown])
        skewed = f"rho_bar {skew.rho_bar:.2f}, rho_tilde {skew.rho_tilde:.2f}"
        ends = f"error {error[-1]:.2e}, bound {bound.total[-1]:.2e}, of which bias {bound.bias:.2e}"
        print(f"  {name:14s} {skewed}: {ends}", flush=True)
        for T, found, most in zip(path.iterations[shown], error, bound.total, strict=True):
            rows.append({"strategy": name, "T": int(T), "value": float(found), "what": "measured"})
            rows.append({"strategy": name, "T": int(T), "value": float(most), "what": "bound"})
    return rows


def two() -> Rows:
    """F(w) - F* when the client of higher loss is selected, and at random, for two shares."""
    rows: Rows = []
    print("\ntwo clients, a = 1, b = 3: where the error ends, and the closed form")
    for share in ((0.5, 0.5), (0.75, 0.25)):
        problem = two_clients(1.0, 3.0, share)
        for name, selector in (("rand", Rand(m=1)), ("highest loss", PowerOfChoice(m=1, d=2))):
            path = fedavg_trajectory(
                problem, selector, lambda t: 0.05 + 0 * t, tau=1, rounds=150, start=[5.0], runs=1, seed=1
            )
            error = problem.excess(path.w[0])
            gap = highest_loss_gap(1.0, 3.0, share) if name != "rand" else 0.0
            print(f"  shares {share}, {name:12s} {error[-50:].mean():.3f}, {gap:.3f}")
            rows += [
                {"round": t, "value": float(x), "strategy": name, "shares": f"p = {share}"} for t, x in enumerate(error)
            ]
    return rows


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img")
    folder.mkdir(parents=True, exist_ok=True)
    skew = (
        alt.Chart(alt.InlineData(values=trade_off()), title="A larger d is faster and more biased")
        .mark_line(point=True)
        .encode(
            x=alt.X("d:Q", title="candidates d (the first point is rand)"),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            color=alt.Color("K:N", title=None),
            strokeDash=alt.StrokeDash("K:N", title=None),
            facet=alt.Facet("measure:N", title=None),
        )
        .properties(width=260, height=200)
        .resolve_scale(y="independent")
    )
    bound = (
        alt.Chart(alt.InlineData(values=error_and_bound()), title="Measured error and the bound of Theorem 1")
        .mark_line()
        .encode(
            x=alt.X("T:Q", title="local iterations T", scale=alt.Scale(type="log")),
            y=alt.Y("value:Q", title="E[F(w)] - F*", scale=alt.Scale(type="log")),
            color=alt.Color("strategy:N", title=None),
            strokeDash=alt.StrokeDash("what:N", title=None, sort=["measured", "bound"]),
        )
        .properties(width=480, height=300)
    )
    toy = (
        alt.Chart(alt.InlineData(values=two()), title="Two clients: choosing the higher loss (Figure 1)")
        .mark_line()
        .encode(
            x=alt.X("round:Q"),
            y=alt.Y("value:Q", title="F(w) - F*"),
            color=alt.Color("strategy:N", title=None),
            strokeDash=alt.StrokeDash("strategy:N", title=None),
            facet=alt.Facet("shares:N", title=None),
        )
        .properties(width=260, height=200)
    )
    for name, chart in (("theory-skew", skew), ("theory-bound", bound), ("theory-two-clients", toy)):
        chart.save(folder / f"{name}.svg")
        print(f"{folder / name}.svg")


if __name__ == "__main__":
    main()
