"""The documented deployment, with strangers at the door: those who have the public certificate, and nothing else."""

import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support.door import door
from support.processes import Network, Run, faulty_app, guarded_app, kept

from fedpick.flower.demo import client as demo
from fedpick.flower.demo.processes import _tool, free_ports, write_app

pytestmark = pytest.mark.slow

START = 240.0  # seconds until a federation of a dozen processes is up on two busy cores
SECTION = "## Several machines"
CERTIFICATES = ("--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile")


@pytest.fixture
def deployment(tmp_path):
    """The commands of the documentation, carried out here: its certificates, keys, SuperLink and door."""
    page = (Path(__file__).parents[2] / "docs" / "flower.md").read_text()
    section = page[page.index(SECTION) : page.index("## Time-outs")]
    server, client = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (nginx,) = re.findall(r"```nginx\n(.*?)```", section, re.DOTALL)
    for block in [server, *(client.replace("CLIENT=0", f"CLIENT={k}") for k in range(4))]:
        subprocess.run(["bash", "-euc", block], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    options = dict(re.findall(r"(--[a-z-]+) (certificates/[\w.-]+)", section))
    here = {name: str(tmp_path / path) for name, path in options.items()}
    assert set(here) == {*CERTIFICATES, "--root-certificates", "--auth-supernode-private-key"}
    assert "--enable-supernode-auth --host 127.0.0.1" in section
    (port,) = free_ports(1)
    security = [*(word for name in CERTIFICATES for word in (name, here[name])), "--enable-supernode-auth"]
    with Network(tmp_path) as network:
        if not network.one_port:
            pytest.skip("this flwr has a port for each API, and needs no door")
        connection = f'root-certificates = "{here["--root-certificates"]}"'
        network.superlink(*security, connection=connection)
        with door(nginx, tmp_path, port, network.ports[0]):
            yield network, port, connection


def register(network, key, place="here", home=None):
    environment = (
        network.environment if home is None else {**network.environment, "FLWR_HOME": str(home), "HOME": str(home)}
    )
    command = [_tool("flwr"), "supernode", "register", str(key), place]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def keyed(folder, k):
    root = ["--root-certificates", str(folder / "certificates" / "ca.pem")]
    return [*root, "--auth-supernode-private-key", str(folder / "certificates" / f"client-{k}")]


def test_strangers_are_refused_and_the_registered_train(tmp_path, deployment):
    network, port, connection = deployment
    for k in range(2):
        done = register(network, tmp_path / "certificates" / f"client-{k}.pub")
        assert done.returncode == 0, done.stdout + done.stderr
    # The stranger has the certificate and the address, as every client has.
    home = tmp_path / "stranger"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "in"\n\n[superlink.in]\naddress = "127.0.0.1:{port}"\n{connection}\n'
    )
    refused = register(network, tmp_path / "certificates" / "client-2.pub", "in", home)
    assert "registered successfully" not in refused.stdout + refused.stderr
    assert refused.returncode != 0
    app = write_app(tmp_path / "theirs")
    mark = tmp_path / "they-were-here"
    (app / "federation" / "server.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    environment = {**network.environment, "FLWR_HOME": str(home), "HOME": str(home)}
    command = [_tool("flwr"), "run", str(app), "in"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode != 0, run.stdout
    for k in range(3):  # the key of the third is not registered
        network.supernode(k, *keyed(tmp_path, k), superlink=port)
    network.supernode(3, "--insecure", superlink=port)
    network.supernode(4, *keyed(tmp_path, 0)[:2], superlink=port)  # without a key
    settings = {"clients": 2, "m": 1, "d": 2, "rounds": 3, "wait": START, "folder": str(tmp_path / "kept")}
    ours = Run(network, faulty_app(tmp_path), settings)
    assert ours.end(START + 3 * 120) == 0, ours.text
    logs = [network.log(name) for name in ("supernode-2", "supernode-3", "supernode-4")]
    arrays, about = kept(tmp_path / "kept")
    assert about["clients"] == ["partition-id=0", "partition-id=1"]
    assert (arrays["records/available"] == 2).all()
    assert (arrays["records/returned"] == 1).all()
    for log in logs:
        assert "Receiving: query.loss" not in log
        assert "Failed to activate" in log or "Connection attempt failed" in log or "ERROR" in log, log
    time.sleep(5)
    assert not mark.exists()


def test_a_registered_client_that_lies_is_bounded_as_without_tls(tmp_path, deployment):
    network, port, _ = deployment
    for k in range(4):
        done = register(network, tmp_path / "certificates" / f"client-{k}.pub")
        assert done.returncode == 0, done.stdout + done.stderr
    for k in range(3):
        network.supernode(k, *keyed(tmp_path, k), superlink=port)
    network.supernode(0, *keyed(tmp_path, 3), superlink=port, name="liar", role="liar")  # and claims another's name
    settings = {
        **{"clients": 4, "m": 3, "d": 4, "rounds": 4, "wait": START, "folder": str(tmp_path / "kept")},
        **{"poll-timeout": 60.0, "train-timeout": 60.0, "faults": "liar=poison"},
    }
    run = Run(network, guarded_app(tmp_path / "ours", norm_bound=2.0, identity="node"), settings)
    assert run.end(START + 4 * 240) == 0, run.text
    arrays, about = kept(tmp_path / "kept")
    assert len(set(about["clients"])) == 4  # by their keys, whatever they claim
    assert all(name.startswith("node=") for name in about["clients"])
    (liar,) = set(re.findall(r"the update of (node=\d+), of norm", run.text))
    mine = arrays["records/clients"] == about["clients"].index(liar)
    assert np.where(mine, arrays["records/weights"], 0).sum(axis=1).max() <= 1 / 3 + 1e-6
    assert re.search(f"{liar} reports 1e.12 examples, and counts as", run.text), run.text
    assert arrays["metrics/test_loss"][-1] < 2 * np.log(demo.CLASSES)
