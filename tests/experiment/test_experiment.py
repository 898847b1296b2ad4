"""Experiments as data: strict reading, one identity, sweeps that share programs."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.experiments import PLAIN, plain, small
from support.rounds import compilations

from fedpick import AFL, ClippedLoss, PowerOfChoice, Rand, Shrinking
from fedpick.config import override, unstructure
from fedpick.experiment import Experiment, Metrics, Run, differences, from_plain, names, plan_batches, read, run
from fedpick.experiment.code import own_code
from fedpick.registry import ROLES
from fedpick.sim import (
    CNN,
    MLP,
    AlternatingHalves,
    Arrays,
    Bernoulli,
    CharLSTM,
    Devices,
    Digits,
    Dirichlet,
    Failures,
    Local,
    Logistic,
    Network,
    Quadratic,
    QuadraticModel,
    Server,
    Shards,
    StepDecay,
    Synthetic,
    simulate,
)
from fedpick.storage import code

# Reading


def test_plain_data_and_back():
    (experiment,) = from_plain(PLAIN)
    assert experiment == small()
    assert from_plain(experiment.to_plain()) == [experiment]
    assert from_plain(json.loads(json.dumps(experiment.to_plain()))) == [experiment]


@given(
    selector=st.sampled_from(
        [
            Rand(3),
            Rand(3, replace=False),
            PowerOfChoice(2, 5, "stale"),
            PowerOfChoice(2, 4, "batch", ClippedLoss(2.0)),
            PowerOfChoice(2, Shrinking(50)),
            AFL(3, alpha2=0.5),
        ]
    ),
    local=st.builds(
        Local,
        tau=st.integers(1, 9),
        b=st.integers(1, 9),
        eta=st.floats(0, 1),
        schedule=st.builds(StepDecay, at=st.lists(st.integers(1, 99), max_size=3).map(tuple)),
        weight_decay=st.none() | st.floats(0, 1),
        batches=st.sampled_from(["distinct", "replace", "epochs"]),
        optimizer=st.sampled_from(["sgd", "adam"]),
    ),
    data=st.sampled_from(
        [
            Synthetic(alpha=0.5),
            Quadratic(K=9, seed=3),
            Digits(Shards(K=4)),
            Arrays("x.npz", Dirichlet(K=3, alpha=0.5), 0.3),
        ]
    ),
    model=st.sampled_from([Logistic(), MLP((8, 4), 0.2, "minus-probability"), QuadraticModel(3.0)]),
    availability=st.sampled_from([AlternatingHalves(0.2), Bernoulli(0.5)]),
    failures=st.sampled_from([Failures(), Failures(0.25)]),
    devices=st.sampled_from([Devices(), Devices(speed=5.0, deadline=9.0)]),
    server=st.sampled_from([Server(), Server("adam", 0.1)]),
    metrics=st.sampled_from([Metrics(), Metrics(5, "loss", 0.5, clients=False, model=True)]),
    redraw=st.booleans(),
)
def test_every_experiment_survives_json(**parts):
    experiment = Experiment(rounds=3, seeds=(4, 1), name="a name", **parts)
    (back,) = from_plain(json.loads(json.dumps(experiment.to_plain())))
    assert back == experiment


def test_a_name_fixes_what_its_class_leaves_open():
    (stale,) = from_plain(plain('selector={kind="rpow-d", m=2, d=3}'))
    assert stale.selector == PowerOfChoice(2, 3, "stale")
    (clipped,) = from_plain(plain('selector={kind="pow-d", m=2, d=3, score={kind="clipped-loss", limit=2.0}}'))
    assert clipped.selector.score == ClippedLoss(2.0)
    (shrinking,) = from_plain(plain('selector={kind="adapow-d", m=2, rounds=50}'))
    assert shrinking.selector == PowerOfChoice(2, Shrinking(50))
    (address,) = from_plain(plain('selector={kind="fedpick.selectors:PowerOfChoice", m=2, d=3, loss="batch"}'))
    assert address.to_plain()["selector"]["kind"] == "cpow-d"


def test_arrays_are_lists_in_a_file():
    trace = [[True, False], [False, True]]
    made = plain(f'availability={{kind="trace", present={json.dumps(trace)}}}', "devices.speed=[1.0, 2.0]")
    (experiment,) = from_plain(made)
    assert experiment.availability.present.tolist() == trace
    assert experiment.devices.speed.tolist() == [1.0, 2.0]
    back = json.loads(json.dumps(experiment.to_plain()))
    assert from_plain(back)[0].to_plain() == experiment.to_plain()
    with pytest.raises(ValueError, match=r"availability.present must be 2-dimensional, a list of true or false"):
        from_plain(plain('availability={kind="trace", present=[true, false]}'))


WRONG = {
    "local.et=1": "local.et is unknown; did you mean 'eta'?",
    "roundz=3": "roundz is unknown; did you mean 'rounds'?",
    "local.tau=2.5": "local.tau must be a whole number, got 2.5",
    'local.eta="much"': "local.eta must be a number, got 'much'",
    "local.eta=-1": "Local: eta must be finite and at least 0, got -1.0 (in local)",
    "local.optimizer=sgdd": "or package.module:Class, got 'sgdd'; did you mean 'sgd'? (in local)",
    "local.batches=epoch": "one of 'distinct', 'replace', 'epochs', got 'epoch'; did you mean 'epochs'?",
    "local.schedule.at=3": "local.schedule must have a kind",
    'local.schedule={kind="step-decay", at=3}': "local.schedule.at must be a list",
    'local.schedule={kind="step-decay", at="35"}': "local.schedule.at must be a list, got '35'",
    'local.schedule={kind="step-decay", at={a=1}}': "local.schedule.at must be a list, got {'a': 1}",
    'local.schedule={kind="step-decay", at=[3, "b"]}': "local.schedule.at[1] must be a whole number, got 'b'",
    'local.schedule={kind="step-decay", factor=-1}': "StepDecay: factor must be finite and at least 0, got -1.0",
    'data={kind="arrays", path="a.csv", x="ab"}': "data.x must be a list, got 'ab'",
    'metrics.test="f1"': "metrics.test must be a list, got 'f1'",
    'seeds="12"': "seeds must be 1 to 100,000 runs, or the seeds themselves, got '12'",
    'model={kind="cnn", channels="35"}': "model.channels must be a list, got '35'",
    "local=5": "local must be a table",
    "seeds=true": "seeds must be 1 to 100,000 runs, or the seeds themselves, got True",
    'local.schedule={kind="optax", name="cosine"}': "OptaxSchedule: name must be one of",
    "data.kind=quadratics": f"data must have a kind among {', '.join(ROLES['Data'])}",
    "data={}": "data must have a kind, got {}",
    "data=3": "data must be a table with a kind, got 3",
    'selector={kind="pow"}': "did you mean 'pow-d'?",
    'selector={kind="pow-d", m=2}': "selector.d is missing; pow-d takes m, d, score",
    'selector={kind="pow-d", m=2, d=1}': "PowerOfChoice: d must be at least m=2, got 1 (in selector)",
    "rounds=0": "rounds must be at least 1, got 0",
    "rounds=true": "rounds must be a whole number, got True",
    "seeds=[1, 1]": "seeds must be one or more different numbers",
    "seeds=0": "seeds must be 1 to 100,000 runs, or the seeds themselves, got 0",
    "seeds=-1": "got -1",
    "seeds=1000000000": "seeds must be 1 to 100,000 runs",
    "rounds=1000000000000": "rounds must be below 2**31, got 1000000000000",
    'model={kind="logistic", objective="crossentropy"}': "did you mean 'cross-entropy'?",
    'selector={kind="nowhere.module:Mine", m=2}': "'nowhere.module:Mine' must be an importable package.module:Class",
    "metrics.target=los": "metrics: target must be one of",
    'metrics={target="test_accuracy", value=80}': "metrics: value of test_accuracy must be a part, such as 0.8",
    'metrics={target="worst_accuracy", value=-1}': "metrics: value of worst_accuracy must be a part",
    'metrics={test=["f1"], target="test_f1", value=70}': "metrics: value of test_f1 must be a part, such as 0.8",
    "metrics.target=loss": "metrics: target and value must be given together, got 'loss', None",
    'local.batches=["epochs", "replace"]': "local.batches must be one value, or several numbers or tables",
    'metrics.tests=["f1"]': "metrics.tests is unknown; did you mean 'test'?",
    "selector.shares=[0.5, 0.5]": "selector.shares is unknown",
    "local.eta=[]": "local.eta must be one value, or several numbers or tables, got []",
    'availability={kind="bernoulli", probability="x"}': "availability.probability must be a number, got 'x'",
    'availability={kind="trace", present=[[true], [true, false]]}': "availability.present must be 2-dimensional",
    'model={kind="fractions:Fraction"}': "model must be of a dataclass, whose fields are its settings, got Fraction",
    'availability={kind="alternating-halves", away="x"}': "availability.away must be a number, got 'x'",
}


@pytest.mark.parametrize("address", ["support.networks:Linen", "support.networks:NNX", "support.networks:linen"])
def test_the_address_of_a_network_is_a_kind_of_model(address):
    plain = {**PLAIN, "model": {"kind": address}}
    [experiment] = from_plain(plain)
    assert experiment.model == Network(address)
    assert experiment.to_plain()["model"] == {"kind": "network", "net": address, "objective": "cross-entropy"}


@pytest.mark.parametrize(("setting", "sentence"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_path(setting, sentence):
    with pytest.raises(ValueError, match="experiment: ") as caught:
        from_plain(plain(setting))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_many_mistakes_the_first_are_named_and_the_others_counted():
    with pytest.raises(ValueError, match=r"seeds\[0\] must be") as caught:
        from_plain(plain() | {"seeds": [0.5] * 50})
    assert str(caught.value).endswith("\nand so on: 38 more")
    assert str(caught.value).count("\n") == 12


def test_all_missing_fields_are_named():
    data = plain()
    del data["rounds"], data["local"]["tau"]
    with pytest.raises(ValueError, match=r"(?s)local.tau is missing.*rounds is missing"):
        from_plain(data)


def test_names_tell_kinds_where_nothing_else_does():
    one, other = (plain(f"availability.kind={kind}") for kind in ("always", "mine:Mine"))
    assert names([one, other]) == ("pow-d, availability.kind = always", "pow-d, availability.kind = mine:Mine")


@pytest.mark.parametrize("setting", ["d", "=3", "selector.=3", "rounds.x=3"])
def test_settings_must_look_like_settings(setting):
    with pytest.raises(ValueError, match="experiment: "):
        override(plain(), setting)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(ValueError, match=r"bad.toml must be TOML, got an error: .*line 1"):
        read(tmp_path / "bad.toml")
    with pytest.raises(ValueError, match="must be a table"):
        from_plain([1])


def test_a_list_is_a_sweep_only_where_the_field_holds_less():
    hidden = 'model={kind="mlp", hidden=%s}'
    assert [e.model.hidden for e in from_plain(plain(hidden % "[8, 4]"))] == [(8, 4)]
    assert [e.model.hidden for e in from_plain(plain(hidden % "[[8], [8, 4]]"))] == [(8,), (8, 4)]
    assert [e.devices.speed.tolist() for e in from_plain(plain("devices.speed=[[1, 2], [3, 4]]"))] == [[1, 2], [3, 4]]


# Sweeps


def test_lists_are_a_grid():
    data = plain("local.eta=[1e-4, 1e-3]", "rounds=[3, 4]")
    found = from_plain(data)
    assert [(e.local.eta, e.rounds) for e in found] == [(1e-4, 3), (1e-4, 4), (1e-3, 3), (1e-3, 4)]
    assert different(found)[1] == {"local.eta": 1e-4, "rounds": 4}


def test_tables_are_alternatives_and_may_hold_lists():
    found = from_plain(plain('selector=[{kind="rand", m=2}, {kind="pow-d", m=2, d=[3, 4]}]'))
    assert [e.selector for e in found] == [Rand(2), PowerOfChoice(2, 3), PowerOfChoice(2, 4)]
    assert names([e.to_plain() for e in found]) == ("rand", "pow-d, d = 3", "pow-d, d = 4")
    assert different(found)[0] == {"selector.kind": "rand", "selector.d": ""}


def different(experiments):
    return differences([experiment.to_plain() for experiment in experiments])


def test_a_setting_of_the_data_that_has_no_effect_is_told():
    for experiment in from_plain(
        {**PLAIN, "data": {"kind": "synthetic", "alpha": [0, 0.5]}, "model": {"kind": "logistic"}}
    ):
        with pytest.warns(
            UserWarning, match=r"^experiment: data\.alpha of Synthetic has no effect on the data: it adds"
        ):
            experiment.check()
    from_plain(PLAIN)[0].check()


def test_names_say_which_is_which():
    clipped = [PowerOfChoice(3, 6, score=ClippedLoss(limit)) for limit in (2.0, 3.0)]
    plains = [{"selector": unstructure(selector, "Selector")} for selector in clipped]
    assert names(plains) == ("pow-d, score.limit = 2.0", "pow-d, score.limit = 3.0")


def test_runs_that_differ_in_numbers_share_a_batch():
    found = from_plain(plain("selector.d=[3, 4, 5]", "local.eta=[1e-4, 1e-3]"))
    (batch,) = plan_batches(Run(e, seed) for e in found for seed in e.seeds)
    assert len(batch.points) == 6
    assert batch.seeds == (0, 1)
    for apart in ("local.tau=[2, 3]", "data.K=[6, 7]", 'selector=[{kind="rand", m=2}, {kind="pow-d", m=2, d=3}]'):
        assert len(plan_batches(Run(e, 0) for e in from_plain(plain(apart)))) == 2
    fresh = small(redraw=True, seeds=(0, 1, 2))
    (together,) = plan_batches(Run(fresh, seed) for seed in fresh.seeds)
    assert together.seeds == (0, 1, 2)
    assert [run.identity for run in together.runs] == [fresh.for_seed(seed).identity(seed) for seed in fresh.seeds]


def test_seeds_with_data_of_their_own_are_as_many_in_a_batch_as_fit_into_memory(monkeypatch):
    fresh = small(redraw=True, seeds=tuple(range(5)))
    samples, inputs, _ = fresh.data.extent
    monkeypatch.setattr("fedpick.experiment.batches.MOST_BYTES", 2 * 4 * samples * inputs)
    assert [batch.seeds for batch in plan_batches(Run(fresh, seed) for seed in fresh.seeds)] == [(0, 1), (2, 3), (4,)]


@pytest.mark.parametrize("data", [None, Digits(Shards(6, 2))], ids=["quadratic", "partitions"])
def test_redrawn_data_give_what_each_seed_gives_alone(tmp_path, data):
    other = {} if data is None else {"data": data, "model": Logistic(), "local": Local(1, 4, 0.1)}
    fresh = small(redraw=True, seeds=(0, 1), **other)
    (together,) = run(fresh, tmp_path / "together")
    for seed in fresh.seeds:
        (alone,) = run(fresh.for_seed(seed), tmp_path / str(seed))
        np.testing.assert_array_equal(together.records["clients"][seed], alone.records["clients"][0])
        np.testing.assert_array_equal(together.metrics["loss"][seed], alone.metrics["loss"][0])
        np.testing.assert_array_equal(together.shares[seed], alone.share)


@pytest.mark.no_cover
def test_a_sweep_compiles_no_more_than_one_point(tmp_path):
    def compiled(K, d):  # by a K that no other test has
        with compilations() as programs:
            run(from_plain(plain(f"data.K={K}", f"selector.d={d}", "seeds=1")), tmp_path / str(K))
        return programs.count("choices")

    assert compiled(23, "3") == compiled(24, "[3, 4, 5]") == 1


@pytest.mark.no_cover
def test_a_batch_gives_what_each_run_gives_alone():
    found = from_plain(plain("selector.d=[3, 5]", "local.eta=[1e-4, 2e-4]", "local.weight_decay=[0.0, 0.1]"))
    (batch,) = plan_batches(Run(e, seed) for e in found for seed in e.seeds)
    together = batch.simulate()
    assert len(batch.runs) == 16
    for row in (0, 5, 10, 15):  # every value of every field, and both seeds
        one = batch.runs[row]
        experiment = one.experiment
        problem = (experiment.data, experiment.model, experiment.selector, experiment.local)
        alone = simulate(*problem, rounds=6, seeds=[one.seed], progress=False)
        np.testing.assert_array_equal(together.metrics["loss"][row], alone.metrics["loss"][0])
        np.testing.assert_array_equal(together.records["clients"][row], alone.records["clients"][0])


def test_runs_that_differ_in_what_is_looked_for_alone_are_played_once_and_each_has_its_row():
    values = "metrics.value=[1e8, 2e8]"
    for eta, played in (("1e-4", 1), ("[1e-4, 2e-4]", 2)):
        found = from_plain(plain("metrics.target=loss", values, f"local.eta={eta}"))
        (batch,) = plan_batches(Run(e, seed) for e in found for seed in e.seeds)
        rows = []
        result = batch.simulate(watch=lambda so_far, rows=rows: rows.append(len(so_far.runs)))
        assert {len(result.runs), *rows} == {len(batch.runs)} == {2 * played * 2}
        losses: dict = {}
        for one, loss in zip(batch.runs, result.metrics["loss"], strict=True):
            losses.setdefault((one.experiment.local.eta, one.seed), []).append(loss)
        assert len({values[0][-1] for values in losses.values()}) == 2 * played
        for first, second in losses.values():
            np.testing.assert_array_equal(first, second)


# Identity


def test_plain_data_are_made_once_and_handed_out_as_copies(monkeypatch):
    made = []
    monkeypatch.setattr("fedpick.config.unstructure", lambda *part: made.append(part) or unstructure(*part))
    experiment = small()
    assert len({experiment.identity(seed) for seed in range(20)}) == 20
    experiment.to_plain()["local"]["tau"] = 99
    assert experiment.to_plain()["local"]["tau"] == experiment.local.tau
    assert len(made) == 1


def test_identity_is_what_decides_the_result():
    base = small().identity(0)
    assert small(name="other").identity(0) == base
    assert small(seeds=(0, 5)).identity(0) == base
    assert small().identity(1) != base
    for change in (
        {"rounds": 7},
        {"selector": PowerOfChoice(2, 4)},
        {"local": Local(2, 1, 1e-3)},
        {"availability": Bernoulli(0.5)},
        {"data": Quadratic(K=6, seed=1)},
        {"failures": Failures(0.1)},
        {"devices": Devices(deadline=3.0)},
    ):
        assert small(**change).identity(0) != base
    partition = Dirichlet(K=3, alpha=0.5)
    redrawn = small(data=Digits(partition), redraw=True).for_seed(3).data
    assert redrawn == Digits(dataclasses.replace(partition, seed=3), seed=3)
    # Drawn anew by seed 3, it is the run with data 3 and seed 3.
    assert small(redraw=True).identity(3) == small(data=Quadratic(K=6, seed=3)).identity(3)
    assert base == "d333d83bf2301f61"  # it must not change from version to version: stored runs would be lost


def test_own_data_are_known_by_their_content(tmp_path):
    x, y, client = np.ones((4, 2), np.float32), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y, client=client)
    np.savez(tmp_path / "b.npz", x=x, y=y, client=client)
    one, other = (small(data=Arrays(str(tmp_path / f"{name}.npz"))) for name in "ab")
    assert one.identity(0) == other.identity(0)
    path = small(data=Arrays(tmp_path / "a.npz"))  # of pathlib
    assert (path.identity(0), path.to_plain()) == (one.identity(0), one.to_plain())
    np.savez(tmp_path / "b.npz", x=2 * x, y=y, client=client)
    assert one.identity(0) != other.identity(0)


@pytest.mark.parametrize("model", [CharLSTM(hidden=16), CNN(hidden=16), MLP(hidden=(16, 8))])
def test_the_time_of_a_run_is_estimated_whatever_the_layers_are_given_as(model):
    assert small(model=model).seconds == pytest.approx(small(model=MLP(hidden=(16,))).seconds)


OWN = '''
from own_helper_for_test import help_out
from fedpick import Rand, pytree, static
@pytree
class Mine(Rand):
    """{}"""
'''
NAMED = """
import sys
sys.path.insert(0, sys.argv[1])
from fedpick import Rand
from fedpick.experiment import Experiment
from fedpick.sim import Local, Logistic, Synthetic
from own_strategy_for_test import Mine
for selector in (Mine(2), Rand(2)):
    print(Experiment(Synthetic(1, 1, K=5), Logistic(), selector, Local(1, 2, 0.1), rounds=2, seeds=(0,)).identity(0))
"""


def test_code_of_ones_own_that_was_edited_is_another_experiment(tmp_path):
    """As data files are: otherwise an edited strategy would get the results of the one before."""
    found = []
    helper = "def help_out():\n    return {}\n"
    for text, number in (("as it was", 1), ("edited", 1), ("as it was", 1), ("as it was", 2)):
        (tmp_path / "own_strategy_for_test.py").write_text(OWN.format(text))
        (tmp_path / "own_helper_for_test.py").write_text(helper.format(number))
        done = subprocess.run(
            [sys.executable, "-B", "-c", NAMED, str(tmp_path)], capture_output=True, text=True, check=True
        )
        found.append(done.stdout.split())
    (first, rand), (edited, same), (again, _), (helped, _) = found
    assert first == again
    assert len({first, edited, helped}) == 3
    assert rand == same
    assert own_code({"model": "optax:sgd", "data": {"path": "a:b"}, "selector": "fedpick.selectors:Rand"}) == {}


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    from tools_{0}.score import value\n    return value",
        "from tools_{0}.score import called as f",  # of functools.partial
        "from tools_{0}.score import SETTINGS\nf = len",
        "import tools_{0}.score as score\nf = len",
        "from tools_{0} import deep\nf = len",  # which imports it relatively
        "from tools_{0}.deep import value\ndef f(x): return value",
    ],
)
def test_whatever_a_file_imports_of_ones_own_counts(tmp_path, monkeypatch, text):
    name = f"a{abs(hash((text, str(tmp_path))))}"
    folder = tmp_path / f"tools_{name}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "deep.py").write_text("from .score import value\n")
    score = "import functools\nvalue = {}\nSETTINGS = {{}}\ncalled = functools.partial(print, 1)\n"
    (folder / "score.py").write_text(score.format(1))
    (tmp_path / f"own_{name}.py").write_text(text.format(name) + "\ndef g(x): return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sums = []
    for number in (1, 2, 1):
        (folder / "score.py").write_text(score.format(number))
        code._READ.clear()
        sums.append(own_code({"metric": f"own_{name}:g"})[f"own_{name}:g"])
    assert sums[0] == sums[2] != sums[1]


def test_a_file_that_a_field_of_ones_own_class_names_counts(tmp_path, monkeypatch):
    name = f"reads_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text("class Weighted:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    table = tmp_path / "table.csv"
    inner = {"kind": f"{name}:Weighted", "m": 3, "table": str(table), "note": "no\0file", "long": "x" * 5000}
    sums = []
    for text in ("1,2", "1,2,3", "1,2"):
        table.write_text(text)
        sums.append(own_code({"selector": {"kind": "cooldown", "selector": inner}}))
    assert sums[0] == sums[2] != sums[1]
    assert set(sums[0]) == {f"{name}:Weighted", str(table)}
    assert own_code({"selector": {"kind": "rand", "table": str(table)}}) == {}  # ours say themselves what they read


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"selector": PowerOfChoice(2, np.array([2, 3]))}, "selector.d"),
        ({"local": Local(2, 1, np.array([1e-4, 1e-3]))}, "local.eta"),
        ({"server": Server(eta=np.array([0.5, 1.0]))}, "server.eta"),
    ],
)
def test_an_experiment_has_one_value_in_each_field(changes, name):
    with pytest.raises(ValueError, match=f"experiment: {name} must be one value: several are several experiments, or"):
        small(**changes)


@pytest.mark.parametrize("folder", ["my dir", "a+b@home (1)", "~old"])
@pytest.mark.parametrize("of_a_package", [False, True])
def test_code_counts_wherever_its_file_is(tmp_path, monkeypatch, folder, of_a_package):
    """Whatever can be loaded counts, also an object of a class that is of a package."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which would be taken for that of the next, as long and old
    name = f"mine_{abs(hash((folder, of_a_package, str(tmp_path))))}"
    text = "import functools\nnet = functools.partial(int, {})\n" if of_a_package else "def net(): return {}\n"
    file = tmp_path / folder / f"{name}.py"
    file.parent.mkdir()
    address = f"{file}:net"
    sums = []
    for number in (1, 2, 1):
        file.write_text(text.format(number))
        sys.modules.pop(name, None)
        sums.append(own_code({"model": {"kind": "network", "net": address}})[address])
    assert sums[0] == sums[2] != sums[1]


def test_code_of_ones_own_that_cannot_count_is_refused(tmp_path):
    file = tmp_path / "holds_nothing_for_test.py"
    file.write_text("")
    with pytest.raises(ValueError, match=r"must be an importable package\.module:Class .*has no attribute"):
        own_code({"net": f"{file}:net"})
    assert own_code({"net": f"{tmp_path}/not there.py:net", "path": f"{file}:net of mine", "table": "a.csv:b"}) == {}


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Data without a seed."""

    def federation(self):
        return Quadratic(K=4).federation()


def test_redrawing_what_has_no_seed_is_told(recwarn):
    for data in (Quadratic(K=4), Fixed()):
        Experiment(data, QuadraticModel(), Rand(2), Local(1, 1, 1e-4), rounds=2, redraw=True).check()
    (told,) = (str(each.message) for each in recwarn)
    assert told.startswith("experiment: redraw has no effect on the data: Fixed has no seed")
