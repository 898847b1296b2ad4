"""FedCS against algorithm 3 of its paper, written down in NumPy as it is printed there."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.seats import agree, draws, sets

from fedpick import Clients, Cooldown, FedCS, LawBrokenError, Rand, check_selector, pick, pytree, round_keys
from fedpick.checks.harness import Trial
from fedpick.checks.laws import check_seats
from fedpick.sim import Local, Quadratic, QuadraticModel, simulate

nan = float("nan")
f32 = np.float32


def federation(train, upload, size=None, available=None):
    train, upload = np.asarray(train, f32), np.asarray(upload, f32)
    size = np.ones(len(train)) if size is None else size
    available = np.ones(len(train), bool) if available is None else available
    total = jnp.asarray(train + upload)
    return Clients(jnp.asarray(size, jnp.float32), jnp.asarray(available), total, jnp.asarray(upload))


def algorithm_3(train, upload, deadline, pool):
    """The paper's while loop: it goes on through all candidates, also after one has missed the deadline."""
    left, chosen, theta = list(pool), [], f32(0)
    while left:
        added = [upload[k] + max(f32(0), train[k] - theta) for k in left]
        x = left.pop(int(np.argmin(added)))
        reached = theta + upload[x] + max(f32(0), train[x] - theta)
        if reached < deadline:
            theta = reached
            chosen.append(x)
    return chosen


@jax.jit
def first_round(selector, clients, seed):
    return pick(selector, round_keys(seed, 0), (), clients, lambda key, asked: asked)


def seats_of(selector, clients, seed=0):
    picked = first_round(selector, clients, seed)
    seats = np.asarray(picked.selection.clients)
    return seats[seats >= 0].tolist(), np.asarray(picked.candidates)


# Multiples of 1/8, whose sums are exact, so that a tie in one formula is a tie in the other.
seconds = st.integers(0, 400).map(lambda n: n / 8)


@pytest.mark.no_cover
@settings(max_examples=150)
@given(st.data(), st.integers(1, 10), st.floats(0.5, 300, width=32))
def test_the_order_is_that_of_algorithm_3(data, number, deadline):
    train, upload = data.draw(hnp.arrays(f32, (2, 10), elements=seconds))
    there = data.draw(st.permutations(range(10)))[:number]
    _assume_no_ties(train, upload, there)
    clients = federation(train, upload, available=np.isin(np.arange(10), there))
    expected = algorithm_3(train, upload, deadline, there) or [min(there, key=lambda k: train[k] + upload[k])]
    assert seats_of(FedCS(10, 10, deadline), clients)[0] == expected
    assert seats_of(FedCS(4, 10, deadline), clients)[0] == expected[:4], "the limit cuts the same list"


def _assume_no_ties(train, upload, there):
    """With a tie the order is a matter of lots."""
    left, theta = list(there), 0.0
    while left:
        added = np.array([upload[k] + max(0.0, train[k] - theta) for k in left])
        assume((added == added.min()).sum() == 1)
        theta += added.min()
        left.pop(int(added.argmin()))


@settings(max_examples=100)
@given(st.data(), st.floats(0.5, 200, width=32), st.integers(0, 99))
def test_the_estimated_round_keeps_the_deadline_if_anybody_can(data, deadline, seed):
    train, upload = data.draw(hnp.arrays(f32, (2, 9), elements=seconds))
    available = data.draw(hnp.arrays(bool, 9))
    selector = FedCS(4, 6, deadline)
    found, candidates = seats_of(selector, federation(train, upload, available=available), seed)
    assert candidates.sum() == min(6, available.sum())
    assert set(found) <= set(np.flatnonzero(candidates))
    if not available.any():
        assert not found
        return
    fits = (train + upload)[candidates] < deadline
    theta = 0.0
    for k in found:
        theta = max(theta, train[k]) + upload[k]
    if fits.any():
        assert theta < deadline
        rest = [k for k in np.flatnonzero(candidates) if k not in found]
        full = len(found) == selector.m
        assert full or all(max(theta, train[k]) + upload[k] >= deadline for k in rest), "nobody else fits"
    else:
        assert len(found) == 1
        assert (train + upload)[found[0]] == (train + upload)[candidates].min()


def test_the_greedy_order_takes_at_least_as_many_as_any_other_when_all_train_equally_long():
    """Then the problem is to take the shortest uploads, and the greedy choice is the best one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        upload = rng.integers(1, 40, 6) / 8
        most = max(n for n in range(7) for some in itertools.combinations(upload, n) if n == 0 or 2 + sum(some) < 9.0)
        found, _ = seats_of(FedCS(6, 6, 9.0), federation(np.full(6, 2.0), upload))
        assert len(found) == max(most, 1)


def test_a_client_that_trains_while_another_sends_costs_only_its_upload():
    """3 + 1 seconds; then 5 + 0.5, of which 1.5 are left to wait; then 4 + 1 is ready: 4, 5.5, 6.5 seconds."""
    clients = federation((4.0, 3.0, 5.0, 30.0), (1.0, 1.0, 0.5, 1.0))
    assert seats_of(FedCS(4, 4, 6.6), clients)[0] == [1, 0, 2]
    assert seats_of(FedCS(4, 4, 5.0), clients)[0] == [1]
    assert seats_of(FedCS(4, 4, 100.0), clients)[0] == [1, 0, 2, 3]


def test_an_unknown_duration_counts_as_the_median_of_the_candidates():
    clients = Clients(jnp.ones(4), jnp.ones(4, bool), jnp.array([9.0, nan, 2.0, 5.0]), jnp.array([1.0, 1.0, nan, 1.0]))
    # Client 1 takes 5 seconds as client 3 does, client 2 sends for one: ready after 2, then 5, 6 and 9.
    found, _ = seats_of(FedCS(4, 4, 9.5), clients)
    assert found[0] == 2
    assert sorted(found[1:3]) == [1, 3]
    assert found[3] == 0
    nobody_knows = clients._replace(expected_duration=jnp.full(4, nan), upload_duration=jnp.full(4, nan))
    assert len(seats_of(FedCS(3, 4), nobody_knows)[0]) == 3


def test_equals_are_chosen_equally_often():
    """All four are alike, three are asked and two fit: every pair is equally likely."""
    seats, weights = draws(FedCS(3, 3, 3.5), federation(np.ones(4), np.ones(4), size=(1, 2, 3, 4)))
    agree(sets(seats), {frozenset(pair): 1 / 6 for pair in itertools.combinations(range(4), 2)})
    filled = np.where(seats >= 0, seats + 1, 0)
    np.testing.assert_allclose(weights, filled / filled.sum(axis=1, keepdims=True), rtol=1e-6)


def test_every_set_of_candidates_is_equally_likely():
    """The quickest two of three candidates of five: enumerated over the ten sets of candidates."""
    train = (5.0, 1.0, 4.0, 2.0, 3.0)
    expected = dict.fromkeys(map(frozenset, itertools.combinations(range(5), 2)), 0.0)
    for pool in itertools.combinations(range(5), 3):
        expected[frozenset(sorted(pool, key=lambda k: train[k])[:2])] += 1 / 10
    agree(sets(draws(FedCS(2, 3), federation(train, np.full(5, 0.125)))[0]), expected)


def test_infinite_durations_are_the_slowest():
    clients = federation((1.0, np.inf, 2.0), (0.5, 0.5, np.inf))
    assert seats_of(FedCS(3, 3, 1e6), clients)[0] == [0]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 3, "d": 2}, "FedCS: d must be at least m=3, got 2"),
        ({"m": 3, "d": 4, "deadline": 0.0}, "FedCS: deadline must be above 0, got 0.0"),
        ({"m": 3, "d": None}, "FedCS: d must be a whole number, got None"),
    ],
)
def test_a_bad_parameter_is_named(parameters, says):
    with pytest.raises(ValueError, match=says):
        FedCS(**parameters)


def test_a_strategy_that_leaves_seats_empty_says_so():
    """Of seats that could be filled; one seat has to be."""

    class Fills(FedCS):
        fills_seats = True

    with pytest.raises(LawBrokenError, match=r"law 7 .*2 clients are available, but 1 of 3 seats filled"):
        check_seats(Trial(pytree(Fills)(m=3, d=6, deadline=1.5), 10, 0))
    check_seats(Trial(FedCS(m=3, d=6, deadline=1.5), 10, 0))


@pytest.mark.slow
def test_the_laws_hold_where_a_single_client_keeps_the_deadline():
    check_selector(FedCS(m=3, d=6, deadline=1.5), static=("d",))


@pytest.mark.parametrize("selector", [FedCS(m=2, d=4), Cooldown(FedCS(m=2, d=4), rounds=1)], ids=["fedcs", "cooldown"])
def test_what_the_candidates_are_asked_is_counted(selector):
    """As in its row of the table of strategies: 2d + 2m messages, 2m w + 2d scalars; asking takes no time."""
    result = simulate(Quadratic(K=6, v=2), QuadraticModel(), selector, Local(1, 1, 1e-3), rounds=2)
    costs, w = {name: values[0].tolist() for name, values in result.costs.items()}, result.model_bytes
    assert result.records["polled"].tolist() == [[4, 4]]
    assert costs["messages"] == [12, 12]
    assert costs["bytes_down"] == [2 * w, 2 * w]
    assert costs["bytes_up"] == [2 * (w + 4) + 4 * 8] * 2
    assert costs["poll_samples"] == [0, 0]
    rand = simulate(Quadratic(K=6, v=2), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), rounds=2)
    np.testing.assert_array_equal(result.costs["seconds"], rand.costs["seconds"])
