"""FedAU: its authors' loop in NumPy, the closed form of what it estimates, and seats that a client has twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Clients, Full, PowerOfChoice, Rand, Report, Unbiased, pick, round_keys


@jax.jit
def scan(selector, available, size):
    """Rounds with these clients there [T, K]; the memory after each, and the seats."""

    def one_round(state, now):
        t, here = now
        keys = round_keys(0, t)
        selection = pick(selector, keys, state, Clients(size, here), lambda key, asked: jnp.ones(size.shape)).selection
        after = selector.observe(state, selection, Report(jnp.full(selection.clients.shape, jnp.nan)))
        return after, (after, selection)

    times = jnp.arange(available.shape[0], dtype=jnp.int32)
    return jax.lax.scan(one_round, selector.init(size.shape[0]), (times, available))[1]


def dense(selection, K):
    """The weight of each client in each round, and how many seats it had."""
    clients, weights = np.asarray(selection.clients), np.asarray(selection.weights, float)
    total, seats = np.zeros((len(clients), K)), np.zeros((len(clients), K), int)
    for t, (row, weight) in enumerate(zip(clients, weights, strict=True)):
        np.add.at(total[t], row[weight > 0], weight[weight > 0])
        np.add.at(seats[t], row[weight > 0], 1)
    return total, seats


def authors_weights(participation, cutoff):
    """omega_n of each participant in each round, as the authors' code goes through the rounds; 0 for the others."""
    T, N = participation.shape
    idle, intervals, omega = [0] * N, [[] for _ in range(N)], np.zeros((T, N))
    for t in range(T):
        for n in range(N):
            if participation[t, n]:
                omega[t, n] = np.mean(intervals[n]) if intervals[n] else 1.0
                intervals[n].append(idle[n] + 1)
                idle[n] = 0
            else:
                idle[n] += 1
                if idle[n] >= cutoff:
                    intervals[n].append(idle[n])
                    idle[n] = 0
    return omega


@pytest.mark.parametrize("cutoff", [1, 3, 7, 1000])
@pytest.mark.parametrize("selector", [Full(), Rand(3), PowerOfChoice(2, 4)], ids=["full", "rand", "pow-d"])
def test_the_weights_are_those_of_the_authors_loop(selector, cutoff):
    rng = np.random.default_rng(cutoff)
    size = np.array([3, 1, 4, 1, 5, 9, 2])
    available = rng.random((300, 7)) < np.array([1, 0.9, 0.7, 0.5, 0.3, 0.1, 0.02])
    available[40:60] = False  # nobody
    _, selection = scan(Unbiased(selector, cutoff), jnp.asarray(available), jnp.asarray(size))
    weight, seats = dense(selection, 7)
    if isinstance(selector, Full):
        np.testing.assert_array_equal(seats > 0, available)
    np.testing.assert_allclose(weight, size / size.sum() * authors_weights(seats > 0, cutoff), rtol=1e-5)


def test_a_client_in_two_seats_has_its_weight_once():
    _, selection = scan(Unbiased(Rand(4)), jnp.ones((50, 2), bool), jnp.array([3, 1]))
    weights, clients = np.asarray(selection.weights), np.asarray(selection.clients)
    for row, weight in zip(clients, weights, strict=True):
        for k in (0, 1):
            assert np.ptp(weight[row == k]) == 0 if (row == k).any() else True
    weight, seats = dense(selection, 2)
    assert (seats.sum(axis=1) == 4).all()
    np.testing.assert_allclose(weight, [0.75, 0.25] * authors_weights(seats > 0, 50), rtol=1e-5)


@pytest.mark.parametrize("cutoff", [2, 10, 10_000])
def test_omega_estimates_one_over_pi(cutoff):
    """Of independent participation the mean interval is E min(G, cutoff) = (1 - (1 - pi)^cutoff) / pi, G geometric."""
    rng, T = np.random.default_rng(7), 40_000
    pi = np.array([0.05, 0.1, 0.3, 0.5, 0.8, 1.0])
    state, selection = scan(Unbiased(Full(), cutoff), jnp.asarray(rng.random((T, 6)) < pi), jnp.ones(6))
    expected = (1 - (1 - pi) ** cutoff) / pi
    number, total = np.asarray(state.number[-1]), np.asarray(state.total[-1])
    error = np.sqrt((1 - pi) / pi**2 / number)  # that of an interval which is not cut is larger
    assert (np.abs(total / number - expected) <= 4 * error + 1e-9).all()
    np.testing.assert_array_equal(total + np.asarray(state.away[-1]), T)
    if cutoff == 10_000:  # then the mean weight of a client is its share: 1 / 6
        late = dense(selection, 6)[0][T // 2 :].mean(axis=0)
        np.testing.assert_allclose(late, 1 / 6, rtol=5 * np.sqrt((1 - pi) / pi / T).max() * 2)
