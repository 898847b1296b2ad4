"""The simulator against the NumPy reference, against itself in other ways, and its bookkeeping against hand counts."""

import functools
import itertools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, Bool, Float
from support import reference
from support.rounds import ALIKE, EVERY, compilations

import fedpick
from fedpick import AFL, Cooldown, Full, PowerOfChoice, Rand, Selection, Shrinking, Uniform, pytree, sampling, static
from fedpick.experiment import Experiment
from fedpick.protocol import of_nonnegative_losses
from fedpick.results import median_interval
from fedpick.sim import (
    MLP,
    AlternatingHalves,
    Always,
    Bernoulli,
    DayAndNight,
    Devices,
    Failures,
    Federation,
    Local,
    Logistic,
    Model,
    Quadratic,
    QuadraticModel,
    Server,
    StepDecay,
    Trace,
    preflight,
    quadratic_optimum,
    simulate,
)
from fedpick.sim._engine.batching import Bundles

SELECTORS = [
    Rand(3),
    Rand(3, replace=False),
    Uniform(3),
    Full(),
    PowerOfChoice(3, 5),
    PowerOfChoice(3, 5, "batch"),
    PowerOfChoice(3, 5, "stale"),
    PowerOfChoice(2, Shrinking(20, 4)),
    AFL(3),
    AFL(3, alpha2=1.0, valuation="sqrt-size"),
]
# In make test: one of each kind with the quadratic problem, which compiles quickest, and polls with the others.
FEW = {
    "quadratic": [SELECTORS[number] for number in (0, 3, 4, 6, 7, 8)],
    "logistic": SELECTORS[4:5],
    "minus-probability": SELECTORS[4:5],
    "mlp": SELECTORS[5:6],
}


def small(K=8, dim=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 25, K)
    client = np.repeat(np.arange(K), sizes)
    centres = rng.normal(size=(K, 1, dim))
    x = np.concatenate([centres[k] + rng.normal(size=(n, dim)) for k, n in enumerate(sizes)])
    y = (np.abs(x @ rng.normal(size=(dim, classes)))).argmax(axis=1)
    order = rng.permutation(len(x))
    return Federation.from_arrays(x[order], y[order], client[order], test=(x[:20], y[:20]), classes=classes)


PROBLEMS = {
    "quadratic": (Quadratic(K=8, v=3).federation(), QuadraticModel(), reference.Quadratic(), Local(2, 1, 1e-3)),
    "logistic": (small(), Logistic(), reference.Network(), Local(4, 8, 0.1, weight_decay=0.01)),
    "minus-probability": (
        small(),
        Logistic("minus-probability"),
        reference.Network(minus_probability=True),
        Local(4, 8, 0.1),
    ),
    "mlp": (small(), MLP((7, 5), 0.5), reference.Network(0.5), Local(3, 8, 0.1)),
}


def leaves(params):
    """A model as the flat list w, b, w, b, ..."""
    if isinstance(params, list):
        return [layer[name] for layer in params for name in ("w", "b")]
    return [params["w"], params["b"]] if isinstance(params, dict) else [params]


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:simulate. b=", "ignore:simulate. fewer clients")
@pytest.mark.parametrize(
    ("problem", "selector"),
    [
        pytest.param(
            problem,
            selector,
            id=f"{problem}-{selector}",
            marks=pytest.mark.slow if selector not in FEW[problem] else [],
        )
        for problem, selector in itertools.product(PROBLEMS, SELECTORS)
        if problem != "minus-probability" or selector == PowerOfChoice(3, 5)
    ],
)
def test_the_numpy_reference_picks_the_same_clients_and_ends_at_the_same_model(problem, selector):
    federation, model, network, local = PROBLEMS[problem]
    there = np.random.default_rng(3).random((20, 8)) < 0.8
    there[4] = False
    first = reference.init(model.build(federation), 5)
    picks, w = reference.play(federation, network, first, selector, local, 5, 20, there)
    result = simulate(federation, model, selector, local, rounds=20, seeds=[5], availability=Trace(jnp.asarray(there)))
    ours = [[k for k in seats if k >= 0] for seats in result.records["clients"][0].tolist()]
    assert ours == [[k for k in seats if there[t][k]] for t, seats in enumerate(picks)]
    for mine, theirs in zip(leaves(result.params), w, strict=True):
        np.testing.assert_allclose(mine[0], theirs, rtol=1e-5, atol=1e-5)


ONE = {"rounds": 30, "every": 10}


def same(one, other, **close):
    """Whether two results say the same: picks to the letter, numbers bit for bit or within a tolerance."""
    np.testing.assert_array_equal(one.records["clients"], other.records["clients"])
    pairs = [(one.metrics, other.metrics), (one.records, other.records)]
    for mine, theirs in pairs:
        for name in mine:
            compare = functools.partial(np.testing.assert_allclose, **close) if close else np.testing.assert_array_equal
            compare(mine[name], theirs[name])
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, **close) if close else np.testing.assert_array_equal,
        one.params,
        other.params,
    )


@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_a_batch_of_runs_is_the_runs_one_by_one():
    federation, model, _, local = PROBLEMS["logistic"]
    sweep = PowerOfChoice(2, jnp.array([3, 6]))
    both = simulate(federation, model, sweep, local, seeds=[1, 2], **ONE)
    assert both.runs == [{"seed": s, "d": d} for d in (3, 6) for s in (1, 2)]
    for r, run in enumerate(both.runs):
        alone = simulate(federation, model, PowerOfChoice(2, run["d"]), local, seeds=[run["seed"]], **ONE)
        same(alone, both.where(**run), rtol=2e-5, atol=1e-6)
        assert both.where(**run).runs == [both.runs[r]]


def test_the_rates_of_clients_and_server_keep_their_names_and_values():
    federation, model, _, _ = PROBLEMS["quadratic"]
    local, server = Local(1, 1, jnp.array([1e-3, 2e-3])), Server(eta=jnp.array([1.0, 0.5]))
    result = simulate(federation, model, Rand(2), local, rounds=2, server=server)
    assert result.runs == [{"seed": 0, "eta": 0.001, "server.eta": 1.0}, {"seed": 0, "eta": 0.002, "server.eta": 0.5}]
    assert result.where(eta=0.002).runs == result.runs[1:]


def test_a_list_of_numbers_is_one_for_each_client():
    for kind in (list, tuple):
        some = kind([0.5, 0.25, 1])
        for part, name in ((Bernoulli(some), "probability"), (Failures(some), "probability")):
            np.testing.assert_array_equal(getattr(part, name), np.float32(some))
        devices = Devices(speed=some, bandwidth=some, latency=some)
        assert devices.speed.tolist() == devices.bandwidth.tolist() == devices.latency.tolist() == [0.5, 0.25, 1.0]
    world = {"availability": Bernoulli([1.0, 1.0, 0.0, 0.0]), "failures": Failures((0.0, 1.0, 0.0, 0.0))}
    result = simulate(Quadratic(K=4), QuadraticModel(), Rand(4, replace=False), Local(1, 1, 1e-4), rounds=3, **world)
    assert result.counts.tolist() == [[3, 0, 0, 0]]


@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_several_fields_are_swept_hand_in_hand():
    federation, model, _, local = PROBLEMS["logistic"]
    local = Local(4, 8, jnp.array([0.1, 0.0]), schedule=StepDecay((5,), jnp.array([0.5, 0.1])))
    result = simulate(federation, model, Rand(2), local, rounds=4)
    assert [sorted(run) for run in result.runs] == [["eta", "schedule.factor", "seed"]] * 2
    np.testing.assert_allclose(result.metrics["loss"][1, -1], result.metrics["loss"][1, 0], rtol=1e-6)
    assert result.metrics["loss"][0, -1] < result.metrics["loss"][0, 0]


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:simulate. b=")
@pytest.mark.parametrize(
    ("problem", "selector"),
    [
        pytest.param("quadratic", PowerOfChoice(3, 5), id="pow-d"),
        pytest.param("mlp", PowerOfChoice(3, 5), id="mlp", marks=pytest.mark.slow),
        pytest.param("mlp", AFL(3), id="afl", marks=pytest.mark.slow),
    ],
)
@jax.numpy_dtype_promotion("standard")
def test_resumed_after_a_kill_at_any_chunk_is_the_uninterrupted_run(tmp_path, monkeypatch, problem, selector):
    federation, model, _, local = PROBLEMS[problem]
    monkeypatch.setattr("fedpick.sim.simulation.CHUNK", 10)
    play = functools.partial(
        simulate, federation, model, selector, local, rounds=25, every=5, seeds=2, server=Server(optax.adam, 0.1)
    )
    whole = play()
    assert whole.evaluated.tolist() == [0, 5, 10, 15, 20, 25]
    real = Bundles.play
    for killed_at in range(3):
        calls = 0

        def die(*arguments, killed_at=killed_at):
            nonlocal calls
            calls += 1
            if calls > killed_at:
                raise SystemError("killed")
            return real(*arguments)

        path = tmp_path / f"{killed_at}.npz"
        monkeypatch.setattr(Bundles, "play", die)
        with pytest.raises(SystemError, match="killed"):
            play(checkpoint=path)
        monkeypatch.setattr(Bundles, "play", real)
        assert path.exists() == (killed_at > 0)
        same(whole, play(checkpoint=path))
    same(whole, play(checkpoint=path))  # and once more, from the finished file
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0.npz", "1.npz", "2.npz"]


@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_chunks_do_not_matter(monkeypatch):
    federation, model, _, local = PROBLEMS["quadratic"]
    whole = simulate(federation, model, PowerOfChoice(2, 4, "batch"), local, rounds=23, every=4)
    monkeypatch.setattr("fedpick.sim.simulation.CHUNK", 4)
    same(whole, simulate(federation, model, PowerOfChoice(2, 4, "batch"), local, rounds=23, every=4))
    assert whole.evaluated.tolist() == [0, 4, 8, 12, 16, 20, 23]
    assert whole.rounds == 23


WORLDS = {
    "always": Always(),
    "halves": AlternatingHalves(),
    "bernoulli": Bernoulli(0.5),
    "day and night": DayAndNight(),
    "trace": Trace(np.eye(8, dtype=bool)),
}


def one_of_every(name):
    parameters = {"score": fedpick.LocalLoss()} if "score" in EVERY[name] else {}
    if "most" in EVERY[name]:
        parameters["most"] = 6  # of 8 clients
    return fedpick.strategy(name, **{**EVERY[name], **parameters})


# Every kind of strategy, objective and availability is in the short list; all combinations are in the long one.
# Those that negative losses would mislead are refused with minus-probability: tests/sim/test_lowest.py.
MISLED = {name for name in EVERY if of_nonnegative_losses(one_of_every(name))}
COMBINATIONS = [
    row
    for row in itertools.product(EVERY, ("cross-entropy", "minus-probability"), WORLDS)
    if row[0] not in MISLED or row[1] == "cross-entropy"
]
LONG = ALIKE | {"uniform", "cpow-d", "adapow-d", "afl", "fedcs", "k-vib", "cooldown"}
SHORT = [
    rows[number % len(rows)]
    for number, rows in enumerate([row for row in COMBINATIONS if row[0] == name] for name in EVERY if name not in LONG)
]


def test_the_short_list_has_every_objective_and_availability():
    assert {objective for _, objective, _ in SHORT} == {"cross-entropy", "minus-probability"}
    assert {world for _, _, world in SHORT} == set(WORLDS)


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:simulate. b=", "ignore:simulate. fewer clients")
@pytest.mark.parametrize(
    ("name", "objective", "world"),
    [pytest.param(*row, marks=[] if row in SHORT else pytest.mark.slow) for row in COMBINATIONS],
)
def test_every_strategy_runs_with_every_objective_and_availability_and_compiles_once(name, objective, world):
    selector = one_of_every(name)
    model = Logistic(objective).build(small())
    options = {"failures": Failures(0.1), "availability": WORLDS[world]}
    with compilations() as programs:
        result = simulate(small(), model, selector, Local(2, 4, 0.1), rounds=250, every=25, **options)
    assert programs.count("chunk") == 1, "a later chunk compiled anew"
    assert np.isfinite(result.metrics["loss"]).all()
    assert (result.metrics["loss"] >= model.lowest).all()
    there = result.records["clients"] >= 0
    np.testing.assert_array_equal(there, result.records["weights"] > 0)
    if getattr(selector, "weights_sum_to_1", True):
        total = result.records["weights"].sum(axis=-1)
        np.testing.assert_allclose(total[there.any(axis=-1)], 1, rtol=1e-5)


def test_quadratic_full_participation_reaches_the_optimum():
    federation = Quadratic(K=10, v=3).federation()
    best, lowest = quadratic_optimum(federation)
    result = simulate(federation, QuadraticModel(), Full(), Local(1, 1, 0.05), rounds=400)
    np.testing.assert_allclose(result.params[0], best, rtol=1e-4)
    np.testing.assert_allclose(result.metrics["loss"][0, -1], lowest, rtol=1e-5)


def test_a_client_in_two_seats_trains_independently():
    rng = np.random.default_rng(0)
    federation = Federation.from_arrays(rng.normal(size=(50, 3)), rng.integers(0, 2, 50), np.zeros(50, int))
    result = simulate(federation, Logistic(), Rand(2), Local(1, 5, 1.0), rounds=1, seeds=20)
    alone = simulate(federation, Logistic(), Rand(1), Local(1, 5, 1.0), rounds=1, seeds=20)
    assert (result.records["clients"] == 0).all()
    assert not np.allclose(result.params["w"], alone.params["w"]), "both seats drew the same batch"


@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_another_draw_of_the_data_is_the_same_program():
    local, found = Local(1, 30, 0.1), []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        client = np.concatenate([np.arange(5), rng.integers(0, 5, 95)])
        federation = Federation.from_arrays(
            rng.normal(size=(100, 3)), rng.integers(0, 2, 100), client, classes=2, name=f"draw {seed}"
        )
        with compilations() as programs:
            simulate(federation, Logistic(), PowerOfChoice(1, 2), local, rounds=3)
        found.append(programs.count("choices"))
    assert found == [1, 0]


@pytest.mark.filterwarnings("ignore:simulate. b=")
@pytest.mark.parametrize("batches", ["distinct", "epochs"])
def test_slots_that_no_client_fills_are_cut(batches, monkeypatch):
    monkeypatch.setattr(preflight, "LARGE_BATCH", 64)

    def play(b):
        local = Local(tau=2, b=b, eta=0.1, batches=batches)
        return simulate(small(), Logistic(), PowerOfChoice(2, 5, "batch"), local, rounds=2)

    most, all_of_it = play(64), play(10**9)
    for name, values in most.metrics.items():
        np.testing.assert_array_equal(all_of_it.metrics[name], values, err_msg=name)
    np.testing.assert_array_equal(all_of_it.costs["train_samples"], most.costs["train_samples"])
    assert preflight.cut_batches(Local(1, 10**9, 0.1, batches="replace"), 5).b == 10**9
    assert preflight.cut_batches(Local(1, 10**9, 0.1), 5000).b == 8192  # never less than a client holds


def test_costs_are_counted_exactly():
    federation, model = small(), Logistic()
    count, size = np.asarray(federation.count), 4 * (6 * 4 + 4)
    local = Local(tau=3, b=10, eta=0.1)
    with pytest.warns(UserWarning, match=r"simulate: b=10 is more than \d of 8 clients hold"):
        polled = simulate(federation, model, PowerOfChoice(2, 5), local, rounds=6)
    costs = polled.costs
    assert polled.model_bytes == size
    assert (costs["messages"] == 2 * 5 + 2 * 2).all()
    assert (costs["bytes_down"] == (5 + 2) * size).all()
    assert (costs["bytes_up"] == 5 * 4 + 2 * (size + 4)).all()
    seats = polled.records["clients"][0]
    assert costs["train_samples"][0].tolist() == [int(3 * np.minimum(count[row], 10).sum()) for row in seats]
    assert (costs["poll_samples"] >= np.sort(count)[:5].sum()).all()
    assert (costs["poll_samples"] <= np.sort(count)[-5:].sum()).all()
    with pytest.warns(UserWarning, match="b=10"):
        stale = simulate(federation, model, PowerOfChoice(2, 5, "stale"), local, rounds=6).costs
    assert (stale["messages"] == 4).all()
    assert (stale["poll_samples"] == 0).all()
    with pytest.warns(UserWarning, match="b=10"):
        batch = simulate(federation, model, PowerOfChoice(2, 8, "batch"), local, rounds=6).costs
    assert (batch["poll_samples"] == np.minimum(count, 10).sum()).all()


def test_the_clock_waits_for_the_slowest_and_the_deadline_leaves_stragglers_behind():
    federation = Quadratic(K=4, v=2).federation()
    speed = jnp.array([1.0, 10.0, 100.0, 1000.0])
    devices = Devices(speed=speed, bandwidth=float("1e12"), latency=0.0)
    local = Local(tau=2, b=1, eta=1e-4)
    result = simulate(federation, QuadraticModel(), Full(), local, rounds=3, devices=devices)
    np.testing.assert_allclose(result.records["seconds"], 3 * 2 / 1.0, rtol=1e-5)
    strict = Devices(speed=speed, bandwidth=float("1e12"), latency=0.0, deadline=0.5)
    left = simulate(federation, QuadraticModel(), Full(), local, rounds=3, devices=strict)
    assert (left.records["clients"] == [-1, -1, 2, 3]).all()
    np.testing.assert_allclose(left.records["weights"].sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(left.records["seconds"], 0.5)
    assert (left.records["returned"] == 2).all()
    polled = simulate(federation, QuadraticModel(), PowerOfChoice(1, 4), local, rounds=3, devices=devices)
    slowest = 1.0 + 6.0 / np.asarray(speed)[polled.records["clients"][..., 0]]
    np.testing.assert_allclose(polled.records["seconds"], slowest, rtol=1e-5)


def test_failures_leave_empty_seats_and_the_model_stays_when_all_fail():
    federation, model = Quadratic(K=4, v=2).federation(), QuadraticModel()
    local = Local(1, 1, 1e-3)
    dropped = jnp.array([[True, False, False, False], [True] * 4])
    result = simulate(federation, model, Full(), local, rounds=2, every=1, failures=Failures(dropped=dropped))
    assert result.records["clients"][0, 0].tolist() == [-1, 1, 2, 3]
    np.testing.assert_allclose(result.records["weights"][0, 0].sum(), 1, rtol=1e-6)
    assert not result.records["weights"][0, 1].any()
    assert result.metrics["loss"][0, 2] == result.metrics["loss"][0, 1]
    assert np.isnan(result.records["train_loss"][0, 1])


@jax.numpy_dtype_promotion("standard")  # optax's own arithmetic is not strict
def test_nobody_there_the_model_stays_under_every_server():
    federation, model = Quadratic(K=4, v=2).federation(), QuadraticModel()
    nobody = Trace(jnp.zeros((1, 4), bool))
    for server in (Server(), Server(optax.adam, 0.1), Server(functools.partial(optax.sgd, momentum=0.9))):
        result = simulate(federation, model, Rand(2), Local(1, 1, 1e-3), rounds=3, server=server, availability=nobody)
        assert (result.metrics["loss"] == result.metrics["loss"][:, :1]).all()


@pytest.mark.parametrize(
    ("options", "server"),
    [
        ({"batches": "replace"}, Server()),
        ({"batches": "epochs"}, Server()),
        ({"optimizer": optax.adam, "eta": 0.01}, Server()),
        ({"prox": 1.0}, Server()),
        ({}, Server(optax.yogi, 0.1)),
        ({}, Server(functools.partial(optax.sgd, momentum=0.9), eta=0.2)),
    ],
    ids=["replace", "epochs", "adam", "FedProx", "FedYogi", "FedAvgM"],
)
@pytest.mark.filterwarnings("ignore:simulate. b=")
@jax.numpy_dtype_promotion("standard")
def test_other_optimisers_batches_and_servers_learn(options, server):
    local = Local(**{"tau": 5, "b": 8, "eta": 0.1, **options})
    result = simulate(small(), Logistic(), Rand(3), local, rounds=60, server=server, seeds=2)
    assert (result.metrics["loss"][:, -1] < 0.8 * result.metrics["loss"][:, 0]).all()
    assert (result.metric("worst_loss")[:, -1] >= result.metrics["loss"][:, -1]).all()
    assert (result.metric("loss_variance") >= 0).all()
    assert (result.metric("worst_accuracy") <= result.metric("mean_accuracy")).all()
    np.testing.assert_allclose(result.metric("mean_loss"), result.metrics["client_loss"].mean(axis=2))


@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_a_large_proximal_term_holds_clients_at_the_global_model():
    free, held = (
        simulate(small(), Logistic(), Rand(3), Local(20, 8, 0.05, prox=prox), rounds=1, every=1) for prox in (0.0, 15.0)
    )
    assert np.abs(held.params["w"]).sum() < 0.5 * np.abs(free.params["w"]).sum()


def test_targets_confidence_and_early_stop():
    federation, model, local = Quadratic(K=10, v=3).federation(), QuadraticModel(), Local(2, 1, 1e-3)
    whole = simulate(federation, model, Rand(3), local, rounds=400, every=1, seeds=4)
    target = float(np.median(whole.metrics["loss"][:, 60]))
    rounds = whole.rounds_to("loss", target)
    for run, first in enumerate(rounds.astype(int)):
        assert whole.metrics["loss"][run, first] <= target
        assert (whole.metrics["loss"][run, :first] > target).all()
    assert np.isinf(whole.rounds_to("loss", -1.0)).all()
    for wrong, words in (
        (math.nan, "value must be a number to reach, got nan"),
        ("x", "value must be a number, got 'x'"),
    ):
        with pytest.raises(ValueError, match=words):
            whole.rounds_to("loss", wrong)
    for find in (whole.rounds_to, whole.seconds_to):
        with pytest.raises(ValueError, match=r"^Result: value of test_accuracy must be a part, such as 0.8 .* got 80$"):
            find("test_accuracy", 80)
    np.testing.assert_allclose(
        whole.seconds_to("loss", target),
        [whole.records["seconds"][r, : int(n)].sum() for r, n in enumerate(rounds)],
        rtol=1e-5,
    )
    middle, low, high = median_interval(rounds)
    assert rounds.min() <= low <= middle <= high <= rounds.max()
    stopped = simulate(federation, model, Rand(3), local, rounds=400, every=1, seeds=4, until=("loss", target))
    assert not stopped.finished
    assert rounds.max() <= stopped.rounds < 400
    np.testing.assert_array_equal(stopped.metrics["loss"], whole.metrics["loss"][:, : stopped.rounds + 1])
    assert whole.counts.sum() == 4 * 400 * 3


def test_ctrl_c_returns_what_is_done(monkeypatch, caplog):
    real, calls = Bundles.play, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(Bundles, "play", interrupted)
    monkeypatch.setattr("fedpick.sim.simulation.CHUNK", 10)
    result = simulate(
        Quadratic(K=4, v=2).federation(), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), rounds=100, every=5
    )
    assert (result.rounds, result.finished) == (20, False)
    assert result.evaluated.tolist() == [0, 5, 10, 15, 20]
    assert "simulate: stopped after round 20 of 100; the result ends there" in caplog.text


EAGER = {"jit": False, "rounds": 2, "every": 2}


@pytest.mark.filterwarnings("ignore:simulate. b=")
@pytest.mark.parametrize(
    ("problem", "selector"),
    [
        ("quadratic", Rand(2)),
        pytest.param("quadratic", PowerOfChoice(1, 2, "batch"), marks=pytest.mark.slow),
        pytest.param("logistic", PowerOfChoice(1, 2, "full"), marks=pytest.mark.slow),
        pytest.param("logistic", PowerOfChoice(1, 2, "batch"), marks=pytest.mark.slow),
    ],
)
def test_without_jit_the_same_rounds_are_played(problem, selector):
    if problem == "quadratic":
        play = functools.partial(simulate, Quadratic(K=4, v=2), QuadraticModel(), selector, Local(2, 1, 1e-3))
    else:
        play = functools.partial(simulate, small(K=4), Logistic(), selector, Local(2, 4, 0.1))
    same(play(**EAGER), play(**{**EAGER, "jit": True}), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_without_jit_an_error_names_round_and_client():
    with pytest.raises(
        FloatingPointError, match=r"simulate: round 0, client \d \(seat 0\): the local model must be finite"
    ):
        simulate(Quadratic(K=4, v=2), QuadraticModel(), Rand(2), Local(2, 1, 1e38), **EAGER)

    federation = small(K=4)
    model = Logistic().build(federation)

    def fussy(params, x, y, key):
        if key is not None and y.shape[0] == 4:
            raise RuntimeError("this model cannot train")
        return model.losses(params, x, y, key)

    with pytest.raises(RuntimeError) as caught:
        simulate(federation, Model(model.init, fussy, model.predict), Rand(2), Local(2, 4, 0.1), **EAGER)
    notes = " ".join(caught.value.__notes__)
    assert "while client" in notes
    assert "in round 0 of the run with seed 0" in notes


def test_progress_is_shown_in_plain_lines_where_there_is_no_terminal(capsys):
    play = functools.partial(simulate, Quadratic(K=4, v=2), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), rounds=20)
    play()
    assert capsys.readouterr().err == ""
    play(progress=True)
    assert "round 20 of 20, loss " in capsys.readouterr().err


def test_on_a_terminal_there_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    simulate(Quadratic(K=4, v=2), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), rounds=20, progress=True)
    assert "20/20" in capsys.readouterr().err


@fedpick.pytree
class Careless:
    """A strategy that asks everybody, or seats clients who do not exist."""

    m: int = fedpick.static(default=2)
    first: int = fedpick.static(default=0)
    poll: ClassVar[str] = "none"

    def init(self, num_clients):
        return ()

    def propose(self, key, state, clients):
        return jnp.ones_like(clients.available) if not self.first else clients.available

    def select(self, key, state, clients, candidates, losses):
        seats = jnp.arange(self.m, dtype=jnp.int32) + self.first
        return fedpick.Selection(seats, jnp.full(self.m, 1 / self.m, jnp.float32))

    def observe(self, state, selection, report):
        return state


@pytest.mark.parametrize(("first", "rounds"), [(0, "round 1"), (100, "round 0")])
def test_a_strategy_that_chooses_who_is_away_or_does_not_exist_is_refused(first, rounds):
    everybody = np.ones((6, 8), bool)
    everybody[1, 7] = False
    with pytest.raises(
        ValueError, match=f"Careless must ask and choose available clients alone, .* in {rounds}; check_"
    ):
        simulate(small(), Logistic(), Careless(first=first), Local(1, 2, 0.1), rounds=6, availability=Trace(everybody))


@fedpick.pytree
class Rows(Careless):
    """A strategy whose seats are not m."""

    seats: int | None = fedpick.static(default=None)

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        if self.seats is None:
            return None
        return fedpick.Selection(jnp.zeros(self.seats, jnp.int32), jnp.full(self.seats, 0.25, jnp.float32))


@fedpick.pytree
class Asks(Careless):
    poll: ClassVar[str] = "fully"


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        (Rows(seats=4), r"Rows.select must give a Selection of m=2 clients and weights, got shapes \(4,\) and \(4,\)"),
        (Rows(), "Rows.select must give a Selection of m=2 clients and weights, got None"),
        (Asks(), "Asks: poll must be one of 'none', 'full', .*, got 'fully'"),
    ],
)
def test_a_strategy_that_does_not_keep_the_protocol_is_told_so(selector, words):
    with pytest.raises(ValueError, match=words):
        simulate(small(), Logistic(), selector, Local(1, 2, 0.1), rounds=2)


@fedpick.pytree
class Heavy:
    """Rand, whose weights sum to something else from a round on."""

    m: int = fedpick.static(default=2)
    total: float = 3.0
    since: int = 3
    poll: ClassVar[str] = "none"

    def init(self, num_clients):
        return jnp.int32(0)

    def propose(self, key, state, clients):
        return Rand(self.m).propose(key, (), clients)

    def select(self, key, state, clients, candidates, losses):
        seats, weights = Rand(self.m).select(key, (), clients, candidates, losses)
        return fedpick.Selection(seats, weights * jnp.where(state < self.since, 1.0, self.total).astype(jnp.float32))

    def observe(self, state, selection, report):
        return state + 1


@fedpick.pytree
class Declared(Heavy):
    weights_sum_to_1: ClassVar[bool] = False


EMPTY = {
    "all are there": {},
    "seats fail": {"failures": Failures(0.5)},
    "nobody returns": {"failures": Failures(1.0)},
    "nobody is there in every other round": {"availability": Trace(np.arange(6)[:, None] % 2 == np.ones(8))},
}


@pytest.mark.parametrize("world", EMPTY)
def test_weights_that_do_not_sum_to_1_are_refused_unless_they_are_declared(world):
    problem, options = (
        (small(), Logistic()),
        {"local": Local(1, 2, 0.1), "rounds": 12, "seeds": 3, **EMPTY[world]},
    )
    sentence = "Heavy must give weights that sum to 1, or declare weights_sum_to_1 = False, got 3 in round"
    if world == "nobody returns":  # and no weight is used
        simulate(*problem, Heavy(), **options)
    else:
        with pytest.raises(ValueError, match=f"{sentence} {3 if not EMPTY[world] else ''}"):
            simulate(*problem, Heavy(), **options)
    simulate(*problem, Declared(), **options)
    simulate(*problem, Heavy(total=1.0), **options)


class Plain:
    """A strategy that has all methods, and is no pytree."""

    m, poll = 2, "none"
    init = propose = select = observe = Rand.init


def test_a_strategy_that_is_no_pytree_is_told_the_cure():
    sentence = "selector must be a frozen dataclass registered as a pytree: decorate its class with fedpick.pytree, got"
    with pytest.raises(ValueError, match=f"simulate: {sentence}"):
        simulate(small(), Logistic(), Plain(), Local(1, 2, 0.1), rounds=2)
    with pytest.raises(ValueError, match=f"experiment: {sentence}"):
        Experiment(Quadratic(K=4, v=2), QuadraticModel(), Plain(), Local(1, 1, 1e-3), rounds=2)


def test_an_availability_that_is_no_pytree_is_told_the_cure():
    sentence = (
        "availability must be registered as a pytree: write it as a class and decorate that with fedpick.pytree, got"
    )
    with pytest.raises(ValueError, match=sentence):
        simulate(
            small(), Logistic(), Rand(2), Local(1, 2, 0.1), rounds=2, availability=lambda key, t, K: jnp.ones(K, bool)
        )


@pytree
class Prior:
    """Whoever comes first by a number of each client's, and a number that may be swept."""

    prior: Float[Array, " K"]
    sign: float | Float[Array, ""] = 1.0
    m: int = static(default=2)
    poll: ClassVar[str] = "none"

    def init(self, num_clients):
        return ()

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, self.sign * self.prior, candidates, self.m))

    def observe(self, state, selection, report):
        return state


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_strategy_declares_as_an_array_goes_whole_into_every_run(jit, wrapped):
    prior = jnp.array([0.0, 3.0, 1.0, 2.0])
    for sign, points in ((1.0, 1), (jnp.array([1.0, -1.0]), 2)):
        selector = Prior(prior, sign)
        selector = Cooldown(selector, rounds=0) if wrapped else selector
        result = simulate(
            Quadratic(K=4), QuadraticModel(), selector, Local(1, 1, 1e-4), rounds=2, seeds=2, jit=jit, progress=False
        )
        assert len(result.runs) == 2 * points
        assert set(result.runs[0]) == {"seed", *(["selector.sign" if wrapped else "sign"] if points == 2 else [])}
        found = [sorted(set(clients.ravel().tolist())) for clients in result.records["clients"]]
        assert found == [[1, 3]] * 2 + [[0, 2]] * (2 * points - 2)


@pytree
class Flag(Rand):
    """The first m clients, or the last ones."""

    flip: bool | Bool[Array, ""] = False

    def select(self, key, state, clients, candidates, losses):
        K = candidates.shape[0]
        first = jnp.arange(self.m, dtype=jnp.int32)
        seats = jnp.where(self.flip, K - 1 - first, first)
        return Selection(seats, jnp.full(self.m, 1 / self.m, jnp.float32))


@pytest.mark.parametrize("jit", [True, False])
def test_a_truth_value_is_swept(jit):
    selector = Flag(m=2, flip=jnp.array([True, False]))
    result = simulate(Quadratic(K=5), QuadraticModel(), selector, Local(1, 1, 1e-4), rounds=2, jit=jit)
    assert result.runs == [{"seed": 0, "flip": True}, {"seed": 0, "flip": False}]
    assert result.counts.tolist() == [[0, 0, 0, 2, 2], [2, 2, 0, 0, 0]]
    assert result.where(flip=True).counts.tolist() == [[0, 0, 0, 2, 2]]


def test_a_model_that_came_to_nan_predicts_nothing():
    rng = np.random.default_rng(0)
    x, y = 1e4 * rng.normal(size=(80, 5)), (rng.random(80) < 0.1).astype(int)
    federation = Federation.from_arrays(x, y, np.arange(80) % 4, test=(x, y))
    problem = (federation, MLP((4,), dropout=0.0), Full(), Local(tau=5, b=10, eta=1e30))
    result = simulate(*problem, rounds=4, every=1, metrics=["f1"], until=("test_accuracy", 0.85))
    assert result.rounds == 4
    lost = np.isnan(result.metrics["loss"][0])
    assert lost.any()
    for name in ("test_accuracy", "test_f1", "mean_accuracy", "worst_accuracy"):
        np.testing.assert_array_equal(np.isnan(result.metric(name)[0]), lost, err_msg=name)


def test_a_target_of_the_test_set_needs_one():
    with pytest.raises(ValueError, match=r"simulate: metric test_accuracy needs a test set; quadratic\(K=4.* has none"):
        simulate(Quadratic(K=4), QuadraticModel(), Rand(2), Local(1, 1, 1e-4), rounds=2, until=("test_accuracy", 0.5))
