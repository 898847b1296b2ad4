"""Figures 4, 5, 7 and 8: Fashion-MNIST with the paper's objective."""

import itertools
from collections.abc import Iterable
from typing import Any

from fedpick.paper.claims import Check, before_the_end, claims_of, number_text
from fedpick.paper.comparisons import (
    above,
    accuracy,
    area,
    as_well,
    gain,
    gain_of_at_least,
    much_lower_loss,
    positive,
    rounds_until,
    slightly_above,
    sooner,
)
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import ALPHAS, FEW, FULL, INTERMITTENT, MANY, Experiments, Size, fashion
from fedpick.protocol import Selector
from fedpick.report import Chart, ChartRow, curve
from fedpick.results import Spread

COMMON = (
    "K = 100, Dir_K(alpha) partitions (capped, as released), one for each seed; 784-64-30-10 with dropout, b = 64, "
    "tau = 30, eta = 0.005 halved at rounds 150 and 300, weight decay 1e-4, {fashion_rounds} rounds; trained on "
    "minus the probability of the right class."
)


def both_alphas(size: Size, selectors: dict[str, Selector[Any]], halves: bool = False) -> Experiments:
    """Every strategy at both alphas."""
    return {
        (alpha, name): fashion(size, selector, alpha, halves=halves)
        for alpha in ALPHAS
        for name, selector in selectors.items()
    }


def by_round(name: str, title: str, runs: ItemRuns, names: Iterable[str]) -> Chart:
    """Test accuracy and training loss by round at both alphas, as the paper draws them."""
    rows: list[ChartRow] = []
    for metric, unit, panel in (("test_accuracy", 100, "test accuracy, %"), ("loss", 1, "training loss")):
        for alpha, strategy in itertools.product((2.0, 0.3), names):
            result = runs[alpha, strategy]
            rows += curve(
                strategy, f"alpha = {alpha:g}: {panel}", result.evaluated, values=unit * result.metric(metric)
            )
    text = "Test accuracy and training loss by round for each strategy, alpha = 2 and 0.3; the bands are spreads."
    return Chart(name, "lines", title=title, text=text, x="round", rows=tuple(rows))


def ends(runs: ItemRuns, names: Iterable[str]) -> Table:
    """Final accuracy and rounds to 60 % at both alphas."""
    rows = []
    for strategy in names:
        row = [strategy]
        for alpha in ALPHAS:
            result = runs[alpha, strategy]
            row += [f"{Spread.of(accuracy(result)):.1f}", number_text(rounds_until(result))]
        rows.append(tuple(row))
    columns = ("strategy", *(f"alpha = {alpha:g}: {what}" for alpha in ALPHAS for what in ("accuracy, %", "R60")))
    return Table("After the last round", columns, tuple(rows))


def at_the_end(runs: ItemRuns, checks: Iterable[Check]) -> list[Check]:
    """Checks of accuracies after the last round, which fewer rounds than the paper's do not contradict."""
    return before_the_end(checks, runs.size.fashion_rounds, FULL.fashion_rounds)


FIGURE_4_NAMES = ("rand", "pow-d, d = 6", "pow-d, d = 9", "pow-d, d = 15", "afl")


def _figure_4(runs: ItemRuns) -> Outcome:
    pows = FIGURE_4_NAMES[1:4]
    gains: list[Check] = []
    least: list[Check] = []
    losses: list[Check] = []
    for alpha in ALPHAS:
        means = {name: float(accuracy(runs[alpha, name]).mean()) for name in pows}
        best = max(means, key=means.__getitem__)
        for base, points in (("rand", 10.0), ("afl", 5.0)):
            gains.append(gain(f"alpha = {alpha:g}: {best} over {base}", runs[alpha, best], runs[alpha, base], points))
        rand, ours = runs[alpha, "rand"], runs[alpha, best]
        least.append(gain_of_at_least(f"alpha = {alpha:g}: {best} over rand", ours, rand, 10.0))
        lower, what = area(rand, "loss") - area(ours, "loss"), f"alpha = {alpha:g}: {best}"
        losses.append(positive(f"{what} has a lower loss than rand", lower, "in the mean over the rounds"))
        losses.append(much_lower_loss(f"{what} is at rand's last loss in half of the rounds, or sooner", ours, rand))
    large = [
        above(f"alpha = 2: {larger} above {less}", runs[2.0, larger], runs[2.0, less])
        for less, larger in ((pows[0], pows[1]), (pows[0], pows[2]))
    ]
    small = [above(f"alpha = 0.3: d = 6 above {name}", runs[0.3, pows[0]], runs[0.3, name]) for name in pows[1:]]
    six, nine, fifteen = (accuracy(runs[2.0, name]) for name in pows)
    levels = positive("alpha = 2: more is gained from d = 6 to 9 than from 9 to 15", 2 * nine - six - fifteen, "points")
    statements = {
        "pow-d achieves about 10 % and 5 % higher test accuracy than rand and afl, for both alphas.": at_the_end(
            runs, gains
        ),
        "It achieves at least 10 % more than rand, for both alphas (the caption).": at_the_end(runs, least),
        "The training loss converges at a much higher rate than with rand.": losses,
        "For alpha = 2 a larger d performs better than a smaller one.": at_the_end(runs, large),
        "This improvement with d eventually converges.": at_the_end(runs, (levels,)),
        "For alpha = 0.3 the smaller d = 6 performs better than larger d.": at_the_end(runs, small),
    }
    chart = by_round("fig4", "Fashion-MNIST, C = 0.03: pow-d over d, rand and afl", runs, FIGURE_4_NAMES)
    return Outcome(claims_of("Figure 4, Section 5", statements), (chart,), (ends(runs, FIGURE_4_NAMES),))


FIGURE_5_NAMES = ("rand", "pow-d, d = 6", "cpow-d, d = 6", "rpow-d, d = 50", "afl")


def _figure_5(runs: ItemRuns) -> Outcome:
    rand, pow_d, cpow, rpow, afl = FIGURE_5_NAMES
    mild = (
        gain("alpha = 2: rpow-d over rand", runs[2.0, rpow], runs[2.0, rand], 5.0),
        gain("alpha = 2: cpow-d over rand", runs[2.0, cpow], runs[2.0, rand], 6.0),
        above("alpha = 2: pow-d above cpow-d", runs[2.0, pow_d], runs[2.0, cpow]),
        above("alpha = 2: pow-d above rpow-d", runs[2.0, pow_d], runs[2.0, rpow]),
    )
    strong = (
        as_well("alpha = 0.3: cpow-d as well as pow-d", runs[0.3, cpow], runs[0.3, pow_d]),
        as_well("alpha = 0.3: rpow-d as well as pow-d", runs[0.3, rpow], runs[0.3, pow_d]),
        gain("alpha = 0.3: cpow-d over rand", runs[0.3, cpow], runs[0.3, rand], 10.0),
        gain("alpha = 0.3: rpow-d over rand", runs[0.3, rpow], runs[0.3, rand], 10.0),
    )
    against_afl = [
        check
        for alpha in ALPHAS
        for name in (pow_d, cpow, rpow)
        for check in (
            *at_the_end(runs, [above(f"alpha = {alpha:g}: {name} above afl", runs[alpha, name], runs[alpha, afl])]),
            sooner(f"alpha = {alpha:g}: {name} sooner than afl", runs[alpha, name], runs[alpha, afl]),
        )
    ]
    statements = {
        "For alpha = 2, rpow-d and cpow-d yield about 5 % and 6 % higher accuracy than rand, both lower than "
        "pow-d.": at_the_end(runs, mild),
        "For alpha = 0.3, cpow-d and rpow-d perform as well as pow-d, 10 % above rand.": at_the_end(runs, strong),
        "pow-d, cpow-d and rpow-d all have higher accuracy and faster convergence than afl.": against_afl,
    }
    chart = by_round("fig5", "Fashion-MNIST, C = 0.03: the cheaper variants", runs, FIGURE_5_NAMES)
    return Outcome(claims_of("Figure 5, Section 5", statements), (chart,), (ends(runs, FIGURE_5_NAMES),))


def _figure_7(runs: ItemRuns) -> Outcome:
    rand, pow_d, rpow = INTERMITTENT
    statements = {
        f"For alpha = {alpha:g}, pow-d and rpow-d achieve {ours[0]:g} % and {ours[1]:g} % improvement over rand.": [
            gain(f"{name} over rand", runs[alpha, name], runs[alpha, rand], points)
            for name, points in zip((pow_d, rpow), ours, strict=True)
        ]
        for alpha, ours in ((2.0, (10.0, 5.0)), (0.3, (10.0, 10.0)))
    }
    statements = {statement: at_the_end(runs, checks) for statement, checks in statements.items()}
    claims = claims_of("Figure 7, appendix (which says alpha = 3 for 0.3)", statements)
    chart = by_round("fig7", "Fashion-MNIST, C = 0.03: clients that are there by turns", runs, INTERMITTENT)
    return Outcome(claims, (chart,), (ends(runs, INTERMITTENT),))


def _figure_8(runs: ItemRuns) -> Outcome:
    rand, pow_d, cpow, rpow, afl = MANY
    statements: dict[str, Iterable[Check]] = {
        "For alpha = 2 and C = 0.1, pow-d improves by about 15 %; cpow-d is slightly below pow-d and above rand and "
        "afl; rpow-d performs as well as afl.": (
            gain("pow-d over rand", runs[2.0, pow_d], runs[2.0, rand], 15.0),
            slightly_above("pow-d above cpow-d", runs[2.0, pow_d], runs[2.0, cpow]),
            above("cpow-d above rand", runs[2.0, cpow], runs[2.0, rand]),
            above("cpow-d above afl", runs[2.0, cpow], runs[2.0, afl]),
            as_well("rpow-d as well as afl", runs[2.0, rpow], runs[2.0, afl]),
        ),
        "For alpha = 0.3, pow-d, cpow-d and rpow-d have about equal accuracy, 5 % above rand, and slightly above "
        "afl.": (
            *(gain(f"{name} over rand", runs[0.3, name], runs[0.3, rand], 5.0) for name in (pow_d, cpow, rpow)),
            *(as_well(f"{name} as well as pow-d", runs[0.3, name], runs[0.3, pow_d]) for name in (cpow, rpow)),
            *(slightly_above(f"{name} above afl", runs[0.3, name], runs[0.3, afl]) for name in (pow_d, cpow, rpow)),
        ),
    }
    statements = {statement: at_the_end(runs, checks) for statement, checks in statements.items()}
    chart = by_round("fig8", "Fashion-MNIST, C = 0.1", runs, MANY)
    return Outcome(claims_of("Figure 8, appendix", statements), (chart,), (ends(runs, MANY),))


FIGURE_4 = Item(
    "fig4",
    "Figure 4",
    title="Fashion-MNIST: pow-d over d",
    about=f"C = 0.03 (m = 3). {COMMON} Where the paper says pow-d without d, the best d of ours is compared.",
    conclude=_figure_4,
    experiments=lambda size: both_alphas(size, {name: FEW[name] for name in FIGURE_4_NAMES}),
)
FIGURE_5 = Item(
    "fig5",
    "Figure 5",
    title="Fashion-MNIST: cpow-d, rpow-d and afl",
    about=f"C = 0.03 (m = 3). {COMMON} The d are those of the paper's Table 1.",
    conclude=_figure_5,
    experiments=lambda size: both_alphas(size, {name: FEW[name] for name in FIGURE_5_NAMES}),
)
FIGURE_7 = Item(
    "fig7",
    "Figure 7",
    title="Fashion-MNIST: intermittent availability",
    about=f"Two fixed halves of the clients take turns, and a random tenth of the active one is away. C = 0.03. "
    f"{COMMON} The paper does not say d: those of Table 1; with d = 50, rpow-d looks at all 45 that are there.",
    conclude=_figure_7,
    experiments=lambda size: both_alphas(size, INTERMITTENT, halves=True),
)
FIGURE_8 = Item(
    "fig8",
    "Figure 8",
    title="Fashion-MNIST: a larger fraction of clients",
    about=f"C = 0.1 (m = 10). {COMMON} The paper does not say d: twice m for pow-d and cpow-d, 50 for rpow-d.",
    conclude=_figure_8,
    experiments=lambda size: both_alphas(size, MANY),
)
