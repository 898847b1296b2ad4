"""The answer of a comparison in words: who wins, by how much, how sure that is; or why there is none."""

import re
from collections.abc import Sequence

import numpy as np

from fedpick.compare.fairness import evaluated_at
from fedpick.compare.faults import advice, fault_of
from fedpick.compare.summary import Compared, is_vague, medians
from fedpick.compare.threshold import at_once, begun
from fedpick.metrics import is_accuracy
from fedpick.registry import STRATEGIES, parameters_of
from fedpick.results import Interval, interval, sign_test
from fedpick.text import counted, listed

SURE = 0.95
LITTLE = 1.1  # times as fast
NONE = "There is no answer"  # what it begins with then


def answer(compared: Compared) -> str:
    """Which strategy wins, by how much and how sure that is; or that nothing does."""
    base = compared.baseline
    others = [name for name in compared.names if name != base]
    faults = {name: fault for name in compared.names if (fault := fault_of(compared, name))}
    if not others:
        return f"There is nothing to compare {base} with.{advice(compared, faults)}"
    if base in faults:
        return f"{NONE}.{advice(compared, faults)}"
    if compared.other_data and not compared.of(base).real:
        return f"{NONE}: {compared.other_data}, and so are not of one task.{advice(compared, faults)}"
    if compared.of(base).share.shape[-1] == 1:
        return "There is one client, so there is nothing to choose: all strategies train on it."
    if compared.says_nothing:
        return f"{_begun(compared)} Give another one, or another metric.{advice(compared, faults)}"
    reached = [name for name in others if np.isfinite(compared.rounds_of(name)).any()]
    if reached:
        words = _by_rounds(compared, others, reached)
    elif np.isfinite(compared.rounds_of(base)).any():
        words = f"Only {base} reaches {compared.goal} in {counted(compared.horizon, 'round')}"
        words += f", with {_seeds(compared, base)}."
    else:
        words = _by_end(compared, others)
    if all(seeds_of(compared, name) == 1 for name in others):
        words = f"With one seed nothing is sure. {words} Give more seeds."
    return words + _begun(compared) + _different(compared) + advice(compared, faults)


def seeds_of(compared: Compared, name: str) -> int:
    """How many seeds a strategy and the baseline have in common.

    Args:
        compared: The comparison.
        name: The strategy.
    """
    return len(compared.rows(compared.baseline, name)[0])


def _begun(compared: Compared) -> str:
    """How many runs begin with the target: of most, it says nothing. The same where all reach it at once."""
    rounds = [compared.rounds_of(name) for name in compared.names]
    runs, number = sum(map(len, rounds)), begun(rounds)
    if number == runs:
        return f"Every run is at {compared.goal} before its first round, so that it is no target."
    if compared.says_nothing:
        return f"Most runs begin with {compared.goal} ({number} of {runs}), so that this target says nothing."
    if number:
        return f" {number} of {runs} runs begin with this target, which brings factors nearer to 1."
    base = compared.baseline
    return at_once(rounds, int(compared.of(base).evaluated[compared.counted[base]][1]))


def _different(compared: Compared) -> str:
    """What the runs differ in, beside their strategies: rounds, evaluations, clients of real federations."""
    words, rounds = "", {name: compared.of(name).rounds for name in compared.names}
    if len(set(rounds.values())) > 1:
        played = listed([f"{name} {number}" for name, number in rounds.items()])
        words = f" Final values are after different numbers of rounds: {played}."
    grids = [evaluated_at(compared.of(name)) for name in compared.names]
    common = [set(grid[grid <= min(rounds.values())].tolist()) for grid in grids]
    if any(each != common[0] for each in common):
        number = len(set.intersection(*common) - {0})
        words += f" They were evaluated at different rounds, and are compared at the common ones ({number})."
    seeds = {name: [run["seed"] for run in compared.of(name).runs] for name in compared.names}
    if len({tuple(sorted(own)) for own in seeds.values()}) > 1:
        numbers = listed([f"{len(own)} of {name}" for name, own in seeds.items()])
        words += f" They have different seeds ({numbers}): two are compared over those that both have."
    if compared.other_data:
        words += f" But {compared.other_data}."
    return words


def _by_rounds(compared: Compared, others: list[str], reached: list[str]) -> str:
    base, goal = compared.baseline, compared.goal
    gains = {name: compared.speed_up(name, _each(others)) for name in others}
    winners = [name for name in reached if _is_faster(compared, name, gains[name])]
    winners = winners or [name for name in reached if _is_surer(compared, name, base, _each(others))]
    often = {name: np.isfinite(compared.rounds_of(name)).mean() for name in reached}
    # Who gets there more often is first, however fast others are where they do; of equals, who sends less.
    best = max(winners or reached, key=lambda name: (often[name], gains[name].mean, -compared.traffic(name)))
    gain, bound = gains[best], compared.bound(best)
    money = compared.currency
    size = f"it is {bound} {gain.mean:.2f} times as {money.adjective} as {base} to {goal}".replace("  ", " ")
    mine, theirs = compared.rows(best, base)
    always = np.array_equal(compared.spent_of(best)[mine], compared.spent_of(base)[theirs])
    level = f"{best} is {'just' if always else 'on average'} as {money.adjective} as {base} to {goal}"
    level = level if f"{gain.mean:.2f}" == "1.00" else ""
    sooner = _sooner(compared, best, gain.mean)
    if not np.isfinite(gain.high):
        words = level if level and not bound else f"{_first(compared, best, gain.mean, sooner)}: {size}"
        if all(seeds_of(compared, name) == 1 for name in others):
            return f"{words}."
        return f"Nothing beats {base} for sure. {words} (one seed, with which nothing is sure).{sooner}"
    number = seeds_of(compared, best)
    paired = f"95 % sure over {number} paired seeds"
    paired += f" and {len(others)} comparisons" if len(others) > 1 else ""
    # Where some runs do not get there, the factor is a bound, and only one end of its interval is.
    ends = {"at least": f"{gain.low:.2f} or more", "at most": f"{gain.high:.2f} or less"}
    sure = f"{ends.get(bound, f'{gain.low:.2f} to {gain.high:.2f}')}; {paired}"
    if is_vague(gain):
        sure = f"{number} seeds do not say how sure that is; give more"
    # A run that does not get there makes the factor a bound, from which one can conclude in one direction only.
    if _is_faster(compared, best, gain):
        middles = medians(compared, best, base)
        most = money.text(float(compared.total(base, compared.by)[:, : compared.horizon + 1][:, -1].mean()))
        plain = money.text(middles[1]) if np.isfinite(middles[1]) else f"more than {most}"
        little = " by little" if gain.mean < LITTLE else ""
        cost = f" and {price}" if (price := _price(compared, best)) else ""
        words = f"{best} wins{little}: {size} ({sure}), with a median of {money.amount(middles[0])} against {plain}"
        near = [name for name in others if name != best and _may_be_level(compared, name, best)]
        use = _use(compared, best, near, gains, f"is {money.worse} than {best} here")
        return f"{words}{cost}.{_better_end(compared, best)}{_level(compared, best, near)}{use}"
    if _is_surer(compared, best, base, _each(others)):
        within = counted(compared.horizon, "round")
        words = f"{best} wins: it reaches {goal} in {within} with {_seeds(compared, best)}"
        near = [name for name in others if name != best and not _is_surer(compared, best, name, SURE)]
        words = f"{words}, and {base} with {_seeds(compared, base)} ({paired})."
        use = _use(compared, best, near, gains, f"gets there with fewer seeds than {best}")
        return f"{words}{_better_end(compared, best)}{_level(compared, best, near)}{use}"
    if all(gains[name].high < 1 and compared.bound(name) in ("", "at most") for name in others):
        return f"{base} wins. The next is {best}: {size} ({sure}).{_better_end(compared, base)}"
    if level and not bound:
        return f"Nothing beats {base} for sure. {level} ({sure}).{sooner}"
    first = _first(compared, best, gain.mean, sooner)
    if not np.isfinite(compared.rounds_of(base)).any():  # then the factor says when its runs ended, and no more
        why = "" if compared.by == "rounds" else f", but their runs do not end after as many {money.unit}"
        return f"Nothing beats {base} to {goal} for sure. {first}{why}.{sooner}"
    between = f" ({sure})" if gain.low <= 1 else ""  # above 1, it would seem sure, and is no lower bound
    return f"Nothing beats {base} for sure. {first}: {size}{between}.{sooner}"


def _price(compared: Compared, name: str) -> str:
    """What a strategy sends to the target beside the baseline; "" where that is not known, or is what is counted."""
    traffic = compared.traffic(name)
    if not np.isfinite(traffic) or compared.by == "bytes":
        return ""
    return "the same traffic" if f"{traffic:.2g}" == "1" else f"{traffic:.2g} times the traffic"


def _is_faster(compared: Compared, name: str, gain: Interval) -> bool:
    """Whether a strategy surely beats the baseline by a factor, which may be a bound."""
    return gain.low > 1 and compared.bound(name) in ("", "at least")


def _is_surer(compared: Compared, one: str, other: str, level: float) -> bool:
    """Whether one surely reaches the target with more seeds, in as many rounds (McNemar's exact test)."""
    if compared.by != "rounds":  # then they may have spent different amounts
        return False
    pairs = zip((one, other), compared.rows(one, other), strict=True)
    mine, theirs = (np.isfinite(compared.rounds_of(name)[rows]) for name, rows in pairs)
    gained, lost = int((mine & ~theirs).sum()), int((theirs & ~mine).sum())
    return gained > lost and sign_test(gained, lost) <= 1 - level


def _seeds(compared: Compared, name: str) -> str:
    there = np.isfinite(compared.rounds_of(name))
    return f"{there.sum()} of {counted(there.size, 'seed')}"


def _first(compared: Compared, best: str, times: float, sooner: str) -> str:
    """Who is first, as far as the runs that do not get there, and who of them is ``sooner``, allow to say it."""
    base, superlative, bound = compared.baseline, compared.currency.superlative, compared.bound(best)
    if times > 1 and bound in ("", "at least"):
        return f"The {superlative}{f' with {_seeds(compared, best)}' if sooner else ''} is {best}"
    if times <= 1 and bound in ("", "at most"):
        who = f"{base} is the {superlative} {f'with {_seeds(compared, base)}' if sooner else 'here'}"
        return f"{who}; the next is {best}"
    plain, mine = _seeds(compared, base), _seeds(compared, best)
    mine = mine.split()[0] if plain.split()[2:] == mine.split()[2:] else mine
    return f"{base} gets there with {plain} and {best} with {mine}"


def _sooner(compared: Compared, best: str, times: float) -> str:
    """Who gets there with fewer seeds than who is called the fastest, and yet sooner at the median."""
    if compared.bound(best) not in ("", "at least" if times > 1 else "at most"):
        return ""  # nobody is
    first, words = best if times > 1 else compared.baseline, ""
    often = {name: np.isfinite(compared.rounds_of(name)).mean() for name in compared.names}
    for name in (each for each in compared.names if often[each] < often[first]):
        if not _are_apart(compared, name, first) and (found := medians(compared, name, first))[0] < found[1]:
            amounts = f"{compared.currency.amount(found[0])} against {compared.currency.text(found[1])}"
            words += f" {name} gets there with {_seeds(compared, name)}, but sooner: with a median of {amounts}."
    return words


def _better_end(compared: Compared, best: str) -> str:
    """Where another surely ends better than the winner, or it alone finite: who is first need not stay there.

    A winner is compared with the baseline, and a baseline that wins with all others.
    """
    base, metric, words = compared.baseline, compared.metric, ""
    rivals = [base] if best != base else [name for name in compared.names if name != base]
    for rival in (each for each in rivals if compared.of(each).rounds == compared.of(best).rounds):
        mine, theirs = compared.rows(best, rival)
        ends = [compared.of(name).metric(metric)[rows, -1] for name, rows in ((best, mine), (rival, theirs))]
        lost = int((~np.isfinite(ends[0])).sum())
        if lost and np.isfinite(ends[1]).all() and not compared.of(best).real:
            runs = f"{lost} of {counted(len(mine), 'run')} of {best}"
            return f" But {runs} {'ends' if lost == 1 else 'end'} at no finite value."
        gap = interval((ends[0] - ends[1]) * (1 if compared.of(base).rises(metric) else -1), _each(rivals))
        if gap.high < 0:  # not where there is one seed
            mean, plain = (f"{100 * end.mean():.1f} %" if is_accuracy(metric) else f"{end.mean():.3g}" for end in ends)
            words += f" But {rival} ends better, at {plain} against {mean}."
    return words


def _by_end(compared: Compared, others: list[str]) -> str:
    """Where no run reaches the target: what they have after as many rounds as all of them have played."""
    base, metric = compared.baseline, compared.metric
    results = {name: compared.of(name) for name in compared.names}
    last = {
        name: np.flatnonzero(compared.counted[name] & (result.evaluated <= compared.horizon))[-1]
        for name, result in results.items()
    }
    ends = {name: result.metric(metric)[:, last[name]] for name, result in results.items()}
    rows = {name: compared.rows(name, base) for name in compared.names}
    gaps = {name: ends[name][mine] - ends[base][theirs] for name, (mine, theirs) in rows.items()}
    finite = [name for name in (base, *others) if np.isfinite(ends[name]).all()]  # of equals, the baseline
    best = (max if compared.of(base).rises(metric) else min)(finite or [base], key=lambda name: gaps[name].mean())
    words = f"No run reaches {compared.goal} in {counted(compared.horizon, 'round')}"
    if best == base:
        return f"{words}; {base} ends nearest to it."
    points = 100 if is_accuracy(metric) else 1
    difference = interval(points * gaps[best], _each(others))
    sure = np.isfinite(difference.high) and (difference.low > 0 or difference.high < 0)
    far = f"{difference}{' points' if points > 1 else ''} from {base}"
    return f"{words}; {best} ends nearest, {far}, {'for sure' if sure else 'which may be chance'}."


def _each(others: Sequence[str]) -> float:
    """How sure each of several comparisons must be for all of them together to be so (Bonferroni)."""
    return 1 - (1 - SURE) / len(others)


def _level(compared: Compared, best: str, level: list[str]) -> str:
    """Who may be just as fast, and who of them sends least, of those that get there as often as the best."""
    if not level:
        return ""
    often = {name: np.isfinite(compared.rounds_of(name)).mean() for name in (best, *level)}
    least = min((name for name in (best, *level) if often[name] >= often[best]), key=compared.traffic)
    words = f" {listed(level)} may be just as {compared.currency.adjective}"
    if compared.by != "bytes" and compared.traffic(least) < compared.traffic(best):
        times = f"{compared.traffic(least):.2g}"
        much = "as much as" if times == "1" else f"{times} times the traffic of"
        who = "sends less" if len(level) == 1 else f"{least} sends least of these"
        words += f", and {who}: {much} {compared.baseline}"
    return f"{words}."


def _may_be_level(compared: Compared, name: str, best: str) -> bool:
    """Whether a strategy may be as fast as the best: it is not surely slower, on the seeds that both have, if any."""
    return _are_apart(compared, name, best) or compared.factor(name, best).low <= 1


def _are_apart(compared: Compared, one: str, other: str) -> bool:
    """Whether two strategies have no seed in common."""
    return {run["seed"] for run in compared.of(one).runs}.isdisjoint(run["seed"] for run in compared.of(other).runs)


def _takes_d(name: str) -> bool:
    """Whether a strategy of the registry, or one that it holds, has a d that must be chosen."""
    kinds = (kind for kind in re.findall(r"[\w-]+", name) if kind in STRATEGIES)
    return any("d" in parameters_of("Selector", kind) for kind in kinds)


def _use(compared: Compared, best: str, level: list[str], gains: dict[str, Interval], behind: str) -> str:
    """What to use in place of a winner with a d: auto, where it is surely faster than the baseline, too."""
    if "auto" not in compared.names or not _takes_d(best):
        return ""
    if "auto" not in level:
        return f" auto, which needs no d, {behind}."
    gain, base = gains["auto"], compared.baseline
    if _is_faster(compared, "auto", gain):
        times = f"{compared.bound('auto')} {gain.mean:.2f} times as {compared.currency.adjective} as {base}".strip()
        cost = f", with {price}" if (price := _price(compared, "auto")) else ""
        return f" Where you do not want to choose d, use auto: it is {times}{cost}."
    if _is_surer(compared, "auto", base, _each(list(gains))):
        return f" Where you do not want to choose d, use auto: it gets there with {_seeds(compared, 'auto')}."
    return f" auto, which needs no d, does not beat {base} for sure."
