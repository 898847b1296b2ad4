"""Experiments as data: strict reading, one identity, sweeps that share programs, and a store that survives."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rounds import compilations
from typer.testing import CliRunner

from fedpick import AFL, PowerOfChoice, Rand
from fedpick.cli import app
from fedpick.cli._common import ProgressBar
from fedpick.experiment import (
    MLP,
    Arrays,
    Experiment,
    LocalPart,
    Logistic,
    Metrics,
    Quadratic,
    QuadraticModel,
    Run,
    ServerPart,
    Synthetic,
    batches,
    differences,
    from_dict,
    override,
    play,
    read,
    reading,
    sweeps,
    to_dict,
)
from fedpick.selectors import ClippedLoss, Shrinking, short_name, strategy
from fedpick.sim import AlternatingHalves, Bernoulli, Dirichlet, simulate
from fedpick.storage import RunStore, missing, results, run

PLAIN = {
    "data": {"kind": "quadratic", "K": 6},
    "model": {"kind": "quadratic"},
    "selector": {"kind": "pow-d", "m": 2, "d": 3},
    "local": {"tau": 2, "b": 1, "eta": 1e-4},
    "rounds": 6,
    "seeds": 2,
}


def plain(*settings):
    data = json.loads(json.dumps(PLAIN))
    for setting in settings:
        override(data, setting)
    return data


def small(**changes):
    base = Experiment(
        Quadratic(K=6), QuadraticModel(), PowerOfChoice(m=2, d=3), LocalPart(2, 1, 1e-4), rounds=6, seeds=(0, 1)
    )
    return dataclasses.replace(base, **changes)


# Reading


def test_plain_data_and_back():
    (experiment,) = from_dict(PLAIN)
    assert experiment == small()
    assert from_dict(to_dict(experiment)) == [experiment]
    assert from_dict(json.loads(json.dumps(to_dict(experiment)))) == [experiment]


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
        LocalPart,
        tau=st.integers(1, 9),
        b=st.integers(1, 9),
        eta=st.floats(0, 1),
        decay_at=st.lists(st.integers(1, 99), max_size=3).map(tuple),
        weight_decay=st.none() | st.floats(0, 1),
        batches=st.sampled_from(["distinct", "replace", "epochs"]),
        optimizer=st.sampled_from(["sgd", "adam"]),
    ),
    data=st.sampled_from([Synthetic(alpha=0.5), Quadratic(K=9, seed=3), Arrays("x.npz", 0.3)]),
    partition=st.none() | st.builds(Dirichlet, K=st.integers(1, 9), alpha=st.floats(0.1, 5)),
    model=st.sampled_from([Logistic(), MLP((8, 4), 0.2), QuadraticModel(3.0)]),
    availability=st.sampled_from([AlternatingHalves(0.2), Bernoulli(0.5)]),
    server=st.sampled_from([ServerPart(), ServerPart("adam", 0.1)]),
    metrics=st.sampled_from([Metrics(), Metrics(5, "loss", 0.5, clients=False, model=True)]),
    redraw=st.booleans(),
)
def test_every_experiment_survives_json(**parts):
    experiment = Experiment(rounds=3, seeds=(4, 1), objective="minus-probability", name="a name", **parts)
    (back,) = from_dict(json.loads(json.dumps(to_dict(experiment))))
    assert back == experiment


def test_short_names_and_class_names_are_the_same_strategy():
    for short, whole in (("rpow-d", {"kind": "PowerOfChoice", "loss": "stale"}), ("pow-d", {"kind": "PowerOfChoice"})):
        one = from_dict(plain(f'selector={{kind="{short}", m=2, d=3}}'))
        data = plain()
        data["selector"] = {**whole, "m": 2, "d": 3}
        assert one == from_dict(data)
    (clipped,) = from_dict(plain('selector={kind="pow-d", m=2, d=3, metric={kind="ClippedLoss", limit=2.0}}'))
    assert clipped.selector.metric == ClippedLoss(2.0)


WRONG = {
    "local.et=1": "local.et is unknown; did you mean 'eta'?",
    "roundz=3": "roundz is unknown; did you mean 'rounds'?",
    "local.tau=2.5": "local.tau must be a whole number, got 2.5",
    'local.eta="much"': "local.eta must be a number, got 'much'",
    "local.eta=-1": "Local: eta must be finite and at least 0, got -1.0 (in local)",
    "local.optimizer=sgdd": "local: optimizer must be one of 'sgd', 'momentum', 'adam', 'adagrad', 'yogi', got 'sgdd'",
    "local.batches=epoch": "one of 'distinct', 'replace', 'epochs', got 'epoch'; did you mean 'epochs'?",
    "local.decay_at=3": "local.decay_at must be a list",
    "data.kind=quadratics": "data must have a kind among synthetic, quadratic, digits, fashion-mnist, arrays, got",
    "data={}": "data must have a kind, got {}",
    "data=3": "data must be a table with a kind, got 3",
    'selector={kind="pow"}': "did you mean 'pow-d'? (in selector)",
    'selector={kind="pow-d", m=2}': "pow-d: d is missing",
    'selector={kind="pow-d", m=2, d=1}': "PowerOfChoice: d must be at least m=2, got 1 (in selector)",
    "rounds=0": "rounds must be at least 1, got 0",
    "rounds=true": "rounds must be a whole number, got True",
    "seeds=[1, 1]": "seeds must be one or more different numbers",
    "seeds=0": "seeds must be 1 to 100,000 runs, or the seeds themselves, got 0",
    "seeds=-1": "got -1",
    "seeds=1000000000": "seeds must be 1 to 100,000 runs",
    "rounds=1000000000000": "rounds must be below 2**31, got 1000000000000",
    "objective=crossentropy": "did you mean 'cross-entropy'?",
    "metrics.target=los": "metrics: target must be one of",
    "metrics.target=loss": "metrics: target and value must be given together, got 'loss', None",
    'local.batches=["epochs", "replace"]': "local.batches must be one value, or several numbers or tables",
    "local.eta=[]": "local.eta must be one value, or several numbers or tables, got []",
    'availability={kind="bernoulli", probability="x"}': "probability must be a number, got 'x'",
    'availability={kind="alternating-halves", away="x"}': "availability.away must be a number, got 'x'",
}


@pytest.mark.parametrize(("setting", "sentence"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_path(setting, sentence):
    with pytest.raises(ValueError, match="experiment: ") as caught:
        from_dict(plain(setting))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_missing_fields_are_named():
    data = plain()
    del data["rounds"], data["local"]["tau"]
    with pytest.raises(ValueError, match=r"(?s)local.tau is missing.*rounds is missing"):
        from_dict(data)


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
        from_dict([1])


def test_the_fields_that_are_lists_are_those_of_list_type():
    def lists(kind, path=""):
        for field in dataclasses.fields(kind):
            here = f"{path}{field.name}"
            if "tuple" in str(field.type):
                yield here
            for part in (kind for kinds in reading.KINDS.values() for kind in kinds.values()):
                if part in getattr(field.type, "__args__", (field.type,)):
                    yield from lists(part, f"{here}.")
            if field.type in (LocalPart, ServerPart, Metrics):
                yield from lists(field.type, f"{here}.")

    assert set(lists(Experiment)) == set(sweeps.LISTS)


# Sweeps


def test_lists_are_a_grid():
    data = plain("local.eta=[1e-4, 1e-3]", "rounds=[3, 4]")
    found = from_dict(data)
    assert [(e.local.eta, e.rounds) for e in found] == [(1e-4, 3), (1e-4, 4), (1e-3, 3), (1e-3, 4)]
    assert list(differences(found))[1] == {"local.eta": 1e-4, "rounds": 4}


def test_tables_are_alternatives_and_may_hold_lists():
    found = from_dict(plain('selector=[{kind="rand", m=2}, {kind="pow-d", m=2, d=[3, 4]}]'))
    assert [e.selector for e in found] == [Rand(2), PowerOfChoice(2, 3), PowerOfChoice(2, 4)]
    assert [label["selector"] for label in differences(found)] == [short_name(e.selector) for e in found]


def test_runs_that_differ_in_numbers_share_a_batch():
    found = from_dict(plain("selector.d=[3, 4, 5]", "local.eta=[1e-4, 1e-3]"))
    (batch,) = batches(Run(e, seed) for e in found for seed in e.seeds)
    assert len(batch.points) == 6
    assert batch.seeds == (0, 1)
    for apart in ("local.tau=[2, 3]", "data.K=[6, 7]", 'selector=[{kind="rand", m=2}, {kind="pow-d", m=2, d=3}]'):
        assert len(batches(Run(e, 0) for e in from_dict(plain(apart)))) == 2
    fresh = small(redraw=True, seeds=(0, 1, 2))
    assert len(batches(Run(fresh, seed) for seed in fresh.seeds)) == 3


def test_a_sweep_compiles_no_more_than_one_point(tmp_path):
    def compiled(name, d):
        jax.clear_caches()
        with compilations() as programs:
            run(from_dict(plain(f"selector.d={d}", "seeds=1")), tmp_path / name)
        return programs.count("chunk")

    assert compiled("one", "3") == compiled("three", "[3, 4, 5]") == 1


def test_a_batch_gives_what_each_run_gives_alone():
    found = from_dict(plain("selector.d=[3, 5]", "local.eta=[1e-4, 2e-4]", "local.weight_decay=[0.0, 0.1]"))
    (batch,) = batches(Run(e, seed) for e in found for seed in e.seeds)
    together = play(batch)
    for row, (experiment, seed) in enumerate(batch.runs):
        federation = experiment.federation()
        local = experiment.local.build()
        alone = simulate(
            federation, experiment.built(federation), experiment.selector, local, rounds=6, seeds=[seed], progress=False
        )
        np.testing.assert_array_equal(together.metrics["loss"][row], alone.metrics["loss"][0])
        np.testing.assert_array_equal(together.records["clients"][row], alone.records["clients"][0])


# Identity


def test_identity_is_what_decides_the_result():
    base = small().identity(0)
    assert small(name="other").identity(0) == base
    assert small(seeds=(0, 5)).identity(0) == base
    assert small().identity(1) != base
    for change in (
        {"rounds": 7},
        {"selector": PowerOfChoice(2, 4)},
        {"local": LocalPart(2, 1, 1e-3)},
        {"availability": Bernoulli(0.5)},
        {"data": Quadratic(K=6, seed=1)},
    ):
        assert small(**change).identity(0) != base
    # Drawn anew by seed 3, it is the run with data 3 and seed 3.
    assert small(redraw=True).identity(3) == small(data=Quadratic(K=6, seed=3)).identity(3)
    assert base == "ce63d6ef05530152"  # it must not change from version to version: stored runs would be lost


def test_own_data_are_known_by_their_content(tmp_path):
    x, y, client = np.ones((4, 2), np.float32), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y, client=client)
    np.savez(tmp_path / "b.npz", x=x, y=y, client=client)
    one, other = (small(data=Arrays(str(tmp_path / f"{name}.npz"))) for name in "ab")
    assert one.identity(0) == other.identity(0)
    np.savez(tmp_path / "b.npz", x=2 * x, y=y, client=client)
    assert one.identity(0) != other.identity(0)


# Own data


def test_own_data_of_any_client_names(tmp_path):
    rng = np.random.default_rng(0)
    client = np.array(["b", "a", "c"])[rng.integers(0, 3, 90)]
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(90, 2)), y=rng.integers(0, 2, 90), client=client)
    federation = Arrays(str(tmp_path / "mine.npz"), test_share=0.2).federation(None)
    assert federation.num_clients == 3
    number = np.array([(client == name).sum() for name in "abc"])
    np.testing.assert_array_equal(federation.count, number - number // 5)
    assert len(federation.test_y) == (number // 5).sum()
    again = Arrays(str(tmp_path / "mine.npz"), test_share=0.2, seed=1).federation(None)
    assert not np.array_equal(again.test_x, federation.test_x)


OWN = {
    "no file": ({}, None, "path must be an .npz file"),
    "no label": ({"x": np.ones((3, 2))}, None, "must hold y, got x"),
    "nothing": ({}, None, "must hold x, got nothing"),
    "empty": ({"x": np.ones((0, 2)), "y": np.ones(0, int)}, None, "same number of rows, above 0, got 0 and 0"),
    "uneven": ({"x": np.ones((3, 2)), "y": np.ones(2, int)}, None, "same number of rows, above 0, got 3 and 2"),
    "no clients": ({"x": np.ones((3, 2)), "y": np.ones(3, int)}, None, "has no client, so give a partition"),
    "both": (
        {"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(3)},
        Dirichlet(K=2, alpha=1.0),
        "has clients, so partition must be left out",
    ),
    "few clients": ({"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(2)}, None, "one entry per sample"),
    "test without labels": (
        {"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(3), "test_x": np.ones((3, 2))},
        None,
        "must hold test_y",
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_own_data_that_are_wrong(case, tmp_path):
    arrays, partition, sentence = OWN[case]
    if case != "no file":
        np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        Arrays(str(tmp_path / "mine.npz")).federation(partition)


def test_own_data_that_are_no_arrays(tmp_path):
    (tmp_path / "mine.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"must be an .npz of plain arrays"):
        Arrays(str(tmp_path / "mine.npz")).federation(None)


def test_a_partition_that_is_not_needed():
    with pytest.raises(ValueError, match="partition: must be left out with quadratic data"):
        small(partition=Dirichlet(K=2, alpha=1.0)).federation()


# The store


def test_a_run_is_kept_and_not_run_again(tmp_path):
    experiments = from_dict(
        plain("selector.d=[3, 4]", "metrics.model=true", "metrics.target=loss", "metrics.value=1e9")
    )
    first = run(experiments, tmp_path)
    watched = []
    again = run(experiments, tmp_path, watch=lambda batch, so_far: watched.append(batch))
    assert not watched
    for one, other in zip(first, again, strict=True):
        assert one.runs == other.runs
        np.testing.assert_array_equal(one.metrics["loss"], other.metrics["loss"])
    assert [r["selector"] for r in first[0].runs] == ["pow-d, m = 2, d = 3"] * 2

    identity = experiments[0].identity(0)
    folder = tmp_path / "runs" / identity
    assert sorted(path.name for path in folder.iterdir()) == ["experiment.json", "result.npz", "summary.json"]
    about = json.loads((folder / "experiment.json").read_text())
    assert from_dict(about["experiment"])[0].identity(0) == identity
    assert set(about["versions"]) == {"python", "fedpick", "jax", "jaxlib", "numpy", "optax"}
    assert "CPU" in about["device"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["target"]["round"] == first[0].rounds_to("loss", 1e9)[0]
    assert summary["final"]["test_accuracy"] is None  # there is no test set: no number, and no NaN in the JSON
    with np.load(folder / "result.npz", allow_pickle=False) as arrays:  # NumPy alone
        np.testing.assert_array_equal(arrays["metrics/loss"], first[0].metrics["loss"][0])
        assert arrays["records/clients"].shape == (6, 2)
        assert arrays["model/"].shape == (5,)
    # Fewer seeds are part of it, more are only the missing ones.
    assert not missing([dataclasses.replace(experiments[0], seeds=(1,))], RunStore(tmp_path))
    (left,) = missing([dataclasses.replace(experiments[0], seeds=(0, 1, 7))], RunStore(tmp_path))
    assert left.seeds == (7,)


def test_what_was_not_kept_is_said(tmp_path):
    (result,) = run(small(metrics=Metrics(clients=False)), tmp_path)
    assert "client_loss" not in result.metrics
    assert result.metric("worst_loss").shape == result.metric("loss").shape
    with pytest.raises(ValueError, match="must hold the run"):
        results(small(rounds=9), RunStore(tmp_path))


@pytest.mark.parametrize("what", ["result.npz", "experiment.json", "summary.json"])
def test_a_truncated_file_is_named_and_the_run_done_again(what, tmp_path, capsys):
    (before,) = run(small(), tmp_path)
    path = tmp_path / "runs" / small().identity(1) / what
    path.write_bytes(path.read_bytes()[:20])
    (after,) = run(small(), tmp_path)
    np.testing.assert_array_equal(before.metrics["loss"], after.metrics["loss"])
    said = capsys.readouterr().err
    assert small().identity(1) in said
    assert "must be a whole run of fedpick's" in said
    assert list((tmp_path / "runs").glob(".broken-*"))


def test_a_run_under_a_false_name_is_not_taken(tmp_path, capsys):
    run(small(), tmp_path)
    (tmp_path / "runs" / small().identity(0)).rename(tmp_path / "runs" / small(rounds=7).identity(0))
    (result,) = run(small(rounds=7), tmp_path)
    assert result.rounds == 7
    assert "it is of the run" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_run_is_put_aside(tmp_path, capsys):
    RunStore(tmp_path)
    (tmp_path / "runs" / small().identity(0)).write_text("mine")
    (result,) = run(small(), tmp_path)
    assert result.rounds == 6
    assert "must be a whole run of fedpick's" in capsys.readouterr().err
    (aside,) = (tmp_path / "runs").glob(".broken-*")
    assert aside.read_text() == "mine"


def test_strangers_are_left_alone(tmp_path, capsys):
    store = RunStore(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "under-way" / "bad.json").write_text("{")
    run(small(), tmp_path)
    (tmp_path / "runs" / small().identity(0) / "more.txt").write_text("mine")
    assert [path.name for path in store.unknown_files()] == ["notes.txt", "more.txt", "notes.txt"]
    assert "bad.json must be work of fedpick's under way" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"store: folder .* must be one that can be written to"):
        RunStore(tmp_path / "file")


def test_findings_are_kept_and_mended(tmp_path, capsys):
    store = RunStore(tmp_path)
    calls = []

    def compute():
        calls.append(1)
        return {"x": [1.5, 2]}

    for _ in range(2):
        assert store.cached_result("skews", {"K": 3}, compute) == {"x": [1.5, 2]}
    assert len(calls) == 1
    store.cached_result("skews", {"K": 4}, compute)
    assert len(calls) == 2
    for path in (tmp_path / "findings").iterdir():
        path.write_text("{")
    store.cached_result("skews", {"K": 3}, compute)
    assert len(calls) == 3
    assert "must be a finding of fedpick's" in capsys.readouterr().err


def test_interrupted_in_the_middle_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpick.experiment.run.LONG", 0.0)  # a checkpoint however short
    experiment = small(rounds=250, metrics=Metrics(every=10))

    def stop(batch, so_far):
        if so_far.rounds >= 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "broken", watch=stop)
    assert not list(RunStore(tmp_path / "broken").identities())
    seen = []
    (after,) = run(experiment, tmp_path / "broken", watch=lambda batch, so_far: seen.append(so_far.rounds))
    assert seen[0] > 0  # from where it was
    (whole,) = run(experiment, tmp_path / "whole")
    np.testing.assert_array_equal(after.metrics["loss"], whole.metrics["loss"])
    np.testing.assert_array_equal(after.records["clients"], whole.records["clients"])
    assert not list((tmp_path / "broken" / "under-way").iterdir())


def test_a_truncated_checkpoint_is_named_and_the_work_begins_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedpick.experiment.run.LONG", 0.0)
    experiment = small(rounds=250, metrics=Metrics(every=10))

    def stop(batch, so_far):
        if so_far.rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path, watch=stop)
    (checkpoint,) = (tmp_path / "under-way").glob("*.npz")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    (result,) = run(experiment, tmp_path)
    assert result.rounds == 250
    assert "must be a whole file of fedpick's" in capsys.readouterr().err
    assert [path.suffix for path in (tmp_path / "under-way").iterdir()] == [".broken"]


def test_killed_between_two_runs_the_batch_is_finished_as_it_was(tmp_path, monkeypatch):
    found = from_dict(plain("selector.d=[3, 4]"))
    save, saved = RunStore.save, []

    def dies(self, *arguments):
        if len(saved) == 2:
            raise SystemExit
        saved.append(arguments)
        save(self, *arguments)

    monkeypatch.setattr(RunStore, "save", dies)
    with pytest.raises(SystemExit):
        run(found, tmp_path)
    monkeypatch.setattr(RunStore, "save", save)
    played = []
    run([*found, small(rounds=7)], tmp_path, watch=lambda batch, so_far: played.append(batch))
    assert len(played[0].runs) == 4  # the same four together, and then the others
    assert not list((tmp_path / "under-way").iterdir())


SCRIPT = """
import sys, time
from fedpick.experiment import from_dict
from fedpick.storage import run
import fedpick.experiment.run
import json
fedpick.experiment.run.LONG = 0.0
plain = json.loads(sys.argv[2])
def watch(batch, so_far):
    print(so_far.rounds, flush=True)
    if so_far.rounds >= int(sys.argv[3]):
        time.sleep(60)  # until it is killed, however busy the machine is
run(from_dict(plain), sys.argv[1], watch)
"""


def start(folder, data, hold=10**9):
    environment = {**os.environ, "FEDPICK_CACHE": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), json.dumps(data), str(hold)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_for_real_it_goes_on(how, tmp_path):
    data = plain("rounds=3000", "metrics.every=10")
    with start(tmp_path / "a", data, hold=200) as process:
        for line in process.stdout:
            if int(line) >= 200:
                process.send_signal(how)
                break
        process.communicate(timeout=60)
    assert process.returncode != 0
    (after,) = run(from_dict(data), tmp_path / "a")
    (whole,) = run(from_dict(data), tmp_path / "b")
    np.testing.assert_array_equal(after.metrics["loss"], whole.metrics["loss"])
    assert not [path for path in (tmp_path / "a" / "runs").iterdir() if path.name.startswith(".")]


def test_two_at_once_in_one_folder(tmp_path):
    data = plain("rounds=2000", "metrics.every=10", "selector.d=[3, 4]")
    processes = [start(tmp_path, data) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    outputs = sorted((len(out), error) for out, error in answers)
    assert outputs[0][0] == 0  # the second found everything done
    assert "another fedpick is at work" in outputs[0][1]
    for experiment in from_dict(data):
        assert results(experiment, RunStore(tmp_path)).rounds == 2000


def test_the_example_with_own_data_runs(tmp_path):
    folder = Path(__file__).parents[2] / "examples" / "own-data"
    made = subprocess.run(
        [sys.executable, folder / "make_data.py", tmp_path / "shops.npz"], capture_output=True, text=True, check=True
    )
    assert "40 clients" in made.stdout
    (tmp_path / "experiment.toml").write_text((folder / "experiment.toml").read_text())
    experiments = read(tmp_path / "experiment.toml", ["rounds=20", "seeds=2", "metrics.value=0.6"])
    assert [e.selector for e in experiments] == [strategy("rand", m=3), *(PowerOfChoice(3, d) for d in (6, 12))]
    for result in run(experiments, tmp_path / "runs"):
        assert (result.rounds_to("test_accuracy", 0.6) <= 20).all()


# The command line


TOML = """
rounds = 6
seeds = 2
data = { kind = "quadratic", K = 6 }
model = { kind = "quadratic" }
local = { tau = 2, b = 1, eta = 1e-4 }
metrics = { target = "loss", value = 1e9 }
[[selector]]
kind = "rand"
m = 2
[[selector]]
kind = "pow-d"
m = 2
d = 3
"""


def command(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


@pytest.fixture
def toml(tmp_path):
    (tmp_path / "experiment.toml").write_text(TOML)
    return tmp_path / "experiment.toml"


def test_from_the_command_line(toml, tmp_path):
    answer = command(toml, "-o", tmp_path / "runs", "--csv", tmp_path / "all.csv", "--tensorboard", tmp_path / "board")
    assert answer.exit_code == 0, answer.output
    assert "4 runs are to be done" in answer.output
    assert "pow-d, m = 2, d = 3" in answer.output
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["seed"], row["selector"]) for row in rows} == {
        (seed, name) for seed in "01" for name in ("rand, m = 2", "pow-d, m = 2, d = 3")
    }
    assert len(list((tmp_path / "board").iterdir())) == 4  # a folder for each run, strategies apart
    again = command(toml, "-o", tmp_path / "runs", "--set", "seeds=3", "--quiet")
    assert "to be done" not in again.output
    assert len(list(RunStore(tmp_path / "runs").identities())) == 6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "selector.d=1"], "must lie in a table, and selector is a list of 2"),
        (["--set", "local.tau=x"], "local.tau must be a whole number, got 'x'"),
        (["--set", 'data={kind="arrays", path="none.npz"}'], "path must be an .npz file"),
        (["--set", 'selector={kind="pow-d", m=2, d=60}'], "d must be at most K=6, got 60"),
        (["--set", "rounds=[5, 6]", "--csv", "all.csv"], "must have the same rounds"),
    ],
)
def test_wrong_uses_are_one_sentence(arguments, sentence, toml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = command(toml, "-o", tmp_path / "runs", "--quiet", *arguments)
    assert answer.exit_code == 1
    assert sentence in answer.output
    assert not (tmp_path / "all.csv").exists()
    assert not list((tmp_path / "runs").glob("under-way/*"))
    with pytest.raises((ValueError, OSError)):
        CliRunner().invoke(app, ["run", str(toml), "-o", "r", "-q", "--debug", *arguments], catch_exceptions=False)


def test_ctrl_c_says_what_is_kept(toml, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedpick.experiment.run.play", interrupted)
    answer = command(toml, "-o", tmp_path / "runs")
    assert answer.exit_code == 1
    assert f"what is done is kept in {tmp_path / 'runs'}; the same command goes on from there" in answer.output


def test_the_bar_over_everything(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fedpick.cli._common.time.monotonic", lambda: now[0])
    with ProgressBar(100.0) as whole:  # no terminal: a line every ten seconds
        for part in (0.0, 0.5, 1.0):
            now[0] += 11
            whole.at("loss 1", 50.0, part)
        whole.note("an item")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "  0%, about 0 s left: loss 1", " 25%, about 66 s left: loss 1", " 50%, about 33 s left: loss 1", "an item"
    ]  # fmt: skip
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with ProgressBar(100.0) as whole:
        whole.at("loss 2", 100.0, 1.0)
        whole.note("an item")
    assert "an item" in capsys.readouterr().err
    with ProgressBar(0.0) as whole:
        whole.at("nothing to do", 1.0, 1.0)
    assert capsys.readouterr().err == ""


def test_labels_may_have_any_names_but_no_fractions(tmp_path):
    path = tmp_path / "named.npz"
    clients = np.arange(12) % 3
    words, test = np.array(["cat", "dog", "ant"])[clients], {"test_x": np.ones((1, 2)), "test_y": np.array(["dog"])}
    np.savez(path, x=np.ones((12, 2)), y=words, client=clients, **test)
    federation = Arrays(str(path)).federation(None)
    assert federation.classes == 3
    assert federation.test_y.tolist() == [2]
    np.savez(path, x=np.ones((12, 2)), y=np.where(clients == 0, 7, 10**6), client=clients)
    assert Arrays(str(path), test_share=0).federation(None).classes == 2
    np.savez(path, x=np.ones((12, 2)), y=clients + 0.5, client=clients)
    with pytest.raises(ValueError, match=r"must be labels, whole numbers or words, got 0\.5"):
        Arrays(str(path)).federation(None)
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"must be an \.npz of plain arrays, got .* \(it is no archive"):
        Arrays(str(path)).federation(None)
