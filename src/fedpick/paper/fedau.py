"""A headline claim of FedAU: where clients take part unequally often, its weights do better than plain averages."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpick.experiment import Experiment, Metrics
from fedpick.paper.claims import Check, claims_of
from fedpick.paper.comparisons import positive
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow, curve
from fedpick.results import Result, Spread, interval
from fedpick.sim import Bernoulli, Digits, Local, Logistic, Server, Shards

K, ROUNDS, DRAWS = 50, 500, 5  # draws: at least
ETAS = (0.03, 0.1, 0.3, 1.0, 3.0)
PI = tuple(float(f"{p:.4f}") for p in np.geomspace(0.02, 0.5, K))  # from one round in fifty to every other one
FULL = strategy("full")
# A method: the strategy and the server's learning rate. A cutoff of 1 leaves every weight at p_k, the average over all
# clients; it makes short steps, which the server's rate makes up for, as the authors do.
METHODS = {
    "fedau": (strategy("fedau", selector=FULL, cutoff=50), 1.0),
    "average of the participants": (FULL, 1.0),
    "average over all clients": (strategy("fedau", selector=FULL, cutoff=1), round(1 / float(np.mean(PI)), 2)),
}


def _experiments(size: Size) -> Experiments:
    rounds = min(ROUNDS, size.synthetic_rounds)
    return {
        (name, eta): Experiment(
            Digits(Shards(K, 2)),
            Logistic(),
            selector,
            Local(tau=5, b=16, eta=eta),
            rounds=rounds,
            seeds=tuple(range(max(size.draws, DRAWS))),
            redraw=True,
            server=Server(eta=server),
            availability=Bernoulli(jnp.asarray(PI, jnp.float32)),
            metrics=Metrics(every=max(1, rounds // 50), clients=False),
        )
        for name, (selector, server) in METHODS.items()
        for eta in ETAS
    }


def _last(result: Result, metric: str) -> NDArray[Any]:
    """The mean over the last tenth of the evaluations, one per seed."""
    values = result.metric(metric)
    return np.asarray(values[:, -max(1, values.shape[1] // 10) :].mean(axis=1), float)


def _lower(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
    """By how many percent ours is lower, one per seed."""
    return np.asarray(100 * (1 - ours / theirs))


def _conclude(runs: ItemRuns) -> Outcome:
    loss, accuracy = ({key: _last(runs[key], what) for key in runs.experiments} for what in ("loss", "test_accuracy"))
    statements: dict[str, list[Check]] = {}
    for name in list(METHODS)[1:]:
        pairs = {f"eta = {eta:g}": (("fedau", eta), (name, eta)) for eta in ETAS}
        statements[f"FedAU ends with a lower training loss than the {name}."] = [
            positive(what, _lower(loss[own], loss[base]), "% lower") for what, (own, base) in pairs.items()
        ]
        statements[f"FedAU ends with a higher test accuracy than the {name}."] = [
            positive(what, 100 * (accuracy[own] - accuracy[base]), "points") for what, (own, base) in pairs.items()
        ]
    rows: list[ChartRow] = []
    table = []
    for name, eta in runs.experiments:
        result = runs[name, eta]
        rows += curve(name, f"training loss, eta = {eta:g}", result.evaluated, values=result.metric("loss"))
        less = "-" if name == "fedau" else str(interval(_lower(loss["fedau", eta], loss[name, eta])))
        ends = f"{Spread.of(loss[name, eta]):.4f}", less, f"{Spread.of(100 * accuracy[name, eta]):.1f}"
        table.append((name, f"{eta:g}", *ends))
    columns = ("method", "eta", "loss", "fedau's loss is lower by, % [95 %]", "test accuracy, %")
    title = "FedAU: training loss where clients take part unequally often"
    text = "The training loss by round for FedAU, for the average of the participants and for that over all clients."
    chart = Chart("fedau", "lines", title=title, text=text, x="round", y="loss", rows=tuple(rows), columns=3)
    return Outcome(
        claims_of("Wang, Ji 2024, abstract", statements),
        (chart,),
        (Table("Mean over the last tenth of the evaluations", columns, tuple(table)),),
        remarks=(
            "The loss is F over all clients, those that are seldom there included: what the weights are meant to "
            "minimise. The paper reports accuracy on training and test data, each method at its best learning rate. "
            "Here no rate is the best: a linear model separates these digits, so that F has no minimum and falls "
            "further with every larger rate that was tried. The methods are therefore compared rate by rate, and how "
            "much is gained depends on the rate.",
        ),
    )


FEDAU = Item(
    "fedau",
    "FedAU",
    title="Weights for clients that take part unequally often",
    about=f"The handwritten digits of scikit-learn, {K} clients with two labels each, of equal size, logistic "
    f"regression, tau = 5, b = 16, {ROUNDS} rounds; data and partition are drawn anew for every seed. In each round "
    "client k is there with a probability of its own, from 0.02 to 0.5 in equal ratios, and everybody who is there "
    "trains. The paper has 250 clients, convolutional networks on larger images, and probabilities that follow the "
    "labels; here they do not. The average over all clients has a server rate of one over the mean probability, so "
    "that its steps are as long as the others'.",
    conclude=_conclude,
    experiments=_experiments,
)
