"""A comparison on a page (report.html) and as plain data (summary.json), and both again from a folder of runs."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpick.compare.charts import charts
from fedpick.compare.comparison import Comparison, StrategySummary
from fedpick.compare.labels import Plain, names, strategy
from fedpick.experiment import Experiment, from_dict, leaves, to_dict
from fedpick.report import code, figure, heading, page, paragraph, table
from fedpick.results import Result
from fedpick.sim import Summary
from fedpick.storage import Provenance, RunStore, StoredRun, concatenate, results, write_atomic

TITLE = "Which clients to train on"
COLUMNS = (
    "strategy",
    "rounds to\ntarget [95 %]",
    "speed-up\n[95 %]",
    "final\nloss",
    "accuracy,\n%",
    "worst\nclient's loss",
    "messages\na round",
    "MB a\nround",
    "messages\nto target",
    "MB to\ntarget",
)
SIGNS = {"": "", "about": "~ ", "at least": "≥ ", "at most": "≤ "}
NOTES = (
    "Rounds: the median over the seeds and a bootstrap interval. Speed-up: how many times fewer rounds than "
    "{baseline}, a geometric mean over paired seeds with Student's interval; a run that does not get there counts as "
    "if it did at its end, which makes the factor a bound (≤, ≥). ± is one standard deviation over the seeds. Traffic "
    "counts polls as well: every candidate is sent the model."
)


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison with what it was made of: the experiments as plain data, their runs, and the command.

    ``all_runs`` where it is of whatever lies in a folder.
    """

    compared: Comparison
    experiments: tuple[Plain, ...]
    made: tuple[Provenance, ...]
    command: str
    all_runs: bool = False

    def summary(self) -> Plain:
        """Everything but the curves."""
        found = self.compared.as_plain()
        settings: Plain = {"names": list(self.compared.names), "value": self.compared.value, "command": self.command}
        settings["all_runs"] = self.all_runs
        made = [{"device": device, "versions": versions, "runs": runs} for device, versions, runs in self.made]
        return {**found, "format": 1, **settings, "made": made, "experiments": list(self.experiments)}


def tell(
    experiments: list[Experiment], store: RunStore, metric: str, value: float | None, command: str
) -> ComparisonReport:
    """The comparison of experiments whose runs are in the store."""
    plains = tuple(to_dict(experiment) for experiment in experiments)
    compared = Comparison(names(plains), tuple(results(e, store) for e in experiments), metric, value)
    made = store.provenance(run for experiment in experiments for run in map(experiment.identity, experiment.seeds))
    return ComparisonReport(compared, plains, made, command)


def load(folder: Path, metric: str = "loss", value: float | None = None, command: str = "") -> ComparisonReport:
    """The comparison in a folder as it was told there; where none was, all the runs that are there, side by side."""
    if not (folder / "runs").is_dir():
        raise ValueError(
            f"report: {str(folder)!r} must be a folder with runs (of compare, run or federate), and has none"
        )
    store, path = RunStore(folder), folder / "summary.json"
    if path.is_file() and value is None:
        try:
            kept = json.loads(path.read_text())
            plains = [] if kept["all_runs"] else kept["experiments"]
            experiments = [from_dict(plain)[0] for plain in plains]
            told = (kept["target"]["metric"], kept["value"], kept["command"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise ValueError(
                f"report: {path} must be a summary that fedpick wrote, and is not; remove it to start anew"
            ) from None
        if experiments:
            return tell(experiments, store, *told)
    found = {identity: store.load(identity) for identity in store.identities()}
    groups = _grouped([stored for stored in found.values() if stored is not None])
    if not groups:
        raise ValueError(f"report: {str(folder)!r} must hold at least one whole run, and has none")
    plains = tuple(plain for plain, _ in groups)
    compared = Comparison(names(plains), tuple(result for _, result in groups), metric, value)
    made = store.provenance(identity for identity, stored in found.items() if stored is not None)
    return ComparisonReport(compared, plains, made, command, all_runs=True)


def _grouped(runs: list[StoredRun]) -> list[tuple[Plain, Result]]:
    """Runs that differ in the seed alone together; or in the data that were drawn by it, where that makes it fewer."""
    ways = []
    for redrawn in (False, True):
        groups: dict[str, list[StoredRun]] = {}
        for run in runs:
            plain = {**run.about["experiment"], "seeds": []}
            for part in ("data", "partition") if redrawn else ():
                if isinstance(plain.get(part), dict) and plain[part].get("seed") == run.about["seed"]:
                    plain[part] = {name: value for name, value in plain[part].items() if name != "seed"}
            groups.setdefault(json.dumps(plain, sort_keys=True), []).append(run)
        ways.append(list(groups.values()))
    found = []
    for members in min(ways, key=len):
        members.sort(key=lambda run: int(run.about["seed"]))
        plain = {**members[0].about["experiment"], "seeds": [run.about["seed"] for run in members]}
        found.append((plain, concatenate([result_of(run) for run in members])))
    return found


def write(told: ComparisonReport, folder: Path, summary: Summary | None = None) -> list[Path]:
    """report.html and summary.json in the folder."""
    text = json.dumps(told.summary(), indent=1, allow_nan=False)
    files = {"report.html": draw(told, summary), "summary.json": text + "\n"}
    return [write_atomic(folder / name, content, owner="report") for name, content in files.items()]


def draw(told: ComparisonReport, summary: Summary | None = None) -> str:
    """The page; ``summary`` is of the federation, which is drawn where it is given."""
    compared = told.compared
    parts = [paragraph(compared.answer, "answer")]
    parts.append(table(f"The target is {compared.told_goal}", COLUMNS, map(cells, compared.standings)))
    parts.append(paragraph(NOTES.format(baseline=compared.baseline), "soft"))
    for chart in charts(compared, summary):
        parts += [heading(chart.title, anchor=chart.name, unseen=True), figure(chart)]
    if summary is None:
        parts.append(paragraph("The federation's data are not at hand here, so they are not drawn.", "soft"))
    parts += [heading("Settings"), table("", ("setting", "value"), _settings(told))]
    parts.append(
        table("Provenance with", ("device", "versions", "runs"), [[str(cell) for cell in row] for row in told.made])
    )
    if told.command:
        parts += [heading("How to reproduce"), code(told.command)]
    return page(TITLE, parts)


def cells(standing: StrategySummary) -> list[str]:
    """A row of the table."""
    middle, *ends = (f"{n:.0f}" if np.isfinite(n) else f"> {standing.played}" for n in standing.rounds)
    rounds = f"{middle} [{', '.join(ends)}]" if standing.seeds > 1 and standing.reached else middle
    gain = standing.speed_up
    faster = "1" if gain is None else f"{SIGNS[standing.bound]}{gain.mean:.2f}"
    if gain is not None and standing.seeds > 1 and not standing.bound:
        faster += f" [{gain.low:.2f}, {gain.high:.2f}]"
    return [
        standing.name,
        rounds,
        faster,
        standing.loss.shown(),
        standing.accuracy.shown(1, 100),
        f"{standing.worst_loss:.3g}",
        f"{standing.messages:.3g}",
        f"{standing.megabytes:.3g}",
        f"{standing.messages_to_target:.0f}" if np.isfinite(standing.messages_to_target) else "-",
        f"{standing.megabytes_to_target:.3g}" if np.isfinite(standing.megabytes_to_target) else "-",
    ]


def _settings(told: ComparisonReport) -> list[tuple[str, str]]:
    """What all have in common, and each strategy with its parameters."""
    flat = [leaves({part: value for part, value in plain.items() if part != "selector"}) for plain in told.experiments]
    common = {path: value for path, value in flat[0].items() if all(each.get(path) == value for each in flat)}
    rows = [(name, strategy(plain)) for name, plain in zip(told.compared.names, told.experiments, strict=True)]
    return rows + [(path, str(value)) for path, value in common.items() if value not in (None, "")]
