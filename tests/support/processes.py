"""Real federations for tests: apps with faults, a log that is read as it grows, and a bound on every wait."""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

from fedpick.flower.demo.processes import APP, Network, write_app

APPS = Path(__file__).parent / "flower_apps"


def faulty_app(folder):
    """The app of ``fedpick federate`` with clients that have faults."""
    app = write_app(folder)
    shutil.copy(APPS / "faulty.py", app / "federation" / "faulty.py")
    text = APP.replace("federation.client:app", "federation.faulty:app") + 'faults = ""\nmarks = ""\n'
    (app / "pyproject.toml").write_text(text)
    return app


def guarded_app(folder, **options):
    """The same, with these options of ``Selecting``."""
    app = faulty_app(folder)
    lines = ["from flwr.serverapp import ServerApp", "from fedpick.flower.demo.server import play", "app = ServerApp()"]
    lines += ["@app.main()", "def main(grid, context):", f"    play(grid, context, **{options!r})"]
    (app / "federation" / "server.py").write_text("\n".join(lines) + "\n")
    return app


def parity_app(folder):
    """An app whose clients compute what the simulator computes."""
    app = folder / "app"
    (app / "parity_app").mkdir(parents=True)
    (app / "parity_app" / "__init__.py").write_text("")
    shutil.copy(APPS / "parity.py", app / "parity_app" / "both.py")
    text = APP.replace("federation.client:app", "parity_app.both:app")
    text = text.replace("federation.server:app", "parity_app.both:server")
    (app / "pyproject.toml").write_text(text + 'data = ""\nplan = ""\n')
    return app


class Run:
    """A run under way, and what it has logged."""

    def __init__(self, network, app, settings):
        self.process = network.run(app, settings)
        self.lines, self.new = [], queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(ValueError):  # the network was stopped
            for line in self.process.stdout:
                self.new.put(re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip())
        self.new.put(None)

    def until(self, pattern, seconds):
        """Wait for a line; an error with all that was said if it does not come in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                line = self.new.get(timeout=0.5)
                if line is None:
                    break
                self.lines.append(line)
                if re.search(pattern, line):
                    return line
        raise AssertionError(f"no {pattern!r} within {seconds} s in\n{self.text}")

    def end(self, seconds):
        """Wait for the end of the run."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                line = self.new.get(timeout=0.5)
                if line is None:
                    return self.process.wait(timeout=30)
                self.lines.append(line)
        raise AssertionError(f"the run did not end within {seconds} s:\n{self.text}")

    @property
    def text(self):
        return "\n".join(self.lines)


def until(what, seconds, why):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"{why}: not within {seconds} s"
        time.sleep(0.1)


def kept(folder):
    """The arrays and the description of the one run that is kept in a folder."""
    (run,) = (Path(folder) / "runs").iterdir()
    with np.load(run / "result.npz") as file:
        return {name: file[name] for name in file.files}, json.loads((run / "experiment.json").read_text())


def kill_server_app(network):
    """SIGKILL the ServerApp alone: the child of the SuperLink that plays the rounds."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    lines = (line.split(None, 2) for line in listing.splitlines())
    rows = [(int(pid), int(parent), text) for pid, parent, text in lines]
    below = {network.processes["superlink"].pid}
    for _ in range(10):
        below |= {pid for pid, parent, _ in rows if parent in below}
    victims = [pid for pid, _, text in rows if pid in below and "flwr-serverapp" in text]
    assert victims, listing
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


__all__ = ["Network", "Run", "faulty_app", "guarded_app", "kept", "kill_server_app", "parity_app", "until"]
