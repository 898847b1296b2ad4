"""Real SuperLinks and SuperNodes on loopback: kills, lies, late joiners, restarts, TLS. Every wait has a bound."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid
from support.processes import Network, Run, faulty_app, kept, kill_server_app, parity_app, until

from fedpick import PowerOfChoice, strategy
from fedpick.flower import Selecting
from fedpick.flower.demo import client as demo
from fedpick.sim import Devices, Federation, Local, Logistic, simulate
from fedpick.storage import load_state

pytestmark = pytest.mark.slow

START = 150.0  # seconds until a federation of a dozen processes is up on two busy cores


def reference(good, clients, m, d, rounds):
    """The first few clients alone, called in this process: what a federation of only good nodes comes to."""
    grid = FakeGrid(demo.app, range(good))
    for context in grid.nodes.values():
        context.run_config = {"seed": 0}
    ours = Selecting(FedAvg(fraction_evaluate=0.0), PowerOfChoice(m=m, d=d), wait=0.0, clients=clients)
    first = ArrayRecord({"w": Array(np.zeros((demo.DIM + 1, demo.CLASSES), np.float32))})
    result = ours.start(grid, first, num_rounds=rounds, timeout=60)
    return [sorted(row.clients) for row in ours.history.rows], result.arrays["w"].numpy()


def loss_of(w, clients):
    parts = [demo.data(k, 0) for k in range(clients)]
    return float(np.mean([demo.mean_loss(w, x, y) for x, y in parts]))


def last_model(folder):
    path = max((Path(folder) / "state").glob("*.state"))
    owner = json.loads(path.read_bytes().split(b"\n", 1)[0])["owner"]
    return load_state(path, owner=owner, what="state").arrays["model/w"]


def test_nodes_that_lie_raise_or_sleep_are_left_out_and_nothing_hangs(tmp_path):
    faults = "4=raise 5=nan 6=inf 7=negative 8=text 9=huge 10=sleep"
    poll_timeout, train_timeout, rounds = 60.0, 60.0, 4
    settings = {
        **{"clients": 11, "m": 2, "d": 11, "rounds": rounds, "wait": START, "faults": faults},
        **{"poll-timeout": poll_timeout, "train-timeout": train_timeout, "folder": str(tmp_path / "kept")},
    }
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(11):
            network.supernode(k)
        run = Run(network, faulty_app(tmp_path), settings)
        assert run.end(START + rounds * (2 * poll_timeout + train_timeout)) == 0, run.text
    arrays, _ = kept(tmp_path / "kept")
    picks, model = reference(4, clients=11, m=2, d=11, rounds=rounds)
    assert [sorted(row) for row in arrays["records/clients"].tolist()] == picks
    np.testing.assert_allclose(last_model(tmp_path / "kept"), model, atol=1e-5)
    assert (arrays["records/returned"] == 2).all()
    assert (arrays["records/seconds"][1:] < 2 * poll_timeout + train_timeout).all()
    for k, why in enumerate(["the disk is full", *["no valid loss"] * 5], start=4):
        assert re.search(f"partition-id={k} did not answer the poll: .*{why}", run.text), run.text
    # Whichever notices first: we, or the SuperLink, which then answers in its stead that the message has expired.
    assert re.search("partition-id=10 did not answer the poll: (no reply within 60 s|error: )", run.text), run.text


def test_nodes_killed_in_a_poll_in_training_and_between_rounds_and_one_that_joins_late(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    poll_timeout, train_timeout, rounds = 25.0, 30.0, 7
    bound = 2 * poll_timeout + train_timeout
    settings = {
        **{"clients": 6, "m": 2, "d": 6, "rounds": rounds, "wait": START, "marks": str(marks)},
        **{"faults": "5=hang-in-poll 4=hang-in-train 6=high", "folder": str(tmp_path / "kept")},
        **{"poll-timeout": poll_timeout, "train-timeout": train_timeout},
    }
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(6):
            network.supernode(k)
        run = Run(network, faulty_app(tmp_path), settings)
        until((marks / "poll-5").exists, START + bound, "client 5 is polled")
        network.kill("supernode-5")
        until((marks / "train-4").exists, bound, "client 4 trains")
        network.kill("supernode-4")
        run.until(r"round 2: . of . returned", 2 * bound)
        network.kill("supernode-3")
        network.supernode(6)
        assert run.end((rounds - 2) * bound) == 0, run.text
    arrays, about = kept(tmp_path / "kept")
    trained = arrays["records/clients"].tolist()
    assert len(trained) == rounds
    assert not {4, 5} & {k for row in trained for k in row}
    assert all(3 not in row for row in trained[2:])  # it may have been chosen once, and then did not come back
    assert "partition-id=6" in about["clients"]
    assert any(6 in row for row in trained[2:])
    assert (arrays["records/seconds"][1:] < bound + 10).all(), arrays["records/seconds"]
    assert arrays["records/returned"][-1] == 2
    # Nothing of the dead is in the model, and what is left has learnt.
    assert loss_of(last_model(tmp_path / "kept"), 3) < 0.8 * loss_of(np.zeros((demo.DIM + 1, demo.CLASSES)), 3)


def test_a_server_app_killed_mid_round_and_a_superlink_restarted_go_on_with_the_same_picks(tmp_path):
    rounds = 6
    settings = {
        **{"clients": 3, "m": 2, "d": 3, "rounds": rounds, "wait": START, "folder": str(tmp_path / "kept")},
        **{"poll-timeout": 60.0, "train-timeout": 60.0},
    }
    app = faulty_app(tmp_path)
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(3):
            network.supernode(k)
        run = Run(network, app, settings)
        run.until("round 3: .* selected", START + 120)
        kill_server_app(network)
        assert len(kept(tmp_path / "kept")[0]["records/returned"]) == 2
        # The same SuperLink and SuperNodes, and another run.
        run = Run(network, app, {**settings, "rounds": 4})
        run.until("resuming after 2 rounds", START)
        assert run.end(240) == 0, run.text
        # All machines are switched off and on.
        network.kill("superlink")
        for k in range(3):
            network.kill(f"supernode-{k}")
        network.superlink()
        for k in (2, 0, 1):
            network.supernode(k)
        run = Run(network, app, settings)
        run.until("resuming after 4 rounds", START)
        assert run.end(START + 240) == 0, run.text
    picks, model = reference(3, clients=3, m=2, d=3, rounds=rounds)
    assert [sorted(row) for row in kept(tmp_path / "kept")[0]["records/clients"].tolist()] == picks
    np.testing.assert_allclose(last_model(tmp_path / "kept"), model, atol=1e-5)


def test_the_command_federates_and_its_run_can_be_reported(tmp_path):
    fedpick = str(Path(sys.executable).parent / "fedpick")
    environment = {**os.environ, "HOME": str(tmp_path), "FEDPICK_CACHE": "", "FEDPICK_MARK": str(tmp_path)}
    for command in (["federate", "--clients", "3", "--rounds", "2", "--shared-loopback"], ["report"]):
        place = ["-o", str(tmp_path / "out")] if command[0] == "federate" else [str(tmp_path / "out")]
        done = subprocess.run(
            [fedpick, *command, *place], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "pow-d" in (tmp_path / "out" / "report.html").read_text()
    assert not _with(f"FEDPICK_MARK={tmp_path}")  # nothing is left running


def _with(variable):
    """The processes that have this in their environment, which children inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """Four clients, as the simulator has them and as a file has them."""
    rng = np.random.default_rng(1)
    client = np.repeat(np.arange(4), [30, 12, 20, 45])
    x = (rng.normal(size=(len(client), 5)) + rng.normal(size=(4, 5))[client]).astype(np.float32)
    y = np.argmax(x @ rng.normal(size=(5, 3)) + rng.normal(size=(4, 3))[client], axis=1)
    federation, local = Federation.from_arrays(x, y, client), Local(tau=3, b=64, eta=0.1)
    seconds = DEVICES.train_seconds(local.samples(federation.count), model_bytes=4 * 6 * 3)
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, x=x, y=y, client=client, tau=3, eta=0.1, seconds=np.asarray(seconds))
    return federation, Logistic(), local, path


DEVICES = Devices(speed=np.array([50.0, 400.0, 100.0, 25.0], np.float32))  # what the clients say it took them
SELECTORS = {
    "rand": {"m": 2},
    "oort": {"m": 2},  # needs durations and square losses
    "k-vib": {"m": 2, "rounds": 20},  # needs norms
    "clustered-similarity": {"m": 2},  # needs sketches
    "pow-d": {"m": 2, "d": 3},
    "cpow-d": {"m": 2, "d": 3},
    "rpow-d": {"m": 2, "d": 3},
    "afl": {"m": 2},
    "auto": {"m": 2},
}


def planned(folder, problem, rounds, names):
    plan = {
        **{
            "selectors": {name: SELECTORS[name] for name in names},
            "seed": 7,
            "clients": 4,
            "batch": 64,
            "shape": [5, 3],
            "rounds": rounds,
        },
        **{"found": str(folder / "found.json")},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return {"data": str(problem[3]), "plan": str(folder / "plan.json")}


def assert_parity(folder, problem, rounds, names):
    federation, model, local, _ = problem
    found = json.loads((folder / "found.json").read_text())
    assert list(found) == list(names)
    for name in names:
        selector = strategy(name, **SELECTORS[name])
        options = {"rounds": rounds, "seeds": [7], "devices": DEVICES, "progress": False}
        simulated = simulate(federation, model, selector, local, **options)
        assert found[name]["clients"] == simulated.records["clients"][0].tolist(), name
        for key in ("w", "b"):
            np.testing.assert_allclose(found[name][key], simulated.params[key][0], atol=1e-4)


@pytest.mark.filterwarnings("ignore:simulate. b=64 is more than")
@pytest.mark.parametrize("name", SELECTORS)
def test_real_processes_pick_and_learn_what_the_simulator_does(tmp_path, problem, name):
    rounds = 20
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(4):
            network.supernode(k)
        run = Run(network, parity_app(tmp_path), planned(tmp_path, problem, rounds, [name]))
        assert run.end(START + rounds * 40) == 0, run.text
    assert_parity(tmp_path, problem, rounds, [name])


@pytest.mark.filterwarnings("ignore:simulate. b=64 is more than")
def test_the_simulation_runtime_picks_and_learns_what_the_simulator_does(tmp_path, problem):
    pytest.importorskip("ray", reason="the simulation runtime needs pip install 'flwr[simulation]'")
    rounds = 20
    settings = planned(tmp_path, problem, rounds, SELECTORS)
    script = Path(__file__).parents[1] / "support" / "flower_apps" / "simulated.py"
    network = Network(tmp_path)  # for its environment
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(settings)],
        env={**network.environment, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert_parity(tmp_path, problem, rounds, SELECTORS)
