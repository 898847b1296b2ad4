"""A server that outliers do not move: against NumPy, and against liars that flip their updates."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import trim_mean

from fedpick import Credits, PowerOfChoice, Rand
from fedpick.sim import Liars, Local, Logistic, Quadratic, QuadraticModel, RobustServer, Server, Synthetic, simulate

RNG = np.random.default_rng(0)
BEFORE = {"w": RNG.normal(size=(4, 3)).astype(np.float32), "b": np.zeros(3, np.float32)}
UPDATES = {name: RNG.normal(size=(10, *leaf.shape)).astype(np.float32) for name, leaf in BEFORE.items()}
TRAINED = {name: jnp.asarray(BEFORE[name] + UPDATES[name]) for name in BEFORE}
WEIGHTS = np.array([0.2, 0.0, *[0.1] * 8], np.float32)  # one did not return


def combine(server):
    return server.combine(jnp.asarray(WEIGHTS), TRAINED, {k: jnp.asarray(v) for k, v in BEFORE.items()})


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        ("mean", lambda x: (x * np.expand_dims(WEIGHTS[WEIGHTS > 0], tuple(range(1, x.ndim)))).sum(axis=0)),
        ("median", lambda x: np.median(x, axis=0)),
        ("trimmed", lambda x: trim_mean(x, 0.2, axis=0)),
    ],
)
def test_averages_are_those_of_numpy_and_scipy(average, expected):
    found = combine(RobustServer(average=average))
    for name, update in UPDATES.items():
        np.testing.assert_allclose(found[name], expected(update[WEIGHTS > 0]), rtol=1e-4, atol=1e-5)


def test_an_update_is_shortened_to_the_median_norm_and_others_are_not():
    trained = {name: leaf.at[0].add(1e6) for name, leaf in TRAINED.items()}
    only = jnp.zeros(10, jnp.float32).at[0].set(1.0)
    before = {k: jnp.asarray(v) for k, v in BEFORE.items()}

    def norm(weights, trained):
        found = RobustServer(norm_bound=1.5).combine(weights, trained, before)
        return float(np.sqrt(sum(np.square(leaf).sum() for leaf in found.values())))

    norms = np.sqrt(sum(np.square(update).reshape(10, -1).sum(axis=1) for update in UPDATES.values()))
    norms[0] = 1e7
    everybody = jnp.full(10, 1e-7, jnp.float32).at[0].set(1.0)
    assert norm(everybody, trained) == pytest.approx(1.5 * np.median(norms), rel=1e-3)
    assert norm(only, TRAINED) == pytest.approx(float(np.sqrt(sum(np.square(u[0]).sum() for u in UPDATES.values()))))


def test_without_a_bound_the_mean_is_that_of_the_plain_server_and_nobody_moves_nothing():
    for name in BEFORE:
        np.testing.assert_array_equal(combine(RobustServer())[name], combine(Server())[name])
    none = RobustServer(norm_bound=1.0, average="median").combine(jnp.zeros(10), TRAINED, BEFORE)
    assert all((np.asarray(leaf) == 0).all() for leaf in none.values())


@pytest.mark.slow
def test_flipped_updates_ruin_a_plain_average_and_not_a_bounded_one():
    data, selector = Synthetic(1, 1, K=50, seed=0).federation(), PowerOfChoice(5, 10)
    options = {"local": Local(tau=10, b=20, eta=0.1), "rounds": 60, "every": 60, "seeds": 2}
    flipping, honest = Liars(0.1, "max", "flip", factor=3.0), Liars(0.1)

    def loss(selector, liars, server):
        result = simulate(data, Logistic(), selector, liars=liars, server=server, **options)
        return float(honest.honest_loss(result).mean())

    usual = loss(selector, Liars(), Server())
    assert loss(selector, flipping, Server()) > 3 * usual
    assert loss(Credits(selector), flipping, RobustServer(norm_bound=1.0)) < 1.25 * usual


def test_a_trimmed_average_of_fewer_than_five_seats_is_told():
    def play(m):
        options = {"rounds": 1, "server": RobustServer(average="trimmed"), "progress": False}
        simulate(Quadratic(K=6), QuadraticModel(), Rand(m), Local(1, 1, 1e-4), **options)

    with pytest.warns(
        UserWarning, match=r"RobustServer: .* must have at least 5 seats .*, got m=4: it is a plain mean"
    ):
        play(4)
    play(5)


def test_errors_name_the_rule_and_the_value():
    with pytest.raises(ValueError, match="RobustServer: norm_bound must be above 0, got 0"):
        RobustServer(norm_bound=0)
    with pytest.raises(
        ValueError, match="RobustServer: average must be one of 'mean', 'median', 'trimmed', got 'krum'"
    ):
        RobustServer(average="krum")
