"""Data and how it is dealt out: partitions, the paper's problems, and what happens to bad input."""

import gzip
import hashlib
import io
import os
import shutil
import urllib.error
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick import Cooldown, Credits, PowerOfChoice, Rand
from fedpick.sim import (
    IID,
    MLP,
    Bernoulli,
    Devices,
    Digits,
    Dirichlet,
    FashionMNIST,
    Federation,
    Local,
    Logistic,
    Model,
    Names,
    OptaxSchedule,
    PowerLaw,
    Quadratic,
    QuadraticModel,
    Server,
    Shards,
    StepDecay,
    Synthetic,
    Trace,
    TraceFile,
    batch_losses,
    downloads,
    from_apply,
    from_datasets,
    from_frame,
    full_losses,
    simulate,
)
from fedpick.sim.availability import AlternatingHalves, DayAndNight, Failures
from fedpick.sim.evaluation import evaluate_clients
from fedpick.sim.minibatches import _all_slots, _epochs, _slot_by_slot, distinct

LABELS = np.arange(3000) % 10


@pytest.mark.parametrize(
    "partition",
    [IID(7), Dirichlet(7, 0.3), Dirichlet(7, 0.3, capped=False), Shards(7), PowerLaw(7)],
    ids=lambda p: repr(p),
)
def test_a_partition_gives_every_sample_to_one_client_and_depends_on_its_seed_alone(partition):
    client = partition(LABELS)
    assert client.shape == LABELS.shape
    assert np.bincount(client, minlength=7).min() >= 1
    assert client.max() == 6
    np.testing.assert_array_equal(client, partition(LABELS))
    assert (client != type(partition)(**{**vars(partition), "seed": 1})(LABELS)).any()


def test_partitions_have_their_shapes():
    sizes = np.bincount(IID(7)(LABELS))
    assert sizes.max() - sizes.min() <= 1
    few = [len(np.unique(LABELS[Shards(10, 2)(LABELS) == k])) for k in range(10)]
    assert max(few) <= 3
    spread = {alpha: np.bincount(Dirichlet(10, alpha, capped=False)(LABELS)).std() for alpha in (0.3, 100.0)}
    assert spread[0.3] > 3 * spread[100.0]
    capped, plain = (np.bincount(Dirichlet(50, 0.3, c, least=1)(LABELS), minlength=50) for c in (True, False))
    assert capped.max() < plain.max()
    many = np.bincount(PowerLaw(200, 3.0)(np.zeros(200_000, int))) / 1000
    assert abs(np.mean(many < np.median(many) * 0.5) - 0.125 * 0.5) < 0.06


def test_the_summary_reads_well():
    federation = Federation.from_partition(np.zeros((3000, 2)), LABELS, Dirichlet(10, 0.3), name="toy")
    summary = federation.summary()
    assert summary.labels.shape == (10, 10)
    assert summary.labels.sum() == 3000
    np.testing.assert_array_equal(summary.sizes, federation.count)
    assert str(summary).startswith("toy: 10 clients, 3,000 samples, 0 test samples\n  samples per client: ")


def test_rows_are_sorted_by_client_and_stay_with_their_labels():
    rng = np.random.default_rng(0)
    client = rng.integers(0, 5, 100)
    federation = Federation.from_arrays(np.arange(100.0)[:, None], np.arange(100) % 7, client)
    for k in range(5):
        rows = slice(int(federation.start[k]), int(federation.start[k] + federation.count[k]))
        np.testing.assert_array_equal(federation.x[rows, 0], np.flatnonzero(client == k))
        np.testing.assert_array_equal(federation.y[rows], np.flatnonzero(client == k) % 7)


@pytest.mark.parametrize("labels", [(1990, 2020), (1, 2), (-1, 1), (2**33, 2**34), ("a", "b")])
def test_labels_with_gaps_are_numbered_as_those_of_files_are(labels):
    y, test = np.array(labels)[[0, 1, 1, 0]], (np.zeros((1, 2)), np.array(labels[1:]))
    federation = Federation.from_arrays(np.zeros((4, 2)), y, [0, 0, 1, 1], test=test)
    assert (federation.classes, federation.y.tolist(), federation.test_y.tolist()) == (2, [0, 1, 1, 0], [1])
    assert federation.names.labels == tuple(map(str, labels))
    assert from_frame(pandas.DataFrame({"x": 0.5, "y": y, "client": [0, 0, 1, 1]})).classes == 2
    same = Federation.from_arrays(
        np.zeros((4, 2)), [0, 3, 3, 0], [0, 0, 1, 1], classes=5
    )  # they are those of the model
    assert (same.classes, same.y.tolist()) == (5, [0, 3, 3, 0])


def test_a_masked_array_without_a_masked_entry_is_an_array():
    federation = Federation.from_arrays(np.ma.masked_equal([[1], [2]], 7), np.ma.array([0, 1]), np.ma.array(["a", "b"]))
    assert (federation.x.tolist(), federation.names.clients) == ([[1.0], [2.0]], ("a", "b"))


def test_bytes_are_names_as_texts_are():
    one = Federation.from_arrays(
        np.zeros((2, 1)), np.array([b"x", b"y"]), np.array([b"a", b"b"]), test=([[1.0]], ["y"])
    )
    assert (one.names, one.test_y.tolist()) == (Names(("a", "b"), ("x", "y")), [1])


X, Y, C = np.zeros((4, 2)), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Federation.from_arrays(X, Y, [0, 0, 1, 5], num_clients=2), "client must be at least 0 and below num_clients=2, got 5 in row 3"),
        (lambda: Federation.from_arrays(X, Y, [0, -1, 1, 1]), "client must be at least 0 and below num_clients=2, got -1 in row 1"),
        (lambda: Federation.from_arrays(X, Y, [0, 0, 2, 2], num_clients=3), "every client must hold at least 1 sample, got none for clients 1"),
        (lambda: Federation.from_arrays(X, Y, np.zeros((0, 2))), "client must have one entry per sample (4), got shape (0, 2)"),
        (lambda: Federation.from_arrays(X, Y, C, size=[[1], [1, 2]]), "size must be an array with a row per client, got [[1], [1, 2]]"),
        (lambda: Federation.from_arrays(X, Y, C, size=3), "size must have a row per client, got 3"),
        (lambda: Federation.from_arrays(X, Y, [0, 0, 1]), "client must have one entry per sample (4), got shape (3,)"),
        (lambda: Federation.from_arrays(X, Y, [0.0, 0.0, 1.5, 1.0]), "client must be whole numbers or words, got 1.5 in row 2"),
        (lambda: Federation.from_arrays(X, [0.5, 1.0, 2.0, 1.0], C), "y must be whole numbers or words (targets of a regression go into x, see docs/own-data.md), got 0.5 in row 0"),
        (lambda: Federation.from_arrays(X, Y, [0.0, np.nan, 1.0, 1.0]), "client must be known for every sample, got none in row 1"),
        (lambda: Federation.from_arrays(X, Y, ["a", "b", "", "a"]), "client must be known for every sample, got none in row 2"),
        (lambda: Federation.from_arrays(X, Y, ["a", "b", "a", np.nan]), "client must be known for every sample, got none in row 3"),
        (lambda: Federation.from_arrays(X, ["a", np.nan, "b", "a"], C), "y must be known for every sample, got none in row 1"),
        (lambda: Federation.from_arrays(np.ma.masked_equal([[1, 2], [3, 4], [5, 6], [7, 0]], 4), Y, C), "x must be finite in float32, got NaN or infinity in row 1"),
        (lambda: Federation.from_arrays(X, np.ma.masked_array(Y, [0, 0, 1, 0]), C), "y must be known for every sample, got none in row 2"),
        (lambda: Federation.from_partition(X, np.ma.masked_array(Y, [0, 0, 1, 0]), IID(2)), "y must be known for every sample, got none in row 2"),
        (lambda: Federation.from_arrays(X, Y, np.ma.masked_array(["a", "b", "a", "b"], [0, 1, 0, 0])), "client must be known for every sample, got none in row 1"),
        (lambda: Federation.from_arrays(X, Y, pandas.array(["a", None, "b", "b"], dtype="string")), "client must be known for every sample, got none in row 1"),
        (lambda: from_datasets([[(np.ma.masked_equal([1.0, 2.0], 2.0), 0)] * 2] * 2), "x must be finite in float32, got NaN or infinity in row 0"),
        (lambda: Federation.from_arrays(X * np.nan, Y, C), "x must be finite in float32, got NaN or infinity in row 0"),
        (lambda: Federation.from_arrays(np.array([["a", "b"]] * 4), Y, C), "x must be numbers, a row per sample, got dtype <U1"),
        (lambda: Federation.from_arrays(X, Y, C, classes=1), "y must be at least 0 and below classes=1, got 1 in row 1"),
        (lambda: Federation.from_arrays(X, Y - 1, C, classes=1), "y must be at least 0 and below classes=1, got -1 in row 0"),
        (lambda: Federation.from_arrays(X, Y, C, test=(X, Y[:3])), "test y must have one entry per sample (4), got shape (3,)"),
        (lambda: Federation.from_arrays(X, Y, C, test=(X[:, :1], Y)), "test x must have samples of shape (2,), got (1,)"),
        (lambda: Federation.from_arrays(X, Y, C, size=[1.0, 0.0]), "size must be K=2 numbers between 1e-30 and 1e30, got"),
        (lambda: Federation.from_arrays(X[:0], Y[:0], C[:0]), "client must have one entry per sample (0), got shape (0,)"),
        (lambda: Federation.from_arrays(X + 1e300, Y, C), "x must be finite in float32, got NaN or infinity in row 0"),
        (lambda: Federation.from_arrays(X, Y + 2**32, C, classes=2), "y must be below 2**31, got 4294967297"),
        (lambda: Federation.from_arrays(X, Y, C, classes=3.5), "Federation: classes must be a whole number, got 3.5"),
        (lambda: Local(1, 1, 0.1, optimizer=optax.adam(0.1)), "Local: optimizer must be a name, or a function of the learning rate such as optax.adam and not"),
        (lambda: Server(optax.adam(0.1)), "Server: optimizer must be a name, or a function of the learning rate such as optax.adam and not"),
        (lambda: Local(1, 1, 0.1, schedule=3), "Local: schedule must be a function of the round t, such as StepDecay, got 3"),
        (lambda: OptaxSchedule("cosine_decay_schedule"), "OptaxSchedule: arguments must suit cosine_decay_schedule"),
        (lambda: OptaxSchedule("_schedule"), "OptaxSchedule: name must be one of 'constant_schedule'"),
        (lambda: OptaxSchedule("exponential_decay"), "OptaxSchedule: arguments must suit exponential_decay"),
        (lambda: OptaxSchedule("constant_schedule", {"value": -1.0}), "OptaxSchedule: arguments must give constant_schedule a value that is finite and at least 0 in round 0, got -1.0 of"),
        (lambda: OptaxSchedule("constant_schedule", {"value": np.nan}), "OptaxSchedule: arguments must give constant_schedule a value that is"),
        (lambda: StepDecay(factor=0.1), "StepDecay: factor must come with at, the rounds, got factor=0.1 alone"),
        (lambda: StepDecay(factor=-1), "StepDecay: factor must be finite and at least 0, got -1"),
        (lambda: StepDecay(factor=np.nan), "StepDecay: factor must be finite and at least 0, got nan"),
        (lambda: StepDecay(at=(-5,)), "StepDecay: at must be at least 0, got -5"),
        (lambda: StepDecay(at=(2.5,)), "StepDecay: at must be a whole number, got 2.5"),
        (lambda: TraceFile("a.json", seconds=np.inf), "TraceFile: seconds must be finite and above 0, got inf"),
        (lambda: Devices(deadline=jnp.ones(3)), "Devices: deadline must be one number, got"),
        (lambda: Federation.from_partition(X, Y, "iid"), "Federation: partition must be one such as Dirichlet(K=30, alpha=0.3), got 'iid'"),
        (lambda: Federation.from_partition(X, Y, [IID(2), IID]), "Federation: partition must be one such as Dirichlet(K=30, alpha=0.3), got <class"),
        (lambda: Federation.from_partition(X, Y, [IID(2), IID(2)], test_share=0.2), "Federation: test_share must be 0 where runs deal out the samples each in its own way"),
        (lambda: Dirichlet(0, 1.0), "Dirichlet: K must be at least 1, got 0"),
        (lambda: Dirichlet(5, -1.0), "Dirichlet: alpha must be finite and above 0, got -1.0"),
        (lambda: Dirichlet(30, 0.3, least=101)(LABELS), "Dirichlet: least must be low enough to be met"),
        (lambda: IID(5000)(LABELS), "IID: K must be at most the number of samples, 3000, got 5000"),
        (lambda: Shards(2000, 2)(LABELS), "Shards: K * per_client must be at most the 3000 samples, got 4000"),
        (lambda: Local(0, 5, 0.1), "Local: tau must be at least 1, got 0"),
        (lambda: Local(1, 0, 0.1), "Local: b must be at least 1, got 0"),
        (lambda: Local(1, 1, -0.1), "Local: eta must be finite and at least 0, got -0.1"),
        (lambda: Local(1, 1, 0.1, batches="some"), "Local: batches must be one of 'distinct', 'replace', 'epochs', got 'some'"),
        (lambda: Server(eta=0.0), "Server: eta must be finite and above 0, got 0.0"),
        (lambda: AlternatingHalves(1.0), "AlternatingHalves: away must be at least 0 and below 1, got 1.0"),
        (lambda: Bernoulli(1.5), "Bernoulli: probability must be at least 0 and at most 1, got 1.5"),
        (lambda: DayAndNight(period=0.0), "DayAndNight: period must be above 0, got 0.0"),
        (lambda: Trace(np.zeros(3)), "Trace: present must be Bool[rounds, K] with a round at least, got shape (3,)"),
        (lambda: Devices(speed=0.0), "Devices: speed must be above 0, got 0.0"),
        (lambda: MLP((0,)), "MLP: hidden must be at least 1, got 0"),
        (lambda: MLP((3,), 1.0), "MLP: dropout must be at least 0 and below 1, got 1.0"),
        (lambda: Logistic("hinge"), "objective must be one of 'cross-entropy', 'minus-probability', got 'hinge'"),
        (lambda: Synthetic(-1.0), "Synthetic: alpha must be finite and at least 0, got -1.0"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_arguments_of_simulate_get_one_sentence():
    toy, model, local = Quadratic(K=4, v=2).federation(), QuadraticModel(), Local(1, 1, 0.1)
    for options, sentence in [
        ({"rounds": 0}, "simulate: rounds must be at least 1, got 0"),
        ({"rounds": 2.5}, "simulate: rounds must be a whole number, got 2.5"),
        ({"every": 0}, "simulate: every must be at least 1, got 0"),
        ({"seeds": []}, "simulate: seeds must be one or more numbers, at least 0 and below 2**31, got []"),
        ({"seeds": [1, 1]}, "simulate: seeds must be one or more different numbers, at least 0 and below 2**31, got [1, 1]"),
        ({"seeds": [-1]}, "simulate: seeds must be one or more numbers, at least 0 and below 2**31, got [-1]"),
        ({"until": ("accuracy", 0.5)}, "simulate: until must be a pair of one of loss, "),
        ({"until": ("test_accuracy", 80)}, "simulate: until of test_accuracy must be a part, such as 0.8 for 80 %, got 80"),
        ({"until": "loss"}, "simulate: until must be a pair of one of loss, "),
        ({"seeds": 1.5}, "simulate: seeds must be a whole number or whole numbers, got 1.5"),
        ({"selector": Rand}, "simulate: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got <class"),
        ({"failures": 0.1}, "simulate: failures must be a Failures, got 0.1"),
        ({"selector": PowerOfChoice(2, 9)}, "PowerOfChoice: d must be at most K=4, got 9"),
        ({"selector": PowerOfChoice(2, jnp.array([3, 9]))}, "PowerOfChoice: d must be at most K=4, got 9"),
        ({"selector": Rand(9, replace=False)}, "Rand: m must be at most K=4, got 9"),
        ({"selector": PowerOfChoice(1, jnp.array([2, 3])), "local": Local(1, 1, jnp.array([0.1] * 3))}, "simulate: swept fields must be arrays of one length, got"),
        ({"availability": Trace(np.ones((2, 5), bool))}, "Trace: present must have a column for each of K=4 clients, got 5"),
        (
            {"availability": Bernoulli(np.ones(5))},
            "Bernoulli: probability must be one number or one for each of K=4, got shape (5,); in a file, a sweep of it",
        ),
        ({"failures": Failures(np.ones(5))}, "Failures: probability must be one number or one for each of K=4"),
        ({"devices": Devices(speed=jnp.ones(3))}, "Devices: speed must be one number or one for each of K=4"),
    ]:  # fmt: skip
        options = {"rounds": 2, "selector": Rand(2), "local": local, **options}
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            simulate(toy, model, options.pop("selector"), options.pop("local"), **options)
        assert sentence in str(caught.value)


def test_a_model_that_does_not_fit_gets_one_sentence():
    toy = Federation.from_arrays(np.eye(4), [0, 1, 2, 2], [0, 0, 1, 1])
    good = Logistic().build(toy)
    few = Federation.from_arrays(np.eye(4), [0, 1, 1, 1], [0, 0, 1, 1])
    wide = Federation.from_arrays(np.eye(4, 5), [0, 1, 2, 2], [0, 0, 1, 1])
    for model, sentence in [
        (
            Logistic().build(few),
            "simulate: the loss of every client must be finite before round 0, got NaN for 1 of 2, such as client 1; does the model",
        ),
        (Logistic().build(wide), "simulate: model.logits must take samples of shape (4,), got"),
        *[
            (
                from_apply(good.init, apply),
                f"simulate: the model must give logits of shape (n, classes), which is (2, 3) for n=2 samples, got {found}",
            )
            for apply, found in (
                (lambda p, x, key: x[:, 0], "shape (2,)"),
                (lambda p, x, key: x[:1, :3], "shape (1, 3)"),
                (lambda p, x, key: x[:, None, :3], "shape (2, 1, 3)"),
                (lambda p, x, key: (x, x), "tuple"),
            )
        ],
        (
            from_apply(good.init, lambda p, x, key: {}["w"]),
            "simulate: model.logits must take samples of shape (4,), got an error: KeyError: 'w'",
        ),
        (
            from_apply(lambda key: jnp.zeros(3) @ jnp.zeros(4), lambda p, x, key: x),
            "simulate: model.init must give parameters, got an error: TypeError: ",
        ),
        (
            Model(good.init, lambda p, x, y, key: jnp.zeros((2, 1)), good.predict),
            "model.losses must give one number per sample (2,), got shape (2, 1)",
        ),
        (
            Model(good.init, good.losses, lambda p, x: jnp.zeros(())),
            "model.predict must give one number per sample (2,), got shape ()",
        ),
        (
            Model(lambda key: jnp.zeros(3, jnp.int32), good.losses, good.predict),
            "simulate: model must have float32 parameters, got",
        ),
    ]:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            simulate(toy, model, Rand(1), Local(1, 1, 0.1), rounds=2)
        assert sentence in str(caught.value)


@pytest.mark.no_cover
def test_sums_over_a_large_client_stay_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100_003, 4))
    big = Federation.from_arrays(x, rng.integers(0, 10, len(x)), np.minimum(np.arange(len(x)), 3))
    model = Logistic().build(big)
    zeros = model.init(jax.random.key(0))
    params = {"w": jnp.asarray(rng.normal(size=(4, 10)), jnp.float32), "b": zeros["b"]}
    logits = x @ np.asarray(params["w"], np.float64)
    each = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(x)), np.asarray(big.y)]
    for asked in (evaluate_clients(big, model, params)[0], full_losses(big, model, params, asked=jnp.ones(4, bool))):
        np.testing.assert_allclose(asked[3], each[3:].mean(), rtol=1e-5)
    for asked in (evaluate_clients(big, model, zeros)[0], full_losses(big, model, zeros, asked=jnp.ones(4, bool))):
        np.testing.assert_allclose(asked, np.full(4, np.log(10), np.float32), rtol=1e-7)


def test_one_outlier_does_not_blur_the_losses_of_the_others():
    from fedpick.sim import Model

    for worst in (1e8, 1e30):
        toy = Federation.from_arrays(np.array([[worst], [1.0], [2.0], [3.0]]), [0] * 4, np.arange(4))
        model = Model(
            lambda key: jnp.zeros(1), lambda p, x, y, key: x[:, 0] + 0 * p[0], lambda p, x: jnp.zeros(len(x), jnp.int32)
        )
        for losses in (
            full_losses(toy, model, jnp.zeros(1), asked=jnp.ones(4, bool)),
            batch_losses(toy, model, jnp.zeros(1), asked=jnp.ones(4, bool), b=1, key=jax.random.key(0)),
            evaluate_clients(toy, model, jnp.zeros(1))[0],
        ):
            assert losses[1:].tolist() == [1.0, 2.0, 3.0]


def test_fewer_available_than_d_is_said():
    there = np.ones((2, 4), bool)
    there[0, :2] = False
    with pytest.warns(UserWarning, match="simulate: fewer clients were available than d=3 in 50% of the rounds"):
        simulate(
            Quadratic(4, 2).federation(),
            QuadraticModel(),
            Cooldown(PowerOfChoice(1, 3), rounds=1),  # seen inside a wrapper too
            Local(1, 1, 1e-4),
            rounds=4,
            availability=Trace(there),
        )


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (
            Cooldown(PowerOfChoice(1, 2)),
            "4 - 5 rested clients must be more than m=1, or those that have rested longest",
        ),
        (Credits(Cooldown(PowerOfChoice(1, 3), rounds=2)), "4 - 2 rested clients must be at least d=3, or all of them"),
    ],
)
def test_a_rest_after_which_losses_decide_nothing_is_said(selector, said):
    def play(rounds):
        data, options = Quadratic(4, 2).federation(), {"rounds": rounds, "progress": False}
        simulate(data, QuadraticModel(), selector, Local(1, 1, 1e-4), **options)

    with pytest.warns(UserWarning, match=f"simulate: Cooldown: K - m rounds = {said}"):
        play(6)
    play(2)  # in which fewer clients rest: no warning


@pytest.mark.no_cover
@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000))
def test_a_batch_holds_different_samples_of_the_client(count, b, seed):
    index, used = map(np.asarray, distinct(jax.random.key(seed), jnp.int32(count), (50, b)))
    assert (used.sum(axis=1) == min(b, count)).all()
    for row, real in zip(index, used, strict=True):
        assert len(set(row[real].tolist())) == min(b, count)
        assert ((row >= 0) & (row < count)).all()


def test_every_subset_of_samples_is_equally_likely():
    index, _ = distinct(jax.random.key(0), jnp.int32(5), (50_000, 3))
    codes, counts = np.unique((1 << np.asarray(index)).sum(axis=1), return_counts=True)
    assert len(codes) == 10
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(50_000 * 0.1 * 0.9)


@pytest.mark.no_cover
@pytest.mark.parametrize(("count", "b"), [(1, 1), (5, 3), (5, 5), (64, 64), (70, 64), (10_000, 64), (9, 1)])
def test_both_ways_to_draw_distinct_places_are_the_same_draw(count, b):
    number = min(count, b)
    last = count - number + jnp.arange(b, dtype=jnp.int32)
    for seed in range(5):
        drawn = jax.random.randint(jax.random.key(seed), (40, b), 0, jnp.maximum(last, 0)[None, :] + 1)
        np.testing.assert_array_equal(_slot_by_slot(drawn, last), _all_slots(drawn, last))


def test_epochs_go_through_all_samples_before_any_comes_again():
    local = Local(tau=9, b=4, eta=0.1, batches="epochs")
    index, used = map(np.asarray, _epochs(jax.random.key(0), jnp.int32(10), (local.tau, local.b), largest=17))
    for first in (0, 3, 6):
        seen = np.concatenate([index[s][used[s]] for s in range(first, first + 3)])
        assert sorted(seen.tolist()) == list(range(10))
    assert (index[:3] != index[3:6]).any()
    assert int(local.samples(jnp.int32(10))) == used.sum() == 30
    assert int(Local(tau=4, b=4, eta=0.1, batches="epochs").samples(jnp.int32(10))) == 14


@pytest.mark.no_cover
def test_a_poll_is_the_mean_loss_of_those_asked_and_nan_for_the_others():
    federation = Synthetic(1, 1, K=6, seed=3).federation()
    model = Logistic().build(federation)
    w = np.random.default_rng(0).normal(size=(60, 10)).astype(np.float32)
    params = {"w": jnp.asarray(w), "b": jnp.arange(10, dtype=jnp.float32)}
    asked = np.array([True, False, True, True, False, True])
    losses = np.asarray(full_losses(federation, model, params, asked=jnp.asarray(asked)))
    both, accuracy = evaluate_clients(federation, model, params)
    x, y = np.asarray(federation.x, np.float64), np.asarray(federation.y)
    logits = x @ w + np.arange(10)
    each = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1) - logits[np.arange(len(y)), y]
    for k in range(6):
        rows = slice(int(federation.start[k]), int(federation.start[k] + federation.count[k]))
        np.testing.assert_allclose(both[k], each[rows].mean(), rtol=1e-5)
        np.testing.assert_allclose(accuracy[k], (logits[rows].argmax(1) == y[rows]).mean(), rtol=1e-5)
    np.testing.assert_allclose(losses[asked], np.asarray(both)[asked], rtol=1e-5)
    assert np.isnan(losses[~asked]).all()
    everything = batch_losses(
        federation, model, params, asked=jnp.asarray(asked), b=int(federation.count.max()), key=jax.random.key(0)
    )
    np.testing.assert_allclose(np.asarray(everything)[asked], losses[asked], rtol=1e-5)
    assert np.isnan(np.asarray(everything)[~asked]).all()


def test_at_a_model_of_zeros_all_clients_are_exactly_tied():
    federation = Synthetic(1, 1, seed=0).federation()
    model = Logistic().build(federation)
    params = model.init(jax.random.key(0))
    asked = jnp.ones(30, bool)
    assert len(np.unique(full_losses(federation, model, params, asked=asked))) == 1
    assert len(np.unique(batch_losses(federation, model, params, asked=asked, b=20, key=jax.random.key(0)))) == 1


def test_the_cost_of_a_poll_grows_with_those_asked_and_not_with_evaluate_clients():
    """Read off the compiled program: a loop as long as the samples asked for, and no pass over all of them."""
    federation = Synthetic(1, 1, K=30, seed=1).federation()
    model = Logistic().build(federation)
    text = str(
        jax.make_jaxpr(lambda p, a: full_losses(federation, model, p, asked=a))(
            model.init(jax.random.key(0)), jnp.ones(30, bool)
        )
    )
    total = len(federation.y)
    assert total > 2048
    assert "while" in text
    assert f"f32[{total},10]" not in text, "the logits of every sample"


def test_synthetic_is_as_the_notes_have_it():
    sizes = np.concatenate([np.asarray(Synthetic(seed=s).federation().count) for s in range(20)])
    assert sizes.min() >= int(0.9 * 50)
    assert 1.5 < np.log(sizes - 40.0).std() < 2.5
    federation = Synthetic(0, 0, seed=0).federation()
    assert federation.x.shape[1] == 60
    within = np.concatenate(
        [np.asarray(federation.x)[int(s) : int(s + n)] - np.asarray(federation.x)[int(s) : int(s + n)].mean(0)
         for s, n in zip(federation.start, federation.count, strict=True)]
    )  # fmt: skip
    np.testing.assert_allclose(within.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.15)
    assert 0.09 < len(federation.test_y) / (len(federation.y) + len(federation.test_y)) < 0.12


def test_alpha_of_synthetic_has_no_effect_as_in_the_published_generator():
    one, other = Synthetic(0, 1, K=5).federation(), Synthetic(5, 1, K=5).federation()
    for part in ("x", "y", "count", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
    assert not np.array_equal(Synthetic(1, 0, K=5).federation().y, one.y)


def test_digits_need_no_download():
    federation = Digits().federation()
    assert federation.num_clients == 30
    assert len(federation.y) + len(federation.test_y) == 1797
    assert abs(float(federation.x.min())) <= 1
    assert str(federation.summary()).startswith("digits, Dirichlet(K=30")


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return gzip.compress(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A tiny stand-in for the four files, with sums of its own."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "fashion-mnist"
    folder.mkdir(parents=True)
    for name in downloads.FILES:
        number = 600 if name.startswith("train") else 100
        shape = (number, 28, 28) if "images" in name else (number,)
        content = idx(rng.integers(0, 256, shape) if "images" in name else np.arange(number) % 10)
        (folder / name).write_bytes(content)
        known = downloads.Published(len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(downloads.FILES, name, known)
    return folder


def test_fashion_mnist_is_found_by_option_and_by_variable_and_stays_bytes(files, monkeypatch):
    partition = Dirichlet(K=5, alpha=1.0)
    federation = FashionMNIST(partition).federation(files.parent)
    assert federation.x.shape == (600, 28, 28)
    assert federation.x.dtype == jnp.uint8
    seen = np.asarray(federation.prepare(federation.x[:2]), np.float64)
    np.testing.assert_allclose(seen, (np.asarray(federation.x[:2]) / 255 - 0.1307) / 0.3081, atol=1e-5)
    monkeypatch.setenv("FEDPICK_DATA", str(files))
    np.testing.assert_array_equal(FashionMNIST(partition).federation().y, federation.y)


def test_altered_truncated_and_missing_files_are_named(files, monkeypatch, tmp_path):
    name = "train-labels-idx1-ubyte.gz"
    whole = (files / name).read_bytes()
    for bad in (whole[:-10], whole + b"x"):
        (files / name).write_bytes(bad)
        with pytest.raises(
            ValueError, match=rf"FashionMNIST: {name} must have SHA-256 .*, got another: it is truncated"
        ):
            FashionMNIST().federation(files)
    (files / name).unlink()
    with pytest.raises(FileNotFoundError, match="FashionMNIST: data must be a folder with train-images"):
        FashionMNIST().federation(files)
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="FashionMNIST: FEDPICK_DATA must be a folder with"):
        FashionMNIST().federation()


class Endless(io.BytesIO):
    """A server that never stops sending."""

    sent = 0

    def read(self, size=-1):
        self.sent += size
        return b"x" * size


def test_what_is_published_is_named_over_https_with_sums_that_hold():
    assert downloads.MIRROR.startswith("https://")
    assert all(len(known.sha256) == 64 for known in downloads.FILES.values())


@pytest.mark.parametrize(
    "content",
    [b"", b"nothing", gzip.compress(b""), gzip.compress(b"\0\0\x08\x03\0\0"), b"\x1f\x8b\x08"],
    ids=["empty", "text", "nothing inside", "cut inside", "cut"],  # what gzip writes has the time in it
)
def test_an_idx_file_that_is_none_is_one_sentence(content):
    with pytest.raises(ValueError, match="FashionMNIST: labels must be a compressed idx file, got an error"):
        downloads.parse_idx(content, "labels")


def test_offline_is_one_sentence_and_a_bad_download_is_not_kept(files, monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPICK_DATA", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def offline(*arguments, **options):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(
        ConnectionError, match=r"FashionMNIST: could not download .* put the official files into a folder"
    ):
        FashionMNIST().federation()
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **o: io.BytesIO(b"not the file"))
    with pytest.raises(ValueError, match=r"must have [\d,]+ bytes and SHA-256 .* nothing was kept"):
        FashionMNIST().federation()
    assert not [path for path in cache.rglob("*") if path.is_file()]
    endless = Endless()
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **o: endless)
    with pytest.raises(ValueError, match="got other content; nothing was kept"):
        FashionMNIST().federation()
    assert endless.sent <= downloads.FILES["train-images-idx3-ubyte.gz"].size + downloads.BLOCK
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **o: Endless())
    monkeypatch.setattr(downloads, "LONGEST", -1.0)  # a drip that never falls silent
    with pytest.raises(ConnectionError, match=r"could not download .* bytes came in"):
        FashionMNIST().federation()
    monkeypatch.setattr(downloads, "LONGEST", 60.0)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    monkeypatch.setattr("urllib.request.urlopen", lambda url, **o: (files / url.rsplit("/", 1)[1]).open("rb"))
    federation = FashionMNIST(Dirichlet(K=5, alpha=1.0)).federation()
    assert federation.x.shape[0] == 600
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == sorted(downloads.FILES)
    shutil.rmtree(cache)


@pytest.fixture(scope="module")
def official():
    if "FEDPICK_DATA" not in os.environ:
        pytest.skip("FEDPICK_DATA does not name the official files")
    return FashionMNIST(Dirichlet(K=100, alpha=0.3)).federation()


def test_the_official_files_where_they_are(official):
    federation = official
    assert federation.x.shape == (60000, 28, 28)
    assert federation.test_x.shape == (10000, 28, 28)
    assert np.bincount(federation.y).tolist() == [6000] * 10


@pytest.mark.slow
def test_the_official_files_are_learnt(official):
    result = simulate(official, MLP(), PowerOfChoice(3, 6), Local(30, 64, 0.05), rounds=30)
    assert result.metrics["test_accuracy"][0, -1] > 0.4


def test_any_schedule_of_optax_is_a_schedule():
    federation, model = Quadratic(K=4, v=2), QuadraticModel()

    def loss(schedule):
        return simulate(federation, model, Rand(2), Local(2, 1, 1e-2, schedule=schedule), rounds=6).metrics["loss"]

    arguments = {"init_value": 1.0, "decay_steps": 6}
    cosine = loss(optax.cosine_decay_schedule(**arguments))
    np.testing.assert_array_equal(cosine, loss(OptaxSchedule("cosine_decay_schedule", arguments)))
    np.testing.assert_array_equal(loss(StepDecay((3,))), loss(optax.piecewise_constant_schedule(1.0, {3: 0.5})))
    assert (cosine != loss(StepDecay())).any()


def test_a_path_is_no_federation_and_the_cure_is_said():
    with pytest.raises(ValueError, match=r"federation must be one, such as Arrays\('farms\.csv'\), got 'farms\.csv'"):
        simulate("farms.csv", Logistic(), Rand(m=1), Local(1, 1, 0.1), rounds=1)


def test_classes_that_the_data_lack_have_no_names():
    summary = Federation.from_arrays(np.ones((4, 1)), ["u", "v"] * 2, [0, 0, 1, 1], classes=3).summary()
    assert [summary.class_name(label) for label in range(3)] == ["u", "v", "2"]


def test_fewer_available_than_d_is_said_of_each_d_of_a_sweep():
    there = np.ones((2, 4), bool)
    there[0, :2] = False
    problem = (Quadratic(4, 2).federation(), QuadraticModel(), PowerOfChoice(1, jnp.array([2, 3, 4])))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        simulate(*problem, Local(1, 1, 1e-4), rounds=4, seeds=2, availability=Trace(there))
    assert [str(one.message).partition(";")[0] for one in said] == [
        f"simulate: fewer clients were available than d={d} in 50% of the rounds" for d in (3, 4)
    ]
