"""``fedpick federate`` and its processes, with programs that stand in for Flower's (the real ones are elsewhere)."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.flower.demo import processes as module
from fedpick.flower.demo.processes import Network, free_ports, write_app

SUPERLINK = """
import socket, sys, time
if "--help" in sys.argv:
    print("--port" if {one_port} else "--fleet-api-address")
    sys.exit()
if {dies}:
    sys.exit("the port is taken")
names = ["--port"] if {one_port} else ["--serverappio-api-address", "--fleet-api-address", "--control-api-address"]
words = [word for argument in sys.argv for word in argument.split("=")]
ports = [int(words[words.index(name) + 1].split(":")[-1]) for name in names]
sockets = [socket.create_server(("127.0.0.1", port)) for port in ports]
print("listening", flush=True)
time.sleep(60)
"""
SUPERNODE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("child", child.pid, " ".join(sys.argv[1:]), flush=True)
time.sleep(60)
"""
FLWR = """
import re, shutil, sys
from pathlib import Path
settings = dict(re.findall('([a-z-]+)="?([^" ]*)"?', sys.argv[-1]))
print("\\x1b[92mINFO\\x1b[0m:  fedpick round 1: 2 clients available; selected: partition-id=1")
if {fails}:
    sys.exit("Traceback: it broke")
shutil.copytree({record!r}, settings["folder"])
"""


FEDERATE = ["federate", "--shared-loopback", "-q"]


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Programs with the names of Flower's."""

    def make(one_port=True, dies=False, fails=False, record=""):
        programs = {"flower-superlink": SUPERLINK, "flower-supernode": SUPERNODE, "flwr": FLWR}
        for name, text in programs.items():
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            values = {"one_port": one_port, "dies": dies, "fails": fails, "record": str(record)}
            filled = text.format(**values) if name != "flower-supernode" else text
            path.write_text(f"#!{sys.executable}\n{filled}")
            path.chmod(0o755)
        monkeypatch.setattr(module, "_path", lambda: f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return make


@pytest.fixture
def record(tmp_path):
    """What a server keeps: two rounds of two clients."""
    from flwr.app import Context, RecordDict
    from support.fake_grid import FakeGrid

    from fedpick.flower.demo import client, server

    config = {
        **{"clients": 2, "seed": 0, "strategy": "pow-d", "m": 1, "d": 2, "wait": 0.0, "rounds": 2},
        **{"poll-timeout": 5.0, "train-timeout": 5.0, "folder": str(tmp_path / "record")},
    }
    grid = FakeGrid(client.app, range(2))
    for context in grid.nodes.values():
        context.run_config = config
    server.main(grid, Context(1, 1, {}, RecordDict(), config))
    return tmp_path / "record"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


def until(what):
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("one_port", [True, False])
def test_processes_are_started_killed_and_stopped_with_their_children(tmp_path, stand_ins, one_port):
    stand_ins(one_port)
    with Network(tmp_path / "net") as network:
        network.superlink()
        assert "listening" in network.log("superlink")
        names = [network.supernode(k) for k in range(2)]
        until(lambda: all("child" in network.log(name) for name in names))
        children = [int(network.log(name).split()[1]) for name in names]
        assert "--node-config partition-id=1" in network.log("supernode-1")
        assert ("--clientappio-api-address" in network.log("supernode-0")) is not one_port
        assert all(map(alive, children))
        network.kill("supernode-0")
        until(lambda: not alive(children[0]))
        assert alive(children[1])
        assert network.log("nobody") == ""
    until(lambda: not alive(children[1]))
    assert network.processes == {}


def test_a_superlink_that_does_not_start_is_an_error_with_its_words(tmp_path, stand_ins):
    stand_ins(dies=True)
    with (
        Network(tmp_path / "net") as network,
        pytest.raises(OSError, match=r"does not listen on port .*the port is taken"),
    ):
        network.superlink()


@pytest.mark.no_cover
def test_a_process_that_ignores_a_polite_end_is_killed(tmp_path, stand_ins):
    stand_ins()
    with Network(tmp_path / "net") as network:
        deaf = "from signal import *; import time; signal(SIGTERM, SIG_IGN); print('up', flush=True); time.sleep(60)"
        network.start("stubborn", [sys.executable, "-c", deaf])
        until(lambda: "up" in network.log("stubborn"))
        process = network.processes["stubborn"]
    assert process.returncode == -signal.SIGKILL


def test_without_flwr_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_path", lambda: str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=r"needs flwr; install it with pip install 'fedpick\[flower\]'"):
        Network(tmp_path / "net")


def test_ports_are_free_and_different():
    ports = free_ports(3)
    assert len(set(ports)) == 3
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", ports[0]))


def test_the_app_is_one_that_flower_takes(tmp_path):
    import tomllib

    written = write_app(tmp_path)
    config = tomllib.loads((written / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for kind, maker in (("serverapp", "app = server.app"), ("clientapp", "app = ClientApp()")):
        path = config["components"][kind].removesuffix(":app").replace(".", "/")
        assert maker in (written / f"{path}.py").read_text()
    imports = (written / "federation" / "client.py").read_text()
    assert "import fedpick" not in imports
    assert "from fedpick" not in imports  # it starts anew for every message, and fast


def test_the_command_shows_the_rounds_and_keeps_the_run(tmp_path, stand_ins, record):
    stand_ins(record=record)
    output = tmp_path / "out"
    command = ["federate", "--clients", "2", "--rounds", "2", "--shared-loopback", "-o", str(output)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "round 1: 2 clients available; selected: partition-id=1" in done.output
    assert "all processes are stopped" in done.output
    assert "pow-d, 2 clients" in done.output
    assert len(list((output / "runs").iterdir())) == 1
    quiet = CliRunner().invoke(app, [*command, "--quiet"])
    assert quiet.exit_code == 0, quiet.output
    assert "selected" not in quiet.output


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["compare", "quadratic", "--strategies", "rand", "--rounds", "2", "--seeds", "1"], "a comparison"),
        (["run", "sim.toml"], "simulations"),
    ],
)
def test_a_folder_with_simulations_is_refused_before_anything_is_started(
    command, found, tmp_path, stand_ins, monkeypatch
):
    stand_ins(fails=True)
    monkeypatch.chdir(tmp_path)
    kinds = 'rounds = 2\nseeds = 1\nselector = {kind = "rand", m = 1}\nlocal = {tau = 1, b = 1, eta = 1e-3}\n'
    Path("sim.toml").write_text(kinds + 'data = {kind = "quadratic", K = 3}\nmodel = {kind = "quadratic"}\n')
    played = CliRunner().invoke(app, [*command, "-q", "-o", "results"])
    assert played.exit_code == 0, played.output
    done = CliRunner().invoke(app, [*FEDERATE, "-o", "results"])
    assert done.exit_code == 1
    rule = "federate: output must be a folder of federations alone, got 'results' with"
    assert done.output == f"{rule} {found}; choose another (-o)\n"


def test_a_federation_after_a_run_with_both_default_folders_has_its_page(tmp_path, stand_ins, record, monkeypatch):
    stand_ins(record=record)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "runs").mkdir(parents=True)
    for _ in range(2):  # a folder of federations takes more of them
        done = CliRunner().invoke(app, [*FEDERATE, "--clients", "2", "--rounds", "2"])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "federation" / "report.html").is_file()
    assert not list((tmp_path / "results" / "runs").iterdir())


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (
            ["--clients", "3", "-m", "1", "-d", "2"],
            "output must be a folder of federations with 3 clients, got {} with 2 clients; choose another (-o)",
        ),
        (
            ["--clients", "2", "--rounds", "1"],
            "rounds must be at least the 2 of this federation in {}, which would be lost, got 1; choose another (-o)",
        ),
        (
            ["--clients", "2", "--strategy", "rand", "--seed", "1"],
            "seed must be one that the federations in {} have in common (0), got 1; choose another (-o)",
        ),
        (
            ["--clients", "2", "--rounds", "3", "--seed", "1"],
            "seed must be one that the federations in {} have in common (0), got 1; choose another (-o)",
        ),
        (
            ["--strategy", "private(pow-d)"],
            "strategy must hear exact losses, which the clients here do not disguise, got 'private(pow-d)'",
        ),
    ],
)
def test_what_would_not_fit_into_the_folder_is_refused_before_anything_is_started(
    tmp_path, stand_ins, record, options, rule
):
    stand_ins(record=record)
    output = str(tmp_path / "out")
    first = CliRunner().invoke(app, [*FEDERATE, "--clients", "2", "--rounds", "2", "-o", output])
    assert first.exit_code == 0, first.output
    stand_ins(fails=True)
    done = CliRunner().invoke(app, [*FEDERATE, *options, "-o", output])
    assert (done.exit_code, done.output) == (1, f"federate: {rule.format(repr(output))}\n")


def test_fewer_rounds_than_were_asked_for_are_an_error(tmp_path, stand_ins, record):
    stand_ins(record=record)
    done = CliRunner().invoke(app, [*FEDERATE, "--clients", "2", "--rounds", "3", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "federate: 3 rounds must be played, got 2" in done.output


def test_a_run_that_fails_says_its_last_words(tmp_path, stand_ins):
    stand_ins(fails=True)
    done = CliRunner().invoke(app, [*FEDERATE, "--clients", "1", "--seats", "1", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "federate: the Flower run failed; last log lines: " in done.output
    assert "it broke" in done.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-d", "1", "--seats", "2"], "federate: -d must be at least m=2 and at most K=8, got 1"),
        (["-d", "9"], "federate: -d must be at least m=2 and at most K=8, got 9"),
        (["--strategy", "powd"], "selector must be one of"),
        (
            ["--strategy", "rand", "-d", "4"],
            "federate: -d must be a parameter of the strategy, which rand does not have",
        ),
    ],
)
def test_mistakes_are_named_before_anything_is_started(options, sentence, tmp_path):
    done = CliRunner().invoke(app, ["federate", "-o", str(tmp_path), *options])
    assert done.exit_code == 1
    assert sentence in done.output


def test_a_loopback_that_others_can_reach_must_be_asked_for(tmp_path):
    done = CliRunner().invoke(app, ["federate", "-o", str(tmp_path)])
    assert done.exit_code == 1
    assert "federate: --shared-loopback must be given where other users of this machine could reach" in done.output


PROGRAM = """
from fedpick.cli import main
from fedpick.cli._loopback import take_loopback
take_loopback()  # before there are threads, as the command does
from fedpick.flower.demo import processes
processes._path = lambda: {path!r}
main()
"""


def started(tmp_path, *options):
    """The command in a process of its own, whose Flower never ends."""
    flwr = tmp_path / "bin" / "flwr"
    flwr.write_text(f"#!{sys.executable}\nimport time\nprint('fedpick round 1', flush=True)\ntime.sleep(120)\n")
    program = PROGRAM.format(path=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "temporary").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "FEDPICK_MARK": str(tmp_path)}
    words = ["federate", "--clients", "2", "-o", str(tmp_path / "out"), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", program, *words], env=environment, **pipes)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_ends_all_processes_and_removes_the_folder(tmp_path, stand_ins, number):
    stand_ins()
    process = started(tmp_path, "--shared-loopback")
    try:
        for line in process.stdout:
            if "round 1" in line:
                break
        assert len(marked(tmp_path)) >= 5  # itself, a SuperLink, two SuperNodes and their children
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number, process.stdout.read()
        until(lambda: not marked(tmp_path))
        assert not list((tmp_path / "temporary").iterdir())
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


@pytest.mark.no_cover
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux alone")
def test_the_superlink_and_the_supernodes_end_with_a_command_that_is_killed(tmp_path, stand_ins):
    stand_ins()
    process = started(tmp_path, "--shared-loopback")
    try:
        for line in process.stdout:
            if "round 1" in line:
                break
        listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        rows = [tuple(map(int, line.split())) for line in listing.splitlines()]
        children = [pid for pid, parent in rows if parent == process.pid]
        others = [pid for pid, parent in rows if parent in children]  # which Flower's own would end
        assert len(children) == 4  # a SuperLink, two SuperNodes and the run
        process.kill()
        until(lambda: not any(map(alive, children)))
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(tmp_path):
    """The processes that have this mark in their environment, which children inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"FEDPICK_MARK={tmp_path}".encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


@pytest.mark.no_cover
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux has network namespaces")
def test_nobody_else_reaches_the_superlink(tmp_path, stand_ins):
    stand_ins()
    process = started(tmp_path)
    try:
        for line in process.stdout:
            if "--shared-loopback must be given" in line:
                pytest.skip(f"this system has none for us: {line}")
            if "round 1" in line:
                break
        (log,) = (tmp_path / "temporary").glob("fedpick-*/superlink.log")
        config = (log.parent / "home" / "config.toml").read_text()
        port = int(re.search(r"127\.0\.0\.1:(\d+)", config)[1])
        assert "listening" in log.read_text()
        assert "refused" in connected(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        process.wait(timeout=60)


def connected(port):
    """What somebody else on this machine gets who connects to this port."""
    program = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr
