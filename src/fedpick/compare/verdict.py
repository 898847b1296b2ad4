"""The answer in words: who wins, by how much, and how sure that is."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedpick.metrics import Numbers, is_accuracy
from fedpick.results import Interval, Result, interval, median_interval

SURE = 0.95
LITTLE = 1.1  # times as fast


class Contest(Protocol):
    """What the answer is read from: ``Comparison``."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def metric(self) -> str: ...
    @property
    def baseline(self) -> str: ...
    @property
    def goal(self) -> str: ...
    def of(self, name: str) -> Result: ...
    def rounds_of(self, name: str) -> Numbers: ...
    def speed_up(self, name: str, level: float) -> Interval: ...
    def factor(self, one: str, other: str) -> Interval: ...
    def rows(self, one: str, other: str) -> tuple[list[int], list[int]]: ...
    def bound(self, name: str) -> str: ...
    def traffic(self, name: str) -> float: ...


def in_words(compared: Contest) -> str:
    """One sentence, and what must be said beside it."""
    base = compared.baseline
    others = [name for name in compared.names if name != base]
    astray = [name for name in compared.names if not _has_learnt(compared, name)]
    if not others:
        return f"There is nothing to compare {base} with.{_advice(compared, astray)}"
    if base in astray:
        return f"There is no answer.{_advice(compared, astray)}"
    reached = [name for name in others if np.isfinite(compared.rounds_of(name)).any()]
    number = int(np.isfinite(compared.rounds_of(base)).sum())
    if reached:
        words = _by_rounds(compared, others, reached)
    elif number:
        seeds = len(compared.of(base).runs)
        words = (
            f"Only {base} reaches {compared.goal} in {compared.of(base).rounds} rounds, with {number} of {seeds} seeds."
        )
    else:
        words = _by_end(compared, others)
    return words + _advice(compared, astray)


def _has_learnt(compared: Contest, name: str) -> bool:
    loss = compared.of(name).metric("loss").mean(axis=0)
    # What the first model was worth is not known in every federation.
    return bool(np.isfinite(loss[-1]) and not loss[-1] >= loss[0])


def _advice(compared: Contest, astray: list[str]) -> str:
    if not astray:
        return ""
    loss = compared.of(astray[0]).metric("loss").mean(axis=0)
    went = f"went from {loss[0]:.3g} to {loss[-1]:.3g}" if len(astray) == 1 else "did not fall"
    return f" The loss of {_listed(astray)} {went}: try another learning rate, or inputs on a scale of about 1."


def _by_rounds(compared: Contest, others: list[str], reached: list[str]) -> str:
    base, goal = compared.baseline, compared.goal
    gains = {name: compared.speed_up(name, _each(others)) for name in others}
    best = max(reached, key=lambda name: gains[name].mean)
    gain, bound = gains[best], compared.bound(best)
    size = f"it is {bound} {gain.mean:.2f} times as fast as {base} to {goal}".replace("  ", " ")
    if not np.isfinite(gain.high):
        return f"With one seed nothing is sure. The fastest is {best}: {size}. Give more seeds."
    seeds, _ = compared.rows(best, base)
    sure = f"{_range(gain)}; 95 % sure over {len(seeds)} paired seeds"
    sure += f" and {len(others)} comparisons" if len(others) > 1 else ""
    # A run that does not get there makes the factor a bound, from which one can conclude in one direction only.
    if gain.low > 1 and bound in ("", "at least"):
        middles = [median_interval(compared.rounds_of(name))[0] for name in (best, base)]
        rounds = [f"{n:.0f}" if np.isfinite(n) else f"more than {compared.of(base).rounds}" for n in middles]
        little = " by little" if gain.mean < LITTLE else ""
        return (
            f"{best} wins{little}: {size} ({sure}), with a median of {rounds[0]} rounds against {rounds[1]}"
            f"{_cost(compared, best)}.{_level(compared, best, others)}"
        )
    if all(gains[name].high < 1 and compared.bound(name) in ("", "at most") for name in others):
        return f"{base} wins. The next is {best}: {size} ({sure})."
    return f"Nothing beats {base} for sure. The fastest is {best}: {size} ({sure})."


def _by_end(compared: Contest, others: list[str]) -> str:
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


def _level(compared: Contest, best: str, others: list[str]) -> str:
    """Who may be just as fast, and who of them sends least."""
    level = [name for name in others if name != best and compared.factor(name, best).low <= 1]
    if not level:
        return ""
    least = min(level, key=compared.traffic)
    words = f" {_listed(level)} may be just as fast"
    if compared.traffic(least) < compared.traffic(best):
        words += f", and {least} sends least: {compared.traffic(least):.2g} times the traffic of {compared.baseline}"
    return f"{words}."


def _cost(compared: Contest, best: str) -> str:
    traffic = compared.traffic(best)
    return f" and {traffic:.2g} times the traffic" if np.isfinite(traffic) else ""


def _range(gain: Interval) -> str:
    return f"{gain.low:.2f} to {gain.high:.2f}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
