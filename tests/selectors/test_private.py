"""Private losses: the mechanisms against their laws, the budget, the threshold, and what a bit keeps of the choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fedpick
from fedpick import AFL, Clients, Cooldown, OptimalSampling, PowerOfChoice, Private, Report, Selection, pick, round_keys
from fedpick.protocol import disguised
from fedpick.sim import Federation, Liars, Local, Logistic, simulate
from fedpick.sim.liars import encoded

KEY, DRAWS = jax.random.key(0), 40_000


def say(selector, loss, threshold=1.0):
    state = selector.init(2)._replace(log_threshold=jnp.log(jnp.float32(threshold)))
    who = jnp.zeros(DRAWS, jnp.int32)
    return np.asarray(selector.disguise(KEY, state, jnp.full(DRAWS, loss, jnp.float32), who))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_a_bit_is_true_with_its_probability(epsilon):
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    for loss, expected in ((2.0, truth), (0.5, 1 - truth), (1e30, truth)):
        bits = say(Private(PowerOfChoice(1, 2), epsilon), loss)
        assert set(np.unique(bits)) == {0.0, 1.0}
        assert abs(bits.mean() - expected) < 4 * np.sqrt(truth * (1 - truth) / DRAWS)


def test_laplace_noise_has_its_law_and_losses_are_cut():
    private = Private(PowerOfChoice(1, 2), 2.0, mechanism="laplace", clip=4.0)
    said = say(private, 30.0)  # counts as 4, noise of scale 2
    assert (said == 0).mean() == pytest.approx(0.5 * np.exp(-2), abs=0.01)
    positive = said[said > 0]
    law = scipy.stats.laplace(4, 2)
    test = scipy.stats.kstest(positive, lambda x: (law.cdf(x) - law.cdf(0)) / (1 - law.cdf(0)))
    assert test.pvalue > 1e-3


def test_silence_stays_silence():
    private = Private(PowerOfChoice(1, 2))
    assert np.isnan(say(private, jnp.nan)).all()


@pytest.mark.parametrize("above", [0.2, 0.5])
def test_the_threshold_finds_its_quantile_through_the_noise(above):
    K, d = 50, 10
    private = Private(PowerOfChoice(2, d), epsilon=2.0, above=above)
    losses = jnp.exp(jax.random.normal(KEY, (K,)))
    clients, everybody = Clients(jnp.ones(K), jnp.ones(K, bool)), jnp.arange(K, dtype=jnp.int32)

    def step(state, t):
        keys = round_keys(3, t)
        answers = lambda key, asked: private.disguise(key, state, losses, everybody)  # noqa: E731
        picked = pick(private, keys, state, clients, answers)
        after = private.observe(state, picked.selection, Report(jnp.full(2, jnp.nan), polled=picked.losses))
        return after, state.log_threshold

    _, thresholds = jax.lax.scan(step, private.init(K), jnp.arange(2000, dtype=jnp.int32))
    share = (np.asarray(losses) > np.exp(np.asarray(thresholds)[500:, None])).mean()
    assert abs(share - above) < 0.05


def test_at_equal_epsilon_a_bit_keeps_more_of_the_choice_than_laplace_noise():
    K, m, d = 100, 3, 15
    losses = 1 + jax.random.normal(KEY, (K,)) / 4  # a clip of 2 is eight standard deviations

    @jax.jit
    def gain(selector):
        state = selector.init(K)
        if isinstance(selector, Private):
            state = state._replace(log_threshold=jnp.log(jnp.quantile(losses, jnp.float32(0.8))))
        clients, everybody = Clients(jnp.ones(K), jnp.ones(K, bool)), jnp.arange(K, dtype=jnp.int32)

        def once(t):
            def answers(key, asked):
                return selector.disguise(key, state, losses, everybody) if isinstance(selector, Private) else losses

            return losses[pick(selector, round_keys(0, t), state, clients, answers).selection.clients].mean()

        return jax.vmap(once)(jnp.arange(3000, dtype=jnp.int32)).mean() - losses.mean()

    plain = PowerOfChoice(m, d)
    exact = float(gain(plain))
    bit, noisy = (float(gain(Private(plain, 1.0, mechanism=name, clip=2.0))) / exact for name in ("bit", "laplace"))
    assert 0.15 < bit < 0.45
    assert bit > 1.7 * noisy


def test_a_budget_that_is_not_enough_for_one_answer_is_refused():
    with pytest.raises(ValueError, match=r"Private: budget must be at least epsilon, which is 2.0, got 1.5"):
        Private(PowerOfChoice(2, 4), epsilon=2.0, budget=1.5)
    assert Private(PowerOfChoice(2, 4), epsilon=2.0, budget=2.0).budget == 2.0


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return Federation.from_arrays(rng.normal(size=(80, 3)), rng.integers(0, 2, 80), np.repeat(np.arange(20), 4))


def play(data, selector, rounds=60, **options):
    return simulate(data, Logistic(), selector, Local(tau=1, b=2, eta=0.01), rounds=rounds, every=rounds, **options)


@pytest.mark.parametrize(
    ("inner", "mechanism"),
    [
        *((PowerOfChoice(3, 6), mechanism) for mechanism in ("bit", "laplace")),
        *((PowerOfChoice(3, 6, "stale"), mechanism) for mechanism in ("bit", "laplace")),
        (AFL(3), "laplace"),
        (fedpick.Auto(3), "bit"),
        pytest.param(AFL(3), "bit", marks=pytest.mark.slow),
        pytest.param(fedpick.Auto(3), "laplace", marks=pytest.mark.slow),
    ],
)
def test_nobody_answers_beyond_its_budget_and_training_goes_on(data, inner, mechanism):
    private = Private(inner, epsilon=0.5, budget=2.1, mechanism=mechanism)
    result = play(data, private, seeds=2)
    assert (result.records["returned"] == 3).all()
    if private.poll == "full":  # four answers of each of 20 clients
        assert (result.records["polled"].sum(axis=1) <= 80).all()
        assert (result.records["polled"].sum(axis=1) >= 60).all()
        assert (result.records["polled"][:, -1] == 0).all()
    assert np.isfinite(result.metrics["loss"]).all()


@pytest.mark.parametrize("mechanism", ["bit", "laplace"])
def test_a_last_answer_does_not_count_for_ever(data, mechanism):
    private = Private(PowerOfChoice(2, 4, "stale"), epsilon=1.0, budget=2.0, mechanism=mechanism)
    played = play(data, private, rounds=300, seeds=2)
    for seats in played.records["clients"][:, 100:]:  # when all budgets are spent
        counts = np.bincount(seats.ravel(), minlength=len(data.count))
        assert counts.min() > 0.3 * counts.mean()  # by chance, as with rand, and nobody is left out


def test_who_can_say_no_more_counts_as_the_median_of_the_others():
    private = Private(PowerOfChoice(3, 3, "stale"), epsilon=1.0, budget=1.0, mechanism="laplace")
    state = private.init(4)._replace(answers=jnp.array([1, 0, 0, 0], jnp.int32))
    three = Selection(jnp.array([0, 1, 2]), jnp.full(3, 1 / 3, jnp.float32))
    after = private.observe(state, three, Report(jnp.array([jnp.nan, 5.0, 3.0], jnp.float32)))
    np.testing.assert_allclose(after.inner.loss[:3], [3.0, 5.0, 3.0])
    silent = private.observe(state, three, Report(jnp.full(3, jnp.nan, jnp.float32)))
    np.testing.assert_array_equal(silent.inner.loss[0], 0)  # nobody says anything
    np.testing.assert_array_equal(silent.inner.loss[1:], state.inner.loss[1:])  # others are as they were


def test_answers_are_counted_whether_polled_or_reported():
    state = (polling := Private(PowerOfChoice(1, 2))).init(3)
    seat = Selection(jnp.array([1]), jnp.array([1.0]))
    answers = jnp.array([1.0, 0.0, jnp.nan])
    state = polling.observe(state, seat, Report(jnp.array([0.7]), polled=answers))
    assert state.answers.tolist() == [1, 1, 0]
    stale = Private(PowerOfChoice(1, 2, "stale"))
    state = stale.observe(stale.init(3), seat, Report(jnp.array([1.0])))
    assert state.answers.tolist() == [0, 1, 0]


@pytest.mark.slow
def test_a_liar_is_no_more_than_a_yes(data):
    liars = Liars(0.1, "max")
    plain, private = (play(data, s, 200, seeds=4, liars=liars) for s in (PowerOfChoice(3, 12), _private(12)))
    assert liars.capture(private).mean() < 0.7 * liars.capture(plain).mean()


@pytest.mark.parametrize(
    ("liars", "answer"),
    [
        (Liars(0.5, "inflate", factor=10.0), 1.0),  # 0.7 is below the threshold of 2, 7 above: yes
        (Liars(0.5, "inflate", factor=2.0), 0.0),
        (Liars(0.5, "max"), 1.0),
        (Liars(0.5, "deflate"), 0.0),
        (Liars(0.5, model_attack="flip"), None),  # the truth, disguised
        (Liars(0.5, size=2.0), None),
        (Liars(0.5, "silent"), None),
    ],
)
def test_liars_answer_of_the_loss_that_they_claim_without_noise(liars, answer):
    private, K, who = Private(PowerOfChoice(1, 2), epsilon=1.0), 2000, jnp.arange(2000, dtype=jnp.int32)
    state = private.init(K)._replace(log_threshold=jnp.log(jnp.float32(2)))
    lies, losses = liars.lies(), jnp.full(K, 0.7, jnp.float32)
    honest = disguised(private, KEY, state, losses, who)
    told, claimed = lies.answers(losses, 0), lies.claimed(0, K)
    said = encoded(private, state, told, disguised(private, KEY, state, told, who), claimed)
    expected = honest if answer is None else jnp.where(lies.mask(K), answer, honest)
    np.testing.assert_array_equal(said, expected)


def test_who_tells_the_truth_about_losses_disguises_it_in_the_simulator(data):
    private, options = Private(PowerOfChoice(3, 6, "stale"), epsilon=1.0), {"rounds": 60, "seeds": 2}
    sized = play(data, private, liars=Liars(0.2, size=1.0 + 1e-6), **options)
    honest = play(data, private, **options)
    np.testing.assert_array_equal(sized.records["clients"], honest.records["clients"])
    inflating = Liars(0.2, "inflate", factor=1 + 1e-6)
    polls = Private(PowerOfChoice(3, 12), epsilon=100.0)
    lied, told = (play(data, polls, liars=liars, **options) for liars in (inflating, Liars()))
    np.testing.assert_array_equal(lied.records["clients"], told.records["clients"])


def _private(d):
    return Private(PowerOfChoice(3, d), epsilon=4.0, above=0.5)


def test_what_cannot_be_private_is_refused():
    with pytest.raises(ValueError, match="Private: selector must need losses only, got one that needs norm"):
        Private(OptimalSampling(3, d=6))
    with pytest.raises(ValueError, match="Cooldown: selector must not be private, because Private goes around all"):
        Cooldown(Private(PowerOfChoice(3, 6)))
    with pytest.raises(ValueError, match="Private: epsilon must be above 0 and at most 100, got 0"):
        Private(PowerOfChoice(3, 6), 0)
