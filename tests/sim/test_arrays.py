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
    "no clients": ({"x": np.ones((3, 2)), "y": np.ones(3, int)}, None, "has no client, so give a partition"),
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
    with pytest.raises(ValueError, match=r"y must be whole numbers or words, got 0\.5 in row 0"):
        Arrays(str(path)).federation()
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"must be an \.npz of plain arrays, got .* \(it is no archive"):
        Arrays(str(path)).federation()
