"""What the strategies do beyond the laws: weights, scores, schedules, memory, names and files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rounds import EVERY, every

import fedpick
from fedpick import (
    AFL,
    Clients,
    ClippedLoss,
    Full,
    Ledger,
    LocalLoss,
    PowerOfChoice,
    QFairLoss,
    Rand,
    Report,
    Selection,
    Shrinking,
    Uniform,
    pick,
    round_keys,
)
from fedpick.config import structure, unstructure


def select(selector, size, losses=None, available=None, state=None, t=0):
    K = len(size)
    facts = Clients(jnp.asarray(size), jnp.ones(K, bool) if available is None else jnp.asarray(available))
    state = selector.init(K) if state is None else state
    losses = jnp.full(K, jnp.nan) if losses is None else jnp.asarray(losses, jnp.float32)
    return pick(selector, round_keys(0, t), state, facts, lambda key, asked: losses).selection


def test_uniform_weighs_by_its_q_and_is_right_in_expectation():
    size = [1, 2, 3, 4]
    clients, weights = select(Uniform(2), size)
    np.testing.assert_allclose(weights, np.array(size)[clients] / 10 * 4 / 2, rtol=1e-6)
    chosen = jax.vmap(lambda t: select(Uniform(2), size, t=t))(jnp.arange(20_000, dtype=jnp.int32))
    mean = np.zeros(4)
    np.add.at(mean, np.asarray(chosen.clients).ravel(), np.asarray(chosen.weights).ravel() / 20_000)
    np.testing.assert_allclose(mean, np.array(size) / 10, atol=5 * 0.4 / np.sqrt(20_000))


def test_uniform_counts_those_who_are_there():
    clients, weights = select(Uniform(3), [1, 2, 3, 4], available=[True, False, False, True])
    assert sorted(clients.tolist()) == [-1, 0, 3]
    np.testing.assert_allclose(sorted(weights.tolist()), [0, 0.2, 0.8], rtol=1e-6)


def test_full_takes_everybody_by_share():
    clients, weights = select(Full(), [1, 0, 3], available=[True, True, True])
    assert clients.tolist() == [0, -1, 2]
    np.testing.assert_allclose(weights, [0.25, 0, 0.75])


def test_rand_may_seat_a_client_twice_and_fills_every_seat():
    clients, weights = select(Rand(5), [7], available=[True])
    assert clients.tolist() == [0] * 5
    np.testing.assert_allclose(weights, [0.2] * 5)


def test_fractional_sizes_will_do():
    clients, _ = select(PowerOfChoice(1, 2), [0.1, 0.9, 0.0], [1.0, 2.0, 3.0])
    assert clients.tolist() == [1]


def test_a_sweep_over_d_is_one_program_and_vmaps():
    size, losses = jnp.arange(1, 21), jnp.arange(20, dtype=jnp.float32)
    traces = 0

    @jax.jit
    def highest(selector):
        nonlocal traces
        traces += 1
        return select(selector, size, losses).clients

    alone = [highest(PowerOfChoice(2, d)) for d in (2, 5, 20)]
    assert traces == 1
    together = jax.vmap(highest)(PowerOfChoice(2, jnp.array([2, 5, 20])))
    np.testing.assert_array_equal(jnp.stack(alone), together)
    assert sorted(alone[-1].tolist()) == [18, 19]


@given(st.lists(st.floats(0.125, 50, width=32), min_size=6, max_size=6, unique=True), st.floats(0, 3, width=32))
def test_a_score_that_rises_with_the_loss_changes_nothing(losses, q):
    size = [1, 2, 3, 4, 5, 6]
    plain = select(PowerOfChoice(2, 4), size, losses)
    monotone = QFairLoss(q, by_size=False)(jnp.asarray(losses, jnp.float32), jnp.ones(6, jnp.float32))
    if len(np.unique(monotone)) == 6:  # float32 keeps the losses apart after the power
        same = select(PowerOfChoice(2, 4, score=QFairLoss(q, by_size=False)), size, losses)
        assert set(plain.clients.tolist()) == set(same.clients.tolist())


def test_scores_that_matter():
    size, losses = [1, 9, 1, 1], [5.0, 1.0, 4.0, -1.0]
    best = {
        LocalLoss(): 0,
        LocalLoss(by_size=True): 1,
        QFairLoss(0.0): 1,
        QFairLoss(4.0): 0,
        ClippedLoss(4.5, by_size=True): 1,
    }
    for score, client in best.items():
        assert select(PowerOfChoice(1, 4, score=score), size, losses).clients.tolist() == [client], score
    assert select(PowerOfChoice(1, 4, score=lambda loss, size: -loss), size, losses).clients.tolist() == [3]


def test_a_clip_ties_those_beyond_the_limit():
    selector = PowerOfChoice(1, 3, score=ClippedLoss(2.0))
    chosen = jax.vmap(lambda t: select(selector, [1, 1, 1], [1.0, 2.5, 1e9], t=t).clients)(jnp.arange(4000))
    wins = np.bincount(np.asarray(chosen).ravel(), minlength=3)
    assert wins[0] == 0
    assert abs(wins[1] - 2000) < 5 * np.sqrt(1000)


def test_negative_losses_keep_their_order_under_q_fair():
    score = QFairLoss(1.5, by_size=False)(jnp.array([-0.9, -0.5, 0.0, 0.3]), jnp.ones(4))
    assert (np.diff(score) > 0).all()


def test_a_score_of_nan_is_silence():
    selector = PowerOfChoice(2, 3, score=lambda loss, size: jnp.where(loss > 4, jnp.nan, loss))
    assert sorted(select(selector, [1, 1, 1], [5.0, 1.0, 2.0]).clients.tolist()) == [1, 2]


def test_adapow_shrinks_from_everybody_to_m():
    selector = fedpick.strategy("adapow-d", m=3, rounds=60, steps=6)
    state, facts, counts = selector.init(30), Clients(jnp.ones(30, jnp.int32), jnp.ones(30, bool)), []
    for t in range(70):
        picked = pick(selector, round_keys(0, t), state, facts, lambda key, asked: jnp.zeros(30))
        counts.append(int(picked.candidates.sum()))
        empty = Selection(jnp.full(3, -1, jnp.int32), jnp.zeros(3, jnp.float32))
        state = selector.observe(state, empty, Report(jnp.full(3, jnp.nan)))
    stages = [30, 26, 21, 17, 12, 8, 3]
    assert counts == [stages[min(t // 10, 6)] for t in range(70)]


@given(st.integers(1, 1000), st.integers(0, 10**6), st.integers(1, 46340), st.integers(0, 10**6))
def test_a_schedule_stays_in_its_bounds_and_never_rises(m, more, steps, extra):
    schedule, K = Shrinking(steps + extra, steps), m + more
    times = np.unique(np.linspace(0, steps + extra + 5, 50).astype(np.int32))
    d = np.asarray(jax.vmap(lambda t: schedule(t, K, m))(jnp.asarray(times)))
    assert d[0] == K
    assert d[-1] == m
    assert (np.diff(d) <= 0).all()


def test_the_ledger_remembers_the_last_word_and_the_mean_of_two_seats():
    ledger = Ledger.init(4)
    first = Selection(jnp.array([1, 1, 3, -1]), jnp.array([0.3, 0.3, 0.4, 0.0]))
    ledger = ledger.observe(first, Report(jnp.array([1.0, 3.0, jnp.nan, 9.0])))
    np.testing.assert_array_equal(ledger.loss, [np.nan, 2.0, np.nan, np.nan])
    ledger = ledger.observe(Selection(jnp.array([1]), jnp.array([1.0])), Report(jnp.array([-0.5])))
    np.testing.assert_array_equal(ledger.loss, [np.nan, -0.5, np.nan, np.nan])
    assert ledger.times.tolist() == [0, 3, 0, 0]
    assert ledger.last.tolist() == [-1, 1, -1, -1]
    assert ledger.round == 2


def test_afl_survives_huge_and_infinite_valuations():
    state = Ledger.init(4)._replace(loss=jnp.array([1e30, jnp.inf, -1e30, 3.0]))
    clients, weights = select(AFL(2, alpha1=0.0, alpha3=0.0), [1, 1, 1, 1], state=state)
    assert sorted(clients.tolist()) == [0, 1]
    np.testing.assert_allclose(weights, [0.5, 0.5])


@pytest.mark.parametrize("loss", [1.0, 1e10, float("inf")])
def test_afl_draws_evenly_among_equal_valuations_however_large(loss):
    state = Ledger.init(4)._replace(loss=jnp.full(4, loss, jnp.float32))
    selector = AFL(1, alpha1=0.0, alpha2=100.0, alpha3=0.0)
    seats = jax.vmap(lambda t: select(selector, [1, 1, 1, 1], state=state, t=t).clients)(jnp.arange(4000))
    assert np.bincount(np.asarray(seats).ravel(), minlength=4).min() > 1000 - 5 * np.sqrt(750)


def test_afl_leaves_out_clients_without_data():
    clients, _ = select(AFL(2), [0, 0, 5])
    assert sorted(clients.tolist()) == [-1, 2]


@pytest.mark.parametrize("losses", [[2.5, 3.0], [0.2, 0.4], [1e7, 2e7]])
def test_no_q_is_too_large(losses):
    for by_size in (False, True):
        selector = PowerOfChoice(1, 2, score=QFairLoss(100.0, by_size))
        seats = jax.vmap(lambda t, s=selector: select(s, [3, 3], losses, t=t).clients)(jnp.arange(40))
        assert (np.asarray(seats) == 1).all()


def test_strategies_go_through_the_idioms_of_jax():
    assert jax.tree.map(lambda _: 0, PowerOfChoice(2, 4)).d == 0
    assert jax.grad(lambda s: -s.alpha1 * s.alpha2)(AFL(2)).alpha2 == -0.75
    with jax.disable_jit():
        assert len(select(PowerOfChoice(2, 3), [1, 2, 3], [1.0, 2.0, 3.0]).clients) == 2


def test_the_keys_of_a_round_are_all_different_and_wide_seeds_count():
    rounds = [round_keys(seed, t) for seed in (0, 1, 2**32, 2**63) for t in (0, 1, 2**31 - 1)]
    words = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for keys in rounds for key in keys}
    assert len(words) == 12 * 5


def test_a_traced_seed_is_the_same_seed():
    for wide in (False, True):
        with jax.enable_x64(wide):
            traced = jax.jit(lambda seed: jax.random.key_data(round_keys(seed, 3).select))(jnp.asarray(2**31 - 5))
        np.testing.assert_array_equal(traced, jax.random.key_data(round_keys(2**31 - 5, 3).select))
    with jax.enable_x64(True):
        traced = jax.jit(lambda seed: jax.random.key_data(round_keys(seed, 3).select))(jnp.asarray(2**40 + 1))
    np.testing.assert_array_equal(traced, jax.random.key_data(round_keys(2**40 + 1, 3).select))


def test_jax_defaults_change_no_key():
    with jax.default_prng_impl("rbg"):
        other = jax.random.key_data(round_keys(5, 1).train)
    np.testing.assert_array_equal(other, jax.random.key_data(round_keys(5, 1).train))


@pytest.mark.parametrize("name", EVERY)
def test_a_strategy_prints_compares_hashes_and_goes_to_a_file_and_back(name):
    selector = every()[name]
    plain = json.loads(json.dumps(unstructure(selector, "Selector")))
    assert plain["kind"] == name
    again = structure(plain, fedpick.Selector, "selector")
    assert again == selector == eval(repr(selector), vars(fedpick.selectors))
    assert hash(again) == hash(selector)
    assert jax.tree.structure(again) == jax.tree.structure(selector)


def test_traced_and_array_fields_go_to_a_file_as_numbers():
    assert unstructure(PowerOfChoice(2, jnp.int32(7)), "Selector")["d"] == 7
