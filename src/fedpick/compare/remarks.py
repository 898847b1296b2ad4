"""What runs tell beside their numbers: remarks on them, and of real federations notes of rounds, and polls."""

from collections.abc import Sequence

import numpy as np

from fedpick.compare.comparison import Comparison
from fedpick.compare.report import PolledRound
from fedpick.compare.targets import leader_of
from fedpick.experiment import kind_of
from fedpick.results import Result
from fedpick.storage import StoredRun
from fedpick.text import counted, listed

LAST_POLLS = 200  # rounds of which a page says who was asked


def remarks_on(names: Sequence[str], results: Sequence[Result], runs: Sequence[StoredRun]) -> tuple[str, ...]:
    """How many updates were lost, and whether evaluations are of different numbers of clients.

    Args:
        names: The strategies.
        results: The result of each.
        runs: All of their runs, as they are stored.
    """
    return tuple(filter(None, (_lost(names, results), _evaluated(runs, several=len(runs) > 1))))


def remark_on_test_set(compared: Comparison, samples: int) -> str:
    """That the test set is too small for the target, where a sample is more than what tells its strategies apart.

    Args:
        compared: The comparison.
        samples: How many the test set has.
    """
    base, metric = compared.baseline, compared.metric
    if metric != "test_accuracy" or not samples or len(compared.names) == 1:
        return ""
    best = leader_of(compared)
    best = next(name for name in compared.names if name != base) if best == base else best
    gap = abs(compared.finals[best][metric].mean - compared.finals[base][metric].mean)
    if not gap < 1 / samples:
        return ""
    return (
        f"The test set has {counted(samples, 'sample')}: one of them is {100 / samples:.2g} points of accuracy, more "
        f"than lies between {best} and {base} at the end, so that rounds to {compared.goal} hang on single samples."
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
    lost = run.arrays["records/trained"] - run.arrays["records/returned"]
    found = []
    for t in np.unique(rounds)[-LAST_POLLS:].tolist():
        asked = rounds == t
        seats = tuple(dict.fromkeys(int(k) for k in trained[t] if k >= 0))
        answers = tuple(losses[asked].tolist())
        found.append(PolledRound(t + 1, tuple(clients[asked].tolist()), answers, seats, int(lost[t])))
    return tuple(found)


def _lost(names: Sequence[str], results: Sequence[Result]) -> str:
    counts = []
    for name, result in zip(names, results, strict=True):
        sent, came = (int(result.records[part].sum()) for part in ("trained", "returned"))
        counts += [(name, f"{sent - came} of {sent} updates")] if came < sent else []
    if not counts:
        return ""
    whose = [f"{count} of {name}" if len(names) > 1 else count for name, count in counts]
    return f"{listed(whose)} did not come back, or could not be used."


def _evaluated(runs: Sequence[StoredRun], several: bool) -> str:
    """The numbers of clients that evaluations are of, where they differ; runs of before do not say them."""
    numbers = np.concatenate([run.arrays.get("evaluations/clients", np.zeros(0, np.int32)) for run in runs])
    known = numbers[numbers > 0]
    if not known.size or known.min() == known.max():
        return ""
    where = "rounds and runs" if several else "rounds"
    return (
        f"Evaluations on clients are of {known.min()} to {known.max()} clients: what they measure is not of the same "
        f"clients in all {where}."
    )
