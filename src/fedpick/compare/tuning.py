"""The learning rate of each strategy, tuned on seeds that the comparison does not use."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedpick import config
from fedpick.compare.threshold import default_target
from fedpick.experiment import Experiment, load_results, run_in_processes, run_missing
from fedpick.storage import RunStore
from fedpick.validation import require

LOG = logging.getLogger("fedpick")
FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)  # of the task's own learning rate
STEP, EXTENSIONS = 3.0, 2  # beyond them, where the best is the first or the last
TRIED = 3  # seeds


def tune_rates(
    experiments: Sequence[Experiment],
    store: RunStore,
    watch: Callable[..., None] | None = None,
    *,
    metric: str = "loss",
    value: float | None = None,
    factors: Sequence[float] = FACTORS,
    seeds: int = TRIED,
    workers: int = 1,
) -> list[Experiment]:
    """Each experiment with the learning rate at which it gets to a target in the fewest rounds, in the mean over seeds.

    A verdict counts rounds to a target: at rates that end lowest, who is content with a slow one would seem slow. Of
    rates that are equally fast, or none of which always gets there, it is that at which the global training loss ends
    lowest. These seeds follow the largest of the experiment and are not used again; the runs are stored as others are.
    Where the loss ends lowest at the smallest or the largest of the rates, the next one is tried, too, at most twice;
    where the best is still the smallest or the largest then, this is logged.

    Args:
        experiments: One for each strategy.
        store: Where the runs are stored.
        watch: Called with each batch under way and its result so far.
        metric: That of the target.
        value: The target; left out, it is what rand, or else the first, reaches where its loss ends lowest.
        factors: The rates to try, as parts of the experiment's own, in their order.
        seeds: How many seeds to try them with.
        workers: Processes that share the work; ``watch`` is for one.
    """
    check_rates(experiments)
    tried = [list(factors) for _ in experiments]
    losses: list[dict[float, float]] = [{} for _ in experiments]
    for _ in range(1 + EXTENSIONS):
        wanted = [[_at(one, factor, seeds) for factor in own] for one, own in zip(experiments, tried, strict=True)]
        everything = [each for own in wanted for each in own]
        if workers > 1:
            run_in_processes(everything, store, workers=workers)
        else:
            run_missing(everything, store, watch)
        for place, own in enumerate(wanted):
            for factor, each in zip(tried[place], own, strict=True):
                end = load_results(each, store).metric("loss")[:, -1].mean()
                losses[place][factor] = float(end) if np.isfinite(end) else np.inf
        tried = [_next(found) for found in losses]
        if not any(tried):
            break
    rounds = _rounds_to_target(experiments, losses, store, metric, value, seeds)
    best = [
        min(fast, key=lambda factor: (fast[factor], found[factor], factor))
        for fast, found in zip(rounds, losses, strict=True)
    ]
    tuned = [_at(one, factor) for one, factor in zip(experiments, best, strict=True)]
    for one, factor, found in zip(tuned, best, losses, strict=True):
        if factor in (min(found), max(found)):
            end, other = ("smallest", "smaller") if factor == min(found) else ("largest", "larger")
            what = f"{one.local.eta:g} is the {end} of the {len(found)} that were tried: a {other} one may be better"
            LOG.warning("compare: the best learning rate of %s, %s", config.describe(one.selector), what)
    return tuned


def _rounds_to_target(
    experiments: Sequence[Experiment],
    losses: Sequence[dict[float, float]],
    store: RunStore,
    metric: str,
    value: float | None,
    seeds: int,
) -> list[dict[float, float]]:
    """The mean rounds to the target at each factor, for each experiment; inf where a run does not get there."""
    if value is None:
        kinds = [config.unstructure(one.selector, "Selector").get("kind") for one in experiments]
        rand = kinds.index("rand") if "rand" in kinds else 0
        result = load_results(_at(experiments[rand], _best(losses[rand]), seeds), store)
        value = default_target(result.metric(metric), result.rises(metric), lambda value: False)
    if not np.isfinite(value):
        return [dict.fromkeys(found, np.inf) for found in losses]
    return [
        {
            factor: float(load_results(_at(one, factor, seeds), store).rounds_to(metric, value).mean())
            for factor in found
        }
        for one, found in zip(experiments, losses, strict=True)
    ]


def check_rates(experiments: Sequence[Experiment]) -> None:
    """Raise where a learning rate is 0: so are the parts of it that would be tried.

    Args:
        experiments: One for each strategy.
    """
    for one in experiments:
        require("compare", "eta", one.local.eta, "above 0 to be tuned", lambda eta: eta > 0)


def _best(found: dict[float, float]) -> float:
    """The factor with the lowest loss; of several the smallest, as where none ends at a finite one."""
    return min(found, key=lambda factor: (found[factor], factor))


def _next(found: dict[float, float]) -> list[float]:
    """The factor beyond the best one, where that is the first or the last."""
    best = _best(found)
    if best == min(found):
        return [best / STEP]
    return [best * STEP] if best == max(found) else []


def _at(experiment: Experiment, factor: float, seeds: int = 0) -> Experiment:
    """The experiment with this part of its learning rate, to four digits; on other seeds where a number is given."""
    eta: Any = float(f"{factor * float(experiment.local.eta):.4g}")
    first = max(experiment.seeds) + 1
    own = tuple(range(first, first + seeds)) or experiment.seeds
    return replace(experiment, local=replace(experiment.local, eta=eta), seeds=own)
