"""Clustered sampling by size: exact probabilities, less variance than rand, and the order of a million clients."""

from itertools import product
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.draws import agree, rounds, unbiased, urns

from fedpick import Clients, ClusteredSize, check_selector, pick, round_keys, sampling

FEDERATIONS = [(1, 2, 3, 4, 5), (40, 3, 3, 1, 7), (5, 1, 0, 9, 2)]
FEDERATIONS += [pytest.param(size, marks=pytest.mark.slow) for size in ((1, 2, 3, 4), (5, 1, 0, 9))]  # other programs


@pytest.mark.parametrize("size", FEDERATIONS, ids=str)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_each_seat_draws_from_its_urn_alone(size, m):
    urn = urns(size, m)
    expected = {seats: prod(urn[j, k] for j, k in enumerate(seats)) for seats in product(range(len(size)), repeat=m)}
    seats, weights = rounds(ClusteredSize(m), size)
    agree(map(tuple, seats.tolist()), expected)
    np.testing.assert_allclose(weights, 1 / m, rtol=1e-6)
    unbiased(seats, weights, np.array(size) / sum(size))


def test_the_paper_s_example_of_equal_clients_is_a_partition():
    """100 clients of equal size and m = 10: ten groups of ten (Fraboni et al. 2021, section 6)."""
    seats, _ = rounds(ClusteredSize(10), [7] * 100, draws=2000)
    assert (seats // 10 == np.arange(10)).all()


def test_variance_is_never_above_rand_s_on_a_thousand_federations():
    rng = np.random.default_rng(0)
    K, m, draws = 8, 3, 2000
    size = np.round(rng.lognormal(2, rng.uniform(0, 3, (1000, 1)), (1000, K))).astype(np.float32) + 1
    gain = []

    def seats(key, weight):
        return jax.vmap(lambda key: sampling.stratified(key, weight, m))(jax.random.split(key, draws))

    drawn = np.asarray(jax.jit(jax.vmap(seats))(jax.random.split(jax.random.key(0), 1000), jnp.asarray(size)))
    for number in range(1000):
        urn, share = urns(size[number], m), size[number] / size[number].sum(dtype=float)
        np.testing.assert_allclose(urn.mean(axis=0), share, atol=1e-9)
        ours, rand = (urn * (1 - urn)).sum(axis=0) / m**2, share * (1 - share) / m
        assert (ours <= rand + 1e-12).all()
        updates = rng.normal(size=(K, 4)) + rng.normal(size=4)
        means = urn @ updates
        spread = (urn @ (updates**2).sum(axis=1) - (means**2).sum(axis=1)).sum() / m**2
        assert spread <= (share @ (updates**2).sum(axis=1) - ((share @ updates) ** 2).sum()) / m + 1e-9
        gain.append(1 - ours.sum() / rand.sum())
        # The urns of these exact formulas are those that are drawn from.
        seen = np.stack([np.bincount(drawn[number, :, j], minlength=K) for j in range(m)]) / draws
        assert (np.abs(seen - urn) <= 6 * np.sqrt(urn * (1 - urn) / draws) + 1e-6).all()
    assert np.mean(gain) > 0.2


@pytest.mark.no_cover
@pytest.mark.parametrize("sizes", ["whole", "lognormal"])
def test_a_million_clients_are_in_exact_order(sizes):
    """Each seat's client holds a part of the seat's own stretch of the sizes in descending order, summed in float64."""
    rng, K, m = np.random.default_rng(1), 1_000_000, 100
    size = rng.integers(0, 1000, K) if sizes == "whole" else rng.lognormal(0, 2, K)
    size = size.astype(np.float32)
    selector = ClusteredSize(m)
    seats = []
    for t in range(5):
        clients = Clients(jnp.asarray(size), jnp.ones(K, bool))
        seats.append(pick(selector, round_keys(0, t), (), clients, lambda key, asked: jnp.zeros(K)).selection.clients)
    order = np.argsort(-size, kind="stable")
    ends = np.empty(K)
    ends[order] = np.cumsum(size[order], dtype=float)
    ends *= m / ends.max()
    mass = size / size.sum(dtype=float) * m
    for row in np.asarray(seats):
        assert (size[row] > 0).all()
        assert (ends[row] > np.arange(m) - 1e-4).all()
        assert (ends[row] - mass[row] < np.arange(m) + 1 + 1e-4).all()


def test_clients_who_are_away_are_in_no_urn():
    seats, weights = rounds(ClusteredSize(2), (5, 9, 1, 4), available=[True, False, True, True], draws=2000)
    assert set(seats.ravel().tolist()) == {0, 2, 3}
    unbiased(seats, weights, np.array([0.5, 0, 0.1, 0.4]))


@pytest.mark.slow  # one of them is in make test, with the table of strategies
@pytest.mark.parametrize(("m", "K"), [(3, 10), (12, 5)])
def test_it_keeps_the_laws(m, K):
    assert "unbiased" in check_selector(ClusteredSize(m), K)[-1]


def test_wrong_parameters_are_named():
    with pytest.raises(ValueError, match="ClusteredSize: m must be at least 1, got 0"):
        ClusteredSize(0)
