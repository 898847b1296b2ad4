"""REFL's choice against enumeration, and against what its authors' code does to the last clients of a list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.seats import agree, draws, in_turn, sets

from fedpick import REFL, Clients, Report, Selection, pick, round_keys

nan = float("nan")


def federation(leaving, available=None):
    K = len(leaving)
    available = np.ones(K, bool) if available is None else available
    return Clients(jnp.ones(K), jnp.asarray(available), leaving=jnp.asarray(leaving, bool))


def observed(selector, K, rounds):
    state = selector.init(K)
    for clients in rounds:
        seats = jnp.array([*clients, *[-1] * (selector.m - len(clients))])
        weights = jnp.where(seats >= 0, 1.0, 0.0)
        state = selector.observe(state, Selection(seats, weights), Report(jnp.where(weights > 0, 1.0, nan)))
    return state


def groups(leaving, available, rested):
    K = range(len(leaving))
    return [
        [k for k in K if available[k] and rested[k] and leaving[k]],
        [k for k in K if available[k] and rested[k] and not leaving[k]],
        [k for k in K if available[k] and not rested[k]],
    ]


CASES = [
    ((0, 0, 0, 0), (1, 1, 1, 1), []),
    ((1, 0, 1, 1), (1, 1, 1, 1), []),
    ((1, 0, 1, 0), (0, 1, 1, 1), [[2], [3]]),
    ((1, 1, 0, 0, 1), (1, 1, 1, 1, 1), [[0], [], [], [], [4]]),  # 0 has rested by now, and 4 has not
    ((1, 1, 0, 0, 1), (1, 0, 1, 1, 1), [[0], [], [], [4]]),
    ((0, 1, 0, 1, 0), (1, 1, 0, 0, 1), [[0], [1], [4]]),  # all who are there are resting
]


@pytest.mark.no_cover
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_set_of_seats_has_its_probability(case, m):
    leaving, available, rounds = case
    selector = REFL(m)
    last = {k: t for t, clients in enumerate(rounds) for k in clients}
    rested = [k not in last or len(rounds) - last[k] >= 5 for k in range(len(leaving))]
    clients = federation(leaving, np.array(available, bool))
    seats, weights = draws(selector, clients, observed(selector, len(leaving), rounds))
    agree(sets(seats), in_turn(groups(leaving, available, rested), m))
    np.testing.assert_allclose(weights, (seats >= 0) / (seats >= 0).sum(axis=1, keepdims=True), rtol=1e-6)


def test_no_seat_is_lost_where_the_clients_about_to_leave_just_fill_them():
    """The authors' code takes at most one less than the list is long, and so leaves a seat empty here."""
    seats, _ = draws(REFL(3), federation((1, 1, 1, 0)))
    assert set(sets(seats)) == {frozenset({0, 1, 2})}


def test_all_who_trained_rest_also_those_of_the_first_round():
    """The authors' code removes clients from the list that it walks along, and so passes over every second one; it
    also takes 'trained in round 0' for 'never trained'."""
    selector, clients = REFL(3), federation((1, 1, 1, 0, 0, 0))
    for wait in range(4):
        seats, _ = draws(selector, clients, observed(selector, 6, [[0, 1, 2], *[[]] * wait]))
        assert set(sets(seats)) == {frozenset({3, 4, 5})}
    seats, _ = draws(selector, clients, observed(selector, 6, [[0, 1, 2], *[[]] * 4]))
    assert set(sets(seats)) == {frozenset({0, 1, 2})}


@jax.jit
def play(selector, available, leaving):
    def one(state, now):
        t, there, goes = now
        clients = Clients(jnp.ones(there.shape[0]), there, leaving=goes)
        selection = pick(selector, round_keys(1, t), state, clients, lambda key, asked: asked).selection
        report = Report(jnp.where(selection.weights > 0, jnp.float32(1), jnp.nan))
        return selector.observe(state, selection, report), selection.clients

    times = jnp.arange(available.shape[0], dtype=jnp.int32)
    return jax.lax.scan(one, selector.init(available.shape[1]), (times, available, leaving))[1]


@settings(max_examples=30)
@given(st.data(), st.integers(1, 6))
def test_nobody_comes_back_early_while_somebody_else_is_there(data, rest):
    available = data.draw(hnp.arrays(bool, (12, 8), elements=st.sampled_from([True, True, False])))
    leaving = data.draw(hnp.arrays(bool, (12, 8)))
    seats = np.asarray(play(REFL(2, jnp.int32(rest)), jnp.asarray(available), jnp.asarray(leaving)))
    last = np.full(8, -100)
    for t, row in enumerate(seats):
        seated = row[row >= 0]
        assert len(seated) == min(2, available[t].sum())
        rested = available[t] & (t - last >= rest)
        early = [k for k in seated if not rested[k]]
        assert not early or set(np.flatnonzero(rested)) <= set(seated)
        if (rested & leaving[t]).sum() >= 2:
            assert leaving[t][seated].all()
        last[seated] = t


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 0}, "REFL: m must be at least 1, got 0"),
        ({"m": 2, "rest": 0}, r"REFL: rest must be at least 1 and below 2\*\*31, got 0"),
    ],
)
def test_a_bad_parameter_is_named(parameters, says):
    with pytest.raises(ValueError, match=says):
        REFL(**parameters)
