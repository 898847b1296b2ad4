"""Oort against its authors' own code, a plain rendering of its formulas, and probabilities by enumeration."""

from collections import defaultdict
from itertools import combinations, permutations
from math import floor, log, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.seats import agree, draws, sets

from fedpick import Clients, Ledger, Oort, Report, Selection, check_selector, pick, round_keys
from fedpick.selectors.oort import OortState

UNSEEN = None


def make(
    size,
    utility,
    last=None,
    times=None,
    duration=None,
    t=1,
    exploration=0.9,
    threshold=10.0,
    expected=None,
    samples=None,
):
    """A state before round t in which client k has this utility, or has never trained; and the facts."""
    K = len(size)
    seen = np.array([u is not UNSEEN for u in utility])
    square = [np.nan if u is UNSEEN else (u / min(n, samples or n)) ** 2 for u, n in zip(utility, size, strict=True)]
    last = [t - 1] * K if last is None else last
    times = np.where(seen, 1 if times is None else times, 0)
    duration = [1.0] * K if duration is None else duration
    ledger = Ledger(
        loss=jnp.array(square, jnp.float32),
        times=jnp.array(times, jnp.int32),
        last=jnp.array(np.where(seen, np.array(last) - 1, -1), jnp.int32),
        round=jnp.int32(t - 1),
    )
    reported = jnp.where(seen, jnp.array(duration, jnp.float32), jnp.nan)
    state = OortState(ledger, reported, jnp.float32(exploration), jnp.float32(threshold), jnp.zeros(2, jnp.float32))
    expected = duration if expected is None else expected
    return state, Clients(jnp.array(size), jnp.ones(K, bool), expected_duration=jnp.array(expected, jnp.float32))


def successive(weight, n):
    """P(set) of n draws without replacement by weight, fewer if fewer have weight."""
    able = [k for k, w in weight.items() if w > 0]
    found = defaultdict(float)
    for order in permutations(able, min(n, len(able))):
        left, p = sum(weight.values()), 1.0
        for k in order:
            p *= weight[k] / left
            left -= weight[k]
        found[frozenset(order)] += p
    return found


def seats(exploit, e, explore, m, others):
    """P(set): e by these weights, the rest by those, what is left uniformly."""
    found = defaultdict(float)
    for first, p in successive(exploit, e).items():
        for second, q in successive(explore, m - e).items():
            left = [k for k in others if k not in first | second]
            ways = list(combinations(left, min(m - len(first | second), len(left))))
            for way in ways:
                found[first | second | set(way)] += p * q / len(ways)
    return found


# What SymbioticLab/Oort@05a3aa1 oort/oort.py gave its numpy.random.choice on these inputs: the pool and its
# probabilities, and the same of the unexplored. The authors' options are named as here; t is `training_round`.
SIZE = (10.0, 20.0, 5.0, 40.0, 8.0, 12.0)
DURATION = (3.0, 1.0, 2.0, 4.0, 2.5, 1.5)
BY_THE_AUTHORS = {
    "three unseen": (
        {"m": 4},
        {"utility": (7, 31, 2, UNSEEN, UNSEEN, UNSEEN), "last": (1, 3, 2, 0, 0, 0), "t": 4, "exploration": 0.6,
         "threshold": 50.0, "duration": DURATION},
        ({1: 0.614625, 0: 0.219908, 2: 0.165467}, 1, {3: 0.438596, 5: 0.336842, 4: 0.224561}),
    ),
    "the slow are penalised": (
        {"m": 3},
        {"utility": (7, 31, 2, 18, 9, UNSEEN), "last": (1, 3, 2, 3, 5, 0), "t": 6, "exploration": 0.4,
         "threshold": 30.0, "duration": DURATION},
        ({1: 0.724832, 2: 0.098091, 4: 0.090322, 0: 0.086755}, 1, {5: 1.0}),
    ),
    "a low clip and cut-off": (
        {"m": 3, "clip": 0.5, "cut_off": 0.3, "window": 1.0},
        {"utility": (7, 31, 2, 18, 9, UNSEEN), "last": (1, 3, 2, 3, 5, 0), "t": 6, "exploration": 0.4,
         "threshold": 30.0, "duration": DURATION},
        ({1: 0.514848, 2: 0.147136, 4: 0.135483, 0: 0.130132, 3: 0.072401}, 1, {5: 1.0}),
    ),
    "no utility, no limit of time": (
        {"m": 4, "cut_off": 0.0, "exploration_min": 0.0},
        {"utility": (7, 31, 0, 18, 9, UNSEEN), "last": (1, 3, 6, 3, 5, 0), "t": 7, "exploration": 0.1,
         "threshold": 100.0, "duration": DURATION},
        ({1: 0.466399, 3: 0.265106, 0: 0.164086, 4: 0.10441}, 3, {5: 1.0}),
    ),
    "everybody seen": (
        {"m": 3, "cut_off": 0.95},
        {"utility": (7, 31, 2, 18, 9, 11), "last": (1, 3, 2, 3, 5, 4), "t": 9, "exploration": 0.4,
         "threshold": 100.0, "duration": DURATION},
        ({1: 0.387506, 3: 0.250804, 0: 0.195553, 5: 0.166138}, 3, {}),
    ),
}  # fmt: skip


@pytest.mark.no_cover
@pytest.mark.parametrize("name", BY_THE_AUTHORS)
def test_the_draws_are_those_of_the_authors_code(name):
    options, inputs, (exploit, e, explore) = BY_THE_AUTHORS[name]
    state, clients = make(SIZE, **inputs)
    expected = seats(exploit, e, explore, options["m"], range(6))
    total = sum(expected.values())  # the numbers above have six digits
    agree(sets(draws(Oort(**options), clients, state)[0]), {chosen: p / total for chosen, p in expected.items()})


def test_the_pacer_is_that_of_the_authors_code():
    """theta by round, as oort.py's ``pacer`` moved it on these mean utilities, from 30 with step 3 and delta 10."""
    utility = [
        4,
        4,
        4,
        4,
        4,
        3.9,
        3.5,
        3.9,
        4,
        1,
        1,
        1,
        1,
        1,
        1.05,
        40,
        40,
        40,
        20,
        20,
        20,
        20,
        20,
        20,
        *[1] * 6,
        100,
        100,
    ]
    by_the_authors = [30.0] * 8 + [40.0] * 9 + [30.0] * 3 + [40.0] * 12 + [30.0]
    selector = Oort(m=2, threshold=30.0, pacer_step=3, pacer_delta=10.0)
    state, _ = make((1, 1), (1, 1), threshold=30.0)
    state, both, found = state, Selection(jnp.array([1, 0]), jnp.array([0.5, 0.5])), [float(state.threshold)]
    for u in utility:
        square = jnp.square(jnp.array([0.5 * u, 1.5 * u], jnp.float32))
        state = selector.observe(state, both, Report(square, square_loss=square, duration=jnp.ones(2)))
        found.append(float(state.threshold))
    assert found == by_the_authors


def test_the_pacer_looks_at_the_exploited_only():
    """Of four seats the exploited are the first floor(4 (1 - epsilon)) that have trained before."""
    selector = Oort(m=4, exploration_min=0.0, exploration_decay=1.0)
    state, _ = make([1] * 5, (1, 1, 1, UNSEEN, UNSEEN), exploration=0.5)
    square = jnp.array([4.0, 16.0, 100.0, 900.0])
    report = Report(square, square_loss=square, duration=jnp.ones(4))
    weights = jnp.full(4, 0.25)
    assert selector.observe(state, Selection(jnp.array([0, 1, 3, 2]), weights), report).utility[0] == 3
    assert selector.observe(state, Selection(jnp.array([0, 3, 4, 2]), weights), report).utility[0] == 2
    silent = report._replace(square_loss=square.at[0].set(jnp.nan))
    assert selector.observe(state, Selection(jnp.array([0, 1, 3, 2]), weights), silent).utility[0] == 4
    assert selector.observe(state, Selection(jnp.array([3, 4, -1, -1]), weights), report).utility[0] == 0


def rendering(selector, size, utility, last, times, duration, t, exploration, threshold, available):
    """P(set) by the formulas of the paper and of the authors' code, in float64 and step by step."""
    K, m = len(size), selector.m
    n = [s if selector.samples is None else min(s, selector.samples) for s in size]
    U = [n[k] if utility[k] is UNSEEN else utility[k] for k in range(K)]
    listed = []
    if selector.blacklist_rounds is not None:
        listed = sorted((k for k in range(K) if times[k] > selector.blacklist_rounds), key=lambda k: -times[k])
        listed = listed[: int(selector.blacklist_share * K)]
    feasible = [k for k in range(K) if available[k] and k not in listed]
    T = sorted(duration)[min(floor(K * threshold / 100), K - 1)] if threshold < 100 else float("inf")
    slow = [(T / duration[k]) ** selector.penalty if duration[k] > T else 1.0 for k in range(K)]
    ranked = sorted(U[k] for k in feasible)
    score = {}
    if ranked:
        clip, low = ranked[min(floor(len(ranked) * selector.clip), len(ranked) - 1)], 0.999 * ranked[0]
        for k in feasible:
            if utility[k] is not UNSEEN:
                value = (min(U[k], clip) - low) / max(ranked[-1] - low, 1e-4)
                score[k] = (value + sqrt(0.1 * log(t) / last[k])) * slow[k]
    unseen = [k for k in range(K) if utility[k] is UNSEEN and available[k]]
    epsilon = max(exploration * selector.exploration_decay, selector.exploration_min)
    epsilon = epsilon if UNSEEN in utility else 0.0
    e = min(floor(m * (1 - epsilon) + 1e-9), len(score))
    pool = {}
    if e:
        order = sorted(score.values(), reverse=True)
        border = selector.cut_off * order[min(e, len(order) - 1)]
        pool = {k: s for k, s in score.items() if s >= border}
    left = min(m - e, len(unseen))
    window = sorted(unseen, key=lambda k: -n[k] * slow[k])[: floor(selector.window * left)]
    found = seats(pool, e, {k: n[k] * slow[k] for k in window}, e + left, [])
    full = defaultdict(float)
    for chosen, p in found.items():
        rest = [k for k in feasible if k not in chosen]
        rest = rest if len(chosen) + len(rest) >= m else [k for k in range(K) if available[k] and k not in chosen]
        ways = list(combinations(rest, min(m - len(chosen), len(rest))))
        for way in ways:
            full[chosen | set(way)] += p / len(ways)
    return full


CASES = {
    "first round": (Oort(2), {"utility": (UNSEEN,) * 5, "t": 1}),
    "a window of one": (Oort(2, window=1.0), {"utility": (UNSEEN,) * 5, "t": 1}),
    "exploit one, explore one": (Oort(2), {"utility": (3, UNSEEN, 40, UNSEEN, 9), "exploration": 0.5}),
    "samples caps sizes": (Oort(2, samples=4), {"utility": (3, UNSEEN, 8, UNSEEN, 9), "exploration": 0.4}),
    "no penalty": (Oort(2, penalty=0.0), {"utility": (3, UNSEEN, 40, 7, 9), "exploration": 0.4}),
    "some unavailable": (
        Oort(2), {"utility": (3, UNSEEN, 40, 7, 9), "exploration": 0.4, "available": (True, False, True, True, False)},
    ),
    "nobody unseen": (Oort(3), {"utility": (3, 5, 40, 7, 9), "threshold": 60.0}),
    "unseen, but not here": (
        Oort(3), {"utility": (3, UNSEEN, 40, 7, 9), "exploration": 0.5, "available": (True, False, True, True, True)},
    ),
    "blacklist": (
        Oort(2, blacklist_rounds=1, blacklist_share=0.4), {"utility": (3, 5, 40, 7, 9), "times": (1, 2, 9, 4, 3)},
    ),
    "a high cut-off": (
        Oort(2, cut_off=0.9), {"utility": (30, UNSEEN, 4, 7, 25), "exploration": 0.4, "threshold": 80.0},
    ),
    "a low clip": (Oort(3, clip=0.3), {"utility": (30, 6, 4, 7, 12), "threshold": 20.0}),
    "four clients": (Oort(2, cut_off=0.9), {"utility": (30, UNSEEN, 4, 7), "exploration": 0.4, "threshold": 80.0}),
    "four clients, three seats": (Oort(3, clip=0.3), {"utility": (30, 6, 4, 7), "threshold": 20.0}),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * n.startswith("four clients")) for n in CASES]
)
def test_the_probabilities_are_those_of_a_plain_rendering(name):
    selector, inputs = CASES[name]
    K = len(inputs["utility"])
    inputs = {
        "size": (3, 8, 20, 5, 11)[:K], "last": (1, 5, 3, 2, 4)[:K], "times": (1, 1, 1, 1, 1)[:K], "exploration": 0.9,
        "duration": (2.0, 0.5, 6.0, 3.0, 1.0)[:K], "t": 6, "threshold": 40.0, "available": (True,) * K, **inputs,
    }  # fmt: skip
    expected = rendering(selector, **inputs)
    available = inputs.pop("available")
    state, clients = make(**inputs, samples=selector.samples)
    clients = clients._replace(available=jnp.array(available))
    agree(sets(draws(selector, clients, state)[0]), expected)


def chosen(selector, state, clients):
    """The sets of seats that come in 10^5 draws."""
    return {tuple(sorted(found)) for found in sets(draws(selector, clients, state)[0])}


def test_all_explored_are_exploited():
    """The authors' code reads one past the end of its list: IndexError."""
    state, clients = make((10, 20, 5, 40), (7, 31, UNSEEN, UNSEEN), t=4, exploration=0.1, threshold=100.0)
    assert chosen(Oort(3, exploration_min=0.1), state, clients) == {(0, 1, 2), (0, 1, 3)}


def test_nobody_has_trained():
    """The authors' code reads past the end of an empty list: IndexError; its caller draws the first round at random."""
    state, clients = make((10, 20, 5, 40), (UNSEEN,) * 4)
    assert chosen(Oort(3), state, clients) == set(combinations(range(4), 3))


def test_more_are_over_the_limit_than_may_be_blacklisted():
    """The authors' code slices by a float: TypeError. At most floor(0.3 * 5) = 1, who has trained most often."""
    selector = Oort(2, blacklist_rounds=3, cut_off=0.0)
    state, clients = make([5] * 5, (7, 31, 2, 18, 9), times=(5, 4, 9, 6, 7), t=10, threshold=100.0)
    assert chosen(selector, state, clients) == set(combinations((0, 1, 3, 4), 2))
    two = clients._replace(available=jnp.array([True, False, True, False, False]))
    assert chosen(selector, state, two) == {(0, 2)}, "a seat is not left empty for it"


def test_the_utility_is_the_mean_over_all_samples_of_the_last_participation():
    """FedScale issue 249: there it is that of the last mini-batch."""
    selector, (state, _) = Oort(1), make((4, 6), (UNSEEN, UNSEEN))
    one = Selection(jnp.array([1]), jnp.array([1.0]))
    for square in (9.0, 2.25):
        said = jnp.array([square])
        state = selector.observe(state, one, Report(said, square_loss=said, duration=jnp.array([7.0])))
    np.testing.assert_array_equal(state.ledger.loss, [np.nan, 2.25])
    np.testing.assert_array_equal(state.duration, [np.nan, 7.0])
    np.testing.assert_array_equal(state.ledger.times, [0, 2])


def test_one_client_and_one_seat():
    for utility in (UNSEEN, 2.0):
        state, clients = make((3,), (utility,), t=5)
        assert chosen(Oort(1), state, clients) == {(0,)}


def test_unknown_durations_count_as_the_median_of_the_known():
    """T is the smallest of 2, 6, 9, and 6 twice; at penalty 40 only the fastest has any weight to speak of."""
    selector, size, utility = Oort(2, penalty=40.0), (5, 5, 5, 5, 5), (UNSEEN,) * 5
    state, clients = make(size, utility, expected=[9.0, np.nan, 6.0, 2.0, np.nan], threshold=0.0)
    seats_, _ = draws(selector, clients, state)
    counts = np.bincount(seats_.ravel(), minlength=5) / len(seats_)
    np.testing.assert_allclose(counts, [0, 1 / 3, 1 / 3, 1, 1 / 3], atol=0.01)
    state, clients = make(size, utility, expected=[np.nan] * 5, threshold=0.0)
    seats_, _ = draws(selector, clients, state)
    np.testing.assert_allclose(np.bincount(seats_.ravel()) / len(seats_), 0.4, atol=0.01)


def test_any_report_is_survived():
    selector, (state, clients) = Oort(3, pacer_step=1), make([5] * 6, (7, 31, 2, 18, UNSEEN, 3), t=10)
    three = Selection(jnp.array([0, 4, 2]), jnp.full(3, 1 / 3))
    for square, duration in (
        ([np.inf, np.nan, -1.0], [np.nan, np.inf, -5.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([3e38, 1e-38, np.nan], [3e38, 1e-38, 1.0]),
    ):
        said = jnp.array(square, jnp.float32)
        report = Report(said, square_loss=said, duration=jnp.array(duration, jnp.float32))
        state = selector.observe(state, three, report)
        assert np.isfinite([state.threshold, state.exploration]).all()
        assert {len(found) for found in chosen(selector, state, clients)} == {3}


@jax.jit
def play(selector, state, clients, square):
    """200 rounds: how many of the seats are unseen clients', how many are unseen, and the state after them."""

    def one(state, t):
        selection = pick(selector, round_keys(0, t), state, clients, lambda key, asked: asked).selection
        unseen = state.ledger.times == 0
        said, duration = square[selection.clients], clients.expected_duration[selection.clients]
        after = selector.observe(state, selection, Report(said, square_loss=said, duration=duration))
        return after, (unseen[selection.clients].sum(), unseen.sum())

    return jax.lax.scan(one, state, jnp.arange(200))


def test_exploration_decays_to_its_least_and_ends_when_everybody_has_trained():
    selector = Oort(4, exploration=0.9, exploration_decay=0.8, exploration_min=0.25, pacer_delta=0.0)
    clients = Clients(jnp.full(20, 10), jnp.ones(20, bool), expected_duration=jnp.ones(20))
    state, (seats_, unseen) = play(selector, selector.init(20), clients, jnp.ones(20))
    # The seats of the unseen: 4 - floor(4 (1 - max(0.9 * 0.8^t, 0.25))); all four where nobody has trained.
    assert seats_[:11].tolist() == [4, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1]
    assert unseen[:11].tolist() == [20, 16, 13, 11, 9, 7, 6, 5, 4, 3, 2]
    assert state.exploration == 0.25
    assert (state.ledger.times > 0).all()


def test_the_fast_and_the_lossy_are_selected_more_often():
    """Over 200 rounds with utilities and speeds that do not change; T is that of the fast."""
    square = jnp.where(jnp.arange(20) % 2 == 0, 9.0, 1.0)
    duration = jnp.where(jnp.arange(20) < 10, 1.0, 4.0)
    clients = Clients(jnp.full(20, 10), jnp.ones(20, bool), expected_duration=duration)
    selector = Oort(4, pacer_delta=0.0, threshold=40.0, clip=1.0)
    times = np.asarray(play(selector, selector.init(20), clients, square)[0].ledger.times)
    assert times.min() >= 1, "everybody is explored"
    assert times[0:10:2].mean() > 3 * times[1:10:2].mean()
    assert times[0:10:2].mean() > 3 * times[10::2].mean()


@pytest.mark.slow
def test_the_laws_hold_without_a_blacklist():
    check_selector(Oort(2, pacer_step=2, samples=30, exploration_min=0.0), num_clients=8)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"m": 0}, "m must be at least 1, got 0"),
        ({"clip": 1.5}, "clip must be at least 0 and at most 1, got 1.5"),
        ({"threshold": 101.0}, "threshold must be at least 0 and at most 100, got 101.0"),
        ({"window": 0.5}, "window must be finite and at least 1, got 0.5"),
        ({"penalty": -1.0}, "penalty must be finite and at least 0, got -1.0"),
        ({"pacer_step": 0}, "pacer_step must be at least 1, got 0"),
        ({"samples": 0}, "samples must be above 0, got 0"),
        ({"blacklist_rounds": -1}, "blacklist_rounds must be at least 0, got -1"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(parameters, says):
    with pytest.raises(ValueError, match=f"^Oort: {says}$"):
        Oort(**{"m": 3, **parameters})
