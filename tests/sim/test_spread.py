"""One federation over several devices and hosts: the same picks as on one, and the same models to rounding."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

HOST = Path(__file__).parents[1] / "support" / "spread.py"


def start(*arguments, devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [sys.executable, str(HOST), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers(processes):
    texts = [process.communicate(timeout=500) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), texts
    return [json.loads(out.splitlines()[-1]) for out, _ in texts]


@pytest.fixture(scope="module")
def alone():
    """A process with four devices, which plays the runs one device each, and then together."""
    (found,) = answers([start("alone", devices=4)])
    assert found["devices"] == 4
    return found


def same(one, other):
    assert one["clients"] == other["clients"]
    for name in ("losses", "test"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5)
    for mine, theirs in zip(*map(jax.tree.leaves, (one["model"], other["model"])), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_seats_over_four_devices(alone):
    same(alone["one device each"], alone["spread"])


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2, 4])
def test_seats_over_several_hosts(alone, hosts):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = answers([start(port, host, hosts, devices=1) for host in range(hosts)])
    for one in found:
        assert one["devices"] == hosts
        same(alone["one device each"], one["spread"])
