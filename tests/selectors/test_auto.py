"""auto: its probabilities against their formula, how d moves and why, and that it leaves no bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.draws import optimal, rounds

from fedpick import Auto, Clients, Rand, Report, Selection, check_selector, pick, round_keys
from fedpick.sim import Local, Quadratic, QuadraticModel, quadratic_optimum, simulate

SIZE = (1, 2, 3, 4, 10)


def preferred(size, losses, m, power=1.0, lowest=0.0):
    """Who is selected how likely, where everybody is a candidate: in proportion to p_k (l_k + a tenth)."""
    share = np.array(size) / sum(size)
    above = np.array(losses) - min(lowest, *losses)
    mean = share @ above
    relative = (above / mean + 0.1) / 1.1
    return share, optimal(share * relative**power, m)


@pytest.mark.no_cover
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("losses", [(1.0, 2.0, 0.5, 3.0, 0.1), (-0.9, -0.2, -0.5, -0.1, -0.4)], ids=str)
def test_who_is_selected_and_with_what_weight(m, losses):
    selector = Auto(m, most=5)
    share, expected = preferred(SIZE, losses, m)
    drawn, weights = rounds(selector, SIZE, losses=losses)
    often = np.array([(drawn == k).any(axis=1).mean() for k in range(5)])
    np.testing.assert_allclose(often, expected, atol=4 * 0.5 / np.sqrt(len(drawn)))
    tempered = (share / expected)[drawn] ** 0.3
    np.testing.assert_allclose(weights, tempered / tempered.sum(axis=1, keepdims=True), rtol=1e-4)


def test_candidates_are_drawn_by_share():
    selector, size = Auto(1, most=3), jnp.asarray(SIZE, jnp.float32)
    clients = Clients(size, jnp.ones(5, bool))
    masks = jax.vmap(lambda t: selector.propose(round_keys(0, t).propose, selector.init(5), clients))(
        jnp.arange(20_000)
    )
    assert (np.asarray(masks).sum(axis=1) == 3).all()
    np.testing.assert_allclose(np.asarray(masks).mean(axis=0), optimal(np.array(SIZE, float), 3), atol=0.015)


def at_m(selector, K):
    return selector.init(K)._replace(d=jnp.int32(selector.m))


@pytest.mark.no_cover
@pytest.mark.parametrize("selector", [Auto(2), Auto(2, currency="bytes")], ids=["d = m", "bytes"])
def test_with_d_equal_m_nobody_is_polled_and_nobody_is_preferred(selector):
    state = at_m(selector, 5)
    clients = Clients(jnp.asarray(SIZE), jnp.ones(5, bool))
    asked = []
    picked = pick(selector, round_keys(0, 1), state, clients, lambda key, mask: asked.append(mask) or jnp.ones(5))
    assert not any(mask.any() for mask in asked)
    np.testing.assert_allclose(picked.selection.weights, 0.5)
    drawn, weights = rounds(selector, SIZE, state=state, losses=(9.0, 1.0, 1.0, 1.0, 1.0))
    mean = [(weights * (drawn == k)).sum(axis=1).mean() for k in range(5)]
    np.testing.assert_allclose(mean, np.array(SIZE) / 20, atol=4 * 0.5 / np.sqrt(len(drawn)))


def play(selector, losses, K=40, **more):
    """d and the reasons, round by round, where all clients have the round's loss."""
    state, found = selector.init(K), []
    seats = Selection(jnp.arange(selector.m), jnp.full(selector.m, 1 / selector.m))
    for t, loss in enumerate(losses):
        said = jnp.full(selector.m, loss, jnp.float32)
        answers = jnp.full(K, loss if int(state.d) > selector.m else jnp.nan, jnp.float32)
        more = {"duration": jnp.ones(selector.m), "poll_duration": jnp.float32(0), **more}
        report = Report(said, polled=answers, size=jnp.ones(K, jnp.float32), **more)
        before, state = state, selector.observe(state, seats, report)
        why = selector.explain(before, state)
        if why is not None:
            found.append((t + 1, why))
    return state, found


def noisy(trend, seed=0, noise=0.05):
    return trend + noise * np.random.default_rng(seed).normal(size=len(trend))


def test_without_progress_d_is_halved_down_to_m_and_says_why():
    state, found = play(Auto(2), np.ones(150))
    assert found == [
        (56, "d 10 -> 5, no progress in 56 rounds"),
        (112, "d 5 -> 2, no progress in 56 rounds"),
    ]
    assert Auto(2).status(state) == {"d": 2.0, "estimate": 1.0}


def test_the_estimate_weighs_losses_by_share_and_not_by_head():
    selector, losses = Auto(1, most=5), np.array([1.0, 2.0, 0.5, 3.0, 0.1], np.float32)
    seat = Selection(jnp.zeros(1, jnp.int32), jnp.ones(1))
    more = {"duration": jnp.ones(1), "poll_duration": jnp.float32(0), "size": jnp.asarray(SIZE, jnp.float32)}
    state = selector.observe(selector.init(5), seat, Report(jnp.ones(1), polled=jnp.asarray(losses), **more))
    share = np.array(SIZE) / sum(SIZE)
    np.testing.assert_allclose(state.loss, share @ losses, rtol=1e-5)
    silent = jnp.asarray(losses).at[4].set(jnp.nan)  # the largest does not answer: the others stand for it
    state = selector.observe(selector.init(5), seat, Report(jnp.ones(1), polled=silent, **more))
    np.testing.assert_allclose(state.loss, share[:4] @ losses[:4] / share[:4].sum(), rtol=1e-5)


def test_while_the_loss_falls_d_stays():
    state, found = play(Auto(2), noisy(np.linspace(3, 0.5, 300)))
    assert found == []
    assert int(state.d) == 10


def test_when_the_loss_falls_again_d_rises():
    flat, falling = noisy(np.full(100, 2.0)), noisy(np.linspace(2, 0.2, 200), seed=1)
    state, found = play(Auto(2), np.concatenate([flat, falling]))
    assert "no progress" in found[0][1]
    assert found[-1][1].endswith("the loss falls again")
    assert int(state.d) == 10


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6, -1.0])
def test_the_scale_of_the_loss_does_not_matter(scale):
    losses = np.concatenate([np.linspace(3, 1, 60), np.ones(90)])
    mirrored = losses - 4 if scale < 0 else losses
    found = play(Auto(2), noisy(mirrored) * abs(scale))[1]
    assert found == play(Auto(2), noisy(losses))[1]
    assert found, "d should have moved"


def test_polls_that_take_long_are_given_up_when_seconds_count():
    slow = {"duration": jnp.full(2, 1.0), "poll_duration": jnp.float32(0.5)}
    state, found = play(Auto(2, currency="seconds"), np.linspace(3, 1, 10), **slow)
    assert found[0] == (1, "d 10 -> 5, polls take 50% of the time of training")
    assert (int(state.d), int(state.most)) == (2, 2)
    quick = {"duration": jnp.full(2, 1.0), "poll_duration": jnp.float32(0.1)}
    assert play(Auto(2, currency="seconds"), np.linspace(3, 1, 100), **quick)[1] == []


def test_silence_and_nonsense_change_nothing():
    selector = Auto(2)
    state, _ = play(selector, np.linspace(3, 2, 30))
    seats = Selection(jnp.arange(2), jnp.full(2, 0.5))
    nobody = Report(jnp.full(2, jnp.nan), polled=jnp.full(40, jnp.nan), size=jnp.ones(40, jnp.float32))
    jax.tree.map(np.testing.assert_array_equal, selector.observe(state, seats, nobody), state)
    for loss in (np.inf, -np.inf, 3e38):
        report = nobody._replace(polled=jnp.full(40, jnp.nan).at[3].set(loss))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(selector.observe(state, seats, report).trend))


def test_one_client_with_a_huge_loss_has_one_seat_and_little_weight():
    losses = (1.0, 1.0, 1e12, 1.0, 1.0)
    drawn, weights = rounds(Auto(2, most=5), SIZE, losses=losses)
    mine = np.where(drawn == 2, weights, 0).sum(axis=1)
    assert (drawn == 2).sum(axis=1).max() == 1
    assert mine.max() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("currency", ["bytes", "seconds"])
def test_other_currencies_keep_the_laws(currency):
    check_selector(Auto(3, currency=currency), static=("most",))


@pytest.mark.slow
def test_it_leaves_no_floor_where_a_fixed_d_does():
    """Decaying steps on a quadratic, 1,500 rounds: F - F* ends within a tenth of rand's."""
    federation = Quadratic(seed=50).federation()
    local = Local(tau=2, b=1, eta=0.005, schedule=lambda t: 1 / (1 + t / 30))
    best = quadratic_optimum(federation)[1]

    def end(selector):
        result = simulate(federation, QuadraticModel(), selector, local, rounds=1500, seeds=512, every=50)
        return float((result.metrics["loss"][:, -3:] - best).mean())

    assert end(Auto(3)) < 1.1 * end(Rand(3))
