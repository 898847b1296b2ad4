"""DivFL against a greedy search in plain NumPy, and against the best of all subsets."""

from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick
from fedpick import Clients, DivFL, Report, check_selector, pick, round_keys
from fedpick.selectors.divfl import Gradients, distances

K = 9


def select(selector, sketch, *, size=None, available=None, visited=None, t=0):
    number = len(sketch)
    size = np.arange(1, number + 1) if size is None else np.asarray(size)
    clients = Clients(jnp.asarray(size), jnp.ones(number, bool) if available is None else jnp.asarray(available))
    visited = jnp.ones(number, bool) if visited is None else jnp.asarray(visited)
    state = Gradients(jnp.asarray(sketch, jnp.float32), visited)
    return pick(selector, round_keys(0, t), state, clients, None).selection


def is_greedy(distance, chosen):
    """Whether each choice is the best that the authors' search has there, but for rounding."""
    nearest, left = np.full(len(distance), np.inf), set(range(len(distance)))
    for i in chosen:
        after = {i: np.minimum(nearest, distance[i]).sum() for i in left}
        if after[i] > min(after.values()) + 1e-4 * distance.sum() / len(distance):
            return False
        nearest, left = np.minimum(nearest, distance[i]), left - {i}
    return True


@given(st.integers(0, 10**6), st.sampled_from([2, 4, K]))
@settings(max_examples=40, deadline=None)
def test_greedy_is_that_of_numpy(seed, m):
    sketch = np.random.default_rng(seed).normal(size=(K, 4)).astype(np.float32)
    apart = np.linalg.norm(sketch[:, None].astype(float) - sketch, axis=2)
    selection = select(DivFL(m, sketch_size=4), sketch)
    assert is_greedy(apart, selection.clients.tolist())
    assert not is_greedy(apart, [int(np.argmax(apart.sum(axis=1)))])
    size = np.arange(1, K + 1)[np.asarray(selection.clients)]
    np.testing.assert_allclose(selection.weights, size / size.sum(), rtol=1e-6)


def test_the_decrease_is_at_least_1_less_1_over_e_of_the_best():
    for seed in range(30):
        sketch = np.random.default_rng(seed).normal(size=(K, 3)) ** 3
        apart = np.linalg.norm(sketch[:, None] - sketch, axis=2)
        start = apart.sum(axis=1).max()  # what the worst single client leaves: the sum before anybody is selected
        for m in (2, 3, 4):
            chosen = select(DivFL(m, sketch_size=3), sketch).clients.tolist()
            best = min(apart[list(some)].min(axis=0).sum() for some in combinations(range(K), m))
            assert start - apart[chosen].min(axis=0).sum() >= (1 - 1 / np.e) * (start - best) - 1e-4


def test_distances_are_exactly_0_between_copies():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(np.repeat(rng.normal(size=(20, 64)) * 1e-3, 2, axis=0), jnp.float32)
    found = np.asarray(distances(rows, rows))
    assert (found[np.arange(40), np.arange(40) ^ 1] == 0).all()
    exact = np.linalg.norm(np.asarray(rows, float)[:, None] - np.asarray(rows, float), axis=2)
    np.testing.assert_allclose(found, exact, atol=1e-4 * exact.max())


def test_everybody_has_a_seat_once_before_the_search():
    selector = DivFL(4, sketch_size=4)
    clients, state = Clients(jnp.arange(1, 11), jnp.ones(10, bool)), selector.init(10)
    rng, order = np.random.default_rng(1), []
    for t in range(3):
        selection = pick(selector, round_keys(0, t), state, clients, None).selection
        order += selection.clients.tolist()
        sketch = rng.normal(size=(4, 4))
        sketch[t] = np.nan  # silent, and not asked again for that
        state = selector.observe(state, selection, Report(jnp.zeros(4), sketch=jnp.asarray(sketch, jnp.float32)))
    assert sorted(order[:10]) == list(range(10))
    assert order[:10] != list(range(10))
    assert state.visited.all()
    apart = np.asarray(distances(state.sketch, state.sketch), float)
    selection = pick(selector, round_keys(0, 3), state, clients, None).selection
    assert is_greedy(apart, selection.clients.tolist())


def test_only_those_who_are_there_count():
    sketch = np.random.default_rng(5).normal(size=(K, 4))
    there = np.array([1, 0, 1, 1, 0, 1, 1, 0, 1], bool)
    apart = np.linalg.norm(sketch[there][:, None] - sketch[there], axis=2)
    selection = select(DivFL(3, sketch_size=4), sketch, available=there)
    number = np.cumsum(there) - 1
    assert is_greedy(apart, number[np.asarray(selection.clients)].tolist())
    few = select(DivFL(3, sketch_size=4), sketch, available=np.arange(K) == 4)
    assert few.clients.tolist() == [4, -1, -1]


def test_a_pool_of_many_clients():
    """300 clients of three kinds and m = 3: whatever the pool, one of each."""
    rng = np.random.default_rng(0)
    kind = np.arange(300) % 3
    sketch = 10 * np.eye(3)[kind] + rng.normal(size=(300, 3))
    pools = set()
    for t in range(10):
        chosen = np.asarray(select(DivFL(3, sketch_size=3, pool=40), sketch, t=t).clients)
        assert sorted(kind[chosen]) == [0, 1, 2]
        pools.add(tuple(chosen))
    assert len(pools) > 1
    new = np.arange(300) >= 298
    chosen = np.asarray(select(DivFL(3, sketch_size=3, pool=40), sketch, visited=~new).clients)
    assert set(chosen[:2]) == {298, 299}


@pytest.mark.slow  # one of them is in make test, with the table of strategies
def test_laws():
    check_selector(DivFL(m=3, sketch_size=16, pool=8), static=("sketch_size", "pool"))


def test_by_name_and_errors():
    assert fedpick.strategy("divfl", m=3) == DivFL(3)
    with pytest.raises(ValueError, match="DivFL: pool must be at least 1, got 0"):
        DivFL(3, pool=0)
