"""The moves, against plain sorting in NumPy, on every shape of input that hypothesis thinks of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedpick import sampling

FLOATS = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, float("inf"), -float("inf")])
keys = st.integers(0, 2**31 - 1).map(jax.random.key)


def floats(elements=FLOATS):
    return hnp.arrays(np.float32, st.integers(1, 12), elements=elements)


@given(floats(), st.integers(0, 13))
def test_earliest_takes_the_d_smallest_and_never_the_infinite(arrival, d):
    mask = np.asarray(sampling.first_k_mask(jnp.asarray(arrival), d))
    runs = arrival < np.inf
    assert mask.sum() == min(d, runs.sum())
    assert not mask[~runs].any()
    np.testing.assert_array_equal(np.sort(arrival[mask]), np.sort(arrival[runs])[: mask.sum()])


@given(keys, floats(), st.data())
def test_largest_and_top_take_the_highest_of_the_eligible(key, score, data):
    eligible = data.draw(hnp.arrays(bool, len(score)))
    n = data.draw(st.integers(1, len(score)))
    mask = np.asarray(sampling.top_k_mask(key, jnp.asarray(score), jnp.asarray(eligible), n))
    clients, filled = map(np.asarray, sampling.top_k(key, jnp.asarray(score), jnp.asarray(eligible), n))
    assert len(set(clients[filled].tolist())) == filled.sum()
    for chosen in (np.flatnonzero(mask), clients[filled]):
        assert len(chosen) == min(n, eligible.sum())
        assert eligible[chosen].all()
        np.testing.assert_array_equal(np.sort(score[chosen]), np.sort(score[eligible])[::-1][: len(chosen)][::-1])


@given(floats(), st.data(), st.integers(-1, 14))
def test_the_nth_smallest_is_that_of_a_sort(values, data, n):
    among = data.draw(hnp.arrays(bool, len(values)))
    values[data.draw(hnp.arrays(bool, len(values)))] = np.nan
    ranked = np.sort(values[among & ~np.isnan(values)])
    found = float(sampling.nth_smallest(jnp.asarray(values), jnp.asarray(among), n))
    if not len(ranked):
        assert np.isnan(found)
    else:
        assert found == ranked[min(max(n, 1), len(ranked)) - 1]


@given(st.integers(0, 100), st.integers(0, 10_000))
def test_a_portion_is_the_whole_part_of_an_exact_product(percent, n):
    assert int(sampling.portion(percent / 100, n)) == percent * n // 100


@settings(max_examples=40)
@given(keys, floats(st.floats(0, 1e6, width=32)), st.integers(1, 20))
def test_draws_fall_only_on_weight(key, weight, m):
    drawn = np.asarray(sampling.draw(key, jnp.asarray(weight), m))
    assert ((drawn >= 0) & (drawn < len(weight))).all() or not weight.any()
    assert (weight[drawn] > 0).all() or not weight.any()


@pytest.mark.parametrize("K", [1, 2, 3, 16, 17, 1000])
def test_draw_reaches_every_client_of_any_number(K):
    drawn = sampling.draw(jax.random.key(0), jnp.ones(K, jnp.float32), 20 * K)
    assert set(np.asarray(drawn).tolist()) == set(range(K))


def test_uniforms_are_fine_where_a_race_of_a_million_is_decided():
    smallest = np.sort(sampling.uniforms(jax.random.key(0), (1_000_000,)))[:1000]
    assert smallest[0] > 0
    assert len(np.unique(smallest)) >= 998
    usual = np.sort(jax.random.uniform(jax.random.key(0), (1_000_000,), jnp.float32))[:1000]
    assert len(np.unique(usual)) < 960, "the usual grid would do, and `uniforms` could go"


def test_the_front_runners_of_a_million_go_by_weight():
    """Half the clients weigh three times as much: of the first to arrive, three in four must be theirs."""
    weight = jnp.where(jnp.arange(1_000_000) % 2 == 0, jnp.float32(3), jnp.float32(1))
    mask = np.asarray(jax.jit(sampling.race)(jax.random.key(1), weight, 1000))
    assert mask.sum() == 1000
    assert abs(mask[::2].sum() - 750) < 5 * np.sqrt(1000 * 0.75 * 0.25)
    drawn = np.asarray(sampling.draw(jax.random.key(2), weight, 1000))
    assert abs((drawn % 2 == 0).sum() - 750) < 5 * np.sqrt(1000 * 0.75 * 0.25)


def test_uniforms_and_exponentials_have_their_moments():
    u = np.asarray(sampling.uniforms(jax.random.key(3), (1_000_000,)), np.float64)
    e = np.asarray(sampling.exponentials(jax.random.key(4), (1_000_000,)), np.float64)
    assert 0 < u.min() <= u.max() < 1
    assert 0 < e.min() <= e.max() < np.inf
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 1e6)
    assert abs(e.mean() - 1) < 5e-3
    assert abs((e**2).mean() - 2) < 5 * np.sqrt(20 / 1e6)
