"""The folder of a federation: one server at a time, watched by anybody, and nothing in it grows faster than it must."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM
from support.fake_grid import FakeGrid, named_app, plain_app, zeros

from fedpick import PowerOfChoice, Rand
from fedpick.flower import Selecting
from fedpick.flower.history import History, RoundRow
from fedpick.storage import RunStore, load_state, save_state

OPTIONS = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3}


def started(folder, rounds, app=None, model=None, evaluate=0.0, dies=False):
    strategy = Selecting(FedAvg(fraction_evaluate=evaluate), PowerOfChoice(m=2, d=4), seed=4, folder=folder, **OPTIONS)
    if dies:
        strategy.configure_evaluate = lambda server_round, *rest: 1 / 0 if server_round == rounds else ()
    grid = FakeGrid(app or plain_app(), range(4))
    try:
        strategy.start(grid, zeros() if model is None else model, num_rounds=rounds, timeout=0.3)
    except ZeroDivisionError:
        assert dies
    return strategy, grid


def test_another_server_in_the_folder_is_refused(tmp_path):
    code = (
        "import sys, pathlib; from fedpick.storage import RunStore\n"
        "held = RunStore(sys.argv[1]).occupy(owner='test'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        store = RunStore(tmp_path)
        with pytest.raises(ValueError, match=r"Selecting: folder '.*' must not be in use by another process"):
            store.occupy(owner="Selecting", wait=0.1)
        other.stdin.close()
    started(tmp_path, 1)
    started(tmp_path, 2)  # and each gives it back


def test_a_reader_leaves_alone_what_a_server_writes(tmp_path, caplog):
    with RunStore(tmp_path).occupy(owner="test"):
        code = (
            "import sys, logging; from fedpick.storage import RunStore\n"
            "logging.basicConfig(); print(RunStore(sys.argv[1]).load('half'))"
        )
        (tmp_path / "runs" / "half").mkdir()
        (tmp_path / "runs" / "half" / "summary.json").write_text("{}")
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
        assert done.stdout == "None\n"
        assert "while another fedpick is at work; left out" in done.stderr
        assert (tmp_path / "runs" / "half").exists()
    assert RunStore(tmp_path).load("half") is None  # now nobody writes: it is set aside
    assert not (tmp_path / "runs" / "half").exists()
    assert "moved to .broken-half" in caplog.text


def test_a_server_outlives_a_reader_in_a_tight_loop(tmp_path):
    done, read = threading.Event(), []

    def reading():
        while not done.is_set():
            store = RunStore(tmp_path)
            store.unknown_files(["state"])
            read.extend(run for identity in store.identities() if (run := store.load(identity)) is not None)

    reader = threading.Thread(target=reading)
    reader.start()
    strategy, _ = started(tmp_path, 20)
    done.set()
    reader.join()
    assert len(strategy.history.rows) == 20
    assert read
    assert not list((tmp_path / "runs").glob(".broken-*"))


def test_the_folder_of_another_federation_is_refused(tmp_path):
    names = {k: f"a{k}" for k in range(4)}
    started(tmp_path, 3, named_app(names))
    other = ArrayRecord({"w": Array(np.ones(3, np.float32))})
    with pytest.raises(ValueError, match=r"and none of the clients that are here is of it, got .*name=a0"):
        started(tmp_path, 3, named_app({k: f"b{k}" for k in range(4)}), other)
    again, _ = started(tmp_path, 4, named_app(names), other)  # a first model that is random each time
    assert len(again.history.rows) == 4
    mixed, _ = started(tmp_path, 5, named_app({**names, 0: "new"}), other)
    assert len(mixed.history.rows) == 5


def test_other_clients_are_another_federation_although_it_begins_with_the_same_model(tmp_path):
    started(tmp_path, 2, named_app({k: f"a{k}" for k in range(4)}))
    with pytest.raises(ValueError, match=r"folder must be of this federation, and none of the clients .*\['name=a0'"):
        started(tmp_path, 3, named_app({k: f"b{k}" for k in range(4)}))
    again, _ = started(tmp_path, 3, named_app({0: "a0", 1: "b1", 2: "b2", 3: "b3"}))  # some have left, others joined
    assert len(again.history.rows) == 3


@pytest.mark.parametrize(
    ("changed", "which"),
    [
        ({"seed": 5}, "seed was 4, and is now 5"),
        ({"clients": 5}, "clients was 4, and is now 5"),
        ({"selector": Rand(m=2)}, r"selector was PowerOfChoice\(m=2, d=4, .*\), and is now Rand\(m=2.*\)"),
        ({"strategy": FedAvgM(fraction_evaluate=0.0)}, "strategy was FedAvg, and is now FedAvgM"),
        ({"model": zeros(5)}, r"model was \{'w': \(3,\)\}, and is now \{'w': \(5,\)\}"),
        ({"size_cap": None}, "size_cap was 2, and is now None"),
        ({"loss_range": (0, 9.5)}, r"loss_range was \(0, inf\), and is now \(0, 9.5\)"),
        ({"fallback": "skip"}, "fallback was 'rand', and is now 'skip'"),
        ({"weights": "examples"}, "weights was 'selection', and is now 'examples'"),
        ({"identity": "node"}, "identity was 'reported', and is now 'node'"),
        ({"sizes": {"partition-id=1": 5.0}}, r"sizes\['partition-id=1'\] was 7, and is now 5"),
        (
            {"sizes": None, "batch": 8},
            r"batch was None, and is now 8; sizes\['partition-id=1'\] was 7, and is now not given",
        ),
    ],
)
def test_the_setting_that_differs_from_those_of_the_folder_is_named(tmp_path, changed, which):
    def play(rounds, **changed):
        settings = {"strategy": FedAvg(fraction_evaluate=0.0), "selector": PowerOfChoice(m=2, d=4), **changed}
        inside = settings.pop("strategy"), settings.pop("selector")
        model = settings.pop("model", zeros())
        given = {"seed": 4, "clients": 4, "size_cap": 2.0, "sizes": {"partition-id=1": 7}, **OPTIONS, **settings}
        ours = Selecting(*inside, folder=tmp_path, **given)
        ours.start(FakeGrid(plain_app(), range(4)), model, num_rounds=rounds, timeout=0.3)
        return ours

    play(1)
    whole = rf"^Selecting: state '.*' belongs to another run: its settings differ from these \({which}\); give this"
    with pytest.raises(ValueError, match=whole):
        play(2, **changed)
    waiting = {
        "poll_timeout": 0.5,
        "outage": 1.0,
        "min_clients": 2,
        "quarantine": 3,
        "size_cap": 2,
        "seed": np.int64(4),
    }
    more = {"sizes": {"partition-id=1": 7.0, "partition-id=9": 3}}  # of a client that joins later
    assert len(play(2, **waiting, **more).history.rows) == 2


def test_damaged_states_do_not_have_new_ones_deleted(tmp_path):
    started(tmp_path, 10)
    for path in (tmp_path / "state").glob("*.state"):
        path.write_bytes(path.read_bytes()[:-50])
    begun, _ = started(tmp_path, 3)
    assert len(begun.history.rows) == 3
    again, grid = started(tmp_path, 4)
    assert len(grid.sent("train")) == 2
    assert len(again.history.rows) == 4


def test_a_state_with_other_content_is_refused_in_a_sentence(tmp_path):
    started(tmp_path, 2)
    for path in (tmp_path / "state").glob("*.state"):
        owner = json.loads(path.read_bytes().split(b"\n", 1)[0])["owner"]
        state = load_state(path, owner=owner, what="test")
        del state.facts["identities"]
        save_state(path, state, owner=owner, what="test")
    with pytest.raises(ValueError, match=r"has content that this fedpick cannot read \(KeyError: 'identities'\)"):
        started(tmp_path, 4)


def test_what_a_kill_leaves_is_swept_and_what_it_took_is_measured_again(tmp_path):
    started(tmp_path, 3, evaluate=1.0, dies=True)
    (tmp_path / "state" / ".part-xyz").write_bytes(b"0" * 100)
    (tmp_path / "runs" / ".part-xyz").mkdir()
    again, grid = started(tmp_path, 4, evaluate=1.0)
    assert not list(tmp_path.rglob(".part-*"))
    assert sorted(again.history.measured) == [3, 4]  # the server was killed before the evaluation of round 3
    assert np.isfinite(again.history.measured[3]["loss"])
    assert len(grid.sent("train")) == 2


def test_what_is_written_is_linear_in_the_rounds(tmp_path, monkeypatch):
    written = {"state": 0, "runs": 0}
    import fedpick.storage.atomic as atomic

    whole = atomic.os.replace

    def replace(source, target):
        kind = "state" if "state" in str(target) else "runs"
        if atomic.Path(source).is_file():
            written[kind] += atomic.Path(source).stat().st_size
        whole(source, target)

    monkeypatch.setattr(atomic.os, "replace", replace)
    row = RoundRow([1] * 20, [0.05] * 20, 1.0, 100, 20, 20, 20, 1.0, 1.0, 0.1)
    strategy = Selecting(FedAvg(fraction_evaluate=0.0), Rand(m=2), folder=tmp_path, **OPTIONS)
    strategy.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=1, timeout=0.3)
    totals = []
    for _ in range(2):
        for _ in range(80):
            strategy.adapter.state.history.rows.append(row)
            strategy.adapter.save()
        totals.append(sum(written.values()) + (tmp_path / "state" / "history.jsonl").stat().st_size)
    assert totals[1] < 2.2 * totals[0]  # and three times as much where all is written in each round
    again = Selecting(FedAvg(fraction_evaluate=0.0), Rand(m=2), folder=tmp_path, **OPTIONS)
    again.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=161, timeout=0.3)
    assert again.history.rows[1:] == strategy.history.rows[1:]


def test_a_history_comes_back_from_its_journal():
    rows = [RoundRow([t], [1.0], 0.5, 4, 2, 1, 1, 9.0, 1.0, 0.1) for t in range(5)]
    history = History(list(rows), {0: {"loss": 1.0}, 3: {"loss": 0.5}}, [{"d": float(t)} for t in range(5)], {2: "why"})
    assert History.from_entries(history.to_entries(0), 5) == history
    parts = [*history.to_entries(0), {"round": 4, "row": list(rows[0]), "status": {"d": 7.0}, "note": None}]
    replayed = History.from_entries(parts, 5)
    assert replayed.rows == [*rows[:4], rows[0]]
    assert replayed.status[4] == {"d": 7.0}
    assert len(History.from_entries(history.to_entries(0), 3).rows) == 3
    lost = History.from_entries(history.to_entries(0)[1:], 5)
    assert lost.rows[0].clients == []
    assert lost.rows[1:] == rows[1:]


def test_a_record_between_training_and_evaluation_ends_with_what_was_measured():
    rows = [RoundRow([0], [1.0], 0.5, 1, 0, 1, 1, 0.0, 1.0, 1.0)] * 3
    arrays = History(rows, {1: {"loss": 0.9}, 2: {"loss": 0.7}}).to_arrays(np.ones(1))
    np.testing.assert_array_equal(arrays["evaluated"], [0, 1, 2])
    np.testing.assert_allclose(arrays["metrics/loss"], [np.nan, 0.9, 0.7], rtol=1e-6)
    assert len(arrays["records/train_loss"]) == 3
    assert len(History(rows).to_arrays(np.ones(1))["evaluated"]) == 4  # where nothing was ever measured
