"""A SuperLink and SuperNodes as processes on this machine, all of which end with the context."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from fedpick.storage import write_atomic

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # or it downloads
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "OMP_NUM_THREADS": "1",  # many small processes share the cores
    "OPENBLAS_NUM_THREADS": "1",
}
# Linux ends a process with its parent, also one that is killed. Not by preexec_fn: with JAX's threads, a fork may hang.
FOLLOW = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, which outlives exec
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Network:
    """The processes of a federation, on loopback.

    Args:
        folder: Where their files and logs are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        home = {"FLWR_HOME": str(self.home), "HOME": str(self.home), "PATH": _path()}
        self.environment = {**os.environ, **ENVIRONMENT, **home}
        help_ = [_tool("flower-superlink"), "--help"]
        shown = subprocess.run(help_, env=self.environment, capture_output=True, text=True, check=True).stdout
        self.one_port = "--port" in shown  # before, each API of the SuperLink had a port of its own
        self.ports = free_ports(1 if self.one_port else 3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def superlink(self, *security: str, connection: str = "insecure = true") -> None:
        """Start the SuperLink and wait until it listens.

        Args:
            *security: Its options for TLS and authentication; --insecure unless given.
            connection: The setting in Flower's config that fits them.
        """
        if self.one_port:
            where = ["--host", "127.0.0.1", "--port", str(self.ports[0])]
        else:
            apis = zip(("serverappio", "fleet", "control"), self.ports, strict=True)
            where = [f"--{api}-api-address=127.0.0.1:{port}" for api, port in apis]
        self.start("superlink", [_tool("flower-superlink"), *(security or ["--insecure"]), *where])
        address = f'address = "127.0.0.1:{self.ports[-1]}"'
        config = f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{address}\n{connection}\n'
        write_atomic(self.home / "config.toml", config, owner="federate")
        for port in self.ports:
            self._until_open(port)

    def supernode(
        self, client: int, *security: str, superlink: int | None = None, name: str = "", role: str = ""
    ) -> str:
        """Start the SuperNode of a client, --insecure unless options are given; returns the name of the process.

        Args:
            client: Its partition-id.
            *security: Its options for TLS and authentication.
            superlink: The port that it connects to; the SuperLink's own unless given.
            name: The name of the process; "supernode-" and the partition-id unless given.
            role: What else its node config says of it.
        """
        name = name or f"supernode-{client}"
        (port,) = free_ports(1)
        own = ["--port", str(port)] if self.one_port else ["--clientappio-api-address", f"127.0.0.1:{port}"]
        fleet = superlink or self.ports[0 if self.one_port else 1]
        config = f"partition-id={client}" + (f" role={json.dumps(role)}" if role else "")
        where = ["--superlink", f"127.0.0.1:{fleet}", "--node-config", config]
        self.start(name, [_tool("flower-supernode"), *(security or ["--insecure"]), *where, *own])
        return name

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process in a group of its own, whose children end with it, and which ends with this one."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                _following(command), env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def run(self, app: Path, settings: dict[str, Any]) -> subprocess.Popen[str]:
        """Submit an app: a process that prints its log and ends with the run."""
        chosen = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())  # JSON is TOML here
        command = [_tool("flwr"), "run", str(app), "here", "--stream", "--run-config", chosen]
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(_following(command), env=self.environment, start_new_session=True, **pipes)
        self.processes[f"run-{process.pid}"] = process
        return process

    def kill(self, name: str) -> None:
        """End a process and its children at once, as a power cut would."""
        process = self.processes.pop(name)
        _signal(_groups_below(process.pid), signal.SIGKILL)
        process.wait(timeout=30)

    def stop(self) -> None:
        """End all processes: SIGTERM, and SIGKILL after five seconds."""
        groups = {group for process in self.processes.values() for group in _groups_below(process.pid)}
        _signal(groups, signal.SIGTERM)
        end = time.monotonic() + 5
        while time.monotonic() < end and any(process.poll() is None for process in self.processes.values()):
            time.sleep(0.1)
        _signal(groups, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(timeout=30)
            if process.stdout is not None:
                process.stdout.close()
        self.processes = {}

    def log(self, name: str) -> str:
        """The log of a process."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _until_open(self, port: int) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.processes["superlink"].poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        tail = self.log("superlink")[-500:]
        raise OSError(f"federate: the SuperLink does not listen on port {port}; the end of its log: {tail!r}")


def free_ports(number: int) -> list[int]:
    """Ports on which nothing listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


def write_app(folder: Path) -> Path:
    """Write a Flower app with a copy of the client, which is to start without fedpick, and the installed server."""
    app, package = folder / "app", folder / "app" / "federation"
    client = (Path(__file__).parent / "client.py").read_text()
    server = "from fedpick.flower.demo import server\n\napp = server.app\n"
    for path, text in {"client.py": client, "server.py": server, "__init__.py": ""}.items():
        write_atomic(package / path, text, owner="federate")
    write_atomic(app / "pyproject.toml", APP, owner="federate")
    return app


APP = """
[project]
name = "fedpick-federation"
version = "1.0.0"
description = "The federation of the command fedpick federate."
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "fedpick"

[tool.flwr.app.components]
serverapp = "federation.server:app"
clientapp = "federation.client:app"

[tool.flwr.app.config]
clients = 8
rounds = 5
strategy = "pow-d"
m = 2
d = 4
seed = 0
wait = 60.0
poll-timeout = 30.0
train-timeout = 60.0
folder = ""
"""


def _following(command: Sequence[str]) -> list[str]:
    """A command whose process ends with this one, where the system can do that."""
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-IS", "-c", FOLLOW, str(os.getpid()), *command]


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _tool(name: str) -> str:
    found = shutil.which(name, path=_path())
    if found is None:
        raise ModuleNotFoundError(
            "federate: needs flwr; install it with pip install 'fedpick[flower]', or '.[flower]' in a clone"
        )
    return found


def _groups_below(pid: int) -> set[int]:
    """The process groups of a process and its descendants, which Flower starts in sessions of their own."""
    try:  # psutil is no dependency
        listing = subprocess.run(["ps", "-eo", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {pid}
    rows = [tuple(map(int, line.split())) for line in listing.splitlines()]
    below = {pid}
    for _ in range(10):  # generations
        below |= {child for child, parent, _ in rows if parent in below}
    return {pid} | {group for child, _, group in rows if child in below} - {os.getpgrp()}


def _signal(groups: set[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
