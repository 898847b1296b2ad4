"""A strategy, a data set, a model and an availability from outside the package, under "module:Class" everywhere."""

import json

import numpy as np
import pytest
from support.fake_grid import FakeGrid, plain_app, zeros
from typer.testing import CliRunner

import fedpick
from fedpick import config, registry
from fedpick.cli import app
from fedpick.compare import Choices, make_experiments
from fedpick.experiment import from_plain, read, run
from fedpick.sim import simulate
from fedpick.storage import RunStore

MODULE = """
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from fedpick import Ledger, pytree, sampling, static
from fedpick.sim import Federation, Logistic


@pytree
class LongestAway:
    \"\"\"The m clients that have not trained for longest, ties broken at random.\"\"\"

    m: int = static()
    patience: float = 1.0

    poll = "none"

    def init(self, num_clients):
        return Ledger.init(num_clients)

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return sampling.seat(*sampling.top_k(key, -self.patience * state.last.astype(jnp.float32), candidates, self.m))

    def observe(self, state, selection, report):
        return state.observe(selection, report)


@dataclass(frozen=True)
class Coins:
    \"\"\"Two labels that a single input tells apart.\"\"\"

    K: int = 6
    seed: int = 0

    def federation(self):
        rng = np.random.default_rng(self.seed)
        y = rng.integers(0, 2, 20 * self.K)
        x = (2.0 * y - 1 + 0.1 * rng.normal(size=len(y)))[:, None]
        return Federation.from_arrays(x, y, np.arange(len(y)) % self.K, test=(x, y), name="coins")


@dataclass(frozen=True)
class Linear:
    \"\"\"The same as Logistic.\"\"\"

    def build(self, federation):
        return Logistic().build(federation)


@pytree
class EveryOther:
    \"\"\"Even clients in even rounds, odd ones in odd rounds.\"\"\"

    def __call__(self, key, t, K):
        return jnp.arange(K, dtype=jnp.int32) % 2 == jnp.asarray(t, jnp.int32) % 2
"""
TOML = """
rounds = 6
seeds = 2
data = { kind = "outside:Coins", K = 6 }
model = { kind = "outside:Linear" }
local = { tau = 2, b = 4, eta = 0.5, optimizer = "optax:lion" }
availability = { kind = "outside:EveryOther" }
[[selector]]
kind = "rand"
m = 2
[[selector]]
kind = "outside:LongestAway"
m = 2
patience = [1.0, 2.0]
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(TOML)
    return tmp_path


def fedpick_command(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done


def test_a_file_is_the_one_that_was_named(outside):
    for folder in ("first", "second"):
        (outside / folder).mkdir()
        (outside / folder / "twice_named.py").write_text(f"def {folder}():\n    pass\n")
    assert registry.load("first/twice_named.py:first").__name__ == "first"
    for address in ("second/twice_named.py:second", "second/twice_named.py:first"):
        with pytest.raises(ValueError, match=r"module twice_named is that of .*first/twice_named.py; give the file an"):
            registry.load(address)
    (outside / "first" / "string.py").write_text("def mine():\n    pass\n")
    with pytest.raises(ValueError, match=r"the module string is that of .*string.py; give the file another name"):
        registry.load("first/string.py:mine")


def test_a_class_beside_the_file_that_names_it_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "study"
    folder.mkdir()
    for name, address in (("beside_one", "beside_one:Coins"), ("beside_two", "beside_two.py:Coins")):
        (folder / f"{name}.py").write_text(MODULE)
        (folder / "own.toml").write_text(TOML.replace("outside:Coins", address).replace("outside", name))
        experiments = read("study/own.toml")
        assert type(experiments[0].data).__module__ == name
        assert make_experiments("study/own.toml", Choices(strategies=("rand",)))[0].data == experiments[0].data
    (folder / "own.toml").write_text(TOML.replace("outside", "beside_three"))
    with pytest.raises(
        ValueError, match=r"No module named 'beside_three'; looked in .* the working folder.* and 'study'"
    ):
        read("study/own.toml")


@pytest.mark.no_cover
def test_it_keeps_the_laws_and_has_an_address(outside):
    selector = fedpick.strategy("outside:LongestAway", m=2)
    assert len(fedpick.check_selector(selector)) == 8
    plain = config.unstructure(selector, "Selector")
    assert plain == {"kind": "outside:LongestAway", "m": 2, "patience": 1.0}
    assert config.structure(plain, fedpick.Selector, "selector") == selector
    assert config.describe(selector) == "outside:LongestAway, m = 2"
    assert registry.fitting_strategy("outside:LongestAway", m=3, d=6, rounds=9).m == 3


def test_toml_run_store_resume_compare_and_report(outside):
    fedpick_command("run", "own.toml", "-o", "runs")
    assert len(list(RunStore("runs").identities())) == 6
    experiments = from_plain(config.read_plain("own.toml"))
    watched = []
    results = run(experiments, "runs", watch=lambda batch, so_far: watched.append(batch))
    assert not watched  # stored, and found again by identity
    for experiment, result in zip(experiments, results, strict=True):
        alone = simulate(
            experiment.data, experiment.model, experiment.selector, experiment.local,
            rounds=6, seeds=2, availability=experiment.availability, progress=False,
        )  # fmt: skip
        np.testing.assert_array_equal(result.metrics["loss"], alone.metrics["loss"])
        np.testing.assert_array_equal(result.records["clients"], alone.records["clients"])
    assert set(results[1].records["clients"][0, :4].ravel().tolist()) == set(range(6))  # everybody in turn
    shown = fedpick_command("report", "runs").stdout
    assert "outside:LongestAway, patience = 2.0" in shown


def test_compare_takes_it_beside_the_others_and_resumes(outside, monkeypatch):
    command = ["compare", "own.toml", "--strategies", "rand,outside:LongestAway", "-m", 2, "-o", "out"]
    real = RunStore.save

    def dies(self, identity, *parts):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunStore, "save", dies)
    interrupted = CliRunner().invoke(app, list(map(str, command)))
    assert interrupted.exit_code == 130
    assert "the same command resumes" in interrupted.output
    monkeypatch.setattr(RunStore, "save", real)
    fedpick_command(*command)
    summary = json.loads((outside / "out" / "summary.json").read_text())
    assert summary["names"] == [
        "rand",
        *(f"outside:LongestAway, patience = {value}.0" for value in (1, 2)),
    ]  # the file's
    assert "outside:LongestAway" in (outside / "out" / "report.html").read_text()
    page = (outside / "out" / "report.html").read_bytes()
    fedpick_command("report", "out")
    assert (outside / "out" / "report.html").read_bytes() == page


def test_flower_takes_it_and_stores_its_address(outside):
    from flwr.serverapp.strategy import FedAvg

    from fedpick.flower import Selecting

    grid = FakeGrid(plain_app(), range(6))
    selecting = Selecting(FedAvg(), fedpick.strategy("outside:LongestAway", m=2), clients=6, folder=outside / "kept")
    selecting.start(grid, zeros(), num_rounds=3)
    assert sorted(grid.sent("train")) == [0, 1, 2, 3, 4, 5]
    (identity,) = RunStore(outside / "kept").identities()
    about = RunStore(outside / "kept").load(identity).about
    assert about["experiment"]["selector"]["kind"] == "outside:LongestAway"
    shown = fedpick_command("report", outside / "kept").stdout
    assert "outside:LongestAway" in shown
