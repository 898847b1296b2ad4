"""UCB-CS against the sums of its paper, written out over the whole history, and what float32 could spoil."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick import UCBCS, Clients, Report, Selection, check_selector, pick, round_keys

K, M = 6, 2
SIZE = np.array([3, 1, 4, 1, 5, 9])


def index(history, gamma, size):
    """A_k by the paper's sums; a round of the history is {client: (mean loss, standard deviation)}."""
    t, p = len(history), size / size.sum()
    L, N = np.zeros(len(size)), np.zeros(len(size))
    for number, said in enumerate(history, start=1):
        for k, (loss, _) in said.items():
            L[k] += gamma ** (t - number) * loss
            N[k] += gamma ** (t - number)
    T = sum(gamma**j for j in range(t))
    sigma = max((spread for _, spread in history[-1].values()), default=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(N > 0, p * (L / N + np.sqrt(2 * sigma**2 * np.log(T) / N)), np.inf)


def tell(selector, state, said):
    clients = [*said, -1, -1][:M]
    loss, spread = (jnp.array([*column, jnp.nan, jnp.nan][:M]) for column in zip(*said.values(), strict=True))
    selection = Selection(jnp.array(clients), jnp.array([0.5 if k >= 0 else 0.0 for k in clients]))
    return selector.observe(state, selection, Report(loss, square_loss=loss**2 + spread**2))


@jax.jit
def choose(selector, state, clients, seed):
    return pick(selector, round_keys(seed, 0), state, clients, lambda key, asked: asked).selection


FACTS = Clients(jnp.array(SIZE), jnp.ones(K, bool))
seat = st.tuples(st.floats(0.1, 4), st.floats(0.1, 2))
histories = st.lists(st.dictionaries(st.integers(0, K - 1), seat, min_size=1, max_size=M), min_size=1, max_size=20)


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(histories, st.sampled_from([0.3, 0.7, 0.95, 1.0]))
def test_the_seats_go_to_the_largest_index(history, gamma):
    selector = UCBCS(M, gamma)
    state = selector.init(K)
    for said in history:
        state = tell(selector, state, said)
    A = index(history, gamma, SIZE)
    for seed in range(3):
        chosen = np.asarray(choose(selector, state, FACTS, seed).clients)
        assert len(set(chosen.tolist())) == M
        border = np.sort(A)[-M]
        assert (A[chosen] >= border * (1 - 1e-4)).all(), (chosen, A)


def test_the_worked_numbers_of_a_small_history():
    """gamma = 1/2, equal shares; three rounds. By hand: T = 1.75, sigma = 0.5 and N = (1.25, 0.5, 1)."""
    selector = UCBCS(2, 0.5)
    state = selector.init(3)
    for said in ({0: (2.0, 0.1)}, {1: (3.0, 0.2)}, {0: (1.0, 0.5), 2: (1.5, 0.3)}):
        state = tell(selector, state, said)
    np.testing.assert_allclose(state.mean, [(0.25 * 2 + 1) / 1.25, 3.0, 1.5], rtol=1e-6)
    age = np.asarray(state.round - 1 - state.last)
    np.testing.assert_allclose(np.asarray(state.number) * 0.5**age, [1.25, 0.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose([state.total, state.sigma], [1.75, 0.5], rtol=1e-5)
    facts = Clients(jnp.ones(3), jnp.ones(3, bool))
    # 1.2 + 0.4731 = 1.6731, 3 + 0.7481 = 3.7481, 1.5 + 0.5290 = 2.0290
    assert sorted(choose(selector, state, facts, 0).clients.tolist()) == [1, 2]


def test_who_has_never_reported_comes_first_and_ties_are_broken_at_random():
    selector = UCBCS(M)
    state = tell(selector, selector.init(K), {0: (100.0, 3.0), 5: (100.0, 3.0)})
    found = np.stack([choose(selector, state, FACTS, seed).clients for seed in range(200)])
    assert set(np.unique(found)) == {1, 2, 3, 4}
    counts = np.bincount(found.ravel(), minlength=K)[1:5]
    assert (counts > 60).all(), "whatever their sizes"


def test_the_order_is_right_after_thousands_of_rounds():
    """0.7^-2000 is beyond every float; of clients that have not trained for long, the longest goes first."""
    selector = UCBCS(1)
    state = selector.init(3)._replace(
        mean=jnp.array([1.0, 1.0, 9.0]),
        number=jnp.array([1.0, 1.0, 2.0]),
        last=jnp.array([0, 2, 4998], jnp.int32),
        round=jnp.int32(5000),
        total=jnp.float32(10 / 3),
        sigma=jnp.float32(1.0),
    )
    facts = Clients(jnp.ones(3), jnp.ones(3, bool))
    assert all(choose(selector, state, facts, seed).clients.tolist() == [0] for seed in range(5))
    heavy = facts._replace(size=jnp.array([1.0, 1.0, 1e6]))
    assert choose(selector, state, heavy, 0).clients.tolist() == [0]
    # One round more of waiting is worth a factor of 0.7^-0.5 = 1.195 in size.
    for factor, first in ((1.3, 0), (1.5, 1)):
        near = facts._replace(size=jnp.array([1.0, factor, 1.0]))
        assert choose(selector, state, near, 0).clients.tolist() == [first]


def test_silence_teaches_nothing_and_sigma_stays():
    selector = UCBCS(M)
    state = tell(selector, selector.init(K), {1: (2.0, 0.5), 2: (1.0, 0.25)})
    both = Selection(jnp.array([1, 2]), jnp.array([0.5, 0.5]))
    nothing = jnp.full(2, jnp.nan)
    after = selector.observe(state, both, Report(nothing, square_loss=nothing))
    np.testing.assert_array_equal(after.mean, state.mean)
    np.testing.assert_array_equal(after.last, state.last)
    assert after.sigma == state.sigma == pytest.approx(0.5, rel=1e-5)
    assert after.round == 2
    loss_only = selector.observe(state, both, Report(jnp.array([4.0, jnp.nan]), square_loss=nothing))
    assert loss_only.mean[1] == pytest.approx((0.7 * 2 + 4) / 1.7)
    assert loss_only.sigma == state.sigma
    wild = selector.observe(state, both, Report(jnp.array([jnp.inf, -jnp.inf]), square_loss=jnp.array([jnp.inf, 0.0])))
    assert np.isfinite(np.asarray(wild.mean)[1:3]).all()
    assert len(set(choose(selector, wild, FACTS, 0).clients.tolist())) == M


@pytest.mark.slow
def test_the_laws_hold_without_a_discount():
    check_selector(UCBCS(3, gamma=1.0))


def test_errors_name_the_parameter_and_the_rule():
    with pytest.raises(ValueError, match=r"^UCBCS: gamma must be above 0 and at most 1, got 0.0$"):
        UCBCS(3, gamma=0.0)
    with pytest.raises(ValueError, match=r"^UCBCS: K must be 6 as in size, got a state of 4"):
        choose(UCBCS(M), UCBCS(M).init(4), FACTS, 0)
