"""Networks of other libraries by their address, in Python, in files and on the command line."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Rand, registry
from fedpick.compare import Choices, make_experiments
from fedpick.sim import Federation, Local, Network, simulate

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 4)).astype(np.float32)
FEDERATION = Federation.from_arrays(X, X[:, :3].argmax(axis=1), np.arange(90) % 5)


@pytest.mark.parametrize("net", ["support.networks:Linen", "support.networks:NNX", "support.networks:linen"])
def test_a_network_of_flax_learns_and_drops_out(net):
    model = Network(net).build(FEDERATION)
    assert model is Network(net).build(FEDERATION)  # the same program
    one, other = (model.init(jax.random.key(seed)) for seed in (0, 1))
    assert not np.array_equal(jax.tree.leaves(one)[1], jax.tree.leaves(other)[1])
    y = jnp.zeros(6, jnp.int32)
    noisy = [np.asarray(model.losses(one, X[:6], y, jax.random.key(seed))) for seed in (0, 1)]
    assert not np.array_equal(*noisy)
    calm = [np.asarray(model.losses(one, X[:6], y, None)) for _ in range(2)]
    np.testing.assert_array_equal(*calm)
    result = simulate(FEDERATION, Network(net), Rand(m=3), Local(tau=10, b=8, eta=0.3), rounds=20)
    assert result.metrics["loss"][0, -1] < 0.7 * result.metrics["loss"][0, 0]


def test_what_is_no_network_is_told():
    with pytest.raises(ValueError, match=r"must be a module of Flax .* got ArrayImpl"):
        Network("support.networks:nothing").build(FEDERATION)
    for net, error in {"Wide": "missing 1 required .* 'width'", "model": "missing 1 required .* 'x'"}.items():
        with pytest.raises(
            ValueError, match=f"networks:{net} must be .* got an error when called: TypeError: .*{error}"
        ):
            Network(f"support.networks:{net}").build(FEDERATION)
    assert jax.tree.leaves(Network("support.networks:make").build(FEDERATION).init(jax.random.key(0)))
    with pytest.raises(ValueError, match="must have parameters alone, as with GroupNorm, got also batch_stats"):
        Network("support.networks:Normed").build(FEDERATION).init(jax.random.key(0))
    with pytest.raises(ValueError, match="must have parameters alone, as with GroupNorm, got also BatchStat"):
        simulate(FEDERATION, Network("support.networks:NormedNNX"), Rand(m=3), Local(tau=1, b=8, eta=0.3), rounds=1)


def test_the_command_line_takes_a_file_and_a_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_alone.py").write_text(
        "import flax.linen as nn\nclass Net(nn.Module):\n"
        "    @nn.compact\n    def __call__(self, x):\n        return nn.Dense(10)(x)\n"
    )
    address = f"{tmp_path}/mine_alone.py:Net"
    (experiment,) = make_experiments("synthetic", Choices(strategies=("rand",), model=address))
    assert experiment.model == Network(address)
    assert registry.load(address).__name__ == "Net"
    with pytest.raises(ValueError, match="must be an importable"):
        registry.load(f"{tmp_path}/nowhere.py:Net")


@pytest.mark.parametrize("shape", ["x[:, 0]", "x[0]"])
def test_a_network_of_other_outputs_is_one_sentence_before_the_first_round(shape, tmp_path):
    (tmp_path / f"flat_{len(shape)}.py").write_text(
        "import flax.linen as nn\nclass Net(nn.Module):\n"
        f"    @nn.compact\n    def __call__(self, x):\n        x = nn.Dense(10)(x)\n        return {shape}\n"
    )
    choices = Choices(strategies=("rand",), model=f"{tmp_path}/flat_{len(shape)}.py:Net")
    with pytest.raises(
        ValueError, match=r"^experiment: the model must give logits of shape \(n, classes\), which is \(2, 10"
    ):
        make_experiments("synthetic", choices)


CODE = """
import jax, numpy as np
from fedpick import Rand
from fedpick.sim import Federation, Local, Network, simulate
X = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
federation = Federation.from_arrays(X, X[:, :3].argmax(axis=1), np.arange(90) % 5)
result = simulate(federation, Network("net:make"), Rand(m=3), Local(tau=10, b=8, eta=0.3), rounds=20)
assert result.metrics["loss"][0, -1] < 0.7 * result.metrics["loss"][0, 0], result.metrics["loss"]
"""
OTHERS = {
    "equinox": """
import equinox as eqx, jax
class make(eqx.Module):
    layers: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    def __init__(self, inputs, classes, *, key):
        self.layers = eqx.nn.MLP(inputs[0], classes, 8, 1, key=key)
        self.dropout = eqx.nn.Dropout(0.1)
    def __call__(self, x, key=None):
        return self.layers(self.dropout(x, key=key))
""",
    "keras": """
import keras
def make(inputs, classes):
    layers = [keras.layers.Input(inputs), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(classes)]
    return keras.Sequential(layers)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", OTHERS)
def test_a_network_of_another_library_learns(library, tmp_path):
    pytest.importorskip(library)
    (tmp_path / "net.py").write_text(OTHERS[library])
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, env=environment, check=True)
