"""K-Vib against its formula in float64, round by round; exact probabilities; silence."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.draws import agree, on_a_line, optimal, rounds, seated, unbiased

from fedpick import Clients, KVib, Report, Selection, check_selector, pick, round_keys


def formula(share, squares, largest, *, m, rounds, regularization=0.1):
    """pi_k of the paper from sums of (p_k norm)^2 / pi_k and the largest p_k norm."""
    K = len(share)
    theta = min(1, (K / (rounds * m)) ** (1 / 3))
    gamma = regularization * largest**2 * K / (theta * m) if largest > 0 else 1.0
    return (1 - theta) * optimal(np.sqrt(squares + gamma), m) + theta * m / K


def test_thirty_rounds_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    K, m, T = 9, 3, 200
    size = rng.integers(1, 50, K)
    share, norms = size / size.sum(), rng.lognormal(0, 1.5, K)
    selector, clients = KVib(m, T), Clients(jnp.asarray(size), jnp.ones(K, bool))
    state, squares, largest = selector.init(K), np.zeros(K), 0.0
    for t in range(30):
        expected = formula(share, squares, largest, m=m, rounds=T)
        selection = pick(selector, round_keys(0, t), state, clients, lambda key, asked: jnp.zeros(K)).selection
        seats = np.asarray(selection.clients)
        assert len(set(seats.tolist())) == m
        np.testing.assert_allclose(selection.weights, share[seats] / expected[seats], rtol=1e-4)
        noisy = (norms * rng.lognormal(0, 0.3, K))[seats]
        state = selector.observe(state, selection, Report(jnp.zeros(m), norm=jnp.asarray(noisy, jnp.float32)))
        np.add.at(squares, seats, (share[seats] * noisy) ** 2 / expected[seats])
        largest = max(largest, (share[seats] * noisy).max())
    assert expected.max() > 2 * expected.min(), "the norms should have told"


@pytest.mark.no_cover
@pytest.mark.parametrize("size", [(1, 2, 3, 4), (1, 2, 3, 4, 5), (40, 3, 3, 1, 7)], ids=str)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_who_is_selected_after_a_round(size, m):
    K = len(size)
    share = np.array(size) / sum(size)
    selector = KVib(m, 300)
    seats = jnp.arange(m, dtype=jnp.int32)
    weights, norms = np.array([0.7, 2.0, 0.4])[:m], np.array([3.0, 0.1, 9.0])[:m]
    state = selector.observe(
        selector.init(K),
        Selection(seats, jnp.asarray(weights, jnp.float32)),
        Report(jnp.zeros(m), norm=jnp.asarray(norms, jnp.float32)),
    )
    squares = np.concatenate([share[:m] * weights * norms**2, np.zeros(K - m)])
    expected = formula(share, squares, (share[:m] * norms).max(), m=m, rounds=300)
    drawn, weights = rounds(selector, size, state=state)
    agree(seated(drawn), on_a_line(expected))
    unbiased(drawn, weights, share)


def test_before_the_first_round_everybody_is_as_likely():
    drawn, weights = rounds(KVib(2, 100), (1, 2, 3, 4))
    agree(seated(drawn), on_a_line(np.full(4, 0.5)))
    unbiased(drawn, weights, np.array([1, 2, 3, 4]) / 10)


def test_shares_count_when_they_are_used():
    """The same memory with the sizes of another round: omega_k is p_k times what is remembered."""
    selector, state = (
        KVib(2, 100),
        KVib(2, 100).init(4)._replace(square=jnp.array([4.0, 1.0, 0.0, 2.0]), largest=jnp.array([2.0, 1.0, 0.0, 1.0])),
    )
    for size in ((1, 1, 1, 1), (1, 9, 5, 1)):
        share = np.array(size) / sum(size)
        expected = formula(share, share * [4, 1, 0, 2], (share * [2, 1, 0, 1]).max(), m=2, rounds=100)
        seats, weights = rounds(selector, size, state=state, draws=200)
        np.testing.assert_allclose(weights, (share / expected)[seats], rtol=1e-4)


@pytest.mark.parametrize("norm", [np.nan, -1.0])
def test_a_seat_that_says_no_norm_teaches_nothing(norm):
    selector = KVib(2, 100)
    selection = Selection(jnp.array([1, 3]), jnp.array([0.5, 0.5]))
    state = selector.observe(selector.init(4), selection, Report(jnp.zeros(2), norm=jnp.array([norm, 2.0])))
    np.testing.assert_allclose(state.square, [0, 0, 0, 2])
    np.testing.assert_allclose(state.largest, [0, 0, 0, 2])


def test_norms_of_any_size_leave_numbers():
    selector, K = KVib(2, 100), 4
    clients = Clients(jnp.ones(K, jnp.int32), jnp.ones(K, bool))
    for norm in (np.inf, 3e38, 1e-38, 0.0):
        state = selector.init(K)
        for t in range(20):
            selection = pick(selector, round_keys(0, t), state, clients, lambda key, asked: jnp.zeros(K)).selection
            assert np.isfinite(np.asarray(selection.weights)).all()
            assert (np.asarray(selection.weights) > 0).all()
            state = selector.observe(state, selection, Report(jnp.zeros(2), norm=jnp.full(2, norm)))


def test_a_state_of_another_federation_is_refused():
    with pytest.raises(ValueError, match="KVib: K must be 3 as in size, got a state of 4"):
        rounds(KVib(2, 100), (1, 2, 3), state=KVib(2, 100).init(4), draws=1)


@pytest.mark.slow  # one of them is in make test, with the table of strategies
@pytest.mark.parametrize("selector", [KVib(3, 50), KVib(1, 1000, regularization=1.0)], ids=str)
def test_it_keeps_the_laws(selector):
    assert "unbiased" in check_selector(selector)[-1]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 0, "rounds": 9}, "m must be at least 1, got 0"),
        ({"m": 1, "rounds": 0}, r"rounds must be at least 1 and below 2\*\*31, got 0"),
        ({"m": 1, "rounds": 9, "regularization": 0.0}, "regularization must be above 0 and finite, got 0.0"),
    ],
)
def test_wrong_parameters_are_named(parameters, says):
    with pytest.raises(ValueError, match=f"KVib: {says}"):
        KVib(**parameters)
