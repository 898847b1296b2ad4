"""A round as a program for each phase: the numbers of one program for the whole chunk, and fewer compilations."""

import jax
import numpy as np
import pytest
from support.rounds import EVERY, compilations

import fedpick
from fedpick.sim import MLP, Bernoulli, Failures, Local, Logistic, Server, Synthetic, simulate
from fedpick.sim._engine import batching

LOCAL = Local(tau=3, b=5, eta=0.05)


def play(selector, model, **options):
    return simulate(
        Synthetic(K=12), model, selector, LOCAL, rounds=7, every=3, seeds=2, availability=Bernoulli(0.8), **options
    )


# One polls by training, one measures updates, one wants squared losses and durations.
KINDS = ("rand", "cpow-d", "afl", "ocs", "clustered-similarity", "oort")


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:simulate. b=", "ignore:simulate. fewer clients")
@pytest.mark.parametrize(
    "name", [name if name in KINDS[1:3] else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_phases_give_the_numbers_of_a_chunk(name, monkeypatch):
    parameters = {**EVERY[name], "classes": 10} if "classes" in EVERY[name] else EVERY[name]
    selector = fedpick.strategy(name, **parameters)
    model = MLP((8,)) if name in ("rand", "ocs") else Logistic()
    options = {"failures": Failures(0.2), "server": Server(optimizer="momentum", eta=0.5)}
    with compilations() as programs:
        phases = play(selector, model, **options)
    assert "choices" in programs
    monkeypatch.setattr(batching, "FEW", 0)
    with compilations() as programs:
        chunk = play(selector, model, **options)
    assert "chunk" in programs
    for mine, theirs in (
        (phases.metrics, chunk.metrics),
        (phases.records, chunk.records),
        (phases.params, chunk.params),
    ):
        jax.tree.map(np.testing.assert_array_equal, mine, theirs)


@pytest.mark.no_cover
def test_strategies_share_the_training_and_the_evaluation():
    names = ("rand", "pow-d", "cpow-d", "afl")
    with compilations() as programs:
        for name in names:
            simulate(
                Synthetic(K=13), Logistic(), fedpick.strategy(name, **EVERY[name]), LOCAL, rounds=5, every=2, seeds=2
            )
    assert programs.count("choices") == len(names)
    assert programs.count("outcomes") == programs.count("evaluation") == 1
