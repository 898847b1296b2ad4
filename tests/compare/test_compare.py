"""The comparison: the table, the answer, the files, and what wrong usage gets."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from support.made_up import made_up
from support.pages import comparison_report
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.cli._comparison import finish
from fedpick.compare import COLUMNS, Choices, Comparison, load_report, make_experiments, set_aside
from fedpick.compare.targets import leader_of, winner_of
from fedpick.experiment import names, result_of
from fedpick.registry import ROLES
from fedpick.results import median_interval
from fedpick.sim import Quadratic
from fedpick.storage import RunStore

SMALL = ["quadratic", "--strategies", "rand,pow-d", "--rounds", "400", "--seeds", "3", "--set", "metrics.every=20"]


def fedpick(*arguments, **options):
    return CliRunner().invoke(app, list(map(str, arguments)), **options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of a comparison, to be copied."""
    out = tmp_path_factory.mktemp("compared") / "out"
    assert fedpick("compare", *SMALL, "-o", out, "-q").exit_code == 0
    return out


@pytest.fixture
def out(small, tmp_path):
    return shutil.copytree(small, tmp_path / "out")


NEVER = [None]


def compared(value=0.5, **rounds_to):
    return Comparison(tuple(rounds_to), tuple(map(made_up, rounds_to.values())), "loss", value=value)


def learning(**rounds_to):
    """A comparison in which every run learns something, those too that do not get there."""
    found = compared(**rounds_to)
    for name in rounds_to:
        loss = found.of(name).metrics["loss"]
        loss[:, 1:] = np.minimum(loss[:, 1:], 0.9)
    return found


def test_the_speed_up_is_students_interval_of_the_paired_logarithms():
    rand, fast = [60, 70, 65, 80], [30, 33, 36, 38]
    found = compared(rand=rand, fast=fast).speed_up("fast")
    logs = np.log(np.array(rand) / np.array(fast))
    low, high = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    np.testing.assert_allclose(found, np.exp([logs.mean(), low, high]), rtol=1e-9)


def test_the_answer_says_who_wins_and_how_sure_that_is():
    rand, fast = [60, 70, 65, 80, 72], [30, 33, 36, 38, 35]
    answer = compared(rand=rand, fast=fast).answer
    assert answer.startswith("fast wins: it is 2.01 times as fast as rand to loss 0.5 (1.8")
    assert "95 % sure over 5 paired seeds), with a median of 35 rounds against 70 and 0.5 times the traffic." in answer


def test_who_is_level_with_the_winner_is_named():
    rand, fast = [60, 70, 65, 80, 72], [30, 33, 36, 38, 35]
    answer = compared(rand=rand, fast=fast, near=[31, 32, 37, 37, 36], slow=[61, 71, 60, 79, 70]).answer
    assert answer.startswith("fast wins") or answer.startswith("near wins")
    assert "may be just as fast" in answer
    assert "4 comparisons" not in answer
    assert "3 comparisons" in answer


def test_nothing_wins_where_the_interval_holds_one():
    answer = compared(rand=[60, 70, 65, 80], other=[70, 60, 66, 75]).answer
    assert answer.startswith("Nothing beats rand for sure")


def test_the_baseline_may_win():
    answer = compared(rand=[30, 33, 36, 38], slow=[60, 70, 65, 80]).answer
    assert answer.startswith("rand wins. The next is slow: it is 0.50 times as fast as rand to loss 0.5")


def test_the_baseline_is_called_the_fastest_where_it_is_but_not_for_sure():
    answer = compared(rand=[60, 70, 65, 80], slow=[70, 68, 66, 95]).answer
    assert answer.startswith("Nothing beats rand for sure. rand is the fastest here; the next is slow: it is 0.9")


def test_who_is_level_with_the_baseline_is_called_so():
    answer = compared(rand=[30, 40, 35], other=[30, 40, 35]).answer
    assert answer.startswith("Nothing beats rand for sure. other is just as fast as rand to loss 0.5 (")
    answer = compared(rand=[30, 40, 35], other=[40, 30, 35]).answer
    assert answer.startswith("Nothing beats rand for sure. other is on average as fast as rand to loss 0.5 (")
    answer = compared(rand=[30], other=[30]).answer
    assert answer == "With one seed nothing is sure. other is just as fast as rand to loss 0.5. Give more seeds."


def test_two_seeds_that_differ_widely_say_nothing():
    answer = compared(rand=[90, 10], fast=[10, 60]).answer
    assert "(2 seeds do not say how sure that is; give more)" in answer


def told(result, *more, metric="loss", value=0.5):
    names = ("rand", "other")[: 1 + len(more)]
    return Comparison(names, (result, *more), metric, value=value).answer


def test_the_reason_for_a_loss_that_did_not_fall_is_the_true_one():
    never = made_up([None, None])
    never.records["available"] = never.records["trained"] * 0
    never.records["trained"] *= 0
    assert told(never, never) == (
        "There is no answer. No client was available in any round of rand and other: look at the availability."
    )
    never.records["available"] += 1
    assert "Nobody trained in any round of other: look at" in told(made_up([30, 40]), never)
    late = made_up([None, None])
    late.records["returned"] *= 0
    assert told(late, late) == (
        "There is no answer. Nobody who trained came back in any round of rand and other: look at the deadline and the "
        "failures."
    )
    blind = made_up([None, None])
    blind.metrics["loss"][:] = np.nan
    assert told(blind) == (
        "There is nothing to compare rand with. Nothing was evaluated in the runs of rand, so that nobody knows what "
        "they learnt."
    )
    same = made_up([None, None])
    same.metrics["loss"][:] = 0
    assert "The loss of rand is 0 from the start: there is nothing to learn, as with one label only." in told(same)


def test_an_accuracy_alone_is_enough_to_have_learnt():
    blind = made_up([None, None], accuracy=0.1)
    blind.metrics["loss"][:] = np.nan
    blind.metrics["test_accuracy"][:, 50:] = 0.7
    assert told(blind, metric="test_accuracy", value=0.6) == "There is nothing to compare rand with."


def test_what_the_first_model_reaches_is_no_target():
    run = made_up([30, 40])  # which begins at a loss of 1
    assert told(run, run, value=2.0).startswith(
        "Every run is at loss 2 before its first round, so that it is no target."
    )
    assert "times as fast" in told(run, made_up([10, 20]), value=0.9)
    unseen = made_up([30, 40], accuracy=0.0)
    words = told(unseen, unseen, metric="test_accuracy", value=None)
    assert words.startswith("Every run is at test accuracy 0.0% before its first round")


def test_with_one_client_there_is_nothing_to_choose():
    one = made_up([30, 40])
    one = dataclasses.replace(one, share=np.ones(1))
    assert told(one, one).startswith("There is one client, so there is nothing to choose")


def test_a_comparison_has_a_name_for_each_result():
    with pytest.raises(ValueError, match="names must be one for each result, and one at least, got 1 for 2 results"):
        Comparison(("a",), (made_up([1]), made_up([1])))
    with pytest.raises(ValueError, match="got 0 for 0 results"):
        Comparison((), ())
    with pytest.raises(ValueError, match=r"names must be different from each other, got \['a', 'a'\]"):
        Comparison(("a", "a"), (made_up([1]), made_up([1])))
    with pytest.raises(ValueError, match="Comparison: results must be a Result, got 5"):
        Comparison(("a", "b"), (made_up([1]), 5))  # type: ignore[arg-type]
    both = {"a": made_up([1]), "b": made_up([1])}
    with pytest.raises(ValueError, match="Comparison: results must be a tuple, got dict_values"):
        Comparison(tuple(both), both.values())  # type: ignore[arg-type]


def test_a_comparison_of_results_on_other_data_says_so():
    plain = made_up([1])
    fewer = dataclasses.replace(plain, share=np.ones(1))
    others = dataclasses.replace(plain, share=np.roll(np.linspace(0.1, 0.3, len(plain.shares[0])), 1))
    for other in (fewer, others):
        with pytest.warns(UserWarning, match="a and b have different clients, or different shares of the data"):
            Comparison(("a", "b"), (plain, other))


def test_left_out_the_target_of_an_accuracy_is_what_every_run_reaches():
    rand = made_up([50, 60], accuracy=0.1)
    rand.metrics["test_accuracy"][:, 70:] = [[0.81239], [0.9]]
    found = Comparison(("rand",), (rand,), "test_accuracy")
    assert found.threshold == 0.812
    assert found.goal_with_source == "test accuracy 81.2%, which every run of rand reaches"
    with pytest.raises(ValueError, match="metric test_accuracy must have been measured, got none for rand"):
        Comparison(("rand",), (made_up([50]),), "test_accuracy")


def test_the_target_lies_beyond_the_first_model():
    slow = made_up([50, 60], last=0.99971)
    assert Comparison(("rand",), (slow,)).threshold == 0.9998


def test_cells_say_what_there_is_to_say():
    never, small, far = made_up([None, None]), made_up([5, 6], last=0.00152), made_up([5, 6], last=2e34)
    far.metrics["loss"][0, -1] = np.inf
    never, small, far = (Comparison(("a",), (one,), value=0.1).summaries[0] for one in (never, small, far))
    rounds, loss = COLUMNS[1], COLUMNS[3]
    assert rounds.text(never) == "> 100"
    assert loss.text(small) == "0.00152 ± 0"
    assert loss.text(far) == "inf"


def test_a_single_seed_is_not_sure_of_anything():
    assert compared(rand=[60], fast=[20]).answer.startswith("With one seed nothing is sure")


def test_seeds_that_do_not_get_there_make_the_factor_a_bound():
    found = compared(rand=[None, 90, None, 95], fast=[30, 33, 36, 38])
    assert re.search(r"at least 2\.\d+ times as fast as rand to loss 0\.5 \(\d\.\d+ or more; 95 % sure", found.answer)
    slow = compared(rand=[30, 33, 36, 38], slow=[60, None, 66, None])
    assert re.search(r"at most 0\.\d+ times as fast as rand to loss 0\.5 \(0\.\d+ or less; 95 % sure", slow.answer)
    assert found.summaries[0].reached == 2
    assert found.speed_up("fast").mean == pytest.approx(np.exp(np.log([100 / 30, 90 / 33, 100 / 36, 95 / 38]).mean()))
    assert "No run reaches loss 0.1" in compared(0.1, rand=[50, 60], fast=[20, 30]).answer


def test_a_loss_that_does_not_stay_finite_is_told():
    bad = made_up([None, None])
    bad.metrics["loss"][:, -1] = np.nan
    answer = Comparison(("rand", "bad"), (made_up([30, 40]), bad), "loss", value=0.5).answer
    assert "The loss of bad did not stay finite after round 100: try a smaller learning rate, or standard" in answer


def test_a_loss_that_does_not_fall_is_no_answer():
    rand, fast = made_up([10, 20], last=900.0), made_up([10, 20], last=800.0)
    answer = Comparison(("rand", "fast"), (rand, fast)).answer
    assert answer.startswith("There is no answer. The loss of rand and fast did not fall: try another learning rate")


def test_an_accuracy_that_did_not_rise_gives_no_answer_where_the_first_loss_is_unknown():
    results = [made_up([30, 40], accuracy=0.1), made_up([20, 30], accuracy=0.1)]
    for result in results:
        result.metrics["loss"][:, 0] = np.nan  # as in a federation on Flower, whose clients evaluate after a round
    answer = Comparison(("rand", "fast"), tuple(results), "test_accuracy").answer
    assert answer.startswith("There is no answer. The test accuracy of rand and fast did not rise: try another")


def test_a_federation_that_only_gets_worse_after_its_first_round_is_told():
    results = [made_up([30, 40]), made_up([20, 30])]
    for result in results:
        result.metrics["loss"][:] = np.linspace(0.8, 1.2, result.metrics["loss"].shape[1])
        result.metrics["loss"][:, 0] = np.nan
    found = Comparison(("rand", "fast"), tuple(results))
    assert found.answer.startswith(
        "There is no answer. The loss of rand and fast did not fall after round 1: try another"
    )
    assert "The loss of rand went from 0.804 after round 1 to 1.2: try" in Comparison(("rand",), results[:1]).answer
    results[0].metrics["loss"][1, -1] = 0.5  # one seed of rand is better off
    only = (
        "The loss of fast went from 0.804 after round 1 to 1.2, where that of rand got better with the same settings."
    )
    assert only in Comparison(("rand", "fast"), tuple(results)).answer
    # A loss of evaluation may rise where the accuracy, which is asked for, does.
    results = [made_up([30, 40], accuracy=np.nan), made_up([20, 30], accuracy=np.nan)]
    for result in results:
        result.metrics["loss"][:] = np.linspace(0.8, 1.2, result.metrics["loss"].shape[1])
        result.metrics["loss"][:, 0] = np.nan
        result.metrics["test_accuracy"][:, 1:] = np.linspace(0.3, 0.7, result.metrics["loss"].shape[1] - 1)
    assert "no answer" not in Comparison(("rand", "fast"), tuple(results), "test_accuracy").answer


def test_who_alone_reaches_the_target_is_named_and_nobody_is_fastest():
    found = compared(rand=[60, 70, None], one=[None] * 3, two=[None] * 3)
    assert found.answer.startswith("Only rand reaches loss 0.5 in 100 rounds, with 2 of 3 seeds.")


def test_who_does_not_always_get_there_does_not_win_for_sure():
    found = compared(rand=[60, 61, 62, 63], fast=[10, 11, 12, None])
    assert "fast wins" not in found.answer
    assert found.answer.startswith(
        "Nothing beats rand for sure. rand gets there with 4 of 4 seeds and fast with 3: it is at"
    )
    found = compared(rand=[60, 61, 62, 63], fast=[10, 11, 12, None], steady=[59, 60, 61, 64])
    assert (
        "The fastest with 4 of 4 seeds is steady: it is 1.0" in found.answer
        or "steady is just as fast as rand" in found.answer
    )


@pytest.mark.parametrize(
    ("rand", "fast", "words"),
    [
        ([None] * 4, [None, None, None, 99], "rand gets there with 0 of 4 seeds and fast with 1."),
        ([60, None, 40, 61], [70, 80, None, 60], "rand gets there with 3 of 4 seeds and fast with 3: it is about 0."),
        ([60, 60, 40, None], [90, 95, 90, 99], "rand gets there with 3 of 4 seeds and fast with 4: it is at least 0."),
        ([60, 61, 40, 61], [70, 50, None, 60], "rand is the fastest here; the next is fast: it is at most 0."),
        ([60, None, 60, 70], [61, 50, 40, 60], "The fastest is fast: it is at least 1."),
    ],
)
def test_who_is_first_is_said_only_where_the_runs_that_do_not_get_there_allow_it(rand, fast, words):
    found = learning(rand=rand, fast=fast)
    assert found.answer.startswith("Nothing beats rand")
    assert words in found.answer


def test_who_gets_there_most_often_is_named_and_on_the_cards():
    found = compared(rand=[None] * 4, fast=[60, None, None, 40], often=[78, 80, None, 76])
    for name in found.names:
        loss = found.of(name).metrics["loss"]
        loss[:, 1:] = np.minimum(loss[:, 1:], 0.9)
    assert "rand gets there with 0 of 4 seeds and often with 3." in found.answer
    assert leader_of(found) == "often"


def test_an_evaluation_that_was_not_made_is_no_divergence():
    alone = Comparison(("pow-d",), (made_up([40, 50]),), "loss", value=0.5)
    metrics = alone.results[0].metrics
    metrics["test_loss"] = metrics["loss"].copy()
    metrics["loss"][:, [0, -1]] = np.nan
    assert alone.answer == "There is nothing to compare pow-d with."
    metrics["test_loss"][:, -2:] = np.nan
    metrics["loss"][:, -2:] = np.nan
    later = Comparison(("pow-d",), alone.results, "loss", value=0.5)
    assert "The loss of pow-d did not stay finite after round 99" in later.answer


def test_with_one_seed_the_baseline_may_be_first():
    assert "rand is the fastest here; the next is fast: it is 0.50" in compared(rand=[30], fast=[60]).answer


def test_the_median_is_the_median():
    assert median_interval([68.0, 80, 80, 80, 80, 84, 86, 90, 98, 100])[0] == 82
    assert median_interval([1.0, np.inf])[0] == np.inf


def test_left_out_the_target_is_what_every_run_of_the_baseline_reaches():
    rand, fast = made_up([50, 60], last=0.23456), made_up([20, 30])
    found = Comparison(("fast", "rand"), (fast, rand))
    assert found.baseline == "rand"
    assert found.threshold == 0.235
    assert np.isfinite(rand.rounds_to("loss", found.threshold)).all()


@pytest.mark.no_cover
def test_the_data_are_made_once(tmp_path, monkeypatch):
    made = []
    real = Quadratic.federation
    monkeypatch.setattr(Quadratic, "federation", lambda self: made.append(self) or real(self))
    assert (
        fedpick(
            *("compare", "quadratic", "--strategies", "rand,pow-d", "--rounds", 5, "--seeds", 2),
            *("-o", tmp_path, "--set", "data.K=11"),
        ).exit_code
        == 0
    )
    assert len(made) == 1


def test_names_say_what_differs():
    found = names(
        [e.to_plain() for e in make_experiments("synthetic", Choices(strategies=("rand", "pow-d", "cpow-d"), d=(6, 9)))]
    )
    assert found == ("rand", "pow-d, d = 6", "pow-d, d = 9", "cpow-d, d = 6", "cpow-d, d = 9")
    speeds = ([float(number) for number in range(100)], 1000.0)
    many, one = names([{"selector": {"kind": "rand"}, "devices": {"speed": speed}} for speed in speeds])
    assert (len(many) < 100, one) == (True, "rand, devices.speed = 1000.0")  # a number for each client is no name


@pytest.mark.no_cover
def test_the_command_ends_with_the_table_the_sentence_and_the_page(tmp_path):
    done = fedpick("compare", *SMALL, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "rounds to" in done.stdout
    assert "pow-d" in done.stdout
    assert "report.html has the charts" in done.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["answer"] in done.stdout
    assert [row["name"] for row in summary["strategies"]] == ["rand", "pow-d"]
    assert (tmp_path / "out" / "report.html").stat().st_size < 3_000_000
    page = (tmp_path / "out" / "report.html").read_bytes()

    again = fedpick("compare", *SMALL, "-o", tmp_path / "out", "--json")
    assert json.loads(again.stdout) == summary  # nothing was run again
    assert (tmp_path / "out" / "report.html").read_bytes() == page
    assert fedpick("report", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == page


@pytest.mark.no_cover
def test_runs_without_a_comparison_are_reported_side_by_side(tmp_path):
    text = 'rounds = 20\nseeds = 2\n[data]\nkind = "quadratic"\n[model]\nkind = "quadratic"\n'
    text += (
        '[local]\ntau = 2\nb = 1\neta = 2e-5\n[[selector]]\nkind = "rand"\nm = 3\n[[selector]]\nkind = "afl"\nm = 3\n'
    )
    (tmp_path / "e.toml").write_text(text)
    assert fedpick("run", tmp_path / "e.toml", "-o", tmp_path / "results").exit_code == 0
    done = fedpick("report", tmp_path / "results")
    assert done.exit_code == 0, done.output
    assert "rand" in done.stdout
    assert "afl" in done.stdout
    assert "drawn" not in done.stderr  # the data are at hand
    page = (tmp_path / "results" / "report.html").read_text()
    assert ">afl, m = 3, alpha1 = 0.75, alpha2 = 0.01, alpha3 = 0.1<" in page


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def good(rows=40):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(rows, 3)), "y": np.arange(rows) % 2, "client": np.arange(rows) % 5}


@pytest.mark.no_cover
def test_own_data_with_hostile_names_are_shown_and_not_run(tmp_path):
    path = npz(tmp_path / "<script>alert(1)</script> “x” & 'y'.npz".replace("/", "_"), **good())
    out = tmp_path / "out"
    done = fedpick("compare", path, "--strategies", "rand,pow-d", "--rounds", 4, "--seeds", 2, "-o", out, "-q")
    assert done.exit_code == 0, done.output
    page = (out / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page  # what was compared comes first


WRONG = {
    "unknown strategy": (
        ["compare", "--strategies", "rand,pow"],
        "selector must be one of",
        "did you mean",
    ),
    "d below m": (["compare", "-m", "3", "-d", "2"], "d must be at least m=3", "got 2"),
    "d above K": (["compare", "-d", "31"], "at most the 30 clients", "got 31"),
    "missing file": (["compare", "nowhere.npz"], "must be an .npz file", "nowhere.npz"),
    "missing toml": (["compare", "nowhere.toml"], "cannot be read", "nowhere.toml"),
    "bad toml": (["compare", "bad.toml"], "must be TOML", "bad.toml"),
    "no labels": (["compare", "nolabels.npz"], "must hold y", "got x, client"),
    "no task": (["compare", "digit"], "the task must be one of", "did you mean 'digits'"),
    "negative rounds": (["compare", "--rounds", "-5"], "rounds must be at least 1", "got -5"),
    "a trace that is not there": (
        ["compare", "synthetic", "--availability", "nofile.csv"],
        f"availability must be one of {next(iter(ROLES['Availability']))},",
        "or a file that is there, got 'nofile.csv'",
    ),
    "negative seeds": (["compare", "--seeds", "0"], "seeds must be", "got 0"),
    "unwritable folder": (["compare", "-o", "/proc/nowhere"], "cannot be written to", "/proc/nowhere"),
    "huge K": (["compare", "--set", "data.K=2000000000"], "K=2000000000 clients must fit into memory", "got about"),
    "empty npz": (["compare", "empty.npz"], "must hold x", "got nothing"),
    "no rows": (["compare", "norows.npz"], "above 0", "got 0 and 0"),
    "wrong target": (["compare", "--target", "low"], "target must be a number", "got 'low'"),
    "target without a metric": (["compare", "--metric", "los", "--target", "1"], "metric must be one of", "got 'los'"),
    "a loss in percent": (["compare", "--metric", "loss", "--target", "80%"], "percentages are of accuracies", "'80%'"),
    "an accuracy above 1": (["compare", "--metric", "test_accuracy", "--target", "80"], "such as 0.8 or 80%", "got 80"),
    "no test set": (
        ["compare", "few.npz", "--metric", "test_accuracy", "--target", "0.5"],
        "needs a test set",
        "few",
    ),
    "no second label to tell from": (
        ["compare", "one.npz", "--metric", "auc"],
        "metric test_auc needs a test set of two labels",
        "that of one.npz has one",
    ),
    "labels in columns": (["compare", "columns.npz"], "one label per sample", "got shape (40, 2)"),
    "unknown model": (["compare", "--model", "forest"], "must have a kind among", "got 'forest'"),
    "a quadratic of samples": (
        ["compare", "--model", "quadratic"],
        "QuadraticModel: data must be samples",
        "10 classes",
    ),
    "no classes": (
        ["compare", "quadratic", "--model", "mlp"],
        "MLP: data must have at least 2 classes",
        "QuadraticModel",
    ),
    "report of nothing": (["report", "nowhere"], "must be a folder with runs", "nowhere"),
    "a name and settings": (["report", "r", "--name", "a", "--where", "m=1"], "must not be given with --name", "'m=1'"),
    "no class": (["compare", "--strategies", "rand,os:path"], "must be an importable package.module:Class", "a module"),
    "tau of no data": (["advise", "few.npz", "--tau", "0"], "tau must be at least 1", "got 0"),
    "a map that is not drawn": (["map", "--from", "few.npz"], "from must come with --docs", "few.npz"),
    "a map of some": (["map", "--docs", "new", "--families", "quadratic"], "families must not be given with", "--docs"),
    "an arena of some": (
        ["arena", "--from", "few.npz", "--strategies", "rand"],
        "strategies must not be given with",
        "--from",
    ),
    "a picture of no kind": (["data", "draw", "-o", "x.doc"], "must end in .svg", "x.doc"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_gets_one_sentence_and_leaves_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    content = good()
    npz("nolabels.npz", x=content["x"], client=content["client"])
    npz("empty.npz")
    npz("few.npz", **{name: values[:10] for name, values in content.items()})
    npz("one.npz", **content, test_x=content["x"][:5], test_y=np.zeros(5, int))
    npz("columns.npz", **{**content, "y": np.zeros((40, 2), int)})
    npz("norows.npz", **{name: values[:0] for name, values in content.items()})
    before = sorted(tmp_path.rglob("*"))
    arguments, *words = WRONG[case]
    done = fedpick(*arguments)
    assert done.exit_code == 1, done.output
    lines = [line for line in done.stderr.strip().splitlines() if not line.endswith(" ...")]  # said after a second
    assert len(lines) == 1, done.stderr
    assert all(word in lines[0] for word in words), lines[0]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_misspelt_option_is_a_usage_error():
    done = fedpick("compare", "--round", "5")
    assert done.exit_code == 2
    assert "No such option" in done.output


def test_debug_shows_where_an_error_came_from():
    done = fedpick("compare", "nowhere.npz", "--debug")
    assert isinstance(done.exception, FileNotFoundError)


# SIGINT is ignored, by all that it starts too, where a shell runs the tests in the background.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from fedpick.cli import main; main()"
)


@pytest.mark.slow
def test_an_interrupted_comparison_says_what_is_kept_and_goes_on(tmp_path, monkeypatch):
    arguments = ["compare", "quadratic", "--strategies", "rand,pow-d", "-o", "out", "--rounds", "2000", "--seeds", "2"]
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments]
    environment = {**os.environ, "FEDPICK_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob("runs/*/summary.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.skip("it was done before it could be interrupted")
    assert process.returncode == 130
    assert "stopped; finished work is stored in out; the same command resumes from there" in said
    assert not (tmp_path / "out" / "report.html").exists()
    monkeypatch.chdir(tmp_path)
    again = fedpick(*arguments)
    assert again.exit_code == 0, again.output
    assert "wins" in again.stdout or "Nothing beats" in again.stdout


def test_help_answers_at_once_and_without_jax():
    code = "import sys, fedpick.cli; print('jax' in sys.modules, 'numpy' in sys.modules, 'altair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]
    for command in ([], ["compare"], ["run"], ["report"], ["paper"], ["theory"], ["strategies"], ["data", "draw"]):
        shown = fedpick(*command, "--help")
        assert shown.exit_code == 0
        assert not command or "fedpick " + command[0] in shown.output.split("Example")[1]


def test_the_strategies_and_the_data_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "pow-d" in fedpick("strategies").stdout
    rows = json.loads(fedpick("strategies", "--json").stdout)
    assert (rows["rand"]["messages"], rows["rand"]["needs"], rows["rand"]["work"]) == ("2m", [], "K")
    assert rows["fedcs"]["needs"] == ["expected_duration", "upload_duration"]
    assert (rows["cooldown"]["needs"], rows["cooldown"]["work"]) == (None, None), "as the strategy that it holds"
    assert "30 clients" in fedpick("data", "describe").stdout
    assert fedpick("data", "draw").exit_code == 0
    assert (tmp_path / "partition.svg").read_text().startswith("<svg")
    assert fedpick("data", "draw", "-o", "p.html").exit_code == 0


def test_seeds_that_all_say_the_same_are_no_certainty():
    found = compared(rand=[8, 8], fast=[6, 6]).speed_up("fast")
    assert found.mean == pytest.approx(8 / 6)
    assert found.low < 1 < found.high  # a round more or less would change it


def test_a_win_by_little_is_called_so():
    assert compared(rand=[61, 72, 66, 81], fast=[60, 70, 65, 79]).answer.startswith("fast wins by little: ")


def test_labels_that_begin_at_1_are_as_many_classes(tmp_path):
    path = npz(tmp_path / "five.npz", **{**good(), "y": np.arange(40) % 5 + 1})
    assert "of 5" in fedpick("data", "describe", path).stdout


def test_a_schedule_of_d_has_a_name():
    chosen = Choices(strategies=("rand", "adapow-d"), rounds=50)
    assert names([e.to_plain() for e in make_experiments("synthetic", chosen)]) == ("rand", "adapow-d")


@pytest.mark.slow
def test_a_report_with_another_target_is_of_the_same_comparison(out):
    assert fedpick("compare", *SMALL, "--set", "data.K=12", "-o", out, "-q").exit_code == 0  # more runs in the folder
    before = json.loads((out / "summary.json").read_text())
    loss = 2 * before["target"]["value"]
    assert fedpick("report", out, "--target", loss).exit_code == 0
    after = json.loads((out / "summary.json").read_text())
    assert after["names"] == before["names"] == ["rand", "pow-d"]
    assert after["target"] == {"metric": "loss", "value": loss}
    assert after["experiments"] == before["experiments"]
    assert fedpick("report", out, "--metric", "worst_loss", "--target", 2 * loss).exit_code == 0
    assert json.loads((out / "summary.json").read_text())["target"] == {"metric": "worst_loss", "value": 2 * loss}
    assert fedpick("report", out, "--by", "bytes").exit_code == 0
    shown = json.loads((out / "summary.json").read_text())
    assert (shown["by"], shown["target"]) == ("bytes", before["target"])
    assert fedpick("report", out).exit_code == 0  # what was asked of a report is not asked of the next
    again = json.loads((out / "summary.json").read_text())
    assert [again[key] for key in ("target", "by", "command")] == [before[key] for key in ("target", "by", "command")]
    refused = fedpick("report", out, "--metric", "test_loss")
    assert refused.exit_code == 1
    assert "metric test_loss must have been measured, got none for rand" in refused.stderr


def test_a_report_names_the_run_that_is_broken_and_not_the_summary(out):
    kept = next((out / "runs").iterdir()) / "result.npz"
    kept.write_bytes(kept.read_bytes()[:100])
    done = fedpick("report", out)
    assert done.exit_code == 1
    assert "must hold the run" in done.stderr
    assert "summary.json" not in done.stderr
    (out / "summary.json").write_text("{}")
    assert "must be a summary that fedpick wrote" in fedpick("report", out).stderr


@pytest.mark.no_cover
def test_a_narrow_terminal_cuts_nothing_off(out, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    for width in ("60", "80"):
        monkeypatch.setenv("COLUMNS", width)
        shown = fedpick("report", out).stdout
        assert "…" not in shown
        table = shown[: shown.index("wins") if "wins" in shown else shown.index("Nothing beats")]
        lines = re.sub(r"\x1b\[[0-9;]*m", "", table).splitlines()[:-2]
        assert max(map(len, lines)) <= int(width)


def forest(path, stations=200):
    rng = np.random.default_rng(0)
    station = np.repeat(np.arange(stations), rng.integers(1, 20, stations))
    cover = np.array(["Spruce/Fir", "Aspen", "Pine"])[rng.choice(3, len(station), p=[0.9, 0.08, 0.02])]
    samples = zip(station, rng.normal(size=len(station)), cover, strict=True)
    rows = (f"Station {s:03d},{2500 + s},{x:.3f},{c}" for s, x, c in samples)
    path.write_text("\n".join(["station,elevation,slope,cover", *rows]))
    return path


def test_a_csv_is_described_by_the_names_of_its_columns(tmp_path):
    done = fedpick("data", "describe", forest(tmp_path / "forest.csv"), "--client", "station", "--standardize")
    assert done.exit_code == 0, done.output
    assert "forest.csv: 200 clients" in done.stdout
    assert "Aspen, Pine, Spruce/Fir" in done.stdout
    assert "x = elevation, slope; y = cover" in done.stderr
    assert "note" not in done.stderr
    raw = fedpick("data", "describe", tmp_path / "forest.csv", "--client", "station", "--x", "elev*,slope")
    assert "note: forest.csv: inputs are of the size of 2,6" in raw.stderr
    wrong = fedpick("data", "describe", "--client", "station")
    assert "data.client is unknown" in wrong.stderr


@pytest.mark.slow
def test_two_hundred_named_clients_with_unbalanced_labels_are_compared(tmp_path):
    path = forest(tmp_path / "forest.csv")
    arguments = ["--client", "station", "--standardize", "--rounds", "4", "--seeds", "2", "--strategies", "rand,pow-d"]
    done = fedpick("compare", path, *arguments, "-o", tmp_path / "out", "-q")
    assert done.exit_code == 0, done.output
    stored = RunStore(tmp_path / "out")
    assert result_of(stored.load(next(stored.identities()))).clients[1] == "Station 001"
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"Station {number:03d}" in page for number in range(200))
    assert (tmp_path / "out" / "report.html").stat().st_size < 3_000_000


@pytest.mark.no_cover
def test_a_name_that_another_comparison_has_is_told(tmp_path):
    small = ["quadratic", "--strategies", "rand,pow-d", "--seeds", "2", "-o", tmp_path, "-q", "--name", "mine"]
    assert "another comparison" not in fedpick("compare", *small, "--rounds", "3").stderr
    done = fedpick("compare", *small, "--rounds", "4")
    assert f"another comparison is called mine: this one is fedpick report {tmp_path} --name mine-2\n" in done.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["name"] == "mine-2"


@pytest.mark.no_cover
def test_a_comparison_that_is_made_again_can_be_given_a_name(tmp_path):
    small = ["quadratic", "--strategies", "rand,pow-d", "--rounds", "4", "--seeds", "2", "-o", tmp_path, "-q"]
    for name in ("quadratic", "first", "second one"):
        given = ["--name", name] if name != "quadratic" else []
        done = fedpick("compare", *small, *given)
        assert done.exit_code == 0
        assert ("that was called first is called second-one from now on" in done.stderr) == (name == "second one")
        assert json.loads((tmp_path / "summary.json").read_text())["name"] == name.replace(" ", "-")
    assert fedpick("compare", *small).exit_code == 0  # without a name it keeps the one that it has
    assert json.loads((tmp_path / "summary.json").read_text())["name"] == "second-one"


def test_a_mistake_in_a_file_of_ones_own_is_named_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong_syntax.py").write_text("import jax\n\ndef x(:\n    pass\n")
    (tmp_path / "wrong_at_once.py").write_text("a = 1\nb = a / 0\n")
    for name, line, what in (
        ("wrong_syntax", 3, "SyntaxError"),
        ("wrong_at_once", 2, "ZeroDivisionError: division by"),
    ):
        done = fedpick("compare", "--strategies", f"rand,{name}.py:S", "-o", tmp_path / "out")
        assert done.exit_code == 1
        assert f"{name}.py, line {line}: {what}" in done.stderr
        assert "Traceback" not in done.output


def test_a_gap_of_accuracies_is_in_points():
    ends = [made_up([50] * 3, accuracy=accuracy) for accuracy in (0.3, 0.4)]
    ends[1].metrics["test_accuracy"][:, -1] += [0.0, 0.01, 0.02]
    found = Comparison(("rand", "other"), tuple(ends), "test_accuracy", value=0.9).answer
    assert "No run reaches test accuracy 90.0% in 100 rounds; other ends nearest, +11.0 [+8.5, +13.5] points" in found


def test_skew_is_no_target():
    with pytest.raises(ValueError, match=r"metric must be one of 'loss', .* got 'skew'"):
        Comparison(("a",), (made_up([1]),), "skew")


def test_a_folder_holds_comparisons_by_name(out):
    first = json.loads((out / "summary.json").read_text())
    other = ["quadratic", "--strategies", "rand,afl", "--rounds", "20", "--seeds", "2", "-o", out, "-q"]
    assert fedpick("compare", *other, "--name", "with afl").exit_code == 0
    assert json.loads((out / "summary.json").read_text())["names"] == ["rand", "afl"]
    earlier = json.loads((out / "comparisons" / "quadratic.json").read_text())
    assert (earlier["names"], earlier["target"]) == (["rand", "pow-d"], first["target"])
    assert "fedpick" in (out / "comparisons" / "quadratic.html").read_text()
    again = fedpick("report", out, "--name", "quadratic")
    assert again.exit_code == 0, again.output
    assert json.loads((out / "summary.json").read_text())["names"] == ["rand", "pow-d"]
    assert sorted(path.name for path in (out / "comparisons").iterdir()) == ["with-afl.html", "with-afl.json"]
    assert fedpick("report", out).exit_code == 0  # named last, it is the one that is shown, as the help says
    assert json.loads((out / "summary.json").read_text())["name"] == "quadratic"
    options = CliRunner().invoke(app, ["report", "--help"], env={"COLUMNS": "200"}).output
    assert "An earlier comparison of the folder, which then is the last. [default: (the last made or named)]" in options
    wrong = fedpick("report", out, "--name", "with-alf")
    assert "name must be one of the comparisons" in wrong.stderr
    assert "did you mean 'with-afl'?" in wrong.stderr
    silent = fedpick("compare", *SMALL, "-o", out, "-q")
    assert "ignoring" not in silent.stderr
    assert (out / "comparisons" / "with-afl.json").exists()  # the same comparison again moves nothing


@pytest.mark.parametrize(
    ("rand", "fast", "known"),
    [
        ([60, 50, 40], [30, 20, 30], {"mean", "low", "high"}),
        ([60, 50, None], [30, 20, 30], {"mean", "low"}),
        ([60, 50, 40], [30, 20, None], {"mean", "high"}),
        ([60, 50, None], [30, None, 20], {"mean"}),
        ([60, 50, None], [None, None, None], set()),
    ],
)
def test_a_summary_has_no_number_of_which_nothing_is_known(rand, fast, known):
    compared = Comparison(("rand", "fast"), (made_up(rand), made_up(fast)), value=0.5)
    report = dataclasses.replace(comparison_report(("rand", "fast"), 3), comparison=compared)
    found = report.summary()["strategies"][1]["speed_up"] or {}
    assert {name for name, number in found.items() if number is not None} == known


def test_comparisons_that_end_together_are_both_kept(tmp_path, monkeypatch):
    def set_aside_slowly(*arguments):
        found = set_aside(*arguments)
        time.sleep(0.5)
        return found

    def end(name):
        report = dataclasses.replace(comparison_report(("rand", name), 2), name="synthetic")
        finish(report, tmp_path, None, name=None, csv=None, as_json=True, began=0.0)

    monkeypatch.setattr("fedpick.compare.set_aside", set_aside_slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(end, ["pow-d", "afl"]))
    kept = [tmp_path / "summary.json", *(tmp_path / "comparisons").glob("*.json")]
    assert {tuple(json.loads(path.read_text())["names"]) for path in kept} == {("rand", "pow-d"), ("rand", "afl")}


@pytest.mark.no_cover
def test_comparisons_of_one_task_keep_names_of_their_own(tmp_path):
    def play(strategies):
        few = ["quadratic", "--rounds", "4", "--seeds", "2", "-o", tmp_path, "-q", "--set", "metrics.every=2"]
        return fedpick("compare", *few, "--strategies", strategies)

    def names_of(name):
        assert fedpick("report", tmp_path, "--name", name).exit_code == 0
        kept = json.loads((tmp_path / "summary.json").read_text())
        assert kept["name"] == name
        return kept["names"]

    of = {"quadratic": ["rand", "afl"], "quadratic-2": ["rand", "uniform"], "quadratic-3": ["rand", "rpow-d"]}
    for name, strategies in of.items():
        assert play(",".join(strategies)).exit_code == 0
        assert json.loads((tmp_path / "summary.json").read_text())["name"] == name
    for name in (*of, *reversed(of), "quadratic-2"):
        assert names_of(name) == of[name]
    back = play("rand,afl")  # it was here before
    assert f"the comparison before it is kept: fedpick report {tmp_path} --name quadratic-2" in back.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["name"] == "quadratic"
    assert sorted(path.name for path in (tmp_path / "comparisons").glob("*.json")) == [
        "quadratic-2.json",
        "quadratic-3.json",
    ]


EXPERIMENT = """
rounds = 3
seeds = 2
[data]
kind = "arrays"
path = "{path}"
[model]
kind = "logistic"
[local]
tau = 1
b = 5
eta = 0.1
[[selector]]
kind = "rand"
m = 2
[[selector]]
kind = "pow-d"
m = 2
d = 3
"""


def table_of(path, clients, turned):
    rows = [f"{n % clients},{n % 7},{(n % 7 > 3) ^ turned:d}" for n in range(20 * clients)]
    path.write_text("\n".join(["client,height,label", *rows]) + "\n")


def final_losses(folder):
    done = fedpick("report", folder)
    assert done.exit_code == 0, done.output
    return json.loads((folder / "summary.json").read_text()), done


def test_runs_of_data_that_were_edited_are_not_averaged_with_those_before(tmp_path):
    data, toml, folder = tmp_path / "d.csv", tmp_path / "e.toml", tmp_path / "out"
    toml.write_text(EXPERIMENT.format(path=data))
    table_of(data, 6, turned=False)
    assert fedpick("run", toml, "-o", folder, "-q").exit_code == 0
    first, _ = final_losses(folder)
    table_of(data, 8, turned=True)
    again = fedpick("run", toml, "-o", folder, "-q")
    assert "ignoring" not in again.stderr  # the page and the summary are fedpick's
    second, done = final_losses(folder)
    assert f"4 runs of other versions of {data} are left out" in done.stderr
    assert [one["seeds"] for one in second["strategies"]] == [2, 2]
    assert second["strategies"] != first["strategies"]
    table_of(data, 6, turned=False)
    assert final_losses(folder)[0]["strategies"] == first["strategies"]
    data.unlink()
    lost = fedpick("report", folder)  # of all runs, of which those of the present file are wanted
    assert lost.exit_code == 1
    assert f"holds runs that differ in {data}, or in what it reads, which cannot be read; run" in lost.stderr


OWN = """
from fedpick import Ledger, pytree, sampling, static


@pytree
class Mine:
    m: int = static()
    poll = "none"

    def init(self, num_clients):
        return Ledger.init(num_clients)

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, SIGN * clients.size.astype("float32"), candidates, self.m))

    def observe(self, state, selection, report):
        return state.observe(selection, report)
"""


@pytest.mark.slow
def test_a_comparison_with_code_that_was_edited_is_shown_as_it_was_played(tmp_path):
    def call(*arguments):  # in a process of its own, as code is read once
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "fedpick", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    def play():
        few = ["compare", "quadratic", "--rounds", "4", "--seeds", "2", "-q", "--set", "metrics.every=2"]
        done = call(*few, "--strategies", "rand,mine.py:Mine", "-o", "out")
        assert done.returncode == 0, done.stderr
        return done

    folder, file = tmp_path / "out", tmp_path / "mine.py"
    file.write_text(OWN.replace("SIGN *", ""))
    play()
    first = json.loads((folder / "summary.json").read_text())
    file.write_text(OWN.replace("SIGN *", "-"))
    again = call("report", "out", "--by", "bytes")
    assert again.returncode == 0, again.stderr
    shown = json.loads((folder / "summary.json").read_text())
    assert [one["final"] for one in shown["strategies"]] == [one["final"] for one in first["strategies"]]
    second = play()
    assert "the comparison before it is kept: fedpick report out --name quadratic" in second.stderr
    assert json.loads((folder / "summary.json").read_text())["name"] == "quadratic-2"
    file.unlink()  # nor is it needed to look at what it did
    back = call("report", "out", "--name", "quadratic")
    assert back.returncode == 0, back.stderr
    shown = json.loads((folder / "summary.json").read_text())
    assert [one["final"] for one in shown["strategies"]] == [one["final"] for one in first["strategies"]]
    assert (folder / "comparisons" / "quadratic-2.html").is_file()
    for run in (folder / "runs").iterdir():  # what cannot be shown is refused, and nothing is moved for it
        if run.name in json.loads((folder / "comparisons" / "quadratic-2.json").read_text())["runs"]:
            shutil.rmtree(run)
    before = sorted(path.relative_to(folder) for path in folder.rglob("*.[hj]*"))
    refused = call("report", "out", "--name", "quadratic-2")
    assert refused.returncode == 1
    assert "of its comparison, and does not; run compare again" in refused.stderr
    assert sorted(path.relative_to(folder) for path in folder.rglob("*.[hj]*")) == before


def test_auto_is_advised_where_it_is_surely_faster_with_its_own_price():
    rand, fast = [60, 70, 65, 80, 72], [30, 33, 36, 38, 35]
    sure = compared(rand=rand, **{"pow-d": fast}, auto=[31, 34, 36, 38, 36]).answer
    assert sure.endswith(
        " Where you do not want to choose d, use auto: it is 1.98 times as fast as rand, with 0.51 times the traffic."
    )
    wide = compared(rand=rand, **{"pow-d": [30, 33, 46, 38, 35]}, auto=[90, 14, 66, 38, 36]).answer
    assert wide.endswith(" auto, which needs no d, does not beat rand for sure.")


def test_auto_is_not_advised_by_a_factor_that_is_no_bound():
    rand, fast, auto = [99] * 9 + NEVER, [50, 53] * 5, [52, 51, 52] * 3
    at_least = learning(rand=rand, **{"pow-d": fast}, auto=[*auto, 50]).answer
    assert at_least.startswith("pow-d wins: it is at least ")
    assert " Where you do not want to choose d, use auto: it is at least 1.92 times as fast as rand" in at_least
    each_misses = learning(rand=rand, **{"pow-d": fast}, auto=auto + NEVER).answer
    assert each_misses.endswith(" auto, which needs no d, does not beat rand for sure.")
    often = learning(rand=NEVER * 10, **{"pow-d": fast}, auto=auto + NEVER).answer
    assert often.endswith(" Where you do not want to choose d, use auto: it gets there with 9 of 10 seeds.")


def test_who_surely_wins_does_so_where_another_is_faster_by_chance():
    rand = [60, 62, 61, 60]
    found = compared(rand=rand, lucky=[5, 70, 8, 90], steady=[40, 41, 40, 39])
    assert found.speed_up("lucky").mean > found.speed_up("steady").mean
    assert found.answer.startswith("steady wins: it is 1.52 times as fast as rand")
    assert "lucky may be just as fast" in found.answer
    assert leader_of(found) == winner_of(found) == "steady"
    often = learning(rand=NEVER * 10, lucky=[5] * 5 + NEVER * 5, steady=[90] * 9 + NEVER)
    assert often.answer.startswith("steady wins: it reaches loss 0.5 in 100 rounds with 9 of 10 seeds")


def test_who_gets_there_with_surely_more_seeds_wins():
    found = learning(rand=NEVER * 10, fast=[50] * 9 + NEVER, slow=[60] * 8 + NEVER * 2)
    assert found.answer == (
        "fast wins: it reaches loss 0.5 in 100 rounds with 9 of 10 seeds, and rand with 0 of 10 seeds (95 % sure over "
        "10 paired seeds and 2 comparisons). slow may be just as fast."
    )
    assert winner_of(found) == "fast"
    # In bytes they may have spent different amounts until their ends.
    assert found.at(0.5, "bytes").answer.startswith("Nothing beats rand to loss 0.5 for sure. rand gets there with 0")
    few = learning(rand=NEVER * 10, fast=[50] * 5 + NEVER * 5).answer  # 5 to 0: p = 0.06
    assert few == "Nothing beats rand to loss 0.5 for sure. rand gets there with 0 of 10 seeds and fast with 5."
    traded = learning(rand=[90] * 3 + NEVER * 7, fast=NEVER * 3 + [50] * 7).answer  # 7 to 3
    assert traded.startswith("Nothing beats rand for sure. rand gets there with 3 of 10 seeds and fast with 7")
    missed = learning(rand=[90] * 10, fast=[50] * 9 + NEVER).answer  # an interval above 1 is no lower bound
    assert missed.endswith("fast with 9: it is at most 1.68 times as fast as rand to loss 0.5.")


def test_runs_that_nothing_tells_apart_are_named(small, tmp_path):
    store = RunStore(shutil.copytree(small, tmp_path / "out"))
    (tmp_path / "out" / "summary.json").unlink()
    identity = next(store.identities())
    run = store.load(identity)
    about = {name: value for name, value in run.about.items() if name not in ("contents", "identity")}
    store.save("0" * 16, about, run.arrays, run.summary)
    wrong = fedpick("report", tmp_path / "out")
    assert wrong.exit_code == 1
    assert (
        f"report: runs must differ in their settings or their seeds, and 0000000000000000, {identity} do not"
        in wrong.stderr
    )


def test_data_are_described_as_json_and_errors_are_their_own():
    found = json.loads(fedpick("data", "describe", "synthetic", "--json").output)
    assert found["samples"] == sum(sum(labels.values()) for labels in found["clients"].values())
    assert len(found["clients"]) == 30
    assert fedpick("data", "describe", "nosuch").output.startswith("data: the task must be one of")


def test_the_runs_of_a_folder_are_logged(out, tmp_path):
    pytest.importorskip("tensorboardX")
    answer = fedpick("report", out, "--tensorboard", tmp_path / "board")
    assert answer.exit_code == 0, answer.output
    names = {path.name for path in (tmp_path / "board").iterdir()}
    assert names == {f"strategy={name},seed={seed}" for name in ("rand", "pow-d") for seed in range(3)}


def test_runs_of_different_settings_are_not_mixed(out):
    more = ["--strategies", "rand,afl", "--rounds", "20", "--seeds", "2", "--eta", "1e-5", "--set", "metrics.every=20"]
    assert fedpick("compare", "quadratic", *more, "-o", out, "-q").exit_code == 0
    (out / "summary.json").unlink()
    done = fedpick("report", out)
    assert done.exit_code == 1
    assert "holds runs that differ in local.eta, rounds, which cannot be compared" in done.stderr
    chosen = fedpick("report", out, "--where", "local.eta=1e-5")
    assert chosen.exit_code == 0, chosen.output
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["names"], summary["baseline"]) == (["rand", "afl"], "rand")  # in the registry's order
    plain = fedpick("report", out)
    assert plain.exit_code == 0, plain.output  # of the same runs
    said = "this is of the runs where local.eta=1e-5, as the last one was; of a comparison it is with --name quadratic"
    assert said in " ".join(plain.stderr.split())
    assert json.loads((out / "summary.json").read_text())["names"] == summary["names"]
    none = fedpick("report", out, "--where", "local.eta=7")
    assert "must hold runs where local.eta=7, and has none" in none.stderr


def test_a_page_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "report.html").write_text("<p>mine</p>")
    done = fedpick("compare", *SMALL, "-o", tmp_path)
    assert done.exit_code == 1
    assert "must be fedpick's to be written again, and is not" in done.stderr
    assert (tmp_path / "report.html").read_text() == "<p>mine</p>"


def test_a_report_leaves_alone_what_it_cannot_read(tmp_path):
    for k in range(2):
        about = {"seed": k, "experiment": {"data": {"kind": "synthetic"}}, "model_bytes": 10}
        RunStore(tmp_path).save(f"{k:016x}", about, made_up([30]).to_arrays(0), {})
    runs = tmp_path / "runs"
    (runs / "mine").mkdir()
    about = runs / f"{1:016x}" / "experiment.json"
    about.write_text(about.read_text().replace('"format": 2', '"format": 3'))
    done = fedpick("report", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stderr.count(f"report: ignoring {runs / 'mine'}: not written by fedpick") == 1
    assert done.stderr.count("its format is 3, and this fedpick reads format 2); it is left alone") == 1
    assert {path.name for path in runs.iterdir()} == {f"{0:016x}", f"{1:016x}", "mine"}


def test_a_federation_is_reported_by_what_it_measured_and_by_the_names_it_has(tmp_path):
    result = made_up([None], total=5, accuracy=0.1)
    for name in ("loss", "client_loss", "client_accuracy"):
        result.metrics[name][:] = np.nan
    result.metrics["test_accuracy"][:, 3:] = 0.4
    result.records["train_samples"] = np.full((1, 5), np.nan)
    experiment = {"selector": {"kind": "UCB", "text": "UCB(m=1)"}, "rounds": 5, "seeds": [0]}
    about = {"seed": 0, "experiment": experiment, "clients": ["partition-id=3", "north"], "model_bytes": 10}
    RunStore(tmp_path).save("1" * 16, about, result.to_arrays(0), {})
    done = fedpick("report", tmp_path)
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["target"] == {"metric": "test_accuracy", "value": 0.4}
    assert summary["answer"] == "There is nothing to compare UCB with."
    assert "not drawn" not in done.stderr
    assert load_report(tmp_path).comparison.results[0].clients == ("partition-id=3", "north")


@pytest.mark.no_cover
def test_what_a_terminal_cannot_print_is_replaced(out):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "fedpick", "report", str(out)]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b" ? " in done.stdout  # the sign of the deviations


def test_a_file_of_another_kind_is_told_where_it_belongs(tmp_path):
    done = fedpick("run", npz(tmp_path / "mine.npz", **good()))
    assert done.exit_code == 1
    assert "data of your own go to fedpick compare" in done.stderr
    (tmp_path / "mark.toml").write_text("\ufeffrounds = 3", encoding="utf-8")
    assert "data is missing" in fedpick("run", tmp_path / "mark.toml").stderr


def test_all_runs_as_one_table_with_a_column_for_each_parameter(out, tmp_path):
    assert fedpick("compare", *SMALL, "-o", out, "-q", "--csv", tmp_path / "all.csv").exit_code == 0
    head, *lines = (tmp_path / "all.csv").read_text().splitlines()
    names = head.split(",")
    assert names[:4] == ["seed", "strategy", "m", "d"]
    rows = [dict(zip(names, line.split(","), strict=True)) for line in lines]
    assert {(row["strategy"], row["m"], row["d"]) for row in rows} == {("rand", "3", ""), ("pow-d", "3", "6")}
    assert len(rows) == 2 * 3 * 21
