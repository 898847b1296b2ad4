"""The kernel that trains dense networks on a GPU, interpreted: the same local models as XLA's steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick.sim import MLP, Federation, Local, Logistic
from fedpick.sim._engine.dense_kernel import kernel_form, train_dense
from fedpick.sim.federation import pixels
from fedpick.sim.local import train_seats

rng = np.random.default_rng(0)
Y, CLIENT = rng.integers(0, 5, 300), np.arange(300) % 6
FLOATS = Federation.from_arrays(rng.normal(size=(300, 48)).astype(np.float32), Y, CLIENT)
BYTES = Federation.from_arrays(rng.integers(0, 256, (300, 12, 4), np.uint8), Y, CLIENT, prepare=pixels)
CLIENTS, KEYS = jnp.array([0, 3, 3]), jax.random.split(jax.random.key(2), 3)
PLAIN = Local(tau=4, b=20, eta=0.05)


def both(federation, spec, local):
    model = spec.build(federation)
    options = {"params": model.init(jax.random.key(1)), "clients": CLIENTS, "keys": KEYS, "t": jnp.int32(0)}
    steps = train_seats(federation, model, local, **options)
    # Numbers of the training are traced, as in a simulation.
    kernel = jax.jit(lambda local: train_dense(model.dense, federation, local, interpret=True, **options))(local)
    return options["params"], steps, kernel


DECAY = Local(tau=3, b=16, eta=0.1, weight_decay=0.1, batches="replace")


@pytest.mark.parametrize(
    ("spec", "local"),
    [
        (Logistic(), PLAIN),
        (MLP((24, 10)), DECAY),
        (MLP((24,), objective="minus-probability"), PLAIN),
        pytest.param(MLP((16, 8, 8), dropout=0.25), PLAIN, marks=pytest.mark.slow),
        pytest.param(MLP((20,), dropout=0.0), DECAY, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_local_models_and_losses_are_those_of_the_steps(spec, local):
    start, steps, kernel = both(FLOATS, spec, local)
    assert jax.tree.structure(steps.params) == jax.tree.structure(kernel.params)
    for one, other, begin in zip(*map(jax.tree.leaves, (kernel.params, steps.params, start)), strict=True):
        assert float(jnp.abs(other - begin[None]).max()) > 1e-4
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(kernel.loss, steps.loss, rtol=1e-5)


def test_bytes_are_multiplied_with_the_digits_of_tf32():
    start, steps, kernel = both(BYTES, MLP((24, 10)), PLAIN)
    for one, other, begin in zip(*map(jax.tree.leaves, (kernel.params, steps.params, start)), strict=True):
        change = jnp.linalg.norm(other - begin[None])
        assert float(jnp.linalg.norm(one - other) / change) < 0.02
    np.testing.assert_allclose(kernel.loss, steps.loss, rtol=1e-3)


@pytest.mark.slow
def test_runs_are_a_batch_and_the_kernel_is_one_that_a_gpu_can_have():
    model = MLP((24, 10)).build(BYTES)

    def one(params, interpret):
        return train_dense(
            model.dense, BYTES, PLAIN, params=params, clients=CLIENTS, keys=KEYS, t=jnp.int32(0), interpret=interpret
        )

    params = jax.vmap(model.init)(jax.random.split(jax.random.key(5), 2))
    together = jax.vmap(lambda params: one(params, True))(params)
    alone = one(jax.tree.map(lambda leaf: leaf[1], params), True)
    np.testing.assert_allclose(together.loss[1], alone.loss, rtol=1e-6)
    text = jax.jit(jax.vmap(lambda params: one(params, False))).trace(params).lower(lowering_platforms=("cuda",))
    assert "dense_training" in text.as_text()


@pytest.mark.parametrize(
    "local",
    [
        Local(tau=4, b=20, eta=0.05, optimizer="momentum"),
        Local(tau=4, b=20, eta=0.05, prox=0.1),
        Local(tau=4, b=20, eta=0.05, batches="epochs"),
        Local(tau=4, b=200, eta=0.05),
    ],
)
def test_what_the_kernel_does_not_have_is_left_to_xla(local):
    model = MLP((24, 10)).build(BYTES)
    assert kernel_form(model, BYTES, PLAIN).trainer is not None
    assert kernel_form(model, BYTES, local) is model
    wide, odd = MLP((256,)).build(BYTES), dataclasses.replace(BYTES, x=BYTES.x[:, :, :3])
    assert kernel_form(wide, BYTES, PLAIN) is wide
    narrow = MLP((24,)).build(odd)
    assert kernel_form(narrow, odd, PLAIN) is narrow
