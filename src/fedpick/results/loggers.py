"""Simulations to look at while they run: each new evaluation goes to TensorBoard or to MLflow."""

import dataclasses
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedpick.metrics import METRICS, Numbers
from fedpick.results._optional import imported, installed
from fedpick.results.result import Result

MLFLOW_BATCH = 1000  # metrics that MLflow takes in one call


class TensorBoard:
    """A ``watch`` for ``simulate`` that writes each run's metrics to a folder which TensorBoard shows.

    A run has a folder of its own, named by what it is, such as ``seed=0,d=6``. A simulation that goes on from a
    checkpoint is written anew there, and what was written before is hidden. Give each simulation its own folder.

    >>> import tempfile
    >>> from fedpick import Rand
    >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TensorBoard(folder) as board:
    ...         result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2, watch=board)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['seed=0']
    """

    def __init__(self, folder: str | Path) -> None:
        installed("TensorBoard", "tensorboardX", extra="tensorboard")
        self.folder = Path(folder)
        self._news = _News("TensorBoard")
        self._files: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __call__(self, result: Result) -> None:
        """Write the evaluations that are new."""
        library = imported("TensorBoard", "tensorboardX", extra="tensorboard")
        for name, _, rows in self._news.of(result):
            if name not in self._files:
                folder = self.folder / name
                folder.mkdir(parents=True, exist_ok=True)
                # Not its SummaryWriter, which takes two threads and a pipe for each run.
                self._files[name] = library.RecordWriter(str(folder / f"events.out.tfevents.{time.time():.6f}"))
                again = {"step": rows[0][0], "session_log": {"status": "START"}}  # hides what is there from here on
                self._write(name, {"file_version": "brain.Event:2"}, again)
            for step, metrics in rows:
                values = [{"tag": tag, "simple_value": value} for tag, value in metrics.items()]
                self._write(name, {"step": step, "summary": {"value": values}})
            self._files[name].flush()

    def _write(self, name: str, *events: dict[str, Any]) -> None:
        library = imported("TensorBoard", "tensorboardX", extra="tensorboard")
        for event in events:
            line = library.proto.event_pb2.Event(wall_time=time.time(), **event)
            self._files[name].write(line.SerializeToString())

    def __exit__(self, *error: object) -> None:
        while self._files:
            self._files.popitem()[1].close()


class MLflow:
    """A ``watch`` for ``simulate`` that logs each run as a run of MLflow's, with its values as parameters.

    The run is named by what it is, such as ``seed=0,d=6``. ``tracking_uri`` is where MLflow keeps it:
    ``sqlite:///mlflow.db``, a server, or None for what MLflow itself is set to.

    >>> with MLflow(experiment="pow-d on Synthetic(1,1)") as log:
    ...     log.experiment  # simulate(..., watch=log)
    'pow-d on Synthetic(1,1)'
    """

    def __init__(self, experiment: str = "fedpick", tracking_uri: str | None = None) -> None:
        installed("MLflow", "mlflow", extra="mlflow")
        self.experiment, self.tracking_uri = experiment, tracking_uri
        self._news = _News("MLflow")
        self._client: Any = None
        self._runs: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __call__(self, result: Result) -> None:
        """Log the evaluations that are new."""
        library, now = imported("MLflow", "mlflow", extra="mlflow"), int(time.time() * 1000)
        for name, what, rows in self._news.of(result):
            if name not in self._runs:
                self._runs[name] = self._start(library, name, what)
            metric = library.entities.Metric
            new = [metric(key, value, now, step) for step, metrics in rows for key, value in metrics.items()]
            for first in range(0, len(new), MLFLOW_BATCH):
                self._client.log_batch(self._runs[name], metrics=new[first : first + MLFLOW_BATCH])

    def _start(self, library: Any, name: str, what: dict[str, Any]) -> str:
        """A new run of MLflow's, with its parameters."""
        if self._client is None:
            self._client = library.MlflowClient(self.tracking_uri)
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self.experiment)
        run = str(self._client.create_run(experiment, run_name=name).info.run_id)
        self._client.log_batch(run, params=[library.entities.Param(key, str(value)) for key, value in what.items()])
        return run

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        status = "FINISHED" if kind is None else "KILLED" if kind is KeyboardInterrupt else "FAILED"
        for run in self._runs.values():
            self._client.set_terminated(run, status)


class _News:
    """Keeps track of the evaluations that were seen before."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.names: list[str] = []
        self.seen: Numbers = np.zeros((0, 0))  # losses

    def of(self, result: Result) -> list[tuple[str, dict[str, Any], list[tuple[int, dict[str, float]]]]]:
        """For each run its name, what it is, and its new evaluations: a round, and the metrics that are not NaN."""
        names, loss = _names(result.runs), result.metrics["loss"]
        before = self.seen.shape[1]
        both = min(before, loss.shape[1])
        if both and not (names == self.names and np.array_equal(self.seen[:, :both], loss[:, :both], equal_nan=True)):
            raise ValueError(
                f"{self.owner}: result must go on where the last one ended, got another simulation's;"
                f" give each a {self.owner} of its own"
            )
        if loss.shape[1] <= before:
            return []
        self.names, self.seen = names, np.array(loss)
        part = {name: table[:, before:] for name, table in result.metrics.items()}
        rest = dataclasses.replace(result, metrics=part)
        tables = {name: rest.metric(name) for name in METRICS}

        def row(run: int, place: int) -> dict[str, float]:
            numbers = {name: float(table[run, place]) for name, table in tables.items()}
            return {name: number for name, number in numbers.items() if not np.isnan(number)}

        steps = [int(step) for step in result.evaluated[before:]]
        return [
            (name, result.runs[run], [(step, row(run, place)) for place, step in enumerate(steps)])
            for run, name in enumerate(names)
        ]


def _names(runs: list[dict[str, Any]]) -> list[str]:
    """What distinguishes each run from the others; its number too, where nothing else does.

    >>> _names([{"seed": 0, "d": 6}, {"seed": 1, "d": 6}])
    ['seed=0,d=6', 'seed=1,d=6']
    """
    names = [",".join(f"{name}={value}" for name, value in run.items()) for run in runs]
    return names if len(set(names)) == len(names) else [f"{name},run={run}" for run, name in enumerate(names)]
