"""Files that rot: stored runs, checkpoints, states, journals, notes and summaries. Whole, or refused; never another."""

import json
import shutil

import jax
import numpy as np
import pytest
from hypothesis import strategies as st
from support.fuzz import changed, damaged, fuzz, nasty

from fedpick.compare import load_report, report_on, write_report
from fedpick.experiment import from_plain, result_of, run, run_missing
from fedpick.sim._engine.checkpoint import Checkpoint
from fedpick.storage import Journal, RunStore, State, load_state, save_state

PLAIN = {
    "rounds": 2,
    "data": {"kind": "quadratic", "K": 4},
    "model": {"kind": "quadratic"},
    "local": {"tau": 1, "b": 1, "eta": 1e-4},
    "selector": {"kind": "rand", "m": 2},
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with one run, and what it holds."""
    folder = tmp_path_factory.mktemp("stored")
    run(from_plain(PLAIN), folder)
    (identity,) = RunStore(folder).identities()
    return folder, identity, RunStore(folder).load(identity)


def same(found, expected):
    assert found.about == expected.about
    assert found.summary == expected.summary
    assert set(found.arrays) == set(expected.arrays)
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values)


def test_stored_runs(total, stored, tmp_path):
    folder, identity, expected = stored
    files = {
        name: (folder / "runs" / identity / name).read_bytes()
        for name in ("experiment.json", "result.npz", "summary.json")
    }
    store = RunStore(tmp_path)
    place = tmp_path / "runs" / identity
    cases = st.sampled_from(list(files)).flatmap(lambda name: st.tuples(st.just(name), damaged(files[name])))

    def check(case):
        name, content = case
        place.mkdir(exist_ok=True)
        for other, whole in files.items():
            (place / other).write_bytes(content if other == name else whole)
        found = store.load(identity)
        if found is None:  # it was set aside, and is run again
            assert not place.exists()
            for broken in (tmp_path / "runs").glob(".broken-*"):
                shutil.rmtree(broken)
        else:
            same(found, expected)
            result_of(found)

    fuzz(cases, check, 0.15 * total)


def test_states(total, tmp_path):
    state = State({"rounds": 3, "names": ["w"]}, {"w": np.arange(6.0).reshape(2, 3), "n": np.int32(4)})
    path = tmp_path / "a.state"
    save_state(path, state, owner="me", what="Selecting: state")
    good = path.read_bytes()

    def check(content):
        path.write_bytes(content)
        found = load_state(path, owner="me", what="Selecting: state")
        assert found.facts == state.facts
        for name, values in state.arrays.items():
            np.testing.assert_array_equal(found.arrays[name], values)

    fuzz(damaged(good), check, 0.1 * total)


def test_checkpoints(total, tmp_path):
    tree = {"params": {"w": np.arange(4.0)}, "tables": (np.arange(6).reshape(2, 3), np.float32(3))}
    file = Checkpoint(tmp_path / "a.checkpoint", owner=lambda: "me")
    file.save(tree)
    good = file.path.read_bytes()

    def check(content):
        file.path.write_bytes(content)
        jax.tree.map(np.testing.assert_array_equal, file.load(tree), tree)

    fuzz(damaged(good), check, 0.05 * total)


def test_journals(total, tmp_path):
    journal, entries = Journal(tmp_path / "a.jsonl"), [{"round": t, "loss": 0.5, "clients": [t, 3]} for t in range(5)]
    journal.append(entries, owner="test")
    good = journal.path.read_bytes()

    def check(content):
        journal.path.write_bytes(content)
        assert all(entry in entries for entry in journal.read())

    fuzz(damaged(good), check, 0.05 * total)


def test_summaries_and_notes_under_way(total, stored, tmp_path):
    folder, _, _ = stored
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    store, experiments = RunStore(tmp_path), from_plain(PLAIN)
    write_report(report_on(experiments, store, metric="loss", value=None, by="rounds", command="", name="a"), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary.pop("summaries", None)
    note = {"format": 2, "points": [experiments[0].to_plain()], "seeds": [0]}
    texts = {"summary.json": json.dumps(summary), "under-way/a-1.json": json.dumps(note)}
    documents = {"summary.json": [summary], "under-way/a-1.json": [note]}
    cases = st.sampled_from(list(texts)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            damaged(texts[name].encode())
            | changed(documents[name], nasty(plain=True)).map(lambda d: json.dumps(d).encode()),
        )
    )

    def check(case):
        name, content = case
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        if name == "summary.json":
            load_report(tmp_path)
        else:
            run_missing(experiments, store)

    fuzz(cases, check, 0.01 * total)
