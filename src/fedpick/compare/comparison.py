"""A comparison of strategies: a summary of each, and one sentence that says who wins and how sure that is."""

import functools
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from fedpick.compare.summary import CURRENCIES, Currency, StrategySummary, check_target, spent_to, totals
from fedpick.metrics import METRICS, Numbers, is_accuracy
from fedpick.results import Interval, Result, Spread, interval, median_interval
from fedpick.validation import one_of

SURE = 0.95
LITTLE = 1.1  # times as fast


@dataclass(frozen=True)
class Comparison:
    """Results of several strategies on one task, with the same seeds.

    Args:
        names: The names of the strategies.
        results: The result of each.
        metric: The metric of the target.
        value: The target; left out, it is the loss that every run of the baseline reaches.
        reference: The baseline; where it is not among the names, the first of them.
        by: What the way to the target is counted in: "rounds", "bytes" or "seconds".

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

    def __post_init__(self) -> None:
        check_target(self.metric, self.value)
        one_of("compare", "by", self.by, tuple(CURRENCIES))

    def at(self, value: float, by: str | None = None) -> "Comparison":
        """The same with another target, and in another currency."""
        moved = replace(self, value=value, by=by or self.by)
        moved.__dict__.update(
            finals=self.finals, rates=self.rates, _totals=self._totals
        )  # they do not depend on the target
        return moved

    @property
    def currency(self) -> Currency:
        """What the way to the target is counted in."""
        return CURRENCIES[self.by]

    @functools.cached_property
    def baseline(self) -> str:
        """The strategy that the others are compared with."""
        return self.reference if self.reference in self.names else self.names[0]

    @functools.cached_property
    def threshold(self) -> float:
        """The value to reach: given, or what each of the baseline's runs reaches, rounded to three digits."""
        if self.value is not None:
            return self.value
        losses = self.of(self.baseline).metric("loss")
        worst = float(np.where(np.isfinite(losses), losses, np.inf).min(axis=1).max())
        if not np.isfinite(worst) or worst == 0:
            return worst
        unit = 10.0 ** (np.floor(np.log10(abs(worst))) - 2)
        return float(f"{np.ceil(worst / unit) * unit:.6g}")

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
        base = self.baseline
        others = [name for name in self.names if name != base]
        astray = [name for name in self.names if not _has_learnt(self, name)]
        if not others:
            return f"There is nothing to compare {base} with.{_advice(self, astray)}"
        if base in astray:
            return f"There is no answer.{_advice(self, astray)}"
        reached = [name for name in others if np.isfinite(self.rounds_of(name)).any()]
        number = int(np.isfinite(self.rounds_of(base)).sum())
        if reached:
            words = _by_rounds(self, others, reached)
        elif number:
            seeds = len(self.of(base).runs)
            words = f"Only {base} reaches {self.goal} in {self.of(base).rounds} rounds, with {number} of {seeds} seeds."
        else:
            words = _by_end(self, others)
        return words + _advice(self, astray)

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
            last = total.shape[1] - 1
            counted = np.where(np.isfinite(rounds), np.clip(rounds, min(1, last), None), last)
            found.append(np.maximum(spent_to(total, counted), 1 if self.by == "rounds" else 1e-9))
        return found[0], found[1]

    def _step(self, name: str) -> float:
        """What is spent between two evaluations, at the most."""
        return float(np.diff(self.total(name, self.by)[:, self.of(name).evaluated], axis=1).max(initial=0)) or 1.0

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

    @functools.cached_property
    def finals(self) -> dict[str, dict[str, Spread]]:
        """Each metric of each strategy after the last round."""
        return {
            name: {metric: Spread.of(self.of(name).metric(metric)[:, -1]) for metric in METRICS} for name in self.names
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
            played=result.rounds,
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

    def rounds_of(self, name: str) -> Numbers:
        """Rounds to the target, one per seed."""
        if name not in self._rounds:
            self._rounds[name] = self.of(name).rounds_to(self.metric, self.threshold)
        return self._rounds[name]

    @functools.cached_property
    def _rounds(self) -> dict[str, Numbers]:
        return {}

    def of(self, name: str) -> Result:
        """The runs of a strategy."""
        return self.results[self.names.index(name)]


def _has_learnt(compared: Comparison, name: str) -> bool:
    loss = compared.of(name).metric("loss").mean(axis=0)
    # What the first model was worth is not known in every federation.
    return bool(np.isfinite(loss[-1]) and not loss[-1] >= loss[0])


def _advice(compared: Comparison, astray: list[str]) -> str:
    if not astray:
        return ""
    loss = compared.of(astray[0]).metric("loss").mean(axis=0)
    went = f"went from {loss[0]:.3g} to {loss[-1]:.3g}" if len(astray) == 1 else "did not fall"
    return f" The loss of {_listed(astray)} {went}: try another learning rate, or inputs on a scale of about 1."


def _by_rounds(compared: Comparison, others: list[str], reached: list[str]) -> str:
    base, goal = compared.baseline, compared.goal
    gains = {name: compared.speed_up(name, _each(others)) for name in others}
    best = max(reached, key=lambda name: gains[name].mean)
    gain, bound = gains[best], compared.bound(best)
    money = compared.currency
    size = f"it is {bound} {gain.mean:.2f} times as {money.adjective} as {base} to {goal}".replace("  ", " ")
    if not np.isfinite(gain.high):
        return f"With one seed nothing is sure. The {money.superlative} is {best}: {size}. Give more seeds."
    seeds, _ = compared.rows(best, base)
    sure = f"{gain.low:.2f} to {gain.high:.2f}; 95 % sure over {len(seeds)} paired seeds"
    sure += f" and {len(others)} comparisons" if len(others) > 1 else ""
    # A run that does not get there makes the factor a bound, from which one can conclude in one direction only.
    if gain.low > 1 and bound in ("", "at least"):
        middles = [median_interval(compared.spent_of(name))[0] for name in (best, base)]
        most = money.text(float(compared.total(base, compared.by)[:, -1].mean()))
        amounts = [money.text(n) if np.isfinite(n) else f"more than {most}" for n in middles]
        little = " by little" if gain.mean < LITTLE else ""
        traffic = compared.traffic(best)
        cost = f" and {traffic:.2g} times the traffic" if np.isfinite(traffic) and compared.by != "bytes" else ""
        words = f"{best} wins{little}: {size} ({sure}), with a median of {amounts[0]} {money.unit} against {amounts[1]}"
        level = [name for name in others if name != best and compared.factor(name, best).low <= 1]
        return f"{words}{cost}.{_level(compared, best, level)}{_use(compared, best, level)}"
    if all(gains[name].high < 1 and compared.bound(name) in ("", "at most") for name in others):
        return f"{base} wins. The next is {best}: {size} ({sure})."
    return f"Nothing beats {base} for sure. The {money.superlative} is {best}: {size} ({sure})."


def _by_end(compared: Comparison, others: list[str]) -> str:
    """Where no run reaches the target."""
    base, metric = compared.baseline, compared.metric
    ends = {name: compared.of(name).metric(metric)[:, -1] for name in compared.names}
    best = (max if is_accuracy(metric) else min)(compared.names, key=lambda name: ends[name].mean())
    words = f"No run reaches {compared.goal} in {compared.of(base).rounds} rounds"
    if best == base:
        return f"{words}; {base} ends nearest to it."
    mine, theirs = compared.rows(best, base)
    difference = interval(ends[best][mine] - ends[base][theirs], _each(others))
    sure = np.isfinite(difference.high) and (difference.low > 0 or difference.high < 0)
    return f"{words}; {best} ends nearest, {difference} from {base}, {'for sure' if sure else 'which may be chance'}."


def _each(others: Sequence[str]) -> float:
    """How sure each of several comparisons must be for all of them together to be so (Bonferroni)."""
    return 1 - (1 - SURE) / len(others)


def _level(compared: Comparison, best: str, level: list[str]) -> str:
    """Who may be just as fast, and who of them sends least."""
    if not level:
        return ""
    least = min(level, key=compared.traffic)
    words = f" {_listed(level)} may be just as {compared.currency.adjective}"
    if compared.by != "bytes" and compared.traffic(least) < compared.traffic(best):
        words += f", and {least} sends least: {compared.traffic(least):.2g} times the traffic of {compared.baseline}"
    return f"{words}."


def _use(compared: Comparison, best: str, level: list[str]) -> str:
    """What to use: what needs no d, unless another is surely faster."""
    if "auto" not in compared.names:
        return ""
    faster = f" Use {best}: auto, which needs no d, is slower here."
    return " Use auto, which needs no d." if "auto" in (best, *level) else faster


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
