"""The comparisons in a folder, by their names.

folder/report.html, summary.json     the comparison that was made or named last
folder/comparisons/NAME.html, .json  those before it
"""

import contextlib
import json
import logging
import os
import re
from dataclasses import replace
from pathlib import Path

from fedpick.compare.report import FORMAT, ComparisonReport
from fedpick.config import Plain
from fedpick.experiment import from_plain
from fedpick.registry import nearest
from fedpick.storage import RunStore, acquired, check_own, write_atomic
from fedpick.text import counted, shown

LOG = logging.getLogger("fedpick")
PAGE, SUMMARY, EARLIER = "report.html", "summary.json", "comparisons"


def page_lock(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Be the only process that sets a comparison aside and writes another; that of the runs is a server's for days.

    Args:
        folder: The folder.
    """
    return acquired(folder / ".page.lock", folder) if os.access(folder, os.W_OK) else contextlib.nullcontext()


def set_aside(folder: Path, report: ComparisonReport, name: str | None = None) -> ComparisonReport:
    """Keep the comparison in a folder under its name, where another is about to take its place.

    Returns the one that comes, under a name that no other has; one that was here before has the name that it had,
    unless it is given another.

    Args:
        folder: The folder.
        report: The comparison that comes.
        name: The name that it is given, if any.
    """
    plain = {"experiments": json.loads(json.dumps(list(report.experiments))), "runs": list(report.identities)}
    kept = _glance(folder / SUMMARY)
    if kept is not None and not kept["all_runs"]:
        if _is_same(kept, plain):
            had = str(kept.get("name") or report.name)
            return replace(report, name=_renamed(folder, had, name))
        before = _move(folder, kept)
        LOG.warning("the comparison before it is kept: fedpick report %s --name %s", folder, before)
    if report.all_runs:
        return report
    for path in sorted((folder / EARLIER).glob("*.json")):
        earlier = _glance(path)
        if earlier is not None and _is_same(earlier, plain):
            path.unlink()
            path.with_suffix(".html").unlink(missing_ok=True)  # both are written again, as the last
            return replace(report, name=_renamed(folder, path.stem, name))
    return replace(report, name=_given_name(folder, report.name))


def summary_path(folder: Path, name: str | None) -> Path:
    """Where the summary of a comparison is: the last, or an earlier one by its name.

    Args:
        folder: The folder.
        name: Its name.
    """
    name = None if name is None else _file_name(name)  # as it is stored
    last = folder / SUMMARY
    current = (_glance(last) or {}).get("name")
    if name is None or name == current:
        return last
    known = earlier_names(folder)
    if name not in known:
        known += [str(current)] if current else []
        rule = f"must be one of the comparisons in {folder} ({', '.join(known) or 'none'})"
        raise ValueError(f"report: name {rule}, got {shown(name)}{nearest(name, known)}")
    return folder / EARLIER / f"{name}.json"


def earlier_names(folder: Path) -> list[str]:
    """The names of the comparisons before the last one.

    Args:
        folder: The folder.
    """
    return sorted(path.stem for path in (folder / EARLIER).glob("*.json"))


def check_page(folder: Path, owner: str = "compare") -> None:
    """Raise where report.html or summary.json in a folder is not fedpick's: they are not overwritten.

    Args:
        folder: The folder.
        owner: Who would write, for the error message.
    """
    check_own(owner, folder, (PAGE, SUMMARY))


def check_federations(folder: Path, owner: str, *, clients: int, experiment: Plain) -> None:
    """Raise where a folder holds what a federation would not fit to: its page is of all that is in it, side by side.

    That is simulations, a comparison, federations of another number of clients, the same with more rounds, and others
    that have no seed in common with it: strategies are compared over the seeds that all have.

    Args:
        folder: The folder.
        owner: Who would add a federation, for the error message.
        clients: Its number of clients.
        experiment: Its selector, seeds and rounds, as runs are described.
    """
    kept = _glance(folder / SUMMARY)
    rule = "" if kept is None or kept["all_runs"] else "of federations alone, got {} with a comparison"
    store = RunStore(folder) if (folder / "runs").is_dir() else None
    seeds: dict[str, set[int]] = {}  # of the others, by all that tells them apart on the page
    for _, run in store.runs() if store else ():
        about, number = run.about["experiment"], len(run.about.get("clients", ()))
        if "data" in about:
            rule = rule or "of federations alone, got {} with simulations"
        elif number != clients:
            rule = rule or f"of federations with {clients} clients, got {{}} with {counted(number, 'client')}"
        elif all(about[name] == experiment[name] for name in ("selector", "seeds")):  # it takes its place
            if about["rounds"] > experiment["rounds"]:
                least = f"rounds must be at least the {about['rounds']} of this federation in {str(folder)!r}"
                got = f"which would be lost, got {experiment['rounds']}"
                raise ValueError(f"{owner}: {least}, {got}; choose another (-o)")
        else:
            seeds.setdefault(_shown_apart(about), set()).update(about["seeds"])
    if rule:
        raise ValueError(f"{owner}: output must be a folder {rule.format(repr(str(folder)))}; choose another (-o)")
    own = seeds.pop(_shown_apart(experiment), set()) | set(experiment["seeds"])
    common = set.intersection(*seeds.values()) if seeds else own
    if not own & common:
        least = f"seed must be one that the federations in {str(folder)!r} have in common"
        those = ", ".join(map(str, sorted(common))) or "none"
        raise ValueError(f"{owner}: {least} ({those}), got {experiment['seeds'][0]}; choose another (-o)")


def _shown_apart(experiment: Plain) -> str:
    """What federations must differ in to be strategies of their own on a page."""
    return json.dumps([experiment["selector"], experiment["rounds"]], sort_keys=True)


def read_summary(path: Path) -> Plain:
    """The summary of a comparison.

    Args:
        path: The file.
    """
    try:
        kept: Plain = json.loads(path.read_text())
        if kept["format"] != FORMAT:
            raise ValueError(f"its format is {shown(kept['format'])}, and this fedpick reads {FORMAT}")
        runs = kept.get("runs", [])
        if not all(isinstance(run, str) and run.isalnum() for run in runs):
            raise ValueError("its runs are no names")
        if runs and not kept["all_runs"] and len(runs) != sum(len(plain["seeds"]) for plain in kept["experiments"]):
            raise ValueError("its runs are not those of its experiments")
        if not kept["all_runs"] and not runs:
            [from_plain(plain)[0] for plain in kept["experiments"]]
        _ = (kept["target"]["metric"], kept["value"], kept["command"], dict(kept.get("asked") or {}))
        return kept
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(
            f"report: {path} must be a summary that fedpick wrote ({error}); remove it to start anew"
        ) from None


def _is_same(kept: Plain, plain: Plain) -> bool:
    """Whether two comparisons are of the same runs; where one does not say of which, of the same settings."""
    runs = kept.get("runs")
    return bool(kept["experiments"] == plain["experiments"] and (not runs or runs == plain["runs"]))


def _glance(path: Path) -> Plain | None:
    """A summary, if it is one."""
    try:
        kept: Plain = json.loads(path.read_text())
        _ = (kept["all_runs"], kept["experiments"])
        return kept
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _file_name(name: str) -> str:
    """A name as that of a file."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "comparison"


def _free_name(folder: Path, name: str) -> str:
    """The name, as a file may have it, with a number where an earlier comparison has it."""
    name = _file_name(name)
    taken, place = name, 1
    while any((folder / EARLIER / f"{taken}{end}").exists() for end in (".json", ".html")):
        place += 1
        taken = f"{name}-{place}"
    return taken


def _given_name(folder: Path, name: str) -> str:
    """The same, which is told where it is another than the one that was asked for."""
    found = _free_name(folder, name)
    if found != _file_name(name):
        LOG.warning("another comparison is called %s: this one is fedpick report %s --name %s", name, folder, found)
    return found


def _renamed(folder: Path, had: str, name: str | None) -> str:
    """The name of a comparison that was here before: the one that it had, unless it is given another, which is told."""
    if name is None or _file_name(name) == had:
        return had
    found = _given_name(folder, name)
    LOG.warning("the comparison that was called %s is called %s from now on: the runs are the same", had, found)
    return found


def _move(folder: Path, kept: Plain) -> str:
    """Move the last comparison to the earlier ones; the name that it has there."""
    name = _free_name(folder, str(kept.get("name") or ""))
    text = json.dumps({**kept, "name": name}, indent=1)
    write_atomic(folder / EARLIER / f"{name}.json", text + "\n", owner="report")
    (folder / SUMMARY).unlink()
    if (folder / PAGE).is_file():
        (folder / PAGE).replace(folder / EARLIER / f"{name}.html")
    return name
