"""The processes that play the runs of an app, each in Flower's simulation."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fedpick.flower.simulation.machine import Machine
from fedpick.flower.simulation.runs import AppRun
from fedpick.storage import RunStore

FAILED = "fedpick run failed: "  # what the last line of the log of such a run begins with
COMMAND = "from fedpick.flower.simulation.play import main; main()"
ENVIRONMENT = {  # unless the user has set them
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share a GPU
    "PYTHONUNBUFFERED": "1",
}


class Progress(NamedTuple):
    """How far a run is: its name, the round, and of how many, where that is known."""

    label: str
    round: int
    rounds: int | None


def play_missing(
    runs: Sequence[AppRun], store: RunStore, machine: Machine, watch: Callable[[int, Sequence[Progress]], None]
) -> dict[str, str]:
    """Play those runs that are not in the store yet, several at once; one that was interrupted goes on.

    Returns what went wrong, by the identity of the run. Where a run fails, the strategy is not played with more seeds,
    which would most often fail alike; the others are.

    Args:
        runs: The runs.
        store: Where they are stored.
        machine: Where they are played.
        watch: Called some times a second with the number of runs that are done, and with those under way.
    """
    if not has_ray():
        raise ModuleNotFoundError("compare: --app needs Flower's simulation: pip install 'flwr[simulation]'")
    with store.locked():
        left = [run for run in runs if store.load(run.identity) is None]
        at_once, done = machine.at_once(len(left)), len(runs) - len(left)
        active: list[tuple[AppRun, subprocess.Popen[bytes]]] = []
        failed: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: _stop([process for _, process in active]))
            while left or active:
                while left and len(active) < at_once:
                    run = left.pop(0)
                    active.append((run, _start(run, store, machine.backend(at_once))))
                for each in [each for each in active if each[1].poll() is not None]:
                    active.remove(each)
                    _close(each[1])
                    done += 1
                    if (why := _keep(each[0], store, each[1].returncode)) is not None:
                        failed[each[0].identity] = why
                        waiting = [run for run in left if run.strategy != each[0].strategy]
                        done, left = done + len(left) - len(waiting), waiting
                watch(done, [_progress(run, store) for run, _ in active])
                time.sleep(0.2)
    return failed


def has_ray() -> bool:
    """Whether Flower's simulation is installed."""
    return importlib.util.find_spec("ray") is not None


def _start(run: AppRun, store: RunStore, backend: dict[str, Any]) -> "subprocess.Popen[bytes]":
    folder = _folder(run, store)
    folder.mkdir(parents=True, exist_ok=True)
    app, trial = run.app, {**asdict(run.trial), "folder": str(folder.absolute())}
    request = {
        "folder": str(app.folder),
        "server": app.server,
        "client": app.client,
        "settings": run.settings,
        "beside": os.getcwd(),
        "trial": trial,
        "backend": backend,
    }
    paths = [os.getcwd(), os.environ.get("PYTHONPATH", "")]  # for "my_module:MyStrategy"
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with _log(run, store).open("wb") as log:  # of this attempt: what one before it said is no reason of this one
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=app.folder,
            env=environment,
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    return process  # it ends where this process does: its input stays open until then


def _keep(run: AppRun, store: RunStore, code: int) -> str | None:
    """Move the history of a run that has ended to the store; where it has failed, what is to be said of that."""
    folder = _folder(run, store)
    played = RunStore(folder)
    found = [stored for _, stored in played.runs()]
    if code or not found:
        lines = _log(run, store).read_text(errors="replace").splitlines()
        said = [json.loads(line.removeprefix(FAILED)) for line in lines if line.startswith(FAILED)]
        why = said[-1].removeprefix("compare: ") if said and code else f"it ended with {code} and no round"
        return f"compare: the run of {run.label} failed (its log is {_log(run, store)}): {why}"
    about = dict(found[0].about)
    settings = {name: value for name, value in run.settings.items() if name != "seed"}
    code_of = {"name": run.app.name, "digest": run.app.digest, "clients": run.trial.clients, "config": settings}
    about["experiment"] = {**about["experiment"], "name": f"{run.app.name}, in Flower's simulation", "app": code_of}
    own = ("format", "identity", "versions", "device", "sha256", "date")
    about = {name: value for name, value in about.items() if name not in own}
    store.save(run.identity, about, found[0].arrays, found[0].summary)
    shutil.rmtree(folder, ignore_errors=True)
    return None


def _stop(processes: list["subprocess.Popen[bytes]"]) -> None:
    """End processes and what they have started: SIGTERM, and SIGKILL after five seconds."""
    end = time.monotonic() + 5
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.1)
    for process in processes:
        process.wait(timeout=30)
        _close(process)


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _progress(run: AppRun, store: RunStore) -> Progress:
    with contextlib.suppress(OSError), _log(run, store).open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 20_000))
        found = re.findall(rb"\[ROUND (\d+)(?:/(\d+))?\]", log.read())
        if found:
            return Progress(run.label, int(found[-1][0]), int(found[-1][1]) if found[-1][1] else None)
    return Progress(run.label, 0, None)


def _folder(run: AppRun, store: RunStore) -> Path:
    return store.folder / "under-way" / f"app-{run.identity}"


def _log(run: AppRun, store: RunStore) -> Path:
    return _folder(run, store) / "log.txt"
