"""What decides a claim: intervals, the claimed size, and never a single seed."""

import numpy as np
import pytest
from test_conclusions import SIZE, Findings, conclude, made_up

from fedpick.paper import ITEMS, comparisons
from fedpick.paper.claims import about, at_least, at_most, fewer_rounds, usually
from fedpick.paper.item import ItemRuns
from fedpick.paper.settings import Size
from fedpick.results import Interval, Result


def result(curves, metric="test_accuracy", rounds=None):
    values = np.asarray(curves, float)
    evaluated = np.arange(values.shape[1]) if rounds is None else np.asarray(rounds)
    runs = [{"seed": seed} for seed in range(len(values))]
    return Result(runs, np.ones(2) / 2, 4, evaluated=evaluated, metrics={metric: values}, records={})


FAST, SLOW = [0.1, 0.9, 0.9, 0.9, 0.9], [0.1, 0.1, 0.1, 0.1, 0.9]


@pytest.mark.parametrize(("number", "met"), [(1, "unclear"), (2, "unclear"), (5, "unclear"), (6, "yes")])
def test_a_median_of_few_draws_decides_nothing(number, met):
    """The least and the largest of n values hold the median with 1 - 2 / 2^n: 95 % need six."""
    check = comparisons.less_time("", timed([FAST] * number), timed([SLOW] * number), 0.9)
    assert check.met == met
    assert ("[" in check.evidence) == (met == "yes")


def timed(curves):
    plain = result(curves)
    seconds = np.ones((len(curves), len(curves[0]) - 1))
    return Result(
        plain.runs, plain.shares, 4, evaluated=plain.evaluated, metrics=plain.metrics, records={"seconds": seconds}
    )


def test_one_draw_has_no_interval():
    found, counted = comparisons.speed_up(result([FAST]), result([SLOW]), "test_accuracy", 0.9)
    assert (found, counted) == (Interval(4.0, 0.0, np.inf), 1)
    assert comparisons.speed_up_text(found, 1, 1) == "4.00 times (one draw)"
    assert comparisons.speed_up_text(found, 1, 2) == "4.00 times (one draw); neither gets there in 1 of 2 draws"
    assert comparisons.factor_above_one("", [2.0]).evidence == "2.00 times (one seed)"


@pytest.mark.parametrize("name", [name for name in ITEMS if name != "fig1"])
def test_one_seed_decides_no_check(name, monkeypatch):
    """Whatever came of it: of t_comp alone, which is timed over many rounds, no seeds are counted."""
    small = Size(**{**SIZE.__dict__, "seeds": 1, "draws": 1})
    monkeypatch.setattr("test_conclusions.SIZE", small)
    monkeypatch.setattr("fedpick.paper.fedau.DRAWS", 1)
    for seed in range(3):
        outcome = conclude(name, monkeypatch, seed=lambda number, seed=seed: 100 * seed + number)
        for claim in outcome.claims:
            if not claim.statement.startswith("t_comp") and name != "fedcs":
                assert {check.met for check in claim.checks} == {"unclear"}, claim


@pytest.mark.parametrize(
    ("found", "claimed", "none", "met"),
    [
        (Interval(3.0, 2.0, 4.0), 3.0, 1.0, "yes"),
        (Interval(1.5, 1.2, 2.9), 3.0, 1.0, "partly"),
        (Interval(1.4, 0.3, 1.9), 3.0, 1.0, "no"),  # whichever direction, not three times
        (Interval(1.4, 0.3, 2.5), 3.0, 1.0, "unclear"),
        (Interval(0.4, 0.3, 0.9), 3.0, 1.0, "no"),
        (Interval(2.1, -0.5, 4.8), 5.0, 0.0, "unclear"),
    ],
)
def test_a_size_that_the_interval_excludes_is_contradicted(found, claimed, none, met):
    assert about(found, claimed, none=none) == met


def test_bounds():
    assert at_least(Interval(12.3, 8.6, 15.9), 10) == "partly"  # not surely
    assert at_least(Interval(15.7, 10.9, 20.5), 10) == "yes"
    assert at_least(Interval(0, -12, 12), 10) == "unclear"
    assert [at_most(Interval(1, *ends), 1.25) for ends in ((0.9, 1.1), (0.9, 1.3), (1.3, 1.4))] == [
        "yes",
        "unclear",
        "no",
    ]
    assert fewer_rounds(np.inf, np.inf, 10) == "unclear"
    assert fewer_rounds(np.inf, 100, 10) == "no"
    assert [usually("", np.arange(20) < often).met for often in (17, 12, 3)] == ["yes", "unclear", "no"]


def test_slightly_above_has_a_size():
    base, rng = np.full(10, 0.5), np.random.default_rng(0).normal(0, 0.001, 10)
    ends = [
        comparisons.slightly_above("", one, result(base[:, None]))
        for one in (result((base + up + rng)[:, None]) for up in (0.01, 0.05, -0.01))
    ]
    assert [check.met for check in ends] == ["yes", "partly", "no"]


def test_a_much_lower_loss_is_reached_in_half_of_the_rounds():
    base = result([[1.0, 0.8, 0.6, 0.4, 0.3]] * 2, "loss")
    for curve, met in (
        ([1, 0.4, 0.3, 0.2, 0.2], "yes"),
        ([1, 0.7, 0.5, 0.3, 0.2], "partly"),
        ([1, 0.9, 0.8, 0.7, 0.6], "no"),
    ):
        assert comparisons.much_lower_loss("", result([curve] * 2, "loss"), base).met == met


def quadratic(monkeypatch, floors):
    """Figure 2a where F - F* falls to these floors, by the number of clients and the strategy."""
    experiments = ITEMS["fig2a"].experiments(SIZE)
    keys = {id(experiment): key for key, experiment in experiments.items()}

    def load(experiment, store):
        made = made_up(experiment, np.random.default_rng(0))
        start, spread = 1e6 * np.ones((3, 1)), 1 + 0.01 * np.arange(3)[:, None]
        fall = np.linspace(0, 1, len(made.evaluated))[None]
        made.metrics["loss"] = start ** (1 - fall) * (floors(*keys[id(experiment)]) * spread) ** fall
        return made

    monkeypatch.setattr("fedpick.paper.item.load_results", load)
    monkeypatch.setattr("fedpick.paper.figure2a_6.quadratic_optimum", lambda federation: (0, 0.0))
    outcome = ITEMS["fig2a"].conclude(ItemRuns(Findings(np.random.default_rng(0)), SIZE, experiments))
    return {claim.statement: claim for claim in outcome.claims}


@pytest.mark.parametrize(("bias", "met"), [(1.01, "yes"), (20.0, "no")])
def test_a_nearly_negligible_bias_is_measured_against_rand(bias, met, monkeypatch):
    """It is not where F - F* ends at a tenth of a thousandth of the start, and at twenty times what rand's is."""
    claims = quadratic(monkeypatch, lambda K, name: bias if name.startswith("pow") else 1.0)
    check = claims["A larger d has a higher error floor; for small d the bias is nearly negligible."].checks[-1]
    assert check.met == met


def test_a_smaller_bias_is_looked_for_at_every_d_that_both_have(monkeypatch):
    claims = quadratic(
        monkeypatch, lambda K, name: 1.0 if name == "rand" else 300 - K if name.endswith("= K") else 500 - K
    )
    checks = claims["For K = 100 the bias is smaller."].checks
    assert [check.what.split(":")[0] for check in checks] == ["d = 15", "d = 30", "d = 3m", "d = 10m = K"]
    assert {check.met for check in checks} == {"yes"}


@pytest.mark.parametrize(("name", "sizes"), [("fig4", ["about 10", "at least 10"]), ("table2", ["at least about 10"])])
def test_claims_are_checked_with_their_sizes(name, sizes, monkeypatch):
    whats = [
        check.what for claim in conclude(name, monkeypatch, seed=lambda number: number).claims for check in claim.checks
    ]
    for size in sizes:
        assert any(f": {size} points more" in what for what in whats)
    saved = [what for what in whats if "0.6 of rand's, or more" in what]
    assert len(saved) == (3 if name == "table2" else 0)
