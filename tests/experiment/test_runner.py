"""Running experiments: stored once, resumed where they were, never mixed up."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support.experiments import plain, small

from fedpick import PowerOfChoice, strategy
from fedpick.experiment import Metrics, from_plain, load_results, missing, read, run
from fedpick.storage import RunStore


def test_a_run_is_kept_and_not_run_again(tmp_path):
    experiments = from_plain(
        plain("selector.d=[3, 4]", "metrics.model=true", "metrics.target=loss", "metrics.value=1e9")
    )
    first = run(experiments, tmp_path)
    watched = []
    again = run(experiments, tmp_path, watch=lambda batch, so_far: watched.append(batch))
    assert not watched
    for one, other in zip(first, again, strict=True):
        assert one.runs == other.runs
        np.testing.assert_array_equal(one.metrics["loss"], other.metrics["loss"])
    assert [r["selector.d"] for r in first[0].runs] == [3, 3]

    identity = experiments[0].identity(0)
    folder = tmp_path / "runs" / identity
    assert sorted(path.name for path in folder.iterdir()) == ["experiment.json", "result.npz", "summary.json"]
    about = json.loads((folder / "experiment.json").read_text())
    assert from_plain(about["experiment"])[0].identity(0) == identity
    assert set(about["versions"]) == {"python", "fedpick", "jax", "jaxlib", "numpy", "optax", "flwr"}
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
        load_results(small(rounds=9), RunStore(tmp_path))


@pytest.mark.parametrize("what", ["result.npz", "experiment.json", "summary.json"])
def test_a_truncated_file_is_named_and_the_run_done_again(what, tmp_path, caplog):
    (before,) = run(small(), tmp_path)
    path = tmp_path / "runs" / small().identity(1) / what
    path.write_bytes(path.read_bytes()[:20])
    (after,) = run(small(), tmp_path)
    np.testing.assert_array_equal(before.metrics["loss"], after.metrics["loss"])
    said = caplog.text
    assert small().identity(1) in said
    assert "is not a complete run" in said
    assert list((tmp_path / "runs").glob(".broken-*"))


def test_a_run_of_another_format_is_not_played_again(tmp_path):
    run(small(), tmp_path)
    path = tmp_path / "runs" / small().identity(1) / "experiment.json"
    path.write_text(changed := path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(ValueError, match=r"its format is 3, and this fedpick reads format 2\); it is left alone"):
        run(small(), tmp_path)
    assert path.read_text() == changed


def test_a_run_under_a_false_name_is_not_taken(tmp_path, caplog):
    run(small(), tmp_path)
    (tmp_path / "runs" / small().identity(0)).rename(tmp_path / "runs" / small(rounds=7).identity(0))
    (result,) = run(small(rounds=7), tmp_path)
    assert result.rounds == 7
    assert "it is the run" in caplog.text


def test_a_file_in_the_place_of_a_run_is_put_aside(tmp_path, caplog):
    RunStore(tmp_path)
    (tmp_path / "runs" / small().identity(0)).write_text("mine")
    (result,) = run(small(), tmp_path)
    assert result.rounds == 6
    assert "is not a complete run" in caplog.text
    (aside,) = (tmp_path / "runs").glob(".broken-*")
    assert aside.read_text() == "mine"


def test_unknown_files_are_left_alone(tmp_path, caplog):
    store = RunStore(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "under-way").mkdir()
    (tmp_path / "under-way" / "bad.json").write_text("{")
    run(small(), tmp_path)
    (tmp_path / "runs" / small().identity(0) / "more.txt").write_text("mine")
    assert [path.name for path in store.unknown_files()] == ["notes.txt", "more.txt", "notes.txt"]
    assert "bad.json: not written by fedpick" in caplog.text
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"store: folder .* cannot be written to"):
        RunStore(tmp_path / "file")


def test_findings_are_kept_and_mended(tmp_path, caplog):
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
    assert "is not a complete finding" in caplog.text
    for path in (tmp_path / "findings").glob("*.json"):
        path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    store.cached_result("skews", {"K": 3}, compute)
    assert len(calls) == 4
    assert "its format is 1, and this fedpick reads format 2" in caplog.text


@pytest.mark.no_cover
def test_interrupted_in_the_middle_it_goes_on_however_short_it_was_guessed_to_be(tmp_path):
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


def test_a_truncated_checkpoint_is_named_and_the_work_begins_anew(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("fedpick.experiment.runner.LONG", 0.0)
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
    assert "is not a complete fedpick file" in caplog.text
    assert [path.suffix for path in (tmp_path / "under-way").iterdir()] == [".broken"]


def test_killed_between_two_runs_the_batch_is_finished_as_it_was(tmp_path, monkeypatch):
    found = from_plain(plain("selector.d=[3, 4]"))
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
import signal, sys, time
from fedpick.experiment import from_plain, run
import fedpick.experiment.runner
import json
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
fedpick.experiment.runner.LONG = 0.0
plain = json.loads(sys.argv[2])
def watch(batch, so_far):
    print(so_far.rounds, flush=True)
    if so_far.rounds >= int(sys.argv[3]):
        time.sleep(60)  # until it is killed, however busy the machine is
run(from_plain(plain), sys.argv[1], watch)
"""


def start(folder, data, hold=10**9):
    environment = {**os.environ, "FEDPICK_CACHE": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), json.dumps(data), str(hold)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.no_cover
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_for_real_it_goes_on(how, tmp_path):
    data = plain("rounds=600", "metrics.every=10")
    with start(tmp_path / "a", data, hold=200) as process:
        for line in process.stdout:
            if int(line) >= 200:
                process.send_signal(how)
                break
        process.communicate(timeout=50)  # before it wakes up
    assert process.returncode == -how
    (after,) = run(from_plain(data), tmp_path / "a")
    (whole,) = run(from_plain(data), tmp_path / "b")
    np.testing.assert_array_equal(after.metrics["loss"], whole.metrics["loss"])
    assert not [path for path in (tmp_path / "a" / "runs").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_two_at_once_in_one_folder(tmp_path):
    data = plain("rounds=500", "metrics.every=10", "selector.d=[3, 4]")
    processes = [start(tmp_path, data) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    outputs = sorted((len(out), error) for out, error in answers)
    assert outputs[0][0] == 0  # the second found everything done
    assert "another fedpick is at work" in outputs[0][1]
    for experiment in from_plain(data):
        assert load_results(experiment, RunStore(tmp_path)).rounds == 500


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
