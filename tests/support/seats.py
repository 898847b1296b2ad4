"""Many first rounds of a strategy from one state and one set of facts, and how often each set of seats came."""

from collections import Counter
from itertools import combinations
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np

from fedpick import pick, round_keys

DRAWS = 100_000


@jax.jit
def _rounds(selector, state, clients):
    def one(t):
        return pick(selector, round_keys(11, t), state, clients, lambda key, asked: asked).selection

    return jax.vmap(one)(jnp.arange(DRAWS, dtype=jnp.int32))


def draws(selector, clients, state=None):
    """Clients and weights of the seats, [draws, m] each."""
    state = selector.init(len(clients.size)) if state is None else state
    selection = _rounds(selector, state, clients)
    return np.asarray(selection.clients), np.asarray(selection.weights)


def agree(outcomes, probability):
    """Each outcome's count within five standard deviations of its expectation; the impossible never."""
    assert abs(sum(probability.values()) - 1) < 1e-9
    counts = Counter(outcomes)
    assert set(counts) <= {outcome for outcome, p in probability.items() if p > 0}
    for outcome, p in probability.items():
        assert abs(counts[outcome] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1e-6, (outcome, counts[outcome], p)


def sets(seats):
    """The seats of each draw as a set of clients; -1 is an empty seat."""
    codes, which = np.unique(np.sort(seats, axis=1), axis=0, return_inverse=True)
    made = [frozenset(row[row >= 0].tolist()) for row in codes]
    return [made[code] for code in which.ravel()]


def in_turn(groups, m):
    """P(set) of m seats that go to one group after the other, uniformly within the group that they do not all hold."""
    sure = frozenset()
    for group in groups:
        left = m - len(sure)
        if len(group) >= left:
            ways = list(combinations(sorted(group), left))
            return {sure | set(way): 1 / len(ways) for way in ways}
        sure |= set(group)
    return {sure: 1.0}
