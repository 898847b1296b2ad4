"""Runs on many devices and hosts pick what one device picks, each has its share, and what does not fit is split."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.rounds import compilations

from fedpick import PowerOfChoice
from fedpick.sim import Local, Logistic, Synthetic, local, simulate, simulation
from fedpick.sim._engine import batching
from fedpick.sim._engine.compilation import keep_programs
from fedpick.sim._engine.multihost import divide

HOST = Path(__file__).parents[1] / "support" / "host.py"


@pytest.fixture(scope="module")
def federation():
    return Synthetic(1, 1, K=8, seed=0).federation()


def play(federation, **options):
    selector = PowerOfChoice(m=2, d=jnp.array([2, 4]))
    options = {"rounds": 12, "every": 4, "seeds": 4, **options}
    return simulate(federation, Logistic(), selector, Local(tau=2, b=4, eta=0.05), **options)


def same(a, b, exact=True):
    np.testing.assert_array_equal(a.records["clients"], b.records["clients"])
    for name, table in a.metrics.items():
        np.testing.assert_allclose(table, b.metrics[name], rtol=0 if exact else 1e-4, atol=0 if exact else 1e-5)
    assert a.runs == b.runs


def test_shares_are_even_and_complete():
    for number, parts in ((8, 4), (5, 2), (7, 7), (10, 3)):
        shares = divide(range(3, 3 + number), parts)
        assert [run for share in shares for run in share] == list(range(3, 3 + number))
        assert max(map(len, shares)) - min(map(len, shares)) <= (1 if number % parts else 0)


@pytest.mark.no_cover
def test_a_run_does_the_same_alone_and_among_others(federation):
    together = play(federation)
    for run, what in enumerate(together.runs[:6:2]):
        alone = simulate(
            federation,
            Logistic(),
            PowerOfChoice(m=2, d=what["d"]),
            Local(tau=2, b=4, eta=0.05),
            rounds=12,
            every=4,
            seeds=[what["seed"]],
        )
        np.testing.assert_array_equal(alone.records["clients"][0], together.records["clients"][2 * run])
        np.testing.assert_array_equal(alone.metrics["loss"][0], together.metrics["loss"][2 * run])


@pytest.mark.no_cover
def test_a_batch_of_runs_as_on_a_gpu_is_the_same_runs(federation, monkeypatch):
    one_by_one = play(federation)
    monkeypatch.setattr(batching, "ON_CPU", 8)
    same(one_by_one, play(federation), exact=False)


def test_a_batch_that_does_not_fit_into_memory_is_split(federation, monkeypatch):
    monkeypatch.setattr(batching, "ON_CPU", 8)
    whole, sizes = play(federation), []
    monkeypatch.setattr(batching, "_on_cpu", lambda device: False)  # as many as fit, as on a GPU
    real = batching._deal

    def deal(number, devices, at_most):
        dealt = real(number, devices, at_most)
        sizes.append([len(bundle.runs) for bundle in dealt])
        return dealt

    monkeypatch.setattr(batching, "_deal", deal)
    monkeypatch.setattr(batching, "free_memory", lambda device: 10**12)
    play(federation)
    assert sizes == [[8]]
    sizes.clear()
    monkeypatch.setattr(batching, "free_memory", lambda device: 200_000)
    split = play(federation)
    assert len(sizes) > 1
    assert max(sizes[-1]) < 8
    assert sum(sizes[-1]) == 8
    same(whole, split, exact=False)


@pytest.mark.parametrize(
    ("rounds", "every"), [(11, 4), *(pytest.param(*other, marks=pytest.mark.slow) for other in ((12, 4), (3, 1)))]
)
def test_an_evaluation_beside_the_rounds_is_the_same_evaluation(federation, monkeypatch, tmp_path, rounds, every):
    whole = play(federation, rounds=rounds, every=every)
    monkeypatch.setattr(batching, "MUCH", 0)  # as where there is much to evaluate
    with compilations() as programs:
        apart = play(federation, rounds=rounds, every=every)
    assert "rounds" in programs
    assert "chunk" not in programs
    same(whole, apart, exact=False)
    assert apart.rounds == rounds
    # Stopped after a chunk and taken up again, it is the same bit for bit.
    monkeypatch.setattr(simulation, "CHUNK", every)
    file = tmp_path / "run.npz"
    stopped = play(federation, rounds=rounds, every=every, checkpoint=file, until=("loss", 1e9))
    assert not stopped.finished or rounds <= every
    same(
        apart, play(federation, rounds=rounds, every=every, checkpoint=file), exact=every * (rounds // every) == rounds
    )


@pytest.mark.no_cover
def test_steps_compiled_at_a_stretch_are_the_same_steps(federation):
    model, settings = Logistic().build(federation), Local(tau=7, b=4, eta=0.05)
    train = functools.partial(local.train, federation, model, settings, params=model.init(jax.random.key(0)))
    for unroll in (2, 7):
        seat = {"client": jnp.int32(3), "key": jax.random.key(1), "t": jnp.int32(0)}
        one, other = (train(**seat, unroll=number) for number in (1, unroll))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_more_runs_on_a_cpu_are_the_same_program(federation):
    play(federation)
    with compilations() as programs:
        play(federation, seeds=7)
    assert programs.count("choices") == 0


def start(arguments, **environment):
    """A fresh process, because devices and hosts are settled when JAX starts."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    if "FEDPICK_CACHE" in environment:
        variables.pop("JAX_COMPILATION_CACHE_DIR", None)  # which goes before it
    command = [sys.executable, str(HOST), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def answer(process, timeout=240):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def kept_programs(tmp_path_factory):
    """Where a process has kept its programs, as in a home without any: the settings."""
    folder = tmp_path_factory.mktemp("kept")
    return {"FEDPICK_CACHE": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture(scope="module")
def one_device(kept_programs):
    return answer(start(["alone"], **kept_programs))


@pytest.mark.slow
def test_four_devices_pick_what_one_picks_and_each_holds_its_share(one_device):
    four = answer(start(["alone"], JAX_NUM_CPU_DEVICES="4", DEVICE="2"))
    assert four["devices"] == 4
    assert four["held"] == {"0": 2, "1": 2, "2": 2, "3": 2}, "each device holds the state of its own runs"
    assert one_device["held"] == {"0": 8}
    for name in ("clients", "loss", "params"):
        assert four[name] == one_device[name], name
    assert four["held_by_choice"] == {"2": 8}, "the device that the user chose"


@pytest.mark.slow
def test_two_hosts_pick_what_one_picks_and_each_plays_its_share(one_device):
    port = free_port()
    pair = [start([port, host, 2]) for host in range(2)]
    found = [answer(process) for process in pair]
    assert [host["played"] for host in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for host in found:
        for name in ("clients", "loss", "params"):
            assert host[name] == one_device[name], name


@pytest.mark.slow
def test_tasks_of_a_slurm_job_need_no_arguments(one_device):
    """JAX takes the address, the number of tasks and which one it is from what SLURM sets for each task."""
    common = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    common |= {"SLURM_STEP_NUM_NODES": "1"}
    tasks = [start(["detect"], **common, SLURM_PROCID=number, SLURM_LOCALID=number) for number in ("0", "1")]
    for found in [answer(task) for task in tasks]:
        assert found["clients"] == one_device["clients"]


@pytest.mark.slow
def test_a_dead_host_is_an_error_in_bounded_time_and_its_checkpoint_goes_on_with_fewer(one_device, tmp_path):
    file, port = tmp_path / "run.npz", free_port()
    pair = [start([port, host, 2, file, "die" if host else "live"]) for host in range(2)]
    began = time.monotonic()
    out, err = pair[0].communicate(timeout=120)
    pair[1].communicate(timeout=10)
    assert pair[1].returncode == -signal.SIGKILL
    assert pair[0].returncode != 0, out
    assert "lost contact with a host" in err
    assert time.monotonic() - began < 100
    assert file.exists(), err[-2000:]
    fewer = answer(start(["alone", file]))
    assert fewer["resumed_at"] == 8
    for name in ("clients", "loss", "params"):
        assert fewer[name] == one_device[name], name


@pytest.mark.parametrize("number", [1])
def test_more_hosts_than_runs_is_one_sentence(monkeypatch, federation, number):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="seeds must make at least one run for each of the 2 hosts, got 1"):
        simulate(federation, Logistic(), PowerOfChoice(2, 2), Local(1, 1, 0.1), rounds=1, seeds=number)


@pytest.mark.no_cover
def test_compiled_programs_are_kept_on_disk_and_found_by_the_next_invocation(kept_programs, one_device):
    folder, first = Path(kept_programs["FEDPICK_CACHE"]) / "programs", one_device
    kept = {file.name: file.stat().st_mtime_ns for file in folder.glob("jit_choices*-cache")}
    assert len(kept) == 1
    second = answer(start(["alone"], **kept_programs))
    assert first["found_on_disk"] == 0
    assert second["found_on_disk"] >= 2
    assert first["params"] == second["params"]
    assert {file.name: file.stat().st_mtime_ns for file in folder.glob("jit_choices*-cache")} == kept


def test_a_home_that_cannot_be_written_to_costs_only_time(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPICK_CACHE", str(tmp_path / "file"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        keep_programs()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


LARGE = """
import numpy as np, resource
from fedpick import PowerOfChoice
from fedpick.sim import Federation, Local, MLP, simulate
from fedpick.sim.federation import pixels

K, each = 10_000, 600
rng = np.random.default_rng(0)
x = np.frombuffer(rng.bytes(K * each * 784), np.uint8).reshape(K * each, 784)
y = rng.integers(0, 10, K * each)
federation = Federation.from_arrays(x, y, np.repeat(np.arange(K), each), prepare=pixels)
del x, y
result = simulate(federation, MLP(), PowerOfChoice(m=3, d=6), Local(30, 64, 0.005), rounds=5, every=5, seeds=2)
assert np.isfinite(result.metrics["loss"]).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_ten_thousand_clients_of_six_hundred_images_fit_into_twice_their_bytes_and_a_little():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    data = 10_000 * 600 * 784
    assert int(done.stdout) < 2 * data + 2e9
