"""Metrics of the test set in files, stored runs, comparisons and on the command line."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.cli.compare import metrics_asked
from fedpick.compare import Choices, Comparison, columns_of, make_experiments
from fedpick.experiment import Experiment, Metrics, from_plain, missing, run
from fedpick.registry import ROLES
from fedpick.results import concatenate
from fedpick.storage import RunStore

FILE = {
    "rounds": 4,
    "seeds": 2,
    "data": {"kind": "arrays", "path": "mine.npz"},
    "model": {"kind": "logistic"},
    "selector": [{"kind": "rand", "m": 2}, {"kind": "pow-d", "m": 2, "d": 4}],
    "local": {"tau": 2, "b": 5, "eta": 0.1},
    "metrics": {"every": 2, "test": ["f1", "support.metrics:brier"], "target": "test_brier", "value": 0.6},
}


def fedpick(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    x = (rng.normal(size=(120, 4)) + 2 * (y[:, None] == np.arange(4))).astype(np.float32)
    np.savez("mine.npz", x=x, y=y, client=np.arange(120) % 8)
    np.savez("few.npz", x=x[:16], y=y[:16], client=np.arange(16) % 8)


def experiments(**metrics) -> list[Experiment]:
    return from_plain({**FILE, "metrics": {**FILE["metrics"], **metrics}})


def test_runs_are_stored_with_them_and_read_back(tmp_path):
    first, second = experiments()
    assert first.metrics.test == ("f1", "support.metrics:brier")
    (result, _) = run([first, second], tmp_path / "out")
    assert result.better == {"test_f1": True, "test_brier": False}
    (again, _) = run([first, second], tmp_path / "out", watch=lambda *_: pytest.fail("it was run again"))
    for name in ("test_f1", "test_brier"):
        np.testing.assert_array_equal(again.metric(name), result.metric(name))
        assert np.isfinite(result.metric(name)).all()
    assert again.better == result.better
    summary = json.loads(next((tmp_path / "out" / "runs").glob("*/summary.json")).read_text())
    assert {"test_f1", "test_brier"} <= set(summary["final"])
    assert summary["target"]["metric"] == "test_brier"


def test_what_is_measured_decides_a_run_and_its_order_does_not():
    (one, _), (other, _), (none, _) = (
        experiments(test=names, target=None, value=None) for names in (["f1", "auc"], ["auc", "f1"], [])
    )
    assert one.identity(0) == other.identity(0) != none.identity(0)
    assert "test" not in none.canonical(0)["metrics"]  # runs of versions that did not know them are the same runs
    assert missing([dataclasses.replace(none, metrics=Metrics())], RunStore("nowhere"))


def test_results_with_and_without_them_have_the_others_in_common(tmp_path):
    (with_them, _), (without, _) = experiments(), experiments(test=[], target=None, value=None)
    results = run([with_them, without], tmp_path / "out")
    both = concatenate(results)
    assert not both.better
    assert both.metric("loss").shape == (4, 3)
    with pytest.raises(ValueError, match=r"compare: metric must be one that the runs measured .* got 'test_f1'"):
        Comparison(("a", "b"), tuple(results), "test_f1")


def test_the_command_line_shows_them_and_takes_them_for_a_target(tmp_path):
    options = ["--strategies", "rand,pow-d", "--rounds", 4, "--seeds", 2, "-o", "out", "-q"]
    done = fedpick("compare", "mine.npz", *options, "--metrics", "support.metrics:brier", "--metric", "f1")
    assert done.exit_code == 0, done.output
    assert "target: test f1 0." in done.stdout
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["experiments"][0]["metrics"]["test"] == ["support.metrics:brier", "f1"]
    assert summary["target"]["metric"] == "test_f1"
    page = Path("out/report.html").read_text()
    assert "Test F1" in page
    assert "Test brier by round; lower is better." in page
    for name in ("test_brier", "brier"):
        moved = fedpick("report", "out", "--metric", name, "--target", "0.5")
        assert moved.exit_code == 0, moved.output
        assert "target: test brier 0.5" in moved.stdout
    refused = fedpick("report", "out", "--metric", "test_auc")
    assert refused.exit_code == 1
    assert "metric must be one that the runs measured" in refused.stderr


def test_a_file_is_run_with_them(tmp_path):
    parts = {"rounds": 2, "selector": FILE["selector"][0], "metrics": {"test": ["auc", "f1", "calibration"]}}
    Path("e.json").write_text(json.dumps({**FILE, **parts}))
    done = fedpick("run", "e.json", "-o", "out", "-q", "--csv", "all.csv")
    assert done.exit_code == 0, done.output
    assert "test auc" in done.stdout
    assert "test calibration" in done.stdout  # nor is the table cut
    assert "test_auc" in Path("all.csv").read_text().splitlines()[0]


def test_those_of_a_file_and_of_the_command_line_are_both_measured():
    plain = {**FILE, "metrics": {"test": ["f1"]}}
    Path("e.json").write_text(json.dumps(plain))
    found = make_experiments("e.json", Choices(metrics=("auc", "f1")))
    assert {one.metrics.test for one in found} == {("f1", "auc")}


def test_a_table_has_a_column_for_each(tmp_path):
    results = run(experiments(), tmp_path / "out")
    compared = Comparison(("rand", "pow-d"), tuple(results), "test_brier")
    titles = [column.title for column in columns_of(compared)]
    assert titles[4:7] == ["accuracy,\n%", "test\nf1", "test\nbrier"]
    cell = columns_of(compared)[6].text(compared.summaries[0])
    assert cell.startswith(f"{results[0].metric('test_brier')[:, -1].mean():.3f}")
    assert compared.threshold < results[0].metric("test_brier")[:, 0].min()  # lower is better


WRONG = {
    "no test set": (["few.npz", "--metrics", "f1"], "metrics (test_f1) need a test set; few.npz has none"),
    "unknown": (
        ["mine.npz", "--metrics", "f2"],
        f"metrics must be among {', '.join(ROLES['Metric'])}, or my.module:metric",
    ),
    "not measured": (["mine.npz", "--metric", "test_f2"], "metric must be one of"),
    "shape": (["mine.npz", "--metrics", "support.metrics:wide"], "metric test_wide must give one number"),
    "no direction": (
        ["mine.npz", "--metrics", "support.metrics:mute", "--metric", "test_mute"],
        "metric test_mute must say whether higher is better",
    ),
    "given twice": (
        ["mine.npz", "--metrics", "f1", "--set", 'metrics.test=["auc"]'],
        "metrics.test must be given once",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_ones_are_one_sentence_before_anything_is_run(case):
    arguments, sentence = WRONG[case]
    done = fedpick("compare", *arguments, "--strategies", "rand,pow-d", "-o", "out")
    assert done.exit_code == 1, done.output
    lines = [line for line in done.stderr.strip().splitlines() if not line.endswith(" ...")]
    assert len(lines) == 1, done.stderr
    assert sentence in lines[0]
    assert not Path("out").exists()


def test_a_tuple_of_names_is_needed():
    with pytest.raises(ValueError, match="metrics: test must be a tuple of names"):
        Metrics(test="f1")
    with pytest.raises(ValueError, match="metrics: target must be one of"):
        Metrics(target="test_f1", value=0.5)


def test_a_target_may_be_named_as_the_metric_that_was_asked_for():
    assert metrics_asked("mine.py:brier", "brier") == (("mine.py:brier",), "test_brier")
    assert metrics_asked("mine.py:brier", "test_brier") == (("mine.py:brier",), "test_brier")
    assert metrics_asked("auc", "mine.py:brier") == (("auc", "mine.py:brier"), "test_brier")
    assert metrics_asked(None, "loss") == ((), "loss")


@pytest.mark.parametrize("target", ["f1", "test_f1"])
def test_a_metric_of_ones_own_with_the_name_of_one_of_the_registry_is_the_target(target, tmp_path):
    own = f"mym_{target}.py:f1"
    assert metrics_asked("mine.py:f1,auc", target) == (("mine.py:f1", "auc"), "test_f1")
    assert metrics_asked("f1", target) == (("f1",), "test_f1")
    assert metrics_asked(None, target, ["mine.py:f1"]) == ((), "test_f1")
    Path(f"mym_{target}.py").write_text(
        "def f1(logits, labels):\n    return 0.25 + 0 * logits.sum()\nf1.higher_is_better = True\n"
    )
    options = ["--strategies", "rand,pow-d", "--rounds", 4, "--seeds", 2, "-o", "out", "-q"]
    done = fedpick("compare", "mine.npz", *options, "--metrics", own, "--metric", target, "--target", "0.25")
    assert done.exit_code == 0, done.output
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["experiments"][0]["metrics"]["test"] == [own]
    assert summary["strategies"][0]["final"]["test_f1"]["mean"] == 0.25
    both = fedpick("compare", "mine.npz", *options, "--metrics", f"{own},f1")
    assert "metrics must have different names, got test_f1, which is given twice" in both.stderr
