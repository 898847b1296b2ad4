"""The target that is moved, and the currencies that an answer counts in."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.made_up import made_up
from support.pages import comparison_report, curves
from typer.testing import CliRunner

from fedpick import registry
from fedpick.cli import app
from fedpick.compare import COLUMNS, Comparison, choose_target, columns_of, render_page
from fedpick.compare.charts import partition_chart
from fedpick.compare.facts import cards, describe, sweep_sections
from fedpick.compare.page import split_answer
from fedpick.compare.report import compare_results
from fedpick.compare.targets import leader_of, speed_up_chart, targets, winner_of
from fedpick.experiment import Metrics
from fedpick.results import interval
from fedpick.sim import Quadratic, Summary


def compared(by="rounds", value=0.5, **rounds_to):
    return Comparison(tuple(rounds_to), tuple(map(made_up, rounds_to.values())), "loss", value=value, by=by)


def test_the_currency_is_what_was_spent_until_the_target():
    found = compared(rand=[60, 70, 65, 80], fast=[30, 33, 36, 38])
    found.of("fast").records["seconds"][:] = 4.0  # rand's rounds take one second
    by = {name: found.at(0.5, name) for name in ("rounds", "bytes", "seconds")}
    np.testing.assert_array_equal(by["seconds"].spent_of("fast"), 4.0 * np.array([30, 33, 36, 38]))
    assert by["rounds"].speed_up("fast").mean == pytest.approx(4 * by["seconds"].speed_up("fast").mean)
    logs = np.log([60, 70, 65, 80]) - np.log(4 * np.array([30, 33, 36, 38]))
    np.testing.assert_allclose(by["seconds"].speed_up("fast"), np.exp(interval(logs)), rtol=1e-9)
    assert by["rounds"].answer.startswith("fast wins: it is 2.00 times as fast as rand")
    assert by["seconds"].answer.startswith("rand wins. The next is fast: it is 0.50 times as fast in seconds as rand")
    assert "times as thrifty as rand to loss 0.5" in by["bytes"].answer
    assert "MB against" in by["bytes"].answer


def test_an_unknown_currency_is_refused():
    with pytest.raises(ValueError, match="by must be one of 'rounds', 'bytes', 'seconds', got 'euro'"):
        compared("euro", rand=[60], fast=[20])
    done = CliRunner().invoke(app, ["compare", "--by", "euro"])
    assert done.exit_code == 1
    assert "by must be one of" in done.stderr


def test_targets_go_from_easy_to_hard_and_hold_the_comparisons_own():
    one = comparison_report(("rand", "pow-d"), 5).comparison
    values = targets(one)
    assert values == sorted(values, reverse=True)
    assert one.threshold in values
    assert 10 < len(values) < 50
    accuracy = Comparison(one.names, one.results, "test_accuracy", value=0.7)
    assert targets(accuracy) == sorted(targets(accuracy))
    chart = speed_up_chart(one, [one.at(value) for value in values])
    for row in chart.rows:
        gain = one.at(row["x"]).speed_up(row["name"])
        assert row["y"] == pytest.approx(gain.mean, rel=1e-4)
        assert bool(row["sign"]) == bool(one.at(row["x"]).bound(row["name"]))


def test_winner_and_leader_are_the_answers():
    one = compared(rand=[60, 70, 65, 80], fast=[30, 33, 36, 38], slow=[90, 91, 92, 95])
    assert (winner_of(one), leader_of(one)) == ("fast", "fast")
    two = compared(rand=[30, 33, 36, 38], slow=[60, 70, 65, 80], slower=[90, 91, 92, 95])
    assert (winner_of(two), leader_of(two)) == ("rand", "slow")
    assert winner_of(compared(rand=[60, 70, 65, 80], other=[70, 60, 66, 75])) == ""
    assert split_answer("Nothing is sure. A is 1.2 (1.1 to 1.3).") == ("Nothing is sure.", "A is 1.2 (1.1 to 1.3).")
    assert split_answer("A wins. B (2) is next.") == ("A wins.", "B (2) is next.")


def test_cards_are_the_numbers_of_the_table():
    one = compared(rand=[60, 70, 65, 80], fast=[30, 33, 36, 38])
    gain, traffic, seconds, worst = cards(one, "fast")
    assert gain[1] == f"{one.speed_up('fast').mean:.2f}"
    assert traffic[1] == f"{one.traffic('fast'):.2f}"
    assert seconds[2] == "medians: 34.5 s against 67.5 s"
    assert worst[1] == "0.4"


def test_which_d_is_asked_of_a_sweep():
    names = ("rand", "pow-d, d = 6", "pow-d, d = 12", "pow-d, d = 24")
    results = tuple(curves(speed, 5, seed=place) for place, speed in enumerate((1, 1.4, 2.2, 1.2)))
    plains = ({"selector": {"kind": "rand", "m": 3}}, *({"selector": {"kind": "pow-d", "d": d}} for d in (6, 12, 24)))
    [section] = sweep_sections(Comparison(names, results), plains)
    assert section.title == "Which d?"
    assert section.text.startswith("d = 12 is the fastest here.")
    assert [row["x"] for row in section.charts[0].rows] == [6, 12, 24]
    assert sweep_sections(Comparison(names[:2], results[:2]), plains[:2]) == []


def test_names_of_clients_and_labels_are_drawn_and_how_many_of_them():
    counts = np.arange(1, 603).reshape(301, 2)
    named = Summary("Forest", counts, 0, tuple(f"station {k}" for k in range(301)), ("spruce", "fir"))
    chart = partition_chart(named)
    assert {row["x"] for row in chart.rows} == {"spruce", "fir"}
    assert chart.rows[0]["y"] == "station 300"
    assert "200 of the 301 clients are shown" in chart.text
    assert "shown" not in partition_chart(Summary("Few", counts[:200], 0)).text


def test_a_page_of_one_run_is_no_comparison():
    report = comparison_report(("pow-d",), 1)
    page = render_page(report)
    assert "<h1>pow-d, one experiment</h1>" in page
    assert "nothing to compare" not in page
    assert "Who trained when" in page
    assert ("Runs", "200 rounds") in describe(report, None)


def test_a_page_of_a_real_federation_has_a_clocks_seconds_and_names():
    simulated = comparison_report(("pow-d",), 1, K=4)
    plain = {"selector": {"kind": "pow-d"}, "name": "Flower, FedAvg", "rounds": 200}
    names = ("Oslo", "Bergen", "Turku", "Malmö")
    simulated.comparison.results[0].records["train_samples"][:] = np.nan
    real = type(simulated)(simulated.comparison, (plain,), (), command="", strategies=("pow-d",), clients=names)
    page = render_page(real)
    assert "pow-d, a federation on Flower" in page
    assert "simulated" not in page
    assert "loss on the clients that evaluated" in page.lower()
    assert all(json.dumps(name)[1:-1] in page for name in names)
    assert "200 rounds so far" in render_page(replace(real, running=True))


def test_a_page_that_is_watched_reads_itself_again_until_the_end(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    options = ["--strategies", "rand,pow-d", "--rounds", "20", "--seeds", "2", "-q"]
    assert CliRunner().invoke(app, ["compare", "quadratic", *options, "-o", str(folder)]).exit_code == 0
    pages = []

    real = time.sleep

    def sleep(seconds):
        if seconds != 7:
            return real(seconds)
        pages.append((folder / "report.html").read_text())
        if len(pages) == 2:
            raise KeyboardInterrupt
        return None

    monkeypatch.setattr(time, "sleep", sleep)
    done = CliRunner().invoke(app, ["report", str(folder), "--watch", "7"])
    assert done.exit_code == 0, done.output
    assert all('<meta http-equiv="refresh" content="7">' in page for page in pages)
    assert "refresh" not in (folder / "report.html").read_text().split("</head>")[0]
    assert done.stderr.count("is written every 7 s") == 1


def falling(slope, total):
    """Two runs whose loss falls by so much in each round."""
    result = made_up([None, None], total=total)
    result.metrics["loss"][:] = 1 - slope * np.arange(total + 1)
    return result


def test_who_was_stopped_earlier_is_not_called_slower_for_it():
    found = Comparison(("rand", "fast"), (falling(0.005, 160), falling(0.01, 80)))
    assert found.threshold == pytest.approx(0.6)  # which rand has after 80 rounds, and not 0.2
    assert found.answer.startswith("fast wins: it is 2.00 times as fast as rand to loss 0.6 ")
    assert found.answer.endswith(" Final values are after different numbers of rounds: rand 160 and fast 80.")


def test_where_a_shorter_run_is_not_at_the_target_all_count_in_its_rounds():
    found = Comparison(("rand", "fast"), (falling(0.005, 160), falling(0.01, 60)), value=0.35)
    assert found.horizon == 60  # rand is there after 130, and fast would have been after 65
    assert not np.isfinite(found.rounds_of("rand")).any()
    assert found.answer.startswith("No run reaches loss 0.35 in 60 rounds; fast ends nearest, -0.30 [")
    assert [one.played for one in found.summaries] == [60, 60]
    assert found.speed_up("fast").mean == 1
    there = found.at(0.45)  # rand after 110, fast after 55
    assert there.horizon == 160
    assert there.speed_up("fast").mean == pytest.approx(2)


def test_a_median_between_two_rounds_is_shown_as_such():
    found = Comparison(("rand", "fast"), (made_up([60, 63]), made_up([30, 31])), value=0.5)
    assert [column.text(found.summaries[0]) for column in COLUMNS[1:2]] == ["61.5 [60, 63]"]
    assert "a median of 30.5 rounds against 61.5" in found.answer


def test_the_table_has_the_metric_of_the_target():
    results = (made_up([60, 70]), made_up([30, 33]))
    for metric, title in (("mean_loss", "mean\nloss"), ("loss", None), ("worst_loss", None)):
        added = [column.title for column in columns_of(Comparison(("rand", "fast"), results, metric, value=0.5))]
        assert [each for each in added if each not in [column.title for column in COLUMNS]] == [title] * (
            title is not None
        )


def test_a_strategy_that_does_not_learn_where_the_baseline_does_is_not_blamed_on_the_learning_rate():
    rising = made_up([None, None])
    rising.metrics["loss"][:] = np.linspace(1, 3, 101)
    found = Comparison(("rand", "rising"), (made_up([60, 70]), rising), value=0.5).answer
    assert found.endswith(" The loss of rising went from 1 to 3, where that of rand got better with the same settings.")


def test_a_winner_that_ends_worse_is_called_so():
    rand, fast = made_up([60, 70, 65, 80], last=0.2), made_up([30, 33, 36, 38], last=0.4)
    fast.metrics["loss"][:, -1] += [0.01, 0.02, 0.0, 0.01]
    end = " But rand ends better, at 0.2 against 0.41."
    assert end in Comparison(("rand", "fast"), (rand, fast), value=0.5).answer
    fast.metrics["loss"][0, -1] = 0.0  # then it may be chance
    assert "But" not in Comparison(("rand", "fast"), (rand, fast), value=0.5).answer
    assert "But" not in Comparison(("rand", "fast"), (rand, made_up([30, 33, 36, 38], last=0.1)), value=0.5).answer
    fast.metrics["loss"][1:, 50:] = np.nan
    lost = Comparison(("rand", "fast"), (rand, fast), value=0.5).answer
    assert lost.startswith("fast wins: it is 2.00 times")
    assert " But 3 of 4 runs of fast end at no finite value. The loss of fast did not stay finite after" in lost


def test_a_speed_up_of_which_nothing_is_known_is_not_shown_as_one():
    never, some, fast = made_up([None] * 3), made_up([30, None, 40]), made_up([30, 33, 36])
    found = Comparison(("rand", "never", "some", "fast"), (never, never, some, fast), value=0.5)
    shown = [column.text(one) for one in found.summaries for column in COLUMNS[2:3]]
    assert shown[:3] == ["1", "-", "-"]
    assert shown[3].startswith("≥ ")
    assert cards(found, "some")[0][1] == "-"
    assert cards(found, "fast")[0][1].startswith("≥ ")


def test_an_interval_of_two_seeds_that_says_nothing_is_not_printed():
    found = Comparison(("rand", "other"), (made_up([60, 6]), made_up([6, 60])), value=0.5)
    assert COLUMNS[2].text(found.summaries[1]) == "1.00 [?]"


def test_who_of_the_equals_sends_less_is_said_once():
    names, rounds = ("rand", "fast", "b", "c"), ([80, 90, 85], [30, 33, 36], [31, 32, 37], [32, 33, 35])
    results = {name: made_up(at) for name, at in zip(names, rounds, strict=True)}
    for name, polls in (("fast", 9), ("b", 4), ("c", 2)):
        results[name].records["polled"] += polls
    all_four = Comparison(tuple(results), tuple(results.values()), value=0.5).answer
    assert " b and c may be just as fast, and c sends least of these: " in all_four
    del results["c"]
    assert (
        " b may be just as fast, and sends less: " in Comparison(names[:3], tuple(results.values()), value=0.5).answer
    )


def looked_at(result, every):
    """The same runs, evaluated every so many rounds."""
    keep = slice(None, None, every)
    metrics = {name: values[:, keep] for name, values in result.metrics.items()}
    return replace(result, evaluated=result.evaluated[keep], metrics=metrics)


def test_who_is_looked_at_more_often_is_not_faster_for_it():
    rand = falling(0.01, 80)
    often, seldom = looked_at(rand, 1), looked_at(rand, 20)
    for pair in ((often, seldom), (seldom, often)):
        found = Comparison(("rand", "same"), pair, value=0.55)  # after 45 rounds, seen after 60
        assert [found.rounds_of(name).tolist() for name in found.names] == [[60, 60], [60, 60]]
        assert found.answer.startswith("Nothing beats rand for sure. same is just as fast as rand to loss 0.55 ")
        assert found.answer.endswith(
            " They were evaluated at different rounds, and are compared at the common ones (4)."
        )
        assert Comparison(("rand", "same"), pair).threshold == 0.2
    assert "different rounds" not in Comparison(("rand", "same"), (rand, often), value=0.55).answer
    longer = looked_at(falling(0.01, 100), 20)
    assert Comparison(("rand", "longer"), (often, longer), value=0.05).rounds_of("longer").tolist() == [np.inf] * 2
    with pytest.raises(ValueError, match="results must be evaluated at some of the same rounds"):
        Comparison(("rand", "same"), (looked_at(rand, 50), looked_at(falling(0.01, 79), 41)))


def test_rounds_of_a_federation_without_an_evaluation_are_none():
    rand, gaps = falling(0.01, 80), falling(0.01, 80)
    for name in gaps.metrics:
        gaps.metrics[name][:, [t for t in range(81) if t % 20]] = np.nan
    found = Comparison(("rand", "same"), (rand, gaps), value=0.55)
    assert [found.rounds_of(name).tolist() for name in found.names] == [[60, 60], [60, 60]]
    gone = falling(0.01, 80)  # which diverged: the others are looked at as before
    for name in gone.metrics:
        gone.metrics[name][:, 30:] = np.nan
    assert Comparison(("rand", "gone"), (rand, gone), value=0.55).rounds_of("rand").tolist() == [45, 45]


def test_results_of_different_data_are_not_compared():
    rand, other = made_up([60, 63]), made_up([30, 31])
    other = replace(other, share=other.share[..., ::-1] + np.linspace(-0.1, 0.1, other.share.shape[-1]))
    with pytest.warns(UserWarning, match="rand and other have different clients, or different shares of the data"):
        found = Comparison(("rand", "other"), (rand, other), value=0.5)
    assert found.answer == (
        "There is no answer: rand and other have different clients, or different shares of the data, and so are not of "
        "one task."
    )
    for result in (rand, other):  # of federations, some of whose clients may not be there
        result.records["train_samples"] = np.full((2, 100), np.nan)
    with pytest.warns(UserWarning, match="are they of one task"):
        found = Comparison(("rand", "other"), (rand, other), value=0.5)
    assert found.answer.startswith("other wins: ")
    assert " But rand and other have different clients" in found.answer


def test_a_sweep_over_the_data_has_no_answer_though_the_shares_are_the_same():
    plains = [
        {"data": {"kind": "synthetic", "beta": beta}, "selector": {"kind": kind, "m": 3}}
        for kind in ("rand", "uniform")
        for beta in (0.0, 1.0)
    ]
    results = [made_up(rounds) for rounds in ([60, 63], [60, 62], [30, 31], [20, 21])]
    with pytest.warns(UserWarning, match="have different data: are they of one task"):
        found = compare_results(plains, results, "loss", 0.5, "rounds")
    assert found.answer == (
        "There is no answer: rand, data.beta = 0.0, rand, data.beta = 1.0 and uniform, data.beta = 1.0 have different "
        "data, and so are not of one task."
    )
    assert compare_results(plains[::2], results[::2], "loss", 0.5, "rounds").answer.startswith("uniform wins: ")


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_who_is_not_finite_does_not_end_nearest(wrong):
    diverged = falling(0.001, 80)
    diverged.metrics["loss"][0, -1] = wrong
    names, results = ("diverged", "rand", "fast"), (diverged, falling(0.005, 80), falling(0.006, 80))
    found = Comparison(names, results, value=0.1)
    assert found.baseline == "rand"
    assert found.answer.startswith("No run reaches loss 0.1 in 80 rounds; fast ends nearest, -0.0800 [")


def test_a_sweep_is_not_compared_as_one_strategy():
    swept = made_up([30, 40, 50, 60])
    swept = replace(swept, runs=[{"seed": seed, "d": d} for d in (3, 6) for seed in (0, 1)])
    with pytest.raises(ValueError, match=r"pow-d must have one run for each seed .* got \[\{'seed': 0, 'd': 3\}"):
        Comparison(("rand", "pow-d"), (made_up([60, 60]), swept))
    assert Comparison(("rand", "pow-d"), (made_up([60, 60]), swept.where(d=3))).answer


def test_the_target_is_of_the_rounds_in_which_an_accuracy_was_measured():
    rand = made_up([50, 60], accuracy=0.1)
    rand.metrics["test_accuracy"][:, 40:] = 0.75
    rand.metrics["test_accuracy"][:, np.arange(rand.metrics["test_accuracy"].shape[1]) % 3 > 0] = np.nan
    assert Comparison(("rand",), (rand,), "test_accuracy").threshold == 0.75
    rand.metrics["test_accuracy"][:, 70:] = np.nan  # as where clients stop to report it
    assert Comparison(("rand",), (rand,), "test_accuracy").threshold == 0.75
    rand.metrics["test_accuracy"][1] = np.nan
    found = Comparison(("rand",), (rand,), "test_accuracy")
    assert found.goal_with_source == "test accuracy 75.0%, which 1 of 2 runs of rand reaches"


def test_a_lucky_accuracy_of_the_baseline_is_no_target():
    rand = made_up([50, 60], accuracy=0.1)
    rand.metrics["test_accuracy"][:, 40:] = 0.8
    rand.metrics["test_accuracy"][:, 50] = 0.95  # once
    assert Comparison(("rand",), (rand,), "test_accuracy").threshold == 0.8


@pytest.mark.parametrize(
    ("task", "value", "percent", "test", "metric"),
    [
        ("synthetic", None, False, True, "loss"),  # as in the paper
        ("nycflights", None, False, True, "loss"),  # a fourth is late, and accuracy says nothing
        ("digits", None, False, True, "test_accuracy"),
        ("chem97", None, False, True, "test_accuracy"),
        ("digits", None, False, False, "loss"),
        ("digits", 0.5, False, True, "test_accuracy"),  # as without it
        ("digits", 0.5, False, False, "loss"),
        ("synthetic", 0.5, False, True, "loss"),
        ("synthetic", 0.8, True, True, "test_accuracy"),
    ],
)
def test_the_metric_is_the_test_accuracy_where_there_is_a_test_set(task, value, percent, test, metric):
    data = registry.load(registry.ROLES["Data"][task].address)()
    experiment = SimpleNamespace(data=data, metrics=Metrics())
    assert choose_target([experiment], None, value, percent=percent, test=test) == (metric, value)


@pytest.mark.parametrize(
    ("metric", "value", "percent", "chosen"),
    [
        (None, None, False, ("test_loss", 0.9)),
        ("test_loss", None, False, ("test_loss", 0.9)),
        (None, 0.7, False, ("test_loss", 0.7)),
        ("worst_loss", None, False, ("worst_loss", None)),  # 0.9 is of another metric
        (None, 0.7, True, ("test_accuracy", 0.7)),
    ],
)
def test_a_target_of_the_experiment_is_that_of_the_comparison(metric, value, percent, chosen):
    experiment = SimpleNamespace(data=Quadratic(), metrics=Metrics(target="test_loss", value=0.9))
    assert choose_target([experiment], metric, value, percent=percent, test=True) == chosen


@pytest.mark.no_cover
@pytest.mark.parametrize("commands", [["compare"], ["run", "report"]])
def test_a_target_in_a_toml_file_counts(commands, tmp_path):
    file, folder = tmp_path / "one.toml", tmp_path / "out"
    file.write_text(
        """
        rounds = 6
        seeds = 2
        data = { kind = "quadratic", K = 6 }
        model = { kind = "quadratic" }
        selector = [{ kind = "rand", m = 2 }, { kind = "pow-d", m = 2, d = 4 }]
        local = { tau = 2, b = 1, eta = 2e-5 }
        metrics = { every = 1, target = "worst_loss", value = 123.5 }
        """
    )
    for command in commands:
        asked = [str(folder)] if command == "report" else [str(file), "-o", str(folder), "--quiet"]
        done = CliRunner().invoke(app, [command, *asked])
        assert done.exit_code == 0, done.output
    target = json.loads((folder / "summary.json").read_text())["target"]
    assert (target["metric"], target["value"]) == ("worst_loss", 123.5)


def test_the_runs_of_a_comparison_tell_what_differs_beside_the_strategy():
    report = comparison_report()
    plains = tuple({**plain, "local": {"eta": 0.1 * place}} for place, plain in enumerate(report.experiments, 1))
    runs = [run for one in replace(report, experiments=plains).runs() for run in one.runs]
    assert {(run["strategy"], run["local.eta"]) for run in runs} >= {(plains[0]["selector"]["kind"], 0.1)}
    assert "local.eta" not in report.runs()[0].runs[0]
