"""Figure 3: logistic regression on Synthetic(1,1), over many draws of the data where the paper shows one."""

from fedpick.paper.claims import Check, about, at_most, before_the_end, claims_of
from fedpick.paper.comparisons import positive, speed_up, speed_up_text
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import FULL, Experiments, Size, synthetic
from fedpick.registry import strategy
from fedpick.report import Chart, curve
from fedpick.results import interval

TARGET = 0.5
SEATS = (1, 2, 3)
CLAIMED = {2: 2.0, 10: 3.0}  # d / m, and how many times faster


def _experiments(size: Size) -> Experiments:
    experiments: Experiments = {}
    for m in SEATS:
        experiments[m, "rand"] = synthetic(size, strategy("rand", m=m))
        for factor in CLAIMED:
            experiments[m, factor] = synthetic(size, strategy("pow-d", m=m, d=factor * m))
    return experiments


def _conclude(runs: ItemRuns) -> Outcome:
    rows, table = [], []
    checks: dict[int, list[Check]] = {factor: [] for factor in CLAIMED}
    floors = []
    for m in SEATS:
        base = runs[m, "rand"]
        rows += curve("rand", f"m = {m}", base.evaluated, values=base.metric("loss"))
        for factor, claimed in CLAIMED.items():
            result = runs[m, factor]
            rows += curve(f"pow-d, d = {factor}m", f"m = {m}", result.evaluated, values=result.metric("loss"))
            found, counted = speed_up(result, base, "loss", TARGET)
            evidence = speed_up_text(found, counted, len(base.runs))
            what = f"m = {m}: about {claimed:g} times fewer rounds"
            checks[factor].append(Check(what, about(found, claimed, none=1.0), evidence))
            ends = result.metric("loss")[:, -1] - base.metric("loss")[:, -1]
            if factor == 10:
                floors.append(positive(f"m = {m}: d = 10m ends higher than rand", ends, "in the loss"))
                last, above = float(base.metric("loss")[:, -1].mean()), interval(ends)
                what = f"m = {m}: slightly, by no more than a fifth of rand's last loss"
                floors.append(Check(what, at_most(above, last / 5), f"{above} against a fifth of {last:.2f}"))
            table.append((f"{m}", f"{factor}m", f"{claimed:g}", evidence, f"{ends.mean():+.3f}"))
    statements = {
        "With d = 2m pow-d converges about twice as fast to a loss of about 0.5.": checks[2],
        "With d = 10m it converges about three times as fast to it.": checks[10],
    }
    floor = {
        "With d = 10m the error floor is slightly higher.": before_the_end(
            floors, runs.size.synthetic_rounds, FULL.synthetic_rounds
        )
    }
    claims = claims_of("Figure 3", statements) + claims_of("Section 5", floor)
    title = "Synthetic(1,1): global loss by round"
    text = (
        "Global loss by round for rand and pow-d with d = 2m and 10m, for one, two and three seats; mean over the "
        "draws."
    )
    chart = Chart("fig3", "lines", title=title, text=text, x="round", y="global loss", rows=tuple(rows), columns=3)
    ratio = "rounds of rand over rounds of pow-d to 0.5, median [95 %]"
    columns = ("m", "d", "claimed", ratio, "last loss above rand's")
    return Outcome(claims, (chart,), (Table("Speed-up to a global loss of 0.5", columns, tuple(table)),))


FIGURE_3 = Item(
    "fig3",
    "Figure 3",
    title="Synthetic(1,1): rand and pow-d with d = 2m and 10m",
    about="K = 30, b = 50, tau = 30, eta = 0.05 halved at rounds 300 and 600, {synthetic_rounds} rounds, zero "
    "initialisation; the data are drawn anew for every seed, because the sizes are heavy-tailed and one draw says "
    "little. With m = 3, d = 10m is K: everybody is a candidate.",
    conclude=_conclude,
    experiments=_experiments,
)
