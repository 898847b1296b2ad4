"""On federations of four and five clients every probability is enumerated here, and 10^5 draws must agree."""

from collections import Counter, defaultdict
from itertools import combinations, permutations, product
from math import comb, exp, floor, prod, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import AFL, Clients, Ledger, PowerOfChoice, Rand, Uniform, pick, round_keys

pytestmark = pytest.mark.no_cover
DRAWS = 100_000
FEDERATIONS = [(1, 2, 3, 4, 5), (40, 3, 3, 1, 7), (5, 1, 0, 9, 2)]
FOUR = [(1, 2, 3, 4), (5, 1, 0, 9)]  # other shapes, and so programs: in make test-all
federations = pytest.mark.parametrize(
    "size", [*FEDERATIONS, *(pytest.param(size, marks=pytest.mark.slow) for size in FOUR)], ids=str
)


def draw(selector, size, losses=None, state=None):
    """Candidates [draws, K] and seats [draws, m] of 10^5 first rounds."""
    K = len(size)
    clients = Clients(jnp.array(size), jnp.ones(K, bool))
    state = selector.init(K) if state is None else state
    losses = jnp.full(K, jnp.nan) if losses is None else jnp.array(losses, jnp.float32)

    program = often if isinstance(selector, PowerOfChoice) else once
    picked, seats = program(selector, state, clients, losses)
    return np.asarray(picked), np.asarray(seats)


def first_rounds(selector, state, clients, losses):
    def first(t):
        picked = pick(selector, round_keys(11, t), state, clients, lambda key, asked: losses)
        return picked.candidates, picked.selection.clients

    return jax.vmap(first)(jnp.arange(DRAWS, dtype=jnp.int32))


once = jax.jit(first_rounds)
# d is traced, so that a program is run for twenty federations, losses and d: worth compiling for four times the speed.
often = jax.jit(first_rounds, compiler_options={"xla_backend_optimization_level": 1})


def agree(counts, probability):
    """Each outcome's count within five standard deviations of its expectation; the impossible never."""
    assert sum(probability.values()) == pytest.approx(1)
    assert sum(counts.values()) == DRAWS
    assert set(counts) <= {outcome for outcome, p in probability.items() if p > 0}
    for outcome, p in probability.items():
        assert abs(counts[outcome] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1e-6, (outcome, counts[outcome], p)


def agree_each(seats, probability, K):
    """The same for each client's own probability of a seat."""
    for k in range(K):
        p = sum(q for chosen, q in probability.items() if k in chosen)
        count = (seats == k).any(axis=1).sum()
        assert abs(count - DRAWS * p) <= 5 * sqrt(DRAWS * p * max(1 - p, 0)) + 1e-6, (k, count, p)


MEMBERS = [frozenset(k for k in range(5) if code >> k & 1) for code in range(2**5)]


def orders(rows):
    """How often each ordered draw occurs in seats [draws, m]; -1 is an empty seat."""
    found = Counter()
    for row, number in zip(*np.unique(rows, axis=0, return_counts=True), strict=True):
        found[tuple(k for k in row.tolist() if k >= 0)] += int(number)
    return found


def sets(rows):
    """How often each set of clients has the seats [draws, m]."""
    return masks(seated(rows))


def masks(rows):
    """How often each set of clients occurs in masks [draws, K]."""
    return Counter({MEMBERS[code]: number for code, number in tally(codes(rows))})


def pairs(candidates, seats):
    """How often each set of candidates occurs with each set of seats."""
    both = tally(32 * codes(candidates) + codes(seated(seats)))
    return Counter({(MEMBERS[code // 32], MEMBERS[code % 32]): number for code, number in both})


def seated(rows):
    return (rows[:, :, None] == np.arange(5)).any(axis=1)


def codes(rows):
    return rows @ (1 << np.arange(rows.shape[1]))


def tally(numbers):
    """Each number that occurs, and how often."""
    return [(number, int(often)) for number, often in enumerate(np.bincount(numbers)) if often]


def successive(weight, n):
    """P(ordered draw) for n draws without replacement by weight, fewer if fewer have weight."""
    able = [k for k, w in enumerate(weight) if w > 0]
    found = {}
    for order in permutations(able, min(n, len(able))):
        left, p = sum(weight), 1.0
        for k in order:
            p *= weight[k] / left
            left -= weight[k]
        found[order] = p
    return found


def unordered(ordered):
    found = defaultdict(float)
    for order, p in ordered.items():
        found[frozenset(order)] += p
    return dict(found)


def highest(candidates, losses, m):
    """P(set) of the m highest of these candidates with ties broken uniformly."""
    ranked = sorted(candidates, key=lambda k: -losses[k])[:m]
    border = losses[ranked[-1]]
    sure = {k for k in candidates if losses[k] > border}
    tied = [k for k in candidates if losses[k] == border]
    ways = list(combinations(tied, len(ranked) - len(sure)))
    return {frozenset(sure | set(way)): 1 / len(ways) for way in ways}


@federations
@pytest.mark.parametrize("m", [1, 2, 3])
def test_rand(size, m):
    total = sum(size)
    expected = {seats: prod(size[k] / total for k in seats) for seats in product(range(len(size)), repeat=m)}
    _, seats = draw(Rand(m), size)
    agree(orders(seats), expected)
    agree_each(seats, expected, len(size))


@federations
@pytest.mark.parametrize("m", [1, 2, 3])
def test_rand_without_replacement(size, m):
    _, seats = draw(Rand(m, replace=False), size)
    agree(orders(seats), successive(size, m))


@federations
def test_uniform(size):
    K = len(size)
    _, seats = draw(Uniform(2), size)
    # A client without data has weight 0, which is an empty seat.
    able = {pair: frozenset(k for k in pair if size[k] > 0) for pair in combinations(range(K), 2)}
    expected = defaultdict(float)
    for chosen in able.values():
        expected[chosen] += 1 / comb(K, 2)
    agree(sets(seats), expected)


LOSSES = {"distinct": (0.3, -0.2, 0.9, 0.5, 0.1), "tied": (0.5, 0.5, 0.1, 0.5, 0.1), "all tied": (0.0,) * 5}


@federations
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(("m", "loss"), [(1, "full"), (2, "full"), (2, "batch"), (3, "full")])
def test_power_of_choice(size, losses, m, loss):
    for d in range(m, len(size) + 1):
        candidates = unordered(successive(size, d))
        selected = defaultdict(float)
        for drawn, p in candidates.items():
            for chosen, q in highest(drawn, losses, m).items():
                selected[chosen] += p * q
        picked, seats = draw(PowerOfChoice(m, d, loss), size, losses[: len(size)])
        agree(masks(picked), candidates)
        agree(sets(seats), selected)
        agree_each(seats, selected, len(size))
        if d == m:
            agree(sets(seats), unordered(successive(size, m)))
        if d == len(size) and losses == LOSSES["distinct"] and min(size) > 0:
            assert set(sets(seats)) == {frozenset(np.argsort(losses[: len(size)])[-m:].tolist())}


@federations
@pytest.mark.parametrize("trained", [{}, {0: 0.4, 3: 0.9}], ids=["at start", "two have trained"])
def test_rpow_takes_newcomers_first(size, trained):
    m, K = 2, len(size)
    losses = [trained.get(k, float("inf")) for k in range(K)]
    state = Ledger.init(K)._replace(loss=jnp.array([trained.get(k, jnp.nan) for k in range(K)], jnp.float32))
    for d in range(m, K + 1):
        expected, joint = defaultdict(float), defaultdict(float)
        for drawn, p in unordered(successive(size, d)).items():
            for chosen, q in highest(drawn, losses, m).items():
                expected[chosen] += p * q
                joint[drawn, chosen] += p * q
        picked, seats = draw(PowerOfChoice(m, d, "stale"), size, state=state)
        agree(sets(seats), expected)
        agree(pairs(picked, seats), joint)


def afl(values, m, alpha1, alpha2, alpha3):
    """P(set) by enumeration of the three steps; None in ``values`` is a client that has never trained."""
    K = len(values)
    value = [-float("inf") if v is None else v for v in values]
    expected = defaultdict(float)
    for kept, p in highest(range(K), value, K - floor(alpha1 * K)).items():
        weight = [exp(alpha2 * value[k]) if k in kept and values[k] is not None else 0.0 for k in range(K)]
        softmax = unordered(successive(weight, floor((1 - alpha3) * m)))
        for drawn, q in softmax.items():
            rest = [k for k in range(K) if k not in drawn]
            fills = list(combinations(rest, m - len(drawn)))
            for fill in fills:
                expected[drawn | set(fill)] += p * q / len(fills)
    return dict(expected)


@pytest.mark.parametrize(
    ("values", "m", "alphas"),
    [
        ((None,) * 4, 2, (0.75, 0.01, 0.1)),
        ((0.5, 2.0, 0.1, 1.0), 3, (0.75, 0.01, 0.1)),
        ((0.5, 2.0, 0.1, 1.0, 1.5), 3, (0.4, 1.0, 0.1)),
        ((0.5, None, 0.1, None, 1.5), 3, (0.25, 1.0, 0.1)),
        ((1.0, 1.0, 1.0, 1.0, 0.2), 2, (0.5, 2.0, 0.5)),
        ((0.5, 2.0, 0.1, 1.0, 1.5), 3, (0.0, 1.0, 0.0)),
        ((0.5, 2.0, 0.1, 1.0, 1.5), 2, (0.2, 1.0, 1.0)),
    ],
)
@pytest.mark.parametrize("valuation", ["loss", "sqrt-size"])
def test_afl(values, m, alphas, valuation):
    size = tuple(range(1, len(values) + 1))
    state = Ledger.init(len(values))._replace(
        loss=jnp.array([jnp.nan if v is None else v for v in values], jnp.float32)
    )
    if valuation == "sqrt-size":
        values = tuple(None if v is None else v * sqrt(n) for v, n in zip(values, size, strict=True))
    expected = afl(values, m, *alphas)
    _, seats = draw(AFL(m, *alphas, valuation), size, state=state)
    agree(sets(seats), expected)
    agree_each(seats, expected, len(values))
