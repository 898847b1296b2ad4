"""Clustered sampling 2: its urns are enumerated with SciPy's own clustering, and 10^5 draws must agree."""

from collections import Counter, defaultdict
from functools import partial
from itertools import permutations, product
from math import floor, prod, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import fedpick
from fedpick import Clients, ClusteredSimilarity, Report, Selection, check_selector, pick, round_keys, sampling
from fedpick.ledger import fits

DRAWS = 100_000


def seats(selector, size, sketches, draws=DRAWS):
    """Seats [draws, m] of first rounds with these sketches in memory."""
    clients, state = Clients(jnp.array(size), jnp.ones(len(size), bool)), jnp.asarray(sketches, jnp.float32)
    selection = first_rounds(selector, state, clients, jnp.arange(draws, dtype=jnp.int32))
    np.testing.assert_allclose(selection.weights, 1 / selector.m)
    return np.asarray(selection.clients)


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, 0))
def first_rounds(selector, state, clients, t):
    return pick(selector, round_keys(3, t), state, clients, None).selection


def angles(sketches):
    """Distances of the paper in float64, with fedpick's reading of a client that was never seen."""
    found = np.zeros((len(sketches),) * 2)
    for (k, u), (other, v) in product(enumerate(np.asarray(sketches, float)), repeat=2):
        if u.any() and v.any():
            found[k, other] = np.arccos(np.clip(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)), -1, 1))
        elif u.any() or v.any():
            found[k, other] = np.pi / 2
    np.fill_diagonal(found, 0)
    return found


def urns(size, sketches, m):
    """Every way to pour and its probability: m distributions over the clients, by SciPy's linkage and fcluster."""
    mass = m * np.asarray(size, float) / sum(size)
    whole = [k for k, x in enumerate(mass) for _ in range(floor(x + 1e-12))]
    mass = mass - np.floor(mass + 1e-12)
    left = [k for k, x in enumerate(mass) if x > 1e-9]
    if not left:
        return [([{k: 1.0} for k in whole], 1.0)]
    tree = linkage(squareform(angles(sketches)[np.ix_(left, left)]), "ward") if len(left) > 1 else None
    labels = np.array([1])
    if tree is not None:
        masses = list(mass[left])
        for row in tree:  # the height of a merge becomes its mass, as in the authors' code
            masses.append(masses[int(row[0])] + masses[int(row[1])])
            row[2] = masses[-1]
        labels = fcluster(tree, 1 + 1e-9, "distance")
    clusters = [[left[i] for i in np.flatnonzero(labels == label)] for label in sorted(set(labels))]
    clusters.sort(key=lambda members: (round(mass[members].sum(), 9), -min(members)))
    number = m - len(whole)
    light, heavy = clusters[: len(clusters) - number], clusters[len(clusters) - number :]
    ways = list(product(*[list(permutations(members)) for members in light]))
    found = []
    for way in ways:
        poured = [dict.fromkeys([], 0.0) | {k: mass[k] for k in members} for members in heavy]
        at = 0
        for k in [k for members in way for k in members]:
            rest = mass[k]
            while rest > 1e-12:
                room = 1 - sum(poured[at].values())
                part = min(room, rest)
                if part > 1e-12:
                    poured[at][k] = poured[at].get(k, 0.0) + part
                rest -= part
                at += rest > 1e-12
        found.append(([{k: 1.0} for k in whole] + poured, 1 / len(ways)))
    return found


FEDERATIONS = {
    "equal": (1, 1, 1, 1),
    "unequal": (4, 2, 3, 5),
    "five": (3, 1, 4, 1, 5),
    "five equal": (2, 2, 2, 2, 2),
    "one above 1/m": (1, 9, 2, 1, 3),
    "one is nearly all": (1, 30, 2, 1, 3),
}
SEEN = {"all": (1, 1, 1, 1, 1), "one never": (1, 0, 1, 1, 1)}


@pytest.mark.no_cover
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("size", FEDERATIONS.values(), ids=FEDERATIONS)
@pytest.mark.parametrize("m", [2, 3])
def test_every_probability(size, seen, m):
    sketches = np.random.default_rng(len(size)).normal(size=(len(size), 4)) * np.array(seen)[: len(size), None]
    expected = defaultdict(float)
    for poured, p in urns(size, sketches, m):
        for chosen in product(*poured):
            expected[chosen] += p * prod(urn[k] for urn, k in zip(poured, chosen, strict=True))
    assert sum(expected.values()) == pytest.approx(1)
    counts = Counter(map(tuple, seats(ClusteredSimilarity(m, sketch_size=4), size, sketches).tolist()))
    for chosen in counts | expected:
        p = expected[chosen]
        assert abs(counts[chosen] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 0.5, (chosen, counts[chosen], p)


@pytest.mark.parametrize("size", [(5, 1, 1, 1), (7, 1, 1, 1), (1, 2, 3, 4)])
def test_unbiased_also_where_one_client_holds_more_than_a_seat(size):
    """The authors' code overfills the urn of a client with p_k > 1/m."""
    chosen = seats(ClusteredSimilarity(2, sketch_size=4), size, np.zeros((4, 4)))
    mean = np.bincount(chosen.ravel(), minlength=4) / chosen.size
    share = np.array(size) / sum(size)
    assert (np.abs(mean - share) <= 4 * np.sqrt(share * (1 - share) / chosen.size)).all()
    for k, mass in enumerate(2 * share):
        assert ((chosen == k).sum(axis=1) >= floor(mass)).all()


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_weights_vary_no_more_than_those_of_rand(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    size, sketches = rng.integers(1, 50, 8), rng.normal(size=(8, 4)) * (rng.random((8, 1)) < 0.8)
    share, draws = size / size.sum(), 4000
    chosen = seats(ClusteredSimilarity(3, sketch_size=4), size, sketches, draws)
    weight = (chosen[:, :, None] == np.arange(8)).sum(axis=1) / 3
    rand = share * (1 - share) / 3
    assert (weight.var(axis=0) <= rand * (1 + 6 * sqrt(2 / draws) + 0.05) + 1e-4).all()
    np.testing.assert_allclose(weight.mean(axis=0), share, atol=5 * sqrt(0.25 / 3 / draws))


def test_alike_clients_share_a_seat():
    """Three directions, m = 3: every round has one client of each."""
    rng = np.random.default_rng(0)
    kind = np.arange(9) % 3
    sketches = np.eye(3)[kind] * 5 + rng.normal(size=(9, 3)) * 0.1
    chosen = seats(ClusteredSimilarity(3, sketch_size=3), [1] * 9, sketches, 500)
    assert (np.sort(kind[chosen], axis=1) == [0, 1, 2]).all()


@pytest.mark.no_cover
def test_many_clients_are_clustered_in_groups():
    rng = np.random.default_rng(0)
    kind = np.arange(3000) % 4
    sketches = np.eye(4)[kind] * 5 + rng.normal(size=(3000, 4)) * 0.1
    sketches[:600] = 0  # never seen
    size = rng.integers(1, 20, 3000)
    chosen = seats(ClusteredSimilarity(10, sketch_size=4, groups=32), size, sketches, 500)
    seats_of = np.stack([((chosen >= 600) & (kind[chosen] == k)).sum(axis=1) for k in range(4)], axis=1)
    share = np.array([size[(np.arange(3000) >= 600) & (kind == k)].sum() for k in range(4)]) / size.sum()
    np.testing.assert_allclose(seats_of.mean(axis=0), 10 * share, atol=0.1)
    assert (seats_of.var(axis=0) < 0.5 * 10 * share * (1 - share)).all(), "rand's variance, halved"
    half = size[np.arange(3000) % 2 == 0].sum() / size.sum()
    assert (chosen % 2 == 0).mean() == pytest.approx(half, abs=4 * 0.5 / sqrt(5000))


def test_memory_holds_the_last_sketch_of_each_client():
    selector = ClusteredSimilarity(2, sketch_size=2)
    state = selector.init(3)
    assert state.nbytes == 3 * 2 * 4
    seated = Selection(jnp.array([2, 0]), jnp.array([0.5, 0.5]))
    sketch = jnp.array([[1.0, 2.0], [jnp.nan, 1.0]])
    state = selector.observe(state, seated, Report(jnp.zeros(2), sketch=sketch))
    np.testing.assert_array_equal(state, [[0, 0], [0, 0], [1, 2]])


@pytest.mark.slow  # one of them is in make test, with the table of strategies
def test_laws():
    check_selector(ClusteredSimilarity(m=3, sketch_size=3, groups=6), static=("sketch_size", "groups"))


def test_by_name_and_errors():
    assert fedpick.strategy("clustered-similarity", m=3) == ClusteredSimilarity(3)
    with pytest.raises(ValueError, match="ClusteredSimilarity: sketch_size must be at least 1, got 0"):
        ClusteredSimilarity(3, sketch_size=0)
    with pytest.raises(ValueError, match="ClusteredSimilarity: K must be 4 as in size, got a state of 3"):
        fits(ClusteredSimilarity(2, sketch_size=2), jnp.zeros((3, 2)), Clients(jnp.ones(4), jnp.ones(4, bool)))


@pytest.mark.parametrize("G", [2, 3, 7, 30])
def test_ward_is_that_of_scipy(G):
    rng = np.random.default_rng(G)
    for _ in range(5):
        condensed = rng.random(G * (G - 1) // 2)  # any dissimilarities: the triangle inequality need not hold
        tree = sampling.ward(jnp.asarray(squareform(condensed), jnp.float32), jnp.ones(G))
        expected = linkage(condensed, "ward")
        np.testing.assert_allclose(tree.height, expected[:, 2], rtol=1e-5)
        mass = rng.random(G)
        masses = list(mass)
        for number in range(1, G + 1):
            agree(sampling.cut_by_number(tree, number), fcluster(expected, number, "maxclust"))
        for row in expected:
            masses.append(masses[int(row[0])] + masses[int(row[1])])
            row[2] = masses[-1]
        for most in (0.5, 1.0, 2.0, 100.0):
            agree(
                sampling.cut_by_mass(tree, jnp.asarray(mass, jnp.float32), most), fcluster(expected, most, "distance")
            )


def test_ward_of_groups_goes_on_where_ward_of_their_members_stands():
    """Points, some of them many times: the tree of the distinct ones with their numbers has the same heights."""
    rng = np.random.default_rng(4)
    points, times = rng.normal(size=(6, 3)), np.array([1, 4, 2, 3, 1, 5])
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    tree = sampling.ward(jnp.asarray(apart, jnp.float32), jnp.asarray(times, jnp.float32))
    everyone = linkage(np.repeat(points, times, axis=0), "ward")
    np.testing.assert_allclose(tree.height, everyone[-5:, 2], rtol=1e-5)


def test_ward_leaves_out_groups_of_nobody_and_breaks_ties_by_number():
    apart = np.array([[0, 9, 1, 1.0], [9, 0, 9, 9], [1, 9, 0, 1], [1, 9, 1, 0]], np.float32)
    tree = sampling.ward(jnp.asarray(apart), jnp.array([1.0, 0.0, 1.0, 1.0]))
    assert tree.into[:2].tolist() == [0, 0]
    assert tree.other[:2].tolist() == [2, 3]
    assert not np.isfinite(tree.height[2])
    assert sampling.cut_by_number(tree, 1).tolist() == [0, 1, 0, 0]


def agree(ours, theirs):
    """Two labellings are of the same clusters."""
    pairs = set(zip(np.asarray(ours).tolist(), theirs.tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
