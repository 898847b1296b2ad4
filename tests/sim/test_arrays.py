"""Your own data: an .npz file of any names."""

import numpy as np
import pytest

from fedpick.sim import Arrays, Dirichlet


def test_own_data_of_any_client_names(tmp_path):
    rng = np.random.default_rng(0)
    client = np.array(["b", "a", "c"])[rng.integers(0, 3, 90)]
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(90, 2)), y=rng.integers(0, 2, 90), client=client)
    federation = Arrays(str(tmp_path / "mine.npz"), test_share=0.2).federation()
    assert federation.num_clients == 3
    number = np.array([(client == name).sum() for name in "abc"])
    np.testing.assert_array_equal(federation.count, number - number // 5)
    assert len(federation.test_y) == (number // 5).sum()
    again = Arrays(str(tmp_path / "mine.npz"), test_share=0.2, seed=1).federation()
    assert not np.array_equal(again.test_x, federation.test_x)


OWN = {
    "no file": ({}, None, "path must be an .npz file"),
    "no label": ({"x": np.ones((3, 2))}, None, "must hold y, got x"),
    "nothing": ({}, None, "must hold x, got nothing"),
    "empty": ({"x": np.ones((0, 2)), "y": np.ones(0, int)}, None, "same number of rows, above 0, got 0 and 0"),
    "uneven": ({"x": np.ones((3, 2)), "y": np.ones(2, int)}, None, "same number of rows, above 0, got 3 and 2"),
    "no clients": ({"x": np.ones((3, 2)), "y": np.ones(3, int)}, None, "has no client, so name the column of clients"),
    "both": (
        {"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(3)},
        Dirichlet(K=2, alpha=1.0),
        "has clients, so partition must be left out",
    ),
    "few clients": ({"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(2)}, None, "one entry per sample"),
    "test without labels": (
        {"x": np.ones((3, 2)), "y": np.ones(3, int), "client": np.arange(3), "test_x": np.ones((3, 2))},
        None,
        "must hold test_y",
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_own_data_that_are_wrong(case, tmp_path):
    arrays, partition, sentence = OWN[case]
    if case != "no file":
        np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        Arrays(str(tmp_path / "mine.npz"), partition).federation()


def test_own_data_that_are_no_arrays(tmp_path):
    (tmp_path / "mine.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"must be an .npz of plain arrays"):
        Arrays(str(tmp_path / "mine.npz")).federation()


def test_labels_may_have_any_names_but_no_fractions(tmp_path):
    path = tmp_path / "named.npz"
    clients = np.arange(12) % 3
    words, test = np.array(["cat", "dog", "ant"])[clients], {"test_x": np.ones((1, 2)), "test_y": np.array(["dog"])}
    np.savez(path, x=np.ones((12, 2)), y=words, client=clients, **test)
    federation = Arrays(str(path)).federation()
    assert federation.classes == 3
    assert federation.test_y.tolist() == [2]
    np.savez(path, x=np.ones((12, 2)), y=np.where(clients == 0, 7, 10**6), client=clients)
    assert Arrays(str(path), test_share=0).federation().classes == 2
    np.savez(path, x=np.ones((12, 2)), y=clients + 0.5, client=clients)
    with pytest.raises(
        ValueError,
        match=r"y must be whole numbers or words \(targets of a regression go into x, .*\), got 0\.5 in row 0",
    ):
        Arrays(str(path)).federation()
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"must be an \.npz of plain arrays, got .* \(it is no archive"):
        Arrays(str(path)).federation()


def three_sets():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    return {"x": x[:30], "y": y[:30], "client": np.arange(30) % 3}, {"x": x[30:], "y": y[30:]}


SPELLINGS = {
    "test_x": ({}, {"x": "test_x", "y": "test_y"}),
    "x_test": ({}, {"x": "x_test", "y": "y_test"}),
    "as scikit-learn": ({"x": "X_train", "y": "y_train"}, {"x": "X_test", "y": "y_test"}),
    "X": ({"x": "X", "client": "client_train"}, {"x": "X_test", "y": "y_test"}),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_test_set_is_known_by_its_usual_names(case, tmp_path, caplog, recwarn):
    train, test = three_sets()
    names, test_names = SPELLINGS[case]
    arrays = {names.get(name, name): values for name, values in train.items()}
    arrays |= {test_names[name]: values for name, values in test.items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    with caplog.at_level("INFO", logger="fedpick"):
        federation = Arrays(str(tmp_path / "mine.npz")).federation()
    assert federation.count.tolist() == [10, 10, 10]  # nothing is held out
    np.testing.assert_array_equal(federation.test_y, test["y"])
    np.testing.assert_allclose(federation.test_x, test["x"], rtol=1e-6)
    assert ("test set = " in caplog.text) == (case != "test_x")
    assert not recwarn


def test_arrays_that_are_not_used_are_named(tmp_path):
    train, test = three_sets()
    more = {"weight": np.ones(30), "x_val": np.ones((5, 2)), "test_client": np.arange(10)}
    np.savez(tmp_path / "mine.npz", **train, x_test=test["x"], test_y=test["y"], **more)
    with pytest.warns(UserWarning, match=r"^mine.npz: arrays that are not used: weight, x_val, test_client$"):
        federation = Arrays(str(tmp_path / "mine.npz")).federation()
    assert federation.test_y.shape == (10,)


def test_two_test_sets_are_refused_and_half_of_one_too(tmp_path):
    train, test = three_sets()
    np.savez(tmp_path / "two.npz", **train, x_test=test["x"], test_x=test["x"], test_y=test["y"])
    with pytest.raises(ValueError, match="must hold one test set, got both test_x and x_test"):
        Arrays(str(tmp_path / "two.npz")).federation()
    np.savez(tmp_path / "half.npz", **train, x_test=test["x"])
    with pytest.raises(ValueError, match="must hold test_y, got x_test"):
        Arrays(str(tmp_path / "half.npz")).federation()


def test_a_column_that_ends_like_a_test_set_and_has_no_other_is_a_column(tmp_path):
    np.savez(
        tmp_path / "mine.npz", a=np.ones(6), lab_test=np.arange(6.0), label=np.arange(6) % 2, user=np.arange(6) % 3
    )
    federation = Arrays(str(tmp_path / "mine.npz"), test_share=0.0).federation()
    assert federation.x.shape == (6, 2)
