"""The examples for Flower do what their pages say: their clients and servers, without a network."""

import importlib
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from support.fake_grid import FakeGrid
from support.processes import Network, Run, kept

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, package, monkeypatch, clients, **settings):
    """Play the app of a folder in this process, with its own run config."""
    monkeypatch.syspath_prepend(EXAMPLES / name)
    config = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    client, server = (importlib.import_module(f"{package}.{kind}_app") for kind in ("client", "server"))
    assert config["components"] == {
        "serverapp": f"{package}.server_app:app",
        "clientapp": f"{package}.client_app:app",
    }
    settings = {**config["config"], "clients": clients, **settings}
    grid = FakeGrid(client.app, range(clients))
    for context in grid.nodes.values():
        context.run_config = settings
    server.main(grid, Context(1, 1, {}, RecordDict(), settings))
    return grid


@pytest.mark.parametrize("name", ["pow-d", "rpow-d"])
def test_the_example_in_numpy_finds_the_line(monkeypatch, capsys, name):
    grid = run("flower-numpy", "numpy_app", monkeypatch, 8, strategy=name)
    words = capsys.readouterr().out
    found = [float(word) for word in words[words.index("the line:") :].split("[")[1].split("]")[0].split()]
    np.testing.assert_allclose(found, [1.0, -2.0, 0.5], atol=0.6)
    polls = [m for _, m in grid.log if m.metadata.message_type == "query.loss" and "arrays" in m.content]
    assert len(polls) == (40 if name == "pow-d" else 0)
    assert len(grid.sent("train")) == 20


def test_the_example_in_numpy_answers_for_a_mini_batch_where_asked(monkeypatch):
    for name, most in (("pow-d", 1), ("cpow-d", 5)):
        grid = run("flower-numpy", "numpy_app", monkeypatch, 8, strategy=name, rounds=2, d=8)
        client = importlib.import_module("numpy_app.client_app")
        partition, poll = next((k, m) for k, m in grid.log if k == 7 and "arrays" in m.content)
        (context,) = (each for each in grid.nodes.values() if each.node_config["partition-id"] == partition)
        answers = {round(client.loss(poll, context).content["metrics"]["loss"], 9) for _ in range(5)}
        assert len(answers) == most


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pow-d", "cpow-d"])
def test_the_example_in_pytorch_learns_digits(monkeypatch, tmp_path, name):
    pytest.importorskip("torch")
    run("flower-pytorch", "pytorch_app", monkeypatch, 6, strategy=name, rounds=12, folder=str(tmp_path))
    (summary,) = tmp_path.glob("runs/*/summary.json")
    assert json.loads(summary.read_text())["final"]["test_accuracy"] > 0.3  # of ten classes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flower-numpy", "flower-pytorch"])
def test_flwr_run_takes_the_example(tmp_path, name):
    if name == "flower-pytorch":
        pytest.importorskip("torch")
    settings = {"clients": 4, "rounds": 2, "m": 1, "d": 2}
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(4):
            network.supernode(k)
        run = Run(network, EXAMPLES / name, {**settings, "folder": str(tmp_path / "kept")})
        assert run.end(300) == 0, run.text
    arrays, about = kept(tmp_path / "kept")
    assert arrays["records/returned"].tolist() == [1, 1], run.text
    assert about["experiment"]["selector"]["d"] == 2
