"""Wrappers in files, in sweeps, on the command line, and resumed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick import Cooldown, Explore, Mixture, PowerOfChoice, Rand, Unbiased, registry
from fedpick.cli import app
from fedpick.compare import Choices, make_experiments
from fedpick.config import describe, override, read_plain, unstructure
from fedpick.experiment import from_plain, names, read
from fedpick.sim import Local, Logistic, Synthetic, simulate

TOML = """
rounds = 4
seeds = 2
data = { kind = "synthetic" }
model = { kind = "logistic" }
local = { tau = 2, b = 5, eta = 0.1 }
[[selector]]
kind = "cooldown"
rounds = 5
selector = { kind = "pow-d", m = 3, d = [6, 9] }
[[selector]]
kind = "mixture"
probabilities = [0.25, 0.75]
selectors = [{ kind = "rand", m = 3 }, { kind = "explore", selector = { kind = "rpow-d", m = 3, d = [6, 12] } }]
[[selector]]
kind = "fedau"
selector = { kind = "full" }
"""


def test_a_file_describes_wrappers_as_nested_tables_with_sweeps_inside(tmp_path):
    (tmp_path / "own.toml").write_text(TOML)
    found = read(tmp_path / "own.toml")
    few, many = (PowerOfChoice(3, d, "stale") for d in (6, 12))
    assert [experiment.selector for experiment in found] == [
        Cooldown(PowerOfChoice(3, 6), 5),
        Cooldown(PowerOfChoice(3, 9), 5),
        Mixture((Rand(3), Explore(few)), (0.25, 0.75)),
        Mixture((Rand(3), Explore(many)), (0.25, 0.75)),
        Unbiased(from_plain({**read_plain(tmp_path / "own.toml"), "selector": {"kind": "full"}})[0].selector),
    ]
    assert names([experiment.to_plain() for experiment in found]) == (
        "cooldown(pow-d), d = 6",
        "cooldown(pow-d), d = 9",
        "mixture(rand, explore(rpow-d)), selectors.1.selector.d = 6",
        "mixture(rand, explore(rpow-d)), selectors.1.selector.d = 12",
        "fedau(full)",
    )
    for experiment in found:
        (again,) = from_plain(json.loads(json.dumps(experiment.to_plain())))
        assert again == experiment
        assert again.identity(0) == experiment.identity(0)


def test_a_setting_reaches_the_strategy_inside(tmp_path):
    plain = {"selector": unstructure(Cooldown(PowerOfChoice(3, 6)), "Selector")}
    override(plain, "selector.selector.d=12")
    override(plain, "selector.rounds=8")
    assert (plain["selector"]["selector"]["d"], plain["selector"]["rounds"]) == (12, 8)


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        ({"kind": "cooldown"}, "experiment: selector.selector is missing; cooldown takes selector, rounds"),
        ({"kind": "cooldown", "selector": 3}, "experiment: selector.selector must be a table with a kind, got 3"),
        (
            {"kind": "explore", "selector": {"kind": "pow-d", "m": 3, "dd": 6}},
            "experiment: selector.selector.dd is unknown; did you mean 'd'?; pow-d takes m, d, score",
        ),
        (
            {"kind": "mixture", "selectors": [{"kind": "rand", "m": 3}, {"kind": "powd", "m": 3}]},
            "experiment: selector.selectors[1] must have a kind among rand, ",
        ),
    ],
)
def test_an_error_in_a_file_has_the_path_of_the_strategy_inside(tmp_path, selector, sentence):
    (tmp_path / "own.toml").write_text(TOML)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        from_plain({**read_plain(tmp_path / "own.toml"), "selector": selector})
    assert str(error.value).startswith(sentence)


@pytest.mark.slow
def test_sweeps_over_numbers_inside_are_one_program_and_an_interrupted_run_resumes(tmp_path, monkeypatch):
    inner = PowerOfChoice(3, np.array([3, 6, 12]))
    selector = Cooldown(Explore(inner, np.array([0.0, 0.3, 0.6])), np.array([0, 2, 4]))
    options = {"rounds": 30, "seeds": 2, "every": 5, "progress": False}
    problem = (Synthetic(), Logistic(), selector, Local(2, 10, 0.05))
    whole = simulate(*problem, **options)
    assert whole.runs[2] == {"seed": 0, "selector.selector.d": 6, "selector.share": pytest.approx(0.3), "rounds": 2}
    alone = simulate(*problem[:2], Cooldown(Explore(PowerOfChoice(3, 12), 0.6), 4), problem[3], **options)
    np.testing.assert_array_equal(whole.records["clients"][4:], alone.records["clients"])

    def stop(result):
        if result.rounds:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedpick.sim.simulation.CHUNK", 10)
    path = tmp_path / "run.npz"
    assert simulate(*problem, **options, checkpoint=path, watch=stop).rounds == 10
    resumed = simulate(*problem, **options, checkpoint=path)
    np.testing.assert_array_equal(whole.records["clients"], resumed.records["clients"])
    np.testing.assert_array_equal(whole.metric("loss"), resumed.metric("loss"))


def test_a_name_on_the_command_line_builds_a_wrapper_with_its_defaults():
    fit = {"m": 3, "d": 6, "rounds": 50}
    wrapped = registry.fitting_strategy("cooldown(explore(pow-d))", **fit)
    assert wrapped == Cooldown(Explore(PowerOfChoice(3, 6)))
    assert registry.fitting_strategy("mixture(rand, cpow-d)", **fit) == Mixture((Rand(3), PowerOfChoice(3, 6, "batch")))
    chosen = make_experiments("synthetic", Choices(strategies=("rand", "cooldown(pow-d)", "fedau(full)"), d=(6, 9)))
    assert [describe(experiment.selector) for experiment in chosen] == [
        "rand, m = 3",
        "cooldown(pow-d, m = 3, d = 6)",
        "cooldown(pow-d, m = 3, d = 9)",
        "fedau(full)",
    ]
    assert registry.strategy("cooldown", selector=Rand(3), rounds=7) == Cooldown(Rand(3), 7)


class NeedsLabels:
    """A strategy that must know the number of labels."""

    def __init__(self, m, classes):
        self.m, self.classes = m, classes


def test_parameters_beyond_m_and_d_are_offered_to_those_who_take_them():
    address = f"{__name__}:NeedsLabels"
    made = registry.fitting_strategy(address, m=3, d=6, rounds=9, classes=10)
    assert (made.m, made.classes) == (3, 10)
    assert registry.fitting_strategy("rand", m=3, d=6, rounds=9, classes=10) == Rand(3)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cooldown", "cooldown must be given the one strategy that it holds, as in cooldown(pow-d), got 'cooldown'"),
        ("cooldown()", "cooldown must be given the one strategy that it holds"),
        ("cooldown(rand, afl)", "cooldown must be given the one strategy that it holds"),
        ("mixture(rand,)", "mixture must be given the strategies that it holds, as in mixture(rand, pow-d)"),
        ("rand(pow-d)", "rand must stand alone, as it holds no other strategy, got 'rand(pow-d)'"),
        ("cooldown(pow-d", "a name must close its parentheses, as in cooldown(pow-d), got 'cooldown(pow-d'"),
        ("cooldown(powd)", "did you mean 'pow-d'?"),
        ("cooldwn(pow-d)", "did you mean 'cooldown'?"),
        ("mixture(rand)", "selectors must be two or more strategies"),
    ],
)
def test_an_error_says_how_a_wrapper_is_written(name, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        registry.fitting_strategy(name, m=3, d=6, rounds=50)
    assert sentence in str(error.value)


def test_compare_takes_wrappers(tmp_path):
    strategies = "rand, cooldown(mixture(rand,rpow-d))"
    done = CliRunner().invoke(
        app, ["compare", "--strategies", strategies, "--rounds", "4", "--seeds", "2", "--json", "-o", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    shown = [row["name"] for row in json.loads(done.stdout)["strategies"]]
    assert shown == ["rand", "cooldown(mixture(rand, rpow-d))"]
    assert "cooldown(mixture(rand, m = 3; rpow-d, m = 3, d = 6, " in (tmp_path / "report.html").read_text()
    wrong = CliRunner().invoke(app, ["compare", "--strategies", "cooldown", "-o", str(tmp_path)])
    assert wrong.exit_code != 0
    assert "as in cooldown(pow-d)" in wrong.output
