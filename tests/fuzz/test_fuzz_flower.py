"""What Flower nodes send, and what a server finds of its state: silence of one client, or a sentence; never its end."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import strategies as st
from support.fake_grid import FakeGrid, plain_app, zeros
from support.fuzz import changed, damaged, fuzz, nasty

from fedpick import PowerOfChoice, Rand
from fedpick.flower import Selecting
from fedpick.flower.replies import check_update, read_identity, read_loss, read_size
from fedpick.storage import State, load_state, save_state

MODEL = {"w": np.zeros(3, np.float32)}
GOOD = Array(np.ones(3, np.float32))
DTYPES = ["f4", "f8", "f2", "i4", "u1", "?", "c8", "M8[s]", "S3", "U2", "i4,f4", ">f4", "f16", "O"]
SHAPES = [(3,), (), (0,), (4,), (3, 1), (1, 3)]
NUMBERS = (
    st.floats()
    | st.integers(-(2**62), 2**62)
    | st.sampled_from([0, 1, 1e300, -1.0, 1e-40])
    | st.lists(st.floats(), max_size=3)
)


@st.composite
def an_array(draw):
    kind = draw(st.sampled_from(["good", "other", "damaged", "bytes"]))
    if kind == "other":
        with np.errstate(all="ignore"):
            fill = draw(st.sampled_from([0, 1, np.nan, np.inf, 1e300, 3e38, -5]))
            try:
                values = np.full(draw(st.sampled_from(SHAPES)), fill).astype(draw(st.sampled_from(DTYPES)))
                return Array(values) if values.dtype.kind != "O" else GOOD
            except (TypeError, ValueError, OverflowError):
                return GOOD
    data = {"damaged": damaged(GOOD.data), "bytes": st.binary(max_size=60)}.get(kind, st.just(GOOD.data))
    stype = draw(st.sampled_from(["numpy.ndarray"] * 5 + ["", "pickle"]))
    return Array(draw(st.sampled_from(["float32", "", "x"])), draw(st.sampled_from(SHAPES)), stype, draw(data))


@st.composite
def a_content(draw):
    """The records of a reply: good ones, others beside them, other names, other numbers."""
    content, names = {}, st.sampled_from(["arrays", "metrics", "model", "config", "client", ""])
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 0]))):
        arrays = draw(st.dictionaries(st.sampled_from(["w", "w", "b", ""]), an_array(), max_size=2))
        content[draw(st.just("arrays") | names)] = ArrayRecord(arrays or {"w": GOOD})
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 0]))):
        keys = st.sampled_from(["loss", "train_loss", "num-examples", "partition-id", "eval_loss", "norm", "", "x"])
        numbers = draw(st.dictionaries(keys, NUMBERS, max_size=5))
        content[draw(st.just("metrics") | names)] = MetricRecord(numbers)
    if draw(st.booleans()):
        name = draw(st.sampled_from(["Oslo", "", "a" * 500, "\x1b[2J\n", 3, 1.5, b"x", ["a"]]))
        content[draw(st.just("client") | names)] = ConfigRecord({"name": name})
    return content


def sent(content):
    """A reply with these records."""
    reply = Message(RecordDict(content), dst_node_id=1, message_type="train")
    return reply


@pytest.mark.no_cover
def test_replies_alone(total):
    def check(content):
        reply = sent(content)
        read_loss(reply, "loss", (0.0, 1e9)), read_size(reply), read_identity(reply)
        if check_update(reply, MODEL) is None:
            (record,) = reply.content.array_records.values()
            values = record["w"].numpy()
            assert values.shape == (3,)
            assert values.dtype.itemsize <= 4
            assert np.isfinite(values).all()

    fuzz(a_content(), check, 0.15 * total, refused=())


def test_federations_of_which_some_clients_send_anything(total):
    """Counted in replies, of which a federation gets some fifty."""

    def check(case):
        replies, seed, selector, weights = case
        grid, left = FakeGrid(plain_app(), range(5), seed=seed), list(replies)

        def anything(message, answer):
            content = left[grid.random.randrange(len(left))]
            return Message(RecordDict(dict(content)), reply_to=message) if grid.random.random() < 0.8 else answer()

        grid.faults |= {3: anything, 4: anything}
        inner = FedAvg(fraction_evaluate=1.0)
        ours = Selecting(inner, selector, wait=0.0, poll_timeout=0.05, outage=5.0, seed=seed, weights=weights)
        model = ours.start(grid, zeros(), num_rounds=4, timeout=0.05).arrays["w"].numpy()
        assert model.shape == (3,)
        assert model.dtype == np.float32
        assert np.isfinite(model).all()

    selectors = st.sampled_from([PowerOfChoice(m=2, d=4), Rand(2), PowerOfChoice(m=2, d=3, loss="stale")])
    cases = st.tuples(
        st.lists(a_content(), min_size=1, max_size=4),
        st.integers(0, 1000),
        selectors,
        st.sampled_from(["selection", "examples"]),
    )
    fuzz(cases, check, 0.1 * total / 50, refused=())


def test_states_of_a_server_with_other_contents(total, tmp_path):
    """Those whose checksum is right: of a later version, or tampered with."""

    def begin():
        return Selecting(FedAvg(fraction_evaluate=0.0), PowerOfChoice(m=2, d=3), wait=0.0, folder=tmp_path)

    ours = begin()
    ours.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=2, timeout=1)
    path, owner = tmp_path / "state" / "round-00000002.state", ours.adapter.checkpointer.owner
    good = load_state(path, owner=owner, what="state")
    for old in path.parent.glob("round-00000001.state"):
        old.unlink()

    def check(case):
        document, dropped, replaced = case
        arrays = {name: values for name, values in good.arrays.items() if name != dropped}
        arrays |= {} if replaced is None else dict([replaced])
        save_state(path, State(document, arrays), owner=owner, what="state")
        try:
            begin().start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=3, timeout=1)
        finally:
            for left in path.parent.iterdir():
                if left.name != "history.jsonl":
                    left.unlink()
            journal.write_bytes(entries)

    journal = tmp_path / "state" / "history.jsonl"
    entries = journal.read_bytes()
    names = st.sampled_from(list(good.arrays))
    others = [np.zeros(()), np.zeros(3), np.zeros((2, 2)), np.array(["a"]), np.full(4, np.nan), np.zeros(4, int)]
    kept = st.just(good.facts)
    cases = st.tuples(
        kept | changed([good.facts], nasty(plain=True)),
        st.none() | names,
        st.none() | st.tuples(names, st.sampled_from(others)),
    )
    fuzz(cases, check, 0.01 * total)
