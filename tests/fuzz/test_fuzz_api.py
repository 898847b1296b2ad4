"""Calls of the API and command lines with anything in any place."""

import inspect

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import strategies as st
from support.fuzz import NASTY, fuzz
from typer.testing import CliRunner

from fedpick import Clients, PowerOfChoice, Rand, pick, round_keys, sim, strategy
from fedpick.cli import app
from fedpick.experiment import Experiment, Metrics, from_plain, run
from fedpick.flower import Selecting
from fedpick.storage import RunStore

X, Y, CLIENT = np.ones((6, 2), np.float32), np.arange(6) % 2, np.arange(6) % 3
ARRAYS = [
    X,
    Y,
    CLIENT,
    np.float32(3),
    np.zeros((0, 2)),
    np.array(["a", "b"] * 3),
    np.full(6, np.nan),
    X.astype(np.uint8),
]
OBJECTS = [
    Rand,
    Rand(2),
    PowerOfChoice(2, 3),
    object(),
    print,
    FedAvg(),
    sim.Always(),
    sim.Local(1, 1, 0.1),
    sim.Quadratic(K=3),
]
ANYTHING = st.sampled_from([*NASTY, *ARRAYS, *OBJECTS])


def arguments(good, number=2):
    """Good arguments, of which some are exchanged for anything."""
    changes = st.dictionaries(st.sampled_from(list(good)), ANYTHING, min_size=1, max_size=number)
    return changes.map(lambda other: {**good, **other})


SPECS = {
    sim.Quadratic: {"K": 3, "v": 2, "seed": 0},
    sim.Synthetic: {"alpha": 1.0, "beta": 1.0, "K": 3, "dim": 2, "classes": 2, "seed": 0},
    sim.Digits: {"partition": sim.IID(3), "seed": 0},
    sim.Arrays: {"path": "none.npz", "partition": None, "test_share": 0.1, "seed": 0},
    sim.IID: {"K": 3, "seed": 0},
    sim.Dirichlet: {"K": 3, "alpha": 0.5, "capped": True, "least": 1, "seed": 0},
    sim.Shards: {"K": 3, "per_client": 1, "seed": 0},
    sim.PowerLaw: {"K": 3, "a": 2.0, "seed": 0},
    sim.Logistic: {"objective": "cross-entropy"},
    sim.MLP: {"hidden": (3,), "dropout": 0.5, "objective": "cross-entropy"},
    sim.Local: {
        "tau": 1,
        "b": 1,
        "eta": 0.1,
        "prox": 0.1,
        "weight_decay": 0.1,
        "batches": "epochs",
        "optimizer": "sgd",
    },
    sim.Server: {"optimizer": "average", "eta": 1.0},
    sim.Bernoulli: {"probability": 0.5},
    sim.Devices: {"speed": 1.0, "bandwidth": 1.0, "latency": 0.0, "deadline": 3.0},
    Metrics: {"every": 1, "target": "loss", "value": 0.5, "clients": True, "model": False},
}


def test_descriptions(total):
    def check(case):
        kind, given = case
        made = kind(**given)
        hash(made) if not any(isinstance(value, np.ndarray) for value in given.values()) else repr(made)
        if kind in (sim.IID, sim.Shards, sim.PowerLaw, sim.Dirichlet):
            made(np.arange(60) % 3)
        elif kind in (sim.Quadratic, sim.Synthetic):
            made.federation()

    cases = st.sampled_from(list(SPECS)).flatmap(lambda kind: st.tuples(st.just(kind), arguments(SPECS[kind])))
    fuzz(cases, check, 0.05 * total)


def test_strategies(total):
    names = ["rand", "rand-distinct", "uniform", "full", "pow-d", "rpow-d", "afl"]
    sizes = st.sampled_from(
        [np.ones(4), np.arange(4), np.zeros(4), np.full(4, np.nan), np.ones((2, 2)), np.array(["a"] * 4), np.ones(0), 3]
    )
    heard = st.sampled_from([np.ones(4), np.full(4, np.nan), np.array([1, np.inf, -np.inf, np.nan])])

    def check(case):
        name, given, size, losses = case
        selector = strategy(name, **given)
        keys = round_keys(0, 0)
        clients = Clients(size, np.ones(np.shape(size), bool))
        found = pick(selector, keys, selector.init(4), clients, lambda key, asked: losses.astype(np.float32))
        weights = np.asarray(found.selection.weights)
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()

    parameters = st.dictionaries(
        st.sampled_from(["m", "d", "score", "alpha1", "replace"]), ANYTHING | st.integers(1, 5), max_size=2
    )
    cases = st.tuples(st.sampled_from(names), parameters.map(lambda p: {"m": 2, **p}), sizes, heard)
    fuzz(cases, check, 0.005 * total)


def test_federations_from_arrays(total):
    good = {"x": X, "y": Y, "client": CLIENT, "test": (X, Y), "num_clients": 3, "classes": 2, "size": np.ones(3)}
    good |= {"name": "a", "test_share": 0.0, "seed": 0, "names": sim.Names()}

    def check(given):
        federation = sim.Federation.from_arrays(**given)
        assert int(federation.count.sum()) == federation.num_samples

    fuzz(arguments(good), check, 0.02 * total)


def test_simulate(total):
    good = {"federation": sim.Quadratic(K=3, v=2), "model": sim.QuadraticModel(), "selector": Rand(2)}
    good |= {
        "local": sim.Local(1, 1, 1e-3),
        "rounds": 1,
        "seeds": 1,
        "server": sim.Server(),
        "availability": sim.Always(),
    }
    good |= {"failures": sim.Failures(), "devices": sim.Devices(), "liars": sim.Liars(), "every": None, "until": None}
    good |= {
        "checkpoint": None,
        "checkpoint_after": 0.0,
        "watch": None,
        "jit": True,
        "spread_seats": False,
        "metrics": (),
    }
    assert set(good) == set(inspect.signature(sim.simulate).parameters) - {"progress"}

    def check(given):
        short = all(isinstance(given[name], int) and given[name] == 1 for name in ("rounds", "seeds"))
        if not (short and given["jit"] is True):
            given = {**given, "watch": 3}  # a mistake for sure, so that nothing is played for long
        sim.simulate(**given, progress=False)

    fuzz(arguments(good), check, 0.003 * total)


def test_runs_and_flower(total, tmp_path):
    plain = {"rounds": 1, "data": {"kind": "quadratic", "K": 3}, "model": {"kind": "quadratic"}}
    plain |= {"local": {"tau": 1, "b": 1, "eta": 1e-4}, "selector": {"kind": "rand", "m": 2}}
    (experiment,) = from_plain(plain)
    fields = {
        "data": experiment.data,
        "model": experiment.model,
        "selector": experiment.selector,
        "local": experiment.local,
    }
    fields |= {"rounds": 1, "seeds": (0,), "redraw": False, "name": ""}
    options = {"seed": 0, "clients": 3, "wait": 1.0, "query": "query.loss", "poll_timeout": 1.0, "quarantine": 2}
    options |= {
        "min_clients": 1,
        "outage": 1.0,
        "fallback": "rand",
        "batch": 3,
        "loss_range": (0.0, 1.0),
        "folder": None,
    }
    options |= {
        "sizes": {"name=a": 1},
        "size_caps": None,
        "size_cap": 2.0,
        "weights": "selection",
        "identity": "reported",
    }
    calls = {
        "run": (lambda **given: run(**given), {"experiments": [], "folder": tmp_path / "run"}),
        "experiment": (lambda **given: Experiment(**given).identity(0), fields),
        "from_plain": (lambda plain: from_plain(plain), {"plain": plain}),
        "store": (lambda folder: RunStore(folder), {"folder": tmp_path / "store"}),
        "selecting": (lambda **given: Selecting(**given), {"strategy": FedAvg(), "selector": Rand(2), **options}),
    }

    def check(case):
        name, given = case
        if name in ("store", "run") and isinstance(given["folder"], str):
            return  # a folder of that name would be made
        calls[name][0](**given)

    cases = st.sampled_from(list(calls)).flatmap(lambda name: st.tuples(st.just(name), arguments(calls[name][1])))
    fuzz(cases, check, 0.03 * total)


WORDS = [
    "compare",
    "run",
    "report",
    "theory",
    "strategies",
    "data",
    "describe",
    "verify",
    "--json",
    "--quiet",
    "-m",
    "-d",
    "3",
    "-1",
]
WORDS += [
    "0",
    "nan",
    "1e400",
    "quadratic",
    "none.npz",
    "none.toml",
    "",
    "[/x]",
    "\x1b",
    "--target",
    "80%",
    "--metric",
    "loss",
    "--by",
]
WORDS += [
    "bytes",
    "--set",
    "a=b",
    "rounds=x",
    "selector.d=[",
    "--rounds",
    "--strategies",
    "rand,",
    "cooldown(",
    "x:Y",
    "--name",
    "-o",
]
WORDS += [
    "--x",
    "--client",
    "--seeds",
    "99999999999",
    "--where",
    "--help",
    "--version",
    "--points",
    "-K",
    "--seed",
    "--eta",
    "--tune",
]


@pytest.mark.filterwarnings("ignore")
def test_command_lines(total, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path))
    monkeypatch.setattr(
        "fedpick.experiment.run_missing", lambda *a, **o: (_ for _ in ()).throw(ValueError("compare: played"))
    )
    monkeypatch.setattr("fedpick.theory.skews", lambda *a, **o: (_ for _ in ()).throw(ValueError("theory: played")))
    monkeypatch.setattr(
        "fedpick.theory.random_points", lambda *a, **o: (_ for _ in ()).throw(ValueError("theory: played"))
    )

    def check(words):
        answer = CliRunner().invoke(app, list(words))
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        assert answer.exit_code in (0, 1, 2)
        assert "Traceback" not in answer.output

    commands = st.sampled_from(["compare", "run", "report", "theory", "data", "strategies", "paper"])
    cases = st.tuples(commands, st.lists(st.sampled_from(WORDS), max_size=5)).map(lambda case: (case[0], *case[1]))
    fuzz(cases, check, 0.01 * total, refused=())
