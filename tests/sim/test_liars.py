"""Clients that lie in the simulator: what they capture, exactly, and that nothing changes where nobody does."""

import re
from dataclasses import replace
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Oort, PowerOfChoice, Rand, Uniform
from fedpick.sim import Federation, Liars, Local, Logistic, simulate
from fedpick.sim.liars import squares_of
from fedpick.sim.local import Trained

K = 20
LOCAL = Local(tau=1, b=2, eta=0.01)


@pytest.fixture(scope="module")
def equal():
    """Clients of equal sizes."""
    rng = np.random.default_rng(0)
    return Federation.from_arrays(rng.normal(size=(4 * K, 3)), rng.integers(0, 2, 4 * K), np.repeat(np.arange(K), 4))


def play(federation, selector, liars=Liars(), **options):
    return simulate(
        federation, Logistic(), selector, LOCAL, liars=liars, **{"rounds": 150, "every": 150, "seeds": 6, **options}
    )


@pytest.mark.parametrize(("d", "share"), [(6, 0.1), (12, 0.2)])
def test_capture_of_pow_d_is_hypergeometric(equal, d, share):
    m, L, liars = 3, round(share * K), Liars(share, "max")
    numbers = np.arange(min(L, d) + 1)
    p = np.array([comb(L, n) * comb(K - L, d - n) for n in numbers]) / comb(K, d)
    seats = np.minimum(numbers, m) / m
    mean = (p * seats).sum()
    error = np.sqrt((p * (seats - mean) ** 2).sum() / (6 * 150))
    capture = liars.capture(play(equal, PowerOfChoice(m, d), liars))
    assert abs(capture.mean() - mean) < 3 * error


def test_nobody_lies_before_the_start_and_a_share_of_0_is_nobody(equal):
    selector = PowerOfChoice(3, 8)
    honest = play(equal, selector, rounds=30, every=10, seeds=2)
    late = play(equal, selector, Liars(0.2, "max", "flip", start=20), rounds=30, every=10, seeds=2)
    with pytest.warns(UserWarning, match="Liars: share is 0, so that nobody lies; give one, such as share=0.1"):
        none = play(equal, selector, Liars(0.0, "max", "flip"), rounds=30, every=10, seeds=2)
    np.testing.assert_array_equal(honest.records["clients"], none.records["clients"])
    jax.tree.map(np.testing.assert_array_equal, honest.params, none.params)
    np.testing.assert_array_equal(honest.metrics["loss"][:, :3], late.metrics["loss"][:, :3])
    assert (honest.metrics["loss"][:, 3] != late.metrics["loss"][:, 3]).all()


def test_a_share_that_is_less_than_half_a_client_is_said_to_be_nobody(equal):
    said = (
        "Liars: share must make at least one of 20 clients, got 0.02, so that nobody lies; give one, such as share=0.1"
    )
    with pytest.warns(UserWarning, match=said):
        play(equal, Rand(3), Liars(0.02, "max"), rounds=1, every=1, seeds=1)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("attack", "more"),
    [
        ("inflate", True),
        ("silent", None),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("just-above", True), ("deflate", False))),
    ],
)
def test_what_is_said_of_losses_decides_the_seats(equal, attack, more):
    selector = PowerOfChoice(3, 10, "stale" if attack == "silent" else "full")
    lying, honest = Liars(0.2, attack), Liars(0.2, "none")
    gap = lying.capture(play(equal, selector, lying)) - honest.capture(play(equal, selector, honest))
    assert gap.mean() > 0.1 if more in (True, None) else gap.mean() < -0.05


@pytest.mark.no_cover
@pytest.mark.parametrize("selector", [Rand(3), Uniform(3)], ids=["rand", "uniform"])
def test_a_claim_of_size_counts_no_more_than_twice_the_largest_honest_one(equal, selector):
    believed, bounded = (Liars(1 / K, size=1e12, bound=bound) for bound in (np.inf, 2.0))
    runs = {name: who.capture(play(equal, selector, who)) for name, who in (("all", believed), ("2", bounded))}
    assert runs["all"].mean() > 0.99 if isinstance(selector, Rand) else runs["all"].mean() > 0.1
    assert runs["2"].mean() < 1.5 * 2 / (K + 1)


def test_who_lies_about_no_size_leaves_all_sizes_as_they_are():
    sizes = jnp.array([200.0] + [5.0] * 7)  # of an honest client, and of one that lies
    assert Liars(0.125).who(8).nonzero()[0].tolist() == [7]

    def counted(t=0, **options):
        return Liars(0.125, start=3, **options).lies().sizes(sizes, t).tolist()

    for options in ({"attack": "max"}, {"model_attack": "flip"}):
        assert counted(t=5, **options) == sizes.tolist()
    assert counted(size=1e12) == sizes.tolist(), "nobody lies before the start"
    claims = counted(t=3, size=1e12)
    assert [claims[0], claims[7]] == [200, 400]
    assert counted(attack="max", bound=2.0)[0] == 10, "a bound that is given is a defence for all clients and rounds"


@pytest.mark.slow
def test_a_flipped_update_hurts_and_no_update_does_not(equal):
    losses = {}
    for attack in ("none", "flip", "idle"):
        liars = Liars(0.2, "max", attack)
        losses[attack] = liars.honest_loss(play(equal, PowerOfChoice(3, 6), liars)).mean()
    assert losses["flip"] > losses["idle"] > losses["none"] - 0.01


def test_metrics_of_liars(equal):
    liars = Liars(0.25, "max", seed=3)
    result = play(equal, PowerOfChoice(3, K), liars, rounds=10)
    who = liars.who(K)
    assert who.sum() == 5
    assert (liars.capture(result) == 1).all()
    assert (liars.excluded(result) == 1).all(), "no honest client has a seat"
    np.testing.assert_allclose(liars.amplification(result), 4)
    for kept_out, precision, recall in (
        (np.flatnonzero(who)[:4], 1.0, 0.8),
        (np.array([*np.flatnonzero(who)[:2], *np.flatnonzero(~who)[:2]]), 0.5, 0.4),
        (np.array([], int), np.nan, 0.0),
    ):
        seated = np.broadcast_to(np.setdiff1d(np.arange(K), kept_out), (1, 4, K - len(kept_out)))
        clients = np.concatenate([np.zeros_like(seated), seated], axis=1)  # before the last half nobody else counts
        lost = np.full_like(clients, -1)  # of all seats: they were given all the same
        found = liars.detection(replace(result, records={"clients": lost, "selected": clients}))
        np.testing.assert_allclose(np.concatenate(found), [precision, recall])
    worst = result.metrics["client_loss"][:, -1][:, ~who].max(axis=1)
    np.testing.assert_array_equal(liars.worst_honest_loss(result), worst)
    assert (liars.honest_loss(result) <= worst).all()


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"share": 1.2}, "Liars: share must be at least 0 and at most 1, got 1.2"),
        ({"share": jnp.array([0.1, 0.2]), "attack": "max"}, "Liars: share must be a number, got "),
        ({"share": 0.1, "factor": np.ones(2)}, "Liars: factor must be a number, got "),
        ({"share": 0.1, "attack": "shout"}, "Liars: attack must be one of"),
        ({"share": 0.1, "bound": 0.5}, "Liars: bound must be at least 1, got 0.5"),
    ],
)
def test_wrong_parameters_are_refused(parameters, match):
    with pytest.raises(ValueError, match=match):
        Liars(**parameters)


def test_who_lies_about_the_loss_lies_about_its_square():
    told = jnp.array([0.5, 1e30, jnp.nan, 3.0])
    trained = Trained(params={}, loss=jnp.array([0.5, 0.7, 0.2, 0.3]), square_loss=jnp.array([0.3, 0.5, 0.1, 0.2]))
    np.testing.assert_allclose(squares_of(told, trained), [0.3, 1e30, np.nan, 9.0])


def test_strategies_that_go_by_squared_losses_can_be_lied_to(equal):
    capture = {}
    for attack in ("none", "inflate", "max", "deflate"):
        liars = Liars(0.2, attack)
        capture[attack] = liars.capture(play(equal, Oort(3, samples=4), liars, rounds=60, every=60, seeds=4))
    assert 0.1 < capture["none"].mean() < 0.4  # a fifth of the clients, who have about a fifth of the weight
    for attack in ("inflate", "max"):  # once they have been heard, they have nearly every seat, in every run
        assert (capture[attack] > 0.8).all()
    assert (capture["deflate"] < 0.05).all()


@pytest.mark.parametrize(
    ("liars", "why"),
    [
        (Liars(0.2, start=3), "so that nobody lies; give attack="),
        (Liars(factor=5.0), "so that nobody lies; give attack="),
        (Liars(0.2, "max", factor=5.0), 'factor=5 has no effect: it is of attack="inflate"'),
        (Liars(0.2, "max", start=1), "start=1 is after the last of 1 rounds"),
    ],
)
def test_liars_without_an_effect_are_told(equal, liars, why):
    with pytest.warns(UserWarning, match=f"Liars: .*{re.escape(why)}"):
        play(equal, Rand(3), liars, rounds=1, every=1, seeds=1)
