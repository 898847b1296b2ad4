"""What a user gives counts, or is refused: options, --set, and the strategies of a file."""

import numpy as np
import pytest

from fedpick import config
from fedpick.compare import Choices, make_experiments

FILE = """
rounds = 5
seeds = 2
[data]
kind = "synthetic"
[model]
kind = "logistic"
[local]
tau = 2
b = 5
eta = 0.1
"""
TWO = """
[[selector]]
kind = "pow-d"
m = 4
d = 6
[[selector]]
kind = "cooldown"
selector = {kind = "cpow-d", m = 4, d = 8}
"""


def chosen(task="synthetic", **choices):
    return [config.describe(experiment.selector) for experiment in make_experiments(str(task), Choices(**choices))]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(FILE + TWO)
    return path


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("images/cat/1.png", r"a folder of data must be one of LEAF, .*, got '.*images'; an \.npz of x, y and client"),
        (
            "images/cat/1.csv",
            r"a folder of data must be .*, got '.*images' with cat/1\.csv; name one file, and make one",
        ),
        ("forest.csv.gz", r"a file of data must be one of \.npz, .*, got '.*forest\.csv\.gz'; save it as one$"),
    ],
)
def test_a_path_of_no_table_is_told_why(path, sentence, tmp_path):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("a,b")
    with pytest.raises(ValueError, match=sentence):
        make_experiments(str(tmp_path / path.partition("/")[0]), Choices())


def test_settings_of_the_selector_count_beside_strategies():
    found = chosen(strategies=("rand", "pow-d"), settings=("selector.m=3", "selector.d=9"))
    assert found == ["rand, m = 3", "pow-d, m = 3, d = 9"]
    assert chosen(settings=("selector.m=2",), strategies=("rand", "full")) == ["rand, m = 2", "full"]
    assert chosen(strategies=("pow-d",), m=3, settings=("selector.d=[6, 9]",)) == [
        "pow-d, m = 3, d = 6",
        "pow-d, m = 3, d = 9",
    ]


def test_settings_of_the_selector_count_for_the_default_strategies():
    assert "pow-d, m = 3, d = 9" in chosen(settings=("selector.d=9",))


def test_other_parameters_go_to_the_strategies_that_take_them():
    found = chosen(strategies=("rand", "cooldown(pow-d)"), settings=("selector.rounds=8",))
    assert found == ["rand, m = 3", "cooldown(pow-d, m = 3, d = 6), rounds = 8"]


def test_one_strategy_may_be_described_by_settings_alone():
    assert chosen(settings=("selector.kind=pow-d", "selector.m=2", "selector.d=5")) == ["pow-d, m = 2, d = 5"]


def test_m_and_d_change_the_strategies_of_a_file(file):
    assert chosen(file, m=2, d=(5,)) == ["pow-d, m = 2, d = 5", "cooldown(cpow-d, m = 2, d = 5)"]
    assert chosen(file, settings=("selector.d=7",)) == ["pow-d, m = 4, d = 7", "cooldown(cpow-d, m = 4, d = 7)"]
    assert len(chosen(file, d=(5, 9))) == 4


def test_strategies_in_place_of_those_of_a_file_keep_its_m(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(FILE + '[selector]\nkind = "pow-d"\nm = 5\nd = 8\n')
    assert chosen(path, strategies=("rand",)) == ["rand, m = 5"]
    assert chosen(path, strategies=("rand",), m=2) == ["rand, m = 2"]


def test_strategies_that_a_file_has_keep_their_settings(tmp_path, file):
    path = tmp_path / "one.toml"
    path.write_text(FILE + '[selector]\nkind = "pow-d"\nm = 2\nd = [6, 8]\n')
    found = ["rand, m = 2", "pow-d, m = 2, d = 6", "pow-d, m = 2, d = 8"]
    assert chosen(path, strategies=("rand", "pow-d")) == found
    assert chosen(path, strategies=("rand", "pow-d"), m=3, d=(9,)) == ["rand, m = 3", "pow-d, m = 3, d = 9"]
    assert chosen(file, strategies=("rand", "cooldown( cpow-d)")) == ["rand, m = 3", "cooldown(cpow-d, m = 4, d = 8)"]


def test_several_m_of_a_file_are_those_of_all_strategies(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(FILE + '[selector]\nkind = "rand"\nm = [2, 3]\n')
    assert chosen(path, strategies=("full", "rand", "afl")) == [
        "full",
        *(f"{a}, m = {b}" for a in ("rand", "afl") for b in (2, 3)),
    ]


@pytest.mark.parametrize(
    ("text", "choices", "words"),
    [
        (
            FILE.replace("[model]", "[[model]]\nkind = 'mlp'\n[[model]]"),
            {"model": "mlp"},
            "model.kind must lie in a table, and model is a list of 2, got 'mlp'",
        ),
        (
            FILE.replace("[model]", "[[model]]\nkind = 'mlp'\n[[model]]"),
            {"objective": "cross-entropy"},
            "model.objective must lie in a table, and model is a list",
        ),
        (
            "failures = 0.1\n" + FILE,
            {"failures": 0.2},
            "failures.probability must lie in a table, and failures is 0.1, got 0.2",
        ),
        (
            "model = 'logistic'\n" + FILE.replace('[model]\nkind = "logistic"\n', ""),
            {"model": "mlp"},
            "model.kind must lie in a table, and model is 'logistic'",
        ),
        ("rounds = 2\n", {"x": ("a",)}, "data must have a kind, got"),
        ("availability = 'always'\n" + FILE, {"availability": "uptime"}, "availability.kind must lie in a table, and"),
        (
            "devices = [1]\n" + FILE,
            {"devices": "lognormal"},
            "devices.kind must lie in a table, and devices is a list of 1",
        ),
        (
            "devices = [1]\n" + FILE,
            {"deadline": 3.0},
            "devices.deadline must lie in a table, and devices is a list of 1",
        ),
        ("metrics = 'f1'\n" + FILE, {"metrics": ("auc",)}, "metrics.test must lie in a table, and metrics is 'f1'"),
        ("local = 3\n" + FILE.partition("[local]")[0], {"eta": 0.1}, "local.eta must lie in a table, and local is 3"),
    ],
)
def test_an_option_beside_a_file_without_its_table_is_refused(tmp_path, text, choices, words):
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        chosen(tmp_path / "odd.toml", strategies=("rand",), **choices)


def test_strategies_that_come_to_be_the_same_are_compared_once(tmp_path):
    path = tmp_path / "d.toml"
    path.write_text(FILE + '[selector]\nkind = "pow-d"\nm = 3\nd = [6, 9]\n')
    assert chosen(path, d=(7,)) == ["pow-d, m = 3, d = 7"]
    path.write_text(FILE + '[[selector]]\nkind="pow-d"\nm=3\nd=6\n[[selector]]\nkind="pow-d"\nm=3\nd=9\n')
    assert chosen(path, d=(7,)) == ["pow-d, m = 3, d = 7"]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"rounds": 3, "settings": ("rounds=7",)}, "rounds must be given once, got rounds and --set rounds=7"),
        ({"eta": 0.1, "settings": ("local.eta=1",)}, "local.eta must be given once"),
        ({"m": 2, "settings": ("selector.m=3",)}, "selector.m must be given once"),
        ({"settings": ("rounds=3", "rounds=7")}, "rounds must be given once"),
        ({"model": "mlp", "settings": ('model={kind="cnn"}',)}, "model.kind must be given once"),
        ({"strategies": ("rand",), "settings": ("selector.kind=afl",)}, "selector.kind must be given once"),
        ({"strategies": ("rand",), "d": (6,)}, "-d (selector.d) must be a parameter of one of the strategies, got 6"),
        ({"strategies": ("rand", "pow-d"), "settings": ("selector.dd=6",)}, "got 6; did you mean 'd'?"),
        ({"strategies": ("pow-d",), "settings": ("selector.d=x",)}, "d must be"),
    ],
)
def test_what_would_not_count_is_refused(choices, words):
    with pytest.raises(ValueError, match="compare: ") as error:
        chosen(**choices)
    assert words in str(error.value)


def test_what_no_strategy_of_a_file_takes_is_refused(file):
    with pytest.raises(ValueError, match=r"selector\.decay must be a parameter of one of the strategies, got 1"):
        chosen(file, settings=("selector.decay=1",))


def test_where_there_is_nothing_to_choose_it_is_said_before_anything_is_played(tmp_path, recwarn):
    data = {"x": np.random.default_rng(0).normal(size=(40, 2)), "y": np.arange(40) % 2}
    np.savez(tmp_path / "one.npz", **data, client=np.zeros(40, int))
    np.savez(tmp_path / "four.npz", **data, client=np.arange(40) % 4)
    with pytest.raises(
        ValueError, match="at least 2 clients to choose from, got 1, on which every strategy would train"
    ):
        chosen(tmp_path / "one.npz")
    assert chosen(tmp_path / "one.npz", strategies=("rand",)) == ["rand, m = 1"]  # one alone may be looked at
    assert chosen(tmp_path / "four.npz", strategies=("rand", "full"), m=3) == ["rand, m = 3", "full"]
    assert not recwarn
    with pytest.warns(UserWarning, match="m = 4 is every client, so that there is nothing to choose"):
        chosen(tmp_path / "four.npz", strategies=("rand", "pow-d", "full"), m=4)
