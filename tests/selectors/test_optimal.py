"""Optimal client sampling: exact probabilities and weights, silence, candidates, norms of every kind."""

from collections import defaultdict
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest
from support.draws import agree, on_a_line, optimal, rounds, seated, unbiased

from fedpick import OptimalSampling, check_selector

NORMS = {"unlike": (1.0, 0.2, 3.0, 0.7, 2.0), "one of all": (0.1, 0.1, 0.1, 50.0, 0.1), "alike": (2.0,) * 5}


@pytest.mark.no_cover
@pytest.mark.parametrize("size", [(1, 2, 3, 4), (1, 2, 3, 4, 5), (40, 3, 3, 1, 7)], ids=str)
@pytest.mark.parametrize("norms", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_who_is_selected_and_with_what_weight(size, norms, m):
    share, norms = np.array(size) / sum(size), np.array(norms[: len(size)])
    probability = optimal(share * np.maximum(norms, 0.01 * norms.mean()), m)
    seats, weights = rounds(OptimalSampling(m), size, norms)
    agree(seated(seats), {tuple(sorted(chosen)): p for chosen, p in on_a_line_in_order(probability).items()})
    np.testing.assert_allclose(weights, (share / probability)[seats], rtol=1e-4)
    unbiased(seats, weights, share)


def on_a_line_in_order(probability):
    """Those who are certain have their seat; the others lie on the line."""
    certain = tuple(np.flatnonzero(probability > 1 - 1e-9).tolist())
    others = np.where(probability > 1 - 1e-9, 0, probability)
    return {certain + chosen: p for chosen, p in on_a_line(others).items()}


def test_the_candidate_whom_public_solvers_give_a_probability_of_33():
    seats, weights = rounds(OptimalSampling(2), [1] * 4, [1.0, 1.0, 1.0, 100.0])
    assert (seats == 3).any(axis=1).all()
    np.testing.assert_allclose(np.sort(weights, axis=1), np.broadcast_to([0.25, 0.75], weights.shape), rtol=1e-5)


def test_d_candidates_are_drawn_uniformly_and_stand_for_everybody():
    size, norms, m, d = (1, 2, 3, 4, 5), np.array(NORMS["unlike"]), 2, 3
    share, expected = np.array(size) / sum(size), defaultdict(float)
    for pool in combinations(range(5), d):
        within = share[list(pool)] * norms[list(pool)]
        probability = np.zeros(5)
        probability[list(pool)] = optimal(within, m)
        for chosen, p in on_a_line_in_order(probability).items():
            expected[tuple(sorted(chosen))] += p / 10
    seats, weights = rounds(OptimalSampling(m, d), size, norms)
    agree(seated(seats), expected)
    unbiased(seats, weights, share)
    traced = rounds(OptimalSampling(m, jnp.int32(d)), size, norms, draws=100)
    np.testing.assert_array_equal(traced[0], seats[:100])


def test_the_silent_have_no_seat_and_the_others_stand_for_them():
    norms = [1.0, np.nan, 2.0, 0.5]
    seats, weights = rounds(OptimalSampling(2), (1, 5, 3, 4), norms)
    assert set(seats.ravel().tolist()) == {0, 2, 3}
    unbiased(seats, weights, np.array([1, 0, 3, 4]) / 8)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "norms", [(0, 0, 0, 0), (0, 1, 2, 0), (-3, 1, 1, 1), (np.inf, 1, 2, 3), (1e-30, 1e-38, 1, 3e38)], ids=str
)
def test_no_norm_leaves_anybody_out_or_seats_empty(exact, norms):
    size = (1, 2, 3, 4)
    seats, weights = rounds(OptimalSampling(2, exact=exact, floor=0.1), size, norms)
    assert np.isfinite(weights).all()
    assert (weights > 0).all()
    assert (np.diff(np.sort(seats, axis=1), axis=1) > 0).all()
    unbiased(seats, weights, np.array(size) / 10)


def test_no_more_candidates_than_seats_all_send_with_their_share():
    seats, weights = rounds(
        OptimalSampling(3), (1, 2, 3, 4), [9.0, 1.0, 0.0, 5.0], available=[True, False, True, False]
    )
    assert (np.sort(seats, axis=1) == [-1, 0, 2]).all()
    np.testing.assert_allclose(np.sort(weights, axis=1)[0], [0, 0.25, 0.75], rtol=1e-6)


@pytest.mark.parametrize("exact", [True, False])
def test_the_probabilities_are_the_paper_s_and_never_worse_than_uniform_ones(exact):
    """Read off the weights; the variance is that of the sum of the updates if they are drawn independently."""
    rng, K, m = np.random.default_rng(0), 12, 4
    for _ in range(30):
        size, norms = rng.integers(1, 100, K), rng.lognormal(0, 1.5, K)
        share = size / size.sum()
        seats, weights = rounds(OptimalSampling(m, exact=exact, floor=1e-6), size, norms, draws=400)
        best = optimal(share * norms, m)
        np.testing.assert_allclose(weights, (share / best)[seats], rtol=1e-3)
        assert ((share * norms) ** 2 * (1 / best - K / m)).sum() <= 1e-12


@pytest.mark.slow  # one of them is in make test, with the table of strategies
@pytest.mark.parametrize("selector", [OptimalSampling(3), OptimalSampling(2, 5, exact=False)], ids=str)
def test_it_keeps_the_laws(selector):
    assert "unbiased" in check_selector(selector)[-1]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 0}, "m must be at least 1, got 0"),
        ({"m": 3, "d": 2}, "d must be at least m=3, got 2"),
        ({"m": 3, "exact": 1}, "exact must be True or False, got 1"),
        ({"m": 3, "floor": 0.0}, "floor must be above 0 and at most 1, got 0.0"),
    ],
)
def test_wrong_parameters_are_named(parameters, says):
    with pytest.raises(ValueError, match=f"OptimalSampling: {says}"):
        OptimalSampling(**parameters)
