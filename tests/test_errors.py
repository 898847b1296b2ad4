"""Bad input gets one sentence that names the parameter, the rule and the value; never a wrong pick."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpick
from fedpick import (
    AFL,
    Clients,
    ClippedLoss,
    Ledger,
    PowerOfChoice,
    QFairLoss,
    Rand,
    Shrinking,
    Uniform,
    pick,
    registry,
    round_keys,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Rand(0), "Rand: m must be at least 1, got 0"),
        (lambda: Rand(-2, replace=False), "Rand: m must be at least 1, got -2"),
        (lambda: Uniform(2.5), "Uniform: m must be a whole number, got 2.5"),
        (lambda: AFL("3"), "AFL: m must be a whole number, got '3'"),
        (lambda: Rand(True), "Rand: m must be a whole number, got True"),
        (lambda: PowerOfChoice(3, 2), "PowerOfChoice: d must be at least m=3, got 2"),
        (lambda: PowerOfChoice(3, 6.0), "PowerOfChoice: d must be a whole number, got 6.0"),
        (lambda: PowerOfChoice(3, "6"), "PowerOfChoice: d must be a whole number, got '6'"),
        (lambda: PowerOfChoice(1, max), "PowerOfChoice: d must be a whole number, got <built-in"),
        (lambda: PowerOfChoice(3, jnp.array([6, 1])), "PowerOfChoice: d must be at least m=3, got Array([6, 1]"),
        (
            lambda: PowerOfChoice(1, 2, "half"),
            "PowerOfChoice: loss must be one of 'full', 'batch', 'stale', got 'half'",
        ),
        (lambda: PowerOfChoice(1, None), "PowerOfChoice: d must be a whole number, got None"),
        (
            lambda: PowerOfChoice(1, 2, score=None),
            "PowerOfChoice: score must be a function of (loss, size), got None",
        ),
        (
            lambda: PowerOfChoice(1, 2, score=QFairLoss),
            "PowerOfChoice: score must be a function of (loss, size), got",
        ),
        (lambda: Rand(1, replace="false"), "Rand: replace must be True or False, got 'false'"),
        (lambda: fedpick.LocalLoss(by_size=1), "LocalLoss: by_size must be True or False, got 1"),
        (lambda: round_keys(0, -1), "round_keys: t must be at least 0 and below 4294967295, got -1"),
        (lambda: round_keys("a", 0), "round_keys: seed must be a whole number, got 'a'"),
        (lambda: PowerOfChoice(1, 2).init(2.5), "PowerOfChoice: num_clients must be a whole number, got 2.5"),
        (lambda: PowerOfChoice(1, 2, score=7), "PowerOfChoice: score must be a function of (loss, size), got 7"),
        (lambda: AFL(3, alpha1=1.0), "AFL: alpha1 must be at least 0 and below 1, got 1.0"),
        (lambda: AFL(3, alpha1=-0.1), "AFL: alpha1 must be at least 0 and below 1, got -0.1"),
        (lambda: AFL(3, alpha2=NAN), "AFL: alpha2 must be finite and at least 0, got nan"),
        (lambda: AFL(3, alpha3=1.5), "AFL: alpha3 must be at least 0 and at most 1, got 1.5"),
        (lambda: AFL(3, alpha3="a"), "AFL: alpha3 must be a number, got 'a'"),
        (lambda: AFL(3, valuation="size"), "AFL: valuation must be one of 'loss', 'sqrt-size', got 'size'"),
        (lambda: QFairLoss(-1.0), "QFairLoss: q must be finite and at least 0, got -1.0"),
        (lambda: ClippedLoss(NAN), "ClippedLoss: limit must be a number, not NaN, got nan"),
        (lambda: Shrinking(0), "Shrinking: rounds must be at least 1 and below 2**31, got 0"),
        (lambda: Shrinking(100, 0), "Shrinking: steps must be at least 1 and at most 46340, got 0"),
        (lambda: Shrinking(10, 20), "Shrinking: rounds must be at least steps=20, got 10"),
        (lambda: round_keys(-1, 0), "round_keys: seed must be at least 0 and below 18446744073709551616, got -1"),
        (lambda: fedpick.strategy("powd", m=1), "selector must be one of rand, "),
        (lambda: fedpick.strategy("powd", m=1), "or package.module:Class, got 'powd'; did you mean 'pow-d'?"),
        (lambda: fedpick.strategy("pow-d", m=1), "pow-d: d is missing; pow-d takes m, d, score"),
        (
            lambda: fedpick.strategy("pow-d", m=1, D=2),
            "pow-d: D is unknown; pow-d takes m, d, score",
        ),
        (lambda: fedpick.strategy("nowhere:Mine", m=1), "'nowhere:Mine' must be an importable package.module:Class"),
        (lambda: registry.address_of(lambda: 3), "must be importable as package.module:Class to be stored"),
    ],
)
def test_at_construction(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        make()
    assert "\n" not in str(caught.value)


def clients(size=(1, 2, 3), available=None):
    size = np.asarray(size)
    return Clients(size, np.ones(len(size), bool) if available is None else np.asarray(available))


@pytest.mark.parametrize(
    ("selector", "given", "sentence"),
    [
        (PowerOfChoice(2, 5), clients(), "PowerOfChoice: d must be at most K=3, got 5"),
        (PowerOfChoice(4, 5), clients(), "PowerOfChoice: m must be at most K=3, got 4"),
        (Rand(4, replace=False), clients(), "Rand: m must be at most K=3, got 4"),
        (Uniform(4), clients(), "Uniform: m must be at most K=3, got 4"),
        (AFL(4), clients(), "AFL: m must be at most K=3, got 4"),
        (Rand(1), clients([1, -5, 3]), "Rand: size must be 0 or between 1e-30 and 1e30, got -5 for client 1"),
        (Rand(1), clients([1.0, 2.0, NAN]), "Rand: size must be 0 or between 1e-30 and 1e30, got nan for client 2"),
        (Rand(1), clients([0, 0, 0]), "Rand: size must be above 0 for at least one client, got all zero"),
        (Rand(1), clients(["a", "b"]), "Rand: size must be numbers, got dtype <U1"),
        (Rand(1), clients([[1, 2]]), "Rand: size must have shape (K,) with K at least 1, got shape (1, 2)"),
        (Rand(1), clients([]), "Rand: size must have shape (K,) with K at least 1, got shape (0,)"),
        (Rand(1), clients(available=[True]), "Rand: available must have shape (K,) = (3,), got shape (1,)"),
        (Rand(1), clients(available=[1, 0, 1]), "Rand: available must be Bool[K], got dtype int64"),
        (fedpick.Full(), clients([0, 0, 0]), "Full: size must be above 0 for at least one client, got all zero"),
    ],
)
def test_at_the_first_call(selector, given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        pick(selector, round_keys(0, 0), selector.init(3), given, unheard)


def unheard(key, asked):
    return jnp.zeros(asked.shape, jnp.float32)


@pytest.mark.parametrize("loss", ["full", "batch"])
def test_wrong_shapes_of_answers(loss):
    selector = PowerOfChoice(1, 2, loss)
    with pytest.raises(ValueError, match=r"losses must have shape \(K,\) = \(3,\), got shape \(2,\)"):
        pick(selector, round_keys(0, 0), selector.init(3), clients(), lambda key, asked: jnp.zeros(2))


@pytest.mark.parametrize("answers", ["x", None, ["a", "b", "c"], [[1.0], [2.0, 3.0]], object()])
def test_answers_that_are_no_numbers(answers):
    selector = PowerOfChoice(1, 2)
    with pytest.raises(ValueError, match=r"^PowerOfChoice: losses must be numbers, NaN for silence, got "):
        pick(selector, round_keys(0, 0), selector.init(3), clients(), lambda key, asked: answers)


@pytest.mark.parametrize("state", [(), None, 3, {"loss": 1}, (1, 2)])
def test_a_state_of_another_strategy_is_refused(state):
    for selector in (PowerOfChoice(1, 2), PowerOfChoice(1, 2, "stale"), AFL(1)):
        rule = rf"{type(selector).__name__}: state must be of the form that init gives, Ledger\(.*, got "
        with pytest.raises(ValueError, match=rf"^{rule}{re.escape(repr(state))}$"):
            pick(selector, round_keys(0, 0), state, clients(), unheard)


def test_a_score_must_be_one_number_for_each_client():
    selector = PowerOfChoice(1, 2, score=lambda loss, size: loss.mean())
    with pytest.raises(ValueError, match=r"the score must have shape \(K,\) = \(3,\), got shape \(\)"):
        pick(selector, round_keys(0, 0), selector.init(3), clients(), unheard)


def test_numbers_that_are_traced_cannot_be_looked_at_and_never_make_a_wrong_pick():
    @jax.jit
    def play(selector, size):
        facts = Clients(size, jnp.ones(4, bool))
        candidates, _, selection = pick(selector, round_keys(0, 0), selector.init(4), facts, unheard)
        return candidates, selection

    size = jnp.array([3, -1, 0, 5])
    candidates, selection = play(jax.tree.map(lambda d: jnp.int32(d), PowerOfChoice(2, 4)), size)
    assert candidates.tolist() == [True, False, False, True]
    assert sorted(selection.clients.tolist()) == [0, 3]
    _, selection = play(Rand(3), size)
    assert set(selection.clients.tolist()) <= {0, 3}
    _, selection = play(PowerOfChoice(2, 4), jnp.zeros(4, jnp.int32))
    assert selection.weights.tolist() == [0, 0]
    drawn = jax.vmap(lambda d: play(PowerOfChoice(2, d), jnp.arange(1, 5))[0])(jnp.array([-7, 1, 2, 3, 9], jnp.int32))
    assert drawn.sum(axis=1).tolist() == [2, 2, 2, 3, 4]


def test_a_state_of_other_clients_and_a_report_of_other_seats_are_refused():
    selector = PowerOfChoice(1, 2)
    with pytest.raises(ValueError, match="Ledger: K must be 3 as in size, got a state of 1"):
        pick(selector, round_keys(0, 0), Ledger.init(1), clients(), unheard)
    seats = fedpick.Selection(jnp.array([2]), jnp.array([1.0]))
    with pytest.raises(
        ValueError, match=r"must have one shape \(m,\), got clients \(1,\), weights \(1,\) and loss \(3,\)"
    ):
        selector.observe(selector.init(3), seats, fedpick.Report(jnp.zeros(3)))


def test_sizes_beyond_32_bits_count_in_full():
    for size in (np.array([3_000_000_000, 1]), [2**40, 1], np.array([1e30, 1.0])):
        facts = Clients(size, np.ones(2, bool))
        _, weights = pick(fedpick.Full(), round_keys(0, 0), (), facts, unheard).selection
        assert weights[0] > 0.999
        assert 0 <= weights[1] < 1e-9


def test_traced_sizes_that_are_no_sizes_carry_no_weight():
    @jax.jit
    def weights(size):
        return pick(fedpick.Full(), round_keys(0, 0), (), Clients(size, jnp.ones(3, bool)), unheard).selection.weights

    for bad in (NAN, -5.0, float("inf")):
        np.testing.assert_allclose(weights(jnp.array([1.0, bad, 3.0])), [0.25, 0, 0.75])


@pytest.mark.parametrize("name", ["rand", "rand-distinct", "pow-d", "cpow-d", "rpow-d"])
def test_a_client_without_data_is_never_chosen_by_share(name):
    parameters = {"m": 2} if "rand" in name else {"m": 2, "d": 3}
    selector, facts = fedpick.strategy(name, **parameters), clients([0, 4, 0, 1])

    def seats(t):
        return pick(selector, round_keys(1, t), selector.init(4), facts, unheard).selection.clients

    chosen = np.unique(jax.vmap(seats)(jnp.arange(2000, dtype=jnp.int32)))
    assert set(chosen.tolist()) == {1, 3}
