"""A comparison with what it was made of, as plain data (summary.json), and again from a folder of runs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpick import config
from fedpick.compare.comparison import Comparison
from fedpick.compare.summary import CURRENCIES, StrategySummary
from fedpick.config import Plain
from fedpick.experiment import Experiment, from_plain, load_results, names, result_of
from fedpick.protocol import Selector
from fedpick.results import Result, Spread, concatenate
from fedpick.storage import Provenance, RunStore, StoredRun, plain_numbers

FORMAT = 3  # of summary.json
LARGE, SMALL = 1e4, 0.01  # beyond these, three decimals are noise, or nothing
SIGNS = {"": "", "about": "~ ", "at least": "≥ ", "at most": "≤ "}


class Column(NamedTuple):
    """A column of the table: its title, what it says of a strategy, and whether it is about costs."""

    title: str
    text: Callable[[StrategySummary], str]
    cost: bool = False


def _rounds(one: StrategySummary) -> str:
    middle, *ends = (f"{n:.0f}" if np.isfinite(n) else f"> {one.played}" for n in one.rounds)
    return f"{middle} [{', '.join(ends)}]" if one.seeds > 1 and {middle, *ends} != {f"> {one.played}"} else middle


def _speed_up(one: StrategySummary) -> str:
    gain = one.speed_up
    if gain is None:
        return "1"
    interval = f" [{gain.low:.2f}, {gain.high:.2f}]" if one.seeds > 1 and not one.bound else ""
    return f"{SIGNS[one.bound]}{gain.mean:.2f}{interval}"


def _loss(loss: Spread) -> str:
    if np.isinf(loss.deviation):
        loss = Spread(loss.mean, float("nan"))
    return f"{loss:{'.3f' if SMALL <= abs(loss.mean) < LARGE else '.3g'}}"


def _or_dash(number: float, digits: str) -> str:
    return f"{number:{digits}}" if np.isfinite(number) else "-"


def _spent(one: StrategySummary) -> str:
    money = CURRENCIES[one.by]
    middle, *ends = (money.text(n) if np.isfinite(n) else "-" for n in one.spent)
    return f"{middle} [{', '.join(ends)}]" if one.seeds > 1 and one.reached else middle


COLUMNS = (
    Column("strategy", lambda one: one.name),
    Column("rounds to\ntarget [95 %]", _rounds),
    Column("speed-up\n[95 %]", _speed_up),
    Column("final\nloss", lambda one: _loss(one.final["loss"])),
    Column("accuracy,\n%", lambda one: f"{Spread(*(100 * number for number in one.final['test_accuracy'])):.1f}"),
    Column("worst\nclient's loss", lambda one: f"{one.final['worst_loss'].mean:.3g}"),
    Column("messages\na round", lambda one: f"{one.messages:.3g}", cost=True),
    Column("MB a\nround", lambda one: f"{one.megabytes:.3g}", cost=True),
    Column("messages\nto target", lambda one: _or_dash(one.messages_to_target, ".0f"), cost=True),
    Column("MB to\ntarget", lambda one: _or_dash(one.megabytes_to_target, ".3g"), cost=True),
)


def columns_of(comparison: Comparison) -> tuple[Column, ...]:
    """The columns of a comparison's table: one more where it does not count in rounds."""
    if comparison.by == "rounds":
        return COLUMNS
    return (*COLUMNS[:2], Column(f"{comparison.currency.unit} to\ntarget [95 %]", _spent), *COLUMNS[2:])


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison with what it was made of.

    Args:
        comparison: The results side by side.
        experiments: The experiments as plain data.
        provenance: Devices and versions of their runs.
        command: The command line.
        all_runs: Whether it is of whatever lies in a folder.
        strategies: Each strategy with its parameters, in words.
        notes: What a strategy changed on its own, and why: the round and the sentence.
        dates: The days on which the runs were made.
        clients: The names of the clients; those of the results where it is left out.
        running: Whether a real federation has not ended yet.
    """

    comparison: Comparison
    experiments: tuple[Plain, ...]
    provenance: tuple[Provenance, ...]
    _: KW_ONLY
    command: str
    all_runs: bool = False
    strategies: tuple[str, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()
    dates: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    running: bool = False

    @property
    def real(self) -> bool:
        """Whether it is of a real federation, with a clock's seconds, and not of a simulation."""
        return bool(self.experiments) and not any("data" in plain for plain in self.experiments)

    @property
    def client_names(self) -> tuple[str, ...]:
        """A name for each client."""
        first = self.comparison.results[0]
        numbers = range(first.shares.shape[1])
        return self.clients if len(self.clients) == len(numbers) else tuple(map(first.client_name, numbers))

    def summary(self) -> Plain:
        """Everything but the curves, as plain data; None where a number is not finite."""
        compared, rows = self.comparison, []
        for one in compared.summaries:
            median = dict(zip(("median", "low", "high"), one.rounds, strict=True))
            speed_up = one.speed_up._asdict() if one.speed_up else None
            final = {name: spread._asdict() for name, spread in one.final.items()}
            rows.append(plain_numbers({**one._asdict(), "rounds": median, "speed_up": speed_up, "final": final}))
        return {
            "answer": compared.answer,
            "baseline": compared.baseline,
            "target": {"metric": compared.metric, "value": plain_numbers(compared.threshold)},
            "strategies": rows,
            "format": FORMAT,
            "names": list(compared.names),
            "value": compared.value,
            "by": compared.by,
            "command": self.command,
            "all_runs": self.all_runs,
            "made": [one._asdict() for one in self.provenance],
            "experiments": list(self.experiments),
        }


def report_on(
    experiments: list[Experiment],
    store: RunStore,
    *,
    metric: str = "loss",
    value: float | None = None,
    by: str = "rounds",
    command: str = "",
) -> ComparisonReport:
    """The comparison of experiments whose runs are in the store.

    Args:
        experiments: One for each strategy.
        store: Where their runs are.
        metric: Of the target.
        value: The target; left out, it is what every run of the baseline reaches.
        by: What the way to the target is counted in: "rounds", "bytes" or "seconds".
        command: The command line, for the page.
    """
    plains = tuple(experiment.to_plain() for experiment in experiments)
    results = [load_results(experiment, store) for experiment in experiments]
    comparison = _compare(plains, results, metric, value, by)
    runs = [identity for experiment in experiments for identity in map(experiment.identity, experiment.seeds)]
    strategies = tuple(config.describe(experiment.selector) for experiment in experiments)
    made = store.provenance(runs)
    return ComparisonReport(comparison, plains, made, command=command, strategies=strategies, dates=store.dates(runs))


def load_report(
    folder: Path, *, metric: str | None = None, value: float | None = None, by: str | None = None, command: str = ""
) -> ComparisonReport:
    """The comparison whose summary is in a folder; where there is none, all the runs that are there, side by side.

    Args:
        folder: What compare, run or federate has written.
        metric: The metric of the target; by default that of the summary, or the loss.
        value: The target; by default that of the summary where the metric is the same.
        by: "rounds", "bytes" or "seconds"; by default that of the summary, or "rounds".
        command: The command line, for the page; by default that of the summary.
    """
    if not (folder / "runs").is_dir():
        rule = "must be a folder with runs (of compare, run or federate)"
        raise ValueError(f"report: {str(folder)!r} {rule}, and has none")
    store, path = RunStore(folder), folder / "summary.json"
    if path.is_file():
        try:
            kept = json.loads(path.read_text())
            if kept["format"] != FORMAT:
                raise ValueError(f"its format is {kept['format']}, and this fedpick reads {FORMAT}")
            experiments = [] if kept["all_runs"] else [from_plain(plain)[0] for plain in kept["experiments"]]
            target = (kept["target"]["metric"], kept["value"], kept["command"])
            own = kept.get("by", "rounds")
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"report: {path} must be a summary that fedpick wrote ({error}); remove it to start anew"
            ) from None
        if experiments:
            same = value is None and metric in (None, target[0]) and by in (None, own)
            metric, value, command = target if same else (metric or target[0], value, command)
            return report_on(experiments, store, metric=metric, value=value, by=by or own, command=command)
    stored = {identity: run for identity in store.identities() if (run := store.load(identity)) is not None}
    if not stored:
        raise ValueError(f"report: {str(folder)!r} must hold at least one complete run, and has none")
    groups = _groups(list(stored.values()))
    plains = tuple(plain for plain, _ in groups)
    comparison = _compare(plains, [result for _, result in groups], metric or "loss", value, by or "rounds")
    notes = tuple((number, why) for run in stored.values() for number, why in run.about.get("notes", ()))
    made = store.provenance(stored)
    strategies = tuple(_strategy(plain.get("selector")) for plain in plains)
    clients = next((tuple(map(str, run.about["clients"])) for run in stored.values() if "clients" in run.about), ())
    return ComparisonReport(
        comparison,
        plains,
        made,
        command=command,
        all_runs=True,
        strategies=strategies,
        notes=notes,
        dates=store.dates(stored),
        clients=clients,
    )


def _compare(
    plains: Sequence[Plain], results: Sequence[Result], metric: str, value: float | None, by: str
) -> Comparison:
    labels = names(plains)
    kinds = [plain.get("selector", {}).get("kind") for plain in plains]
    baseline = labels[kinds.index("rand") if "rand" in kinds else 0]
    return Comparison(labels, tuple(results), metric, value=value, reference=baseline, by=by)


def _groups(runs: list[StoredRun]) -> list[tuple[Plain, Result]]:
    """Runs that differ in the seed alone together; or in the data that were drawn by it, where that makes it fewer."""
    ways = []
    for redrawn in (False, True):
        groups: dict[str, list[StoredRun]] = {}
        for run in runs:
            plain = {**run.about["experiment"], "seeds": []}
            if redrawn and "data" in plain:
                plain["data"] = _without_seed(plain["data"], run.about["seed"])
            groups.setdefault(json.dumps(plain, sort_keys=True), []).append(run)
        ways.append(list(groups.values()))
    found = []
    for members in min(ways, key=len):
        members.sort(key=lambda run: int(run.about["seed"]))
        plain = {**members[0].about["experiment"], "seeds": [run.about["seed"] for run in members]}
        found.append((plain, concatenate([result_of(run) for run in members])))
    return found


def _without_seed(plain: Plain, seed: int) -> Plain:
    """A description of data less the seed that drew it."""
    inner = {name: _without_seed(part, seed) if isinstance(part, dict) else part for name, part in plain.items()}
    return {name: part for name, part in inner.items() if (name, part) != ("seed", seed)}


def _strategy(plain: object) -> str:
    """A strategy with its parameters; the plain data as they are where its class is not at hand."""
    try:
        return config.describe(config.structure(plain, Selector, "selector"))
    except ValueError:
        return str(plain)
