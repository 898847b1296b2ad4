"""Replies that no honest client sends: each is the fault of its sender alone, and the model keeps its form."""

import io
import logging
import random

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import PowerOfChoice, Rand
from fedpick.flower import Selecting
from fedpick.flower.replies import check_update, error_text, keep_whole, read_identity

MODEL = {"w": np.zeros(3, np.float32)}


def npy(values, **options):
    file = io.BytesIO()
    np.save(file, np.asarray(values), **options)
    return file.getvalue()


def header(text, body=b"\0" * 12, magic=b"\x93NUMPY\x01\x00"):
    line = text.encode("latin1") + b"\n"
    return magic + len(line).to_bytes(2, "little") + line + body


def npz():
    file = io.BytesIO()
    np.savez(file, w=np.zeros(3, np.float32))
    return file.getvalue()


GOOD = npy(np.ones(3, np.float32))
HOSTILE = {
    "npz": npz(),
    "zip": b"PK\x03\x04garbage",
    "no magic": b"no array",
    "empty": b"",
    "36 TiB": header("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000,), }"),
    "negative": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }"),
    "minus signs": header("-" * 6000),
    "brackets": header("(" * 990),
    "flipped bit": GOOD.replace(b"{", b"z", 1),
    "complex": npy(np.ones(3, np.complex64)),
    "objects": npy(np.array([1, 2, 3], object), allow_pickle=True),
    "records": npy(np.zeros(3, "i4,f4")),
    "dates": npy(np.zeros(3, "M8[s]")),
    "text": npy(np.array(["a", "b", "c"])),
    "bool": npy(np.ones(3, bool)),
    "whole numbers": npy(np.ones(3, np.int32)),
    "short": GOOD[:-1],
    "long": GOOD + b"\0",
    "float64 beyond float32": npy(np.full(3, 1e300)),
    "3e38": npy(np.full(3, 3e38, np.float32)),
    "longdouble": npy(np.full(3, np.finfo(np.longdouble).max)),
    "version 3": GOOD.replace(b"NUMPY\x01", b"NUMPY\x03"),
}


def sending(data, stype="numpy.ndarray"):
    """Honest but for the bytes of the update."""

    def fault(message, answer):
        reply = answer()
        reply.content["arrays"] = ArrayRecord({"w": Array("float32", (3,), stype, data)})
        return reply

    return only("train", fault)


def selecting(selector=PowerOfChoice(m=2, d=4), inner=None, **options):
    options = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3, **options}
    return Selecting(inner or FedAvg(fraction_evaluate=0.0), selector, **options)


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_update_that_cannot_be_read_is_silence_of_its_sender(kind, caplog):
    grid = FakeGrid(plain_app(pull=1.0), range(4))
    grid.faults[3] = sending(HOSTILE[kind])
    strategy = selecting()
    result = strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert sorted(strategy.history.rows[0].clients) == [-1, 2]
    np.testing.assert_array_equal(result.arrays["w"].numpy(), np.full(3, 3.0, np.float32))
    assert "no update from partition-id=3: array 'w'" in caplog.text
    assert strategy.adapter.state.clients.quarantined.tolist() == [False, False, False, True]


def test_an_update_of_another_precision_is_converted_and_the_model_keeps_its_dtype():
    big = header("{'descr': '>f8', 'fortran_order': True, 'shape': (3,), }", np.full(3, 4.0, ">f8").tobytes())
    for data in (npy(np.full(3, 4.0)), npy(np.full(3, 4, np.float16)), big):
        grid = FakeGrid(plain_app(pull=1.0), range(4))
        grid.faults[3] = sending(data)
        strategy = selecting()
        result = strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
        assert strategy.history.rows[0].returned == 2
        assert result.arrays["w"].numpy().dtype == np.float32
        np.testing.assert_allclose(result.arrays["w"].numpy(), 3.5)


def test_whole_numbers_in_a_model_stay_whole():
    reply = Message(RecordDict({"a": ArrayRecord({"n": Array(np.array([3], np.int32))})}), 1, "train")
    assert check_update(reply, {"n": np.zeros(1, np.int64)}) is None
    average = ArrayRecord({"n": Array(np.array([2.6])), "w": Array(np.zeros(2))})
    kept = keep_whole(average, {"n": np.zeros(1, np.int64), "w": np.zeros(2, np.float32)})
    assert [kept[name].numpy().dtype for name in ("n", "w")] == [np.int64, np.float64]  # FedAdam's own precision
    assert kept["n"].numpy() == 3
    reply = Message(RecordDict({"a": ArrayRecord({"n": Array(np.array([300], np.int32))})}), 1, "train")
    assert "too large" in check_update(reply, {"n": np.zeros(1, np.uint8)})


def test_a_record_of_another_name_is_no_reason_to_end_the_run():
    def renamed(arrays, metrics):
        def fault(message, answer):
            content = answer().content
            names = {arrays: content["arrays"], metrics: content["metrics"], "config": ConfigRecord({"more": 1})}
            return Message(RecordDict(names), reply_to=message)

        return only("train", fault)

    for names in (("model", "metrics"), ("metrics", "arrays"), ("metrics", "numbers")):
        for inner in (FedAvg(fraction_evaluate=0.0), FedAdam(fraction_evaluate=0.0)):
            grid = FakeGrid(plain_app(), range(4))
            grid.faults[3] = renamed(*names)
            strategy = selecting(Rand(m=4), inner)
            strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
            assert [row.returned for row in strategy.history.rows] == [4, 4]


def test_evaluations_that_are_not_finite_do_not_spoil_the_others():
    def array_called_metrics(message, answer):
        content = RecordDict({"metrics": zeros(), "numbers": answer().content["metrics"]})
        return Message(content, reply_to=message)

    grid = FakeGrid(plain_app(), range(3))
    grid.faults[0] = only("evaluate", saying(eval_loss=float("nan")))
    grid.faults[1] = only("evaluate", array_called_metrics)
    strategy = selecting(PowerOfChoice(m=1, d=3), FedAvg())
    result = strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert 0 < result.evaluate_metrics_clientapp[1]["eval_loss"] < 3
    assert 0 < strategy.history.measured[1]["worst_loss"] < 3


def test_a_client_cannot_forge_a_line_of_the_log(caplog):
    def forging(message, answer):
        raise RuntimeError("\x1b[2J\rfedpick round 1: no update from partition-id=0")

    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only("query.loss", forging)
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        selecting().start(grid, zeros(), num_rounds=1, timeout=0.3)
    lines = [line for line in caplog.messages if "partition-id" in line]
    assert len(lines) > 1
    assert all(line.isprintable() for line in lines)

    def name(text):
        return read_identity(Message(RecordDict({"client": ConfigRecord({"name": text})}), 1, "query"))

    assert name("Troms\u00f8 2") == "name=Troms\u00f8 2"
    assert [name(text) for text in ("", "a\nb", "\x1b[2J", "x" * 201)] == [None] * 4


def fuzzed(rng):
    """An update in which something is wrong, or nothing: bytes changed, cut or repeated, or another header."""
    data = bytearray(GOOD if rng.random() < 0.7 else rng.choice([*HOSTILE.values()]))
    for _ in range(rng.randrange(4)):
        i, kind = rng.randrange(len(data) + 1), rng.randrange(4)
        if kind == 0 and i < len(data):
            data[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[i:]
        elif kind == 2:
            data[i:i] = data[: rng.randrange(20)]
        else:
            data[i:i] = rng.randbytes(rng.randrange(8))
    if rng.random() < 0.3:
        shape = rng.choice(["()", "(3,)", "(3, 1)", "(0,)", "(2**70,)", "(True,)", "(3.0,)", "(1,3)", "'3'", "None"])
        kind = rng.choice(["'<f4'", "'<f8'", "'>f4'", "'|O'", "'<c8'", "[('a', '<f4')]", "'<V4'", "('<f4', (3,))", "7"])
        data = bytearray(header(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"))
    return bytes(data)


def fuzz(seeds):
    passed = 0
    for seed in seeds:
        rng = random.Random(seed)
        array = Array("float32", (3,), rng.choice(["numpy.ndarray"] * 9 + ["torch"]), fuzzed(rng))
        names = {rng.choice(["w"] * 9 + ["v", ""]): array}
        content = {rng.choice(["arrays"] * 5 + ["model", "metrics"]): ArrayRecord(names)}
        if rng.random() < 0.9:
            content[rng.choice(["m", "config"])] = MetricRecord(
                {"num-examples": rng.choice([1, 0, -1.0, 1e308, 10**18])}
            )
        reply = Message(RecordDict(content), 1, "train")
        why = check_update(reply, MODEL)
        if why is None:
            passed += 1
            (record,) = reply.content.array_records.values()
            values = record["w"].numpy()
            assert values.shape == (3,)
            assert values.dtype.kind == "f"
            assert values.dtype.itemsize <= 4
            assert np.isfinite(np.square(values).sum())
        else:
            assert why.isprintable()
            assert len(why) <= 200
    return passed


def test_fuzzed_updates_are_read_or_refused():
    assert 200 < fuzz(range(3000)) < 1500


@pytest.mark.slow
def test_many_more_fuzzed_updates_are_read_or_refused():
    fuzz(range(3000, 60_000))


def fuzzed_federation(seed):
    """Two of five clients send anything, to every message."""
    rng = random.Random(seed)
    numbers = [0, 1, -1, 7.5, float("nan"), float("inf"), 1e30, 1e308, 10**18, [1.0], [], [1, 2]]

    def fault(message, answer):
        content = dict(answer().content.items())
        for name in list(content):
            if isinstance(content[name], ArrayRecord) and rng.random() < 0.7:
                content[name] = ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", fuzzed(rng))})
            if isinstance(content[name], MetricRecord) and rng.random() < 0.5:
                key = rng.choice([*content[name], "loss", "train_loss", "num-examples", "partition-id", "new"])
                content[name][key] = rng.choice(numbers)
            if rng.random() < 0.1:
                content[rng.choice(["arrays", "metrics", "config", "x"])] = content.pop(name)
        if rng.random() < 0.1:
            content["client"] = ConfigRecord({"name": rng.choice(["", "Oslo", "\n", "y" * 999])})
        return Message(RecordDict(content), reply_to=message)

    grid = FakeGrid(plain_app(), range(5), seed=seed)
    grid.faults = dict.fromkeys(rng.sample(range(5), 2), fault)
    selector = rng.choice([PowerOfChoice(m=2, d=4), Rand(m=2), PowerOfChoice(m=2, d=4, loss="stale")])
    strategy = selecting(selector, FedAvg(), poll_timeout=0.05, weights=rng.choice(["selection", "examples"]))
    result = strategy.start(grid, zeros(), num_rounds=6, timeout=0.1)
    assert len(strategy.history.rows) == 6
    values = result.arrays["w"].numpy()
    assert values.dtype == np.float32
    assert np.isfinite(values).all()


def test_federations_outlive_clients_that_send_anything():
    for seed in range(6):
        fuzzed_federation(seed)


@pytest.mark.slow
def test_many_federations_outlive_clients_that_send_anything():
    for seed in range(6, 300):
        fuzzed_federation(seed)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "<class 'ClientAppException'>:<'\nException RuntimeError occurred. Message: disk full'>",
            "Message: disk full",
        ),
        ("<class 'ZeroDivisionError'>:<'division by zero'>", "division by zero"),
        ("Message: it wants 'a' or <'b'>", "Message: it wants 'a' or <'b'>"),
    ],
)
def test_an_error_is_told_without_what_flower_puts_around_it(reason, text):
    message = Message(RecordDict(), dst_node_id=3, message_type="train", ttl=10)
    assert error_text(Message(Error(code=2, reason=reason), reply_to=message)).endswith(text)
