"""FedCor against the dense Gaussian process that it stands for, in NumPy and by automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick
from fedpick import Clients, FedCor, Report, check_selector, pick, round_keys
from fedpick.protocol import polled
from fedpick.selectors.fedcor import best, centre, gradient

K = 12


def follow(X, alpha, share, noise, chosen):
    """The authors' selection with the K by K covariance: each choice's score over the best one's, one after another."""
    S, left, ratios = X @ X.T + noise**2 * np.eye(len(X)), list(range(len(X))), []
    for k in chosen:
        scores = {k: alpha[k] * sum(share[i] * S[i, k] for i in left) / np.sqrt(S[k, k]) for k in left}
        best, spread = max(scores.values()), max(abs(score) for score in scores.values())
        ratios.append((best - scores[k]) / spread)
        S = S - np.outer(S[:, k], S[k]) / S[k, k]
        left.remove(k)
    return np.array(ratios)


@given(st.integers(0, 10**6), st.sampled_from([2, 5, K]), st.sampled_from([0.01, 0.1, 1.0]))
@settings(max_examples=40, deadline=None)
def test_selection_is_that_of_dense_conditioning(seed, m, noise):
    rng = np.random.default_rng(seed)
    X, alpha, share = rng.normal(size=(K, 5)), rng.uniform(0.5, 1, K), rng.dirichlet(np.ones(K))
    arrays = (jnp.asarray(x, jnp.float32) for x in (X, alpha, share))
    chosen, filled = jax.jit(best, static_argnames="m")(*arrays, jnp.ones(K, bool), jnp.float32(noise), m=m)
    assert filled.all()
    short = follow(X, alpha, share, noise, chosen.tolist())
    assert (short[:5] <= 1e-5).all()
    assert (short <= 1e-2).all()  # beyond the rank of X the covariance is all noise, and float32 knows less of it


def test_those_who_are_away_are_left_out():
    rng = np.random.default_rng(0)
    X, alpha, there = rng.normal(size=(K, 5)), np.ones(K), np.arange(K) % 3 > 0
    share = there / there.sum()
    found = best(*(jnp.asarray(x, jnp.float32) for x in (X, alpha, share)), jnp.asarray(there), jnp.float32(0.1), m=10)
    number = np.cumsum(there) - 1
    assert (follow(X[there], alpha[there], share[there], 0.1, number[np.asarray(found[0])[:8]].tolist()) < 1e-4).all()
    assert found[1].tolist() == [True] * 8 + [False] * 2


def dense_loss(X, change, weight, noise):
    """The weighted negative log-likelihood of changes [K, h]."""
    S = X @ X.T + noise**2 * jnp.eye(len(X))

    def log(y):
        return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(len(X)), S)

    return -(weight * jax.vmap(log)(change.T)).sum()


@pytest.mark.no_cover
def test_gradient_is_that_of_the_dense_likelihood():
    rng = np.random.default_rng(1)
    for noise in (0.05, 0.3, 1.0):
        X, change, weight = rng.normal(size=(K, 5)), rng.normal(size=(K, 3)), np.array([1.0, 0.5, 0.25])

        S = X @ X.T + noise**2 * np.eye(K)
        logs = [scipy.stats.multivariate_normal.logpdf(y, np.zeros(K), S) for y in change.T]
        with jax.enable_x64(True):
            value, expected = jax.value_and_grad(dense_loss)(jnp.asarray(X), change, weight, noise)
        assert value == pytest.approx(-weight @ logs)
        found = gradient(*(jnp.asarray(x, jnp.float32) for x in (X, change, weight, noise)))
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_changes_are_centred_by_their_discounted_mean():
    change = jnp.array([[1.0, 2.0, jnp.nan], [3.0, jnp.nan, jnp.nan]])
    weight, centred = centre(change, jnp.array([2, 0, 0], jnp.int32), jnp.float32(0.5))
    np.testing.assert_allclose(weight, [0.25, 1, 0])
    mean = (0.25 * 1 + 1 * 2) / 1.25
    np.testing.assert_allclose(centred, [[1 - mean, 2 - mean, 0], [0, 0, 0]], rtol=1e-6)


def play(selector, losses, rounds, seed=0, number=K):
    """Rounds in which client k answers losses(t)[k]: who was asked, who was selected, and the states."""
    clients, state = Clients(jnp.ones(number), jnp.ones(number, bool)), selector.init(number)
    asked, chosen, states = [], [], [state]
    for t in range(rounds):
        answers = jnp.asarray(losses(t), jnp.float32)
        picked = pick(selector, round_keys(seed, t), state, clients, lambda key, some, a=answers: a)
        asked.append(int(polled(selector, picked.candidates).sum()))
        chosen.append(picked.selection.clients.tolist())
        state = selector.observe(state, picked.selection, Report(jnp.zeros(selector.m), polled=picked.losses))
        states.append(state)
    return asked, chosen, states


def test_who_is_polled_and_when_the_process_is_fitted():
    rng = np.random.default_rng(3)
    table = rng.normal(size=(20, K)).cumsum(axis=0)
    selector = FedCor(m=3, warmup=4, interval=5, first_steps=3, steps=2, dimension=4, history=6)
    asked, chosen, states = play(selector, lambda t: table[t], 16)
    assert asked == [K] * 5 + [0, 0, 0] + [K, K] + [0, 0, 0] + [K, K] + [0]
    assert all(len(set(seats)) == 3 for seats in chosen)
    fitted = [t for t in range(16) if (states[t + 1].embedding != states[t].embedding).any()]
    assert fitted == [4, 9, 14]
    assert [int(state.changes) for state in states] == [0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 6]
    assert states[-1].at.tolist() == [0, 1, 2, 3, 8, 13]
    for slot, t in enumerate([0, 1, 2, 3, 8, 13]):
        np.testing.assert_allclose(states[-1].change[:, slot], table[t + 1] - table[t], rtol=1e-5)
    expected = np.ones(K)
    for t in range(5, 9):
        if t < 8:  # round 8 selects uniformly
            expected[chosen[t]] *= 0.95
        np.testing.assert_allclose(states[t + 1].alpha, expected, rtol=1e-6)
    assert (np.asarray(states[10].alpha) == 1).all()


def test_fit_is_adam_on_the_dense_likelihood():
    """Three steps of Adam, written out, from the same start."""
    rng = np.random.default_rng(5)
    table = 0.3 * rng.normal(size=(4, K)).cumsum(axis=0)
    selector = FedCor(m=2, warmup=3, first_steps=3, noise=0.2, gamma=0.9, dimension=4, history=6)
    _, _, states = play(selector, lambda t: table[t], 4)
    change = np.diff(table, axis=0).T
    weight = 0.9 ** np.array([3.0, 2, 1])
    centred = change - (change * weight).sum(axis=1, keepdims=True) / weight.sum()

    with jax.enable_x64(True):
        X = np.asarray(states[0].embedding, float)
        first, second = np.zeros_like(X), np.zeros_like(X)
        for step in range(1, 4):
            g = np.asarray(jax.grad(dense_loss)(jnp.asarray(X), centred, weight, 0.2))
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            X = X - 0.01 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(states[-1].embedding, X, atol=1e-4)


def test_correlated_clients_share_a_seat():
    """Two halves whose losses move together: with two seats, one of each."""
    rng = np.random.default_rng(0)
    half = np.arange(K) % 2
    steps = 0.2 * rng.normal(size=(30, 2))[:, half] + 0.02 * rng.normal(size=(30, K))
    table = steps.cumsum(axis=0)
    selector = FedCor(m=2, warmup=12, interval=100, first_steps=400, beta=1.0, dimension=4)
    _, chosen, _ = play(selector, lambda t: table[t], 20)
    assert all(sorted(half[list(seats)]) == [0, 1] for seats in chosen[13:])


def test_discounts_spread_the_seats():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, K)).cumsum(axis=0)
    selector = FedCor(m=2, warmup=5, interval=100, first_steps=20, beta=0.7, dimension=4)
    _, chosen, _ = play(selector, lambda t: table[t], 30)
    assert len({k for seats in chosen[6:] for k in seats}) > 6


def test_silence_is_left_out_and_nothing_is_fitted_to_nothing():
    selector = FedCor(m=2, warmup=3, interval=3, first_steps=5, steps=5, dimension=4)
    silent = np.arange(K) < 4
    _, chosen, states = play(selector, lambda t: np.where(silent, np.nan, np.sin(t + np.arange(K))), 7)
    assert np.isfinite(states[-1].embedding).all()
    assert np.isnan(states[-1].change[:4]).all()
    for t in (0, 1, 2, 3, 5, 6):  # the rounds with a poll
        assert not silent[chosen[t]].any()
    _, _, states = play(selector, lambda t: np.full(K, np.nan), 5)
    np.testing.assert_array_equal(states[0].embedding, states[-1].embedding)
    _, _, states = play(selector, lambda t: np.full(K, 3e38 * (-1) ** t), 5)
    assert np.isfinite(states[-1].embedding).all()


@pytest.mark.slow  # one of them is in make test, with the table of strategies
def test_laws():
    selector = FedCor(m=3, warmup=2, interval=2, first_steps=4, steps=3, dimension=3, history=4)
    check_selector(selector, static=("dimension", "history"))


def test_by_name_and_errors():
    assert fedpick.strategy("fedcor", m=3) == FedCor(3)
    with pytest.raises(ValueError, match="FedCor: interval must be at least 2, got 1"):
        FedCor(3, interval=1)
    with pytest.raises(ValueError, match=r"FedCor: beta must be above 0 and at most 1, got 0\.0"):
        FedCor(3, beta=0.0)
