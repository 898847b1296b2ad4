"""`Result`: arrays with one row per run, and the questions that one asks of them."""

from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedpick.metrics import METRICS, OVER_CLIENTS, Numbers, Payload, check_part, is_accuracy, traffic
from fedpick.report import Chart, ChartRow, curve, picture, table, to_altair
from fedpick.results.export import to_frame, write_csv, write_parquet
from fedpick.results.values import as_table, counted_evaluations, has_values, named_metrics, of_rows
from fedpick.validation import one_of, require

SHOWN = ("loss", "test_accuracy")  # unless other metrics are named
_HIGHER = {"True": True, "False": False, "None": None}


@dataclass(frozen=True)
class Result:
    """The result of R runs of T rounds with m seats, evaluated E times.

    Args:
        runs: The seed and the swept values of each run.
        share: Each client's share of the data, [K]; [R, K] where each run has data of its own.
        model_bytes: The size of the model; [R] where runs differ in it.
        evaluated: The number of rounds played before each evaluation, [E]; the first is 0.
        metrics: ``loss``, ``test_loss``, ``test_accuracy``, ``skew`` [R, E], those that were asked for by name, and
            ``client_loss``, ``client_accuracy`` [R, E, K].
        records: ``clients``, ``selected``, ``weights`` [R, T, m]; ``train_loss``, ``available``, ``polled``,
            ``trained``, ``returned``, ``poll_samples``, ``train_samples``, ``seconds`` [R, T].
        params: The final models, arrays [R, ...]; None where they were not kept.
        finished: False where the simulation was interrupted or stopped at its target.
        payload: What the strategy's messages carry; of numbers [R] where runs differ in it.
        clients: What the clients are called; empty where they have no names.
        better: Of each metric that was asked for by name, whether higher is better; None where it did not say.
    """

    runs: list[dict[str, Any]]
    share: Numbers = field(repr=False)
    model_bytes: Any
    _: KW_ONLY
    evaluated: Numbers = field(repr=False)
    metrics: dict[str, Numbers] = field(repr=False)
    records: dict[str, Numbers] = field(repr=False)
    params: Any = field(repr=False, default=None)
    finished: bool = True
    payload: Payload = field(repr=False, default=Payload())
    clients: tuple[str, ...] = field(repr=False, default=())
    better: dict[str, bool | None] = field(repr=False, default_factory=dict)

    def to_arrays(self, row: int, clients: bool = True, model: bool = False) -> dict[str, Numbers]:
        """One run as flat named arrays, metrics/... and records/..., as a run folder holds them.

        Args:
            row: Which run.
            clients: Whether to keep every client's loss and accuracy.
            model: Whether to keep the final model, as model/...
        """
        arrays = {"share": self.shares[row], "evaluated": self.evaluated}
        payload = self.rows([row]).payload
        if payload != Payload():
            arrays["payload"] = np.asarray(payload)
        if self.clients:
            arrays["clients"] = np.asarray(self.clients)
        if self.better:
            arrays["better"] = np.asarray([[name, str(higher)] for name, higher in self.better.items()])
        arrays |= {f"metrics/{name}": self.metric(name)[row] for name in self.metric_names}
        if clients:
            arrays |= {f"metrics/{name}": self.metrics[name][row] for name in ("client_loss", "client_accuracy")}
        arrays |= {f"records/{name}": values[row] for name, values in self.records.items()}
        if model:
            for path, leaf in jax.tree_util.tree_leaves_with_path(self.params):
                arrays["model/" + jax.tree_util.keystr(path, simple=True, separator="/")] = leaf[row]
        return arrays

    @classmethod
    def from_arrays(cls, seed: int, model_bytes: int, arrays: dict[str, Numbers]) -> "Result":
        """The run that ``to_arrays`` took apart, as a result of one row.

        Args:
            seed: Seed of the run.
            model_bytes: Size of the model.
            arrays: What ``to_arrays`` gave.
        """

        def group(word: str) -> dict[str, Any]:
            return {name.removeprefix(word): values[None] for name, values in arrays.items() if name.startswith(word)}

        return cls(
            [{"seed": seed}],
            arrays["share"],
            model_bytes,
            evaluated=arrays["evaluated"],
            metrics=group("metrics/"),
            records=group("records/"),
            payload=Payload(*map(int, arrays.get("payload", Payload()))),
            clients=tuple(map(str, arrays.get("clients", ()))),
            better={str(name): _HIGHER[str(higher)] for name, higher in arrays.get("better", ())},
        )

    def client_name(self, client: int) -> str:
        """What a client is called: its name, or its number."""
        return self.clients[client] if self.clients else str(client)

    @property
    def shares(self) -> Numbers:
        """Each client's share of the data in each run, [R, K]."""
        return np.broadcast_to(self.share, (len(self.runs), self.share.shape[-1]))

    @property
    def rounds(self) -> int:
        """The number of rounds played."""
        return int(self.records["weights"].shape[1])

    @property
    def real(self) -> bool:
        """Whether it is of a real federation, whose server does not know how many samples its clients trained on."""
        return bool(np.isnan(self.records["train_samples"]).all())

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that it has: those of every result, and those that were asked for by name."""
        return (*METRICS, *self.better)

    def rises(self, metric: str) -> bool:
        """Whether higher is better, as for accuracies; losses are better the lower they are.

        Args:
            metric: One of ``metric_names`` that says so.
        """
        higher = self.better.get(metric, is_accuracy(metric))
        if higher is None:
            rule = "must say whether higher is better to be a target (its attribute higher_is_better)"
            raise ValueError(f"Result: metric {metric} {rule}, and does not")
        return higher

    def metric(self, name: str) -> Numbers:
        """A metric by evaluation, [R, E]; mean_, worst_ and _variance are over clients, each counting once."""
        one_of("Result", "metric", name, self.metric_names)
        if name in self.metrics:
            return self.metrics[name]
        measured, function = OVER_CLIENTS[name]
        return np.asarray(function(self.metrics[f"client_{measured}"], axis=-1))

    def rounds_to(self, metric: str, value: float, where: Numbers | None = None) -> Numbers:
        """The first evaluated round at which each run reaches the value, [R]; inf where it never does.

        Accuracies reach it from below, losses from above, and metrics of your own as they say. ``where`` says which of
        the evaluations count, [E]; by default all do.
        """
        first = self._first(metric, value, where)
        return np.where(first >= 0, self.evaluated[first].astype(float), np.inf)

    def seconds_to(self, metric: str, value: float) -> Numbers:
        """The same on the simulated clock."""
        first = self._first(metric, value)
        clock = np.concatenate([np.zeros((len(self.runs), 1)), self.records["seconds"].cumsum(axis=1)], axis=1)
        return np.where(first >= 0, clock[np.arange(len(first)), self.evaluated[first]], np.inf)

    def _first(self, metric: str, value: float, where: Numbers | None = None) -> Numbers:
        require("Result", "value", value, "a number to reach", lambda number: ~np.isnan(number), one=True)
        check_part("Result", "value", metric, value)
        values = self.metric(metric)
        reached = np.isfinite(values) & (values >= value if self.rises(metric) else values <= value)
        reached &= counted_evaluations(where, len(self.evaluated))
        return np.where(reached.any(axis=1), reached.argmax(axis=1), -1)

    @property
    def counts(self) -> Numbers:
        """The number of seats of each client whose update came back, [R, K]; ``selected`` counts all of its seats."""
        return self._seats("clients")

    @property
    def selected(self) -> Numbers | None:
        """All seats of each client, [R, K]; None where not all came back, and whose is not recorded, as on Flower."""
        if "selected" in self.records:
            return self._seats("selected")
        return self.counts if (self.records["trained"] == self.records["returned"]).all() else None

    def _seats(self, record: str) -> Numbers:
        K = self.share.shape[-1]
        return np.stack([np.bincount(seats[seats >= 0], minlength=K) for seats in self.records[record]])

    @property
    def costs(self) -> dict[str, Numbers]:
        """Exact costs by round, [R, T]: messages, bytes_down, bytes_up, poll_samples, train_samples, seconds."""
        counted = {name: self.records[name].astype(np.int64) for name in ("polled", "trained", "returned")}
        by_run: list[Any] = [np.reshape(part, (-1, 1)) for part in (self.model_bytes, *self.payload)]
        return {
            **traffic(**counted, model_bytes=by_run[0], payload=Payload(*by_run[1:])),
            **{name: self.records[name] for name in ("poll_samples", "train_samples", "seconds")},
        }

    def where(self, **values: Any) -> "Result":
        """The runs with these values, such as ``result.where(d=6)``; fractions are compared to six digits."""
        keep = [r for r, run in enumerate(self.runs) if has_values(run, values)]
        if not keep:
            raise ValueError(f"Result: {values} must match a run, got none among {self.runs[:3]} ...")
        return self.rows(keep)

    def rows(self, keep: list[int]) -> "Result":
        """These runs alone."""
        return replace(
            self,
            runs=[self.runs[r] for r in keep],
            share=self.share[keep] if self.share.ndim == 2 else self.share,
            metrics={name: table[keep] for name, table in self.metrics.items()},
            records={name: table[keep] for name, table in self.records.items()},
            model_bytes=of_rows(self.model_bytes, keep),
            payload=Payload(*(of_rows(part, keep) for part in self.payload)),
            params=jax.tree.map(lambda leaf: leaf[keep], self.params),
        )

    def groups(self) -> dict[str, "Result"]:
        """The runs that differ in the seed alone, by the values that they share, such as "d = 6"."""
        groups: dict[str, list[int]] = {}
        for row, run in enumerate(self.runs):
            name = ", ".join(f"{field} = {value}" for field, value in run.items() if field != "seed")
            groups.setdefault(name or "all", []).append(row)
        return {name: self.rows(rows) for name, rows in groups.items()}

    def plot(self, *metrics: str) -> Any:
        """An Altair chart of metrics by round, such as ``plot("loss", "worst_loss")``; loss and accuracy unless named.

        >>> from fedpick import Rand
        >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
        >>> result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2)
        >>> result.plot("loss").to_dict()["title"]["text"]
        '1 runs, 2 rounds'
        """
        return to_altair(self._chart(named_metrics(metrics, self.metric_names) or SHOWN))

    def _chart(self, metrics: tuple[str, ...]) -> Chart:
        """A panel for each metric; a curve is the mean over the seeds, with one standard deviation."""
        rows: list[ChartRow] = []
        panels = {metric: metric.replace("_", " ") for metric in metrics}
        for metric, panel in panels.items():
            for name, part in self.groups().items():
                values = part.metric(metric)
                finite = np.isfinite(values).all(axis=0)
                rows += curve(name, panel, part.evaluated[finite], values=values[:, finite]) if finite.any() else []
        title = f"{len(self.runs)} runs, {self.rounds} rounds"
        text = f"{', '.join(panels.values())} by round: the mean over the seeds, with one standard deviation."
        return Chart("result", "lines", title=title, text=text, x="round", rows=tuple(rows))

    def _repr_html_(self) -> str:
        """Display in a notebook: the means over the seeds after the last round, and the plot."""
        metrics = (*SHOWN, "worst_loss")
        rows = [
            [name, str(len(part.runs)), *(f"{part.metric(metric)[:, -1].mean():.4g}" for metric in metrics)]
            for name, part in self.groups().items()
        ]
        columns = ("runs", "seeds", *(metric.replace("_", " ") for metric in metrics))
        return table(f"after round {self.rounds}", columns, rows) + picture(self._chart(SHOWN), "svg").decode()

    def columns(self, by: str = "evaluation") -> dict[str, Numbers]:
        """The table that is exported, as columns of one length: a row per run and evaluation, or per run and round.

        The columns are the seed and the swept values, ``round``, and every metric; by round they are the costs,
        train_loss, polled, trained and returned. An evaluation at round 5 comes after the row of round 5, the fifth.
        A swept field with the name of another column becomes ``run.`` and its name.

        Args:
            by: "evaluation" or "round".
        """
        one_of("Result", "by", by, ("evaluation", "round"))
        if by == "evaluation":
            rounds, measured = self.evaluated, {name: self.metric(name) for name in self.metric_names}
        else:
            counted = {name: self.records[name] for name in ("train_loss", "polled", "trained", "returned")}
            rounds, measured = np.arange(1, self.rounds + 1), self.costs | counted
        return as_table(self.runs, rounds, measured)

    def to_frame(self, library: str = "pandas", by: str = "evaluation") -> Any:
        """``columns`` as a frame.

        Args:
            library: "pandas" or "polars".
            by: "evaluation" or "round".

        >>> from fedpick import Rand
        >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
        >>> result = simulate(Quadratic(3), QuadraticModel(), Rand(1), Local(1, 1, 1e-3), rounds=2)
        >>> result.to_frame(by="round")[["seed", "round", "messages"]]
           seed  round  messages
        0     0      1         2
        1     0      2         2
        """
        return to_frame(self.columns(by), library)

    def to_csv(self, path: str | Path, by: str = "evaluation") -> None:
        """Write ``columns`` as text, with all digits; the file is replaced whole or not at all."""
        write_csv(self.columns(by), path)

    def to_parquet(self, path: str | Path, by: str = "evaluation") -> None:
        """Write ``columns`` as Parquet."""
        write_parquet(self.columns(by), path)
