"""A headline claim each of clustered sampling by size, optimal client sampling and K-Vib: less variance, faster."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from fedpick.paper.claims import (
    ABOUT,
    Check,
    about,
    above_bound,
    at_most,
    claims_of,
    factor_text,
    geometric_mean,
    number_text,
)
from fedpick.paper.comparisons import area, factor_above_one, positive, speed_up, speed_up_text
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size, synthetic
from fedpick.protocol import Clients, Report, Selector, init_key, pick, round_keys, seat_key
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow, curve
from fedpick.results import Interval, Result, Spread
from fedpick.sim import Local, Logistic, Synthetic, train

SEATS, CLIENTS = 3, 30
TARGET = 0.5
ROUNDS, DRAWS, PICKS = 300, 10, 16  # of the measured variances, at most
SETTING = (
    "Synthetic(1,1) as in Figure 3: K = 30, m = 3, tau = 30, heavy-tailed sizes, drawn anew for every seed. The "
    "variance of the average is the mean of |sum of weight times update - sum of p_k times update|^2 over "
    f"{PICKS} draws of the seats in a round, along the models of full participation, so that all strategies see the "
    "same updates. "
)


def _selector(name: str, rounds: int) -> Selector[Any]:
    seats = {} if name == "full" else {"m": SEATS}
    selector: Selector[Any] = strategy(name, **seats, **({"rounds": rounds} if name == "k-vib" else {}))
    return selector


def _experiments(*names: str) -> Any:
    def experiments(size: Size) -> Experiments:
        return {name: synthetic(size, _selector(name, size.synthetic_rounds)) for name in names}

    return experiments


MEASURED = ("rand", "uniform", "clustered-size", "ocs", "aocs", "k-vib")


def _variances(runs: ItemRuns) -> dict[str, NDArray[Any]]:
    """By strategy, the variance of the average, [draws, rounds]."""
    draws, rounds = min(runs.size.draws, DRAWS), min(runs.size.synthetic_rounds, ROUNDS)
    settings = {"draws": draws, "rounds": rounds, "picks": PICKS}

    def compute() -> dict[str, list[list[float]]]:
        found = [_along_full_participation(seed, rounds) for seed in range(draws)]
        return {name: [one[name] for one in found] for name in MEASURED}

    return {name: np.asarray(rows) for name, rows in runs.store.cached_result("variances", settings, compute).items()}


def _along_full_participation(seed: int, rounds: int) -> dict[str, list[float]]:
    """The squared error of each strategy's average in each round of full participation."""
    federation = Synthetic(seed=seed).federation()
    model, local, K = Logistic().build(federation), Local(tau=30, b=50, eta=0.05), federation.num_clients
    clients = Clients(federation.size, jnp.ones(K, bool))
    selectors = {name: _selector(name, rounds) for name in MEASURED}

    def one_round(carry: Any, t: Any) -> Any:
        params, states = carry
        key = round_keys(seed, t).train
        flat, back = ravel_pytree(params)

        def update(client: Any) -> Any:
            own = seat_key(key, 0, client)
            trained = train(federation, model, local, params=params, client=client, key=own, t=t).params
            return ravel_pytree(trained)[0] - flat

        updates = jax.vmap(update)(jnp.arange(K, dtype=jnp.int32))
        norms, mean = jnp.linalg.norm(updates, axis=1), federation.share @ updates
        errors, after = {}, {}
        for name, selector in selectors.items():

            def seats(other: Any, selector: Any = selector, state: Any = states[name]) -> Any:
                return pick(selector, round_keys(other, t), state, clients, lambda key, asked: norms).selection

            chosen = jax.vmap(seats)(PICKS * seed + jnp.arange(PICKS, dtype=jnp.int32))
            averages = jnp.einsum("ij,ijk->ik", chosen.weights, updates[chosen.clients])
            errors[name] = jnp.sum((averages - mean[None]) ** 2, axis=1).mean()
            first = jax.tree.map(lambda leaf: leaf[0], chosen)
            report = Report(jnp.zeros(SEATS, jnp.float32), norm=norms[first.clients])
            after[name] = selector.observe(states[name], first, report)
        return (back(flat + mean), after), errors

    start = model.init(init_key(seed)), {name: selector.init(K) for name, selector in selectors.items()}
    times = jnp.arange(rounds, dtype=jnp.int32)
    found = jax.jit(lambda start: jax.lax.scan(one_round, start, times)[1])(start)
    return {name: np.asarray(error, float).tolist() for name, error in found.items()}


def _less_variance(what: str, base: NDArray[Any], better: NDArray[Any]) -> Check:
    return factor_above_one(what, base.sum(axis=1) / better.sum(axis=1))


def _fewer_rounds(
    what: str, better: Result, base: Result, *, claimed: float | None = None, least: float = 1.0, factor: float = 1.0
) -> Check:
    """Whether ``base`` takes more than ``least`` times the rounds to the target, and about as many as claimed.

    Args:
        what: What is checked.
        better: The strategy that should take fewer.
        base: The strategy that it is compared with.
        claimed: About how many times fewer.
        least: How many times fewer at least, with certainty.
        factor: What a round of ``base`` costs in rounds of ``better``.
    """
    ratio, counted = speed_up(better, base, "loss", TARGET)
    found = Interval(*(factor * number for number in ratio))
    met = above_bound(found, least) if claimed is None else about(found, claimed, none=least)
    return Check(what, met, speed_up_text(found, counted, len(base.runs)))


def _within_a_tenth(what: str, ratios: NDArray[Any]) -> Check:
    found = geometric_mean(ratios)
    return Check(f"{what}: at most a tenth more", at_most(found, 1.1), factor_text(found, len(ratios), digits=3))


def _curves(runs: ItemRuns, names: tuple[str, ...], variances: dict[str, NDArray[Any]]) -> tuple[ChartRow, ...]:
    rows: list[ChartRow] = []
    for name in names:
        rows += curve(name, "global loss", runs[name].evaluated, values=runs[name].metric("loss"))
        if name in variances:
            width = min(10, variances[name].shape[1])  # rounds, averaged
            whole = variances[name][:, : variances[name].shape[1] // width * width]
            means = whole.reshape(len(whole), -1, width).mean(axis=2)
            rounds = width * (1 + np.arange(means.shape[1]))
            rows += curve(name, "variance of the average", rounds, values=means)
    return tuple(rows)


def _summary(runs: ItemRuns, names: tuple[str, ...], variances: dict[str, NDArray[Any]], base: str) -> Table:
    columns = (
        "strategy",
        f"variance of the average, {base} = 1",
        f"rounds to a loss of {TARGET:g}, median",
        "uploads to it, median",
        "loss, mean over the rounds",
        "last loss",
    )
    rows = []
    for name in names:
        result = runs[name]
        ratio = (
            f"{np.mean(variances[name].sum(axis=1) / variances[base].sum(axis=1)):.2f}" if name in variances else "0"
        )
        rounds = float(np.median(result.rounds_to("loss", TARGET)))
        uploads = rounds * (CLIENTS if name == "full" else SEATS)
        means = f"{Spread.of(area(result, 'loss')):.3f}", f"{Spread.of(result.metric('loss')[:, -1]):.3f}"
        rows.append((name, ratio, number_text(rounds), number_text(uploads), *means))
    return Table("Variance and training", columns, tuple(rows))


def _weights(result: Result) -> NDArray[Any]:
    """The weight of each client in each round, [draws, rounds, K]."""
    clients, weights = result.records["clients"], result.records["weights"]
    one_hot = clients[..., None] == np.arange(CLIENTS)
    return np.asarray((one_hot * weights[..., None]).sum(axis=2))


def _unrest(result: Result) -> NDArray[Any]:
    """By how much the loss changes between two evaluations in the second half of the rounds, one per draw."""
    changes = np.abs(np.diff(result.metric("loss"), axis=1))
    return np.asarray(changes[:, changes.shape[1] // 2 :].mean(axis=1))


def _clustered(runs: ItemRuns) -> Outcome:
    names, variances = ("rand", "clustered-size"), _variances(runs)
    rand, ours = (runs[name] for name in names)
    spread = [_weights(result).var(axis=1).sum(axis=1) for result in (rand, ours)]
    different = [(_weights(result) > 0).sum(axis=2).mean(axis=1) for result in (rand, ours)]
    statements = {
        "The variance of the clients' aggregation weights is smaller than with rand.": [
            factor_above_one("rand's over ours, summed over the clients", spread[0] / spread[1]),
            _less_variance("of the average itself", variances["rand"], variances["clustered-size"]),
        ],
        "The clients are better represented.": [
            positive("different clients in a round", different[1] - different[0], "clients more"),
        ],
        "Training converges better and varies less.": [
            positive("loss, mean over the rounds", area(rand, "loss") - area(ours, "loss"), "below rand's"),
            positive("change of the loss in the second half", _unrest(rand) - _unrest(ours), "below rand's"),
        ],
    }
    title = "Clustered sampling by size and rand"
    text = "Global loss and variance of the average by round for rand and for clustered sampling by size."
    rows = _curves(runs, names, variances)
    chart = Chart("clustered-size", "lines", title=title, text=text, x="round", rows=rows)
    claims = claims_of("Fraboni et al. 2021, abstract", statements)
    return Outcome(claims, (chart,), (_summary(runs, names, variances, "rand"),))


OPTIMAL = ("uniform", "ocs", "aocs", "full")


def _ocs(runs: ItemRuns) -> Outcome:
    variances = _variances(runs)
    uniform, ocs, aocs, full = (runs[name] for name in OPTIMAL)
    statements = {
        "OCS is superior to sampling uniformly.": [
            _less_variance("variance of the average", variances["uniform"], variances["ocs"]),
            positive("loss, mean over the rounds", area(uniform, "loss") - area(ocs, "loss"), "below that of uniform"),
            _fewer_rounds(f"fewer uploads to a loss of {TARGET:g}", ocs, uniform),
        ],
        "It comes close to full participation.": [
            _fewer_rounds("rounds: full over ocs, about 1", ocs, full, least=ABOUT),
        ],
        "It gets there with fewer uploads than full participation.": [
            _fewer_rounds("uploads: full over ocs", ocs, full, factor=CLIENTS / SEATS),
        ],
        "AOCS does as well as OCS.": [
            _within_a_tenth("variance of the average", variances["aocs"].sum(axis=1) / variances["ocs"].sum(axis=1)),
            _within_a_tenth("loss, mean over the rounds", area(aocs, "loss") / area(ocs, "loss")),
        ],
    }
    title = "Optimal client sampling between uniform sampling and full participation"
    text = "Global loss and variance of the average by round for uniform sampling, OCS, AOCS and full participation."
    chart = Chart("ocs", "lines", title=title, text=text, x="round", rows=_curves(runs, OPTIMAL, variances))
    claims = claims_of("Chen et al. 2022, abstract", statements)
    return Outcome(claims, (chart,), (_summary(runs, OPTIMAL, variances, "uniform"),))


def _kvib(runs: ItemRuns) -> Outcome:
    names, variances = ("uniform", "k-vib"), _variances(runs)
    uniform, ours = (runs[name] for name in names)
    late = variances["uniform"].shape[1] // 2
    statements = {
        "The variance of the average is smaller than with uniform sampling.": [
            _less_variance("over all rounds", variances["uniform"], variances["k-vib"]),
            _less_variance("in the second half", variances["uniform"][:, late:], variances["k-vib"][:, late:]),
        ],
        "Training is about twice as fast.": [
            _fewer_rounds(f"about 2 times fewer rounds to a loss of {TARGET:g}", ours, uniform, claimed=2.0),
            positive("loss, mean over the rounds", area(uniform, "loss") - area(ours, "loss"), "below that of uniform"),
        ],
    }
    title = "K-Vib and uniform sampling"
    text = "Global loss and variance of the average by round for uniform sampling and for K-Vib."
    chart = Chart("k-vib", "lines", title=title, text=text, x="round", rows=_curves(runs, names, variances))
    claims = claims_of("Zeng et al. 2023, abstract", statements)
    return Outcome(claims, (chart,), (_summary(runs, names, variances, "uniform"),))


CLUSTERED_SIZE = Item(
    "clustered-size",
    "Clustered sampling 1",
    title="By size: variance and training",
    about=SETTING + "Not as in its paper: it shows MNIST with one class per client and CIFAR-10.",
    conclude=_clustered,
    experiments=_experiments("rand", "clustered-size"),
)
OCS = Item(
    "ocs",
    "OCS",
    title="Uploads by the norm of the update",
    about=SETTING + "All 30 clients train, 3 upload. Not as in its paper: it draws 32 of some thousand clients of "
    "Federated EMNIST as candidates, and tunes the learning rate of each strategy; here it is the same for all.",
    conclude=_ocs,
    experiments=_experiments(*OPTIMAL),
)
K_VIB = Item(
    "k-vib",
    "K-Vib",
    title="By the norms of past updates",
    about=SETTING + "Not as in its paper: it has 100 clients and 500 rounds of Synthetic data, and Federated EMNIST; "
    "exactly m clients are drawn here.",
    conclude=_kvib,
    experiments=_experiments("uniform", "k-vib"),
)
