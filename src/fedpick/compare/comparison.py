"""A comparison of strategies: a summary of each, and one sentence that says who wins and how sure that is."""

import functools
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from fedpick.compare.answer import SURE, answer
from fedpick.compare.fairness import check_measured, common_evaluations, other_data
from fedpick.compare.summary import CURRENCIES, Currency, StrategySummary, check_target, medians, spent_to, totals
from fedpick.compare.threshold import default_target, says_nothing
from fedpick.metrics import METRICS, Numbers, goal_of
from fedpick.results import Interval, Result, Spread, interval, median_interval
from fedpick.text import shown
from fedpick.validation import check_kind, one_of


@dataclass(frozen=True)
class Comparison:
    """Results of several strategies on one task, with the same seeds.

    Results may have different numbers of rounds, as simulations that stop at a target do: the target is then what the
    baseline reaches in the fewest rounds of all, and a run that is not there in its own rounds is compared with what
    the others have reached in as many. Where they were evaluated at different rounds, those count that all have: who is
    looked at more often would seem faster.

    Args:
        names: The names of the strategies.
        results: The result of each.
        metric: The metric of the target.
        value: The target; left out, it is what every run of the baseline reaches, unless most runs begin with that.
        reference: The baseline; where it is not among the names, the first of them.
        by: What the way to the target is counted in: "rounds", "bytes" or "seconds".
        data: A description of the data of each result, where there are any; those of others are not of one task.

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
    by: str = "rounds"
    data: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for name, part, kind in (("names", self.names, str), ("results", self.results, Result)):
            if not isinstance(part, tuple | list):
                raise ValueError(f"Comparison: {name} must be a tuple, got {shown(part)}")
            for each in part:
                check_kind("Comparison", name, each, kind)
        check_target(self.metric, self.value, self.metric_names, played=True)
        one_of("compare", "by", self.by, tuple(CURRENCIES))
        if not self.names or len(self.names) != len(self.results):
            rule = "names must be one for each result, and one at least"
            raise ValueError(f"Comparison: {rule}, got {len(self.names)} for {len(self.results)} results")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Comparison: names must be different from each other, got {shown(list(self.names))}")
        for name in self.names:
            self._check_seeds(name)
        after = self.of(self.baseline).evaluated[self.counted[self.baseline]]
        if len(self.names) > 1 and not ((after > 0) & (after <= min(result.rounds for result in self.results))).any():
            rule = "results must be evaluated at some of the same rounds, as with the same ``every``"
            raise ValueError(f"Comparison: {rule}, got none in common after the first model")
        if self.other_data:
            warnings.warn(f"Comparison: {self.other_data}: are they of one task?", stacklevel=3)
        check_measured(self.metric, self.baseline, self.of(self.baseline))
        _ = self.rises  # which a metric of a user's may not say

    def _check_seeds(self, name: str) -> None:
        """Raise where a result has runs that differ in more than their seed, such as those of a sweep."""
        runs = self.of(name).runs
        if len({run["seed"] for run in runs}) < len(runs):
            rule = "must have one run for each seed (of a sweep, compare result.where(d=6) or each of result.groups())"
            raise ValueError(f"Comparison: {name} {rule}, got {shown(runs)}")

    @functools.cached_property
    def other_data(self) -> str:
        """Who is of different data than the baseline, as far as clients, their shares and descriptions tell."""
        return other_data(dict(zip(self.names, self.results, strict=True)), self.baseline, self.data)

    def at(self, value: float, by: str | None = None) -> "Comparison":
        """The same with another target, and in another currency."""
        moved = replace(self, value=value, by=by or self.by)
        moved.__dict__.update(
            finals=self.finals, rates=self.rates, counted=self.counted, other_data=self.other_data, _totals=self._totals
        )  # they do not depend on the target
        return moved

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that all results have."""
        first = self.results[0].metric_names if self.results else METRICS
        return tuple(name for name in first if all(name in result.metric_names for result in self.results))

    @property
    def rises(self) -> bool:
        """Whether higher is better of the metric of the target."""
        return self.results[0].rises(self.metric)

    @property
    def currency(self) -> Currency:
        """What the way to the target is counted in."""
        return CURRENCIES[self.by]

    @functools.cached_property
    def baseline(self) -> str:
        """The strategy that the others are compared with."""
        return self.reference if self.reference in self.names else self.names[0]

    @property
    def threshold(self) -> float:
        """The value to reach: given, or what each of the baseline's runs reaches and most runs do not begin with."""
        return self._default if self.value is None else self.value

    @functools.cached_property
    def _default(self) -> float:
        """The target where none is given."""
        base = self.of(self.baseline)
        in_all = self.counted[self.baseline] & (base.evaluated <= min(result.rounds for result in self.results))
        values = base.metric(self.metric)[:, in_all]
        return default_target(values, self.rises, lambda value: says_nothing(self._rounds_to(value)))

    @functools.cached_property
    def says_nothing(self) -> bool:
        """Whether most runs are at the target before any training."""
        return says_nothing(self._reached)

    @functools.cached_property
    def goal(self) -> str:
        """The target in words, such as "loss 0.59"."""
        return goal_of(self.metric, self.threshold)

    @property
    def goal_with_source(self) -> str:
        """The same with where it comes from."""
        if self.value is not None:
            return self.goal
        there = np.isfinite(self.rounds_of(self.baseline))
        number, runs = int(there.sum()), there.size
        who = "every run" if number == runs else f"{number} of {runs} runs"
        return f"{self.goal}, which {who} of {self.baseline} {'reaches' if number in (1, runs) else 'reach'}"

    @functools.cached_property
    def summaries(self) -> list[StrategySummary]:
        """One for each strategy."""
        return [self._summary(name) for name in self.names]

    @functools.cached_property
    def answer(self) -> str:
        """Which strategy wins, by how much and how sure that is; or that nothing does."""
        return answer(self)

    def speed_up(self, name: str, level: float = SURE) -> Interval:
        """How many times fewer rounds (bytes, seconds) than the baseline's: a geometric mean over paired seeds.

        A run that does not reach the target counts as if it did at its end, so that the factor is rather too near to 1.
        """
        return self.factor(self.baseline, name, level)

    def factor(self, one: str, other: str, level: float = SURE) -> Interval:
        """How many times fewer rounds (bytes, seconds) the other takes than the one."""
        slow, fast = self._paired(one, other)
        # The target is seen at the next evaluation only: identical seeds do not imply zero variance.
        steps = [self._step(name) for name in (one, other)]
        blur = np.sqrt(np.mean((steps[0] / slow) ** 2 + (steps[1] / fast) ** 2) / 12)
        found = interval(np.log(slow / fast), level, blur)
        with np.errstate(over="ignore"):
            return Interval(*(float(np.exp(number)) for number in found))

    def _paired(self, one: str, other: str) -> tuple[Numbers, Numbers]:
        """What both spend to the target for each seed that both have; 1 round at least."""
        places = self.rows(one, other)
        found = []
        for name, rows in zip((one, other), places, strict=True):
            rounds, total = self.rounds_of(name)[rows], self.total(name, self.by)[rows]
            last = min(total.shape[1] - 1, self.horizon)
            counted = np.where(np.isfinite(rounds), np.clip(rounds, min(1, last), None), last)
            found.append(np.maximum(spent_to(total, counted), 1 if self.by == "rounds" else 1e-9))
        return found[0], found[1]

    def _step(self, name: str) -> float:
        """What is spent between two evaluations, at the most."""
        at = self.of(name).evaluated[self.counted[name]]
        return float(np.diff(self.total(name, self.by)[:, at], axis=1).max(initial=0)) or 1.0

    def rows(self, one: str, other: str) -> tuple[list[int], list[int]]:
        """The rows of the seeds that both have."""
        first, second = ({run["seed"]: row for row, run in enumerate(self.of(name).runs)} for name in (one, other))
        seeds = [seed for seed in first if seed in second]
        if not seeds:
            raise ValueError(f"compare: {one} and {other} must have seeds in common, got none")
        return [first[seed] for seed in seeds], [second[seed] for seed in seeds]

    def bound(self, name: str) -> str:
        """What the factor is where some runs do not reach the target: a bound, or unknown if one's never do."""
        pairs = zip((self.baseline, name), self.rows(self.baseline, name), strict=True)
        slow, fast = (np.isinf(self.rounds_of(each)[rows]) for each, rows in pairs)
        if self.says_nothing or (slow.any() and fast.any()):
            return "unknown" if self.says_nothing or slow.all() or fast.all() else "about"
        return "at least" if slow.any() else "at most" if fast.any() else ""

    def traffic(self, name: str) -> float:
        """Bytes to the target over the baseline's; infinite or NaN where one of them does not get there."""
        mine, plain = medians(self, name, self.baseline, "bytes")
        return mine / plain if plain and np.isfinite(plain) else float("nan")

    @functools.cached_property
    def finals(self) -> dict[str, dict[str, Spread]]:
        """Each metric of each strategy after the last round."""
        return {
            name: {metric: Spread.of(self.of(name).metric(metric)[:, -1]) for metric in self.metric_names}
            for name in self.names
        }

    @functools.cached_property
    def rates(self) -> dict[str, tuple[float, float]]:
        """Messages and megabytes a round of each strategy."""
        costs = {name: self.of(name).costs for name in self.names}
        return {
            name: (float(each["messages"].mean()), float(((each["bytes_down"] + each["bytes_up"]) / 1e6).mean()))
            for name, each in costs.items()
        }

    def total(self, name: str, what: str) -> Numbers:
        """What a strategy has spent before each round, [R, T + 1]: "rounds", "bytes" (in MB), "seconds", "messages"."""
        if (name, what) not in self._totals:
            self._totals[name, what] = totals(self.of(name), what)
        return self._totals[name, what]

    @functools.cached_property
    def _totals(self) -> dict[tuple[str, str], Numbers]:
        return {}

    def spent_of(self, name: str, what: str | None = None) -> Numbers:
        """What a strategy spends to the target, one number per seed; in the comparison's own currency by default."""
        return spent_to(self.total(name, what or self.by), self.rounds_of(name))

    def _summary(self, name: str) -> StrategySummary:
        result, rounds = self.of(name), self.rounds_of(name)
        messages, bytes_, seconds = (
            median_interval(self.spent_of(name, what))[0] for what in ("messages", "bytes", "seconds")
        )
        return StrategySummary(
            name=name,
            seeds=len(result.runs),
            played=min(result.rounds, self.horizon),
            reached=int(np.isfinite(rounds).sum()),
            rounds=median_interval(rounds),
            speed_up=None if name == self.baseline else self.speed_up(name),
            bound=self.bound(name),
            final=self.finals[name],
            messages=self.rates[name][0],
            megabytes=self.rates[name][1],
            messages_to_target=messages,
            megabytes_to_target=bytes_,
            seconds_to_target=seconds,
            by=self.by,
            spent=median_interval(self.spent_of(name)),
        )

    @functools.cached_property
    def horizon(self) -> int:
        """The rounds in which the target counts as reached: the fewest of a result with a run that is not there."""
        late = (result for result, rounds in zip(self.results, self._reached, strict=True) if np.isinf(rounds).any())
        return min((result.rounds for result in late), default=max(result.rounds for result in self.results))

    def rounds_of(self, name: str) -> Numbers:
        """Rounds to the target, one per seed."""
        rounds = self._reached[self.names.index(name)]
        return np.where(rounds <= self.horizon, rounds, np.inf)

    @functools.cached_property
    def _reached(self) -> list[Numbers]:
        return self._rounds_to(self.threshold)

    def _rounds_to(self, value: float) -> list[Numbers]:
        return [self.of(name).rounds_to(self.metric, value, self.counted[name]) for name in self.names]

    @functools.cached_property
    def counted(self) -> dict[str, Numbers]:
        """For each strategy, which of its evaluations count, [E]."""
        return dict(zip(self.names, common_evaluations(self.results), strict=True))

    def of(self, name: str) -> Result:
        """The runs of a strategy."""
        if name not in self.names:
            raise ValueError(f"Comparison: name must be one of {', '.join(map(str, self.names))}, got {shown(name)}")
        return self.results[self.names.index(name)]
