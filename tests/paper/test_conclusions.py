"""What every item concludes from runs that no simulation made."""

from dataclasses import replace

import numpy as np
import pytest
from support.outcomes import SMALL, complete

from fedpick.paper import FULL, ITEMS
from fedpick.paper.clustered_ocs_kvib import MEASURED
from fedpick.paper.item import ItemRuns
from fedpick.paper.settings import quadratic_selectors
from fedpick.results import Result

SIZE = replace(SMALL, draws=3, seeds=3)


def made_up(experiment, rng):
    """Curves that fall and rise as losses and accuracies do, and seats drawn at random."""
    seeds, rounds = len(experiment.seeds), experiment.rounds
    K = getattr(experiment.data, "K", None) or experiment.data.partition.K
    m = experiment.selector.m or K
    evaluated = np.unique([*range(0, rounds, experiment.metrics.every), rounds])
    learnt = np.cumsum(rng.uniform(0, 1, (seeds, len(evaluated))), axis=1) / len(evaluated)
    loss = 1e3 * np.exp(-9 * learnt)
    by_client = learnt[:, :, None] * rng.uniform(0.5, 1, (seeds, 1, K))
    metrics = {"loss": loss, "test_loss": loss, "test_accuracy": learnt, "skew": 1 + learnt}
    metrics |= {"client_accuracy": by_client, "client_loss": 1e3 * (1 - by_client)}
    names = ("available", "polled", "trained", "returned", "poll_samples", "train_samples")
    records = {name: rng.integers(1, K, (seeds, rounds)) for name in names}
    records |= {name: rng.exponential(size=(seeds, rounds)) for name in ("seconds", "train_loss")}
    records |= {"clients": rng.integers(0, K, (seeds, rounds, m)), "weights": np.full((seeds, rounds, m), 1 / m)}
    runs = [{"seed": seed} for seed in experiment.seeds]
    return Result(runs, np.full(K, 1 / K), 1000, evaluated=evaluated, metrics=metrics, records=records)


class Findings:
    """A store of findings that nobody computed: of t_comp, the skews and the variances."""

    def __init__(self, rng):
        self.rng = rng

    def cached_result(self, kind, settings, compute):
        draw = self.rng.exponential
        if kind == "t_comp":
            return {"device": "none", "seconds": {name: {"total": draw()} for name in settings["strategies"]}}
        if kind == "variances":
            return {name: draw(size=(settings["draws"], settings["rounds"])).tolist() for name in MEASURED}
        assert kind == "skews"
        return {
            f"{K}": {n: draw(size=(settings["draws"], 5)).tolist() for n in quadratic_selectors(K)} for K in (30, 100)
        }


def conclude(name, monkeypatch, seed, size=None):
    """The outcome of an item; ``seed(number)`` is that of the runs of its experiment of that number."""
    size = size or SIZE
    experiments = ITEMS[name].experiments(size)
    numbers = {id(experiment): number for number, experiment in enumerate(experiments.values())}

    def load(experiment, store):
        return made_up(experiment, np.random.default_rng(seed(numbers[id(experiment)])))

    monkeypatch.setattr("fedpick.paper.item.load_results", load)
    monkeypatch.setattr("fedpick.paper.fedcs.TRIALS", 5)
    return ITEMS[name].conclude(ItemRuns(Findings(np.random.default_rng(0)), size, experiments))


@pytest.mark.parametrize("searched", [True, False])
def test_a_claim_on_the_skews_that_the_grid_meets_can_be_contradicted_by_the_search(searched, monkeypatch):
    class Found:
        def cached_result(self, kind, settings, compute):
            def draws(K, name):
                d = 0 if name == "rand" else int(name.split("= ")[1]) / 100
                on_grid = [1 + d, 1 + d**2, 1 - d]
                by_search = [1 + d / 2, 1 + 2 * d] if K == 30 or searched else []
                return [[*on_grid, *by_search]] * 3

            return {f"{K}": {name: draws(K, name) for name in quadratic_selectors(K)} for K in (30, 100)}

    outcome = ITEMS["fig2b"].conclude(ItemRuns(Found(), SIZE, {}))
    complete(outcome)
    above, grow, near, all_pairs, *by_search = outcome.claims
    assert {claim.verdict for claim in (above, grow, near)} == {"reproduced"}
    assert all_pairs.verdict == "not reproduced"
    assert all(" on the grid." in claim.statement for claim in outcome.claims[:4])
    above, grow, near = by_search
    assert all("as far as a search found" in claim.statement for claim in by_search)
    assert above.checks[0].evidence.startswith("at most +0.03")
    if searched:
        assert (above.verdict, grow.verdict, near.verdict) == ("reproduced", "reproduced", "partly reproduced")
        assert near.checks[0].met == "no"
        assert near.checks[0].evidence.startswith("at least 1.30 ")
    else:
        assert near.verdict == "undecided"
        assert above.checks[-1].met == "unclear"
        assert above.checks[-1].evidence == "searched in the full version alone"
    (table,) = outcome.tables
    assert table.title.startswith("Means over 3 draws, on a grid of 32 points (2 per axis) and w*, and by")


@pytest.mark.parametrize("name", ["table1", "table2", "fig4", "fig5", "fig7", "fig8"])
def test_fewer_rounds_do_not_contradict_what_the_paper_has_after_all(name, monkeypatch):
    """In the quick version an accuracy after the last round is none after the paper's last, and its "no" is unclear."""
    short, whole = (
        [check for claim in conclude(name, monkeypatch, lambda number: 7, size=size).claims for check in claim.checks]
        for size in (SIZE, replace(SIZE, name="full", fashion_rounds=FULL.fashion_rounds))
    )
    of_accuracy = [check for check in short if "point" in check.evidence or "say nothing of" in check.evidence]
    assert of_accuracy
    assert "no" not in {check.met for check in of_accuracy}
    assert any("after 2 of 500 rounds" in check.evidence for check in of_accuracy)
    if name.startswith("table"):
        assert {check.met for check in short[:6]} == {"unclear"}
        assert short[0].evidence.endswith(
            "after 2 of 500 rounds say nothing of " + whole[0].evidence.split()[2][:-1] + " after all of them"
        )
    assert "no" in {check.met for check in whole}


FROM_RUNS = [name for name in ITEMS if name != "fig1"]  # whose numbers are the theory's


@pytest.mark.parametrize("name", FROM_RUNS)
def test_every_item_concludes(name, monkeypatch):
    complete(conclude(name, monkeypatch, seed=lambda number: number))


@pytest.mark.parametrize("name", [name for name in FROM_RUNS if ITEMS[name].experiments(SIZE)])
def test_where_all_strategies_do_the_same_no_item_is_reproduced(name, monkeypatch):
    outcome = conclude(name, monkeypatch, seed=lambda number: 7)
    complete(outcome)
    assert outcome.verdict != "reproduced"
