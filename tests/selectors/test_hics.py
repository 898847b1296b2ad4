"""HiCS-FL against the paper's formulas in NumPy and SciPy."""

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import fedpick
from fedpick import Clients, HiCS, Report, check_selector, pick, round_keys
from fedpick.selectors.hics import Heads, entropies

DRAWS = 20_000


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, 0))
def first_rounds(selector, state, clients, t):
    return pick(selector, round_keys(7, t), state, clients, None).selection


def chances(head, size, clusters, *, temperature, scale, gamma):
    """Each client's probability in one draw, by the paper."""
    entropy = np.array([scipy.stats.entropy(scipy.special.softmax(b / temperature)) for b in head])
    unit = head / np.linalg.norm(head, axis=1, keepdims=True)
    distance = np.arccos(np.clip(unit @ unit.T, -1, 1)) + scale * np.abs(entropy[:, None] - entropy)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0)
    label = fcluster(linkage(squareform(distance), "ward"), clusters, "maxclust")
    names = sorted(set(label))
    weight = np.exp(gamma * np.array([entropy[label == c].mean() for c in names]))
    found = np.zeros(len(head))
    for c, p in zip(names, weight / weight.sum(), strict=True):
        found[label == c] = p * size[label == c] / size[label == c].sum()
    return found


def seat_probabilities(chance, m):
    """P(k has a seat) when draws are repeated until m are distinct, by enumeration."""
    found = np.zeros(len(chance))
    for order in permutations(range(len(chance)), m):
        p, left = 1.0, 1.0
        for k in order:
            p *= chance[k] / left
            left -= chance[k]
        found[list(order)] += p
    return found


@pytest.mark.parametrize(("t", "clusters"), [(0, None), (60, None), (60, 5), (0, 2), (100, None), (150, None)])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_paper(seed, t, clusters):
    rng = np.random.default_rng(seed)
    K, m = 7, 3
    head = (rng.normal(size=(K, 5)) * 10.0 ** rng.uniform(-4, -2, (K, 1))).astype(np.float32)
    size = rng.integers(1, 30, K)
    selector = HiCS(m, rounds=100, classes=5, clusters=clusters)
    state = Heads(jnp.asarray(head), jnp.ones(K, bool), jnp.int32(t))
    clients = Clients(jnp.asarray(size), jnp.ones(K, bool))
    selection = first_rounds(selector, state, clients, jnp.arange(DRAWS, dtype=jnp.int32))
    np.testing.assert_allclose(selection.weights, 1 / m, rtol=1e-6)
    gamma = 4 * max(1 - t / 100, 0)
    chance = chances(head.astype(float), size, clusters or m, temperature=0.0025, scale=10.0, gamma=gamma)
    expected = seat_probabilities(chance, m)
    seen = (np.asarray(selection.clients)[:, :, None] == np.arange(K)).any(axis=1).mean(axis=0)
    assert (np.abs(seen - expected) <= 5 * np.sqrt(expected * (1 - expected) / DRAWS) + 1e-6).all(), (seen, expected)


def test_balanced_labels_come_first_and_later_no_more():
    """Ten clients of all labels, thirty of one label each."""
    rng = np.random.default_rng(0)
    head = np.concatenate([rng.normal(size=(10, 10)) * 1e-4, 0.02 * (np.eye(10)[np.arange(30) % 10] - 0.1)])
    head += rng.normal(size=head.shape) * 1e-5
    clients, shares = Clients(jnp.ones(40), jnp.ones(40, bool)), []
    for t in (0, 100):
        state = Heads(jnp.asarray(head, jnp.float32), jnp.ones(40, bool), jnp.int32(t))
        chosen = first_rounds(HiCS(4, rounds=100), state, clients, jnp.arange(500, dtype=jnp.int32)).clients
        shares.append((np.asarray(chosen) < 10).mean())
    assert shares[0] > 0.95
    assert shares[1] < 0.9


def test_everybody_has_a_seat_once_before_the_clusters():
    selector = HiCS(4, rounds=50, classes=3)
    clients, state = Clients(jnp.arange(1, 11), jnp.ones(10, bool)), selector.init(10)
    rng, order = np.random.default_rng(1), []
    for t in range(3):
        selection = pick(selector, round_keys(0, t), state, clients, None).selection
        assert len(set(selection.clients.tolist())) == 4
        order += selection.clients.tolist()
        head = rng.normal(size=(4, 3)).astype(np.float32)
        head[t] = np.nan  # silent, and not asked again for that
        state = selector.observe(state, selection, Report(jnp.zeros(4), head=jnp.asarray(head)))
    assert sorted(order[:10]) == list(range(10))
    assert order[:10] != list(range(10))
    assert state.round == 3


def test_a_silent_client_is_not_taken_for_a_balanced_one():
    """softmax(0) has the largest entropy of all; who never sent an update has the mean of the others instead."""
    head = jnp.asarray(np.concatenate([np.zeros((1, 4)), 0.02 * np.eye(4), np.full((1, 4), 1e-5)]), jnp.float32)
    known, present = jnp.arange(6) > 0, jnp.arange(6) != 2
    found = np.asarray(entropies(head, known, present, jnp.float32(0.0025)))
    assert found[5] == pytest.approx(np.log(4))
    assert found[0] == pytest.approx(found[[1, 3, 4, 5]].mean())
    assert found[1] == pytest.approx(scipy.stats.entropy(scipy.special.softmax([8.0, 0, 0, 0])), rel=1e-4)


def test_many_clients_are_clustered_in_groups():
    rng = np.random.default_rng(0)
    K = 2000
    head = 0.02 * (np.eye(10)[np.arange(K) % 10] - 0.1)
    head[::10] = rng.normal(size=(K // 10, 10)) * 1e-4  # one in ten has all labels
    state = Heads(jnp.asarray(head, jnp.float32), jnp.ones(K, bool), jnp.int32(0))
    clients = Clients(jnp.ones(K), jnp.ones(K, bool))
    selector = HiCS(5, rounds=100, groups=24)
    chosen = np.asarray(first_rounds(selector, state, clients, jnp.arange(100, dtype=jnp.int32)).clients)
    assert (chosen % 10 == 0).mean() > 0.8
    assert len(np.unique(chosen)) > 100


@pytest.mark.slow  # one of them is in make test, with the table of strategies
def test_laws():
    check_selector(HiCS(m=3, rounds=20, classes=5, groups=6), static=("classes", "groups"))


def test_by_name_and_errors():
    assert fedpick.strategy("hics-fl", m=3, rounds=9) == HiCS(3, rounds=9)
    with pytest.raises(ValueError, match=r"HiCS: temperature must be finite and above 0, got 0\.0"):
        HiCS(3, rounds=9, temperature=0.0)
    with pytest.raises(ValueError, match="HiCS: clusters must be at least 1, got 0"):
        HiCS(3, rounds=9, clusters=0)
    with pytest.raises(ValueError, match="HiCS: rounds must be at least 1, got 0"):
        HiCS(3, rounds=0)
