"""Models of sequences: against loops in NumPy, what travels of them, and the files they come from."""

import dataclasses
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Rand
from fedpick.experiment import from_plain
from fedpick.sim import (
    CNN,
    IID,
    MLP,
    Arrays,
    CharLSTM,
    Federation,
    Local,
    ResNet,
    Transformer,
    pixels,
    simulate,
    transformer_base,
)
from fedpick.sim._engine.batching import Bundles
from fedpick.sim._engine.compilation import rounds
from fedpick.sim._engine.runner import Cadence, sweep
from fedpick.sim.blocks import block_size
from fedpick.sim.round import Setup
from fedpick.sim.sequences import recurrence


def texts(n=160, T=6, K=4, **options):
    """Sequences of bytes whose class is the last code but one."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = rng.integers(0, 10, (n, T), np.uint8)
    x[:, -2] = 20 + y
    return Federation.from_partition(x, y, IID(K=K), test=(x[:40], y[:40]), **options)


SMALL = {
    "char-lstm": CharLSTM(32, 6, 12, layers=2),
    "transformer": Transformer(16, 2, 4, heads=2, vocabulary=32),
}


RATE = {"char-lstm": 0.3, "transformer": 0.05}


@pytest.mark.parametrize("name", SMALL)
def test_a_model_learns(name):
    local = Local(tau=10, b=16, eta=RATE[name], optimizer="momentum")
    result = simulate(texts(), SMALL[name], Rand(m=2), local, rounds=25, every=25)
    first, last = result.metrics["loss"][0]
    assert last < first / 2
    assert result.metrics["test_accuracy"][0, -1] > 0.8


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_lstm_is_that_of_a_loop():
    federation = texts(n=5, K=1)
    model = SMALL["char-lstm"].build(federation)
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0)))
    states = [params["codes"][codes] for codes in np.asarray(federation.x).T]
    for own in params["layers"]:
        h = c = np.zeros((5, 12))
        for t, x in enumerate(states):
            i, f, g, o = np.split(x @ own["x"] + own["b"] + h @ own["h"], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states[t] = h
    logits = states[-1] @ params["last"]["w"] + params["last"]["b"]
    right = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses = model.losses(jax.tree.map(jnp.asarray, params), federation.prepare(federation.x), federation.y, None)
    np.testing.assert_allclose(losses, -right[np.arange(5), federation.y], rtol=1e-4)


@pytest.mark.slow
def test_the_gradient_of_the_recurrence_is_that_of_its_steps():
    def plain(inputs, w):
        h = c = jnp.zeros((inputs.shape[1], w.shape[0]))
        states = []
        for x in inputs:
            i, f, g, o = jnp.split(x + h @ w, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            states.append(h)
        return jnp.stack(states)

    inputs, w = jax.random.normal(jax.random.key(0), (5, 3, 16)), jax.random.normal(jax.random.key(1), (4, 16))
    back = jax.random.normal(jax.random.key(2), (5, 3, 4))
    np.testing.assert_allclose(recurrence(inputs, w), plain(inputs, w), rtol=1e-5, atol=1e-6)
    for ours, other in zip(*(jax.vjp(f, inputs, w)[1](back) for f in (recurrence, plain)), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-5)


def numpy_transformer(base, x, layers, heads):
    """The base alone, a sample, a head and a place at a time: the mean over the sequence."""

    def normal(x, scale, shift):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + shift

    means = []
    for codes in x:
        states = base["code"][codes] + base["place"]
        for i in range(layers):
            own = {name.split(".")[1]: array for name, array in base.items() if name.startswith(f"{i}.")}
            inner = np.stack([normal(row, own["scale1"], own["shift1"]) for row in states])
            query, key, value = (np.split(inner @ own[name], heads, axis=1) for name in ("query", "key", "value"))
            mixed = []
            for q, k, v in zip(query, key, value, strict=True):
                weights = np.exp(q @ k.T / np.sqrt(q.shape[1]))
                mixed.append(weights / weights.sum(axis=1, keepdims=True) @ v)
            states = states + np.concatenate(mixed, axis=1) @ own["out"]
            inner = np.stack([normal(row, own["scale2"], own["shift2"]) for row in states])
            inner = np.asarray(jax.nn.gelu(jnp.asarray(inner @ own["up"] + own["up_shift"])))
            states = states + inner @ own["down"] + own["down_shift"]
        means.append(np.stack([normal(row, base["scale"], base["shift"]) for row in states]).mean(axis=0))
    return np.stack(means)


@pytest.mark.slow
def test_adapters_start_at_the_base_and_change_it_in_training():
    federation = texts(n=5, K=1)
    model = SMALL["transformer"].build(federation)
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0)))
    mean = numpy_transformer({k: np.asarray(v) for k, v in model.base.items()}, np.asarray(federation.x), 2, 2)
    logits = mean @ params["last"]["w"] + params["last"]["b"]
    right = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses = model.losses(params, federation.prepare(federation.x), federation.y, None)
    np.testing.assert_allclose(losses, -right[np.arange(5), federation.y], rtol=1e-3)
    gradient = jax.grad(lambda w: model.losses(w, federation.prepare(federation.x), federation.y, None).sum())(params)
    for block in gradient["blocks"]:
        assert all(np.abs(block[name]["B"]).max() > 0 for name in ("query", "value"))


def test_only_adapters_and_the_last_layer_travel():
    federation, spec = texts(), SMALL["transformer"]
    base = {name: np.asarray(array) for name, array in spec.build(federation).base.items()}
    result = simulate(federation, spec, Rand(m=2), Local(tau=2, b=4, eta=0.1), rounds=2, every=1, seeds=2)
    rank_of_all, width, classes = 2 * 2 * 4, 16, 3  # query and value of two blocks
    assert result.model_bytes == 4 * (rank_of_all * 2 * width + width * classes + classes)
    assert sum(leaf[0].nbytes for leaf in jax.tree.leaves(result.params)) == result.model_bytes
    for name, array in spec.build(federation).base.items():
        np.testing.assert_array_equal(array, base[name])


@pytest.mark.no_cover
def test_the_base_is_an_argument_of_the_program_and_no_constant_of_it():
    spec = Transformer(64, 1, 2, vocabulary=32)
    federation = texts()
    bundle = Bundles(sweep(Setup(federation, spec.build(federation), Rand(m=3), Local(tau=2, b=4, eta=0.1)), 1)[0])
    bundle.begin(Cadence(rounds=1, every=1, blocks=1))
    lowered = jax.jit(rounds, static_argnames="every").lower(bundle.own[0], bundle.progress[0], 0, None, every=1)
    text = lowered.compile().as_text()
    assert "f32[64,256]" in text  # the weights called up
    assert not [line for line in text.splitlines() if " constant(" in line and "f32[64,256]" in line]
    assert not [line for line in text.splitlines() if "f32[3,64,256]" in line]  # no copy for each seat


def test_a_base_may_come_from_a_file(tmp_path):
    federation = texts()
    base = transformer_base(32, 6, 16, layers=2, seed=7)
    np.savez(tmp_path / "base.npz", **base)
    spec = Transformer(16, 2, 4, heads=2, vocabulary=32, base=str(tmp_path / "base.npz"))
    for name, array in spec.build(federation).base.items():
        np.testing.assert_array_equal(array, base[name])
    np.savez(tmp_path / "less.npz", **{name: array for name, array in base.items() if name != "1.up"})
    with pytest.raises(ValueError, match=r"Transformer: base must hold '1.up', numbers of shape \(16, 64\), got none"):
        Transformer(16, 2, 4, heads=2, vocabulary=32, base=str(tmp_path / "less.npz")).build(federation)
    with pytest.raises(ValueError, match=r"Transformer: base must be an .npz"):
        Transformer(base="nowhere.npz").build(federation)


def test_pixels_and_images_are_no_codes(tmp_path):
    with pytest.raises(ValueError, match="CharLSTM: data must be codes and not pixels"):
        CharLSTM().build(texts(prepare=pixels))
    square = Federation.from_arrays(np.zeros((4, 3, 3)), [0, 1, 0, 1], [0, 0, 1, 1])
    with pytest.raises(
        ValueError, match=r"Transformer: data must be sequences of codes, got samples of shape \(3, 3\)"
    ):
        Transformer().build(square)
    with pytest.raises(ValueError, match="Transformer: heads must be a divisor of width=16, got 3"):
        Transformer(16, heads=3)
    file = tmp_path / "codes.npz"
    np.savez(file, x=np.ones((6, 4), np.uint8), y=np.arange(6) % 2, client=np.arange(6) % 3)
    CharLSTM().build(Arrays(str(file), codes=True).federation())
    with pytest.raises(ValueError, match="codes"):
        CharLSTM().build(Arrays(str(file)).federation())


@pytest.mark.parametrize(("model", "name"), [(CharLSTM(vocabulary=8), "CharLSTM"), (Transformer(), "Transformer")])
def test_real_numbers_are_no_codes_and_codes_beyond_the_vocabulary_are_told(model, name, caplog):
    rule = "data must be sequences of codes, which are whole numbers from 0"
    for wrong in (0.5, -1.0):
        x = np.ones((4, 3))
        x[2, 1] = wrong
        with pytest.raises(ValueError, match=f"{name}: {rule}, got {wrong:g}"):
            model.build(Federation.from_arrays(x, [0, 1, 0, 1], [0, 0, 1, 1]))
    x = np.full((4, 3), 2.0)  # as a CSV file has them
    x[0, 0] = 300
    model.build(Federation.from_arrays(x, [0, 1, 0, 1], [0, 0, 1, 1]))
    assert f"8.3 % of the codes are not below vocabulary={model.vocabulary}, and count as none" in caplog.text


@pytest.mark.parametrize(
    "spec",
    [
        CNN(channels=(4, 8)),
        ResNet(blocks=2),
        CharLSTM(hidden=16, layers=1),
        Transformer(32, rank=2, alpha=4.0, seed=3),
    ],
)
def test_a_description_goes_to_a_file_and_back(spec):
    local, selector = {"tau": 2, "b": 5, "eta": 0.1}, {"kind": "rand", "m": 3}
    plain = {"data": {"kind": "synthetic"}, "rounds": 5, "seeds": 2, "local": local, "selector": selector}
    (one,) = from_plain({**plain, "model": {"kind": "logistic"}})
    (again,) = from_plain(dataclasses.replace(one, model=spec).to_plain())
    assert again.model == spec


def test_blocks_of_samples_shrink_with_what_a_model_makes_of_them():
    rng = np.random.default_rng(0)
    images = Federation.from_arrays(rng.integers(0, 255, (20, 784), np.uint8), np.arange(20) % 10, np.arange(20) % 2)

    def block(spec):
        model = spec.build(images)
        return block_size(images, model, jax.eval_shape(model.init, jax.random.key(0)), 4096)

    assert block(MLP()) == 4096
    assert block(CNN()) == 1024  # 28 x 28 x 32 float32 of each sample
    assert block(CNN(channels=(512, 64))) == 64


@pytest.mark.slow
def test_the_example_runs_and_adapters_are_smaller():
    folder = Path(__file__).parents[2] / "examples"
    found = runpy.run_path(str(folder / "adapters.py"))["main"]()
    assert all(accuracy > 0.8 for accuracy, _ in found.values())
    assert 20 * found["Transformer"][1] < found["CharLSTM"][1]
