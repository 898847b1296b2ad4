"""The models: against independent forms, what they train, and how a CPU runs them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedpick import OptimalSampling, Rand
from fedpick.sim import CNN, IID, MLP, Federation, Local, Logistic, ResNet, from_apply, pixels, simulate
from fedpick.sim._engine import convolutions
from fedpick.sim._engine.batching import Bundles
from fedpick.sim._engine.compilation import rounds
from fedpick.sim._engine.runner import Cadence, sweep
from fedpick.sim.models import Model
from fedpick.sim.round import Setup


def images(side=8, n=120, K=4, classes=3, flat=False):
    """Images whose class is the place of a bright square."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n)
    x = rng.integers(0, 100, (n, side, side), np.uint8)
    for image, label in zip(x, y, strict=True):
        image[2 * label : 2 * label + 2, 1:4] = 255
    x = x.reshape(n, -1) if flat else x
    return Federation.from_partition(x, y, IID(K=K), prepare=pixels, test=(x[:20], y[:20]))


SMALL = {
    "cnn": CNN(channels=(4, 6), kernel=3, hidden=16),
    "resnet": ResNet(channels=(4, 8), groups=2),
}


@pytest.mark.parametrize("name", ["cnn", pytest.param("resnet", marks=pytest.mark.slow)])
def test_a_model_learns(name):
    result = simulate(images(), SMALL[name], Rand(m=2), Local(tau=8, b=8, eta=0.1), rounds=12, every=12)
    first, last = result.metrics["loss"][0]
    assert last < first / 2
    assert result.metrics["test_accuracy"][0, -1] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_compiled_run_is_the_same_as_an_eager_one(name):
    options = {"rounds": 1, "every": 1, "progress": False}
    local = Local(tau=1, b=4, eta=0.05)
    compiled, eager = (
        simulate(images(n=12, K=2), SMALL[name], Rand(m=2), local, **options, jit=jit) for jit in (True, False)
    )
    np.testing.assert_array_equal(compiled.records["clients"], eager.records["clients"])
    for ours, other in zip(jax.tree.leaves(compiled.params), jax.tree.leaves(eager.params), strict=True):
        np.testing.assert_allclose(ours, other, rtol=2e-4, atol=2e-5)


def numpy_convolution(x, w, b):
    """With loops, an image padded with zeros to keep its size."""
    n, height, width, _ = x.shape
    k = w.shape[0]
    padded = np.pad(x, ((0, 0), (k // 2, k // 2), (k // 2, k // 2), (0, 0)))
    y = np.zeros((n, height, width, w.shape[-1]))
    for i in range(height):
        for j in range(width):
            y[:, i, j] = padded[:, i : i + k, j : j + k].reshape(n, -1) @ w.reshape(-1, w.shape[-1])
    return y + b


def test_the_cnn_is_that_of_mcmahan():
    federation = images(n=6, K=2)
    spec = CNN(channels=(3, 4), kernel=5, hidden=7)
    model = spec.build(federation)
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0)))
    x = np.asarray(federation.prepare(federation.x))[..., None]
    for layer in params[:2]:
        x = np.maximum(numpy_convolution(x, layer["w"], layer["b"]), 0)
        n, h, w, c = x.shape
        x = x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))
    x = np.maximum(x.reshape(len(x), -1) @ params[2]["w"] + params[2]["b"], 0)
    logits = x @ params[3]["w"] + params[3]["b"]
    right = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses = model.losses(params, federation.prepare(federation.x), federation.y, None)
    np.testing.assert_allclose(losses, -right[np.arange(6), federation.y], rtol=1e-4)
    full = CNN().build(Federation.from_arrays(np.zeros((2, 784), np.uint8), [0, 9], [0, 1], classes=10))
    sizes = [leaf.size for leaf in jax.tree.leaves(jax.eval_shape(full.init, jax.random.key(0)))]
    assert sum(sizes) == 1_663_370  # as in the paper


def test_images_may_be_flat_squares_or_have_channels():
    square, flat = (CNN().build(images(flat=shape)) for shape in (False, True))
    key = jax.random.key(0)
    assert jax.tree.map(jnp.shape, square.init(key)) == jax.tree.map(jnp.shape, flat.init(key))
    colour = Federation.from_arrays(np.zeros((2, 8, 6, 3), np.uint8), [0, 1], [0, 1])
    assert CNN().build(colour).init(key)[0]["w"].shape == (5, 5, 3, 32)
    wrong = Federation.from_arrays(np.zeros((2, 7)), [0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"CNN: data must be images .*, got samples of shape \(7,\)"):
        CNN().build(wrong)
    first = Federation.from_arrays(np.zeros((2, 3, 16, 16), np.float32), [0, 1], [0, 1])
    for model in (CNN(), ResNet(channels=(8,))):
        with pytest.raises(
            ValueError, match=r"got samples of \(3, 16, 16\), .* np\.moveaxis\(x, 1, -1\) puts them last"
        ):
            model.build(first)


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="CNN: kernel must be an odd number, got 4"):
        CNN(kernel=4)
    with pytest.raises(ValueError, match="ResNet: channels must be multiples of groups=8, got 12"):
        ResNet(channels=(8, 12))


GEOMETRIES = [
    ((1, 1), "SAME", (1, 1), (1, 1)),
    ((2, 2), "SAME", (1, 1), (1, 1)),
    ((2, 1), "VALID", (1, 1), (1, 1)),
    ((1, 2), ((3, 0), (1, 2)), (1, 1), (2, 1)),
    ((1, 1), ((0, 1), (2, 2)), (2, 1), (1, 2)),
    ((3, 2), ((2, 0), (-1, 1)), (2, 3), (1, 1)),
]
ORDERS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "IHWO", "CNHW")]


@pytest.mark.parametrize("orders", ORDERS, ids="-".join)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("form", [convolutions.in_order, convolutions.by_patches])
def test_a_convolution_of_any_form_is_the_same_for_a_device(form, geometry, orders):
    strides, padding, x_dilation, w_dilation = geometry
    sizes = {"N": 3, "H": 9, "W": 8, "C": 2, "I": 2, "O": 5}
    x = jax.random.normal(jax.random.key(0), [sizes[axis] for axis in orders[0]])
    w = jax.random.normal(jax.random.key(1), [{**sizes, "H": 3, "W": 2}[axis] for axis in orders[1]])

    def plain(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, x_dilation, w_dilation, dimension_numbers=orders)

    replaced = convolutions.replaced(plain, form)
    text = str(jax.make_jaxpr(replaced)(x, w))
    if form is convolutions.in_order:
        assert "custom_vjp" in text
    else:
        assert ("conv" in text) == (max(x_dilation + w_dilation) > 1)
    np.testing.assert_allclose(replaced(x, w), plain(x, w), rtol=1e-5, atol=1e-5)
    back = jax.random.normal(jax.random.key(2), jax.eval_shape(plain, x, w).shape)
    for ours, other in zip(*(jax.vjp(function, x, w)[1](back) for function in (replaced, plain)), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [((2, 2), (2, 2), "VALID"), ((3, 3), (2, 2), "SAME"), ((2, 3), (1, 2), "SAME")])
def test_a_pool_is_the_same_for_a_device(window):
    size, strides, padding = window
    x = jnp.round(2 * jax.random.normal(jax.random.key(0), (2, 7, 8, 3)))  # with equal numbers
    x = x.at[0, 0, 0, 0].set(jnp.nan)

    def plain(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, *size, 1), (1, *strides, 1), padding)

    replaced = convolutions.replaced(plain, convolutions.in_order)
    assert "reduce_window" not in str(jax.make_jaxpr(replaced)(x))
    np.testing.assert_array_equal(replaced(x), plain(x))
    x = x.at[0, 0, 0, 0].set(0)
    back = jax.random.normal(jax.random.key(2), plain(x).shape)
    np.testing.assert_allclose(jax.vjp(replaced, x)[1](back)[0], jax.vjp(plain, x)[1](back)[0], rtol=1e-6)


def user_model(inner):
    """A network with a convolution, a pool and a dense layer, wrapped by ``inner`` as a library might."""

    def features(w, x):
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def init(key):
        one, two = jax.random.split(key)
        return jax.random.normal(one, (3, 3, 1, 4)) / 3, jax.random.normal(two, (64, 3)) / 8

    def apply(params, x, key):
        x = inner(features)(params[0], x[..., None])
        return x.reshape(x.shape[0], -1) @ params[1]

    return from_apply(init, apply)


def twice(features):
    """The features in a loop of the model's own."""
    return lambda w, x: lax.scan(lambda total, _: (total + features(w, x), None), features(w, x), None, length=1)[0]


def in_a_loop(text):
    """The convolutions of a compiled program that are in a loop, by the order of their dimensions."""
    entry = text[text.index("\nENTRY ") :]
    return set(re.findall(r"convolution\(.*?dim_labels=(\S+?)[,\s]", text.replace(entry, "")))


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(lambda f: f, id="plain", marks=pytest.mark.slow),
        pytest.param(jax.jit, id="jit"),
        pytest.param(jax.checkpoint, id="remat", marks=pytest.mark.slow),
        pytest.param(twice, id="scan", marks=pytest.mark.slow),
    ],
)
def test_a_convolution_of_a_users_own_stays_with_the_library_on_a_cpu(inner):
    model = user_model(inner)
    setup = Setup(images(), model, Rand(m=2), Local(tau=3, b=4, eta=0.1))
    bundle = Bundles(sweep(setup, 1)[0])
    bundle.begin(Cadence(rounds=1, every=1, blocks=1))
    own = bundle.own[0]
    assert not own.setup.model.batched
    text = jax.jit(rounds, static_argnames="every").lower(own, bundle.progress[0], 0, None, every=1).compile().as_text()
    assert in_a_loop(text) == {"b01f_01io->b01f"}
    assert "select-and-scatter" not in text
    # the test sees the slow form where there is one
    plain = own._replace(setup=setup)
    text = (
        jax.jit(rounds, static_argnames="every").lower(plain, bundle.progress[0], 0, None, every=1).compile().as_text()
    )
    assert in_a_loop(text) != {"b01f_01io->b01f"}


def test_a_model_of_matrix_products_is_left_as_it_is():
    for spec in (Logistic(), MLP()):
        model = spec.build(images())
        assert convolutions.cpu_form(model, images(), 4) is model


@pytest.mark.slow
def test_seats_side_by_side_train_as_in_a_batch(monkeypatch):
    """More seats than stand side by side, and a poll for which candidates train."""
    from fedpick.sim import local as module

    monkeypatch.setattr(module, "SIDE_BY_SIDE", 2)
    federation, model = images(K=6), SMALL["cnn"].build(images())
    apart = Model(model.init, *model.functions, model.lowest, batched=False)
    for selector in (Rand(m=5), OptimalSampling(m=2, d=5)):
        one, other = (
            simulate(federation, each, selector, Local(tau=2, b=4, eta=0.1), rounds=2, every=2, jit=True)
            for each in (Model(model.init, *model.functions), apart)
        )
        np.testing.assert_array_equal(one.records["clients"], other.records["clients"])
        np.testing.assert_allclose(one.metrics["loss"], other.metrics["loss"], rtol=1e-5)
