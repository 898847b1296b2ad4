"""A checkpoint is whole or not there, and knows whose it is."""

import contextlib
import errno
import functools
import io
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedpick import Rand
from fedpick.sim import MLP, Federation, Local, Quadratic, QuadraticModel, from_apply, simulate, simulation


@pytest.fixture
def play(monkeypatch):
    monkeypatch.setattr(simulation, "CHUNK", 5)
    options = {"rounds": 20, "every": 5}
    return functools.partial(simulate, Quadratic(K=4, v=2), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), **options)


@pytest.mark.no_cover
def test_a_foreign_truncated_or_senseless_file_is_refused_and_left_alone(play, tmp_path):
    path = tmp_path / "run.npz"
    play(checkpoint=path)
    whole = path.read_bytes()
    with pytest.raises(ValueError, match=r"simulate: checkpoint .* belongs to another run: its settings differ"):
        play(checkpoint=path, seeds=[7])
    for bad in (whole[: len(whole) // 2], b"", b"not a file of ours"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"simulate: checkpoint .* is not a complete fedpick file"):
            play(checkpoint=path)
        assert path.read_bytes() == bad
    np.savez(path, head=np.asarray('{"version": 1}'))  # as before the common format
    with pytest.raises(ValueError, match=r"is a checkpoint of version 1, and this fedpick reads version 2$"):
        play(checkpoint=path)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "change",
    [
        "closure",
        "table",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("optimizer", "prepare", "hidden", "dropout")),
    ],
)
def test_another_model_optimiser_or_preparation_is_another_simulation(tmp_path, change):
    rng = np.random.default_rng(0)
    x, y, client = rng.normal(size=(40, 4)), rng.integers(0, 3, 40), np.arange(40) % 4

    def play(other):
        model, local, prepare = MLP((5,), 0.0), Local(1, 4, 0.1), (lambda z: z * 1.0)
        if change == "hidden":
            model = MLP((6 if other else 5,), 0.0)
        if change == "dropout":
            model = MLP((5,), 0.5 if other else 0.0)
        if change == "closure":
            scale = 2.0 if other else 1.0
            model = from_apply(lambda key: jnp.zeros((4, 3)), lambda w, x, key: scale * x @ w)
        if change == "table":
            scales = jnp.array([1.0, 2.0 if other else 1.0, 1.0, 1.0])
            model = from_apply(lambda key: jnp.zeros((4, 3)), jax.jit(lambda w, x, key: x @ (scales[:, None] * w)))
        if change == "optimizer":
            momentum = 0.9 if other else 0.1
            local = Local(1, 4, 0.1, optimizer=lambda eta: optax.sgd(eta, momentum))
        if change == "prepare":
            factor = 2.0 if other else 1.0
            prepare = lambda z: z * factor  # noqa: E731
        federation = Federation.from_arrays(x, y, client, prepare=prepare)
        return simulate(federation, model, Rand(2), local, rounds=3, checkpoint=tmp_path / "run.npz")

    first = play(other=False)
    np.testing.assert_array_equal(first.metrics["loss"], play(other=False).metrics["loss"])
    with pytest.raises(ValueError, match="belongs to another run"):
        play(other=True)


def test_ctrl_c_while_writing_leaves_no_half_file(play, tmp_path, monkeypatch, caplog):
    def interrupted(descriptor):
        assert len(list(tmp_path.iterdir())) == 1, "it is being written"
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    play(checkpoint=tmp_path / "run.npz")
    assert not list(tmp_path.iterdir())
    assert "stopped after round" in caplog.text


def test_a_full_disk_leaves_the_last_checkpoint_whole(play, tmp_path, monkeypatch):
    path = tmp_path / "folder" / "run.npz"
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(1)
        if len(calls) == 5:  # the file and its folder are synchronised each time
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"simulate: checkpoint: .* cannot be written \(No space left"):
        play(checkpoint=path)
    assert [p.name for p in path.parent.iterdir()] == ["run.npz"]
    monkeypatch.setattr("os.fsync", real)
    resumed, whole = play(checkpoint=path), play()
    np.testing.assert_array_equal(resumed.metrics["loss"], whole.metrics["loss"])


@pytest.mark.no_cover
def test_a_checkpoint_is_found_by_another_process(tmp_path, monkeypatch):
    """The owner's name is made of settings and data, not of addresses in memory."""
    code = (
        "import sys; from fedpick import PowerOfChoice; from fedpick.sim import *\n"
        "result = simulate(Quadratic(K=4, v=2), QuadraticModel(), PowerOfChoice(1, 2), Local(1, 1, 1e-3), rounds=20,"
        " every=5, checkpoint=sys.argv[1]); print(result.metrics['loss'].tolist())"
    )
    here = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "run.npz")])
    with contextlib.redirect_stdout(here):
        exec(code, {})
    written = (tmp_path / "run.npz").stat().st_mtime_ns
    found = subprocess.run([sys.executable, "-c", code, sys.argv[1]], capture_output=True, text=True, check=True)
    assert found.stdout == here.getvalue()
    assert (tmp_path / "run.npz").stat().st_mtime_ns == written, "the other process played it again"


@pytest.mark.parametrize("end", ["ctrl-c", "until"])
def test_what_was_played_is_kept_where_a_call_ends_early(play, tmp_path, end, monkeypatch):
    """Between two checkpoints, which are written more rarely the longer a run is."""
    monkeypatch.setattr(simulation, "RECORDED", 1)  # the first chunk is written, and then the whole
    path = tmp_path / "run.npz"

    def watch(so_far):
        if so_far.rounds == 15:
            raise KeyboardInterrupt

    reached = play().metrics["loss"][0, 3] * (1 + 1e-6)
    options = {"watch": watch} if end == "ctrl-c" else {"until": ("loss", reached)}
    assert play(checkpoint=path, **options).rounds == 15
    first = []
    play(checkpoint=path, watch=lambda so_far: first.append(so_far.rounds))
    assert first[0] == 15


@pytest.mark.parametrize(("after", "stopped", "written"), [(1e9, 20, False), (1e9, 10, True), (1e-9, 20, True)])
def test_a_short_call_writes_a_file_only_where_it_is_stopped(play, tmp_path, after, stopped, written):
    path = tmp_path / "run.npz"

    def watch(so_far):
        if so_far.rounds == stopped < 20:
            raise KeyboardInterrupt

    assert play(checkpoint=path, checkpoint_after=after, watch=watch).rounds == stopped
    assert path.exists() == written
    np.testing.assert_array_equal(play(checkpoint=path).metrics["loss"], play().metrics["loss"])
