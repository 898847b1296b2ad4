"""What an option cannot mean is refused in one sentence, before anything is played."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick import strategy
from fedpick.cli import app
from fedpick.compare import load_report, write_report
from fedpick.metrics import METRICS
from fedpick.registry import ROLES

TOML = """
rounds = 2
seeds = 1
[data]
kind = "quadratic"
K = 6
[model]
kind = "quadratic"
[local]
tau = 1
b = 1
eta = 1e-5
[selector]
kind = "pow-d"
m = 2
d = 3
"""
FEW = ["--strategies", "rand,pow-d", "--rounds", "2", "--seeds", "1", "-q"]


def fedpick(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPICK_DATA", raising=False)
    Path("plain.toml").write_text(TOML)
    Path("latin.toml").write_bytes(("# é\n" + TOML).encode("latin-1"))
    Path("twice.toml").write_text(TOML.replace("d = 3", "d = [3, 3]"))
    Path("empty").mkdir()
    x = np.random.default_rng(0).normal(size=(40, 2))
    np.savez("mine.npz", x=x, y=np.arange(40) % 2, client=np.arange(40) % 4)


WRONG = {
    "no UTF-8": (["run", "latin.toml"], "experiment: latin.toml must be UTF-8 text; save it as such, got another byte"),
    "no data": (["compare", "mine.npz", "--data", "nope"], "fedpick: data must be a folder that is there, got 'nope'"),
    "no data to run": (
        ["run", "plain.toml", "--data", "nope"],
        "fedpick: data must be a folder that is there, got 'nope'",
    ),
    "no data to verify": (
        ["data", "verify", "--data", "nope"],
        "fedpick: data must be a folder that is there, got 'nope'",
    ),
    "no test set": (
        ["run", "plain.toml", "--set", "metrics.target=test_accuracy", "--set", "metrics.value=0.8"],
        "run: metric test_accuracy needs a test set; quadratic(K=6, v=5, seed=0) has none",
    ),
    "data of a sweep": (
        ["data", "describe", "plain.toml", "--set", "data.K=[4,8]"],
        "data: data must be without a sweep, as the answer is for one, got a sweep over data.K",
    ),
    "a drawing of a sweep": (
        ["data", "draw", "plain.toml", "--set", "data.K=[4,8]"],
        "data: data must be without a sweep, as the answer is for one, got a sweep over data.K",
    ),
    "a comparison to several targets": (
        ["compare", "plain.toml", "--set", "metrics.target=loss", "--set", "metrics.value=[1, 2]"],
        "compare: metrics.target and value must be one for all, or be given with --metric and --target, got 2",
    ),
    "advice on a sweep": (
        ["advise", "plain.toml", "--set", "local.eta=[1e-5,1e-6]"],
        "advise: the experiment must be without a sweep, as the answer is for one, got a sweep over local.eta",
    ),
    "empty data": (["data", "verify", "--data", "empty"], "FashionMNIST: data must be a folder with train-images"),
    "seeds that are no number": (
        ["run", "plain.toml", "--set", "seeds=1.5"],
        "experiment: seeds must be 1 to 100,000 runs, or the seeds themselves, got 1.5",
    ),
    "a text as seeds": (
        ["run", "plain.toml", "--set", "seeds='2'"],
        "experiment: seeds must be 1 to 100,000 runs, or the seeds themselves, got '2'",
    ),
    "a setting twice": (
        ["run", "plain.toml", "--set", "seeds=1", "--set", "seeds=2"],
        "experiment: seeds must be given once, got --set seeds and --set seeds=2",
    ),
    "a setting and its table": (
        ["run", "plain.toml", "--set", "local.eta=1", "--set", "local={tau=1, b=1, eta=2}"],
        "experiment: local.eta must be given once, got --set local.eta and --set local={",
    ),
    "a value twice": (["run", "twice.toml"], "experiment: selector.d must be different values, got [3, 3]"),
    "two per cent signs": (
        ["compare", "mine.npz", "--target", "80%%"],
        "compare: target must be a number such as 0.5 or 80%, got '80%%'",
    ),
    "candidates that nobody has": (
        ["compare", "quadratic", "-d", "4", "--strategies", "rand"],
        "compare: -d (selector.d) must be a parameter of one of the strategies, got 4",
    ),
    "devices of another file": (
        ["compare", "mine.npz", "--devices", "plain.toml", "--rounds", "2"],
        "Devices: 'plain.toml' must be FedScale's client_device_capacity, json or a pickle of plain data, got another",
    ),
    "an empty client": (["compare", "mine.npz", "--client", ""], "fedpick: client must not be empty, got ''"),
    "an empty column": (["data", "describe", "mine.npz", "--y", " "], "fedpick: y must not be empty, got ' '"),
    "an empty name": (["compare", "mine.npz", "--name", ""], "compare: name must not be empty, got ''"),
    "a report of no name": (["report", "empty", "--name", ""], "report: name must not be empty, got ''"),
    "a table to nowhere": (["compare", "mine.npz", "--csv", "-"], "compare: csv must be the path of a file, got '-'"),
    "a column of no data": (["advise", "--clients", "20", "--standardize"], "advise: standardize must come with data"),
    "seeds of nothing": (
        ["arena", "--from", "arena.json", "--seeds", "5"],
        "arena: seeds must not be given with --from, which plays nothing",
    ),
    "families of no name": (["map", "--families", ""], "map: families must not be empty, got ''"),
    "families of the arena": (["arena", "--families", " "], "arena: families must not be empty, got ' '"),
    "processes for nothing": (
        ["map", "--docs", "pages", "--workers", "2"],
        "map: workers must not be given with --docs, which plays nothing",
    ),
    "a table of what is submitted": (
        ["run", "plain.toml", "--slurm", "partition=x", "--csv", "a.csv"],
        "run: csv must come with the command that waits, without --slurm, got 'a.csv'",
    ),
    "a run to nowhere": (["run", "plain.toml", "--csv", "-"], "run: csv must be the path of a file, got '-'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_would_not_count_is_refused(case, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    arguments, sentence = WRONG[case]
    done = fedpick(*arguments)
    lines = [line for line in done.stderr.strip().splitlines() if not line.endswith(" ...")]  # said after a second
    assert (done.exit_code, len(lines)) == (1, 1), done.output
    assert lines[0].startswith(sentence)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["--strategies", "--model"])
def test_a_module_that_ends_the_process_is_one_sentence(option):
    Path("own_exit.py").write_text("import sys\n\nsys.exit(3)\n")
    done = fedpick("compare", "mine.npz", option, "own_exit.py:A", "--rounds", "2")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "'own_exit.py:A' must be an importable package.module:Class" in done.stderr
    assert "own_exit.py, line 3: SystemExit: 3)" in done.stderr


TWICE = {
    "rates": (["compare", "plain.toml", "--eta", "0.1", "--eta", "0.01"], "--eta must be given once, got it 2 times"),
    "folders": (["run", "plain.toml", "-o", "a", "--output", "b"], "--output / -o must be given once, got it 2 times"),
    "both": (["advise", "--clients", "9", "--convex", "--not-convex"], "--convex / --not-convex must be given once"),
    "pictures": (["data", "draw", "plain.toml", "-o", "a.svg", "-o", "b.svg"], "--output / -o must be given once"),
}


@pytest.mark.parametrize("case", TWICE)
def test_an_option_of_one_value_is_refused_the_second_time(case, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    before = sorted(tmp_path.rglob("*"))
    arguments, sentence = TWICE[case]
    done = fedpick(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr, done.output
    assert sorted(tmp_path.rglob("*")) == before
    assert fedpick("strategies", "--json", "--json").exit_code == 0  # it says the same twice


def test_a_field_of_a_table_that_was_set_may_be_set_after_it():
    done = fedpick("run", "plain.toml", "-q", "--set", 'selector={kind="rand", m=1}', "--set", "selector.m=2")
    assert done.exit_code == 0, done.output


def test_data_are_described_whatever_the_strategy():
    found = [
        fedpick("data", "describe", "plain.toml", *(part for each in settings for part in ("--set", each))).stdout
        for settings in ([], ["selector.m=4"], ["selector={kind='rand', m=2}", "rounds=3"])
    ]
    assert found[0] == found[1] == found[2] != ""


def test_names_may_be_given_in_one_option_or_in_several():
    several = ("--strategies", "rand", "--strategy", "full")
    assert fedpick("compare", "mine.npz", *several, "--rounds", "2", "--seeds", "1", "-q", "--x", "x").exit_code == 0
    report = load_report("comparison")  # the folder as a text, as in a notebook
    assert report.comparison.names == ("rand", "full")
    assert write_report(report, "again")[1] == Path("again/summary.json")
    wrong = fedpick("compare", "mine.npz", "--metrics", "f1", "--metrics", "nope")
    names = ", ".join(ROLES["Metric"])
    assert f"metrics must be among {names}, or my.module:metric, got 'nope'" in wrong.stderr
    assert "f0" in fedpick("arena", "--strategies", "f0", "--strategies", "rand").stderr
    assert "must hold nope" in fedpick("data", "describe", "mine.npz", "--x", "nope", "--x", "x").stderr


@pytest.mark.parametrize("command", ["compare", "run", "report", "advise"])
def test_the_help_has_that_of_the_arguments(command):
    told = fedpick(command, "--help").output.partition("Arguments")[2].partition("Options")[0]
    assert re.search(r"[a-z]{3,} [a-z]{3,}", told), told


def test_a_metric_that_the_runs_did_not_measure_is_told_with_how_they_would():
    known = [each for each in METRICS if each != "skew"] + [f"test_{name}" for name in ROLES["Metric"]]
    names = ", ".join(map(repr, known))
    assert f"metric must be one of {names}, got 'nope'" in fedpick("compare", "mine.npz", "--metric", "nope").stderr
    assert fedpick("compare", "quadratic", *FEW).exit_code == 0
    told = fedpick("report", "comparison", "--metric", "f1").stderr
    assert told == "compare: metric must be one that the runs measured (compare --metrics f1), got 'test_f1'\n"


@pytest.mark.parametrize("command", ["compare", "run"])
def test_an_empty_path_is_not_the_working_folder(command):
    before = sorted(Path().iterdir())
    done = fedpick(command, "plain.toml", "-o", "")
    assert (done.exit_code, sorted(Path().iterdir())) == (2, before)
    assert "--output / -o must not be empty, got ''" in done.stderr


def test_a_comparison_is_found_by_the_name_that_it_was_given():
    assert fedpick("compare", "quadratic", *FEW, "--name", "../x y").exit_code == 0
    assert fedpick("compare", "quadratic", *FEW[:2], "--rounds", "3", *FEW[4:]).exit_code == 0
    done = fedpick("report", "comparison", "--name", "../x y")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("comparison/summary.json").read_text())["experiments"][0]["rounds"] == 2


def test_a_setting_that_no_run_has_is_guessed():
    assert fedpick("run", "plain.toml", "-q").exit_code == 0
    done = fedpick("report", "results", "--where", "local.et=0.05")
    assert done.stderr == "report: where must be a setting of the runs, got 'local.et'; did you mean 'local.eta'?\n"
    assert (
        "must hold runs where local.eta=7, and has none"
        in fedpick("report", "results", "--where", "local.eta=7").stderr
    )


def test_one_is_said_in_the_singular():
    done = fedpick("compare", "quadratic", "--strategies", "rand", "--rounds", "2", "--seeds", "1")
    assert "\n1 strategy, 1 seed, 2 rounds\n" in done.stderr
    run = fedpick("run", "plain.toml")
    assert "1 run to do" in run.stderr
    assert "after the last round, 1 seed" in run.stdout


def test_the_form_of_command_lines_is_told_apart():
    with pytest.raises(ValueError, match=r"^selector must be one name: .* is for command lines") as error:
        strategy("cooldown(pow-d)", m=3, d=6)
    assert "oort" not in str(error.value)
    assert strategy("cooldown", selector=strategy("pow-d", m=3, d=6)).selector.d == 6


def test_a_file_may_end_in_capital_letters():
    Path("plain.toml").rename("PLAIN.TOML")
    Path("table.json").write_text(json.dumps(tomllib.loads(TOML)))
    Path("table.json").rename("TABLE.JSON")
    for file in ("PLAIN.TOML", "TABLE.JSON"):
        found = fedpick("data", "describe", file)
        assert (found.exit_code, "6 clients" in found.output) == (0, True), found.output
    assert fedpick("run", "TABLE.JSON", "-q").exit_code == 0


def test_a_sweep_over_anything_but_the_data_leaves_them_one():
    found = fedpick("data", "describe", "plain.toml", "--set", "local.eta=[1e-5,1e-6]")
    assert (found.exit_code, "6 clients" in found.output) == (0, True), found.output
