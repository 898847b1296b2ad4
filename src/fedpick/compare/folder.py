"""The comparison of a folder of runs: the last one, an earlier one by its name, or all runs side by side."""

import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from fedpick import config
from fedpick.compare.earlier import earlier_names, read_summary, summary_path
from fedpick.compare.remarks import notes_of, polls_of, remarks_on
from fedpick.compare.report import ComparisonReport, compare_results, report_on
from fedpick.compare.tasks import BY_LOSS
from fedpick.config import Plain, leaves
from fedpick.experiment import differences, from_plain, result_of
from fedpick.protocol import Selector
from fedpick.registry import STRATEGIES, nearest
from fedpick.results import Result, concatenate
from fedpick.storage import RunStore, StoredRun

LOG = logging.getLogger("fedpick")
# One that was measured, where none is named.
LOSS_FIRST: tuple[str, ...] = ("loss", "test_accuracy", "test_loss", "mean_accuracy")
ACCURACY_FIRST: tuple[str, ...] = ("test_accuracy", "mean_accuracy", "loss", "test_loss")


def load_report(
    folder: str | Path,
    *,
    name: str | None = None,
    where: Sequence[str] = (),
    metric: str | None = None,
    value: float | None = None,
    by: str | None = None,
    command: str = "",
) -> ComparisonReport:
    """The comparison whose summary is in a folder; where there is none, the runs that are there, side by side.

    Runs of several strategies whose other settings differ are not compared; those of one strategy are, as a sweep.

    Args:
        folder: What compare, run or federate has written.
        name: The name of an earlier comparison; by default the last one.
        where: Settings such as "local.eta=0.05" that runs must have; then it is of all such runs, and so is the next.
            Strategies without such a parameter stay, as rand has no "selector.d".
        metric: The metric of the target; by default that of the comparison, or what ``compare`` would take.
        value: The target; by default that of the comparison where the metric is the same.
        by: "rounds", "bytes" or "seconds"; by default that of the comparison, or "rounds".
        command: The command line, for the page; by default that of the comparison.
    """
    folder = Path(folder)
    if not (folder / "runs").is_dir():
        raise ValueError(
            f"report: {str(folder)!r} must be a folder with runs (of compare, run or federate), and has none"
        )
    store, path, last = RunStore(folder), summary_path(folder, name), ()
    if path.is_file() and not where:
        kept = read_summary(path)
        if not kept["all_runs"]:
            asked = kept.get("asked") or {**kept, "metric": kept["target"]["metric"]}
            asked = {name: asked.get(name) for name in ("metric", "value", "by", "command")}
            wanted: Any = {"metric": metric, "value": value, "by": by}
            other = {name: part for name, part in wanted.items() if part is not None and part != asked[name]}
            options: Any = {**asked, **({"command": command} if other else {}), "name": kept.get("name", "")}
            options |= {"value": None} if "metric" in other else {}  # which was one of the other metric
            options |= {**other, "by": by or asked["by"] or "rounds"}
            if kept.get("runs"):
                simulated = all("data" in plain for plain in kept["experiments"])
                report = (
                    _as_played(kept, store, **options) if simulated else report_on_runs(kept["runs"], store, **options)
                )
                return replace(report, asked=asked)
            experiments = [from_plain(plain)[0] for plain in kept["experiments"]]
            return replace(report_on(experiments, store, **options), asked=asked)
        where = last = tuple(kept.get("where", ()))
    named = earlier_names(folder)
    if last or (named and not where):
        of = f"of the runs where {', '.join(last)}, as the last one was" if last else f"of all runs in {folder}"
        hint = f"; of a comparison it is with --name {' or '.join(named)}" if named else ""
        LOG.warning("report: this is %s%s", of, hint)
    stored = dict(store.runs())
    if not stored:
        raise ValueError(f"report: {str(folder)!r} must hold at least one complete run, and has none")
    stored = _chosen(stored, where, folder)
    wanted = {"metric": metric, "value": value, "by": by, "command": command}
    kinds = {run.about["experiment"].get("data", {}).get("kind") for run in stored.values()}
    metrics: Sequence[str] = LOSS_FIRST if kinds & set(BY_LOSS) else ("test_accuracy", *LOSS_FIRST)  # as ``compare``
    metrics = ACCURACY_FIRST if None in kinds else metrics  # of Flower, as ``compare --app`` has it
    return _side_by_side(store, stored, metrics, all_runs=True, where=tuple(where), **wanted)


def _as_played(kept: Plain, store: RunStore, *, command: str, name: str, **wanted: Any) -> ComparisonReport:
    """A comparison from the runs that it had, whatever has become of its data and code since."""
    plains, runs = tuple(kept["experiments"]), {run: store.load(run) for run in kept["runs"]}
    for run, stored in runs.items():
        if stored is None:
            rule = f"must hold the run {run} of its comparison, and does not"
            raise ValueError(f"report: {str(store.folder)!r} {rule}; run compare again")
    found = (result_of(stored) for run in kept["runs"] if (stored := runs[run]) is not None)
    results = [concatenate(list(itertools.islice(found, len(plain["seeds"])))) for plain in plains]
    return ComparisonReport(
        compare_results(plains, results, wanted["metric"], wanted["value"], wanted["by"]),
        plains,
        store.provenance(runs),
        command=command,
        strategies=tuple(_strategy(plain["selector"]) for plain in plains),
        dates=store.dates(runs),
        name=name,
        identities=tuple(kept["runs"]),
    )


def report_on_runs(
    identities: Sequence[str],
    store: RunStore,
    *,
    metric: str | None = None,
    value: float | None = None,
    by: str = "rounds",
    command: str = "",
    name: str = "",
) -> ComparisonReport:
    """The comparison of runs that no experiment describes, such as those of a Flower app.

    Args:
        identities: Of the runs.
        store: Where they are.
        metric: Of the target; by default an accuracy, or else a loss that was measured.
        value: The target; left out, it is what every run of the baseline reaches.
        by: What the way to the target is counted in: "rounds", "bytes" or "seconds".
        command: The command line, for the page.
        name: What the comparison is called in its folder.
    """
    stored = {identity: run for identity in identities if (run := store.load(identity)) is not None}
    if len(stored) < len(identities):
        rule = f"must hold the {len(identities)} runs of its comparison, and has {len(stored)}"
        raise ValueError(f"report: {str(store.folder)!r} {rule}; run compare again")
    wanted: Any = {"metric": metric, "value": value, "by": by, "command": command, "name": name}
    return _side_by_side(store, stored, ACCURACY_FIRST, identities=tuple(identities), **wanted)


def _chosen(stored: dict[str, StoredRun], where: Sequence[str], folder: Path) -> dict[str, StoredRun]:
    """The runs that have these settings; a strategy without such a parameter stays, as the baseline does beside a d."""
    flat, chosen = {identity: leaves(run.about["experiment"]) for identity, run in stored.items()}, set(stored)
    known = sorted({path for run in flat.values() for path in run})
    for setting in where:
        name, wanted = setting.partition("=")[0].strip(), Plain()
        if name not in known and not any(each.startswith(f"{name}.") for each in known):
            raise ValueError(f"report: where must be a setting of the runs, got {name!r}{nearest(name, known)}")
        config.override(wanted, setting, "report")
        for path, value in leaves(wanted).items():
            having = {identity for identity in chosen if flat[identity].get(path) == value}
            if not having:
                raise ValueError(f"report: {str(folder)!r} must hold runs where {', '.join(where)}, and has none")
            of_strategy = path.startswith("selector.")
            kinds = {run.get("selector.kind") for run in flat.values() if path in run or not of_strategy}
            chosen = having | {identity for identity in chosen if flat[identity].get("selector.kind") not in kinds}
    return {identity: stored[identity] for identity in stored if identity in chosen}


def _side_by_side(
    store: RunStore,
    stored: dict[str, StoredRun],
    metrics: Sequence[str],
    *,
    metric: str | None,
    value: float | None,
    by: str | None,
    **about: Any,
) -> ComparisonReport:
    stored = _of_one_version(stored, store.folder)
    groups = sorted(_groups(list(stored.values())), key=lambda group: _place(group[0].get("selector")))
    plains = tuple(plain for plain, _ in groups)
    results = [result for _, result in groups]
    real = results[0].real
    _check_alike(plains, store.folder, real)
    known = [each for each in metrics if np.isfinite(results[0].metric(each)).any()]
    own_metric, own_value = _target(plains)
    metric = metric or own_metric or (known[0] if known else "loss")
    value = own_value if value is None and metric == own_metric else value
    clients = next((result_of(run).clients for run in stored.values() if "clients" in run.about), ())
    comparison = compare_results(plains, results, metric, value, by or "rounds")
    return ComparisonReport(
        comparison,
        plains,
        store.provenance(stored),
        remarks=remarks_on(comparison.names, results, list(stored.values())) if real else (),
        strategies=tuple(_strategy(plain.get("selector")) for plain in plains),
        notes=notes_of(list(stored.values())),
        dates=store.dates(stored),
        clients=clients,
        polls=polls_of(next(iter(stored.values()))) if len(stored) == 1 else (),
        **about,
    )


def _target(plains: Sequence[Plain]) -> tuple[Any, Any]:
    """The metric and the value that all experiments have as their target; None where they have none, or several."""
    found = {(own.get("target"), own.get("value")) for own in (plain.get("metrics", {}) for plain in plains)}
    return found.pop() if len(found) == 1 else (None, None)


def _place(selector: Any) -> tuple[int, str]:
    """Strategies in the order of the registry, so that rand is first and colours stay."""
    kind = selector.get("kind") if isinstance(selector, dict) else None
    known = list(STRATEGIES)
    return known.index(kind) if kind in known else len(known), json.dumps(_padded(selector), sort_keys=True)


def _padded(value: Any) -> Any:
    """Numbers as texts that sort as they do."""
    if isinstance(value, dict):
        return {name: _padded(part) for name, part in value.items()}
    return f"{value:020.6f}" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _of_one_version(stored: dict[str, StoredRun], folder: Path) -> dict[str, StoredRun]:
    """The runs; where a file that decides them, or what it reads, differs between them, those of it as it is now."""
    versions: dict[str, dict[str, StoredRun]] = {}
    for run in stored.values():
        for file, content in run.about.get("contents", {}).items():
            versions.setdefault(file, {})[content] = run
    edited = {file: _content(file, next(iter(runs.values()))) for file, runs in versions.items() if len(runs) > 1}
    present = {
        identity: run
        for identity, run in stored.items()
        if all(run.about.get("contents", {}).get(file, content) == content for file, content in edited.items())
    }
    if not present:
        now = "which cannot be read" if None in edited.values() else "and none of them is of it as it is now"
        rule = f"holds runs that differ in {', '.join(edited)}, or in what it reads, {now}"
        raise ValueError(f"report: {str(folder)!r} {rule}; run the experiment again")
    if left_out := len(stored) - len(present):
        LOG.warning("report: %d runs of other versions of %s are left out", left_out, ", ".join(edited))
    return present


def _content(file: str, run: StoredRun) -> str | None:
    """The sum of a file of a run as it is now; None where it cannot be read."""
    try:
        return from_plain(run.about["experiment"])[0].contents.get(file)
    except (ValueError, OSError, ModuleNotFoundError):
        return None


def _check_alike(plains: Sequence[Plain], folder: Path, real: bool) -> None:
    """Raise where strategies and other settings differ: what is compared would not be the strategies."""
    if len({json.dumps(plain.get("selector"), sort_keys=True) for plain in plains}) == 1:
        return  # a sweep of another setting with one strategy
    others = [{name: part for name, part in plain.items() if name != "selector"} for plain in plains]
    varied = [path for path in differences(others)[0] if not (real and path == "rounds")]
    if varied:
        path = varied[0]
        values = (leaves(plain).get(path) for plain in plains)
        texts = (json.dumps(one) if isinstance(one, list) else str(one) for one in values)
        typed = quote(f"{path}={min(texts, key=len)}")
        rule = f"holds runs that differ in {', '.join(varied[:3])}, which cannot be compared"
        raise ValueError(f"report: {str(folder)!r} {rule}; choose with --where, such as --where {typed}")


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
        seeds = [int(run.about["seed"]) for run in members]
        if len(set(seeds)) < len(seeds):  # of a version that did not store what the files held
            names = ", ".join(str(run.about["identity"]) for run in members if seeds.count(int(run.about["seed"])) > 1)
            raise ValueError(f"report: runs must differ in their settings or their seeds, and {names} do not")
        plain = {**members[0].about["experiment"], "seeds": seeds}
        found.append((plain, concatenate([result_of(run) for run in members])))
    return found


def _without_seed(plain: Plain, seed: int) -> Plain:
    """A description of data less the seed that drew it."""
    inner = {name: _without_seed(part, seed) if isinstance(part, dict) else part for name, part in plain.items()}
    return {name: part for name, part in inner.items() if (name, part) != ("seed", seed)}


def _strategy(plain: object) -> str:
    """A strategy with its parameters; the plain data as they are where its class is not at hand."""
    try:
        return config.describe(config.structure(plain, Selector, "selector"), defaults=True)
    except ValueError:
        return str(plain.get("text") or plain.get("kind") or plain) if isinstance(plain, dict) else str(plain)
