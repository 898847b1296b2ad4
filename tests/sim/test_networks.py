"""Networks of other libraries by their address, in Python, in files and on the command line."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick import Rand, registry
from fedpick.cli import app
from fedpick.compare import Choices, make_experiments
from fedpick.experiment import run
from fedpick.sim import Federation, Local, Network, from_apply, simulate

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


def test_an_embedding_of_floats_is_told_how_to_have_codes():
    def embedded(table, x, key):
        return table[x].sum(axis=1)

    model = from_apply(lambda key: jnp.zeros((9, 3)), embedded)
    with pytest.raises(ValueError, match=r"got an error: .*; inputs are float32, and x\.astype\(int\) makes codes"):
        simulate(FEDERATION, model, Rand(m=3), Local(tau=1, b=8, eta=0.3), rounds=1)


LINEAR = """
import os
import jax.numpy as jnp
from fedpick.sim import Model
SCALE = float(os.environ.get("OWN_SCALE", "1"))
linear = Model(
    init=lambda key: jnp.zeros(1),
    losses=lambda w, x, y, key: SCALE * (x[:, :1] @ w - x[:, 1]) ** 2,
    predict=lambda w, x: jnp.full(len(x), -1),
)
def make(classes):
    return linear
"""


def regression(folder, model):
    """A regression on a table, by a model of one's own that has an address."""
    lines = [f"s{row % 4},{one:.3f},{2 * one:.3f},0\n" for row, one in enumerate(rng.normal(size=80))]
    if not (folder / "regression.csv").exists():
        (folder / "regression.csv").write_text("site,a,t,zero\n" + "".join(lines))
        (folder / f"{folder.name}.py").write_text(LINEAR)  # a module of a name of its own
    columns = {"x": ("a", "t"), "y": "zero", "client": "site"}
    options = {
        "strategies": ("rand",),
        "m": 2,
        "rounds": 5,
        "seeds": 1,
        "eta": 0.1,
        "settings": ("local.b=5",),
        **columns,
    }
    return make_experiments(str(folder / "regression.csv"), Choices(model=model, **options))


def test_a_model_of_ones_own_has_an_address_and_may_be_a_regression(tmp_path):
    for name in ("linear", "make"):
        (experiment,) = regression(tmp_path, f"{tmp_path}/{tmp_path.name}.py:{name}")
        assert experiment.model == Network(f"{tmp_path}/{tmp_path.name}.py:{name}")
        (result,) = run(experiment, tmp_path / "runs")
        loss = result.metrics["loss"][0]
        assert loss[-1] < 0.5 * loss[0]
    with pytest.raises(ValueError, match=r"at least 2 classes, got 1 .*; QuadraticModel.*and a Model of your own take"):
        regression(tmp_path, "logistic")
    with pytest.raises(ValueError, match=r"at least 2 classes, got 1"):
        regression(tmp_path, "support.networks:Linen")
    (tmp_path / "own_number.py").write_text("scale = 0.5")
    with pytest.raises(ValueError, match=r"must be a module of Flax .* or a fedpick Model, got float"):
        regression(tmp_path, f"{tmp_path}/own_number.py:scale")
    done = CliRunner().invoke(app, ["data", "describe", f"{tmp_path}/regression.csv", "--x", "a,t", "--y", "zero"])
    assert "4 clients, 72 samples, 8 test samples" in done.output
    command = ["compare", f"{tmp_path}/regression.csv", "--x", "a,t", "--y", "zero", "-m", "2", "--rounds", "3"]
    command += [
        "--seeds",
        "1",
        "--strategies",
        "rand",
        "--model",
        f"{tmp_path}/{tmp_path.name}.py:linear",
        "-o",
        f"{tmp_path}/c",
        "--set",
        "local.b=5",
    ]
    assert "target: loss" in CliRunner().invoke(app, command).output


def test_what_a_model_at_an_address_reads_decides_its_runs(tmp_path, monkeypatch):
    (experiment,) = regression(tmp_path, f"{tmp_path}/{tmp_path.name}.py:linear")
    before = experiment.identity(0)
    monkeypatch.setattr(sys.modules[tmp_path.name], "SCALE", 2.0)
    changed = experiment.identity(0)
    monkeypatch.undo()
    assert (before != changed, experiment.identity(0) == before) == (True, True)


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
