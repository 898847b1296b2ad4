"""A comparison of strategies: a summary of each, and one sentence that says who wins and how sure that is."""

import functools
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from fedpick.compare.answer import SURE, answer
from fedpick.metrics import METRICS, Numbers, is_accuracy
from fedpick.results import Interval, Result, Spread, interval, median_interval
from fedpick.validation import one_of, require


class StrategySummary(NamedTuple):
    """One strategy: rounds to the target, speed-up over the baseline, final metrics, and costs.

    ``rounds`` is a median with its interval; ``speed_up`` is paired over seeds, and ``bound`` is "at least" or
    "at most" where some runs do not reach the target. ``final`` is each metric after the last round.
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


def check_target(metric: str, value: float | None) -> None:
    """Raise where this metric and value are no target.

    Args:
        metric: The metric.
        value: The value to reach; None for what every run of the baseline reaches.
    """
    one_of("compare", "metric", metric, METRICS)
    if value is not None:
        require("compare", "target", value, "a finite number", np.isfinite)
        if is_accuracy(metric) and not 0 <= value <= 1:
            rule = "a part, such as 0.8 or 80%"
            raise ValueError(f"compare: target of {metric} must be {rule}, got {value:g}")


@dataclass(frozen=True)
class Comparison:
    """Results of several strategies on one task, with the same seeds.

    Args:
        names: The names of the strategies.
        results: The result of each.
        metric: The metric of the target.
        value: The target; left out, it is what every run of the baseline reaches.
        reference: The baseline; where it is not among the names, the first of them.

    >>> from fedpick import PowerOfChoice, Rand
    >>> from fedpick.sim import Local, Quadratic, QuadraticModel, simulate
    >>> federation, model, local = Quadratic(K=30), QuadraticModel(), Local(tau=2, b=1, eta=2e-5)
    >>> selectors = {"rand": Rand(m=3), "pow-d": PowerOfChoice(m=3, d=9)}
    >>> results = [simulate(federation, model, s, local, rounds=20, seeds=3) for s in selectors.values()]
    >>> Comparison(tuple(selectors), tuple(results)).baseline
    'rand'
    """

    names: tuple[str, ...]
    results: tuple[Result, ...]
    metric: str = "loss"
    _: KW_ONLY
    value: float | None = None
    reference: str = "rand"

    def __post_init__(self) -> None:
        check_target(self.metric, self.value)
        if not self.names or len(self.names) != len(self.results):
            rule = "names must be one for each result, and one at least"
            raise ValueError(f"Comparison: {rule}, got {len(self.names)} for {len(self.results)} results")
        if self.metric != "loss" and not np.isfinite(self.of(self.baseline).metric(self.metric)).any():
            raise ValueError(f"compare: metric {self.metric} must have been measured, got none for {self.baseline}")

    @functools.cached_property
    def baseline(self) -> str:
        """The strategy that the others are compared with."""
        return self.reference if self.reference in self.names else self.names[0]

    @functools.cached_property
    def threshold(self) -> float:
        """The value to reach: given, or what each of the baseline's runs reaches, rounded to three digits."""
        if self.value is not None:
            return self.value
        values = self.of(self.baseline).metric(self.metric) * self._sign
        worst = float(np.where(np.isfinite(values), values, np.inf).min(axis=1).max())
        if not np.isfinite(worst) or worst == 0:
            return self._sign * worst
        for digits in range(2, 7):  # as few as lie beyond the first model
            unit = 10.0 ** (np.floor(np.log10(abs(worst))) - digits)
            rounded = float(f"{np.ceil(worst / unit) * unit:.{digits + 4}g}")
            if not rounded >= values[:, 0].min():
                return self._sign * rounded
        return self._sign * worst

    @property
    def _sign(self) -> int:
        """What makes a metric better the lower it is."""
        return -1 if is_accuracy(self.metric) else 1

    @functools.cached_property
    def goal(self) -> str:
        """The target in words, such as "loss 0.59"."""
        form = ".1%" if is_accuracy(self.metric) else "g"
        return f"{self.metric.replace('_', ' ')} {self.threshold:{form}}"

    @property
    def goal_with_source(self) -> str:
        """The same with where it comes from."""
        return self.goal if self.value is not None else f"{self.goal}, which every run of {self.baseline} reaches"

    @functools.cached_property
    def summaries(self) -> list[StrategySummary]:
        """One for each strategy."""
        return [self._summary(name) for name in self.names]

    @functools.cached_property
    def answer(self) -> str:
        """Which strategy wins, by how much and how sure that is; or that nothing does."""
        return answer(self)

    def speed_up(self, name: str, level: float = SURE) -> Interval:
        """How many times fewer rounds than the baseline's: a geometric mean over paired seeds, with its interval.

        A run that does not reach the target counts as if it did at its end, so that the factor is rather too near to 1.
        """
        return self.factor(self.baseline, name, level)

    def factor(self, one: str, other: str, level: float = SURE) -> Interval:
        """How many times fewer rounds the other takes than the one."""
        slow, fast = self._paired(one, other)
        # Rounds are known to the next evaluation only: identical seeds do not imply zero variance.
        steps = [np.diff(self.of(name).evaluated).max(initial=1) for name in (one, other)]
        blur = np.sqrt(np.mean((steps[0] / slow) ** 2 + (steps[1] / fast) ** 2) / 12)
        found = interval(np.log(slow / fast), level, blur)
        with np.errstate(over="ignore"):
            return Interval(*(float(np.exp(number)) for number in found))

    def _paired(self, one: str, other: str) -> tuple[Numbers, Numbers]:
        """Rounds to the target of both for each seed that both have."""
        places = self.rows(one, other)
        found = []
        for name, rows in zip((one, other), places, strict=True):
            rounds, last = self.rounds_of(name)[rows], max(self.of(name).rounds, 1)
            found.append(np.where(np.isfinite(rounds), np.maximum(rounds, 1), last))
        return found[0], found[1]

    def rows(self, one: str, other: str) -> tuple[list[int], list[int]]:
        """The rows of the seeds that both have."""
        first, second = ({run["seed"]: row for row, run in enumerate(self.of(name).runs)} for name in (one, other))
        seeds = [seed for seed in first if seed in second]
        if not seeds:
            raise ValueError(f"compare: {one} and {other} must have seeds in common, got none")
        return [first[seed] for seed in seeds], [second[seed] for seed in seeds]

    def bound(self, name: str) -> str:
        """What the factor is at the least or at the most, where some runs do not reach the target."""
        slow = np.isinf(self.rounds_of(self.baseline)).any()
        fast = np.isinf(self.rounds_of(name)).any()
        return "about" if slow and fast else "at least" if slow else "at most" if fast else ""

    def traffic(self, name: str) -> float:
        """Bytes to the target over the baseline's; infinite or NaN where one of them does not get there."""
        mine, plain = (self.summaries[self.names.index(each)].megabytes_to_target for each in (name, self.baseline))
        return mine / plain if plain and np.isfinite(plain) else float("nan")

    def _summary(self, name: str) -> StrategySummary:
        result = self.of(name)
        rounds = self.rounds_of(name)
        costs = result.costs
        traffic = (costs["bytes_down"] + costs["bytes_up"]) / 1e6
        return StrategySummary(
            name=name,
            seeds=len(result.runs),
            played=result.rounds,
            reached=int(np.isfinite(rounds).sum()),
            rounds=median_interval(rounds),
            speed_up=None if name == self.baseline else self.speed_up(name),
            bound=self.bound(name),
            final={metric: Spread.of(result.metric(metric)[:, -1]) for metric in METRICS},
            messages=float(costs["messages"].mean()),
            megabytes=float(traffic.mean()),
            messages_to_target=_spent(costs["messages"], rounds),
            megabytes_to_target=_spent(traffic, rounds),
        )

    def rounds_of(self, name: str) -> Numbers:
        """Rounds to the target, one per seed."""
        return self.of(name).rounds_to(self.metric, self.threshold)

    def of(self, name: str) -> Result:
        """The runs of a strategy."""
        return self.results[self.names.index(name)]


def _spent(costs: Numbers, rounds: Numbers) -> float:
    """The median over seeds of what was spent until the target; inf where it was not reached."""
    total = np.concatenate([np.zeros((len(costs), 1)), costs.cumsum(axis=1)], axis=1)
    spent = [total[run, int(n)] if np.isfinite(n) else np.inf for run, n in enumerate(rounds)]
    return median_interval(spent)[0]
