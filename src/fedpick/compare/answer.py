"""The answer of a comparison in words: who wins, by how much, how sure that is; or why there is none."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedpick.compare.summary import Currency
from fedpick.metrics import Numbers, is_accuracy
from fedpick.results import Interval, Result, interval, median_interval

SURE = 0.95
LITTLE = 1.1  # times as fast
VAGUE = 100.0  # an interval whose ends are this many times apart


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
    def total(self, name: str, what: str) -> Numbers: ...
    def spent_of(self, name: str, what: str | None = ...) -> Numbers: ...
    def of(self, name: str) -> Result: ...
    def rounds_of(self, name: str) -> Numbers: ...
    def rows(self, one: str, other: str) -> tuple[list[int], list[int]]: ...
    def speed_up(self, name: str, level: float = ...) -> Interval: ...
    def factor(self, one: str, other: str, level: float = ...) -> Interval: ...
    def bound(self, name: str) -> str: ...
    def traffic(self, name: str) -> float: ...


def answer(compared: Compared) -> str:
    """Which strategy wins, by how much and how sure that is; or that nothing does."""
    base = compared.baseline
    others = [name for name in compared.names if name != base]
    faults = {name: fault for name in compared.names if (fault := _fault(compared, name))}
    if not others:
        return f"There is nothing to compare {base} with.{_advice(compared, faults)}"
    if base in faults:
        return f"There is no answer.{_advice(compared, faults)}"
    if compared.of(base).share.shape[-1] == 1:
        return "There is one client, so there is nothing to choose: all strategies train on it."
    if not any(compared.rounds_of(name).any() for name in compared.names):
        words = f"Every run is at {compared.goal} before its first round, so that it is no target: give another one"
        return f"{words}, or another metric.{_advice(compared, faults)}"
    reached = [name for name in others if np.isfinite(compared.rounds_of(name)).any()]
    number = int(np.isfinite(compared.rounds_of(base)).sum())
    if reached:
        words = _by_rounds(compared, others, reached)
    elif number:
        words = f"Only {base} reaches {compared.goal} in {compared.horizon} rounds"
        words += f", with {number} of {len(compared.of(base).runs)} seeds."
    else:
        words = _by_end(compared, others)
    return words + _lengths(compared) + _advice(compared, faults)


def _lengths(compared: Compared) -> str:
    """Who has played how many rounds, where they differ."""
    rounds = {name: compared.of(name).rounds for name in compared.names}
    if len(set(rounds.values())) == 1:
        return ""
    played = _listed([f"{name} {number}" for name, number in rounds.items()])
    return f" Final values are after different numbers of rounds: {played}."


def _fault(compared: Compared, name: str) -> str:
    """Why a strategy has not learnt; "" where it has."""
    result = compared.of(name)
    metric = _learnt(compared, name)
    values = _curve(result, metric)
    better = values[-1] > values[0] if result.rises(metric) else values[-1] < values[0]
    # What the first model was worth is not known in every federation.
    if np.isfinite(values[-1]) and (better or not np.isfinite(values[0])):
        return ""
    if "available" in result.records and not result.records["available"].any():
        return "nobody was there"
    if not result.records["trained"].any():
        return "nobody trained"
    if not result.records["returned"].any():
        return "nobody came back"
    if not _known(result, metric):
        return "not evaluated"
    if not np.isfinite(values[-1]):
        return "not finite"
    return "nothing to learn" if np.abs(values).max() < 1e-6 else "did not fall"


def _learnt(compared: Compared, name: str) -> str:
    """The metric that says whether a strategy has learnt: the loss, unless the first model was measured by another."""
    result, metrics = compared.of(name), ("loss", compared.metric)
    of_the_first = [metric for metric in metrics if np.isfinite(result.metric(metric)[:, 0]).all()]
    known = [metric for metric in metrics if _known(result, metric)]
    return (*of_the_first, *known, compared.metric)[0]


def _curve(result: Result, metric: str) -> Numbers:
    """A metric at each evaluation, the mean over the seeds; without those at the end at which others were measured."""
    values: Numbers = result.metric(metric).mean(axis=0)
    losses = [result.metric(name)[:, -1] for name in ("loss", "test_loss")]
    if np.isfinite(values).any() and not np.isfinite(values[-1]) and any(np.isfinite(loss).all() for loss in losses):
        return values[: np.flatnonzero(np.isfinite(values))[-1] + 1]
    return values


def _known(result: Result, metric: str) -> bool:
    return bool(np.isfinite(result.metric(metric)).any())


def _advice(compared: Compared, faults: dict[str, str]) -> str:
    """What went wrong, and what to do; for every reason the strategies that it is true of."""
    words = ""
    for fault in dict.fromkeys(faults.values()):
        names = [name for name in faults if faults[name] == fault]
        words += f" {_sentence(compared, fault, names)}"
    return words


def _sentence(compared: Compared, fault: str, names: list[str]) -> str:
    who = _listed(names)
    if fault == "nobody was there":
        return f"No client was available in any round of {who}: look at the availability."
    if fault == "nobody trained":
        return f"Nobody trained in any round of {who}: look at the availability, the deadline and the failures."
    if fault == "nobody came back":
        return f"Nobody who trained came back in any round of {who}: look at the deadline and the failures."
    if fault == "not evaluated":
        return f"Nothing was evaluated in the runs of {who}, so that nobody knows what they learnt."
    if fault == "not finite":
        values = _curve(compared.of(names[0]), _learnt(compared, names[0]))
        finite = np.flatnonzero(np.isfinite(values))
        first = int(compared.of(names[0]).evaluated[finite[-1] + 1 if finite.size else 0])
        since = f" after round {first}" if len(names) == 1 else ""
        return f"The loss of {who} did not stay finite{since}: try a smaller learning rate, or standardised inputs."
    if fault == "nothing to learn":
        return f"The loss of {who} is 0 from the start: there is nothing to learn, as with one label only."
    metric = _learnt(compared, names[0])
    result = compared.of(names[0])
    values, rises = _curve(result, metric), result.rises(metric)
    began, ended = (f"{100 * n:.1f} %" if is_accuracy(metric) else f"{n:.3g}" for n in (values[0], values[-1]))
    went = f"went from {began} to {ended}" if len(names) == 1 else f"did not {'rise' if rises else 'fall'}"
    what = metric.replace("_", " ")
    return f"The {what} of {who} {went}: try another learning rate, or inputs on a scale of about 1."


def _by_rounds(compared: Compared, others: list[str], reached: list[str]) -> str:
    base, goal = compared.baseline, compared.goal
    gains = {name: compared.speed_up(name, _each(others)) for name in others}
    # Who gets there more often is first, however fast others are where they do.
    best = max(reached, key=lambda name: (np.isfinite(compared.rounds_of(name)).mean(), gains[name].mean))
    gain, bound = gains[best], compared.bound(best)
    money = compared.currency
    size = f"it is {bound} {gain.mean:.2f} times as {money.adjective} as {base} to {goal}".replace("  ", " ")
    level = f"{best} is just as {money.adjective} as {base} to {goal}" if f"{gain.mean:.2f}" == "1.00" else ""
    if not np.isfinite(gain.high) and level and not bound:
        return f"With one seed nothing is sure. {level}. Give more seeds."
    if not np.isfinite(gain.high):
        return f"With one seed nothing is sure. {_first(compared, best, gain.mean)}: {size}. Give more seeds."
    seeds, _ = compared.rows(best, base)
    sure = f"{gain.low:.2f} to {gain.high:.2f}; 95 % sure over {len(seeds)} paired seeds"
    sure += f" and {len(others)} comparisons" if len(others) > 1 else ""
    if gain.high > VAGUE * gain.low:
        sure = f"{len(seeds)} seeds do not say how sure that is; give more"
    # A run that does not get there makes the factor a bound, from which one can conclude in one direction only.
    if gain.low > 1 and bound in ("", "at least"):
        middles = [median_interval(compared.spent_of(name))[0] for name in (best, base)]
        most = money.text(float(compared.total(base, compared.by)[:, : compared.horizon + 1][:, -1].mean()))
        amounts = [money.text(n) if np.isfinite(n) else f"more than {most}" for n in middles]
        little = " by little" if gain.mean < LITTLE else ""
        traffic = compared.traffic(best)
        cost = f" and {traffic:.2g} times the traffic" if np.isfinite(traffic) and compared.by != "bytes" else ""
        words = f"{best} wins{little}: {size} ({sure}), with a median of {amounts[0]} {money.unit} against {amounts[1]}"
        near = [name for name in others if name != best and compared.factor(name, best).low <= 1]
        end = _better_end(compared, best)
        return f"{words}{cost}.{end}{_level(compared, best, near)}{_use(compared, best, near, gains)}"
    if all(gains[name].high < 1 and compared.bound(name) in ("", "at most") for name in others):
        return f"{base} wins. The next is {best}: {size} ({sure})."
    if level and not bound:
        return f"Nothing beats {base} for sure. {level} ({sure})."
    first = _first(compared, best, gain.mean)
    if not np.isfinite(compared.rounds_of(base)).any():  # then the factor says when its runs ended, and no more
        return f"Nothing beats {base} to {goal} for sure. {first}."
    return f"Nothing beats {base} for sure. {first}: {size} ({sure})."


def _first(compared: Compared, best: str, times: float) -> str:
    """Who is first, as far as the runs that do not get there allow to say it."""
    base, superlative, bound = compared.baseline, compared.currency.superlative, compared.bound(best)
    if times > 1 and bound in ("", "at least"):
        return f"The {superlative} is {best}"
    if times <= 1 and bound in ("", "at most"):
        return f"{base} is the {superlative} here; the next is {best}"
    there, plain = (np.isfinite(compared.rounds_of(name)) for name in (best, base))
    return f"{base} gets there with {plain.sum()} of {plain.size} seeds and {best} with {there.sum()}"


def _better_end(compared: Compared, best: str) -> str:
    """Where the baseline surely ends better than the winner: who is there first need not stay there."""
    base, metric = compared.baseline, compared.metric
    mine, theirs = compared.rows(best, base)
    ends = [compared.of(name).metric(metric)[rows, -1] for name, rows in ((best, mine), (base, theirs))]
    gap = interval((ends[0] - ends[1]) * (1 if compared.of(base).rises(metric) else -1))
    if not gap.high < 0:  # nor where one of them is NaN, or there is one seed
        return ""
    mean, plain = (f"{100 * end.mean():.1f} %" if is_accuracy(metric) else f"{end.mean():.3g}" for end in ends)
    return f" But {base} ends better, at {plain} against {mean}."


def _by_end(compared: Compared, others: list[str]) -> str:
    """Where no run reaches the target: what they have after as many rounds as all of them have played."""
    base, metric = compared.baseline, compared.metric
    results = {name: compared.of(name) for name in compared.names}
    last = {name: np.flatnonzero(result.evaluated <= compared.horizon)[-1] for name, result in results.items()}
    ends = {name: result.metric(metric)[:, last[name]] for name, result in results.items()}
    higher = compared.of(base).rises(metric)
    best = (max if higher else min)(compared.names, key=lambda name: ends[name].mean())
    words = f"No run reaches {compared.goal} in {compared.horizon} rounds"
    if best == base:
        return f"{words}; {base} ends nearest to it."
    mine, theirs = compared.rows(best, base)
    points = 100 if is_accuracy(metric) else 1
    difference = interval(points * (ends[best][mine] - ends[base][theirs]), _each(others))
    sure = np.isfinite(difference.high) and (difference.low > 0 or difference.high < 0)
    far = f"{difference}{' points' if points > 1 else ''} from {base}"
    return f"{words}; {best} ends nearest, {far}, {'for sure' if sure else 'which may be chance'}."


def _each(others: Sequence[str]) -> float:
    """How sure each of several comparisons must be for all of them together to be so (Bonferroni)."""
    return 1 - (1 - SURE) / len(others)


def _level(compared: Compared, best: str, level: list[str]) -> str:
    """Who may be just as fast, and who of them sends least."""
    if not level:
        return ""
    least = min(level, key=compared.traffic)
    words = f" {_listed(level)} may be just as {compared.currency.adjective}"
    if compared.by != "bytes" and compared.traffic(least) < compared.traffic(best):
        times = f"{compared.traffic(least):.2g}"
        much = "as much as" if times == "1" else f"{times} times the traffic of"
        words += f", and {least} sends least: {much} {compared.baseline}"
    return f"{words}."


def _use(compared: Compared, best: str, level: list[str], gains: dict[str, Interval]) -> str:
    """What to use: what needs no d, where it is surely faster than the baseline and none is surely faster than it."""
    if "auto" not in compared.names:
        return ""
    if best == "auto":
        return " Use auto, which needs no d."
    if "auto" not in level:
        return f" Use {best}: auto, which needs no d, is slower here."
    money, gain, traffic = compared.currency, gains["auto"], compared.traffic("auto")
    if gain.low <= 1:
        return f" Use {best}: auto, which needs no d, does not beat {compared.baseline} for sure."
    cost = f", with {traffic:.2g} times the traffic" if np.isfinite(traffic) and compared.by != "bytes" else ""
    times = f"{gain.mean:.2f} times as {money.adjective} as {compared.baseline}"
    return f" Use auto, which needs no d: it is {times}{cost}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
