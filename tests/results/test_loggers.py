"""What a watch sees while a simulation runs, and what TensorBoard and MLflow hold after."""

import contextlib
import functools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Full, Rand
from fedpick.metrics import METRICS
from fedpick.results import MLflow, TensorBoard
from fedpick.sim import Digits, Local, Logistic, Quadratic, QuadraticModel, simulate, simulation
from fedpick.sim._engine.batching import Bundles
from fedpick.sim.partition import IID


@pytest.fixture
def play(monkeypatch):
    """Four runs of twenty rounds in chunks of ten, evaluated after every five."""
    monkeypatch.setattr(simulation, "CHUNK", 10)
    local, options = Local(1, 1, jnp.array([1e-3, 2e-3])), {"rounds": 20, "every": 5, "seeds": 2}
    return functools.partial(simulate, Quadratic(K=4, v=2), QuadraticModel(), Rand(2), local, **options)


def same(one, other):
    for mine, theirs in ((one.metrics, other.metrics), (one.records, other.records)):
        for name, table in mine.items():
            np.testing.assert_array_equal(table, theirs[name])
            assert table.dtype == theirs[name].dtype
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    assert (one.runs, one.model_bytes, one.finished) == (other.runs, other.model_bytes, other.finished)


def test_a_watch_sees_the_result_so_far_in_this_thread_and_changes_nothing(play):
    seen, threads = [], []

    def watch(result):
        seen.append(result)
        threads.append(threading.current_thread())

    result = play(watch=watch)
    same(result, play())
    assert threads == [threading.current_thread()] * 3
    assert [part.evaluated.tolist() for part in seen] == [[0], [0, 5, 10], [0, 5, 10, 15, 20]]
    assert [part.rounds for part in seen] == [0, 10, 20]
    assert [part.finished for part in seen] == [False, False, True]
    for part in seen:
        for name, table in part.metrics.items():
            np.testing.assert_array_equal(table, result.metrics[name][:, : len(part.evaluated)])
        for name, table in part.records.items():
            np.testing.assert_array_equal(table, result.records[name][:, : part.rounds])
            assert table.dtype == result.records[name].dtype
        assert (part.runs, part.model_bytes, part.params) == (result.runs, result.model_bytes, None)
        assert part.counts.sum() == 4 * part.rounds * 2
        assert len(part.to_frame()) == 4 * len(part.evaluated)
        assert len(part.to_frame(by="round")) == 4 * part.rounds


def test_a_watch_cannot_change_the_result(play):
    def meddle(result):
        result.runs[0]["seed"] = 77
        result.metrics.clear()
        result.records["weights"][:] = 0

    with pytest.raises(ValueError, match="read-only"):
        play(watch=meddle)

    def meddle_quietly(result):
        result.runs[0]["seed"] = 77
        result.metrics.clear()

    same(play(watch=meddle_quietly), play())


def test_before_the_first_round_there_is_a_seat_for_everybody_too():
    seen = []
    simulate(Quadratic(K=4, v=2), QuadraticModel(), Full(), Local(1, 1, 1e-3), rounds=1, watch=seen.append)
    assert [part.records["clients"].shape for part in seen] == [(1, 0, 4), (1, 1, 4)]


def test_a_resumed_simulation_shows_all_that_is_done_and_a_watch_is_no_part_of_it(play, tmp_path):
    file = tmp_path / "run.npz"
    play(checkpoint=file, until=("loss", 1e12))  # reached before the first round
    assert not file.exists()
    real, calls = Bundles.play, []

    def killed(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise SystemError("killed")
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bundles, "play", killed)
        with pytest.raises(SystemError, match="killed"):
            play(checkpoint=file)
    for expected in ([10, 20], [20]):
        seen = []
        same(play(checkpoint=file, watch=seen.append), play())
        assert [part.rounds for part in seen] == expected
        assert [len(part.evaluated) for part in seen] == [rounds // 5 + 1 for rounds in expected]


def test_ctrl_c_in_a_watch_returns_what_is_done_and_its_error_is_not_swallowed(play, caplog):
    def interrupt(at, result):
        if result.rounds == at:
            raise KeyboardInterrupt

    for rounds in (0, 10):
        result = play(watch=functools.partial(interrupt, rounds))
        assert (result.rounds, result.finished) == (rounds, False)
        assert f"stopped after round {rounds} of 20" in caplog.text

    def fail(result):
        raise RuntimeError("my own mistake")

    with pytest.raises(RuntimeError, match="my own mistake"):
        play(watch=fail)
    with pytest.raises(ValueError, match="simulate: watch must be something to call with a Result, got 'loss'"):
        play(watch="loss")


HOST = """
import json, sys
import jax
port, host = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(host))
from fedpick import Rand
from fedpick.sim import Local, Quadratic, QuadraticModel, simulate, simulation
simulation.CHUNK = 2
seen = []
watch = lambda result: seen.append([result.rounds, result.metrics["loss"].tolist()])
problem = Quadratic(K=4, v=2).federation(), QuadraticModel(), Rand(2), Local(1, 1, 1e-3)
result = simulate(*problem, rounds=4, every=2, seeds=3, watch=watch)
print(json.dumps({"seen": seen, "loss": result.metrics["loss"].tolist()}))
"""


@pytest.mark.slow
def test_of_several_hosts_the_first_watches_all_runs():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    settings = {**os.environ, "JAX_PLATFORMS": "cpu"}
    commands = [[sys.executable, "-c", HOST, str(port), host] for host in "01"]
    pair = [subprocess.Popen(command, env=settings, **pipes) for command in commands]
    found = [process.communicate(timeout=240) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], found
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in found)
    assert second["seen"] == []
    assert [rounds for rounds, _ in first["seen"]] == [0, 2, 4]
    for place, (_, loss) in enumerate(first["seen"]):
        assert loss == [run[: place + 1] for run in first["loss"]]


def test_several_hosts_of_which_one_has_no_watch_do_not_wait_for_ever(play, monkeypatch):
    monkeypatch.setattr("fedpick.sim._engine.multihost.several", lambda: True)
    monkeypatch.setattr("fedpick.sim._engine.multihost._from_all", lambda mine: np.array([mine, 0]))
    with pytest.raises(ValueError, match=r"watch must be given to every host .* or to none, got 1, 0 on the 2 hosts"):
        play(watch=print)


def events(folder):
    """What is in the folder's files, read by the format's description: length, its sum, an event, its sum."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return found


def scalars(folder):
    """By metric the steps and values, less what a restart hides."""
    kept = []
    for event in events(folder):
        if event.HasField("session_log"):
            kept = [old for old in kept if old.step < event.step]
        kept.append(event)
    found = {}
    for event in kept:
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def expected(result, run):
    """The same of a result, without NaN."""
    rows = {
        name: list(zip(result.evaluated.tolist(), result.metric(name)[run].tolist(), strict=True)) for name in METRICS
    }
    rows = {name: [(step, value) for step, value in row if not np.isnan(value)] for name, row in rows.items()}
    return {name: row for name, row in rows.items() if row}


NAMES = [f"seed={seed},eta={eta}" for eta in (0.001, 0.002) for seed in (0, 1)]


def test_tensorboard_has_each_evaluation_of_each_run_once(play, tmp_path):
    with TensorBoard(tmp_path) as board:
        result = play(watch=board)
        board(result)
        board(result)
    board(result)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    for run, name in enumerate(NAMES):
        found = events(tmp_path / name)
        assert found[0].file_version == "brain.Event:2"
        assert [event.step for event in found if event.HasField("summary")] == [0, 5, 10, 15, 20]
        assert scalars(tmp_path / name) == expected(result, run)
        assert {"test_loss", "test_accuracy"}.isdisjoint(scalars(tmp_path / name)), "there is no test set"
        assert [step for step, _ in scalars(tmp_path / name)["skew"]] == [5, 10, 15, 20]


def test_tensorboard_can_be_read_while_the_simulation_runs(play, tmp_path):
    seen = []
    with TensorBoard(tmp_path) as board:

        def watch(result):
            board(result)
            seen.append([step for step, _ in scalars(tmp_path / NAMES[0])["loss"]])

        play(watch=watch)
    assert seen == [[0], [0, 5, 10], [0, 5, 10, 15, 20]]


def test_tensorboard_after_a_restart_has_each_evaluation_once(play, tmp_path):
    file, folder = tmp_path / "run.npz", tmp_path / "board"
    parts = []
    result = play(checkpoint=file, watch=parts.append)
    with TensorBoard(folder) as board:
        board(parts[1])
    with TensorBoard(folder) as another:  # another process, and the checkpoint
        play(checkpoint=file, watch=another)
    for run, name in enumerate(NAMES):
        assert len(list((folder / name).iterdir())) == 2
        assert scalars(folder / name) == expected(result, run)
    with board:  # the same again, from where it was
        board(result)
    assert scalars(folder / NAMES[3]) == expected(result, 3)


def test_another_simulation_needs_another_watch(play, tmp_path):
    with TensorBoard(tmp_path) as board:
        play(watch=board)
        sentence = "TensorBoard: result must continue the last one, got another simulation's; give each"
        for other in ({"seeds": [0, 7]}, {"seeds": 3}):
            with pytest.raises(ValueError, match=sentence):
                play(watch=board, **other)
        play(watch=board)


def test_runs_that_nothing_distinguishes_are_numbered(tmp_path):
    federations = [Digits(IID(4), seed=seed) for seed in (0, 1)]
    with TensorBoard(tmp_path) as board:
        simulate(federations, Logistic(), Rand(2), Local(1, 8, 0.001), rounds=5, every=5, seeds=[3, 3], watch=board)
    assert sorted(path.name for path in tmp_path.iterdir())[:2] == ["seed=3,run=0", "seed=3,run=1"]


# MLflow asks SQLAlchemy 2.1 for a way of loading that it will not have for ever.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_mlflow_has_each_evaluation_of_each_run_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulation, "CHUNK", 100)
    monkeypatch.setattr("fedpick.results.loggers.MLFLOW_BATCH", 20)
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    play = functools.partial(simulate, Digits(IID(5)).federation(), Logistic(), Rand(2), rounds=200, every=50)
    with MLflow("trial", store) as log:
        result = play(Local(1, 8, jnp.array([0.1, 0.2])), watch=log)
        log(result)
    from mlflow import MlflowClient, get_tracking_uri

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("trial")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(found) == ["seed=0,eta=0.1", "seed=0,eta=0.2"]
    for number, run in enumerate(found[name] for name in sorted(found)):
        assert run.info.status == "FINISHED"
        assert run.data.params == {name: str(value) for name, value in result.runs[number].items()}
        assert sorted(run.data.metrics) == sorted(METRICS)
        for name, rows in expected(result, number).items():
            history = client.get_metric_history(run.info.run_id, name)
            assert [(row.step, row.value) for row in history] == rows
    for error, status in ((KeyboardInterrupt, "KILLED"), (SystemError, "FAILED")):
        with contextlib.suppress(error), MLflow("trial", store) as log:
            log(result.where(eta=0.2))
            raise error
        assert len(client.search_runs([experiment.experiment_id], f"status = '{status}'")) == 1
    assert store != get_tracking_uri(), "MLflow's own settings are left alone"
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


def test_what_is_missing_is_one_sentence_and_nothing_is_imported_before_it_is_needed(monkeypatch, tmp_path):
    for package, extra, make in (("tensorboardX", "tensorboard", TensorBoard), ("mlflow", "mlflow", MLflow)):
        monkeypatch.setitem(sys.modules, package, None)
        name = make.__name__
        pip = rf"pip install 'fedpick\[{extra}\]', or '.\[{extra}\]' in a clone"
        sentence = rf"^{name}: needs {package}; install it with {pip}$"
        with pytest.raises(ModuleNotFoundError, match=sentence):
            make(str(tmp_path))
    code = (
        "import sys, fedpick.results as results; results.TensorBoard('board'); results.MLflow();"
        "print([name for name in ('pandas', 'polars', 'tensorboardX', 'mlflow', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that MLflow leaves open
def test_a_server_that_does_not_answer_is_told_in_seconds(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    began = time.monotonic()
    with pytest.raises(ValueError, match="MLflow: tracking_uri must be a store of MLflow's"):
        MLflow(tracking_uri="http://127.0.0.1:9").check()
    assert time.monotonic() - began < 60
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
