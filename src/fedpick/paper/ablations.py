"""Ablations of our own: Fashion-MNIST under cross-entropy, and over the learning rate."""

import itertools

import numpy as np

from fedpick.paper.claims import Check, above_zero, claims_of, number_text
from fedpick.paper.comparisons import above, accuracy, as_well, dot_with_spread, rounds_until
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import ALPHAS, FEW, INTERMITTENT, MANY, Experiments, Size, fashion
from fedpick.report import Chart, ChartRow, curve, dot
from fedpick.results import Spread, interval

OBJECTIVES = ("minus-probability", "cross-entropy")
SETTINGS = {"C = 0.03": (FEW, False), "C = 0.1": (MANY, False), "by turns": (INTERMITTENT, True)}


def _objective_experiments(size: Size) -> Experiments:
    return {
        (objective, alpha, setting, name): fashion(size, selector, alpha, objective=objective, halves=halves)
        for objective in OBJECTIVES
        for alpha in ALPHAS
        for setting, (selectors, halves) in SETTINGS.items()
        for name, selector in selectors.items()
    }


def _objective(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    curves: list[ChartRow] = []
    table, equal, better = [], [], []
    for alpha, (setting, (selectors, _)) in itertools.product(ALPHAS, SETTINGS.items()):
        base = runs["cross-entropy", alpha, setting, "rand"]
        for name in selectors:
            results = {objective: runs[objective, alpha, setting, name] for objective in OBJECTIVES}
            cross_entropy = results["cross-entropy"]
            if setting == "C = 0.03":
                panel = f"alpha = {alpha:g}"
                rows += [dot_with_spread(o, panel, name, accuracy(result)) for o, result in results.items()]
                values = 100 * cross_entropy.metric("test_accuracy")
                curves += curve(name, f"{panel}: test accuracy, %", cross_entropy.evaluated, values=values)
            ends = [f"{Spread.of(accuracy(result)):.1f}" for result in results.values()]
            r60 = [number_text(rounds_until(result)) for result in results.values()]
            table.append((f"{alpha:g}", setting, name, *ends, *r60))
            if name.startswith("pow-d"):
                equal.append(as_well(f"alpha = {alpha:g}, {setting}: {name} and rand", cross_entropy, base))
    for alpha in ALPHAS:
        rand = runs["cross-entropy", alpha, "C = 0.03", "rand"]
        pow_d = runs["minus-probability", alpha, "C = 0.03", "pow-d, d = 6"]
        what = f"alpha = {alpha:g}: rand under cross-entropy above pow-d under minus-probability"
        better.append(above(what, rand, pow_d))
    statements = {
        "Under cross-entropy, at the paper's settings, pow-d and rand end equal.": equal,
        "Changing the objective gains more than changing the selection.": better,
    }
    title = "The objective decides: accuracy after the last round, C = 0.03"
    text = "Test accuracy of each strategy after the last round under minus-probability and under cross-entropy."
    dots = Chart("objective", "dots", title=title, text=text, y="test accuracy, %", rows=tuple(rows))
    title = "Fashion-MNIST under cross-entropy, C = 0.03"
    text = "Test accuracy by round under cross-entropy at both alphas."
    lines = Chart("objective-curves", "lines", title=title, text=text, x="round", rows=tuple(curves))
    columns = (
        "alpha",
        "setting",
        "strategy",
        "minus-probability, %",
        "cross-entropy, %",
        "R60, minus-probability",
        "R60, cross-entropy",
    )
    ends_of_both = Table("Both objectives after the last round", columns, tuple(table))
    return Outcome(claims_of("ours", statements), (dots, lines), (ends_of_both,))


PAIR = ("rand", "pow-d, d = 6")


def _rate_experiments(size: Size) -> Experiments:
    return {
        (objective, alpha, eta, name): fashion(size, FEW[name], alpha, objective=objective, eta=eta)
        for objective in OBJECTIVES
        for alpha in ALPHAS
        for eta in size.etas
        for name in PAIR
    }


def _rates(runs: ItemRuns) -> Outcome:
    rows, table = [], []
    pays: dict[str, list[Check]] = {objective: [] for objective in OBJECTIVES}
    for objective, alpha, eta in itertools.product(OBJECTIVES, ALPHAS, runs.size.etas):
        rand, pow_d = (runs[objective, alpha, eta, name] for name in PAIR)
        gap = interval(accuracy(pow_d) - accuracy(rand))
        mean = interval(100 * (pow_d.metric("test_accuracy") - rand.metric("test_accuracy")).mean(axis=1))
        panel = f"alpha = {alpha:g}"
        for what, (middle, low, high) in (("after the last round", gap), ("mean over the rounds", mean)):
            low, high = (low, high) if np.isfinite(high) else (middle, middle)
            rows.append(dot(objective, f"{panel}: {what}", f"{eta:g}", value=middle, low=low, high=high))
        r60 = [rounds_until(result) for result in (rand, pow_d)]
        ratio = number_text(r60[1] / r60[0], 2) if np.isfinite(r60[0]) else "-"
        last = [f"{accuracy(result).mean():.1f}" for result in (rand, pow_d)]
        table.append((objective, f"{alpha:g}", f"{eta:g}", *last, str(gap), *map(number_text, r60), ratio))
        evidence = f"{mean} points over the rounds, {gap} at the end"
        pays[objective].append(Check(f"alpha = {alpha:g}, eta = {eta:g}", above_zero(mean), evidence))
    statements = {
        f"Under {objective}, pow-d is ahead of rand over the rounds at every learning rate.": pays[objective]
        for objective in OBJECTIVES
    }
    title = "Where biased selection pays: accuracy of pow-d (d = 6) less that of rand, by learning rate"
    text = "The difference in accuracy between pow-d and rand for several learning rates, objectives and alphas."
    chart = Chart("rates", "dots", title=title, text=text, x="eta", y="points", rows=tuple(rows))
    columns = (
        "objective",
        "alpha",
        "eta",
        "rand, %",
        "pow-d, %",
        "difference [95 %]",
        "R60, rand",
        "R60, pow-d",
        "ratio",
    )
    pairs = Table("rand and pow-d by learning rate", columns, tuple(table))
    return Outcome(claims_of("ours", statements), (chart,), (pairs,))


OBJECTIVE = Item(
    "objective",
    "ours",
    title="Fashion-MNIST under cross-entropy",
    about="Every Fashion-MNIST federation of Figures 4, 5, 7, 8 and of the tables again, trained on cross-entropy and "
    "otherwise the same. The losses that the paper plots are negative, as those of minus the probability of the right "
    "class are (a softmax fed to a negative log-likelihood without the log); the other items use that objective.",
    conclude=_objective,
    experiments=_objective_experiments,
)
RATES = Item(
    "rates",
    "ours",
    title="Fashion-MNIST over the learning rate",
    about="rand and pow-d, d = 6, C = 0.03, at several learning rates and otherwise as in Figure 4, under both "
    "objectives.",
    conclude=_rates,
    experiments=_rate_experiments,
)
