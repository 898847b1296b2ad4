"""``fedpick theory``: the trade-off between speed and bias for a named problem."""

import enum
from typing import Annotated, Any

import typer

from fedpick.cli._common import Debug, cli_errors, console


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
    problem: Annotated[Named, typer.Argument(help="The paper's quadratic, a random logistic regression, or Figure 1.")],
    K: Annotated[
        int | None, typer.Option("--clients", "-K", min=2, help="Clients.", show_default="30; two-clients has two")
    ] = None,
    m: Annotated[
        int | None, typer.Option("--seats", "-m", min=1, help="Clients per round.", show_default="K/10")
    ] = None,
    d: Annotated[list[int] | None, typer.Option("-d", help="Candidates of pow-d; may be repeated.")] = None,
    pairs: Annotated[
        Pairs, typer.Option(help="w' = w (training with one local step), or all pairs of w and w'.")
    ] = Pairs.same,
    points: Annotated[int, typer.Option(min=1, help="Number of points w.")] = 500,
    spread: Annotated[float, typer.Option(help="Largest distance of a point from the optimum.")] = 150.0,
    refine: Annotated[int, typer.Option(min=0, help="Number of best points from which to search on.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the problem and the points.")] = 0,
    debug: Debug = False,
) -> None:
    """The trade-off: how fast a strategy may be (rho_bar), and how biased (rho_tilde / rho_bar).

    Example:

      fedpick theory quadratic -d 6 -d 9 -d 15 -d 30
    """
    with cli_errors(debug):
        from rich.table import Table

        from fedpick.selectors import PowerOfChoice, Rand
        from fedpick.theory import random_points, skews, solution_bias

        screen = console()
        with screen.status("optima ..."):
            objective, described = _problem(problem, K, seed)
        K = len(objective.share)
        seats = m if m is not None else max(K // 10, 1)
        if seats > K:
            raise ValueError(f"theory: -m must be at most K={K}, got {seats}")
        numbers = sorted(d or {min(factor * seats, K) for factor in (2, 3, 5, 10)})
        if numbers[-1] > K:
            raise ValueError(f"theory: -d must be at most K={K}, got {numbers[-1]}")
        table = Table(title=f"{problem.value}: {described}K = {K}, m = {seats}")
        for name in ("strategy", "rho_bar", "rho_tilde / rho_bar", "bias term"):
            table.add_column(name, justify="left" if name == "strategy" else "right", overflow="fold")
        where = random_points(objective, points, spread, seed=seed)
        selectors: dict[str, Any] = {"rand": Rand(m=seats)}
        for number in numbers:
            selectors[f"pow-d, d = {number}"] = PowerOfChoice(m=seats, d=number)
        evaluated = 0
        methods: set[str] = set()
        for name, selector in selectors.items():
            with screen.status(f"{name} ..."):
                skew = skews(selector, objective, where, pairs=pairs.value, refine=refine)
            ratio = skew.ratio if skew.ratio >= 1 + 1e-9 else 1.0  # below is rounding
            bias = solution_bias(mu=objective.mu, L=objective.L, gamma=objective.gamma, ratio=ratio)
            table.add_row(name, f"{skew.rho_bar:.3f}", f"{skew.ratio:.3f}", f"{bias:.4g}")
            evaluated, methods = max(evaluated, skew.points), methods | {skew.method}
        screen.print(table)
        constants = f"Gamma = {objective.gamma:.4g}, mu = {objective.mu:.4g}, L = {objective.L:.4g}"
        screen.print(f"{constants}; selection probabilities: {', '.join(sorted(methods))}.")
        scope = "with w' = w" if pairs is Pairs.same else "in all pairs"
        screen.print(
            f"{evaluated} points w, {scope}. A search can miss: the true rho_bar is at most the one shown, the true "
            "rho_tilde at least. The bias term is 8 L Gamma / (3 mu) (rho_tilde / rho_bar - 1)."
        )


def _problem(name: Named, K: int | None, seed: int) -> tuple[Any, str]:
    """The problem, and what its title says of it before K and m."""
    from fedpick.sim import Quadratic
    from fedpick.theory import federation_problem, random_logistic, two_clients

    if name is Named.two_clients:
        if K not in (None, 2):
            raise ValueError(f"theory: -K must be 2 for two-clients, got {K}")
        return two_clients(a=1.0, b=3.0, share=(0.75, 0.25)), "a = 1, b = 3, p = (0.75, 0.25), "
    clients = 30 if K is None else K
    if name is Named.quadratic:
        return federation_problem(Quadratic(K=clients, seed=seed).federation()), ""
    return random_logistic(clients, seed=seed), ""
