"""Wrappers: the bound of Cooldown, the floor of Explore, the probabilities of Mixture, and how they compose."""

import json
from functools import partial
from itertools import permutations
from math import ceil, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick
from fedpick import (
    AFL,
    Clients,
    Cooldown,
    Explore,
    FedCS,
    Full,
    Mixture,
    PowerOfChoice,
    Rand,
    Report,
    Selection,
    Shrinking,
    Unbiased,
    Uniform,
    check_selector,
    pick,
    round_keys,
)
from fedpick.config import describe, structure, unstructure
from fedpick.protocol import least_clients, payload, polled

DRAWS = 20_000
NESTED = Cooldown(Explore(PowerOfChoice(3, 6), share=0.3), rounds=2)


def facts(size, available=None):
    return Clients(jnp.asarray(size), jnp.ones(len(size), bool) if available is None else jnp.asarray(available))


@jax.jit
def scan(selector, seed, clients, answers, training):
    """Rounds [T] with these answers and training losses [T, K], all clients there; the seats."""

    def one_round(state, now):
        t, said, loss = now
        picked = pick(selector, round_keys(seed, t), state, clients, lambda key, asked: said)
        report = Report(jnp.where(picked.selection.weights > 0, loss[picked.selection.clients], jnp.nan))
        return selector.observe(state, picked.selection, report), (picked.candidates, picked.selection)

    times = jnp.arange(answers.shape[0], dtype=jnp.int32)
    state = selector.init(clients.size.shape[0])
    return jax.lax.scan(one_round, state, (times, answers, training))


@jax.jit
def draws(selector, clients, losses, state=None):
    """Many decisions from one state: candidates, who was asked, seats."""
    state = selector.init(clients.size.shape[0]) if state is None else state

    def once(t):
        picked = pick(selector, round_keys(3, t), state, clients, lambda key, asked: losses)
        return picked.candidates, polled(selector, picked.candidates), picked.selection

    return jax.vmap(once)(jnp.arange(DRAWS, dtype=jnp.int32))


def agree(count, p, n=DRAWS):
    assert abs(int(count) - n * p) <= 5 * sqrt(n * p * (1 - p)) + 1e-6, (count, n * p)


# Cooldown

K, T = 20, 40
LOUD = st.sampled_from([np.inf, 3e38, 1e30, 7.0, 0.0, -np.inf, np.nan])


@pytest.mark.no_cover
@settings(max_examples=1000)
@given(
    st.sampled_from(["full", "stale"]),
    st.integers(3, K),
    st.integers(0, 5),
    st.sets(st.integers(0, K - 1), min_size=1, max_size=8),
    st.lists(LOUD, min_size=4, max_size=4),
    st.integers(0, 2**20),
)
def test_no_attack_breaks_the_bound_of_a_cooldown(loss, d, rounds, liars, lies, seed):
    """m (rounds + 1) = 18 of the 20 clients at the most rest or have a seat: enough others are always there."""
    rng = np.random.default_rng(seed)
    said = rng.gamma(1.0, size=(2, T, K)).astype(np.float32)
    said[:, :, list(liars)] = rng.choice(np.array(lies, np.float32), (2, T, len(liars)))
    selector = Cooldown(PowerOfChoice(3, d, loss), rounds)
    seats = np.asarray(scan(selector, 0, facts(np.arange(1, K + 1)), *said)[1][1].clients)
    for client in range(K):
        trained = np.flatnonzero((seats == client).any(axis=1))
        assert (np.diff(trained) > rounds).all()
    assert np.isin(seats, list(liars)).sum() <= len(liars) * ceil(T / (rounds + 1))


def test_without_rounds_a_cooldown_picks_as_its_strategy_does():
    said = np.random.default_rng(0).gamma(1.0, size=(2, 20, K)).astype(np.float32)
    for selector in (AFL(3), Explore(PowerOfChoice(3, 8), 0.4)):
        alone, rested = (scan(s, 5, facts(np.arange(1, K + 1)), *said)[1] for s in (selector, Cooldown(selector, 0)))
        jax.tree.map(np.testing.assert_array_equal, alone, rested)


def observe(selector, state, clients, loss):
    seats = jnp.array(clients, jnp.int32)
    selection = Selection(seats, jnp.where(seats >= 0, 1 / len(clients), 0).astype(jnp.float32))
    return selector.observe(state, selection, Report(jnp.full(len(clients), loss, jnp.float32)))


def test_those_who_rested_longest_are_let_in_and_ties_are_broken_at_random():
    selector, losses = Cooldown(PowerOfChoice(2, 5), 9), jnp.arange(5.0)
    state = observe(selector, selector.init(5), [0, 1], loss=1.0)
    state = observe(selector, state, [2, -1], loss=jnp.nan)  # silent, and rests all the same
    assert state.left.tolist() == [8, 8, 9, 0, 0]
    candidates, _, selection = draws(selector, facts([1, 2, 3, 4, 5], [True, True, True, True, False]), losses, state)
    assert (np.sort(candidates, axis=1)[:, -2:]).all()
    assert (candidates.sum(axis=1) == 2).all()  # client 3, and one of those who have a round less to rest
    agree(np.asarray(candidates)[:, 0].sum(), 0.5)
    assert not candidates[:, 2].any()
    assert (selection.weights == 0.5).all()


def test_a_client_without_data_is_not_counted_among_those_who_are_there():
    selector = Cooldown(PowerOfChoice(2, 4), 9)
    state = observe(selector, selector.init(4), [0, 1], loss=1.0)
    _, _, selection = draws(selector, facts([1, 1, 1, 0]), jnp.ones(4), state)
    assert (selection.weights == 0.5).all(), "client 2 alone is rested, and one is let in"


# Explore


def successive(weight, n):
    """P(ordered draw) for n draws without replacement by weight."""
    found = {}
    for order in permutations(weight, n):
        left, p = sum(weight.values()), 1.0
        for k in order:
            p *= weight[k] / left
            left -= weight[k]
        found[order] = p
    return found


@pytest.mark.parametrize("d", [2, 3, 5])
def test_who_explores_is_drawn_by_share_from_those_not_chosen(d):
    """The probability of a seat for each client, enumerated: candidates, the highest two, one of the others."""
    size, losses = (4, 1, 3, 2, 5), (0.3, 0.1, 0.9, 0.5, 0.2)
    expected = np.zeros(5)
    for order, p in successive(dict(enumerate(size)), d).items():
        chosen = sorted(order, key=lambda k: -losses[k])[:2]
        others = {k: w for k, w in enumerate(size) if k not in chosen}
        for k, w in others.items():
            expected[k] += p * w / sum(others.values())
        expected[chosen] += p / 2  # one of two seats is given up
    candidates, _, selection = draws(Explore(PowerOfChoice(2, d), 0.5), facts(size), jnp.asarray(losses))
    seats = np.asarray(selection.clients)
    for k in range(5):
        agree((seats == k).any(axis=1).sum(), expected[k])
    assert (selection.weights == 0.5).all()
    assert set(np.asarray(candidates).sum(axis=1).tolist()) == {min(d + 1, 5)}, "one more is polled, no more"


@pytest.mark.parametrize(
    ("m", "share", "number"), [(10, 0.1, 1), (3, 0.0, 0), (3, 0.1, 1), (3, 1 / 3, 1), (3, 0.34, 2), (3, 1.0, 3)]
)
def test_ceil_of_share_times_m_seats_are_safe_from_liars(m, share, number):
    """m liars answer +inf and are all that the strategy sees: who explores is not one of them."""
    losses = jnp.where(jnp.arange(3 * m) < m, jnp.inf, 0.0)
    _, _, selection = draws(Explore(PowerOfChoice(m, 3 * m), share), facts(np.ones(3 * m)), losses)
    honest = (np.asarray(selection.clients) >= m).sum(axis=1)
    assert (honest == number).all()
    assert (np.sort(selection.clients, axis=1)[:, 1:] > np.sort(selection.clients, axis=1)[:, :-1]).all()


def test_with_nobody_left_to_explore_the_strategy_keeps_its_seats():
    clients = facts(np.ones(6), [True, True, True, False, False, False])
    _, _, selection = draws(Explore(PowerOfChoice(3, 6), 0.9), clients, jnp.ones(6))
    assert (np.sort(selection.clients, axis=1) == [0, 1, 2]).all()
    _, _, selection = draws(Explore(PowerOfChoice(4, 6), 0.5), clients, jnp.ones(6))
    assert ((selection.weights > 0).sum(axis=1) == 3).all()


def test_explorers_weigh_as_much_as_the_average_seat_and_the_sum_stays():
    size = np.array([1.0, 2, 3, 4, 10])
    clients = facts(size)
    _, _, selection = draws(Explore(Uniform(2), 0.5), clients, jnp.zeros(5))
    seats, weights = np.asarray(selection.clients), np.asarray(selection.weights)
    # Half of the sum each, and the sum is (p_i + p_j) 5/2 of the pair that Uniform drew.
    np.testing.assert_allclose(weights[:, 0], weights[:, 1], rtol=1e-6)
    sums = {round((size[i] + size[j]) / 20 * 5 / 2, 4) for i in range(5) for j in range(i)}
    assert set(np.round(weights.sum(axis=1).astype(float), 4)) == sums
    assert (seats[:, 0] != seats[:, 1]).all()
    with_repeats = draws(Explore(Rand(4), 0.5), clients, jnp.zeros(5))[2]
    np.testing.assert_allclose(with_repeats.weights, 0.25, rtol=1e-6)


def test_who_was_asked_and_is_silent_does_not_explore():
    losses = jnp.array([1.0, 2.0, jnp.nan, jnp.nan, jnp.nan, 0.5])
    _, asked, selection = draws(Explore(PowerOfChoice(2, 2), 0.5), facts(np.ones(6)), losses)
    seats = np.asarray(selection.clients)
    assert not np.isin(seats, [2, 3, 4]).any()
    assert (asked.sum(axis=1) == 3).all()
    assert ((seats >= 0).any(axis=1)).mean() > 0.9
    np.testing.assert_allclose(selection.weights.sum(axis=1)[(seats >= 0).any(axis=1)], 1, rtol=1e-6)


def test_a_seat_that_would_not_have_been_polled_is_given_up_when_it_is_silent():
    selector = Explore(Mixture((Uniform(2), PowerOfChoice(2, 3))), 0.5)
    losses = jnp.array([1.0, jnp.nan, 1.0, 1.0, jnp.nan])
    _, asked, selection = draws(selector, facts(np.ones(5)), losses)
    rows, seats = np.nonzero(np.asarray(selection.clients) >= 0)
    silent = np.asarray(asked) & np.isnan(losses)
    assert not silent[rows, np.asarray(selection.clients)[rows, seats]].any()


# Mixture


def test_each_strategy_is_drawn_with_its_probability_and_asks_its_own_candidates():
    selector = Mixture((PowerOfChoice(2, 3), PowerOfChoice(2, 4), PowerOfChoice(2, 6)), (0.2, 0.3, 0.5))
    candidates, asked, _ = draws(selector, facts(np.ones(8)), jnp.arange(8.0))
    np.testing.assert_array_equal(candidates, asked)
    for d, p in ((3, 0.2), (4, 0.3), (6, 0.5)):
        agree((candidates.sum(axis=1) == d).sum(), p)


def test_where_one_is_drawn_that_does_not_poll_nobody_is_asked():
    selector = Mixture((Rand(2, replace=False), PowerOfChoice(2, 4)), (0.25, 0.75))
    candidates, asked, selection = draws(selector, facts(np.ones(8)), jnp.arange(8.0))
    number = np.asarray(asked).sum(axis=1)
    agree((number == 0).sum(), 0.25)
    assert set(number.tolist()) == {0, 4}
    seats = np.asarray(selection.clients)
    by_rand = number == 0
    assert (np.asarray(candidates)[by_rand].sum(axis=1) == 2).all()
    for k in range(8):  # rand seats everybody equally often, pow-d the higher losses
        agree((seats[by_rand] == k).any(axis=1).sum(), 2 / 8, by_rand.sum())
    for row in np.flatnonzero(~by_rand)[:200]:
        assert sorted(seats[row]) == np.flatnonzero(candidates[row])[-2:].tolist()


@pytest.mark.parametrize("present", [1, 2, 3])
def test_where_candidates_are_no_more_than_seats_a_mixture_seats_them_unasked(present):
    selector = Mixture((Rand(3, replace=False), PowerOfChoice(3, 5)))
    clients = facts(np.ones(6), np.arange(6) < present)
    _, asked, selection = draws(selector, clients, jnp.full(6, jnp.nan))
    assert not asked.any()
    assert ((selection.weights > 0).sum(axis=1) == present).all()


def test_a_mixture_of_mixtures_polls_nobody_that_the_inner_one_does_not():
    inner = Mixture((Rand(2, replace=False), PowerOfChoice(2, 4)))
    _, asked, _ = draws(Mixture((inner, PowerOfChoice(2, 3))), facts(np.ones(8)), jnp.arange(8.0))
    number = np.asarray(asked).sum(axis=1)
    for asks, p in ((0, 0.25), (4, 0.25), (3, 0.5)):
        agree((number == asks).sum(), p)


def test_every_strategy_of_a_mixture_learns_from_every_round():
    parts = (PowerOfChoice(3, 6, "stale"), AFL(3))
    said = np.random.default_rng(1).gamma(1.0, size=(2, 30, K)).astype(np.float32)
    state, (_, selection) = scan(Mixture(parts), 2, facts(np.arange(1, K + 1)), *said)
    for part, memory in zip(parts, state, strict=True):
        alone = part.init(K)
        for t in range(30):
            seats = jax.tree.map(lambda x, t=t: x[t], selection)
            alone = part.observe(alone, seats, Report(jnp.asarray(said[1, t])[seats.clients]))
        jax.tree.map(np.testing.assert_array_equal, alone, memory)


def test_probabilities_are_numbers_that_may_be_traced():
    selectors = (PowerOfChoice(2, 3), PowerOfChoice(2, 6))
    swept = Mixture(selectors, (jnp.array([0.0, 0.5, 1.0]), jnp.array([1.0, 0.5, 0.0])))
    axes = Mixture.__new__(Mixture)
    for name, value in (("selectors", None), ("probabilities", 0)):
        object.__setattr__(axes, name, value)
    rows = jax.vmap(partial(draws, clients=facts(np.ones(8)), losses=jnp.arange(8.0)), in_axes=(axes,))(swept)
    few = (np.asarray(rows[0]).sum(axis=2) == 3).sum(axis=1)
    assert few[0] == 0
    assert few[2] == DRAWS
    agree(few[1], 0.5)


# All of them


def test_what_a_wrapper_takes_over_and_what_it_does_not():
    inner = PowerOfChoice(3, 6)
    for selector in (Cooldown(inner), Explore(inner), Unbiased(inner), Mixture((inner, inner))):
        assert (selector.m, selector.poll, selector.needs, selector.work) == (3, "full", frozenset(), "K")
        assert not any(hasattr(selector, name) for name in ("d", "classes", "sketch_size"))
        assert not getattr(selector, "highest_loss_first", False)
        assert getattr(selector, "candidates_by_share", False) == isinstance(selector, Unbiased)
        assert least_clients(selector) == 6
    assert not getattr(Cooldown(Rand(3)), "unbiased", False)
    assert not getattr(Explore(Rand(3)), "unbiased", False)
    assert Mixture((Rand(3), Uniform(3))).unbiased
    assert not Mixture((Rand(3), inner)).unbiased
    assert not Cooldown(Uniform(3)).weights_sum_to_1
    assert not Mixture((Rand(3), Uniform(3))).weights_sum_to_1
    inquiring = FedCS(3, 6)
    for selector in (Cooldown(inquiring), Mixture((inquiring, FedCS(3, 9)))):
        assert payload(selector) == payload(inquiring)


@jax.tree_util.register_static
class Measuring:
    """What a strategy may declare, for wrappers to take over."""

    m, poll, skips_poll = 2, "norm", True

    def __init__(self, needs, work="K s", **lengths):
        self.needs, self.work = frozenset(needs), work
        vars(self).update(lengths)

    def init(self, *given):
        raise AssertionError("nothing is played")

    propose = select = observe = init


def test_needs_lengths_and_costs_are_those_of_the_strategies():
    sketches, heads = Measuring({"sketch"}, sketch_size=8), Measuring({"head", "polled"}, "K^2", classes=5)
    wrapped = Explore(Cooldown(sketches))
    assert (wrapped.needs, wrapped.sketch_size, wrapped.work) == ({"sketch"}, 8, "K s")
    assert (wrapped.poll, wrapped.skips_poll) == ("norm", True)
    with pytest.raises(AttributeError):
        wrapped.classes  # noqa: B018
    both = Mixture((sketches, heads))
    assert (both.needs, both.work, both.skips_poll) == ({"sketch", "head", "polled"}, "K^2", True)
    assert (both.sketch_size, both.classes) == (8, 5)
    with pytest.raises(ValueError, match="Mixture: selectors must have the same length of a sketch, got 8, 9"):
        Mixture((sketches, Measuring({"sketch"}, sketch_size=9)))


OTHER = Unbiased(Mixture((Cooldown(Rand(3), 1), PowerOfChoice(3, 6, "stale"))))


@pytest.mark.slow
@pytest.mark.parametrize("selector", [NESTED, OTHER], ids=["polls", "does not"])
def test_compositions_keep_the_laws(selector):
    assert len(check_selector(selector)) == 8


WRONG = [
    (lambda: Cooldown(Full()), "Cooldown: selector must have a number of seats m, got Full()"),
    (lambda: Cooldown(Rand), "Cooldown: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got <class"),
    (lambda: Cooldown(Rand(3), -1), "Cooldown: rounds must be at least 0, got -1"),
    (lambda: Cooldown(Rand(3), 1.5), "Cooldown: rounds must be a whole number, got 1.5"),
    (lambda: Explore(Full()), "Explore: selector must have a number of seats m, got Full()"),
    (lambda: Explore(Rand(3), 1.5), "Explore: share must be at least 0 and at most 1, got 1.5"),
    (lambda: Unbiased(3), "Unbiased: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got 3"),
    (lambda: Unbiased(Rand(3), 0), "Unbiased: cutoff must be at least 1, got 0"),
    (lambda: Mixture((Rand(3),)), "Mixture: selectors must be two or more strategies, got (Rand(m=3, replace=True),)"),
    (lambda: Mixture(Rand(3)), "Mixture: selectors must be two or more strategies, got Rand(m=3, replace=True)"),
    (lambda: Mixture((Rand(3), Rand(4))), "Mixture: selectors must have the same m, got 3, 4"),
    (
        lambda: Mixture((PowerOfChoice(3, 4), PowerOfChoice(3, 4, "batch"))),
        "Mixture: selectors must ask for the same thing, got 'batch', 'full'",
    ),
    (
        lambda: Mixture((FedCS(3, 6), Rand(3))),
        "Mixture: selectors must ask candidates for as many facts, as FedCS does, got 2, 0",
    ),
    (
        lambda: Mixture((Rand(3), Uniform(3)), (0.5,)),
        "Mixture: probabilities must be 2 numbers, one per strategy, got (0.5,)",
    ),
    (lambda: Mixture((Rand(3), Uniform(3)), (0.5, 0.6)), "Mixture: probabilities must have the sum 1, got (0.5, 0.6)"),
    (lambda: Mixture((Rand(3), Uniform(3)), (1.5, -0.5)), "Mixture: probabilities must be at least 0, got -0.5"),
]


@pytest.mark.parametrize(("make", "sentence"), WRONG, ids=[sentence[:60] for _, sentence in WRONG])
def test_errors_name_the_rule_and_the_value(make, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    assert str(error.value).startswith(sentence)


def test_wrappers_print_compare_hash_and_go_to_json_and_back():
    selector = Mixture([NESTED, Unbiased(PowerOfChoice(3, Shrinking(50)), 20)], [0.25, 0.75])
    plain = json.loads(json.dumps(unstructure(selector, "Selector")))
    assert plain["selectors"][0]["selector"]["selector"]["kind"] == "pow-d"
    again = structure(plain, fedpick.Selector, "selector")
    assert again == selector == eval(repr(selector), vars(fedpick.selectors))
    assert hash(again) == hash(selector)
    assert describe(NESTED) == "cooldown(explore(pow-d, m = 3, d = 6), share = 0.3), rounds = 2"
    assert describe(selector) == (
        f"mixture({describe(NESTED)}; fedau(adapow-d, m = 3, rounds = 50), cutoff = 20), probabilities = [0.25, 0.75]"
    )
