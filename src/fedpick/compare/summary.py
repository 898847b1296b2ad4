"""What a comparison says of one strategy, and the currencies in which the way to a target is counted."""

from typing import NamedTuple, Protocol

import numpy as np

from fedpick import registry
from fedpick.metrics import METRICS, Numbers, is_part, name_on_test_set
from fedpick.results import Interval, Result, Spread, median_interval
from fedpick.validation import one_of, require


class Currency(NamedTuple):
    """What the way to a target is counted in: its unit, its number format, and the words of the answer."""

    unit: str
    form: str
    adjective: str
    superlative: str
    worse: str

    def text(self, amount: float) -> str:
        """An amount without its unit.

        >>> CURRENCIES["bytes"].text(1.2345)
        '1.23'
        """
        return f"{amount:{self.form}}" if amount < 1e4 else f"{amount:,.0f}"

    def amount(self, amount: float) -> str:
        """An amount with its unit.

        >>> CURRENCIES["rounds"].amount(1), CURRENCIES["rounds"].amount(2)
        ('1 round', '2 rounds')
        """
        text = self.text(amount)
        return f"{text} {self.unit.removesuffix('s') if text == '1' else self.unit}"


CURRENCIES = {
    "rounds": Currency("rounds", "g", "fast", "fastest", "slower"),
    "bytes": Currency("MB", ".3g", "thrifty", "thriftiest", "less thrifty"),
    "seconds": Currency("seconds", ".3g", "fast in seconds", "fastest in seconds", "slower in seconds"),
}
SIGNS = {"": "", "about": "~ ", "at least": "≥ ", "at most": "≤ "}  # of a factor that is a bound
VAGUE = 100.0  # an interval whose ends are this many times apart


class StrategySummary(NamedTuple):
    """One strategy: what it spends to the target, speed-up over the baseline, final metrics, and costs.

    ``rounds`` is a median with its interval, and so is ``spent``, in the currency ``by``; ``speed_up`` is paired over
    seeds, and ``bound`` is "at least", "at most", "about" or "unknown" where some runs do not reach the target.
    ``final`` is each metric after the last round.
    """

    name: str
    seeds: int
    played: int
    reached: int
    rounds: tuple[float, float, float]
    speed_up: Interval | None
    bound: str
    final: dict[str, Spread]
    messages: float
    megabytes: float
    messages_to_target: float
    megabytes_to_target: float
    seconds_to_target: float
    by: str
    spent: tuple[float, float, float]


class Compared(Protocol):
    """What the words are about: a comparison."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def metric(self) -> str: ...
    @property
    def baseline(self) -> str: ...
    @property
    def goal(self) -> str: ...
    @property
    def by(self) -> str: ...
    @property
    def currency(self) -> Currency: ...
    @property
    def horizon(self) -> int: ...
    @property
    def says_nothing(self) -> bool: ...
    @property
    def counted(self) -> dict[str, Numbers]: ...
    @property
    def other_data(self) -> str: ...
    def total(self, name: str, what: str) -> Numbers: ...
    def spent_of(self, name: str, what: str | None = ...) -> Numbers: ...
    def of(self, name: str) -> Result: ...
    def rounds_of(self, name: str) -> Numbers: ...
    def rows(self, one: str, other: str) -> tuple[list[int], list[int]]: ...
    def speed_up(self, name: str, level: float = ...) -> Interval: ...
    def factor(self, one: str, other: str, level: float = ...) -> Interval: ...
    def bound(self, name: str) -> str: ...
    def traffic(self, name: str) -> float: ...


def check_target(metric: str, value: float | None, names: tuple[str, ...] = METRICS, *, played: bool = False) -> None:
    """Raise where this metric and value are no target.

    Args:
        metric: The metric.
        value: The value to reach; None for what every run of the baseline reaches.
        names: The metrics that are measured.
        played: Whether the runs were played, and measure no more.
    """
    if played and metric not in names and metric in map(name_on_test_set, registry.ROLES["Metric"]):
        rule = f"metric must be one that the runs measured (compare --metrics {metric.removeprefix('test_')})"
        raise ValueError(f"compare: {rule}, got {metric!r}")
    one_of("compare", "metric", metric, tuple(name for name in names if name != "skew"))  # none is the better one
    if value is not None:
        require("compare", "target", value, "a finite number", np.isfinite)
        if is_part(metric) and not 0 <= value <= 1:
            rule = "a part, such as 0.8 or 80% (of a loss, say --metric loss)"
            raise ValueError(f"compare: target of {metric} must be {rule}, got {value:g}")


def totals(result: Result, what: str) -> Numbers:
    """What was spent before each round and after the last, [R, T + 1].

    Args:
        result: The runs of a strategy.
        what: "rounds", "bytes" (in MB), "seconds" or "messages".
    """
    costs = result.costs
    if what == "rounds":
        return np.broadcast_to(np.arange(result.rounds + 1.0), (len(result.runs), result.rounds + 1))
    spent = (costs["bytes_down"] + costs["bytes_up"]) / 1e6 if what == "bytes" else np.asarray(costs[what], float)
    return np.concatenate([np.zeros((len(spent), 1)), spent.cumsum(axis=1)], axis=1)


def medians(compared: Compared, one: str, other: str, what: str | None = None) -> tuple[float, float]:
    """What two strategies spend to the target: the medians over the seeds that both have.

    Args:
        compared: The comparison.
        one: A strategy.
        other: Another one.
        what: What is spent; the comparison's own currency by default.
    """
    pairs = zip((one, other), compared.rows(one, other), strict=True)
    mine, theirs = (median_interval(compared.spent_of(name, what)[rows])[0] for name, rows in pairs)
    return mine, theirs


def is_vague(gain: Interval) -> bool:
    """Whether a factor's interval holds 1 and is so wide that it says nothing, as with two seeds."""
    return not (gain.high <= VAGUE * gain.low or gain.low > 1 or gain.high < 1)


def spent_to(total: Numbers, rounds: Numbers) -> Numbers:
    """What was spent in as many rounds, one for each run; inf where that is inf.

    >>> spent_to(np.array([[0.0, 2.0, 5.0]]), np.array([2.0]))
    array([5.])
    """
    reached = np.isfinite(rounds)
    return np.where(reached, total[np.arange(len(rounds)), np.where(reached, rounds, 0).astype(int)], np.inf)
