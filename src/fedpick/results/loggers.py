"""Loggers of simulations under way: TensorBoard and MLflow."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from fedpick.metrics import Numbers
from fedpick.results._optional import import_package, require_package
from fedpick.results.result import Result
from fedpick.text import brief, shown
from fedpick.validation import check_path

MLFLOW_BATCH = 1000  # metrics that MLflow takes in one call
IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class TensorBoard:
    """A ``watch`` for ``simulate`` that writes each run's metrics to a folder for TensorBoard.

    A run has a folder of its own, named by its values, such as ``seed=0,d=6``. A resumed simulation is written again
    there, and what was written before is hidden. Give each simulation its own folder.

    Args:
        folder: TensorBoard's log directory.

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
        require_package("TensorBoard", "tensorboardX", extra="tensorboard")
        check_path("TensorBoard", "folder", folder)
        self.folder = Path(folder)
        self._news = _News("TensorBoard")
        self._writers: dict[str, Any] = {}

    def check(self) -> None:
        """Raise where the folder cannot be one; nothing is written."""
        there = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise ValueError(f"TensorBoard: folder must be a folder, got {str(self.folder)!r}, and {there} is a file")

    def __enter__(self) -> Self:
        return self

    def __call__(self, result: Result) -> None:
        """Write the new evaluations."""
        library = import_package("TensorBoard", "tensorboardX", extra="tensorboard")
        event = library.proto.event_pb2.Event
        for name, _, rows in self._news.of(result):
            if name not in self._writers:
                folder = self.folder / name
                folder.mkdir(parents=True, exist_ok=True)
                # SummaryWriter has two threads and a pipe per run, and a restart within a second would lose its file.
                writer = library.event_file_writer.EventsWriter(str(folder / "events"), f".{time.time_ns()}")
                writer.write_event(event(step=rows[0][0], session_log={"status": "START"}))  # hides what is there
                self._writers[name] = writer
            for step, metrics in rows:
                values = [{"tag": tag, "simple_value": value} for tag, value in metrics.items()]
                self._writers[name].write_event(event(wall_time=time.time(), step=step, summary={"value": values}))
            self._writers[name].flush()

    def __exit__(self, *error: object) -> None:
        while self._writers:
            self._writers.popitem()[1].close()


class MLflow:
    """A ``watch`` for ``simulate`` that logs each run to MLflow, with its seed and swept values as parameters.

    Args:
        experiment: The name of MLflow's experiment.
        tracking_uri: MLflow's store, such as ``sqlite:///mlflow.db`` or a server; None is MLflow's own setting.

    >>> with MLflow(experiment="pow-d on Synthetic(1,1)") as log:
    ...     log.experiment  # simulate(..., watch=log)
    'pow-d on Synthetic(1,1)'
    """

    def __init__(self, experiment: str = "fedpick", tracking_uri: str | None = None) -> None:
        require_package("MLflow", "mlflow", extra="mlflow")
        self.experiment, self.tracking_uri = experiment, tracking_uri
        self._news = _News("MLflow")
        self._client: Any = None
        self._runs: dict[str, str] = {}

    def check(self) -> None:
        """Raise where MLflow cannot open its store; no run is logged."""
        rule = "tracking_uri must be a store of MLflow's, such as sqlite:///mlflow.db or a server"
        if self.tracking_uri is not None and not self.tracking_uri.strip():
            raise ValueError(f"MLflow: {rule}, got {shown(self.tracking_uri)}")
        library = import_package("MLflow", "mlflow", extra="mlflow")
        try:
            with _impatient():
                self._client = library.MlflowClient(self.tracking_uri)
                self._client.get_experiment_by_name(self.experiment)
        except Exception as error:  # of MLflow, of SQLAlchemy, or of a plugin for the scheme
            raise ValueError(f"MLflow: {rule}, got {shown(self.tracking_uri)}: {brief(error).strip()}") from None

    def __enter__(self) -> Self:
        return self

    def __call__(self, result: Result) -> None:
        """Log the new evaluations."""
        library, now = import_package("MLflow", "mlflow", extra="mlflow"), int(time.time() * 1000)
        if self._client is None:
            self.check()
        for name, run, rows in self._news.of(result):
            if name not in self._runs:
                found = self._client.get_experiment_by_name(self.experiment)
                experiment = found.experiment_id if found else self._client.create_experiment(self.experiment)
                self._runs[name] = self._client.create_run(experiment, run_name=name).info.run_id
                params = [library.entities.Param(key, str(value)) for key, value in run.items()]
                self._client.log_batch(self._runs[name], params=params)
            metric = library.entities.Metric
            new = [metric(key, value, now, step) for step, metrics in rows for key, value in metrics.items()]
            for first in range(0, len(new), MLFLOW_BATCH):
                self._client.log_batch(self._runs[name], metrics=new[first : first + MLFLOW_BATCH])

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        status = "FINISHED" if kind is None else "KILLED" if kind is KeyboardInterrupt else "FAILED"
        for run in self._runs.values():
            self._client.set_terminated(run, status)


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """Seconds and not minutes for a server that does not answer; of what the environment says, nothing is changed."""
    added = {name: value for name, value in IMPATIENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class _New(NamedTuple):
    """The new evaluations of a run: after each round the metrics that are not NaN."""

    name: str
    run: dict[str, Any]
    rows: list[tuple[int, dict[str, float]]]


class _News:
    """The evaluations of a simulation that were not there at the last call."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.names: list[str] = []
        self.seen: Numbers = np.zeros((0, 0))  # losses

    def of(self, result: Result) -> list[_New]:
        names, loss = _names(result.runs), result.metrics["loss"]
        before = self.seen.shape[1]
        both = min(before, loss.shape[1])
        if both and not (names == self.names and np.array_equal(self.seen[:, :both], loss[:, :both], equal_nan=True)):
            raise ValueError(
                f"{self.owner}: result must continue the last one, got another simulation's;"
                f" give each simulation its own {self.owner}"
            )
        if loss.shape[1] <= before:
            return []
        self.names, self.seen = names, np.array(loss)
        rest = dataclasses.replace(result, metrics={name: table[:, before:] for name, table in result.metrics.items()})
        tables, steps = {name: rest.metric(name) for name in rest.metric_names}, result.evaluated[before:].tolist()

        def metrics(run: int, place: int) -> dict[str, float]:
            values = {name: float(table[run, place]) for name, table in tables.items()}
            return {name: value for name, value in values.items() if not np.isnan(value)}

        return [
            _New(name, result.runs[run], [(step, metrics(run, place)) for place, step in enumerate(steps)])
            for run, name in enumerate(names)
        ]


def _names(runs: list[dict[str, Any]]) -> list[str]:
    """A name for each run from its values, and its number where they do not distinguish it.

    >>> _names([{"seed": 0, "d": 6}, {"seed": 1, "d": 6}])
    ['seed=0,d=6', 'seed=1,d=6']
    """
    names = [",".join(f"{name}={value}" for name, value in run.items()) for run in runs]
    return names if len(set(names)) == len(names) else [f"{name},run={run}" for run, name in enumerate(names)]
