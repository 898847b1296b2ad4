"""One way to disk: whole files or none, and nothing corrupted or foreign is ever used."""

import contextlib
import json
import os
import re
import shutil

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick.storage import (
    ForeignStateError,
    RunStore,
    State,
    StateError,
    atomic_file,
    cached_text,
    device,
    load_state,
    save_state,
    versions,
    write_atomic,
)
from fedpick.storage.run_store import FormatError

STATE = State({"rounds": 3, "names": ["w"]}, {"w": np.arange(6.0).reshape(2, 3), "n": np.int32(4)})


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = write_atomic(tmp_path / "new" / "note.txt", "first", owner="test")
    with pytest.raises(ZeroDivisionError), atomic_file(path, owner="test") as file:
        file.write(b"half of it" * (1 // 0))
    assert path.read_text() == "first"
    write_atomic(path, b"second", owner="test")
    assert [each.name for each in path.parent.iterdir()] == ["note.txt"]
    assert path.read_text() == "second"
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"test: '.*note' cannot be written \(.*\)"):
        write_atomic(tmp_path / "file" / "note", "text", owner="test")


def test_a_state_comes_back_as_it_was(tmp_path):
    save_state(tmp_path / "a.state", STATE, owner="me", what="test: state")
    found = load_state(tmp_path / "a.state", owner="me", what="test: state")
    assert found.facts == STATE.facts
    for name, values in STATE.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values)
    with pytest.raises(ForeignStateError, match=r"test: state '.*' belongs to another run"):
        load_state(tmp_path / "a.state", owner="you", what="test: state")
    with pytest.raises(StateError, match="is not a complete fedpick file"):
        load_state(tmp_path / "none", owner="me", what="test: state")


@settings(max_examples=200)
@given(data=st.data())
def test_a_corrupted_state_is_refused(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "corrupted.state"
    save_state(path, STATE, owner="me", what="test: state")
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with contextlib.suppress(StateError):
        found = load_state(path, owner="me", what="test: state")
        # A byte of the header that says nothing, such as a space.
        np.testing.assert_array_equal(found.arrays["w"], STATE.arrays["w"])


def test_states_of_older_versions_are_refused_with_a_sentence(tmp_path):
    np.savez(tmp_path / "old.npz", head=np.asarray("{}"), leaf0=np.ones(2))
    with pytest.raises(ForeignStateError, match="is a checkpoint of version 1, and this fedpick reads version 2"):
        load_state(tmp_path / "old.npz", owner="me", what="simulate: checkpoint")
    (tmp_path / "old.state").write_text('{"format": "fedpick-flower", "version": 1}\n')
    with pytest.raises(ForeignStateError, match="is a state of version 1"):
        load_state(tmp_path / "old.state", owner="me", what="Selecting: state")


def test_an_archive_that_is_not_ours_is_not_called_an_older_checkpoint(tmp_path):
    whole, half = tmp_path / "whole.npz", tmp_path / "half.npz"
    np.savez(whole, x=np.ones(9), head=np.ones(2))
    half.write_bytes(whole.read_bytes()[:200])
    for path, why in ((whole, "it is another archive"), (half, "File is not a zip file")):
        with pytest.raises(StateError, match=rf"is not a complete fedpick file \({why}\)$") as caught:
            load_state(path, owner="me", what="simulate: checkpoint")
        assert not isinstance(caught.value, ForeignStateError)


def stored(folder):
    store = RunStore(folder)
    store.save("abc", {"seed": 1, "experiment": {}}, {"share": np.ones(2)}, {"rounds": 3})
    return store


def test_a_run_comes_back_with_versions_and_the_device(tmp_path):
    run = stored(tmp_path).load("abc")
    assert (run.about["seed"], run.summary) == (1, {"rounds": 3})
    assert run.about["device"] == device()
    assert run.about["versions"]["jax"] == jax.__version__
    assert "abc" in RunStore(tmp_path)
    stored(tmp_path)  # replaced
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["abc"]


def test_a_run_goes_from_store_to_store(tmp_path):
    other = RunStore(tmp_path / "other")
    other.add(stored(tmp_path / "one").load("abc"))
    run = other.load("abc")
    assert (run.about["seed"], run.summary) == (1, {"rounds": 3})
    np.testing.assert_array_equal(run.arrays["share"], np.ones(2))


def test_the_device_is_the_one_that_jax_uses(monkeypatch):
    class Gpu:
        platform, device_kind = "gpu", "NVIDIA H200"

    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu(), Gpu()])
    assert device() == "2 x NVIDIA H200"


@pytest.mark.parametrize("what", ["result.npz", "summary.json", "experiment.json"])
def test_a_flipped_bit_in_a_run_is_noticed(what, tmp_path, caplog):
    store = stored(tmp_path)
    path = tmp_path / "runs" / "abc" / what
    original = path.read_bytes()
    for place in range(0, len(original), max(1, len(original) // 40)):
        content = bytearray(original)
        content[place] ^= 4
        path.write_bytes(content)
        try:
            found = store.load("abc")
        except FormatError:  # the bit was of the format
            continue
        if found is None:
            (aside,) = (tmp_path / "runs").glob(".broken-*")
            assert "abc is not a complete run" in caplog.text
            os.rename(aside, tmp_path / "runs" / "abc")
        else:  # white space between the settings
            assert found.summary == {"rounds": 3}
    assert "moved to .broken-abc" in caplog.text


def test_a_run_of_another_format_is_named_and_left_alone(tmp_path, caplog):
    store, old, new = stored(tmp_path), "0" * 16, "1" * 16
    for identity, about in ((old, {"identity": old, "seed": 0}), (new, {"format": 3})):
        (tmp_path / "runs" / identity).mkdir()
        (tmp_path / "runs" / identity / "experiment.json").write_text(json.dumps(about))
    assert not list(store.runs())
    for identity, number in ((old, 1), (new, 3)):
        said = f"{identity} cannot be read (its format is {number}, and this fedpick reads format 2); it is left alone"
        assert said in caplog.text
        with pytest.raises(ValueError, match=re.escape(said)):
            store.load(identity)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"abc", old, new}


def test_folders_among_the_runs_that_are_none_are_left_alone(tmp_path, caplog):
    store, runs = RunStore(tmp_path), tmp_path / "runs"
    store.save("0" * 16, {"seed": 1, "experiment": {}}, {"share": np.ones(2)}, {"rounds": 3})
    shutil.copytree(runs / ("0" * 16), runs / "backup")
    for name in ("mine", "empty", "1" * 16):
        (runs / name).mkdir()
    (runs / "mine" / "a.txt").write_text("x")
    assert [identity for identity, _ in store.runs()] == ["0" * 16]
    assert store.unknown_files() == [runs / name for name in ("1" * 16, "backup", "empty", "mine")]
    assert not list(runs.glob(".broken-*"))
    assert not caplog.text


def test_versions_are_of_what_is_installed():
    assert set(versions("numpy", "no-such-package")) == {"python", "numpy"}


def test_a_text_that_takes_long_is_made_once(tmp_path, monkeypatch):
    made = []

    def make():
        made.append("text")
        return "a text"

    monkeypatch.setenv("FEDPICK_CACHE", str(tmp_path))
    assert [cached_text("one.txt", make) for _ in range(3)] == 3 * ["a text"]
    assert len(made) == 1
    (tmp_path / "one.txt").write_bytes(b"\xff\xfe\xfd")  # damaged: made again
    assert cached_text("one.txt", make) == "a text"
    assert len(made) == 2
    monkeypatch.setenv("FEDPICK_CACHE", "")  # switched off
    assert cached_text("one.txt", make) == "a text"
    assert len(made) == 3
