"""A comparison with what it was made of, as plain data (summary.json)."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedpick import config
from fedpick.compare.comparison import Comparison
from fedpick.compare.summary import CURRENCIES, SIGNS, StrategySummary, is_vague
from fedpick.config import Plain
from fedpick.experiment import Experiment, differences, kind_of, load_results, names
from fedpick.metrics import METRICS, is_accuracy
from fedpick.results import Result, Spread, median_text
from fedpick.storage import Provenance, RunStore, plain_numbers

FORMAT = 3  # of summary.json
ENDS = {"low": ("", "at least"), "high": ("", "at most")}  # of a speed-up's interval, by what the factor is
LARGE, SMALL = 1e4, 0.01  # beyond these, three decimals are noise, or nothing


class PolledRound(NamedTuple):
    """A round of a federation: whom the server asked, the loss that each answered (NaN: silence), and who trained.

    ``lost`` is the number of those who were selected and of whom no update came, or none that could be used.
    """

    number: int
    asked: tuple[int, ...]
    answers: tuple[float, ...]
    trained: tuple[int, ...]
    lost: int


class Column(NamedTuple):
    """A column of the table: its title, what it says of a strategy, and whether it is about costs."""

    title: str
    text: Callable[[StrategySummary], str]
    cost: bool = False


def _rounds(one: StrategySummary) -> str:
    return median_text(one.rounds, one.played, one.seeds)


def _speed_up(one: StrategySummary) -> str:
    gain = one.speed_up
    if gain is None:
        return "1"
    if one.bound == "unknown":
        return "-"
    interval = f" [{gain.low:.2f}, {gain.high:.2f}]" if one.seeds > 1 and not one.bound else ""
    interval = " [?]" if interval and is_vague(gain) else interval
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
    return f"{middle} [{', '.join(ends)}]" if one.seeds > 1 and {middle, *ends} != {"-"} else middle


COLUMNS = (
    Column("strategy", lambda one: one.name),
    Column("rounds to\ntarget [95 %]", _rounds),
    Column("speed-up\n[95 %]", _speed_up),
    Column("final\nloss", lambda one: _loss(one.final["loss"])),
    Column("accuracy,\n%", lambda one: final_text("test_accuracy")(one)),
    Column("worst\nclient's loss", lambda one: _or_dash(one.final["worst_loss"].mean, ".3g")),
    Column("messages\na round", lambda one: f"{one.messages:.3g}", cost=True),
    Column("MB a\nround", lambda one: f"{one.megabytes:.3g}", cost=True),
    Column("messages\nto target", lambda one: _or_dash(one.messages_to_target, ".0f"), cost=True),
    Column("MB to\ntarget", lambda one: _or_dash(one.megabytes_to_target, ".3g"), cost=True),
)


def columns_of(comparison: Comparison) -> tuple[Column, ...]:
    """The columns of a comparison's table: more where it does not count in rounds, or metrics were asked for."""
    spent = () if comparison.by == "rounds" else (Column(f"{comparison.currency.unit} to\ntarget [95 %]", _spent),)
    own = tuple(Column(metric.replace("_", "\n", 1), final_text(metric)) for metric in own_metrics(comparison))
    return (*COLUMNS[:2], *spent, *COLUMNS[2:5], *own, *COLUMNS[5:])


def own_metrics(comparison: Comparison) -> tuple[str, ...]:
    """The metrics that a table shows beside those of every table: asked for by name, or that of the target."""
    of_target = {comparison.metric} - {"loss", "test_accuracy", "worst_loss"}
    return tuple(metric for metric in comparison.metric_names if metric not in METRICS or metric in of_target)


def final_text(metric: str) -> Callable[[StrategySummary], str]:
    """What a table says of a metric after the last round."""
    if is_accuracy(metric):
        return lambda one: f"{Spread(*(100 * number for number in one.final[metric])):.1f}"
    return lambda one: _loss(one.final[metric])


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison with what it was made of.

    Args:
        comparison: The results side by side.
        experiments: The experiments as plain data.
        provenance: Devices and versions of their runs.
        command: The command line.
        all_runs: Whether it is of whatever lies in a folder.
        where: Settings that these runs have.
        strategies: Each strategy with its parameters, in words.
        notes: What a strategy changed on its own, and why: the round and the sentence.
        remarks: What must be known of the runs before their numbers are compared.
        dates: The days on which the runs were made.
        clients: The names of the clients; those of the results where it is left out.
        running: Whether a real federation has not ended yet.
        name: What the comparison is called in its folder.
        polls: Of a federation, by round: who was asked, what they answered, and who trained.
        identities: Of its runs, where no experiment describes them.
        asked: What the comparison was made with (metric, value, by, command), where a report shows it by another.
    """

    comparison: Comparison
    experiments: tuple[Plain, ...]
    provenance: tuple[Provenance, ...]
    _: KW_ONLY
    command: str
    all_runs: bool = False
    where: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()
    remarks: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    running: bool = False
    name: str = ""
    polls: tuple[PolledRound, ...] = ()
    identities: tuple[str, ...] = ()
    asked: Plain | None = None

    @property
    def real(self) -> bool:
        """Whether it is of a real federation, with a clock's seconds, and not of a simulation."""
        return self.comparison.of(self.comparison.baseline).real

    @property
    def redrawn(self) -> bool:
        """Whether each seed has data of its own."""
        own = any(result.share.ndim == 2 for result in self.comparison.results)
        return own or any(plain.get("redraw") for plain in self.experiments)

    @property
    def client_names(self) -> tuple[str, ...]:
        """A name for each client."""
        first = self.comparison.results[0]
        numbers = range(first.shares.shape[1])
        known = self.clients if len(self.clients) == len(numbers) else map(first.client_name, numbers)
        return tuple(str(name).removeprefix("name=") for name in known)  # as Flower's clients call themselves

    def runs(self) -> list[Result]:
        """The results with all runs labelled, each with its strategy and its parameters: what a CSV file has."""
        plains = [config.leaves(plain["selector"]) for plain in self.experiments]
        fields = list(dict.fromkeys(name for plain in plains for name in plain if name != "kind"))
        others = [  # such as a learning rate of its own for each strategy
            {path: value for path, value in own.items() if not path.startswith("selector.")}
            for own in differences(self.experiments)
        ]
        found = []
        kinds = [kind_of(plain["selector"]) for plain in self.experiments]
        for kind, plain, other, result in zip(kinds, plains, others, self.comparison.results, strict=True):
            label = {"strategy": kind, **{name: plain.get(name, "") for name in fields}, **other}
            found.append(replace(result, runs=[{**run, **label} for run in result.runs]))
        return found

    def summary(self) -> Plain:
        """Everything but the curves, as plain data; None where a number is not finite, or nothing is known of it."""
        compared, rows = self.comparison, []
        for one in compared.summaries:
            median = dict(zip(("median", "low", "high"), one.rounds, strict=True))
            speed_up = one.speed_up._asdict() if one.speed_up and one.bound != "unknown" else None
            if speed_up:  # of a bound only one end of its interval is one
                speed_up |= {end: None for end, known in ENDS.items() if one.bound not in known}
            final = {name: spread._asdict() for name, spread in one.final.items()}
            rows.append(plain_numbers({**one._asdict(), "rounds": median, "speed_up": speed_up, "final": final}))
        return {
            "answer": compared.answer,
            "baseline": compared.baseline,
            "target": {"metric": compared.metric, "value": plain_numbers(compared.threshold)},
            "strategies": rows,
            "format": FORMAT,
            "name": self.name,
            "names": list(compared.names),
            "value": compared.value,
            "by": compared.by,
            "command": self.command,
            **({"asked": self.asked} if self.asked else {}),
            **({"remarks": list(self.remarks)} if self.remarks else {}),
            "all_runs": self.all_runs,
            **({"where": list(self.where)} if self.where else {}),
            **({"runs": list(self.identities)} if self.identities else {}),
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
    name: str = "",
) -> ComparisonReport:
    """The comparison of experiments whose runs are in the store.

    Args:
        experiments: One for each strategy.
        store: Where their runs are.
        metric: Of the target.
        value: The target; left out, it is what every run of the baseline reaches.
        by: What the way to the target is counted in: "rounds", "bytes" or "seconds".
        command: The command line, for the page.
        name: What the comparison is called in its folder.
    """
    plains = tuple(experiment.to_plain() for experiment in experiments)
    results = [load_results(experiment, store) for experiment in experiments]
    comparison = compare_results(plains, results, metric, value, by)
    runs = [identity for experiment in experiments for identity in map(experiment.identity, experiment.seeds)]
    strategies = tuple(config.describe(experiment.selector, defaults=True) for experiment in experiments)
    made = store.provenance(runs)
    about: Any = {"command": command, "strategies": strategies, "dates": store.dates(runs), "name": name}
    return ComparisonReport(comparison, plains, made, identities=tuple(runs), **about)


def compare_results(
    plains: Sequence[Plain], results: Sequence[Result], metric: str, value: float | None, by: str
) -> Comparison:
    """The comparison of results, with rand as the baseline where it is among them.

    Args:
        plains: The experiments as plain data, which name the strategies.
        results: The result of each.
        metric: Of the target; test_ may be left out of one that was asked for by name.
        value: The target, or None.
        by: What the way to the target is counted in.
    """
    labels = names(plains)
    known = results[0].metric_names
    if metric not in known and f"test_{metric}" in known:  # one of the user's own, by its name in the code
        metric = f"test_{metric}"
    unmeasured = results[0].real and not np.isfinite(results[0].metric("loss")).any()
    if metric == "loss" and unmeasured and np.isfinite(results[0].metric("test_loss")).any():
        metric = "test_loss"  # of a federation whose server alone measures a loss
    kinds = [plain.get("selector", {}).get("kind") for plain in plains]
    baseline = labels[kinds.index("rand") if "rand" in kinds else 0]
    data = tuple(plain.get("data") for plain in plains)
    return Comparison(labels, tuple(results), metric, value=value, reference=baseline, by=by, data=data)
