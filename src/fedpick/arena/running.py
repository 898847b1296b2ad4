"""Play the problems of a suite, and score them; what is stored is not played again."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from fedpick.arena.scores import Scores, score
from fedpick.arena.suite import STEPS, Family, Step, make_problems
from fedpick.experiment import load_results, run_in_processes, run_missing
from fedpick.storage import RunStore
from fedpick.validation import natural


def play(
    families: Sequence[Family],
    strategies: Sequence[str],
    folder: str | Path,
    *,
    seeds: int = 10,
    steps: Sequence[Step] = STEPS,
    workers: int = 1,
    watch: Callable[..., None] | None = None,
) -> dict[str, Scores]:
    """The scores of strategies on every problem on which rand learns, by the names of the problems.

    Args:
        families: The families of the suite.
        strategies: Names of strategies, or addresses of one's own; rand is added where it is missing.
        folder: Where the runs are stored.
        seeds: The number of seeds, each of which draws its own federations.
        steps: The ways to set the step size.
        workers: Processes that share the work.
        watch: Called with each batch under way and its result so far; with one process.
    """
    natural("arena", "workers", workers)
    names = ["rand", *(name for name in dict.fromkeys(strategies) if name != "rand")]
    store = RunStore(folder)
    with warnings.catch_warnings():
        # Clients smaller than b, and fewer of them than d, are part of the suite.
        warnings.filterwarnings("ignore", message="simulate: (b=|fewer clients)")
        problems = make_problems(families, names, store, seeds=seeds, steps=steps, workers=workers, watch=watch)
        everything = [one for problem in problems for one in problem.experiments.values()]
        if workers > 1:
            run_in_processes(everything, store, workers=workers)
        else:
            run_missing(everything, store, watch)
    found = {}
    for problem in problems:
        scores = score({name: load_results(one, store) for name, one in problem.experiments.items()})
        if scores is not None:
            found[problem.name] = scores
    return found
