"""Naturally federated data of the real packages, where these are installed."""

import io
from importlib import metadata

import numpy as np
import pytest
from support.packages import SOURCES

from fedpick.sim import shakespeare
from fedpick.sim.pickles import read_frame
from fedpick.sim.shakespeare import split_by_role

REAL = {  # clients, samples, test samples, least, median and largest number of training samples
    "shakespeare": (1105, 331_715, 77_330, 1, 94, 5106),
    "chem97": (2410, 25_771, 5_251, 1, 7, 151),
    "insteval": (1128, 59_169, 14_252, 8, 25, 634),
    "movielens": (671, 80_251, 19_753, 16, 57, 1913),
    "nycflights": (4037, 263_451, 63_895, 1, 43, 436),
    "watch": (10, 1_953, 416, 125, 202, 234),
}


def needs(installed):
    try:
        metadata.distribution(installed.package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{installed.package} is not installed: {installed.command}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_the_real_data_are_as_documented(kind):
    made, module, name = SOURCES[kind]
    needs(getattr(module, name))
    federation = made().federation()
    summary = federation.summary()
    sizes = summary.sizes
    found = (len(sizes), sizes.sum(), summary.test, sizes.min(), int(np.median(sizes)), sizes.max())
    assert found == REAL[kind]
    assert len(federation.names.clients) == len(set(federation.names.clients)) == len(sizes)
    assert (federation.x.shape[1], federation.classes) == made.extent[1:]
    assert len(federation.names.labels) == federation.classes
    with_test = sizes.sum() + summary.test
    assert abs(made.extent[0] - with_test) < 0.25 * with_test


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chem97", "insteval", "movielens"])
def test_frames_are_as_pandas_reads_them(kind):
    pandas = pytest.importorskip("pandas")
    _, module, name = SOURCES[kind]
    needs(getattr(module, name))
    (content,) = getattr(module, name).read("test")
    try:
        expected = pandas.read_pickle(io.BytesIO(content), compression="xz")
    except Exception as error:  # a pandas that does not read this file
        pytest.skip(f"pandas {pandas.__version__} does not read it: {error}")
    found = read_frame(content)
    assert list(found) == list(expected.columns)
    for column in expected:
        values = expected[column].to_numpy()
        kind = str if values.dtype == object else values.dtype  # as texts, where NaN is NaN
        np.testing.assert_array_equal(found[column].astype(kind), values.astype(kind))


@pytest.mark.slow
def test_the_real_roles_are_those_of_the_play():
    needs(shakespeare.TEXTS)
    texts = dict(zip(shakespeare.PLAYS, shakespeare.TEXTS.read("test"), strict=True))
    macbeth = split_by_role(texts["macbeth"].decode("latin-1"))
    assert {"MACBETH", "LADY MACBETH", "BANQUO", "FIRST WITCH", "PORTER"} <= set(macbeth)
    assert "Is this a dagger which I see before me," in macbeth["MACBETH"]
    assert max(macbeth, key=lambda role: len(macbeth[role])) == "MACBETH"
