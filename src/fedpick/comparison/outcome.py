"""What came of a comparison: where each strategy stands, and one sentence that says who wins and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedpick.arguments import one_of, require
from fedpick.sim import Interval, Result, confidence, interval
from fedpick.sim.result import METRICS, Numbers

SURE = 0.95


class Spread(NamedTuple):
    """A mean over seeds and the standard deviation; NaN of a single seed."""

    mean: float
    deviation: float

    def shown(self, digits: int = 3, factor: float = 1.0) -> str:
        """Such as 0.489 ± 0.012; a dash where it is not known."""
        if not np.isfinite(self.mean):
            return "-" if np.isnan(self.mean) else "inf"
        text = f"{factor * self.mean:.{digits}f}"
        return text if np.isnan(self.deviation) else f"{text} ± {factor * self.deviation:.{digits}f}"


class Standing(NamedTuple):
    """One strategy: rounds to the target (median and interval), how many times fewer than the baseline's (paired over
    seeds; ``bound`` is "at least" or "at most" where some runs do not get there), where it ends, and what it costs."""

    name: str
    seeds: int
    played: int
    reached: int
    rounds: tuple[float, float, float]
    speed_up: Interval | None
    bound: str
    loss: Spread
    accuracy: Spread
    worst_loss: float
    messages: float
    megabytes: float
    messages_to_target: float
    megabytes_to_target: float


@dataclass(frozen=True)
class Comparison:
    """Results of several strategies on one task, with the same seeds.

    The target is ``metric`` at ``value``; left out, it is the loss that every run of the baseline reaches. The baseline
    is ``rand`` where it is among them, else the first.

    >>> from fedpick import PowerOfChoice, Rand
    >>> from fedpick.sim import Local, quadratic, quadratic_model, simulate
    >>> federation, model, local = quadratic(K=30), quadratic_model(5), Local(tau=2, b=1, eta=2e-5)
    >>> selectors = {"rand": Rand(m=3), "pow-d": PowerOfChoice(m=3, d=9)}
    >>> results = [simulate(federation, model, s, local, rounds=2000, seeds=3) for s in selectors.values()]
    >>> Comparison(tuple(selectors), tuple(results)).baseline
    'rand'
    """

    names: tuple[str, ...]
    results: tuple[Result, ...]
    metric: str = "loss"
    value: float | None = None

    def __post_init__(self) -> None:
        one_of("compare", "metric", self.metric, METRICS)
        if self.value is not None:
            require("compare", "target", self.value, "a finite number", np.isfinite)
        elif self.metric != "loss":
            raise ValueError(f"compare: metric {self.metric!r} must come with a target, got none")

    @property
    def baseline(self) -> str:
        """Whom the others are held against."""
        plain = [name for name in self.names if name.split(",")[0] == "rand"]
        return plain[0] if plain else self.names[0]

    @property
    def target(self) -> float:
        """The value to reach: given, or what each of the baseline's runs reaches, rounded to three digits."""
        if self.value is not None:
            return self.value
        with np.errstate(invalid="ignore"):
            losses = np.where(
                np.isfinite(self._of(self.baseline).metric("loss")), self._of(self.baseline).metric("loss"), np.inf
            )
        worst = float(losses.min(axis=1).max())
        if not np.isfinite(worst) or worst == 0:
            return worst
        unit = 10.0 ** (np.floor(np.log10(abs(worst))) - 2)
        return float(f"{np.ceil(worst / unit) * unit:.6g}")

    @property
    def goal(self) -> str:
        """The target in words, such as "loss 0.59"."""
        if "accuracy" in self.metric:
            return f"{self.metric.replace('_', ' ')} {self.target:.1%}"
        return f"{self.metric.replace('_', ' ')} {self.target:g}"

    @property
    def standings(self) -> list[Standing]:
        """One for each strategy."""
        return [self._standing(name) for name in self.names]

    @property
    def answer(self) -> str:
        """Which strategy wins, by how much and how sure that is; or that nothing does."""
        others = [name for name in self.names if name != self.baseline]
        diverged = [name for name in self.names if not np.isfinite(self._of(name).metric("loss")[:, -1]).all()]
        warning = (
            f" The loss of {_listed(diverged)} did not stay finite: try a smaller learning rate." if diverged else ""
        )
        if not others or self.baseline in diverged:
            return (
                f"There is nothing to compare {self.baseline} with." if not others else "There is no answer."
            ) + warning
        reached = {name: np.isfinite(self._rounds(name)).any() for name in self.names}
        found = self._by_rounds(others) if any(reached.values()) else self._by_end(others)
        return found + warning

    def _by_rounds(self, others: list[str]) -> str:
        base = self.baseline
        gains = {name: self.speed_up(name, SURE + (1 - SURE) * (1 - 1 / len(others))) for name in others}
        best = max(others, key=lambda name: gains[name].mean)
        gain, seeds = gains[best], len(self._of(base).runs)
        size = _factor(gain, self._censored(best))
        if not np.isfinite(gain.high):
            return (
                f"With one seed nothing is sure: {best} reaches {self.goal} {size} as fast as {base}. Give more seeds."
            )
        paired = f"95 % sure over {seeds} paired seeds" + (f" and {len(others)} comparisons" if len(others) > 1 else "")
        if gain.low > 1:
            middles = [confidence(self._rounds(name))[0] for name in (best, base)]
            rounds = [f"{n:.0f}" if np.isfinite(n) else f"more than {self._of(base).rounds}" for n in middles]
            level = [name for name in others if name != best and self._level(best, name)]
            also = f" {_listed(level)} may be just as fast." if level else ""
            cost = self._cost(best)
            return (
                f"{best} wins: it reaches {self.goal} in {rounds[0]} rounds where {base} takes {rounds[1]}, {size} as "
                f"fast ({_range(gain)}; {paired}){cost}.{also}"
            )
        if all(each.high < 1 for each in gains.values()):
            return f"{base} wins: the next, {best}, reaches {self.goal} {size} as fast ({_range(gain)}; {paired})."
        return (
            f"Nothing beats {base} for sure: the fastest, {best}, reaches {self.goal} {size} as fast ({_range(gain)}; "
            f"{paired})."
        )

    def _by_end(self, others: list[str]) -> str:
        """Where no run reaches the target."""
        base, up = self.baseline, "accuracy" in self.metric
        ends = {name: self._of(name).metric(self.metric)[:, -1] for name in self.names}
        best = (max if up else min)(self.names, key=lambda name: ends[name].mean())
        words = f"No run reaches {self.goal} in {self._of(base).rounds} rounds"
        if best == base:
            return f"{words}; {base} ends nearest to it."
        mine, theirs = self._rows(best, base)
        difference = interval(ends[best][mine] - ends[base][theirs], SURE + (1 - SURE) * (1 - 1 / len(others)))
        sure = np.isfinite(difference.high) and (difference.low > 0 or difference.high < 0)
        return f"{words}; {best} ends nearest, {difference} from {base}" + (
            ", for sure." if sure else ", which may be chance."
        )

    def speed_up(self, name: str, level: float = SURE) -> Interval:
        """How many times fewer rounds than the baseline's: a geometric mean over paired seeds, with its interval.

        A run that does not reach the target counts as if it did at its end, so that the factor is rather too near to 1.
        """
        return self._factor(self.baseline, name, level)

    def _factor(self, one: str, other: str, level: float = SURE) -> Interval:
        slow, fast = self._paired(one, other)
        found = interval(np.log(slow / fast), level)
        with np.errstate(over="ignore"):
            return Interval(*(float(np.exp(number)) for number in found))

    def _level(self, best: str, name: str) -> bool:
        found = self._factor(name, best)
        return found.low <= 1

    def _paired(self, one: str, other: str) -> tuple[Numbers, Numbers]:
        """Rounds to the target of both for each seed that both have."""
        places = self._rows(one, other)
        found = []
        for name, rows in zip((one, other), places, strict=True):
            rounds, last = self._rounds(name)[rows], max(self._of(name).rounds, 1)
            found.append(np.where(np.isfinite(rounds), np.maximum(rounds, 1), last))
        return found[0], found[1]

    def _rows(self, one: str, other: str) -> tuple[list[int], list[int]]:
        """The rows of the seeds that both have."""
        first, second = ({run["seed"]: row for row, run in enumerate(self._of(name).runs)} for name in (one, other))
        seeds = [seed for seed in first if seed in second]
        if not seeds:
            raise ValueError(f"compare: {one} and {other} must have seeds in common, got none")
        return [first[seed] for seed in seeds], [second[seed] for seed in seeds]

    def _censored(self, name: str) -> str:
        """What the factor is at the least or at the most, where some runs do not reach the target."""
        slow = np.isinf(self._rounds(self.baseline)).any()
        fast = np.isinf(self._rounds(name)).any()
        return "about" if slow and fast else "at least" if slow else "at most" if fast else ""

    def _cost(self, best: str) -> str:
        """What it costs beside rounds, as the end of a sentence."""
        standing = {name: self._standing(name) for name in (best, self.baseline)}
        traffic = [standing[name].megabytes_to_target for name in (best, self.baseline)]
        if not np.isfinite(traffic).all() or traffic[1] == 0:
            return ""
        return f", with {traffic[0] / traffic[1]:.2g} times the traffic"

    def _standing(self, name: str) -> Standing:
        result = self._of(name)
        rounds = self._rounds(name)
        costs = result.costs
        traffic = (costs["bytes_down"] + costs["bytes_up"]) / 1e6
        return Standing(
            name=name,
            seeds=len(result.runs),
            played=result.rounds,
            reached=int(np.isfinite(rounds).sum()),
            rounds=confidence(rounds),
            speed_up=None if name == self.baseline else self.speed_up(name),
            bound=self._censored(name),
            loss=_spread(result.metric("loss")[:, -1]),
            accuracy=_spread(result.metric("test_accuracy")[:, -1]),
            worst_loss=float(result.metric("worst_loss")[:, -1].mean()),
            messages=float(costs["messages"].mean()),
            megabytes=float(traffic.mean()),
            messages_to_target=_spent(costs["messages"], rounds),
            megabytes_to_target=_spent(traffic, rounds),
        )

    def _rounds(self, name: str) -> Numbers:
        return self._of(name).rounds_to(self.metric, self.target)

    def _of(self, name: str) -> Result:
        return self.results[self.names.index(name)]

    def as_plain(self) -> dict[str, Any]:
        """Everything as plain data for JSON; None where a number is not finite."""
        rows = []
        for standing in self.standings:
            row = standing._asdict()
            row["rounds"] = dict(zip(("median", "low", "high"), standing.rounds, strict=True))
            row["speed_up"] = None if standing.speed_up is None else standing.speed_up._asdict()
            row |= {name: row[name]._asdict() for name in ("loss", "accuracy")}
            rows.append(row)
        target = {"metric": self.metric, "value": self.target}
        plain = {"answer": self.answer, "baseline": self.baseline, "target": target, "strategies": rows}
        return _plain(plain)  # type: ignore[no-any-return]


def _spent(costs: Numbers, rounds: Numbers) -> float:
    """The median over seeds of what was spent until the target; inf where it was not reached."""
    total = np.concatenate([np.zeros((len(costs), 1)), costs.cumsum(axis=1)], axis=1)
    spent = [total[run, int(n)] if np.isfinite(n) else np.inf for run, n in enumerate(rounds)]
    return confidence(spent)[0]


def _spread(values: Numbers) -> Spread:
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan"))


def _factor(gain: Interval, bound: str) -> str:
    return f"{bound} {gain.mean:.2f} times".strip()


def _range(gain: Interval) -> str:
    return f"{gain.low:.2f} to {gain.high:.2f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
