"""One run of a Flower app in Flower's simulation: what a process of ``play_missing`` does."""

import copy
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from ray import cloudpickle

from fedpick.flower import Trial, seed_everything
from fedpick.flower.simulation.processes import FAILED
from fedpick.registry import look_in
from fedpick.text import is_of, place

PACKAGE = str(Path(__file__).parents[2])  # fedpick itself
GRACE = 5.0  # seconds to end in


class SeededClient(ClientApp):
    """A ClientApp with a run config, and random numbers that only the run, the round, the client and its seat decide.

    Flower's simulation gives a client to whichever process is free; without a seed of its own for each message, what
    a client draws would depend on who was served before it.
    """

    def __init__(self, folder: str, address: str, settings: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.folder, self.address, self.settings, self.seed = folder, address, settings, seed

    def __call__(self, message: Message, context: Context) -> Message:
        seed_everything(self.seed)  # for what the app draws when it is imported
        app = load(self.folder, self.address)
        own = copy.copy(context)  # Flower refuses a context with another run config
        own.run_config = dict(self.settings)
        content = message.content.config_records.values()
        seats = [str(record.get(name)) for record in content for name in ("server-round", "fedpick-seat")]
        seed_everything(self.seed, context.node_config.get("partition-id"), message.metadata.message_type, *seats)
        reply: Message = app(message, own)
        context.state = own.state
        return reply


def load(folder: str, address: str) -> Any:
    """The object at an address in an app's folder."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    """Play the run that the first line of the standard input describes; end where whoever wrote it ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    request = json.loads(sys.stdin.readline())

    def follow() -> None:
        sys.stdin.read()  # until the pipe is closed
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)  # a server that waits for replies of clients that are gone would do so for an hour
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
    play(request)


def play(request: Mapping[str, Any]) -> None:
    """Play a run; its history is then in the trial's folder. An error ends the process.

    The log then ends with its traceback and, in its last line, with the reason.

    Args:
        request: The app's folder, the addresses of its parts, the run config, the trial, the backend's config, and the
            folder that the paths of own strategies begin in.
    """
    folder, settings, trial = request["folder"], request["settings"], Trial(**request["trial"])
    look_in(Path(request["beside"]))  # for "strategies/mine.py:Mine"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))  # for Ray's
    server = ServerApp()
    errors: list[BaseException] = []

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        context.run_config = dict(settings)
        try:
            seed_everything(trial.seed)  # an app may make its model when it is imported
            app = load(folder, request["server"])
            seed_everything(trial.seed)
            with trial.under_way():
                app(grid, context)
            trial.check_played()
        except (Exception, SystemExit) as error:
            if not isinstance(error, SystemExit) or error.code:
                errors.append(error)
            raise

    by_value: Any = cloudpickle.register_pickle_by_value
    for module in (__name__, seed_everything.__module__):
        by_value(sys.modules[module])  # so that Ray's processes need not import fedpick
    client = SeededClient(folder, request["client"], settings, trial.seed)
    ended: BaseException | None = None
    try:
        seed_everything(trial.seed)  # the server may share modules with it
        load(folder, request["client"])  # an error of its own is said at once, and not by every client
        run_simulation(server, client, trial.clients, backend_config=request["backend"])
    except Exception as error:
        ended = error
    ended = errors[0] if errors else ended
    if ended is not None:
        sys.stdout.flush()
        sys.stderr.write("\n" + "".join(traceback.format_exception(ended)))
        sys.stderr.write(f"\n{FAILED}{json.dumps(reason(ended, folder))}\n")
        sys.stderr.flush()
        os._exit(1)  # Ray's threads may keep it


def reason(error: BaseException, folder: str) -> str:
    """What is said of an error: of one in the app its line there, too; what fedpick says is a sentence already.

    Args:
        error: The error.
        folder: The app's folder.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    in_app = isinstance(error, SyntaxError) or any(is_of(file, folder) for file in files)
    if in_app and not (files and is_of(files[-1], PACKAGE)):
        return place(error, folder)
    return f"{type(error).__name__}: {error}".removeprefix("ValueError: ")
