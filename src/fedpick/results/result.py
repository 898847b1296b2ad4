"""What a simulation found: arrays with one row per run, and the questions one asks of them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedpick.metrics import METRICS, Numbers, traffic
from fedpick.validation import one_of


@dataclass(frozen=True)
class Result:
    """R runs of T rounds with m seats, evaluated at E points.

    ``runs[r]`` names what run r was: its seed and the swept values. ``evaluated`` [E] are the rounds played before each
    evaluation, the first being 0. ``metrics`` holds ``loss``, ``test_loss``, ``test_accuracy``, ``skew`` [R, E] and
    ``client_loss``, ``client_accuracy`` [R, E, K]; ``records`` holds ``clients``, ``weights`` [R, T, m] and, by round,
    ``train_loss``, ``polled``, ``trained``, ``returned``, ``poll_samples``, ``train_samples``, ``seconds`` [R, T].
    ``finished`` is False where the simulation was interrupted or stopped at its target.
    """

    runs: list[dict[str, Any]]
    share: Numbers = field(repr=False)
    model_bytes: int
    evaluated: Numbers = field(repr=False)
    metrics: dict[str, Numbers] = field(repr=False)
    records: dict[str, Numbers] = field(repr=False)
    params: Any = field(repr=False, default=None)
    finished: bool = True

    def to_arrays(self, row: int, clients: bool = True, model: bool = False) -> dict[str, Numbers]:
        """One run as flat named arrays, metrics/... and records/..., as a run folder holds them.

        Args:
            row: Which run.
            clients: Whether to keep every client's loss and accuracy.
            model: Whether to keep the final model, as model/...
        """
        arrays = {"share": self.share, "evaluated": self.evaluated}
        arrays |= {f"metrics/{name}": self.metric(name)[row] for name in METRICS}
        if clients:
            arrays |= {f"metrics/{name}": self.metrics[name][row] for name in ("client_loss", "client_accuracy")}
        arrays |= {f"records/{name}": values[row] for name, values in self.records.items()}
        if model:
            for path, leaf in jax.tree_util.tree_leaves_with_path(self.params):
                arrays["model/" + jax.tree_util.keystr(path, simple=True, separator="/")] = leaf[row]
        return arrays

    @classmethod
    def from_arrays(cls, seed: int, model_bytes: int, arrays: dict[str, Numbers]) -> "Result":
        """The run that ``to_arrays`` took apart, as a result of one row."""

        def group(word: str) -> dict[str, Any]:
            return {name.removeprefix(word): values[None] for name, values in arrays.items() if name.startswith(word)}

        run, evaluated = [{"seed": seed}], arrays["evaluated"]
        return cls(run, arrays["share"], model_bytes, evaluated, group("metrics/"), group("records/"))

    @property
    def rounds(self) -> int:
        """How many rounds were played."""
        return int(self.records["weights"].shape[1])

    def metric(self, name: str) -> Numbers:
        """A metric by evaluation, [R, E]; mean_, worst_ and _variance are over clients, each counting once."""
        one_of("Result", "metric", name, METRICS)
        if name in self.metrics:
            return self.metrics[name]
        if name in ("mean_loss", "mean_accuracy"):
            return np.asarray(self.metrics[f"client_{name[5:]}"].mean(axis=-1))
        if name == "worst_loss":
            return np.asarray(self.metrics["client_loss"].max(axis=-1))
        if name == "worst_accuracy":
            return np.asarray(self.metrics["client_accuracy"].min(axis=-1))
        return np.asarray(self.metrics["client_loss"].var(axis=-1))

    def rounds_to(self, metric: str, target: float) -> Numbers:
        """The first evaluated round at which each run reaches the target, [R]; inf where it never does.

        Accuracies reach it from below, losses from above.
        """
        first = self._first(metric, target)
        return np.where(first >= 0, self.evaluated[first].astype(float), np.inf)

    def seconds_to(self, metric: str, target: float) -> Numbers:
        """The same on the simulated clock."""
        first = self._first(metric, target)
        clock = np.concatenate([np.zeros((len(self.runs), 1)), self.records["seconds"].cumsum(axis=1)], axis=1)
        return np.where(first >= 0, clock[np.arange(len(first)), self.evaluated[first]], np.inf)

    def _first(self, metric: str, target: float) -> Numbers:
        values = self.metric(metric)
        reached = values >= target if "accuracy" in metric else values <= target
        return np.where(reached.any(axis=1), reached.argmax(axis=1), -1)

    @property
    def counts(self) -> Numbers:
        """How many seats each client held that came back, [R, K]."""
        clients = self.records["clients"]
        counts = np.zeros((len(self.runs), len(self.share)), np.int64)
        for run, chosen in enumerate(clients):
            np.add.at(counts[run], chosen[chosen >= 0], 1)
        return counts

    @property
    def costs(self) -> dict[str, Numbers]:
        """Exact costs by round, [R, T]: messages, bytes_down, bytes_up, poll_samples, train_samples, seconds."""
        counted = {name: self.records[name].astype(np.int64) for name in ("polled", "trained", "returned")}
        return {
            **traffic(**counted, model_bytes=self.model_bytes),
            **{name: self.records[name] for name in ("poll_samples", "train_samples", "seconds")},
        }

    def where(self, **values: Any) -> "Result":
        """The runs with these values, such as ``result.where(d=6)``."""
        keep = [
            r
            for r, run in enumerate(self.runs)
            if all(name in run and np.isclose(run[name], value) for name, value in values.items())
        ]
        if not keep:
            raise ValueError(f"Result: {values} must match a run, got none among {self.runs[:3]} ...")
        return self.rows(keep)

    def rows(self, keep: list[int]) -> "Result":
        """These runs alone."""
        part = {name: value[keep] for name, value in self.metrics.items()}
        records = {name: value[keep] for name, value in self.records.items()}
        params = jax.tree.map(lambda leaf: leaf[keep], self.params)
        runs = [self.runs[r] for r in keep]
        return Result(runs, self.share, self.model_bytes, self.evaluated, part, records, params, self.finished)

    def plot(self, *metrics: str) -> Any:
        """An Altair chart of metrics by round, such as ``plot("loss", "worst_loss")``; loss and accuracy unless named.

        >>> from fedpick import Rand
        >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
        >>> result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2)
        >>> result.plot("loss").to_dict()["title"]["text"]
        '1 runs, 2 rounds'
        """
        from fedpick.results import plot

        return plot.to_altair(self, metrics or plot.DEFAULT_METRICS)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from fedpick.results import plot

        return plot.as_html(self)

    def to_frame(self, library: str = "pandas", by: str = "evaluation") -> Any:
        """A frame of pandas or polars with one row per run and evaluation, or per run and round (``by="round"``).

        Its columns are the seed and the swept values, ``round``, and every metric; by round they are the costs,
        train_loss, polled, trained and returned. An evaluation at round 5 comes after the row of round 5, the fifth.

        >>> from fedpick import Rand
        >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
        >>> result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2)
        >>> result.to_frame(by="round")[["seed", "round", "messages"]]
           seed  round  messages
        0     0      1         2
        1     0      2         2
        """
        from fedpick.results import export

        return export.frame(self, library, by)

    def to_csv(self, path: str | Path, by: str = "evaluation") -> None:
        """Write the same table as text, with all digits, to a file that is replaced whole or not at all."""
        from fedpick.results import export

        export.write_csv(self, path, by)

    def to_parquet(self, path: str | Path, by: str = "evaluation") -> None:
        """Write the same table as Parquet."""
        from fedpick.results import export

        export.write_parquet(self, path, by)


def concatenate(results: list[Result]) -> Result:
    """Results with the same rounds and evaluations as one, row below row.

    Where data were drawn anew, ``share`` is the first one's.
    """
    first = results[0]
    if any(one.rounds != first.rounds or not np.array_equal(one.evaluated, first.evaluated) for one in results):
        raise ValueError("concatenate: results must have the same rounds and evaluations, got different ones")

    def together(parts: list[dict[str, Numbers]]) -> dict[str, Numbers]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return Result(
        [run for one in results for run in one.runs],
        first.share,
        first.model_bytes,
        first.evaluated,
        together([one.metrics for one in results]),
        together([one.records for one in results]),
        None,
        all(one.finished for one in results),
    )
