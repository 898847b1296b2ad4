"""What a page says before its charts: what was compared, and three or four numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpick.compare.answer import NONE, seeds_of
from fedpick.compare.charts import Section
from fedpick.compare.comparison import Comparison
from fedpick.compare.report import ComparisonReport
from fedpick.compare.summary import CURRENCIES, SIGNS, is_vague, medians
from fedpick.compare.targets import winner_of
from fedpick.config import Plain
from fedpick.experiment import differences, kind_of
from fedpick.report import Chart, ChartRow, dot
from fedpick.sim import Summary

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
Card = tuple[str, str, str]


def describe(report: ComparisonReport, summary: Summary | None) -> list[tuple[str, str]]:
    """What was compared: the data, the clients, the model, how much was run, and when.

    Args:
        report: The report.
        summary: Of the federation, where it is at hand.
    """
    compared, first = report.comparison, report.comparison.results[0]
    plain = report.experiments[0] if report.experiments else {}
    K, seats = first.shares.shape[1], [result.records["clients"].shape[-1] for result in compared.results]
    rows = []
    if summary is not None:
        samples = f"{int(summary.sizes.sum()):,} samples, {summary.labels.shape[1]} labels"
        whose = "; one draw, of all seeds" if _drawn(plain.get("data")) else ""
        whose = "; of the first seed, as each draws its own" if report.redrawn else whose
        rows.append(("Data", f"{summary.name}: {samples}{whose}"))
    elif report.real:
        rows.append(("Federation", str(plain.get("name") or "on Flower")))
    else:
        rows.append(("Data", str(plain.get("data", {}).get("kind", "unknown"))))
    rows.append(("Clients", f"{K:,}, of which {_range(seats)} train in a round"))
    size = f"{first.model_bytes / 1e3:,.3g} kB" if first.model_bytes < 1e6 else f"{first.model_bytes / 1e6:,.3g} MB"
    kind = plain.get("model", {}).get("kind") if isinstance(plain.get("model"), dict) else None
    rows.append(("Model", f"{kind}, {size}" if kind else size))
    rounds = _range([result.rounds for result in compared.results])
    seeds = [len(result.runs) for result in compared.results]
    number = len(compared.names)
    many = f"{number} strategies, " if number > 1 else ""
    count = f"{_range(seeds)} seeds, " if max(seeds) > 1 else ""
    rows.append(("Runs", f"{many}{count}{rounds} rounds" + (" so far" if report.running else "")))
    if report.dates:
        ends = list(dict.fromkeys((report.dates[0], report.dates[-1])))
        rows.append(("Date", " to ".join(_day(each) for each in ends)))
    return rows


def _drawn(data: Any) -> bool:
    """Whether numbers decide the data or who holds them, so that another draw may have another answer."""
    if not isinstance(data, dict):
        return False
    return data.get("kind") in ("synthetic", "quadratic") or isinstance(data.get("partition"), dict)


def _range(numbers: Sequence[int]) -> str:
    """What strategies have of something, which need not be the same."""
    least, most = min(numbers), max(numbers)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _day(date: str) -> str:
    year, month, day = date.split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}"


def cards(compared: Comparison, name: str, real: bool = False) -> list[Card]:
    """The numbers of a strategy beside the baseline's: how many times as fast, traffic, seconds, the worst client.

    Args:
        compared: The comparison.
        name: The strategy.
        real: Whether the seconds are a clock's.
    """
    base, by, unit = compared.baseline, compared.by, compared.currency
    gain, bound = compared.speed_up(name), compared.bound(name)
    unsure = bound or is_vague(gain) or compared.answer.startswith(NONE)
    sure = "" if unsure else f": {gain.low:.2f} to {gain.high:.2f}, 95 % sure for it alone"
    sure = ": one seed, with which nothing is sure" if name != base and seeds_of(compared, name) == 1 else sure
    title = f"times as {unit.adjective}" if by == "bytes" else f"times as fast, in {unit.unit}"
    rows = [(title, "-" if bound == "unknown" else f"{SIGNS[bound]}{gain.mean:.2f}", f"{name} against {base}{sure}")]
    for what, word in (("bytes", "traffic"), ("seconds", "seconds" if real else "simulated seconds")):
        mine, theirs = medians(compared, name, base, what)
        ratio = f"{mine / theirs:.2f}" if np.isfinite(mine) and np.isfinite(theirs) and theirs else "-"
        texts = [
            f"{CURRENCIES[what].text(n)} {'MB' if what == 'bytes' else 's'}" if np.isfinite(n) else "not reached"
            for n in (mine, theirs)
        ]
        if what == by:  # its ratio, paired over seeds, is the first card's, and medians may be the other way round
            rows.append((f"median {word}", texts[0], f"{base}: {texts[1]}"))
        else:
            clock = "; by the clock, with all that ran beside" if real and what == "seconds" else ""
            rows.append((f"times the {word}", ratio, f"medians: {texts[0]} against {texts[1]}{clock}"))
    worst = {each: compared.finals[each]["worst_loss"].mean for each in compared.names}
    if np.isfinite(list(worst.values())).any():  # whoever leads, so that a page has as many cards for every target
        own, plain = (f"{worst[each]:.3g}" if np.isfinite(worst[each]) else "-" for each in (name, base))
        rows.append(("worst client's loss at the end", own, f"{name}; {base}: {plain}"))
    return rows


def single_cards(compared: Comparison, real: bool = False) -> list[Card]:
    """The numbers of one strategy alone: where it ended, and what it took.

    Args:
        compared: The comparison, of one strategy.
        real: Whether the seconds are a clock's.
    """
    name = compared.names[0]
    final, result = compared.finals[name], compared.results[0]
    rows: list[Card] = []
    for metric, title in (("test_accuracy", "test accuracy"), ("mean_accuracy", "accuracy, mean over clients")):
        if np.isfinite(final[metric].mean) and not rows:
            first = 100 * result.metric(metric)[:, 0].mean()
            rows.append(
                (title, f"{100 * final[metric].mean:.1f} %", f"from {first:.1f} %" if np.isfinite(first) else "")
            )
    for metric, title in (("loss", "loss"), ("test_loss", "test loss")):
        if np.isfinite(final[metric].mean) and len(rows) < 2:
            first = result.metric(metric)[:, 0].mean()
            rows.append((title, f"{final[metric].mean:.3g}", f"from {first:.3g}" if np.isfinite(first) else ""))
    for what, title in (("bytes", "MB sent"), ("seconds", "seconds" if real else "simulated seconds")):
        total = float(compared.total(name, what)[:, -1].mean())
        each = total / max(result.rounds, 1)
        rows.append((title, CURRENCIES[what].text(total), f"{CURRENCIES[what].text(each)} a round"))
    return rows[:4]


def sweep_sections(compared: Comparison, plains: Sequence[Plain]) -> list[Section]:
    """Which value of a setting is best, for each strategy that was swept over one number: "Which d?"."""
    others = [place for place, name in enumerate(compared.names) if name != compared.baseline]
    varied = differences([plains[place] for place in others]) if len(plains) == len(compared.names) else []
    sweeps: dict[str, dict[str, dict[str, float]]] = {}  # by all but its numbers, what each is called -> its numbers
    for place, own in zip(others, varied, strict=False):
        numbers = {path: value for path, value in own.items() if type(value) in (int, float)}
        rest = {path: value for path, value in own.items() if path not in numbers}
        sweeps.setdefault(str((kind_of(plains[place].get("selector")), rest)), {})[compared.names[place]] = numbers
    found: list[Section] = []
    for swept in sweeps.values():
        paths = [path for path in next(iter(swept.values())) if len({own[path] for own in swept.values()}) > 1]
        if len(paths) == 1:
            place = compared.names.index(next(iter(swept)))
            strategy = kind_of(plains[place].get("selector")) if len(swept) < len(others) else ""
            values = {name: own[paths[0]] for name, own in swept.items()}
            found.append(_sweep(compared, values, paths[0].split(".")[-1], strategy, len(found)))
    return found


def _sweep(compared: Comparison, values: Mapping[str, float], word: str, strategy: str, place: int) -> Section:
    """The section of one sweep: for each value how many times as fast as the baseline it is.

    Args:
        compared: The comparison.
        values: Which value each strategy of the sweep has.
        word: The setting.
        strategy: What is swept; "" where there is nothing else.
        place: How many sections are before it.
    """
    points = []
    for name, value in values.items():
        gain, bound = compared.speed_up(name), compared.bound(name)
        if bound != "unknown" and np.isfinite(gain.mean):
            known = not bound and np.isfinite(gain.high)
            low, high = (gain.low, gain.high) if known else (gain.mean, gain.mean)
            row = {**dot(name, "", value, value=gain.mean, low=low, high=high), "sign": SIGNS[bound]}
            points.append((value, row, known))
    points.sort(key=lambda point: float(point[0]))
    words = f"How many times as {compared.currency.adjective} as {compared.baseline} to {compared.goal}"
    exact = all(each[-1] for each in points)
    text = f"{words}, with its 95 % interval{'' if exact else ' where it is known'}."
    rows = tuple(row for _, row, _ in points)
    of, key = f" of {strategy}" if strategy else "", f"sweep-{place}" if place else "sweep"
    chart = Chart(key, "dots", title=f"Speed-up by {word}{of}", text=text, rows=rows, x=word, log_y=True, rule=1.0)
    return Section(key, f"Which {word}{of}?", _which(compared, word, rows), (chart,))


def _which(compared: Comparison, word: str, rows: Sequence[ChartRow]) -> str:
    """Which value of a setting is best, as far as the runs say it."""
    base, superlative = compared.baseline, compared.currency.superlative
    if not rows:
        return f"Which {word} is best for {compared.goal} is not known: too few runs get there."
    if compared.answer.startswith(NONE):
        return f"Which {word} is best is not known, as there is no answer."
    most = max(rows, key=lambda row: float(row["y"]))
    best = next((row for row in rows if row["name"] == winner_of(compared)), most)
    if best["sign"] not in ("", SIGNS["at least"]):  # a run of its own is not there; the others' are upper bounds
        return f"Which {word} is the {superlative} is not known: some runs do not reach {compared.goal}."
    said = f"{word} = {best['x']} is the {superlative} here."
    if best is not most:
        times = f"{compared.bound(str(most['name']))} {most['y']:.2f} times as {compared.currency.adjective}".strip()
        return (
            f"{word} = {best['x']} wins. {word} = {most['x']} may be better, but that is less sure: {times} as {base}."
        )
    said = said if best["y"] > 1 else f"No {word} beats {base}; of these, {said}"
    if any(seeds_of(compared, str(row["name"])) == 1 for row in rows):
        return f"With one seed nothing is sure. {said}"
    if best["sign"]:
        return f"{said} How sure that is, the bounds do not say."
    level = [str(row["x"]) for row in rows if row is not best and row["high"] >= best["low"]]
    return f"{said} The intervals of {word} = {', '.join(level)} overlap with its own." if level else said


def polled_rows(report: ComparisonReport) -> list[tuple[str, str, str]]:
    """A row for each round of a federation that had a poll: whom it asked, the highest loss first, and who trained.

    Args:
        report: The report.
    """
    names, rows = report.client_names, []
    for polled in report.polls:
        answers = sorted(
            zip(polled.asked, polled.answers, strict=True), key=lambda each: -np.nan_to_num(each[1], nan=-1)
        )
        said = [f"{names[k]}: {loss:.4g}" if np.isfinite(loss) else f"{names[k]}: silent" for k, loss in answers]
        trained = [names[k] for k in polled.trained]
        trained += [f"{polled.lost} more, without an update that counts"] if polled.lost else []
        rows.append((str(polled.number), ", ".join(said), ", ".join(trained)))
    return rows
