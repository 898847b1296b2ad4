"""Learning rates that are tuned for each strategy, on seeds that are not used again."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.made_up import made_up
from typer.testing import CliRunner

from fedpick import compare
from fedpick.cli import app
from fedpick.compare import (
    Choices,
    Comparison,
    load_report,
    make_experiments,
    remarks_on_settings,
    report_on,
    tune_rates,
)
from fedpick.experiment import run_missing
from fedpick.storage import RunStore

CHOSEN = Choices(
    strategies=("rand", "pow-d"), rounds=20, seeds=2, eta=2e-6, settings=("data.K=6", "metrics.every=20", "local.tau=1")
)


def ended_at(loss, rounds=np.inf):
    """A result whose training loss ends at a value, and gets to any target in so many rounds."""
    return SimpleNamespace(
        metric=lambda name: np.full((1, 1), loss),
        rises=lambda name: False,
        rounds_to=lambda metric, value: np.array([rounds]),
    )


def test_of_the_rates_the_one_that_is_fastest_to_the_target_is_taken_as_the_answer_counts(monkeypatch):
    """Ends lowest at a slow rate: another strategy at a fast one seemed 3.69 times as fast."""

    def ended(experiment, store):
        eta = experiment.local.eta
        return ended_at(eta, rounds=100 - eta * 1e6 if eta < 6.1e-6 else np.inf)  # at 18e-6 it never gets there

    monkeypatch.setattr(compare.tuning, "run_missing", lambda *_: None)
    monkeypatch.setattr(compare.tuning, "load_results", ended)
    for value in (None, 0.5):
        tuned = tune_rates(make_experiments("quadratic", CHOSEN), None, value=value)
        assert [one.local.eta for one in tuned] == [6e-6, 6e-6]


def test_different_rates_are_told_of_a_sweep_over_d_too_and_equal_ones_are_not():
    def told(*rates):
        names = ("rand", "pow-d, d = 4", "pow-d, d = 8")
        results = (made_up([30, 31]), made_up([15, 16]), made_up([14, 15]))
        plains = [
            {"selector": selector, "local": {"eta": eta}}
            for selector, eta in zip(
                ({"kind": "rand"}, {"kind": "pow-d", "d": 4}, {"kind": "pow-d", "d": 8}), rates, strict=True
            )
        ]
        compared = Comparison(names, results, value=0.5)
        return remarks_on_settings(SimpleNamespace(comparison=compared, experiments=plains, real=False))

    [said] = told(0.05, 0.45, 0.45)
    assert said.startswith("Learning rates differ (rand: 0.05, pow-d, d = 4: 0.45, pow-d, d = 8: 0.45). A factor is")
    assert told(0.05, 0.05, 0.05) == ()


@pytest.mark.slow
def test_each_strategy_gets_the_rate_that_is_fastest_on_other_seeds(tmp_path):
    plain, store = make_experiments("quadratic", CHOSEN), RunStore(tmp_path)
    tuned = tune_rates(plain, store, seeds=2)
    assert [one.seeds for one in tuned] == [(0, 1), (0, 1)]
    used = {run.about["seed"] for name in store.identities() if (run := store.load(name)) is not None}
    assert used == {2, 3}  # not those of the comparison
    tried = {run.about["experiment"]["local"]["eta"] for run in map(store.load, store.identities())}
    assert len(tried) > 5  # the best was the largest at first
    ends = {}
    for run in map(store.load, store.identities()):
        local, kind = run.about["experiment"]["local"], run.about["experiment"]["selector"]["kind"]
        ends.setdefault((kind, local["eta"]), []).append(run.summary["final"]["loss"])
    for one, kind in zip(tuned, ("rand", "pow-d"), strict=True):
        means = {eta: sum(losses) for (name, eta), losses in ends.items() if name == kind}
        assert one.local.eta == min(means, key=means.get)
        assert one.local.eta > 2e-6


def test_a_rate_of_0_cannot_be_tuned(tmp_path):
    done = CliRunner().invoke(app, ["compare", "quadratic", "--tune", "eta", "--eta", "0", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "compare: eta must be above 0 to be tuned, got 0" in done.output
    assert not (tmp_path / "out").exists()


def test_only_the_learning_rate_can_be_tuned(tmp_path):
    done = CliRunner().invoke(app, ["compare", "--tune", "tau", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "tune must be one of 'eta', got 'tau'" in done.output


@pytest.mark.parametrize(
    ("sign", "end"), [(-1, "largest of the 7 that were tried: a larger"), (1, "smallest of the 7")]
)
def test_a_best_rate_at_the_edge_of_those_that_were_tried_is_told(sign, end, monkeypatch, caplog):
    def ended(experiment, store):  # the loss falls or rises with the rate of pow-d alone; that of rand is best at 2e-6
        eta = experiment.local.eta
        loss = sign * eta if "PowerOfChoice" in repr(experiment.selector) else abs(np.log(eta / 2e-6))
        return ended_at(loss)

    monkeypatch.setattr(compare.tuning, "run_missing", lambda *_: None)
    monkeypatch.setattr(compare.tuning, "load_results", ended)
    tune_rates(make_experiments("quadratic", CHOSEN), None)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("compare: the best learning rate of pow-d, m = 1, d = 2, ")
    assert end in said


def test_where_no_rate_stays_finite_smaller_ones_are_tried_and_told(monkeypatch, caplog):
    tried = set()

    def ended(experiment, store):
        tried.add(experiment.local.eta)
        return ended_at(np.nan)

    monkeypatch.setattr(compare.tuning, "run_missing", lambda *_: None)
    monkeypatch.setattr(compare.tuning, "load_results", ended)
    (tuned,) = tune_rates(make_experiments("quadratic", replace(CHOSEN, strategies=("rand",), eta=81.0)), None)
    assert sorted(tried) == [1, 3, 9, 27, 81, 243, 729]
    assert tuned.local.eta == 1
    assert "1 is the smallest of the 7 that were tried: a smaller one may be better" in caplog.text


def test_points_of_a_sweep_that_are_tuned_to_one_rate_are_one(tmp_path, monkeypatch):
    def ended(experiment, store):
        return ended_at(abs(np.log(experiment.local.eta / 6e-6)))

    monkeypatch.setattr(compare.tuning, "run_missing", lambda *_: None)
    monkeypatch.setattr(compare.tuning, "load_results", ended)
    settings = ["data.K=6", "metrics.every=5", "local.tau=1", "local.eta=[2e-6,6e-6]"]
    options = ["--strategies", "rand", "--rounds", "2", "--seeds", "2", "--tune", "eta", "-o", str(tmp_path)]
    sets = [word for setting in settings for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["compare", "quadratic", *options, *sets])
    assert done.exit_code == 0, done.output
    assert "(points of the sweep that came to one rate are one)" in done.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["names"], len(summary["runs"])) == (["rand"], 2)


def test_a_comparison_of_the_same_runs_twice_is_shown_as_it_was(tmp_path):
    store, (one,) = RunStore(tmp_path), make_experiments("quadratic", replace(CHOSEN, strategies=("rand",), rounds=2))
    run_missing([one], store)
    report = report_on([one, one], store)
    (tmp_path / "summary.json").write_text(json.dumps(report.summary()))
    again = load_report(tmp_path)
    assert (again.comparison.names, again.identities) == (report.comparison.names, report.identities)
