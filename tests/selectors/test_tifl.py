"""TiFL against enumeration, a stable sort, and what its public implementations get wrong."""

from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.seats import agree, draws, in_turn, sets

from fedpick import Clients, Report, Selection, TiFL, check_selector, pick, round_keys
from fedpick.selectors.tifl import tiers_of

nan = float("nan")


def federation(duration, size=None, available=None):
    K = len(duration)
    return Clients(
        jnp.asarray(np.ones(K) if size is None else size, jnp.float32),
        jnp.asarray(np.ones(K, bool) if available is None else available),
        jnp.asarray(duration, jnp.float32),
    )


def observed(selector, K, rounds):
    """The state after rounds of (clients, losses)."""
    state = selector.init(K)
    for clients, losses in rounds:
        weights = jnp.where(jnp.array(clients) >= 0, 1.0, 0.0)
        state = selector.observe(state, Selection(jnp.array(clients), weights), Report(jnp.array(losses, jnp.float32)))
    return state


def tiers_by_sorting(duration, size, T):
    """A stable argsort of those with data, cut at floor(t n / T)."""
    duration = np.asarray(duration, np.float32)
    able = np.flatnonzero(size)
    known = np.sort(duration[able][~np.isnan(duration[able])])
    median = known[(len(known) + 1) // 2 - 1] if len(known) else 0.0
    order = able[np.argsort(np.where(np.isnan(duration), median, duration)[able], kind="stable")]
    return [order[t * len(able) // T : (t + 1) * len(able) // T].tolist() for t in range(T)]


cut_in_tiers = jax.jit(tiers_of, static_argnums=2)
durations = st.one_of(st.sampled_from([0.5, 1.0, 2.0, nan]), st.floats(0, 1e6, width=32))


@settings(max_examples=60)
@given(st.data(), st.sampled_from([1, 12]), st.sampled_from([1, 2, 5]))
def test_tiers_are_those_of_a_stable_sort(data, K, T):
    duration = data.draw(hnp.arrays(np.float32, K, elements=durations))
    size = data.draw(hnp.arrays(np.int32, K, elements=st.integers(0, 2)))
    found = np.asarray(cut_in_tiers(jnp.asarray(duration), jnp.asarray(size > 0), T))
    expected = tiers_by_sorting(duration, size, T)
    assert [sorted(np.flatnonzero((found == t) & (size > 0)).tolist()) for t in range(T)] == [
        sorted(tier) for tier in expected
    ]
    # Equal numbers: a public implementation cuts six clients for four tiers into 2, 2, 2 and none.
    assert max(map(len, expected)) - min(map(len, expected)) <= 1


def test_tiers_of_many_clients_are_those_of_a_stable_sort():
    rng = np.random.default_rng(0)
    duration = np.round(rng.lognormal(size=5000), 2).astype(np.float32)
    duration[rng.random(5000) < 0.1] = nan
    found = np.asarray(tiers_of(jnp.asarray(duration), jnp.ones(5000, bool), 7))
    for t, tier in enumerate(tiers_by_sorting(duration, np.ones(5000), 7)):
        assert sorted(tier) == np.flatnonzero(found == t).tolist()


def expected_seats(clients, T, m, losses, credits):
    """P(set) by the paper's steps: rank the tiers that have credits, draw one, m of it, the nearest fill up."""
    size, there = np.asarray(clients.size), np.asarray(clients.available)
    tiers = tiers_by_sorting(clients.expected_duration, size, T)
    mean = [np.mean(said) if (said := [losses[k] for k in tier if k in losses]) else np.inf for tier in tiers]
    paying = [t for t in range(T) if credits[t] > 0]
    n = len(paying)
    probability = {}
    for t in paying:
        ranks = [i for i, loss in enumerate(sorted((mean[u] for u in paying), reverse=True)) if loss == mean[t]]
        probability[t] = np.mean([2 * (n - i) / (n * (n + 1)) for i in ranks])
    assert sum(probability.values()) == pytest.approx(1)
    present = [[k for k in tier if there[k]] for tier in tiers]
    probability = {t: p for t, p in probability.items() if present[t]} or {t: 1 for t in range(T) if present[t]}
    found = defaultdict(float)
    for t, p in probability.items():
        near = sorted(range(T), key=lambda u: (abs(u - t), u))
        for chosen, q in in_turn([present[u] for u in near], m).items():
            found[chosen] += p * q / sum(probability.values())
    return dict(found)


FACTS = [
    ((3.0, 1.0, 4.0, 2.0), (5, 1, 2, 9), (True, True, True, True), 2),
    ((3.0, 1.0, 4.0, 2.0), (5, 1, 2, 9), (False, True, True, True), 2),
    ((1.0, 1.0, nan, 7.0, 0.5), (1, 2, 3, 4, 5), (True, True, True, True, True), 3),
    ((1.0, 1.0, nan, 7.0, 0.5), (1, 2, 0, 4, 5), (True, True, True, False, True), 2),
    ((5.0, 4.0, 3.0, 2.0, 1.0), (1, 1, 1, 1, 1), (True, False, True, False, True), 5),
]
LOSSES = [{}, {0: 2.0, 1: 0.5, 2: 1.0, 3: 0.1}, {1: 0.5, 3: 3.0, 4: 0.5}]


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("facts", "m"),
    [
        *((FACTS[0], 3), (FACTS[1], 3), (FACTS[3], 3), (FACTS[4], 2)),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in ((FACTS[0], 1), (FACTS[2], 2))),
    ],
)
def test_every_set_of_seats_has_its_probability(facts, m):
    duration, size, available, T = facts
    clients = federation(duration, size, available)
    for losses in LOSSES:
        selector = TiFL(m, T, interval=1)
        rounds = [((k,) + (-1,) * (m - 1), (loss,) * m) for k, loss in losses.items()]
        seats, weights = draws(selector, clients, observed(selector, len(size), rounds))
        agree(sets(seats), expected_seats(clients, T, m, losses, [1] * T))
        filled = np.where(seats >= 0, np.asarray(size, float)[seats], 0)
        np.testing.assert_allclose(weights, filled / filled.sum(axis=1, keepdims=True), rtol=1e-6)
        assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in seats[:500]), "drawn without replacement"


@pytest.mark.parametrize("paid", [(0, 0, 0, 0), (2, 0, 1, 0), (0, 2, 0, 2), (2, 2, 2, 2)])
def test_tiers_without_credits_are_neither_ranked_nor_drawn(paid):
    """Four tiers of one client, two credits each; a tier pays when it is drawn. Nobody can pay: credits are ignored."""
    clients = federation((1.0, 2.0, 3.0, 4.0))
    selector = TiFL(1, 4, interval=1, rounds=8)
    losses = {0: 2.0, 1: 5.0, 2: 1.0, 3: 4.0}
    rounds = [((k,), (losses[k],)) for k, times in enumerate(paid) for _ in range(times)]
    losses = {k: losses[k] for k, times in enumerate(paid) if times}
    credits = [2 - times for times in paid]
    state = observed(selector, 4, rounds)
    found = expected_seats(clients, 4, 1, losses, credits if any(credits) else [1] * 4)
    if not any(credits):
        found = dict.fromkeys(found, 1 / 4)
    agree(sets(draws(selector, clients, state)[0]), found)


def test_a_tier_that_runs_out_of_credits_between_two_rankings_leaves_the_others_their_chances():
    """With 5, 4, 3, 2, 1 of 15, the third spends its last credit: 5, 4, 2, 1 of 12, until the next ranking."""
    selector = TiFL(1, 5, interval=5, rounds=10)
    clients = federation((1.0, 2.0, 3.0, 4.0, 5.0))
    first = [((k,), (5.0 - k,)) for k in range(5)]
    state = observed(selector, 5, [*first, ((2,), (9.0,))])
    expected = {frozenset({k}): w / 12 for k, w in {0: 5, 1: 4, 3: 2, 4: 1}.items()}
    agree(sets(draws(selector, clients, state)[0]), expected)
    again = observed(selector, 5, [*first, ((2,), (9.0,)), *[((-1,), (nan,))] * 4])
    expected = {frozenset({k}): w / 10 for k, w in {0: 4, 1: 3, 3: 2, 4: 1}.items()}
    agree(sets(draws(selector, clients, again)[0]), expected)


@jax.jit
def play(selector, clients, training, times):
    def one(state, t):
        selection = pick(selector, round_keys(3, t), state, clients, lambda key, asked: asked).selection
        return selector.observe(state, selection, Report(training[selection.clients])), selection

    return jax.lax.scan(one, selector.init(len(clients.size)), times)[1]


def test_every_tier_is_drawn_as_often_as_its_credits_allow_and_training_goes_on_after_them():
    """40 rounds for 4 tiers are 10 each; a public implementation then searches for ever for a tier that can pay."""
    duration = np.random.default_rng(1).lognormal(size=20)
    training = jnp.asarray(duration, jnp.float32)  # the slowest have the highest loss
    seats = play(TiFL(3, 4, 5, rounds=40), federation(duration), training, jnp.arange(60, dtype=jnp.int32)).clients
    tier = np.argsort(np.argsort(duration)) // 5
    led = tier[np.asarray(seats)]
    assert (led == led[:, :1]).all(), "all seats of a round are of one tier"
    assert np.bincount(led[:40, 0]).tolist() == [10, 10, 10, 10]
    assert (np.asarray(seats) >= 0).all()


def test_without_credits_to_spend_the_slow_tier_of_high_loss_is_drawn_most():
    duration = np.arange(20.0)
    clients, times = federation(duration), jnp.arange(600, dtype=jnp.int32)
    seats = play(TiFL(2, 4), clients, jnp.asarray(duration, jnp.float32), times).clients
    often = np.bincount(np.asarray(seats)[100:, 0] // 5, minlength=4) / 500
    np.testing.assert_allclose(often, [0.1, 0.2, 0.3, 0.4], atol=0.09)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 0}, "TiFL: m must be at least 1, got 0"),
        ({"m": 2, "tiers": 0}, "TiFL: tiers must be at least 1, got 0"),
        ({"m": 2, "interval": 0}, r"TiFL: interval must be at least 1 and below 2\*\*31, got 0"),
        ({"m": 2, "rounds": 1.5}, "TiFL: rounds must be a whole number, got 1.5"),
    ],
)
def test_a_bad_parameter_is_named(parameters, says):
    with pytest.raises(ValueError, match=says):
        TiFL(**parameters)


def test_more_tiers_than_clients_are_an_error():
    with pytest.raises(ValueError, match="TiFL: tiers must be at most K=4, got 5"):
        TiFL(m=2).init(4)


@pytest.mark.slow
def test_the_laws_hold_without_credits():
    check_selector(TiFL(m=2, tiers=4), static=("tiers",))
