"""What runs tell beside their numbers: remarks on them, and of real federations notes of rounds, and polls."""

from collections.abc import Sequence

import numpy as np

from fedpick import config
from fedpick.compare.comparison import Comparison
from fedpick.compare.report import ComparisonReport, PolledRound
from fedpick.compare.returns import lost
from fedpick.compare.targets import leader_of
from fedpick.config import Plain
from fedpick.experiment import differences, kind_of
from fedpick.metrics import goal_of
from fedpick.results import Result
from fedpick.sim import Liars
from fedpick.storage import StoredRun
from fedpick.text import counted, listed

LEARNT = 0.75  # a target must leave out a quarter of the errors of always giving the most frequent label
LAST_POLLS = 200  # rounds of which a page says who was asked
SIMULATED = (
    "Seconds are no deployment's: the runs shared the cores of this machine, and their first rounds hold Ray's start."
)


def remarks_on(names: Sequence[str], results: Sequence[Result], runs: Sequence[StoredRun]) -> tuple[str, ...]:
    """What clients do not report, what was lost, and whether evaluations are of the same clients.

    Args:
        names: The strategies.
        results: The result of each.
        runs: All of their runs, as they are stored.
    """
    missing = lost(names, results)
    said = f"{missing}, or could not be used." if missing else ""
    found = (_missing(runs), _unanswered(runs), said, _unusable(runs), _evaluated(runs), _first_models(runs))
    return tuple(filter(None, found))


def remarks_on_settings(report: ComparisonReport) -> tuple[str, ...]:
    """What of the settings bears on the answer: the baseline's strategy is there with several of one, or clients lie.

    Of a Flower app in its simulation, it is what its seconds are.

    Args:
        report: The report.
    """
    if report.real:
        return (SIMULATED,) if report.identities else ()
    swept = _swept(report.comparison, report.experiments)
    return tuple(filter(None, (swept or _rates(report.comparison, report.experiments), _lying(report))))


def _swept(compared: Comparison, plains: Sequence[Plain]) -> str:
    """That factors hold what a setting gains, beside the strategy, where strategies are swept over it."""
    if len(plains) != len(compared.names):
        return ""
    kinds = [kind_of(plain.get("selector")) for plain in plains]
    own = kinds[compared.names.index(compared.baseline)]
    whose: dict[bool, set[str]] = {}  # settings in which experiments of the baseline's kind differ, and of another kind
    for kind in dict.fromkeys(kinds):
        found = differences([plain for plain, its in zip(plains, kinds, strict=True) if its == kind])
        whose.setdefault(kind == own, set()).update(found[0])
    both = sorted(path.removeprefix("selector.") for path in whose[True] & whose.get(False, set()))
    if not both:
        return ""
    paths = listed(both)
    return (
        f"All are compared with {compared.baseline}. For a strategy with another {paths}, a factor is what that gains "
        f"and what the strategy gains, together: compare at one {paths} to tell them apart."
    )


def _rates(compared: Comparison, plains: Sequence[Plain]) -> str:
    """That a kind of strategy is nowhere at the learning rate of the baseline, as where rates are tuned."""
    if len(plains) != len(compared.names):
        return ""
    rates = [plain.get("local", {}).get("eta") for plain in plains]
    kinds = [kind_of(plain.get("selector")) for plain in plains]
    own = rates[compared.names.index(compared.baseline)]
    if set(kinds) == {kind for kind, rate in zip(kinds, rates, strict=True) if rate == own}:
        return ""
    names = [name.partition(", local.eta")[0] for name in compared.names]
    said = ", ".join(f"{name}: {rate}" for name, rate in zip(names, rates, strict=True))
    return (
        f"Learning rates differ ({said}). A factor is what the rate gains and what the strategy gains, together: --eta "
        "compares all at one."
    )


def _lying(report: ComparisonReport) -> str:
    """That clients lie: their data count in the losses, and a training that fails may be their doing."""
    K = report.comparison.results[0].shares.shape[1]
    found: dict[str, None] = {}
    idle = ""
    for plain in report.experiments:
        if "kind" in plain.get("liars", {}):
            continue  # a class of one's own, which need not be at hand, and says what it does
        liars = config.structure(plain.get("liars", {}), Liars, "report")
        parts = [f"{part} {way}" for part, way in (("losses", liars.attack), ("updates", liars.model_attack))]
        parts = [part for part in parts if not part.endswith(" none")]
        parts += [f"{liars.size:g} times their size"] if liars.size != 1 else []
        if parts and (number := int(liars.who(K).sum())):
            found[f"{counted(number, 'client')} of {K} lie ({', '.join(parts)})"] = None
        elif not parts and liars.share > 0:
            idle = f'Nobody lies: liars.share is {liars.share:g}, without an attack such as liars.attack = "max".'
    if not found:
        return idle
    return f"{'; '.join(found)}: their data count in all losses, and training that fails may be their doing."


def remarks_on_test_set(compared: Comparison, samples: int, commonest: float) -> tuple[str, ...]:
    """That the target says little of what was learnt, or hangs on single samples of the test set.

    Args:
        compared: The comparison.
        samples: How many the test set has.
        commonest: The part of them with the most frequent label.
    """
    found: tuple[str, ...] = ()
    if compared.metric == "test_accuracy" and samples and len(compared.names) > 1:
        found = _commonest(compared, commonest), _too_small(compared, samples)
    elif compared.metric in ("test_f1", "test_auc") and samples and len(compared.names) > 1:
        found = (_hardly_learnt(compared),)
    return tuple(filter(None, found))


def _commonest(compared: Comparison, share: float) -> str:
    """That a target is little more than always giving the most frequent label, by the errors that it leaves out."""
    if 1 - compared.threshold <= LEARNT * (1 - share):
        return ""
    return (
        f"Always giving the most frequent label is right for {100 * share:.1f} % of the test set: {compared.goal} is "
        "little more or less, so that reaching it says little of what was learnt. Go by --metric loss, or by auc or f1 "
        "(--metrics auc --metric auc)."
    )


def _hardly_learnt(compared: Comparison) -> str:
    """That a target is little more than what runs begin with, as an F1 of rare labels that one sample decides."""
    began = float(np.median([result.metric(compared.metric)[:, 0].mean() for result in compared.results]))
    if not np.isfinite(began) or 1 - compared.threshold <= LEARNT * (1 - began):
        return ""
    return (
        f"Runs begin with {goal_of(compared.metric, began)}, before any training: {compared.goal} is little more, so "
        "that reaching it says little of what was learnt. Go by --metric loss, or give a --target that is farther off."
    )


def _too_small(compared: Comparison, samples: int) -> str:
    """That the test set is too small for the target: a sample is more than what tells its strategies apart."""
    base, metric = compared.baseline, compared.metric
    best = leader_of(compared)
    best = next(name for name in compared.names if name != base) if best == base else best
    gap = abs(compared.finals[best][metric].mean - compared.finals[base][metric].mean)
    if not gap < 1 / samples:
        return ""
    return (
        f"The test set has {counted(samples, 'sample')}: one of them is {100 / samples:.2g} points of accuracy, more "
        f"than lies between {best} and {base} at the end, so that rounds to {compared.goal}, the target that the page "
        "begins with, hang on single samples."
    )


def notes_of(runs: Sequence[StoredRun]) -> tuple[tuple[int, str], ...]:
    """What happened in which round of the runs; of several, each note says of which it is.

    Args:
        runs: As they are stored.
    """
    found = []
    for run in runs:
        kind = kind_of(run.about["experiment"].get("selector", {}))
        whose = f"{kind}, seed {run.about['seed']}: " if len(runs) > 1 else ""
        found += [(number, f"{whose}{why}") for number, why in run.about.get("notes", ())]
    return tuple(found)


def polls_of(run: StoredRun) -> tuple[PolledRound, ...]:
    """Whom a federation asked in each of its last rounds, what they answered, and who trained.

    Args:
        run: As it is stored.
    """
    if "polls/round" not in run.arrays:
        return ()
    rounds, clients, losses = (run.arrays[f"polls/{name}"] for name in ("round", "client", "loss"))
    trained = run.arrays["records/clients"]
    missing = run.arrays["records/trained"] - run.arrays["records/returned"]
    found = []
    for t in np.unique(rounds)[-LAST_POLLS:].tolist():
        asked = rounds == t
        seats = tuple(dict.fromkeys(int(k) for k in trained[t] if k >= 0))
        answers = tuple(losses[asked].tolist())
        found.append(PolledRound(t + 1, tuple(clients[asked].tolist()), answers, seats, int(missing[t])))
    return tuple(found)


def _missing(runs: Sequence[StoredRun]) -> str:
    """What clients do not say; runs of before do not tell."""
    told = [run.about["missing"] for run in runs if "missing" in run.about]
    most = {name: max(each.get(name, 0) for each in told) for name in set().union(*told)}
    said = {
        "num-examples": "report no num-examples: the median of the others counts instead, and 1 where nobody does",
        "name": "report neither a name nor a partition-id: picks cannot be repeated, and who restarts is a new client",
    }
    found = [f"{most[name]} of {most['clients']} clients {what}." for name, what in said.items() if most.get(name)]
    if number := most.get("own name"):
        found.append(f"{counted(number, 'node')} took no part, with a name or partition-id that another one has.")
    if number := most.get("answer"):
        found.append(f"{counted(number, 'node')} took no part, without an answer to the roll call.")
    return " ".join(found)


def _unusable(runs: Sequence[StoredRun]) -> str:
    """How many evaluations could not be used, and why."""
    counts: dict[tuple[str, str], int] = {}
    for where, why, number in (each for run in runs for each in run.about.get("unusable", ())):
        counts[where, why] = counts.get((where, why), 0) + number
    said = (f"{counted(n, 'evaluation')} on {where} could not be used: {why}." for (where, why), n in counts.items())
    return " ".join(said)


def _unanswered(runs: Sequence[StoredRun]) -> str:
    """How many of the polls of each strategy had no valid answer; whose privacy budget is spent need not answer."""
    counts: dict[str, tuple[int, int]] = {}
    for run in runs:
        losses = run.arrays.get("polls/loss", np.zeros(0))
        silent = int(np.isnan(losses).sum() - run.arrays.get("polls/spent", np.zeros(1)).sum())
        kind = str(run.about["experiment"].get("selector", {}).get("kind"))
        before = counts.get(kind, (0, 0))
        counts[kind] = (before[0] + silent, before[1] + len(losses))
    whose = " of {}" if len(counts) > 1 else ""
    lost = [f"{n} of {total} polls{whose.format(kind)}" for kind, (n, total) in counts.items() if n]
    if not lost:
        return ""
    none = " The strategy chose without losses." if all(n == total for n, total in counts.values()) else ""
    return f"{listed(lost)} had no valid answer: who does not answer is not trained in that round.{none}"


def _evaluated(runs: Sequence[StoredRun]) -> str:
    """Of whom evaluations are, where that differs; runs of before do not say it.

    Clients without a name are others in each run.
    """
    none = np.zeros(0, np.int32)
    numbers = [run.arrays.get("evaluations/clients", none) for run in runs]
    checksums = [run.arrays.get("evaluations/checksum", none) for run in runs]
    every = np.concatenate(numbers)
    known = every[every > 0]
    where = "rounds and runs" if len(runs) > 1 else "rounds"
    same = f"what they measure is not of the same clients in all {where}."
    if known.size and known.min() < known.max():
        return f"Evaluations on clients are of {known.min()} to {known.max()} clients: {same}"
    who = [set(each[number > 0].tolist()) for each, number in zip(checksums, numbers, strict=True) if len(each)]
    nameless = any(str(name).startswith("node=") for run in runs for name in run.about.get("clients", ()))
    if any(len(each) > 1 for each in who) or (not nameless and len(set().union(*who)) > 1):
        return f"Evaluations on clients are of {known[0]} clients, but not always of these: {same}"
    return ""


def _first_models(runs: Sequence[StoredRun]) -> str:
    """Which seeds have runs that began with different models; runs of before do not say it."""
    models: dict[int, set[str]] = {}
    for run in (run for run in runs if "first_model" in run.about):
        models.setdefault(run.about["seed"], set()).add(run.about["first_model"])
    unlike = [str(seed) for seed, found in models.items() if len(found) > 1]
    if not unlike:
        return ""
    which = f"seed{'s' if len(unlike) > 1 else ''} {listed(unlike)}"
    return f"Runs of {which} began with different models, so that they differ in more than the strategy."
