"""Claims of two later papers of the same authors: UCB-CS, and adapow-d with three schedules of d."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedpick.paper.claims import Check, at_most, claims_of, factor_text, geometric_mean, number_text
from fedpick.paper.comparisons import area, factor_above_one, positive
from fedpick.paper.figure2a_6 import optimality_gap, rounds_near
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size, quadratic, synthetic
from fedpick.protocol import Selector
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow, curve
from fedpick.results import Result, Spread

# UCB-CS

RIVALS = ("rand", "pow-d, d = 6", "rpow-d, d = 6")


def _ucb_experiments(size: Size) -> Experiments:
    selectors: dict[str, Selector[Any]] = {
        "rand": strategy("rand", m=3),
        "pow-d, d = 6": strategy("pow-d", m=3, d=6),
        "rpow-d, d = 6": strategy("rpow-d", m=3, d=6),
        "ucb-cs": strategy("ucb-cs", m=3),
        "ucb-cs, gamma = 0.95": strategy("ucb-cs", m=3, gamma=0.95),
    }
    plain = {name: synthetic(size, selector) for name, selector in selectors.items()}
    return {name: replace(each, metrics=replace(each.metrics, clients=True)) for name, each in plain.items()}


def _bytes(result: Result) -> Any:
    costs = result.costs
    return (costs["bytes_down"] + costs["bytes_up"]).sum(axis=1)


def _evenness(result: Result) -> Any:
    """Jain's index of the clients' accuracies after the last round, (sum a)^2 / (K sum a^2), one per seed."""
    last = result.metrics["client_accuracy"][:, -1].astype(float)
    return last.sum(axis=1) ** 2 / np.maximum(last.shape[1] * (last**2).sum(axis=1), 1e-12)


def _ucb(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    for name in runs.experiments:
        result = runs[name]
        rows += curve(name, "", result.evaluated, values=result.metric("loss"))
        last = (f"{Spread.of(result.metric(metric)[:, -1]):.2f}" for metric in ("loss", "worst_loss"))
        table.append(
            (
                name,
                f"{Spread.of(area(result, 'loss')):.2f}",
                *last,
                f"{_evenness(result).mean():.2f}",
                f"{_bytes(result).mean() / 1e6:.1f}",
            )
        )
    ucb, rand, pow_d, stale = (runs[name] for name in ("ucb-cs", *RIVALS))
    ahead = [
        positive(f"ahead of {name}", area(runs[name], "loss") - area(ucb, "loss"), "in loss, mean over the rounds")
        for name in RIVALS
    ]
    off = positive("rpow-d ends above rand", (stale.metric("loss") - rand.metric("loss"))[:, -1], "in loss")
    fair = [
        positive(f"Jain's index of the clients' accuracies above {name}'s", _evenness(ucb) - _evenness(other), "more")
        for name, other in (("rand", rand), ("pow-d", pow_d))
    ]
    statements = {
        "UCB-CS converges faster than random selection and than earlier biased selection.": ahead,
        "Its communication overhead is lower than that of polling for exact losses.": (
            factor_above_one("bytes of pow-d, d = 6, over those of ucb-cs", _bytes(pow_d) / _bytes(ucb)),
        ),
        "Stale losses can lead selection astray.": (off,),
        "Selection can be used to improve fairness.": fair,
    }
    title = "UCB-CS on Synthetic(1,1): loss by round"
    text = "The global loss by round for random selection, pow-d, rpow-d and UCB-CS with two discounts."
    chart = Chart("ucb-cs", "lines", title=title, text=text, x="round", y="F(w)", rows=tuple(rows))
    columns = (
        "strategy",
        "loss, mean over the rounds",
        "last loss",
        "last loss of the worst client",
        "Jain's index of accuracies",
        "megabytes",
    )
    remark = (
        "What decides is the discount: at gamma = 0.7 a loss of ten rounds ago counts for 3 %, and every client is "
        "soon visited again; with 0.95 it counts for 60 %."
    )
    whole = Table("Loss, fairness and traffic", columns, tuple(table))
    claims = claims_of("Cho, Gupta, Joshi, Yagan 2020, abstract", statements)
    return Outcome(claims, (chart,), (whole,), remarks=(remark,))


# adapow-d

SCHEDULES = {"ten steps": "adapow-d", "switch": "adapow-d-switch", "halving": "adapow-d-halving"}
CLIENTS = (30, 100)
NOT_ABOVE = 1.1  # times rand's last F - F*


def _adapow_experiments(size: Size) -> Experiments:
    found: Experiments = {}
    for K in CLIENTS:
        m, rounds = K // 10, size.quadratic_rounds
        selectors = {"rand": strategy("rand", m=m), f"pow-d, d = {K}": strategy("pow-d", m=m, d=K)}
        selectors |= {label: strategy(name, m=m, rounds=rounds) for label, name in SCHEDULES.items()}
        found |= {(K, name): quadratic(size, selector, K) for name, selector in selectors.items()}
    return found


def _not_above(what: str, ours: Any, theirs: Any) -> Check:
    """Whether the geometric mean of ours is at most a tenth above theirs."""
    found = geometric_mean(ours / theirs)
    return Check(what, at_most(found, NOT_ABOVE), factor_text(found, len(ours)))


def _adapow(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table = []
    fast: list[Check] = []
    floor: list[Check] = []
    for K in CLIENTS:
        constant = f"pow-d, d = {K}"
        found = {name: optimality_gap(runs, K, name) for name in ("rand", constant, *SCHEDULES)}
        near = {name: rounds_near(gap) for name, gap in found.items()}
        last = {name: gap.metric("loss")[:, -1] for name, gap in found.items()}
        for name, gap in found.items():
            rows += curve(name, f"K = {K}, m = {K // 10}", gap.evaluated, values=np.log10(gap.metric("loss")))
            polls = runs[K, name].records["polled"].mean()
            table.append(
                (
                    f"{K}",
                    name,
                    number_text(float(np.median(near[name]))),
                    f"{np.median(last[name]):.3g}",
                    f"{polls:.1f}",
                )
            )
        for name in SCHEDULES:
            what = f"K = {K}, {name}"
            fast.append(factor_above_one(f"{what}: speed-up over rand to 1 % of the start", near["rand"] / near[name]))
            floor.append(
                positive(f"{what}: ends below {constant}", np.log10(last[constant] / last[name]), "powers of ten")
            )
            floor.append(_not_above(f"{what}: ends at rand's F - F*, or below", last[name], last["rand"]))
    statements = {
        "It is faster than random selection at first.": fast,
        "It ends without the bias of a constant d: F - F* falls below that, to that of random selection.": floor,
    }
    title = "adapow-d on the quadratic problem: F - F* by round"
    text = "F minus its minimum by round for rand, pow-d with d = K, and adapow-d with three schedules."
    chart = Chart("adapow-d", "lines", title=title, text=text, x="round", y="log10 of F(w) - F*", rows=tuple(rows))
    columns = ("K", "strategy", "rounds to 1 % of the start, median", "last F - F*, median", "polls a round")
    whole = Table("Speed, bias and polls", columns, tuple(table))
    return Outcome(claims_of("Cho, Wang, Joshi 2022, in our words", statements), (chart,), (whole,))


UCB_CS = Item(
    "ucb-cs",
    "UCB-CS",
    title="Discounted losses and a bonus on Synthetic(1,1)",
    about="Synthetic(1,1) as in Figure 3: 30 clients, 3 seats, tau = 30, b = 50, eta = 0.05. Only the abstract of the "
    "paper was at hand; gamma = 0.7 is that of a third party's code, and 0.95 is ours.",
    conclude=_ucb,
    experiments=_ucb_experiments,
)
ADAPOW_D = Item(
    "adapow-d",
    "adapow-d",
    title="Three schedules of d on the quadratic problem",
    about="The quadratic problem as in Figure 2a, with d falling from K to m: in ten equal steps (ours), at half of "
    "the rounds (switch), or as K, K/2, K/4, K/8, m in five equal stages (halving). The last two are those of a public "
    "reproduction, whose stages of the quadratic problem end after two fifths of its rounds.",
    conclude=_adapow,
    experiments=_adapow_experiments,
)
