"""Availability and speeds of real devices, from files."""

import json
import os
import pickle

import jax
import numpy as np
import pytest

from fedpick import Rand
from fedpick.compare import Choices, make_experiments
from fedpick.experiment import from_plain
from fedpick.sim import Federation, Local, Logistic, Names, TraceFile, read_devices, simulate

KEY = jax.random.key(0)


def there(trace, K, rounds):
    return np.stack([trace(KEY, t, K) for t in range(rounds)])


def test_a_table_has_a_row_for_each_round(tmp_path):
    present = np.random.default_rng(0).random((4, 3)) < 0.5
    np.savez(tmp_path / "t.npz", present=present)
    lines = ["a,b,c", *(",".join(map(str, row.astype(int))) for row in present)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "T.CSV").write_text("\n".join(lines))
    for name in ("t.npz", "t.csv", "T.CSV"):
        found = there(TraceFile(str(tmp_path / name)), 3, 8)
        np.testing.assert_array_equal(found, np.tile(present, (2, 1)))
    with pytest.raises(ValueError, match="a column for each of K=5 clients, got 3"):
        TraceFile(str(tmp_path / "t.csv"))(KEY, 0, 5)
    (tmp_path / "t.csv").write_text("a,b\n0,7\n")
    with pytest.raises(ValueError, match=r"must hold 0 and 1 alone, .*, got 7 in line 2, column b; leave out columns"):
        TraceFile(str(tmp_path / "t.csv"))(KEY, 0, 2)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a,b\n0,1\n1,\n", "nan in line 3, column b"),
        ("day,a,b\nMon,0,1\nTue,1,1\n", "'Mon' in line 2, column day"),
        ("a,b,hour\n0,1,7\n1,1,8\n", "7 in line 2, column hour"),
        ("0,1,1\n1,3,0\n", "3.0 in line 2, column 2"),
    ],
)
def test_what_is_neither_0_nor_1_is_named_by_line_and_column(content, found, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=f"must hold 0 and 1 alone, .*, got {found}; leave out columns"):
        TraceFile(str(tmp_path / "t.csv"))(KEY, 0, 2)
    np.savez(tmp_path / "t.npz", present=np.array([[0, 1], [1, 5]]))
    with pytest.raises(ValueError, match="got 5 in row 1, column 1"):
        TraceFile(str(tmp_path / "t.npz"))(KEY, 0, 2)


@pytest.mark.parametrize(
    "content",
    [
        "round,a,b\n0,1,0\n1,0,0\n2,1,1\n",
        "round,a,b\n1,1,0\n2,0,0\n3,1,1\n",
        ",a,b\n0,1,0\n1,0,0\n2,1,1\n",
        "0,1,0\n1,0,0\n2,1,1\n",
    ],
)
def test_a_first_column_that_counts_the_rounds_is_left_out(content, tmp_path, caplog):
    (tmp_path / "t.csv").write_text(content)
    found = there(TraceFile(str(tmp_path / "t.csv")), 2, 3)
    np.testing.assert_array_equal(found, np.array([[1, 0], [0, 0], [1, 1]], bool))
    assert "the first column of" in caplog.text
    (tmp_path / "t.csv").write_text("a,b\n0,1\n1,0\n")  # which counts, and may be a client
    np.testing.assert_array_equal(there(TraceFile(str(tmp_path / "t.csv")), 2, 2), np.array([[0, 1], [1, 0]], bool))


def test_columns_with_the_names_of_clients_are_theirs(tmp_path, caplog):
    rng, path = np.random.default_rng(0), str(tmp_path / "named.csv")
    names = Names(clients=("Aachen", "Bonn", "Essen"))
    samples = (rng.normal(size=(12, 2)), np.arange(12) % 2, np.repeat(np.arange(3), 4))
    federation = Federation.from_arrays(*samples, names=names)

    def trained(header, row):
        (tmp_path / "named.csv").write_text(f"{header}\n{row}\n")
        played = simulate(federation, Logistic(), Rand(m=1), Local(1, 2, 0.1), rounds=3, availability=TraceFile(path))
        return set(played.records["clients"].ravel().tolist())

    assert trained("Essen,Bonn,Aachen", "1,0,0") == {2}
    assert trained("Bonn,other,Essen,Aachen", "1,1,0,0") == {1}
    assert not caplog.records
    assert trained("one,two,three", "1,0,0") == {0}
    assert "has none of the clients' names: its columns are the clients in their order" in caplog.text
    with pytest.raises(ValueError, match=r"must have a column for each client, got none for Bonn"):
        trained("Essen,Aachen,more", "1,0,0")


@pytest.mark.parametrize(
    ("header", "client"), [("2,1,0", 2), ("t,4,2,1,0,3", 0), ("0,2,1", 0), ("1,2,3", 0), ("a,b,c", 0), ("3,2,1", None)]
)
def test_columns_with_the_numbers_of_clients_are_theirs(header, client, tmp_path, caplog):
    path, samples = tmp_path / "numbered.csv", (np.ones((12, 2)), np.arange(12) % 2, np.repeat(np.arange(3), 4))
    federation = Federation.from_arrays(*samples)
    path.write_text("\n".join([header, *([f"{t},1,0,0,1,1" for t in range(3)] if "t" in header else ["1,0,0"])]))

    def play():
        trace = TraceFile(str(path))
        return simulate(federation, Logistic(), Rand(m=1), Local(1, 2, 0.1), rounds=3, availability=trace)

    if client is None:
        with pytest.raises(ValueError, match=r"must name its columns in the first line, got '3,2,1'"):
            play()
        return
    assert set(play().records["clients"].ravel().tolist()) == {client}
    said = "does not name the clients, 0 to 2: its columns are the clients in their order"
    assert (said in caplog.text) is (header in ("1,2,3", "a,b,c"))


def test_columns_may_be_named_after_clients_with_numbers_for_names(tmp_path):
    samples = (np.ones((12, 2)), np.arange(12) % 2, np.repeat([17, 42, 105], 4))
    (tmp_path / "ids.csv").write_text("105,42,17\n1,0,0\n")
    played = simulate(
        Federation.from_arrays(*samples),
        Logistic(),
        Rand(m=1),
        Local(1, 2, 0.1),
        rounds=3,
        availability=TraceFile(str(tmp_path / "ids.csv")),
    )
    assert set(played.records["clients"].ravel().tolist()) == {2}


def test_a_table_of_rounds_needs_no_header(tmp_path):
    present = np.ones((4, 3), int)
    present[0, 1:] = 0
    for options in ({"fmt": "%d", "delimiter": ","}, {"delimiter": ","}, {"fmt": "%d"}):
        np.savetxt(tmp_path / "t.csv", present, **options)
        np.testing.assert_array_equal(there(TraceFile(str(tmp_path / "t.csv")), 3, 4), present.astype(bool))
    for first, found in (("0,1", "0 and 1"), ("1, 0", "1 and 0")):
        (tmp_path / "t.csv").write_text(f"{first}\n1,1\n")
        with pytest.raises(ValueError, match=f"must name its columns, got {found}, which may be names or a round"):
            TraceFile(str(tmp_path / "t.csv"))(KEY, 0, 2)


FEDSCALE = {
    1: {"duration": 300, "active": [0, 400], "inactive": [100, 600], "finish_time": 800, "model": "A"},
    2: {"duration": 800, "active": [0], "inactive": [800], "finish_time": 800, "model": "B"},
    3: {"duration": 0, "active": [], "inactive": [], "finish_time": 800, "model": "C"},
}


@pytest.mark.parametrize("dump", [pickle.dumps, lambda plain: json.dumps(plain).encode()])
def test_fedscale_has_intervals(dump, tmp_path):
    path = tmp_path / "client_behave_trace"
    path.write_bytes(dump(FEDSCALE))
    found = there(TraceFile(str(path), seconds=50), 2, 32)
    clock = 50 * np.arange(32) % 800
    first = (clock <= 100) | ((clock >= 400) & (clock <= 600))
    assert sorted(found.T.tolist()) == sorted([first.tolist(), [True] * 32])
    assert there(TraceFile(str(path)), 5, 1).shape == (1, 5)  # fewer devices than clients: they come again


def test_flash_has_messages(tmp_path):
    events = [
        ("00:00:00", "screen_off"),
        ("00:01:00", "wifi"),
        ("00:02:00", "battery_charged_on"),  # there
        ("00:05:00", "57.0%"),
        ("00:06:00", "4G"),  # gone
        ("00:07:00", "wifi"),  # there
        ("00:08:00", "screen_on"),  # gone
        ("00:10:00", "screen_lock"),  # there until the end
        ("00:12:00", "battery_okay"),
    ]
    messages = "\n".join(f"2020-01-02 {when}\t{what}" for when, what in events) + "\ncut off"
    (tmp_path / "state_traces.json").write_text(json.dumps({"0": {"model": "X", "messages": messages}}))
    found = there(TraceFile(str(tmp_path / "state_traces.json"), seconds=60), 1, 12)[:, 0]
    assert np.flatnonzero(found).tolist() == [2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_a_pickle_that_could_run_something_is_refused(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    path = tmp_path / "trace"
    path.write_bytes(pickle.dumps({1: Harm()}))
    with pytest.raises(ValueError, match=r"json or a pickle of plain data, got an error: it holds \w+\.mkdir"):
        TraceFile(str(path))(KEY, 0, 1)
    assert not (tmp_path / "harm").exists()
    for text in ("hello", "client,speed\n0,1\n", ""):  # the first letter of a CSV file may be an instruction of pickle
        path.write_text(text)
        sentence = "must be a table of devices, as FedScale and FLASH have, json or a pickle of plain data, got another"
        with pytest.raises(ValueError, match=f"TraceFile: .* {sentence} file$"):
            TraceFile(str(path))(KEY, 0, 1)
    with pytest.raises(FileNotFoundError, match="TraceFile: path must be a file"):
        TraceFile(str(tmp_path / "none"))(KEY, 0, 1)


CAPACITY = {n: {"computation": np.float64(10 * n), "communication": 800.0 * n} for n in (1, 2, 3)}


def test_fedscale_has_speeds(tmp_path):
    (tmp_path / "capacity").write_bytes(pickle.dumps(CAPACITY))
    devices = read_devices(str(tmp_path / "capacity"), 3, deadline=20.0)
    np.testing.assert_allclose(np.sort(devices.speed), [100 / 3, 50, 100], rtol=1e-6)
    np.testing.assert_allclose(devices.bandwidth * devices.speed, 1e7, rtol=1e-5)
    assert devices.deadline == 20.0
    (tmp_path / "speeds.csv").write_text("client,speed\n0,1\n")
    (tmp_path / "list.json").write_text("[1, 2]")
    rule = "must be FedScale's client_device_capacity, json or a pickle of plain data, got another file$"
    with pytest.raises(ValueError, match=f"^Devices: '.*speeds.csv' {rule}"):
        read_devices(str(tmp_path / "speeds.csv"), 3)
    with pytest.raises(ValueError, match=r"^Devices: .* must be FedScale's client_device_capacity, got no table of"):
        read_devices(str(tmp_path / "list.json"), 3)


PLAIN = {
    "data": {"kind": "quadratic", "K": 3},
    "model": {"kind": "quadratic"},
    "local": {"tau": 1, "b": 1, "eta": 1e-3},
    "selector": {"kind": "rand", "m": 1},
    "rounds": 2,
}


def test_devices_and_traces_in_a_file_and_on_the_command_line(tmp_path):
    (tmp_path / "capacity").write_bytes(pickle.dumps(CAPACITY))
    (tmp_path / "trace.csv").write_text("a,b,c\n1,0,1\n")
    world = {
        "devices": {"kind": "fedscale", "path": "capacity", "deadline": 5},
        "availability": {"kind": "trace-file", "path": "trace.csv"},
    }
    (one,) = from_plain({**PLAIN, **world}, tmp_path)
    one.check()
    assert one.devices.speed.shape == (3,)
    assert from_plain(one.to_plain())[0].identity(0) == one.identity(0)  # the numbers are the setting
    moved = tmp_path / "moved.csv"
    moved.write_text((tmp_path / "trace.csv").read_text())
    (other,) = from_plain({**PLAIN, **world, "availability": {"kind": "trace-file", "path": "moved.csv"}}, tmp_path)
    assert other.identity(0) == one.identity(0)  # a file is known by what it holds
    moved.write_text("a,b,c\n1,1,1\n")
    assert other.identity(0) != one.identity(0)
    chosen = Choices(
        strategies=("rand",),
        settings=("data.K=3",),
        availability=str(tmp_path / "trace.csv"),
        devices="lognormal",
        deadline=7.0,
        failures=0.25,
    )
    (experiment,) = make_experiments("quadratic", chosen)
    assert experiment.devices.speed.shape == (3,)
    assert (experiment.devices.deadline, experiment.failures.probability) == (7.0, 0.25)
    assert isinstance(experiment.availability, TraceFile)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ({"kind": "phones"}, "devices.kind must be one of 'lognormal', 'fedscale', got 'phones'"),
        ({"kind": "fedscale"}, "devices.path must be FedScale's client_device_capacity, got none"),
        ({"kind": "lognormal", "sped": 3}, "devices.sped is unknown; did you mean 'speed'"),
        (
            {"kind": "fedscale", "path": "capacity", "bandwidth": 10},
            "devices.bandwidth is unknown; fedscale takes path, seed, latency, deadline$",
        ),
        ({"kind": "fedscale", "path": "capacity", "spread": 1}, "devices.spread is unknown.*; fedscale takes path"),
        ({"kind": "lognormal", "latency": "slow"}, "devices: latency must be"),
    ],
)
def test_devices_that_are_wrong(devices, words):
    with pytest.raises(ValueError, match=words):
        from_plain({**PLAIN, "devices": devices})


def test_a_file_that_is_no_trace_gets_one_sentence(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones((4, 2)), y=np.ones(4, int), client=np.zeros(4, int))
    with pytest.raises(
        ValueError, match=r"must hold present, \[rounds, K\], or a column of 0 and 1 for each client, got"
    ):
        TraceFile(str(tmp_path / "data.npz"))(KEY, 0, 4)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({}, r"must hold present, \[rounds, K\], or a column of 0 and 1 for each client, got nothing"),
        ({"present": np.zeros(3)}, r"must hold present, \[rounds, K\], .*, got present"),
        ({"present": np.zeros((0, 3))}, "must hold a round and a client at least, got none"),
        ({"present": np.zeros((3, 0))}, "must hold a round and a client at least, got none"),
        ("a,b,c", "must hold a round and a client at least, got none"),
        ("round,a,b,c", "must hold a round and a client at least, got none"),
    ],
)
def test_a_file_without_rounds_gets_one_sentence(arrays, sentence, tmp_path):
    path = tmp_path / ("none.csv" if isinstance(arrays, str) else "none.npz")
    if isinstance(arrays, str):
        path.write_text(f"{arrays}\n")
    else:
        np.savez(path, **arrays)
    trace = TraceFile(str(path))
    for read in (lambda: trace.for_clients(("0", "1", "2"), 3), lambda: trace(KEY, 0, 3)):
        with pytest.raises(ValueError, match=f"TraceFile: .*none.* {sentence}"):
            read()


def test_the_path_of_a_trace_is_stored_as_that_of_data_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study").mkdir()
    (tmp_path / "trace.csv").write_text("1,1,1,1,1,1\n")
    (tmp_path / "study" / "own.json").write_text(json.dumps(PLAIN))
    for task, given, path in (
        ("quadratic", "trace.csv", "trace.csv"),
        ("study/own.json", "trace.csv", "study/../trace.csv"),
        ("study/own.json", str(tmp_path / "trace.csv"), str(tmp_path / "trace.csv")),
    ):
        choices = Choices(strategies=("rand",), availability=given, settings=("data.K=6",))
        (experiment,) = make_experiments(task, choices)
        assert experiment.availability.path == path
