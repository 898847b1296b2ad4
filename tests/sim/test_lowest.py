"""Losses that may be negative: who refuses them, in one sentence, and what lies are above the lowest of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import (
    AFL,
    UCBCS,
    Auto,
    ClippedLoss,
    Cooldown,
    Credits,
    Explore,
    Full,
    LocalLoss,
    Mixture,
    Oort,
    PowerOfChoice,
    Private,
    QFairLoss,
    Rand,
    RankClip,
    TiFL,
    Unbiased,
)
from fedpick.experiment import Experiment
from fedpick.sim import Federation, Liars, Local, Logistic, Model, Synthetic, simulate
from fedpick.sim.lowest import check_lowest

K, LOCAL = 12, Local(tau=2, b=4, eta=0.1)
POW_D = PowerOfChoice(3, 6)
MISLED = [
    (Oort(3), "Oort"),
    (UCBCS(3), "UCBCS"),
    (AFL(3, valuation="sqrt-size"), "AFL"),
    (PowerOfChoice(3, 6, score=LocalLoss(by_size=True)), "PowerOfChoice"),
    (PowerOfChoice(3, 6, score=ClippedLoss(0.5, by_size=True)), "PowerOfChoice"),
    (PowerOfChoice(3, 6, score=QFairLoss(1.0)), "PowerOfChoice"),
    (Credits(POW_D), "Credits"),
    (Private(POW_D), "Private"),
    (Cooldown(Oort(3)), "Oort"),
    (Explore(RankClip(UCBCS(3))), "UCBCS"),
    (Unbiased(Credits(POW_D)), "Credits"),
    (Mixture((Rand(3), Cooldown(Oort(3)))), "Oort"),
]
UNHARMED = [Rand(3), Full(), POW_D, PowerOfChoice(3, 6, "stale", ClippedLoss(0.5)), AFL(3), Auto(3), TiFL(3)]
UNHARMED += [RankClip(Cooldown(POW_D)), Mixture((Rand(3), POW_D)), Explore(Unbiased(AFL(3)))]


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    return Federation.from_arrays(rng.normal(size=(8 * K, 3)), rng.integers(0, 2, 8 * K), np.repeat(np.arange(K), 8))


@pytest.mark.parametrize(("selector", "name"), MISLED)
def test_a_strategy_that_negative_losses_mislead_is_refused_before_the_first_round(federation, selector, name):
    sentence = f"^{name}: losses must be at least 0, and this model's go down to -1; use cross-entropy, or another"
    with pytest.raises(ValueError, match=sentence):
        simulate(federation, Logistic("minus-probability"), selector, LOCAL, rounds=1)
    check_lowest(selector, Logistic().build(federation))


@pytest.mark.parametrize("selector", UNHARMED)
def test_others_are_not(federation, selector):
    check_lowest(selector, Logistic("minus-probability").build(federation))


def test_a_comparison_and_a_file_of_experiments_are_refused_before_anything_is_trained():
    model = Logistic("minus-probability")
    with pytest.raises(ValueError, match=r"^UCBCS: losses must be at least 0"):
        Experiment(Synthetic(K=K), model, UCBCS(3), LOCAL, rounds=1).check()
    Experiment(Synthetic(K=K), model, POW_D, LOCAL, rounds=1).check()


def test_an_own_score_may_say_that_it_is_for_losses_of_at_least_0(federation):
    def by_root(loss, size):
        return loss * jnp.sqrt(size)

    model = Logistic("minus-probability").build(federation)
    check_lowest(PowerOfChoice(3, 6, score=by_root), model)
    by_root.nonnegative_losses = True
    with pytest.raises(ValueError, match=r"^PowerOfChoice: losses must be at least 0"):
        check_lowest(PowerOfChoice(3, 6, score=by_root), model)


@pytest.mark.parametrize("lowest", [0.0, -1.0, 2.5])
def test_lies_are_above_the_lowest_loss(lowest):
    losses = jnp.float32(lowest) + jnp.array([0.0, 0.1, 0.5, 0.9, 0.2, 0.3], jnp.float32)
    who = Liars(0.5).who(6)
    above = np.asarray(losses) - lowest

    def said(attack):
        return np.asarray(Liars(0.5, attack).lies(lowest).answers(losses, 0)) - lowest

    np.testing.assert_allclose(said("inflate"), np.where(who, 10 * above, above), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(said("deflate"), np.where(who, 0, above), atol=1e-6)
    honest = np.sort(above[~who])[-1]
    np.testing.assert_allclose(said("just-above")[who], np.maximum(above[who], 1.1 * honest), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", ["cross-entropy", "minus-probability"])
def test_who_inflates_is_selected_more_often_and_who_deflates_less(federation, objective):
    def capture(attack):
        liars, options = Liars(0.25, attack), {"rounds": 40, "every": 40, "seeds": 3, "progress": False}
        return liars.capture(
            simulate(federation, Logistic(objective), PowerOfChoice(3, 9), LOCAL, liars=liars, **options)
        )

    assert capture("inflate").min() > 0.5
    assert capture("deflate").max() < 0.1


def test_a_lie_needs_a_lowest_loss_to_be_above():
    endless = Model(lambda key: jnp.zeros(1), lambda p, x, y, key: p[0] * y, lambda p, x: x[:, 0], -float("inf"))
    check_lowest(Rand(3), endless, "max")
    with pytest.raises(ValueError, match=r"^Liars: model.lowest must be finite for the attack 'inflate', got -inf"):
        check_lowest(Rand(3), endless, "inflate")


@pytest.mark.parametrize(("start", "said"), [(-2.0, "got -2 before round 0"), (0.05, "wrong clients")])
def test_a_model_that_does_not_declare_its_negative_losses_is_found_out(federation, start, said):
    def losses(params, x, y, key):
        return jnp.broadcast_to(params.sum(), y.shape)

    parts = lambda key: jnp.full(1, start), losses, lambda params, x: jnp.zeros(x.shape[0], jnp.int32)
    model = Model(*parts)
    selector = PowerOfChoice(3, 6, score=LocalLoss(by_size=True))
    caught = pytest.raises(ValueError, match=said) if start < 0 else pytest.warns(UserWarning, match=said)
    with caught:
        simulate(federation, model, selector, LOCAL, rounds=4, every=2)
    with pytest.warns(UserWarning, match="^Model: lowest must be at most every loss, got 0 and a client's loss of -"):
        simulate(federation, model, POW_D, LOCAL, rounds=4, every=2)
    simulate(federation, Model(*parts, lowest=-5.0), POW_D, LOCAL, rounds=4, every=2)
