"""Figure 1: two clients, and which of them to select."""

from typing import Any

import numpy as np

from fedpick.paper.claims import Check, Met, claims_of
from fedpick.paper.comparisons import positive
from fedpick.paper.item import Item, ItemRuns, Outcome
from fedpick.protocol import Selector
from fedpick.report import Chart, curve
from fedpick.selectors import PowerOfChoice, Rand
from fedpick.theory import fedavg_trajectory, highest_loss_gap, two_clients

A, B, STEP, TAU, START, ROUNDS = 1.0, 3.0, 0.1, 2, 5.0, 30
ORDER = (2, 2, 1, 1, 2)  # in which the paper's Figure 1b selects


def _figure_1(runs: ItemRuns) -> Outcome:
    problem = two_clients(A, B)

    def replay(order: Any) -> Any:
        w, path = START, [START]
        for client in order:
            for _ in range(TAU):
                w -= STEP * (w - (A if client == 1 else -B))
            path.append(w)
        return problem.excess(np.asarray(path)[:, None])

    def excess_by_round(selector: Selector[Any], number: int) -> Any:
        path = fedavg_trajectory(
            problem, selector, lambda t: STEP + 0 * t, tau=TAU, rounds=ROUNDS, start=[START], runs=number
        )
        return problem.excess(path.w.reshape(-1, 1)).reshape(number, -1)

    highest, random, paper = excess_by_round(PowerOfChoice(m=1, d=2), 1), excess_by_round(Rand(m=1), 200), replay(ORDER)
    rounds = np.arange(ROUNDS + 1)
    rows = [
        *curve("higher loss", "", rounds, values=highest),
        *curve("at random", "", rounds, values=random),
        *curve("at random, the paper's order", "", rounds[: len(paper)], values=paper),
    ]
    ahead = highest[0, : len(paper)].sum() < paper.sum()
    wins, number = _other_pairs()
    shares = (0.75, 0.25)
    better: Met = "yes" if wins >= 0.95 * number else "partly" if 2 * wins > number else "no"
    checks = (
        Check(
            "ahead of the paper's order 2, 2, 1, 1, 2",
            "yes" if ahead else "no",
            f"F - F* after five rounds {highest[0, 5]:.3f} against {paper[-1]:.3f}",
        ),
        positive(
            "ahead of random orders over 30 rounds", (random - highest).mean(axis=1), "in F - F*, mean over the rounds"
        ),
        Check("so for other pairs of clients and starts", better, f"ahead in {wins} of {number} random ones"),
    )
    statement = (
        "Selecting the client of higher loss gives faster convergence to the global minimum than random selection."
    )
    claims = claims_of("Figure 1, Section 2", {statement: checks})
    gap = highest_loss_gap(A, B, shares)
    remark = (
        f"The example has equal shares. With shares {shares} the same rule ends at F - F* = {gap:g}, and random "
        "selection does not: the bias that the paper's theory speaks of."
    )
    title = "Two clients: the one of higher loss, or one at random"
    text = "F minus its minimum by round falls faster when the client of higher loss is selected than at random."
    chart = Chart("fig1", "lines", title=title, text=text, x="round", y="F(w) - F*", rows=tuple(rows))
    return Outcome(claims, (chart,), remarks=(remark,))


def _other_pairs(number: int = 200) -> tuple[int, int]:
    """The number of random two-client problems in which the higher loss is ahead of a random order, and of all."""
    rng = np.random.default_rng(0)
    wins = 0
    for _ in range(number):
        a, b, w0 = *rng.uniform(0.5, 5, 2), rng.uniform(-10, 10)
        best, errors = (a - b) / 2, []
        for order in (None, rng.integers(0, 2, ROUNDS)):
            w, error = w0, 0.0
            for t in range(ROUNDS):
                towards = (a if (w - a) ** 2 > (w + b) ** 2 else -b) if order is None else (a, -b)[order[t]]
                w = towards + (1 - STEP) ** TAU * (w - towards)
                error += (w - best) ** 2
            errors.append(error)
        wins += errors[0] < errors[1]
    return int(wins), number


FIGURE_1 = Item(
    "fig1",
    "Figure 1",
    title="The two-client example",
    about=f"F_1 = (w - {A:g})^2 / 2 and F_2 = (w + {B:g})^2 / 2 with equal shares, one seat, {TAU} local steps of "
    f"{STEP:g} from w = {START:g}. The paper gives neither the functions nor the steps; these are ours.",
    conclude=_figure_1,
)
