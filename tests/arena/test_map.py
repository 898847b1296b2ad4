"""The map: features against numbers by hand, a fixed design, and cells that are played once."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from fedpick.arena import SOURCES, Cell, Features, Source, describe, gather, make_cells, play_cells, read_map
from fedpick.arena import map as played
from fedpick.arena.design import DRAWS, HELD
from fedpick.arena.features import gini, label_distance
from fedpick.arena.slopes import slopes
from fedpick.cli import app
from fedpick.sim import MLP, Federation, Local, Logistic, Quadratic, QuadraticModel


def test_sizes_and_labels_by_hand():
    assert gini([5, 5, 5, 5]) == 0
    assert gini([1, 3]) == pytest.approx(0.25)  # |1 - 3| / 2 over the mean of 2, and half of that
    labels = [[4, 0], [0, 4], [2, 2]]
    assert label_distance(labels, [0.25, 0.25, 0.5]) == pytest.approx(0.25)
    assert label_distance([[3, 1], [6, 2]], [0.3, 0.7]) == pytest.approx(0)


def test_the_slopes_of_a_quadratic_are_those_of_the_formula():
    """F_k has the Hessian h_k I and the gradient h_k w - e_k."""
    federation, model = Quadratic(K=7, seed=3).federation(), QuadraticModel()
    h, e = np.asarray(federation.x[:, 0], float), np.asarray(federation.x[:, 1:], float)
    w = np.asarray(model.build(federation).init(jax.random.key(0)), float)
    p = np.asarray(federation.share, float)
    gradients = h[:, None] * w - e
    curvature, ratio = slopes(federation, model)
    assert curvature == pytest.approx(p @ h, rel=1e-4)
    assert ratio == pytest.approx(p @ (gradients**2).sum(axis=1) / ((p @ gradients) ** 2).sum(), rel=1e-4)


def some_data(K=6, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 80, K)
    client = np.repeat(np.arange(K), sizes)
    x = rng.normal(size=(len(client), 4)) + client[:, None] % 3
    return Federation.from_arrays(x, rng.integers(0, 3, len(client)), client)


def test_the_slopes_of_logistic_regression_are_those_of_the_formula():
    """At 0 the Hessian is the mean of x x^T times diag(p) - p p^T, with p = 1/3 for each of three classes."""
    federation = some_data()
    x = np.concatenate([np.asarray(federation.x, float), np.ones((federation.num_samples, 1))], axis=1)
    off = 1 / 3 - np.eye(3)[np.asarray(federation.y)]
    client, share = np.repeat(np.arange(6), np.asarray(federation.count)), np.asarray(federation.share, float)
    own = np.stack([x[client == k].T @ off[client == k] / (client == k).sum() for k in range(6)])
    whole = np.tensordot(share, own, 1)
    curvature, ratio = slopes(federation, Logistic())
    assert curvature == pytest.approx(np.linalg.eigvalsh(x.T @ x / len(x)).max() / 3, rel=0.01)
    assert ratio == pytest.approx(share @ (own**2).sum(axis=(1, 2)) / (whole**2).sum(), rel=1e-3)


@pytest.mark.slow
def test_the_slopes_of_a_network_are_those_of_its_whole_hessian():
    federation, model = some_data(), MLP((5,), 0.0)
    built = model.build(federation)
    flat, unravel = jax.flatten_util.ravel_pytree(built.init(jax.random.key(0)))
    hessian = jax.hessian(lambda w: built.losses(unravel(w), federation.x, federation.y, None).mean())(flat)
    assert slopes(federation, model)[0] == pytest.approx(np.linalg.eigvalsh(hessian).max(), rel=0.02)


def test_the_step_of_an_optimiser_that_scales_its_own_is_not_that_of_sgd():
    plain, adam = (
        describe(some_data(), Logistic(), m=2, local=Local(5, 4, 0.1, optimizer=name), rounds=20)
        for name in ("sgd", "adam")
    )
    assert plain.step is not None
    assert adam == replace(plain, step=None)  # which is then not compared


def test_features_are_computed_from_data_and_checked():
    found = describe(some_data(), Logistic(), m=2, local=Local(tau=5, b=4, eta=0.1), rounds=20)
    assert (found.K, found.m, found.tau, found.rounds, found.convex) == (6, 2, 5, 20, True)
    assert found.fraction == pytest.approx(1 / 3)
    assert np.isfinite(found.vector()).all()
    assert not describe(some_data(), MLP((5,)), m=2, local=Local(5, 4, 0.1), rounds=20).convex
    assert np.isnan(Features(K=10, m=2).vector()[2:]).all()
    for wrong, words in (
        ({"m": 11}, "advise: m must be from 1 to the 10 clients, got 11"),
        ({"labels": 1.5}, "advise: labels must be from 0 to 1, got 1.5"),
        ({"step": 0.0}, "advise: step must be finite and above 0, got 0.0"),
        ({"gradients": 0.5}, "advise: gradients must be finite and at least 1, got 0.5"),
        ({"gini": 1.0}, "advise: gini must be at least 0 and below 1, got 1.0"),
        ({"tau": 0}, "advise: tau must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            Features(**{"K": 10, "m": 2, **wrong})


def test_the_design_is_large_fixed_and_spread_out():
    cells = make_cells()
    assert cells == make_cells()
    assert len(cells) * DRAWS >= 1_000
    assert len({cell.source.name for cell in cells}) >= 8
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(1 <= cell.m <= cell.K / 2 for cell in cells)
    assert min(cell.step for cell in cells) < 0.02
    assert max(cell.step for cell in cells) > 0.4
    for source in ("synthetic", "digits, shards"):
        own = [cell for cell in cells if cell.source.name == source]
        assert max(cell.K for cell in own) > 8 * min(cell.K for cell in own)


@pytest.mark.parametrize("name", ["synthetic", "digits, Dirichlet", "digits, sizes", "quadratic"])
def test_draws_of_a_cell_are_federations_of_their_own(name):
    (cell,) = make_cells([SOURCES[name]], 1)
    data, again = cell.federations(2), cell.federations(2)
    assert data.start.shape == (2, cell.K)
    np.testing.assert_array_equal(data.size, again.size)
    assert int(data.count.max()) <= HELD
    assert data.test_y.shape[0] == 0
    first, second = (data.rows(run) for run in (0, 1))
    assert not np.array_equal(first.x[first.order[:20]], second.x[second.order[:20]])


@pytest.fixture
def small(monkeypatch):
    """Two cells of a family that is played in no time."""
    source = Source("small", lambda K, rng: Quadratic(K, seed=int(rng.integers(99))), QuadraticModel(10.0), b=1)
    missing = Source("elsewhere", lambda K, rng: needs_a_package(), Logistic())
    monkeypatch.setattr(played.play_cell, "__defaults__", (2, 2))
    monkeypatch.setattr(played, "_losses", lambda cell, data, eta: made_up_losses())
    shape = {"K": 8, "m": 2, "tau": 2, "b": 1, "rounds": 20, "step": 0.05}
    return [Cell(source, 0, **shape), Cell(source, 1, **{**shape, "step": 0.1}), Cell(missing, 0, **shape)]


def made_up_losses():
    """Four runs: rand falls evenly, d = 2m twice as fast, d = 5m as rand, auto not at all."""
    at = np.arange(0.0, 21.0, 2.0)
    down = np.tile(1 - at / 20, (4, 1))
    losses = {"rand": down, "pow-d, d = 2m": np.maximum(2 * down - 1, 0), "pow-d, d = 5m": down, "auto": down * 0 + 1}
    return at, losses


def needs_a_package():
    raise ModuleNotFoundError("Elsewhere: needs the package elsewhere")


def test_cells_are_played_once_and_what_cannot_be_is_left_out(small, tmp_path):
    seen = []
    left_out = play_cells(small, tmp_path, watch=lambda name, done: seen.append((name, done)))
    assert left_out == ["elsewhere: Elsewhere: needs the package elsewhere"]
    assert seen == [("small 0", 1), ("small 1", 2), ("elsewhere 0", 3)]
    files = sorted(path.name for path in (tmp_path / "cells").iterdir())
    assert files == ["1-small-0.json", "1-small-1.json"]
    seen.clear()
    play_cells(small[:2], tmp_path, watch=lambda name, done: seen.append(name))
    assert seen == []
    path = tmp_path / "map.csv"
    path.write_text(gather(small, tmp_path))
    found = read_map(path)
    assert found.about["federations"] == 4
    assert set(found.families) == {"small"}
    assert found.speed.shape == found.final.shape == (found.about["learnt"], 3)
    stored = json.loads((tmp_path / "cells" / files[0]).read_text())["rows"][0]
    assert found.features[0].step == pytest.approx(stored["step"], rel=1e-2)
    assert found.speed[0] == pytest.approx(stored["gains"]["speed"], abs=1e-3)
    assert found.features[0].K == 8
    assert np.exp(found.speed[0][:2]) == pytest.approx([2, 1], rel=2e-3)
    assert found.speed[0][2] < 0


def test_a_table_of_something_else_and_an_empty_folder_are_one_sentence(small, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must be a table that fedpick map has written"):
        read_map(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="must hold cells on which rand learns, got 0 cells"):
        gather(small, tmp_path)
    with pytest.raises(ValueError, match="map: workers must be at least 1, got 0"):
        play_cells(small, tmp_path, workers=0)


def test_the_command_lists_families_and_names_unknown_ones(tmp_path):
    listed = CliRunner().invoke(app, ["map", "--list"])
    assert "nycflights: 10 to 200 clients" in listed.output
    wrong = CliRunner().invoke(app, ["map", "--families", "nowhere", "-o", str(tmp_path)])
    assert wrong.exit_code == 1
    assert "map: families must be among synthetic; " in wrong.output


@pytest.mark.slow
def test_strategies_that_are_alike_gain_nothing(monkeypatch):
    """With m = K / 2, d = 2m and d = 5m are both all clients."""
    source = Source("small", lambda K, rng: Quadratic(K, seed=int(rng.integers(99))), QuadraticModel(10.0), b=1)
    found = played.play_cell(Cell(source, 0, K=6, m=3, tau=2, b=1, rounds=20, step=0.05), draws=2, seeds=2)
    assert [row["K"] for row in found["rows"]] == [6, 6]
    for row in found["rows"]:
        assert row["gains"]["speed"][0] == row["gains"]["speed"][1]
        assert row["step"] == pytest.approx(0.05, rel=0.5)


def test_the_page_is_written_from_the_published_map(tmp_path):
    (tmp_path / "img").mkdir()
    done = CliRunner().invoke(app, ["map", "-q", "--docs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    published = Path(__file__).parents[2] / "docs" / "when-it-pays.md"
    assert (tmp_path / "when-it-pays.md").read_text() == published.read_text()


@pytest.mark.slow
def test_processes_play_the_cells_of_the_design(tmp_path):
    done = CliRunner().invoke(
        app, ["map", "-q", "--families", "quadratic", "--cells", "2", "--workers", "2", "-o", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert read_map(tmp_path / "map.csv").about["cells"] == 2
