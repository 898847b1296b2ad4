"""Inclusion probabilities, systematic and stratified draws, against the formulas in float64 and scipy's optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize
from support.draws import agree, on_a_line, optimal, urns

from fedpick import sampling

WEIGHTS = st.floats(2.0**-20, 2.0**20, width=32)
keys = st.integers(0, 2**31 - 1).map(jax.random.key)


def arrays(elements=WEIGHTS):
    return hnp.arrays(np.float32, st.sampled_from([1, 2, 5, 12]), elements=elements)


@given(arrays(), st.integers(0, 13))
def test_inclusion_probabilities_are_those_of_the_formula(weight, n):
    got = np.asarray(sampling.inclusion_probabilities(jnp.asarray(weight), n))
    expected = optimal(weight, n) if n else np.zeros(len(weight))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("passes", [None, 4])
def test_the_probability_that_public_solvers_put_at_33(passes):
    got = sampling.inclusion_probabilities(jnp.array([1.0, 1.0, 1.0, 100.0]), 2, passes)
    np.testing.assert_allclose(got, [1 / 3, 1 / 3, 1 / 3, 1], rtol=1e-6)


def test_no_other_probabilities_have_a_smaller_variance():
    """An optimiser that knows nothing of the formula finds nothing better, and what it finds is ours."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        K, n = 6, int(rng.integers(1, 6))
        w = rng.lognormal(0, 1.5, K)
        got = np.asarray(sampling.inclusion_probabilities(jnp.asarray(w, jnp.float32), n), float)
        best = minimize(
            lambda pi, w=w: (w**2 / pi).sum() / (w**2).sum(),
            np.full(K, n / K),
            jac=lambda pi, w=w: -(w**2) / pi**2 / (w**2).sum(),
            bounds=[(1e-4, 1)] * K,
            constraints={"type": "eq", "fun": lambda pi, n=n: pi.sum() - n, "jac": np.ones_like},
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-13},
        )
        assert (w**2 / got).sum() / (w**2).sum() <= best.fun * (1 + 1e-5)
        np.testing.assert_allclose(got, best.x, atol=5e-3)


def rescaled(w, n, times):
    """The authors' approximation: capped shares, of which those below 1 are rescaled so many times."""
    pi = np.minimum(1, n * w / w.sum())
    for _ in range(times):
        below = pi < 1
        if not below.any():
            break
        factor = (n - len(w) + below.sum()) / pi[below].sum()
        pi[below] = np.minimum(1, factor * pi[below])
        if factor <= 1:
            break
    return pi


@pytest.mark.parametrize("passes", [0, 1, 4])
@pytest.mark.parametrize("base", [1.1, 2.0, 5.0])
def test_a_few_passes_are_the_authors_approximation_with_the_rest_spread(passes, base):
    w = base ** -np.arange(30.0)
    expected = rescaled(w, 15, passes)
    left = 15 - expected.sum()
    expected += (1 - expected) * left / (1 - expected).sum()
    got = np.asarray(sampling.inclusion_probabilities(jnp.asarray(w, jnp.float32), 15, passes))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    assert got.sum() == pytest.approx(15, abs=1e-4)
    if base == 5.0:
        assert left > 0.1, "the passes should not have been enough here"


@pytest.mark.parametrize("passes", [None, 4])
def test_weights_of_any_size_leave_probabilities(passes):
    for weight in ([np.inf, 1.0, 2.0, 3.0], [3e38, 3e38, 3e38, 2e-38], [0.0, 2e-38, 2e-38, 2e-38], [0.0] * 4):
        got = np.asarray(sampling.inclusion_probabilities(jnp.asarray(weight, jnp.float32), 2, passes))
        assert ((got >= 0) & (got <= 1)).all()
        assert (got[np.array(weight) == 0] == 0).all()
        assert got.sum() == pytest.approx(min(2, np.count_nonzero(weight)), abs=1e-5)


def test_a_million_inclusion_probabilities_sum_to_the_number():
    weight = np.random.default_rng(0).lognormal(0, 3, 1_000_000).astype(np.float32)
    got = np.asarray(sampling.inclusion_probabilities(jnp.asarray(weight), 1000), float)
    assert got.sum() == pytest.approx(1000, rel=1e-6)
    np.testing.assert_allclose(got, optimal(weight, 1000), rtol=1e-5)


@pytest.mark.parametrize(
    "probability", [(0.5, 0.5, 0.25, 0.75), (0.2, 0.9, 0.9), (0.1, 0.2, 0.3, 0.4), (0.7, 0, 0.6, 0.6, 0.1)], ids=str
)
def test_systematic_draws_are_those_of_every_u(probability):
    n = round(sum(probability))
    draw = jax.vmap(lambda key: sampling.systematic(key, jnp.asarray(probability, jnp.float32), n))
    clients, filled = draw(jax.random.split(jax.random.key(0), 100_000))
    assert np.asarray(filled).all()
    agree(map(tuple, np.asarray(clients).tolist()), on_a_line(probability))


@pytest.mark.no_cover
@settings(max_examples=60)
@given(keys, arrays(WEIGHTS | st.just(0.0)), st.sampled_from([1, 3, 12]))
def test_systematic_draws_are_distinct_and_as_many_as_the_probabilities_sum_to(key, weight, m):
    probability = sampling.inclusion_probabilities(jnp.asarray(weight), m)
    clients, filled = map(np.asarray, sampling.systematic(key, probability, m))
    drawn = clients[filled].tolist()
    assert len(set(drawn)) == len(drawn) == min(m, np.count_nonzero(weight))
    assert (weight[drawn] > 0).all()
    certain = np.flatnonzero(np.asarray(probability) == 1)
    assert set(certain.tolist()) <= set(drawn)


def test_of_a_million_every_stretch_has_its_part():
    """A systematic draw has from any stretch of clients the sum of their probabilities, up or down to whole."""
    rng = np.random.default_rng(0)
    weight = rng.lognormal(0, 1, 1_000_000).astype(np.float32)
    probability = sampling.inclusion_probabilities(jnp.asarray(weight), 1000)
    clients, filled = map(np.asarray, sampling.systematic(jax.random.key(1), probability, 1000))
    assert filled.all()
    assert len(set(clients.tolist())) == 1000
    so_far = np.concatenate([[0], np.cumsum(np.asarray(probability, float))])
    ends = np.sort(rng.integers(0, 1_000_001, (500, 2)), axis=1)
    ordered = np.sort(clients)
    for low, high in ends:
        number = np.searchsorted(ordered, high) - np.searchsorted(ordered, low)
        assert abs(number - (so_far[high] - so_far[low])) < 1.01


def in_stratum(weight, m, drawn):
    """Whether each seat's client holds a part of the seat's stratum, give or take what float32 cannot tell."""
    order = np.argsort(-weight, kind="stable")
    ends = np.empty(len(weight))
    ends[order] = np.cumsum(weight[order], dtype=float) / weight.sum(dtype=float) * m
    starts = ends - weight / weight.sum(dtype=float) * m
    return (ends[drawn] > np.arange(m) - 1e-5) & (starts[drawn] < np.arange(1, m + 1) + 1e-5)


@settings(max_examples=60)
@given(keys, arrays(WEIGHTS | st.just(0.0) | st.just(1.0)), st.sampled_from([1, 2, 7]))
def test_each_stratified_draw_is_from_its_own_stratum(key, weight, m):
    if weight.any():
        drawn = np.asarray(sampling.stratified(key, jnp.asarray(weight), m))
        assert (weight[drawn] > 0).all()
        assert in_stratum(weight, m, drawn).all()


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["whole", "lognormal"])
def test_stratified_draws_of_many_clients_have_the_probabilities_of_their_strata(kind):
    """More clients than are sorted: found digit by digit, and then among their equals."""
    rng, K, m, draws = np.random.default_rng(3), 1500, 5, 2000
    weight = (rng.integers(0, 20, K) if kind == "whole" else rng.lognormal(0, 2, K)).astype(np.float32)
    batches = jax.random.split(jax.random.key(4), (40, draws // 40))
    draw = jax.vmap(lambda key: sampling.stratified(key, jnp.asarray(weight), m))
    drawn = np.asarray(jax.jit(lambda keys: jax.lax.map(draw, keys))(batches)).reshape(draws, m)
    seen = np.stack([np.bincount(drawn[:, j], minlength=K) for j in range(m)]) / draws
    urn = urns(weight, m)
    assert seen[urn < 1e-6].sum() == 0
    often = urn > 5 / draws
    z = ((seen - urn) / np.sqrt(np.maximum(urn * (1 - urn), 1e-12) / draws))[often]
    assert np.abs(z).max() < 6
    assert abs(np.sqrt((z**2).mean()) - 1) < 0.12
    rare = urn[:, ~often.any(axis=0)].sum()
    assert abs(seen[:, ~often.any(axis=0)].sum() - rare) < 5 * np.sqrt(rare / draws) + 1e-6


def test_stratified_draws_survive_weights_of_any_size():
    for weight in ([3e38] * 3, [2e-38, 2e-38, 0.0], [np.inf, 1.0, 1e-30]):
        for many in (1, 1000):
            tiled = np.tile(np.float32(weight), many)
            drawn = np.asarray(sampling.stratified(jax.random.key(0), jnp.asarray(tiled), 4))
            assert ((drawn >= 0) & (drawn < len(tiled))).all()
            assert (tiled[drawn] > 0).all()
