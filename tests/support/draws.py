"""Many first rounds of a strategy, and probabilities to hold them to."""

from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Clients, pick, round_keys

DRAWS = 100_000


def rounds(selector, size, losses=None, state=None, available=True, draws=DRAWS):
    """The seats [draws, m] and their weights of so many first rounds."""
    K = len(size)
    clients = Clients(jnp.asarray(size), jnp.broadcast_to(jnp.asarray(available), K))
    state = selector.init(K) if state is None else state
    losses = jnp.full(K, jnp.nan) if losses is None else jnp.asarray(losses, jnp.float32)
    seats, weights = _rounds(selector, state, clients, losses, draws)
    return np.asarray(seats), np.asarray(weights, float)


@partial(jax.jit, static_argnums=4)
def _rounds(selector, state, clients, losses, draws):
    def first(t):
        return pick(selector, round_keys(11, t), state, clients, lambda key, asked: losses).selection

    return jax.vmap(first)(jnp.arange(draws, dtype=jnp.int32))


def agree(outcomes, probability):
    """Each outcome's count within five standard deviations of its expectation; the impossible never."""
    assert sum(probability.values()) == pytest.approx(1)
    counts = Counter(outcomes)
    draws = sum(counts.values())
    assert set(counts) <= {outcome for outcome, p in probability.items() if p > 0}
    for outcome, p in probability.items():
        assert abs(counts[outcome] - draws * p) <= 5 * sqrt(draws * p * (1 - p)) + 1e-6, (outcome, counts[outcome], p)


def seated(seats):
    """Each row of seats as the sorted clients, empty seats left out."""
    return [tuple(k for k in row if k >= 0) for row in np.sort(seats, axis=1).tolist()]


def unbiased(seats, weights, share):
    """The mean weight of each client is its share, within four standard errors."""
    total = np.zeros((len(seats), len(share)))
    for seat in range(seats.shape[1]):
        filled = weights[:, seat] > 0
        total[filled, seats[filled, seat]] += weights[filled, seat]
    off = np.abs(total.mean(axis=0) - share)
    assert (off <= 4 * total.std(axis=0) / sqrt(len(seats)) + 1e-6).all(), (total.mean(axis=0), share)


def on_a_line(probability):
    """P(set) of Madow's systematic draw: the points u, u + 1, ... on the clients laid end to end, for every u."""
    ends = np.cumsum(probability)
    borders = np.unique(np.concatenate([[0.0, 1.0], ends % 1]))
    found = defaultdict(float)
    for low, high in pairwise(borders):
        if high - low > 1e-12:
            points = (low + high) / 2 + np.arange(round(ends[-1]))
            found[tuple(np.searchsorted(ends, points, side="right").tolist())] += high - low
    return dict(found)


def optimal(u, m):
    """The optimal inclusion probabilities by the formula of the paper (Chen et al. 2022), over all of its l."""
    u = np.asarray(u, float)
    order, n = np.argsort(u, kind="stable"), len(u)
    if n <= m:
        return np.ones(n)
    ordered = u[order]
    sums = np.cumsum(ordered)
    fits = [i for i in range(n - m + 1, n + 1) if (m + i - n) * ordered[i - 1] <= sums[i - 1] * (1 + 1e-12)]
    below = max(fits)
    probability = np.ones(n)
    probability[order[:below]] = (m + below - n) * ordered[:below] / sums[below - 1]
    return probability


def urns(size, m):
    """r[j, k] of clustered sampling by size, poured urn by urn as its authors do."""
    left = np.asarray(size, float) / np.sum(size) * m
    order = np.argsort(-left, kind="stable")
    found, j = np.zeros((m, len(left))), 0
    for k in order:
        while left[k] > 1e-12:
            room = 1 - found[j].sum()
            if room <= 1e-12 and j < m - 1:
                j += 1
                continue
            poured = min(room, left[k]) if j < m - 1 else left[k]
            found[j, k] += poured
            left[k] -= poured
    return found
