"""RankClip and Credits: what liars can take of the seats, exactly, and whom credits are taken from."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Clients, Cooldown, Credits, PowerOfChoice, Rand, RankClip, Report, Selection, pick, round_keys

K, L, DRAWS = 20, 3, 4000


@jax.jit
def seats(selector, losses):
    """Who has the seats, in many rounds from the first state."""
    clients, state = Clients(jnp.ones(K), jnp.ones(K, bool)), selector.init(K)

    def once(t):
        return pick(selector, round_keys(1, t), state, clients, lambda key, asked: losses).selection.clients

    return jax.vmap(once)(jnp.arange(DRAWS, dtype=jnp.int32))


def liars_among(d):
    """The probabilities of 0, 1, ... liars among d candidates of equal sizes."""
    return np.array([comb(L, n) * comb(K - L, d - n) for n in range(min(L, d) + 1)]) / comb(K, d)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.75, 1.0])
def test_liars_take_f_d_over_j_of_the_seats(share):
    m, d = 2, 8
    losses = jnp.where(jnp.arange(K) < L, 1e30, jnp.arange(K, dtype=jnp.float32))
    taken = np.asarray(seats(RankClip(PowerOfChoice(m, d), share), losses)) < L
    j, numbers = max(m, int(np.ceil(d * share - 1e-9))), np.arange(L + 1)
    # Of the j that tie at the limit, m have a seat; liars beyond the j-th are among the ties.
    ties = np.maximum(j, numbers)
    expected = (liars_among(d) * m * numbers / ties).sum() / m
    error = np.sqrt((liars_among(d) * (numbers / ties) ** 2).sum() / DRAWS)
    assert abs(taken.mean() - expected) < 4 * error
    if j > m:
        assert taken.mean() < (np.asarray(seats(PowerOfChoice(m, d), losses)) < L).mean() - 0.02


def test_at_the_full_share_losses_decide_nothing():
    losses = jnp.arange(K, dtype=jnp.float32)
    taken = np.bincount(np.asarray(seats(RankClip(PowerOfChoice(2, 8), 1.0), losses)).ravel(), minlength=K)
    assert abs(taken / taken.sum() - 1 / K).max() < 5 * np.sqrt(1 / K / taken.sum())


def test_a_reported_loss_is_bounded_by_the_others():
    selector = RankClip(PowerOfChoice(2, 6, "stale"), 0.5)
    state = selector.init(6)
    for first, loss in ((0, (1.0, 2.0)), (2, (3.0, 4.0)), (4, (jnp.inf, jnp.nan))):
        seats = Selection(jnp.array([first, first + 1]), jnp.array([0.5, 0.5]))
        state = selector.observe(state, seats, Report(jnp.array(loss)))
    assert state.last.tolist()[:5] == [1.0, 2.0, 3.0, 4.0, np.inf]
    known = np.asarray(jax.tree.leaves(state.inner)[0])
    assert known[4] == 3.0


@jax.jit
def play(selector, falls):
    """Rounds in which a seat multiplies a client's loss by its fall; what each has, and who is out in each round."""
    clients = Clients(jnp.ones(K), jnp.ones(K, bool))

    def one(carry, t):
        state, loss = carry
        picked = pick(selector, round_keys(0, t), state, clients, lambda key, asked: jnp.where(asked, loss, jnp.nan))
        chosen = picked.selection.clients
        report = Report(loss[chosen], polled=picked.losses)
        state = selector.observe(state, picked.selection, report)
        return (state, loss.at[chosen].multiply(falls[chosen])), (chosen, state.rest > 0)

    start = selector.init(K), jnp.full(K, 8.0)
    return jax.lax.scan(one, start, jnp.arange(150, dtype=jnp.int32))[1]


def test_who_is_not_helped_by_training_loses_its_credit_for_a_while():
    falls = jnp.where(jnp.arange(K) < L, 1.0, 0.9)  # the first say the same whatever happens
    chosen, out = map(np.asarray, play(Credits(PowerOfChoice(2, 8), strikes=3, rounds=10), falls))
    alone, _ = map(np.asarray, play(Credits(PowerOfChoice(2, 8), strikes=3, rounds=0), falls))
    assert out[:, :L].any(axis=0).all(), "every liar is out at some time"
    assert (~out[20:, :L]).any(), "and comes back"
    assert out[:, :L].mean() > 5 * out[:, L:].mean()
    assert (chosen < L).mean() < 0.6 * (alone < L).mean()


def test_clients_without_credit_are_available_where_there_are_no_others():
    selector = Credits(PowerOfChoice(2, 3))
    state = selector.init(3)._replace(rest=jnp.array([5, 5, 0]))
    clients = Clients(jnp.ones(3), jnp.ones(3, bool))
    picked = pick(selector, round_keys(0, 0), state, clients, lambda key, asked: jnp.arange(3.0))
    assert picked.candidates.all()


def test_defences_compose_and_say_what_is_wrong():
    both = Cooldown(RankClip(Credits(PowerOfChoice(2, 5))), rounds=1)
    assert (both.m, both.poll, both.needs) == (2, "full", {"polled"})
    assert Credits(Rand(2)).needs == frozenset()
    for make, match in (
        (lambda: RankClip(PowerOfChoice(2, 5), 0.0), "RankClip: share must be above 0 and at most 1, got 0.0"),
        (lambda: Credits(PowerOfChoice(2, 5), strikes=0), "Credits: strikes must be at least 1, got 0"),
        (lambda: Credits(Rand), "Credits: selector must be a strategy"),
    ):
        with pytest.raises(ValueError, match=match):
            make()
