"""``fedpick theory``: the trade-off between speed and bias for a named problem."""

import enum
from typing import Annotated, Any

import typer

from fedpick.cli._common import Debug, cli_errors


class Named(enum.StrEnum):
    """The problems that have a name."""

    quadratic = "quadratic"
    logistic = "logistic"
    two_clients = "two-clients"


class Pairs(enum.StrEnum):
    """Which w' go with a w."""

    same = "same"
    all = "all"


def theory(
    problem: Annotated[Named, typer.Argument(help="The paper's quadratic, a ridge regression, or Figure 1.")],
    K: Annotated[int, typer.Option("--clients", "-K", min=2, help="Clients (two-clients has two).")] = 30,
    m: Annotated[int | None, typer.Option("--seats", "-m", min=1, help="Seats; a tenth of K unless given.")] = None,
    d: Annotated[list[int] | None, typer.Option("-d", help="Candidates of pow-d; give it several times.")] = None,
    pairs: Annotated[
        Pairs, typer.Option(help="Look at w' = w, as training does, or at each w with each w'.")
    ] = Pairs.same,
    points: Annotated[int, typer.Option(min=1, help="How many w to look at.")] = 500,
    spread: Annotated[float, typer.Option(help="How far from the optimum, at most.")] = 150.0,
    refine: Annotated[int, typer.Option(min=0, help="From how many of the best points to search on.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the problem and the points.")] = 0,
    debug: Debug = False,
) -> None:
    """The trade-off: how fast a strategy may be (rho_bar), and what bias may stay (rho_tilde / rho_bar).

    Example:

      fedpick theory quadratic -d 6 -d 9 -d 15 -d 30
    """
    with cli_errors(debug):
        _theory(problem, K, m, d, pairs, points, spread, refine, seed)


def _theory(
    named: Named,
    K: int,
    m: int | None,
    d: list[int] | None,
    pairs: Pairs,
    points: int,
    spread: float,
    refine: int,
    seed: int,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedpick.selectors import PowerOfChoice, Rand
    from fedpick.theory import random_points, skews

    console = Console()
    with console.status("the optima ..."):
        problem = _problem(named, K, seed)
    K = len(problem.share)
    seats = m if m is not None else max(K // 10, 1)
    if seats > K:
        raise ValueError(f"theory: -m must be at most K={K}, got {seats}")
    table = Table(title=f"{named.value}: K = {K}, m = {seats}")
    for name in ("strategy", "rho_bar", "rho_tilde / rho_bar", "bias term"):
        table.add_column(name, justify="left" if name == "strategy" else "right", overflow="fold")
    where = random_points(problem, points, spread, seed)
    selectors: dict[str, Any] = {"rand": Rand(m=seats)}
    for number in sorted(d or {min(factor * seats, K) for factor in (2, 3, 5, 10)}):
        selectors[f"pow-d, d = {number}"] = PowerOfChoice(m=seats, d=number)
    tried, how = 0, set()
    for name, selector in selectors.items():
        with console.status(f"{name} ..."):
            found = skews(selector, problem, where, pairs=pairs.value, refine=refine)
        bias = 0.0 if found.ratio < 1 + 1e-9 else 8 * problem.L * problem.gamma / (3 * problem.mu) * (found.ratio - 1)
        table.add_row(name, f"{found.rho_bar:.3f}", f"{found.ratio:.3f}", f"{bias:.4g}")
        tried = max(tried, found.points)
        how.add(found.method)
    console.print(table)
    console.print(
        f"Gamma = {problem.gamma:.4g}, mu = {problem.mu:.4g}, L = {problem.L:.4g}; selected: {', '.join(sorted(how))}."
    )
    paired = "with w' = w" if pairs is Pairs.same else "each with each other"
    console.print(
        f"{tried} points w, {paired}. A search can miss: the true rho_bar is at most the one shown, the true "
        "rho_tilde at least. The bias term is 8 L Gamma / (3 mu) (rho_tilde / rho_bar - 1)."
    )


def _problem(named: Named, K: int, seed: int) -> Any:
    import numpy as np

    from fedpick.sim import Quadratic
    from fedpick.theory import logistic_problem, quadratic_problem, two_clients

    rng = np.random.default_rng(seed)
    if named is Named.quadratic:
        federation = Quadratic(K=K, seed=seed).federation()
        x = np.asarray(federation.x, float)
        return quadratic_problem(federation.share, x[:, 0], x[:, 1:])
    if named is Named.two_clients:
        return two_clients(a=1.0, b=3.0, share=(0.75, 0.25))
    client = np.repeat(np.arange(K), rng.integers(10, 60, K))
    x = rng.normal(size=(len(client), 4)) + rng.normal(size=(K, 4))[client]
    y = np.argmax(x @ rng.normal(size=(4, 3)) + 2 * rng.normal(size=(K, 3))[client], axis=1)
    return logistic_problem(x, y, client, ridge=0.1)
