"""What an answer, its cards and its page say of targets that say nothing, of one seed, of bounds, and of auto."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support.made_up import made_up
from support.pages import comparison_report, curves, summary

from fedpick.compare import (
    COLUMNS,
    Comparison,
    ComparisonReport,
    load_report,
    remarks_on_settings,
    remarks_on_test_set,
    render_page,
)
from fedpick.compare.facts import cards, describe, sweep_sections
from fedpick.compare.targets import leader_of, most_spent, speed_up_chart, targets, winner_of
from fedpick.storage import RunStore


def compared(value=0.5, by="rounds", **rounds_to):
    return Comparison(tuple(rounds_to), tuple(map(made_up, rounds_to.values())), value=value, by=by)


def of_losses(*runs):
    """A result of two rounds whose runs have these losses."""
    result = made_up([None] * len(runs), total=len(runs[0]) - 1)
    result.metrics["loss"][:] = runs
    return result


def of_seeds(result, seeds):
    return replace(result, runs=[{"seed": seed} for seed in seeds])


def test_what_most_runs_begin_with_is_no_target():
    found = compared(rand=[0, 0, 60], fast=[0, 0, 20])
    assert found.answer == (
        "Most runs begin with loss 0.5 (4 of 6), so that this target says nothing. Give another one, or another metric."
    )
    assert winner_of(found) == ""
    assert [COLUMNS[2].text(one) for one in found.summaries] == ["1", "-"]
    assert cards(found, "fast")[0][1] == "-"
    some = compared(rand=[0, 50, 60], fast=[0, 20, 22])
    assert some.answer.endswith(" 2 of 6 runs begin with this target, which brings factors nearer to 1.")


def test_a_target_of_its_own_is_none_that_most_runs_begin_with():
    rand, fast = (
        of_losses([1, 0.8, 0.5], [1, 0.8, 0.4], [3, 2.5, 2]),
        of_losses([1, 0.5, 0.5], [1, 0.4, 0.4], [3, 1.1, 1]),
    )
    found = Comparison(("rand", "fast"), (rand, fast))
    assert found.threshold == 0.5  # and not 2, which every run of rand reaches, as two of them begin with it
    assert found.goal_with_source == "loss 0.5, which 2 of 3 runs of rand reach"
    assert not found.says_nothing
    assert Comparison(("rand",), (of_losses([1, 0.8], [1, 0.7]),)).goal_with_source.endswith(
        "every run of rand reaches"
    )


def test_the_runs_that_reach_a_target_of_its_own_are_those_of_the_table():
    once = [0.5, 0.8, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]  # above the last run's end for a while
    rand = of_losses(once, once, [0.5, 0.6, *[0.7] * 7])
    rand.metrics["test_accuracy"] = rand.metrics["loss"].copy()
    found = Comparison(("rand",), (rand,), "test_accuracy")
    assert (found.threshold, found.summaries[0].reached) == (0.699, 3)
    assert found.goal_with_source == "test accuracy 69.9%, which every run of rand reaches"


def test_a_page_offers_no_target_that_most_runs_begin_with():
    losses = [1, 5, 4, 3, 2, 0.9, 0.8, 0.7, 0.6]
    found = Comparison(("rand", "other"), (of_losses(losses, losses), of_losses(losses, losses)))
    assert max(targets(found)) < 1
    assert found.at(2.0).says_nothing


@pytest.mark.parametrize(
    ("value", "rand", "fast", "words"),
    [
        (0.5, 60, 20, "The fastest is fast: it is 3.00 times as fast as rand to loss 0.5."),
        (0.5, 20, 60, "rand is the fastest here; the next is fast: it is 0.33 times as fast as rand to loss 0.5."),
        (0.5, 20, 20, "fast is just as fast as rand to loss 0.5."),
        (0.5, None, 60, "The fastest is fast: it is at least 1.67 times as fast as rand to loss 0.5."),
        (0.5, 60, None, "Only rand reaches loss 0.5 in 100 rounds, with 1 of 1 seed."),
        (0.1, 60, 60, "No run reaches loss 0.1 in 100 rounds; rand ends nearest to it."),
    ],
)
def test_with_one_seed_nothing_is_sure(value, rand, fast, words):
    found = compared(value, rand=[rand], fast=[fast])
    for result in found.results:
        result.metrics["loss"][:, 1:] = np.minimum(result.metrics["loss"][:, 1:], 0.9)
    assert found.answer == f"With one seed nothing is sure. {words} Give more seeds."
    assert winner_of(found) == ""
    assert "one seed, with which nothing is sure" in cards(found, "fast")[0][2]
    chart = speed_up_chart(found, [found.at(0.6), found.at(0.7)])
    assert chart is None or "95 %" not in chart.text


def test_nobody_is_called_the_fastest_without_whom_misses_a_seed_and_is_sooner_else():
    rand, pow_d = made_up([30, 31, 32, 30, 29] * 2), made_up([10] * 9 + [None])

    def told(rounds):
        return Comparison(("rand", "afl", "pow-d"), (rand, made_up(rounds), pow_d), value=0.5).answer

    sooner = " pow-d gets there with 9 of 10 seeds, but sooner: with a median of 10 rounds against 30."
    slow, level = told([60, 61, 62, 60, 59] * 2), told([25, 31, 30, 28, 29, 30, 29, 30, 31, 30])
    assert "rand is the fastest with 10 of 10 seeds; the next is afl: it is 0.50 times" in slow
    assert slow.endswith(sooner)
    assert "The fastest with 10 of 10 seeds is afl: it is 1.04 times" in level
    assert level.endswith(sooner)
    seldom = made_up([20, 20, 20, None, None])
    found = Comparison(("rand", "pow-d"), (made_up([30] * 5), seldom), value=0.5).answer
    assert "rand is the fastest with 5 of 5 seeds; the next is pow-d: it is at most 0.79 times" in found
    assert found.endswith(" pow-d gets there with 3 of 5 seeds, but sooner: with a median of 20 rounds against 30.")


def test_a_target_that_all_reach_by_their_first_evaluation_says_so():
    told = " Every run gets there by the first evaluation, after 1 round, which tells nothing apart"
    assert told in compared(rand=[1, 1], fast=[1, 1]).answer
    assert told not in compared(rand=[1, 1], fast=[1, 2]).answer


def test_of_equal_ends_the_baselines_is_named():
    alike = made_up([60] * 3)
    found = Comparison(("auto", "rand"), (alike, alike), value=0.1).answer
    assert found == "No run reaches loss 0.1 in 100 rounds; rand ends nearest to it."


@pytest.mark.parametrize("by", ["rounds", "bytes", "seconds"])
def test_nobody_is_sooner_than_a_baseline_that_never_gets_there(by):
    runs = {"rand": [None] * 5, "pow-d": [20, 21, 22, 20, 21], "auto": [40, 41, 42, 40, None]}
    better = tuple(made_up(rounds, last=0.4 if rounds[0] else 0.9) for rounds in runs.values())
    falling = np.linspace(1, 0.9, 101) * np.ones((5, 1))  # rand learns, but does not get there
    better[0].metrics["loss"][:] = falling
    found = Comparison(tuple(runs), better, value=0.5, by=by).answer
    assert "pow-d" in found, found
    assert "sooner" not in found, found
    assert "inf" not in found, found


def test_an_f1_that_is_little_more_than_what_runs_begin_with_is_told():
    def with_f1(rounds, first=0.4862):
        result = made_up(rounds)
        values = np.where(result.metrics["loss"] < 0.5, 0.8, first)
        return replace(result, metrics={**result.metrics, "test_f1": values}, better={"test_f1": True})

    pair = ("rand", "afl"), (with_f1([30, 31]), with_f1([15, 16]))
    [said] = remarks_on_test_set(Comparison(*pair, metric="test_f1", value=0.488), 300, 0.9)
    assert said.startswith("Runs begin with test f1 0.4862, before any training: test f1 0.488 is little more")
    assert remarks_on_test_set(Comparison(*pair, metric="test_f1", value=0.75), 300, 0.9) == ()


def test_who_ends_better_than_a_baseline_that_wins_is_told():
    late = made_up([60, 61, 62, 60, 59], last=0.01)
    words = Comparison(("rand", "A"), (made_up([30, 31, 32, 30, 29]), late), value=0.5).answer
    assert words.startswith("rand wins.")
    assert words.endswith(" But A ends better, at 0.01 against 0.2.")


@pytest.mark.parametrize(("rand", "words"), [([60, 20, 40], "The fastest is cheap:"), ([60, 61, 62], "cheap wins:")])
def test_of_two_that_are_equally_fast_the_one_that_sends_less_is_first(rand, words):
    found = compared(rand=rand, dear=[30, 30, 31], cheap=[30, 30, 31])
    found.of("dear").records["polled"][:] = 6
    assert found.traffic("dear") > found.traffic("cheap")
    assert words in found.answer
    assert leader_of(found) == "cheap"


def test_who_shares_one_seed_with_the_baseline_is_not_sure_beside_others_with_more():
    found = compared(rand=[60, 70, 65], lucky=[20], slow=[61, 72, 67])
    assert found.answer == (
        "Nothing beats rand for sure. The fastest is lucky: it is 3.00 times as fast as rand to loss 0.5 (one seed, "
        "with which nothing is sure). They have different seeds (3 of rand, 1 of lucky and 3 of slow): two are "
        "compared over those that both have."
    )


def test_medians_and_bounds_are_of_the_seeds_that_both_have():
    rand, fast = made_up([60, 62, 61, 90, None]), made_up([30, 31, 32])
    found = Comparison(("rand", "fast"), (rand, fast), value=0.5)
    assert found.bound("fast") == ""  # the seed that does not get there is of rand alone
    assert "a median of 31 rounds against 61 " in found.answer
    apart = Comparison(
        ("rand", "a", "b"),
        (made_up([60, 62, 61, 60, 62, 61]), made_up([30, 31, 32]), of_seeds(made_up([33, 31, 30]), (3, 4, 5))),
        value=0.5,
    )
    assert "may be just as fast" in apart.answer  # a and b have no seed in common


def sweep(value, **rounds_to):
    names = tuple(rounds_to)
    plains = [{"selector": {"kind": "rand", "m": 1}}]
    plains += [{"selector": {"kind": "pow-d", "m": 1, "d": int(name[1:])}} for name in names[1:]]
    found = compared(value, **rounds_to)
    for result in found.results:
        result.metrics["loss"][:, 1:] = np.minimum(result.metrics["loss"][:, 1:], 0.9)
    [section] = sweep_sections(found, plains)
    return section


def test_no_d_is_the_fastest_where_none_is_known_to_get_there():
    none = sweep(0.1, rand=[60, 61], d3=[40, 41], d6=[30, 31])
    assert none.text == "Which d is best for loss 0.1 is not known: too few runs get there."
    assert none.charts[0].rows == ()


def test_which_d_is_said_as_far_as_the_runs_know_it():
    assert sweep(0.5, rand=[60, 61], d3=[59, 60], d6=[30, None]).text == (
        "Which d is the fastest is not known: some runs do not reach loss 0.5."
    )
    assert sweep(0.5, rand=[60, 61], d3=[20, 21], d6=[30, None]).text == "d = 3 is the fastest here."
    assert sweep(0.5, rand=[60, None], d3=[20, 21], d6=[30, 31]).text == (
        "d = 3 is the fastest here. How sure that is, the bounds do not say."
    )
    assert sweep(0.5, rand=[30, 31], d3=[40, 41], d6=[50, 51]).text.startswith(
        "No d beats rand; of these, d = 3 is the fastest here."
    )
    sure = sweep(0.5, rand=[30, 31, 32, 30, 29], d3=[15, 16, 14, 15, 15], d6=[2, 60, 5, 9, 4])
    assert sure.text == "d = 3 wins. d = 6 may be better, but that is less sure: 4.13 times as fast as rand."
    one = sweep(0.5, rand=[60], d3=[20], d6=[30])
    assert one.text == "With one seed nothing is sure. d = 3 is the fastest here."
    assert one.charts[0].text.endswith("with its 95 % interval where it is known.")


ADVICE = {"rand": [60, 70, 65, 80, 72], "pow-d": [30, 33, 36, 38, 35]}


def test_auto_is_advised_to_who_does_not_want_to_choose_d():
    near, far = [31, 34, 36, 38, 36], [50, 56, 54, 66, 60]
    level = compared(**ADVICE, auto=near).answer
    assert " auto may be just as fast. Where you do not want to choose d, use auto: it is 1.98 times as fast" in level
    assert compared(**ADVICE, auto=far).answer.endswith(" auto, which needs no d, is slower than pow-d here.")
    thrifty = compared(**ADVICE, auto=far, by="bytes").answer
    assert thrifty.endswith(" auto, which needs no d, is less thrifty than pow-d here.")
    wins = compared(rand=ADVICE["rand"], auto=ADVICE["pow-d"], **{"pow-d": near}).answer
    assert wins.startswith("auto wins")
    assert "Use auto" not in wins
    mixed = compared(rand=ADVICE["rand"], auto=near, **{"mixture(rand, pow-d)": ADVICE["pow-d"]}).answer
    assert "Where you do not want to choose d, use auto" in mixed
    without_d = compared(rand=ADVICE["rand"], afl=ADVICE["pow-d"], auto=near).answer
    assert without_d.startswith("afl wins")
    assert "choose d" not in without_d  # afl needs none
    never = {"rand": [None] * 10, "pow-d": [50] * 10, "auto": [50] + [None] * 9}
    found = compared(**never)
    for result in found.results:
        result.metrics["loss"][:, 1:] = np.minimum(result.metrics["loss"][:, 1:], 0.9)
    assert found.answer.startswith("pow-d wins: it is at least 2.00 times")
    assert found.answer.endswith(" auto, which needs no d, is slower than pow-d here.")
    found.of("pow-d").metrics["loss"][9] = np.minimum(found.of("rand").metrics["loss"][9], 0.9)
    assert found.at(0.5).answer.startswith("pow-d wins: it reaches loss 0.5 in 100 rounds with 9 of 10 seeds")
    assert found.at(0.5).answer.endswith(" auto, which needs no d, gets there with fewer seeds than pow-d.")


def test_a_wide_interval_above_1_is_sure_and_printed():
    found = compared(rand=[90, 95, 99], fast=[1, 30, 2])
    gain = found.speed_up("fast")
    wins = found.answer.startswith("fast wins")
    assert wins == (gain.low > 1)
    assert ("do not say how sure" in found.answer) != wins


def test_who_stopped_earlier_is_not_said_to_end_worse():
    rand, fast = made_up([60, 70, 65, 80], last=0.2), made_up([30, 33, 36, 38], total=50, last=0.4)
    fast.metrics["loss"][:, -1] += [0.01, 0.02, 0.0, 0.01]
    found = Comparison(("rand", "fast"), (rand, fast), value=0.5).answer
    assert found.startswith("fast wins")
    assert "ends better" not in found
    assert "different numbers of rounds" in found


def test_one_round_is_said_in_the_singular():
    found = compared(rand=[9, 9, 9, 9], fast=[1, 1, 1, 1]).answer
    assert "with a median of 1 round against 9 " in found


def test_a_page_has_as_many_cards_whoever_leads():
    found = compared(rand=[60, 70], fast=[30, 33], slow=[90, 91])
    found.of("fast").metrics["client_loss"][:] = np.nan
    assert len(cards(found, "fast")) == len(cards(found, "slow")) == 4
    assert cards(found, "fast")[3][1] == "-"


def test_losses_below_0_are_not_drawn_on_a_logarithmic_axis():
    results = []
    for slope in (0.004, 0.008):
        result = made_up([None, None])
        result.metrics["loss"][:] = -1e-3 - slope * np.arange(101)
        results.append(result)
    found = Comparison(("rand", "fast"), tuple(results))
    assert found.threshold == pytest.approx(-0.401)
    assert found.answer.startswith("fast wins: it is 2.00 times as fast as rand to loss -0.401")
    assert not speed_up_chart(found, [found.at(value) for value in targets(found)]).log_x
    assert targets(found) == sorted(targets(found), reverse=True)


def test_a_sweep_of_curves_has_a_chart_with_signs():
    names = ("rand", "pow-d, d = 6", "pow-d, d = 12")
    results = tuple(curves(speed, 5, seed=place) for place, speed in enumerate((1, 1.4, 2.2)))
    plains = ({"selector": {"kind": "rand", "m": 3}}, *({"selector": {"kind": "pow-d", "d": d}} for d in (6, 12)))
    [section] = sweep_sections(Comparison(names, results, value=1.0), plains)
    assert [row["sign"] for row in section.charts[0].rows] == ["", ""]


def test_the_result_says_whether_it_is_of_a_real_federation():
    simulated = made_up([30, 40])
    assert not simulated.real
    report = ComparisonReport(Comparison(("rand",), (simulated,)), ({"selector": {"kind": "rand"}},), (), command="")
    assert not report.real  # by what was recorded, and not by what its experiment leaves out
    simulated.records["train_samples"] = np.full((2, 100), np.nan)
    assert simulated.real
    assert report.real


def test_a_csv_tells_strategies_apart_that_hold_others():
    report = comparison_report(("rand", "cooldown"), 2)
    held = [{"kind": "cooldown", "selector": {"kind": kind, "m": 3}} for kind in ("pow-d", "rand")]
    found = replace(report, experiments=tuple({"selector": one} for one in held)).runs()
    kinds = [run["strategy"] for result in found for run in result.runs]
    assert list(dict.fromkeys(kinds)) == ["cooldown(pow-d)", "cooldown(rand)"]


def test_a_test_set_that_is_too_small_for_the_target_is_told():
    results = [made_up([50] * 3, accuracy=0.1) for _ in range(2)]
    for result, end in zip(results, (0.8, 0.81), strict=True):
        result.metrics["test_accuracy"][:, 40:] = end
    found = Comparison(("rand", "pow-d"), tuple(results), "test_accuracy", value=0.75)
    assert remarks_on_test_set(found, 40, 0.1) == (
        "The test set has 40 samples: one of them is 2.5 points of accuracy, more than lies between pow-d and rand at "
        "the end, so that rounds to test accuracy 75.0%, the target that the page begins with, hang on single samples.",
    )
    assert remarks_on_test_set(found, 1000, 0.1) == ()
    assert remarks_on_test_set(Comparison(found.names, found.results, "loss", value=0.5), 40, 0.7) == ()
    [trivial] = remarks_on_test_set(found, 1000, 0.7)
    assert trivial.startswith(
        "Always giving the most frequent label is right for 70.0 % of the test set: test accuracy"
    )
    assert remarks_on_test_set(found, 1000, 0.66) == ()


def test_factors_that_hold_what_a_setting_gains_are_told():
    def remarks(kinds, parts):
        report = comparison_report([f"{kind} {place}" for place, kind in enumerate(kinds)], 2)
        report = replace(report, comparison=replace(report.comparison, reference="rand 0"))
        plains = (
            {**part, "selector": {"kind": kind, **part["selector"]}} for kind, part in zip(kinds, parts, strict=True)
        )
        return remarks_on_settings(replace(report, experiments=tuple(plains)))

    rates = [{"selector": {"m": 3}, "local": {"eta": eta}} for eta in (0.02, 0.02, 0.1, 0.1)]
    seats = [{"selector": {"m": m}, "local": {"eta": 0.02}} for m in (2, 2, 4, 4)]
    kinds = ("rand", "pow-d", "rand", "pow-d")
    assert remarks(kinds, rates) == (
        "All are compared with rand 0. For a strategy with another local.eta, a factor is what that gains and what the "
        "strategy gains, together: compare at one local.eta to tell them apart.",
    )
    assert "with another m," in remarks(kinds, seats)[0]
    assert remarks(("rand", "pow-d", "pow-d"), [*rates[:2], rates[2]]) == ()  # tuned: rand has one
    assert remarks(("rand", "rand"), rates[1:3]) == ()  # what is compared is the setting


def test_that_clients_lie_is_told_beside_the_answer():
    report = comparison_report(("rand", "pow-d"), 2)

    def lying(**liars):
        return replace(report, experiments=tuple({**plain, "liars": liars} for plain in report.experiments))

    assert remarks_on_settings(lying(share=0.2, attack="inflate", model_attack="flip")) == (
        "6 clients of 30 lie (losses inflate, updates flip): their data count in all losses, and training that fails "
        "may be their doing.",
    )
    assert "(3 times their size)" in remarks_on_settings(lying(share=0.2, size=3.0))[0]
    assert remarks_on_settings(lying(attack="max")) == ()
    assert remarks_on_settings(lying(share=0.2)) == (
        'Nobody lies: liars.share is 0.2, without an attack such as liars.attack = "max".',
    )
    assert remarks_on_settings(lying(kind="mine:Liars", share=0.2)) == ()


@pytest.mark.parametrize(
    ("kind", "tested", "metric"),
    [("digits", True, "test_accuracy"), ("synthetic", True, "loss"), ("arrays", False, "loss")],
)
def test_a_report_of_runs_is_by_the_metric_that_compare_takes(kind, tested, metric, tmp_path):
    for place, name in enumerate(("rand", "pow-d")):
        result = made_up([30 - place], accuracy=0.1)
        result.metrics["test_accuracy"][:, 30:] = 0.4
        result.metrics["test_accuracy"] += 0.0 if tested else np.nan
        about = {"seed": 0, "experiment": {"data": {"kind": kind}, "selector": {"kind": name}}, "model_bytes": 10}
        RunStore(tmp_path).save(f"{place:016x}", about, result.to_arrays(0), {})
    assert load_report(tmp_path).comparison.metric == metric
    assert load_report(tmp_path, value=0.3).comparison.metric == metric


def test_a_parameter_chooses_among_the_strategies_that_have_it(tmp_path):
    clipped = {"kind": "pow-d", "d": 3, "score": {"kind": "clipped", "limit": 3}}
    selectors = [{"kind": "rand"}, {"kind": "pow-d", "d": 3}, {"kind": "pow-d", "d": 5}, clipped]
    for place, selector in enumerate(selectors):
        plain = {"data": {"kind": "synthetic"}, "selector": selector, "rounds": 60}
        about = {"seed": 0, "experiment": plain, "model_bytes": 10}
        RunStore(tmp_path).save(f"{place:016x}", about, made_up([30 + place]).to_arrays(0), {})
    for where, chosen in (
        (["selector.d=3"], [0, 1, 3]),
        (["selector.d=3", "rounds=60"], [0, 1, 3]),
        (["selector.score.limit=3"], [0, 3]),
        (["selector.kind=pow-d"], [1, 2, 3]),
        ([], [0, 1, 2, 3]),
    ):
        found = [plain["selector"] for plain in load_report(tmp_path, where=where).experiments]
        assert [each for each in selectors if each in found] == [selectors[k] for k in chosen]
    for where in (["selector.d=4"], ["selector.d=5", "selector.score.limit=3"]):
        with pytest.raises(ValueError, match=r"must hold runs where selector\.d=.*, and has none"):
            load_report(tmp_path, where=where)


@pytest.mark.parametrize(
    ("speeds", "typed"),
    [(([1.0, 2.0] * 50, 1000.0), "devices.speed=1000.0"), ((["a"], ["a", "b"]), "'devices.speed=[\"a\"]'")],
)
def test_a_value_that_chooses_runs_can_be_typed(tmp_path, speeds, typed):
    for place, speed in enumerate(speeds):
        plain = {"data": {"kind": "digits"}, "selector": {"kind": "rand", "m": 1 + place}, "devices": {"speed": speed}}
        about = {"seed": 0, "experiment": plain, "model_bytes": 10}
        RunStore(tmp_path).save(f"{place:016x}", about, made_up([30]).to_arrays(0), {})
    with pytest.raises(ValueError, match=f"choose with --where, such as --where {re.escape(typed)}$"):
        load_report(tmp_path)


def test_a_sweep_is_of_one_strategy_over_one_number():
    rounds = {"rand": [60, 61], "a": [40, 41], "b": [30, 31], "c": [50, 51], "d": [20, 21]}
    found = compared(0.5, **rounds)
    rand = {"selector": {"kind": "rand", "m": 1}}

    def asked(*selectors, **parts):
        return sweep_sections(found, [rand, *({"selector": each} | parts for each in selectors)])

    explore = {"kind": "explore", "selector": {"kind": "pow-d"}, "share": 0.1}
    clip = {"kind": "rank-clip", "selector": {"kind": "pow-d"}, "share": 0.75}
    powers = [{"kind": "pow-d", "d": 6}, {"kind": "pow-d", "d": 12}]
    assert asked(explore, clip, *powers)[0].title == "Which d of pow-d?"
    both = asked(*powers, {"kind": "rpow-d", "d": 6}, {"kind": "rpow-d", "d": 12})
    assert [section.title for section in both] == ["Which d of pow-d?", "Which d of rpow-d?"]
    assert [[row["name"] for row in section.charts[0].rows] for section in both] == [["a", "b"], ["c", "d"]]
    assert len({section.name for section in both}) == 2
    tuned = [{"selector": {"kind": kind}, "local": {"eta": eta}} for kind, eta in (("pow-d", 0.1), ("afl", 0.2))]
    few = Comparison(found.names[:3], found.results[:3], value=0.5)
    assert sweep_sections(few, [rand, *tuned]) == []


def test_who_sends_least_gets_there_as_often():
    found = compared(0.5, **{"rand": [60] * 5, "six": [40, 41, 40, 42, 41], "thirty": [2, 2, None, 2, None]})
    assert "sends" not in found.answer


def test_prices_and_ends_are_of_the_seeds_that_both_have():
    rand, fast = made_up([60, 62, 61, 60, 20, 20, 20, 20]), made_up([30, 31, 32])
    found = Comparison(("rand", "fast"), (rand, fast), value=0.5)
    assert "a median of 31 rounds against 61 and 0.51 times the traffic." in found.answer
    assert found.answer.endswith(
        " They have different seeds (8 of rand and 3 of fast): two are compared over those that both have."
    )
    assert cards(found, "fast")[1][1:] == ("0.51", "medians: 0.0932 MB against 0.183 MB")
    for result, ends in ((rand, [0.2] * 3 + [0.9] * 5), (fast, [0.3] * 3)):
        result.metrics["loss"][:, -1] = ends
    assert found.at(0.1).answer.startswith("No run reaches loss 0.1 in 100 rounds; rand ends nearest to it.")
    report = replace(comparison_report(("rand", "fast"), 3), comparison=found)
    assert ("Runs", "2 strategies, 3 to 8 seeds, 100 rounds") in describe(report, None)


def test_a_page_says_how_many_train_of_each_strategy():
    report = comparison_report(("rand", "full"), 2)
    few, all_of_them = (curves(1, 2, m=m) for m in (3, 30))
    assert ("Clients", "30, of which 3 train in a round") in describe(report, None)
    apart = replace(report, comparison=Comparison(("rand", "full"), (few, all_of_them)))
    assert ("Clients", "30, of which 3 to 30 train in a round") in describe(apart, None)


def test_a_page_of_data_that_each_seed_draws_says_whose_it_shows():
    report = comparison_report(("rand",), 2)
    drawn = replace(report, experiments=({**report.experiments[0], "redraw": True},))
    words = "Each seed draws data of its own: these are those of the first."
    assert [words in render_page(each, summary()) for each in (drawn, report)] == [True, False]
    assert describe(drawn, summary())[0][1].endswith("; of the first seed, as each draws its own")


def test_bounds_of_several_seeds_are_not_called_one_seed():
    found = compared(rand=[None, 60, 61, 64], fast=[30, 32, 31, 33])
    chart = speed_up_chart(found, [found.at(value) for value in (0.3, 0.5, 0.9)])
    assert chart.text.startswith("How many times as fast as rand, without an interval: some runs never get there.")
    one = compared(rand=[60], fast=[30])
    assert "of one seed, with which nothing is sure" in speed_up_chart(one, [one.at(0.3), one.at(0.5)]).text


def test_a_strategy_that_is_not_compared_is_named():
    with pytest.raises(ValueError, match="Comparison: name must be one of rand, fast, got 'powd'"):
        compared(rand=[60, 61], fast=[30, 31]).speed_up("powd")


def test_without_an_answer_no_card_is_sure_and_no_d_is_best():
    found = compared(rand=[60, 61, 62], six=[30, 31, 32], twelve=[20, 21, 22])
    assert cards(found, "six")[0][2].endswith("95 % sure for it alone")
    for result in found.results[:1]:
        result.metrics["loss"][:, -1] = 2.0
    none = found.at(0.5)
    assert none.answer.startswith("There is no answer. The loss of rand went from 1 to 2")
    assert cards(none, "six")[0] == ("times as fast, in rounds", "1.97", "six against rand")
    plains = [{"selector": {"kind": "pow-d", "d": d}} for d in (3, 6, 12)]
    [section] = sweep_sections(none, plains)
    assert section.text == "Which d is best is not known, as there is no answer."


def test_who_does_not_get_there_is_drawn_behind_all_that_do():
    found = compared(by="seconds", rand=[60, 61], fast=[99, None])
    found.of("fast").records["seconds"][:] = np.array([[5.0], [1.0]])
    assert most_spent(found) == 500 > np.nanmax(found.spent_of("fast")[:1])
