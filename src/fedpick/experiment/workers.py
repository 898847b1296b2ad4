"""Experiments in several processes over one store: of this machine, or tasks of a SLURM array."""

import contextlib
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedpick.experiment.experiment import Experiment, from_plain
from fedpick.experiment.runner import run_missing, run_share
from fedpick.storage import RunStore

LOG = logging.getLogger("fedpick")


def run_in_processes(
    experiments: Iterable[Experiment], store: RunStore, *, workers: int, watch: Callable[[], None] = lambda: None
) -> None:
    """As ``run_missing``, by several processes of this machine; the runs are the same, bit for bit.

    Where one of them is killed, another goes on from its checkpoint; where this one ends, they end. What none of them
    has done is done here at the end, and raises what stopped them.

    Args:
        experiments: The experiments.
        store: Where the runs are stored.
        workers: The number of processes.
        watch: Called some times a second while they are at work.
    """
    chosen = list(experiments)
    tasks = _tasks(chosen, store, workers)
    command = [sys.executable, "-c", f"from {__name__} import _main; _main()"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in tasks
    ]
    try:
        for process, task in zip(processes, tasks, strict=True):
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{json.dumps(task)}\n".encode())
                process.stdin.flush()  # and not closed: that ends the process
        while any(process.poll() is None for process in processes):
            watch()
            time.sleep(0.2)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # type: ignore[union-attr]
    for number, process in enumerate(processes):
        if process.returncode:
            LOG.warning("worker %d of %d ended with %d", number + 1, workers, process.returncode)
    run_missing(chosen, store)


def submit(experiments: Iterable[Experiment], folder: str | Path, executor: Any, *, workers: int) -> list[Any]:
    """Hand experiments to an executor of submitit, as an array of tasks over one store; return its jobs.

    Args:
        experiments: The experiments.
        folder: Where the runs are stored, on a disk that all tasks see.
        executor: Such as ``submitit.AutoExecutor("logs")`` with its parameters set: partition, time, GPUs.
        workers: The number of tasks.
    """
    return list(executor.map_array(work, _tasks(list(experiments), RunStore(folder), workers)))


def work(task: dict[str, Any]) -> None:
    """One process's share of the work.

    Args:
        task: The folder, the experiments as plain data, the number of processes, and which of them this is.
    """
    for path in task["path"]:
        if path not in sys.path:
            sys.path.append(path)  # for "my_module:MyStrategy"
    experiments = [from_plain(plain)[0] for plain in task["experiments"]]
    run_share(experiments, RunStore(task["folder"]), workers=task["workers"], first=task["first"])


def _main() -> None:
    """A process of ``run_in_processes``: its task is a line of the standard input, which the system closes where
    whoever wrote it ends, however that is.
    """
    task = json.loads(sys.stdin.readline())

    def follow() -> None:
        os.read(sys.stdin.fileno(), 1)  # until the pipe is closed
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    work(task)


def _tasks(experiments: list[Experiment], store: RunStore, workers: int) -> list[dict[str, Any]]:
    if workers < 1:
        raise ValueError(f"run: workers must be at least 1, got {workers}")
    common = {
        "folder": str(store.folder.absolute()),
        "experiments": [experiment.to_plain() for experiment in experiments],
        "workers": workers,
        "path": [os.getcwd(), *filter(None, sys.path)],
    }
    return [{**common, "first": first} for first in range(workers)]


def end_with_parent() -> None:
    """Have this process of a pool end when the one that has started it has ended, however that was."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
