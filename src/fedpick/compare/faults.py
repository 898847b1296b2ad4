"""What went wrong where a strategy has not learnt, and what to do about it, in words."""

import numpy as np

from fedpick.compare.summary import Compared
from fedpick.metrics import Numbers, is_accuracy
from fedpick.results import Result, idle_runs, idle_sentence
from fedpick.text import listed


def fault_of(compared: Compared, name: str) -> str:
    """Why a strategy has not learnt; "" where it has."""
    result = compared.of(name)
    metric = _learnt(compared, name)
    values = _curve(result, metric)
    if np.isfinite(values[-1]) and _got_better(compared, name):
        return ""
    idle = idle_runs(result)
    if sum(idle.values()) == len(result.runs):
        return next(iter(idle))
    if not _known(result, metric):
        return "not evaluated"
    if not np.isfinite(values[-1]):
        return "not finite"
    return "nothing to learn" if not is_accuracy(metric) and np.nanmax(np.abs(values)) < 1e-6 else "did not fall"


def _got_better(compared: Compared, name: str) -> bool:
    """Whether the last model is better than the first that was measured."""
    result, metric = compared.of(name), _judged(compared, name)
    values = _curve(result, metric)
    began, ended = _first(values), len(values) - 1
    if not np.isfinite(values[began]):
        return True  # nobody knows
    gained = result.metric(metric)[:, ended] - result.metric(metric)[:, began]
    gained = gained if result.rises(metric) else -gained
    # What the first model was worth is not known in every federation, and its first round may teach nearly everything.
    return bool(gained.mean() > 0 if began == 0 else began == ended or (gained >= 0).any())


def _judged(compared: Compared, name: str) -> str:
    """The metric that says whether training made the model better: that of the target where the first is not known."""
    metric = _learnt(compared, name)
    unknown = _first(_curve(compared.of(name), metric)) > 0
    return compared.metric if unknown and _known(compared.of(name), compared.metric) else metric


def _first(values: Numbers) -> int:
    """Where a curve begins, which is not at the first model in every federation."""
    return int(np.argmax(np.isfinite(values)))


def _learnt(compared: Compared, name: str) -> str:
    """The metric that says whether a strategy has learnt: the loss, unless the first model was measured by another."""
    result, metrics = compared.of(name), ("loss", compared.metric)
    of_the_first = [metric for metric in metrics if np.isfinite(result.metric(metric)[:, 0]).all()]
    known = [metric for metric in metrics if _known(result, metric)]
    return (*of_the_first, *known, compared.metric)[0]


def _curve(result: Result, metric: str) -> Numbers:
    """A metric at each evaluation, the mean over the seeds; without those at the end at which others were measured.

    A model that has come to NaN has an accuracy too: where that is unknown, it was not measured.
    """
    values: Numbers = result.metric(metric).mean(axis=0)
    losses = [result.metric(name)[:, -1] for name in ("loss", "test_loss")]
    unmeasured = is_accuracy(metric) or any(np.isfinite(loss).all() for loss in losses)
    if np.isfinite(values).any() and not np.isfinite(values[-1]) and unmeasured:
        return values[: np.flatnonzero(np.isfinite(values))[-1] + 1]
    return values


def _known(result: Result, metric: str) -> bool:
    return bool(np.isfinite(result.metric(metric)).any())


def advice(compared: Compared, faults: dict[str, str]) -> str:
    """What went wrong, and what to do; for every reason the strategies that it is true of."""
    words = ""
    for fault in dict.fromkeys(faults.values()):
        names = [name for name in faults if faults[name] == fault]
        words += f" {_sentence(compared, fault, names, base_learns=compared.baseline not in faults)}"
    return words


def _sentence(compared: Compared, fault: str, names: list[str], base_learns: bool) -> str:
    who = listed(names)
    if fault in idle_runs(compared.of(names[0])):
        return idle_sentence(fault, who)
    if fault == "not evaluated":
        return f"Nothing was evaluated in the runs of {who}, so that nobody knows what they learnt."
    if fault == "not finite":
        metric = _learnt(compared, names[0])
        values = _curve(compared.of(names[0]), metric)
        finite = np.flatnonzero(np.isfinite(values))
        first = int(compared.of(names[0]).evaluated[finite[-1] + 1 if finite.size else 0])
        since = f" after round {first}" if len(names) == 1 else ""
        what = "loss" if metric.endswith("loss") else metric.replace("_", " ")
        return f"The {what} of {who} did not stay finite{since}: try a smaller learning rate, or standardised inputs."
    if fault == "nothing to learn":
        return f"The loss of {who} is 0 from the start: there is nothing to learn, as with one label only."
    metric = _judged(compared, names[0])
    result = compared.of(names[0])
    values, rises = _curve(result, metric), result.rises(metric)
    start = _first(values)
    began, ended = (f"{100 * n:.1f} %" if is_accuracy(metric) else f"{n:.3g}" for n in (values[start], values[-1]))
    since = f" after round {result.evaluated[start]}" if start else ""
    went = (
        f"went from {began}{since} to {ended}" if len(names) == 1 else f"did not {'rise' if rises else 'fall'}{since}"
    )
    what = metric.replace("_", " ")
    if base_learns:
        return f"The {what} of {who} {went}, where that of {compared.baseline} got better with the same settings."
    return f"The {what} of {who} {went}: try another learning rate, or inputs on a scale of about 1."
