"""Data of one's own, from files and from what other libraries hold: columns, names, guesses and mistakes."""

import importlib.machinery
import io
import json
import logging
import sys
import tracemalloc
import types
import zipfile
from decimal import Decimal

import numpy as np
import pandas
import polars
import pytest

from fedpick import Rand
from fedpick.cli._common import say_order
from fedpick.experiment import Experiment, load_results, run
from fedpick.sim import (
    Arrays,
    Devices,
    Dirichlet,
    Failures,
    Federation,
    Local,
    Logistic,
    check_test_set,
    files,
    from_datasets,
    from_frame,
    from_partitioner,
    is_table,
)
from fedpick.storage import RunStore

rng = np.random.default_rng(0)
ROWS = 60
TABLE = {
    "station": np.array(["north", "south", "east"])[np.arange(ROWS) % 3],
    "rain": rng.normal(size=ROWS).round(6),
    "wind": rng.normal(size=ROWS).round(6),
    "remark": np.array(["fine"] * ROWS),
    "cover": np.array(["Spruce/Fir", "Aspen"])[np.arange(ROWS) // 3 % 2],
}


def frame():
    return polars.DataFrame(TABLE)


@pytest.fixture
def csv(tmp_path):
    frame().write_csv(tmp_path / "forest.csv")
    return tmp_path / "forest.csv"


def same(one, other):
    np.testing.assert_array_equal(one.x, other.x)
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.test_y, other.test_y)
    assert one.names == other.names


def test_a_csv_keeps_the_names_of_its_clients_and_labels(csv, caplog):
    with caplog.at_level(logging.INFO, "fedpick"):
        federation = Arrays(str(csv), client="station").federation()
    assert federation.names.clients == ("east", "north", "south")
    assert federation.names.labels == ("Aspen", "Spruce/Fir")
    assert caplog.messages == [f"{str(csv)!r}: x = rain, wind (without remark); y = cover"]
    assert caplog.records[0].levelname == "WARNING"  # which Python shows without being asked
    summary = federation.summary()
    assert (summary.client_name(1), summary.class_name(0)) == ("north", "Aspen")
    assert "mean 2.0: Aspen, Spruce/Fir" in str(summary)
    first = int(federation.start[1])
    north = np.flatnonzero(TABLE["station"] == "north")
    assert float(federation.x[first, 0]) in TABLE["rain"][north].astype(np.float32)


def test_every_format_gives_the_same_federation(csv, tmp_path, monkeypatch):
    expected = Arrays(str(csv), client="station").federation()
    frame().write_parquet(tmp_path / "forest.parquet")
    frame().write_ipc(tmp_path / "forest.arrow")
    frame().write_ipc_stream(tmp_path / "forest.feather")
    frame().write_csv(tmp_path / "forest.tsv", separator="\t")
    (tmp_path / "half.csv").write_text("\ufeff" + csv.read_text().replace(",", ";"), encoding="utf-8")
    for name in ("forest.parquet", "forest.arrow", "forest.feather", "forest.tsv", "half.csv"):
        assert is_table(str(tmp_path / name))
        same(Arrays(str(tmp_path / name), client="station").federation(), expected)
    same(from_frame(frame(), client="station"), expected)
    same(from_frame(pandas.DataFrame(TABLE), client="station"), expected)
    objects = pandas.DataFrame({name: column.astype(object) for name, column in TABLE.items()})
    same(from_frame(objects, client="station"), expected)
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)  # without polars
    same(Arrays(str(csv), client="station").federation(), expected)
    with pytest.raises(ModuleNotFoundError, match=r"need polars; install it with pip install 'fedpick\[frames\]'"):
        Arrays(str(tmp_path / "forest.parquet"), client="station").federation()


@pytest.mark.parametrize("name", ["FOREST.CSV", "forest.Parquet", "FOREST.TSV"])
def test_a_file_may_be_called_in_capitals(name, csv, tmp_path):
    table, path = frame(), tmp_path / name
    table.write_parquet(path) if "P" in name else table.write_csv(path, separator="\t" if "T" in name[-3:] else ",")
    assert is_table(str(path))
    same(Arrays(str(path), client="station").federation(), Arrays(str(csv), client="station").federation())


def test_columns_are_named_or_matched(csv):
    one = Arrays(str(csv), client="station", y="cover", x=("wind",)).federation()
    np.testing.assert_array_equal(one.x[:, 0], Arrays(str(csv), client="station").federation().x[:, 1])
    assert Arrays(str(csv), client="station", x=("[rw]*n*",), y="cover").federation().x.shape[1] == 2


def test_a_pattern_of_inputs_does_not_take_the_labels_and_the_clients(tmp_path, caplog):
    rows = [f"{n % 3},{n / 7:.3f},{n / 5:.3f},{n % 2}" for n in range(30)]
    path = tmp_path / "c.csv"
    path.write_text("\n".join(["client,c1,c2,class", *rows]) + "\n\n\n")  # with empty lines at the end
    for pattern in ("c*", "*"):
        with caplog.at_level(logging.INFO, "fedpick"):
            federation = Arrays(str(path), x=(pattern,), test_share=0.0).federation()
        assert federation.x.shape == (30, 2)
        assert "x = c1, c2" in caplog.messages[-1]
    assert from_frame(polars.read_csv(path)[:30], x="c*").x.shape[1] == 2
    with pytest.raises(ValueError, match=r"from_frame: test_share must be at least 0 and below 1, got 1\.0"):
        from_frame(polars.read_csv(path)[:30], test_share=1.0)


def test_the_row_numbers_that_pandas_writes_are_no_input(csv, tmp_path, caplog):
    pandas.DataFrame(TABLE).to_csv(tmp_path / "index.csv")
    with caplog.at_level(logging.INFO, "fedpick"):
        same(
            Arrays(str(tmp_path / "index.csv"), client="station").federation(),
            Arrays(str(csv), client="station").federation(),
        )
    assert "x = rain, wind (without a column without a name, remark)" in caplog.text


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 3", "__index_level_0__", "Id", "patient_id", "rownames"])
def test_the_index_of_a_filtered_frame_is_no_input(name, tmp_path, caplog):
    table = {name: [3, 7, 4, 9], "rain": [0.5, 1, 2, 3], "site": ["p", "p", "q", "q"], "label": [0, 0, 1, 1]}
    polars.DataFrame(table).write_csv(tmp_path / "filtered.csv")
    polars.DataFrame(table).write_parquet(tmp_path / "filtered.parquet")
    for path in (str(tmp_path / "filtered.csv"), str(tmp_path / "filtered.parquet")):
        caplog.clear()
        assert Arrays(path, test_share=0.0).federation().x.tolist() == [[0.5], [1], [2], [3]]
        said = name or "a column without a name"
        assert f"x = rain (without {said})" in caplog.text
        assert f"{said} is left out because it numbers the rows" in caplog.text
        assert Arrays(path, x=(name, "rain"), test_share=0.0).federation().x.shape == (4, 2)
    last = {"rain": table["rain"], "site": table["site"], "kind": table["label"], name: table[name]}
    polars.DataFrame(last).write_parquet(tmp_path / "last.parquet")  # where pandas has it
    assert Arrays(str(tmp_path / "last.parquet"), test_share=0.0).federation().summary().labels.shape == (2, 2)
    polars.DataFrame({**table, name: [3, 3, 4, 9]}).write_csv(tmp_path / "filtered.csv")  # which numbers nothing
    assert Arrays(str(tmp_path / "filtered.csv"), test_share=0.0).federation().x.shape == (4, 2)


@pytest.mark.parametrize(("first", "rows", "kept"), [(0, 100, 1), (1, 100, 1), (2, 100, 2), (1, 99, 2)])
def test_a_count_of_many_rows_is_no_input_whatever_it_is_called(first, rows, kept, caplog):
    table = {"nr": first + np.arange(rows), "rain": rng.normal(size=rows), "site": np.arange(rows) % 4}
    table["label"] = np.arange(rows) * 2 // rows  # in order, so that a count of the rows would tell it
    given = {"standardize": True}
    assert from_frame(pandas.DataFrame(table), **given).x.shape[1] == kept
    assert ("nr is left out because it numbers the rows" in caplog.text) == (kept == 1)
    assert from_frame(pandas.DataFrame(table), x=("nr", "rain"), **given).x.shape[1] == 2
    reversed_rows = pandas.DataFrame({**table, "nr": table["nr"][::-1]})  # which may count something else
    assert from_frame(reversed_rows, **given).x.shape[1] == 2


def test_numbers_that_are_hardly_classes_are_told(recwarn):
    table = {"a": rng.normal(size=40), "price": 1000 + np.arange(40) * 7, "client": np.arange(40) % 4}
    from_frame(pandas.DataFrame(table), y="price")
    told = [str(each.message) for each in recwarn if "unseen" not in str(each.message)]
    assert "own data: price has 40 labels in 36 samples; each is a class of its own, also where it is a number" in told
    assert not [each for each in told if "in another code" in each]


def test_what_is_left_out_of_a_csv_is_told_with_its_reason(tmp_path, caplog):
    rows = [f"{n % 3},{['True', 'False', ''][n % 3]},{['train', 'test'][n % 2]},{n / 7},{n % 2}\n" for n in range(40)]
    (tmp_path / "t.csv").write_text("Client ID,flag,split,a,label\n" + "".join(rows))
    federation = Arrays(str(tmp_path / "t.csv")).federation()
    assert (federation.num_clients, federation.x.shape[1]) == (3, 1)
    assert (
        "client = Client ID; flag is left out because of a missing value in line 4; split is not used," in caplog.text
    )
    assert from_frame(pandas.DataFrame({"deviceId": [1, 2], "a": [0.1, 0.2], "y": [0, 1]})).num_clients == 2


def test_clients_that_the_test_set_leaves_out_are_told():
    x, sizes = rng.normal(size=(580, 2)), [100] * 4 + [9] * 20
    with pytest.warns(
        UserWarning, match=r"20 of 24 clients, with 31% of the samples, .*: test_share=0.1 takes one of 10"
    ):
        found = Federation.from_arrays(x, np.arange(580) % 2, np.repeat(np.arange(24), sizes), test_share=0.1)
    assert len(found.test_y) == 40
    with pytest.raises(ValueError, match=r"needs a test set; few has none \(give one, or a larger test_share"):
        check_test_set("compare", "test_accuracy", Federation.from_arrays(x[:9], [0] * 9, [0] * 9, name="few"))


def test_labels_of_several_columns_are_told_how_to_be_one():
    x, client = np.ones((6, 2)), np.arange(6) % 2
    for y, cure in ((np.ones((6, 1), int), r"y\.ravel\(\)"), (np.eye(6, 3, dtype=int), r"y\.argmax\(axis=1\)")):
        with pytest.raises(ValueError, match=cure):
            Federation.from_arrays(x, y, client)
        with pytest.raises(ValueError, match=cure):
            from_datasets([[(x[0], y[0]), (x[0], y[1])]])


def test_images_that_are_files_in_a_column(tmp_path, monkeypatch):
    """As Hugging Face's parquet files have them."""
    image = types.ModuleType("PIL.Image")
    image.open = lambda content: np.frombuffer(content.read(), np.uint8).reshape(2, 2)
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, image)
    image.__spec__ = importlib.machinery.ModuleSpec("PIL", None)
    images = [{"bytes": bytes([n, 1, 2, 3]), "path": None} for n in range(6)]
    polars.DataFrame({"image": images, "label": [0, 1] * 3, "user": ["a", "b"] * 3}).write_parquet(
        tmp_path / "i.parquet"
    )
    federation = Arrays(str(tmp_path / "i.parquet"), test_share=0.0).federation()
    assert (federation.x.dtype, federation.x[:, 0, 0].tolist()) == (np.uint8, [0, 2, 4, 1, 3, 5])


def test_a_partition_makes_clients_where_no_column_does(csv):
    federation = Arrays(str(csv), Dirichlet(K=4, alpha=5.0, least=1), y="cover", x=("rain",)).federation()
    assert federation.num_clients == 4
    assert federation.names.clients == ()


@pytest.mark.parametrize(
    ("dealt", "sentence"),
    [
        (lambda labels: labels[1:] * 0, "client must have one entry per sample"),
        (
            lambda labels: np.arange(len(labels)) % 2 - 1,
            "client must be at least 0 and below num_clients=1, got -1 in ",
        ),
        (lambda labels: np.arange(len(labels)) / 2, "client must be whole numbers or words, got 0.5 in line 3"),
        (lambda labels: 0, "client must have a row per sample, got 0"),
    ],
)
def test_what_a_partition_of_ones_own_gives_is_checked(csv, dealt, sentence):
    with pytest.raises(ValueError, match=f"^Arrays: '.*': .*{sentence}"):
        Arrays(str(csv), dealt, y="cover", x=("rain",)).federation()


def test_a_partition_of_ones_own_may_give_a_list(csv):
    def deal(labels):
        return [float(row % 2) for row in range(len(labels))]

    assert Arrays(str(csv), deal, y="cover", x=("rain",)).federation().num_clients == 2


WRONG = {
    "no such client": (
        {"client": "statoin"},
        "must hold statoin, got station, rain, wind, remark, cover; did you mean",
    ),
    "no client": (
        {},
        "has no client, so name the column of clients \\(client=; .* --client NAME\\), or give a partition",
    ),
    "no such input": (
        {"client": "station", "x": ("rian",)},
        "must hold rian, got station, rain, .*did you mean 'rain'",
    ),
    "labels as inputs": (
        {"client": "station", "y": "cover", "x": ("rain", "cover")},
        "x must be other columns than the labels' and the clients', got 'cover'",
    ),
    "clients as labels": (
        {"client": "station", "y": "station"},
        "y and client must be different columns, got 'station' for both",
    ),
    "words as inputs": ({"client": "station", "x": ("remark",)}, r"remark must be numbers, got 'fine'"),
    "numbers as labels": (
        {"client": "station", "y": "rain"},
        r"rain must be whole numbers or words \(targets of a regression go into x, .*\), got .* in line 2",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_columns_gets_one_sentence(case, csv):
    options, sentence = WRONG[case]
    with pytest.raises(ValueError, match=sentence):
        Arrays(str(csv), **options).federation()


def test_rows_of_errors_are_those_of_the_file(csv, tmp_path):
    lines = csv.read_text().splitlines()
    lines[32] = "north,,1.0,fine,Aspen"
    csv.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="x must be finite in float32, got NaN or infinity in line 33"):
        Arrays(str(csv), client="station").federation()
    lines[32], lines[40] = "north,1.0,1.0,fine,Aspen", ",1.0,1.0,fine,Aspen"
    csv.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="station must be known for every sample, got none in line 41"):
        Arrays(str(csv), client="station").federation()
    x = np.ones((40, 2))
    x[32, 1] = np.nan
    np.savez(tmp_path / "nan.npz", x=x, y=np.arange(40) % 2, client=np.arange(40) % 4)
    with pytest.raises(ValueError, match="got NaN or infinity in row 32"):
        Arrays(str(tmp_path / "nan.npz")).federation()
    np.savez(tmp_path / "nan.npz", x=x[:4], y=np.arange(4) % 2, client=[0.0, np.nan, 1.0, 1.0])
    with pytest.raises(ValueError, match="client must be known for every sample, got none in row 1"):
        Arrays(str(tmp_path / "nan.npz")).federation()


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_brackets_in_the_name_of_a_file_are_no_pattern(kind, tmp_path):
    polars = pytest.importorskip("polars")
    for name, rain in (("a1", 9.0), ("a[1]", 1.0)):
        table = polars.DataFrame({"rain": [rain] * 3, "label": ["dry", "wet", "wet"], "site": ["a", "a", "b"]})
        getattr(table, f"write_{'ipc' if kind == 'arrow' else kind}")(tmp_path / f"{name}.{kind}")
    found = Arrays(str(tmp_path / f"a[1].{kind}"), x=("rain",), test_share=0.0).federation()
    assert np.unique(found.x).tolist() == [1.0]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "arrow", "feather", "json", "npz"])
def test_a_file_that_is_not_what_it_is_called_is_told(kind, tmp_path):
    file = tmp_path / f"junk.{kind}"
    file.write_text("junk\n")
    with pytest.raises(ValueError, match=r"Arrays: .*junk.*must|Arrays: path must be .*junk"):
        Arrays(str(file)).federation()


@pytest.mark.parametrize("polars", [True, False])
def test_numbers_as_people_write_them(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    comma, missing = tmp_path / "comma.csv", tmp_path / "missing.csv"
    comma.write_text("a;b;label;client\n1,5;2;x;p\n2,5;-3,25;y;q\n")
    assert Arrays(str(comma), test_share=0.0).federation().x.tolist() == [[1.5, 2.0], [2.5, -3.25]]
    missing.write_text("a,b,label,client\n1,2,x,p\n2,nan,y,q\n")
    with pytest.raises(ValueError, match="x must be finite in float32, got NaN or infinity in line 3"):
        Arrays(str(missing)).federation()
    missing.write_text("a,label,client\n1 m,x,p\n2 m,y,q\n")
    with pytest.raises(ValueError, match=r"must hold x, got a, label, client, and no numbers \(a has '1 m'\)"):
        Arrays(str(missing)).federation()


IDS = 1_600_000_000_000_000_000 + 37 * np.arange(6)  # which differ beyond what a float holds


def test_a_csv_file_is_the_same_with_and_without_polars(tmp_path, monkeypatch):
    flags = ["True", "false", "TRUE"] * 4
    cells = zip(flags, ["0.5", "1e3", "", "-2"] * 3, np.repeat(IDS, 2), ["a", "b"] * 6, range(12), strict=True)
    lines = ["flag,number,user_id,label,long", *(f"{a},{b},{c},{d},{10**19 + e}" for a, b, c, d, e in cells), "", ""]
    path = tmp_path / "ids.csv"
    path.write_text("\n".join(lines))
    read = {}
    for spec in (files.importlib.util.find_spec, lambda name: None):
        monkeypatch.setattr(files.importlib.util, "find_spec", spec)
        columns = read[spec] = files.read_table(str(path)).columns
        assert [columns[name].dtype.kind for name in columns] == ["b", "f", "i", "U", "U"]
        assert columns["user_id"].tolist() == np.repeat(IDS, 2).tolist()
        assert columns["flag"].tolist() == [True, False, True] * 4
        path.with_name("twice.csv").write_text("f1,f1,label,client\n1,2,0,0\n")
        with pytest.raises(ValueError, match=r"must have a name for each column, got 'f1' twice"):
            files.read_table(str(path.with_name("twice.csv")))
        (tmp_path / "gap.csv").write_text("a,label,client\n1,0,0\n\n2,1,1\n")
        with pytest.raises(ValueError, match="line 3"):
            Arrays(str(tmp_path / "gap.csv")).federation()
    one, other = read.values()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_long_ids_stay_apart():
    x, y, ids = np.ones((12, 2)), [0, 1] * 6, np.repeat(IDS, 2)
    for client in (ids, ids.tolist(), ids.astype(object)):
        assert Federation.from_arrays(x, y, client).names.clients == tuple(map(str, IDS))
    with pytest.raises(ValueError, match=r"client must be integers or words where they are this large, got 1.6e"):
        Federation.from_arrays(x, y, ids.astype(float))


@pytest.mark.parametrize("polars", [True, False])
def test_zeros_in_front_belong_to_a_name(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "ids.csv"
    path.write_text("month,label,client\n01,02,007\n02,10,7\n12,02,007\n10,10,012\n")
    federation = Arrays(str(path), test_share=0.0).federation()
    assert (federation.names.clients, federation.names.labels) == (("007", "012", "7"), ("02", "10"))
    assert federation.count.tolist() == [2, 1, 1]
    assert sorted(federation.x.ravel().tolist()) == [1, 2, 10, 12]  # of inputs they mean nothing
    path.write_text("a,label,client\n1,0,0\n2,1,10\n")
    assert Arrays(str(path), test_share=0.0).federation().names.clients == ("0", "10")


def test_commas_that_may_part_thousands_are_no_decimal_commas(tmp_path, caplog):
    path = tmp_path / "prices.csv"
    head = "price;b;label;client\n"
    for price, b in ((("750", "2,229"), ("1", "2")), (("1,5", "2,5"), ("0.5", "2"))):
        path.write_text(head + f"{price[0]};{b[0]};x;p\n{price[1]};{b[1]};y;q\n")
        assert Arrays(str(path), test_share=0.0).federation().x.shape == (2, 1)
        assert "price is left out because of" in caplog.text
        caplog.clear()
    path.write_text(head + "0,750;1;x;p\n2,229;2;y;q\n")
    assert Arrays(str(path), test_share=0.0).federation().x[:, 0].tolist() == pytest.approx([0.75, 2.229])


@pytest.mark.parametrize("kind", [".csv", ".json"])
def test_a_text_that_is_not_in_utf_8_is_told(kind, tmp_path):
    path = tmp_path / f"latin{kind}"
    path.write_bytes(b'{"users": [], "user_data": {}}\n' * (kind == ".json") + "Höhe,label,client\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"latin.* must be text in UTF-8, got the byte b'\\xf6'; save it again in UTF-8"
    ):
        files.read_table(str(path))


@pytest.mark.parametrize("called", ["site", "Site_ID", "node_id", "device", "user_id", "client_id"])
def test_the_column_of_clients_is_guessed_by_its_name(called):
    table = polars.DataFrame({"rain": [0.1, 0.2, 0.3], "label": ["dry", "wet", "wet"], called: ["a", "a", "b"]})
    assert from_frame(table).names.clients == ("a", "b")


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize("column", ["label", "site"])
def test_a_missing_word_of_a_frame_is_no_label_and_no_client(library, missing, column):
    columns = {"rain": [0.1, 0.2, 0.3], "label": ["dry", "wet", "wet"], "site": ["a", "a", "b"]}
    columns[column][1] = None if library == "polars" else missing
    frame = pytest.importorskip(library).DataFrame(columns)
    with pytest.raises(ValueError, match=f"{column} must be known for every sample, got none in row 1"):
        from_frame(frame)


def test_a_csv_that_is_no_table_is_told(tmp_path, monkeypatch):
    path = tmp_path / "bad.csv"
    path.write_text("a,b,label\n1,2,3\n1,2\n1,2,3,4\n")
    for spec in (files.importlib.util.find_spec, lambda name: None):
        monkeypatch.setattr(files.importlib.util, "find_spec", spec)
        with pytest.raises(ValueError, match=r"bad\.csv' must"):
            Arrays(str(path), Dirichlet(K=2, alpha=1.0)).federation()


def test_objects_in_an_npz_are_named_with_the_cure(tmp_path):
    path = str(tmp_path / "objects.npz")
    words = np.array(["a", "b"] * 5, object)
    np.savez(path, x=np.ones((10, 2)), y=words, client=np.arange(10) % 2)
    with pytest.raises(
        ValueError, match=r"y in '.*' must be a plain array, got objects: save texts as np\.asarray\(y, dtype=str\)"
    ):
        Arrays(path).federation()
    np.savez(path, x=np.array({"sparse": 1}, object), y=words.astype(str), client=np.arange(10) % 2)
    with pytest.raises(ValueError, match=r"x in .* got objects: save a sparse matrix as x\.toarray\(\)"):
        Arrays(path).federation()


def test_labels_that_training_never_saw_are_told(tmp_path):
    path = str(tmp_path / "unseen.npz")
    test = {"test_x": np.ones((4, 2)), "test_y": np.array([0, 7, 8, 9])}
    np.savez(path, x=np.ones((12, 2)), y=np.arange(12) % 3, client=np.arange(12) % 4, **test)
    with pytest.warns(UserWarning, match=r"the training data do not have: 7, 8, 9 \(75% of the test samples\)"):
        Arrays(path).federation()


def test_a_line_with_too_many_cells_is_named(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("a,label,client\n1,0,x\n2,1,y\n3,0,x,9\n")
    with pytest.raises(ValueError, match=r"must have 3 cells in every line, got 4 in line 4"):
        Arrays(str(path)).federation()


STRAY = (
    "lacks.csv' must close every quotation mark, got one in line %s",
    "in a cell that begins in line %s; it may lack",
)


@pytest.mark.parametrize(
    ("rows", "rule", "line"),
    [
        ({99: '0.1,0.2,1,"5'}, STRAY[0], "101 that never closes"),
        ({299: '0.1,0.2,1,"5'}, STRAY[0], "301 that never closes"),
        ({9: '0.1,0.2,1,"5', 10: '0.1,0.2,1,"5'}, STRAY[0], "11 that closes inside a cell of line 12"),
        ({9: '0.1,0.2,1,"5', 19: '0.1,0.2,1,5"'}, f"client must .* {STRAY[1]}", "11"),
        ({9: '0.1,0.2,"1,5', 10: '0.1,0.2,1",5'}, f"y must .* {STRAY[1]}", "11"),
    ],
)
@pytest.mark.parametrize("polars", [True, False])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_quotation_mark_that_swallows_lines_is_named(rows, rule, line, polars, mark, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    lines = ["a,b,y,client", *(rows.get(i, f"{i / 300:.3f},{-i / 300:.3f},{i % 2},{i % 6}") for i in range(300))]
    path = tmp_path / "lacks.csv"
    path.write_text("\n".join(lines).replace(",", mark) + "\n")
    with pytest.raises(ValueError, match=rule % line):
        Arrays(str(path)).federation()


@pytest.mark.parametrize("polars", [True, False])
def test_line_breaks_in_notes_that_are_no_input_are_kept(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "notes.csv"
    rows = [f'{i / 40:.3f},"said ""yes, {i}""\r\nand 5"" more" ,"{i % 2}","site {i % 4}"' for i in range(40)]
    path.write_text("\r\n".join(["a,note,y,client", *rows]), newline="")
    found = Arrays(str(path), test_share=0.0).federation()
    assert found.x.shape == (40, 1)
    assert found.names.clients == tuple(f"site {k}" for k in range(4))


def test_inputs_that_need_it_are_standardised_on_request(csv):
    table = {**TABLE, "rain": 2500 + 300 * TABLE["rain"]}
    with pytest.warns(UserWarning, match=r"inputs are of the size of 2,\d\d\d \(rain\); .* --standardize"):
        from_frame(polars.DataFrame(table), client="station")
    federation = from_frame(polars.DataFrame(table), client="station", standardize=True)
    np.testing.assert_allclose(np.mean(federation.x, axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.std(federation.x, axis=0), 1, rtol=1e-5)
    raw = table["rain"]
    lowest, highest = ((raw - raw.mean()) / raw.std()).min() - 1, ((raw - raw.mean()) / raw.std()).max() + 1
    assert np.all((federation.test_x[:, 0] > lowest) & (federation.test_x[:, 0] < highest))


def test_a_constant_input_is_not_scaled_by_its_rounding_error():
    table = pandas.DataFrame(
        {"same": 0.1, "rain": TABLE["rain"], "label": np.arange(ROWS) % 2, "site": TABLE["station"]}
    )
    federation = from_frame(table, standardize=True, test=table[:3].assign(same=[0.1, 0.2, 0.3]))
    np.testing.assert_allclose(federation.x[:, 0], 0, atol=1e-6)
    np.testing.assert_allclose(federation.test_x[:, 0], [0, 0.1, 0.2], atol=1e-6)


@pytest.mark.parametrize("form", ["csv", "npz", "frame"])
def test_inputs_are_standardised_before_they_are_rounded(form, tmp_path):
    """Seconds since 1970 are one number in float32."""
    seconds, client = 1_700_000_000 + np.arange(20), np.arange(20) % 2
    table = {"time": seconds, "wet": np.arange(20) // 2 % 2, "label": np.arange(20) % 2, "client": client}
    path = str(tmp_path / f"a.{form}")
    if form == "npz":
        x = np.stack([table["time"], table["wet"]], axis=1)
        np.savez(path, x=x, y=table["label"], client=client, test_x=x[:5], test_y=table["label"][:5])
    elif form == "csv":
        pandas.DataFrame(table).to_csv(path, index=False)
    given = {"standardize": True}
    federation = from_frame(pandas.DataFrame(table), **given) if form == "frame" else Arrays(path, **given).federation()
    found = np.asarray(federation.x)[:, 0]
    np.testing.assert_allclose((found.mean(), found.std()), (0, 1), atol=1e-6)
    assert len(np.unique(found)) == len(found)
    both = np.concatenate([found, np.asarray(federation.test_x)[:, 0]])
    steps = np.diff(np.unique(both))
    np.testing.assert_allclose(steps[steps > 1e-4], steps.max(), rtol=1e-4)


def test_leaf_json_and_its_folders(tmp_path):
    def write(path, users):
        path.parent.mkdir(exist_ok=True, parents=True)
        data = {user: {"x": [[0.1, float(n)] for n in range(3)], "y": [0, 1, 1]} for user in users}
        path.write_text(json.dumps({"users": users, "num_samples": [3] * len(users), "user_data": data}))

    write(tmp_path / "leaf" / "train" / "a.json", ["u2", "u1"])
    write(tmp_path / "leaf" / "train" / "b.json", ["u3"])
    write(tmp_path / "leaf" / "test" / "a.json", ["u1"])
    assert is_table(str(tmp_path / "leaf"))
    federation = Arrays(str(tmp_path / "leaf")).federation()
    assert federation.names.clients == ("u1", "u2", "u3")
    assert (federation.num_samples, len(federation.test_y)) == (9, 3)
    one = tmp_path / "leaf" / "train" / "a.json"
    assert is_table(str(one))
    assert Arrays(str(one)).federation().num_clients == 2
    left_out = tmp_path / "left_out.json"
    left_out.write_text(json.dumps({**json.loads(one.read_text()), "users": ["u1", "u2", "u9"]}))
    with pytest.raises(ValueError, match=r"user 'u9' in '.*left_out.json' must have user_data, and has none"):
        Arrays(str(left_out)).federation()
    before = Arrays(str(tmp_path / "leaf")).sha256
    write(tmp_path / "leaf" / "train" / "b.json", ["u4"])
    assert Arrays(str(tmp_path / "leaf")).sha256 != before


def test_an_experiment_in_json_is_no_table(tmp_path):
    (tmp_path / "e.json").write_text('{"rounds": 5}')
    assert not is_table(str(tmp_path / "e.json"))
    assert not is_table(str(tmp_path))


def test_what_hugging_face_saves_to_disk(tmp_path):
    """The layout of ``Dataset.save_to_disk``: streams of Arrow, with the names of labels beside them."""
    for split in ("train", "test"):
        folder = tmp_path / "hf" / split
        folder.mkdir(parents=True)
        images = rng.integers(0, 255, (8, 2, 2)).astype(np.uint8)
        table = polars.DataFrame({"image": images.tolist(), "label": [0, 1] * 4, "writer": ["w", "v"] * 4})
        kinds = {"image": polars.List(polars.List(polars.UInt8))}
        for number in range(2):
            part = table[4 * number : 4 * number + 4].cast(kinds)
            part.write_ipc_stream(folder / f"data-{number:05d}-of-00002.arrow")
        names = [{"filename": f"data-{number:05d}-of-00002.arrow"} for number in range(2)]
        (folder / "state.json").write_text(json.dumps({"_data_files": names}))
        features = {"label": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"}}
        (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (tmp_path / "hf" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert is_table(str(tmp_path / "hf"))
    federation = Arrays(str(tmp_path / "hf")).federation()
    assert federation.names.labels == ("cat", "dog", "eel")
    assert federation.names.clients == ("v", "w")
    assert federation.x.shape == (8, 2, 2)
    assert federation.x.dtype == np.uint8
    assert (federation.classes, len(federation.test_y)) == (3, 8)
    assert is_table(str(tmp_path / "hf" / "train"))


def saved(folder, features, **columns):
    """A data set as ``Dataset.save_to_disk`` writes it."""
    folder.mkdir(parents=True)
    polars.DataFrame(columns).write_ipc_stream(folder / "data-00000-of-00001.arrow")
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_list_of_dicts_in_a_folder_of_hugging_face_is_left_out(tmp_path):
    text, number = {"dtype": "string", "_type": "Value"}, {"dtype": "float64", "_type": "Value"}
    columns = {"x": [[0.1, 0.2]] * 20, "y": [0, 1] * 10, "client": ["a"] * 10 + ["b"] * 10}
    saved(tmp_path / "hf", {"x": [number], "notes": [{"who": text}]}, **columns, notes=[[{"who": "me"}], []] * 10)
    assert Arrays(str(tmp_path / "hf")).federation().x.shape == (18, 2)


def test_the_test_split_of_hugging_face_is_read_by_the_names_of_its_labels(tmp_path, caplog):
    def write(place, **splits):
        for split, (names, labels) in splits.items():
            features = {"y": {"names": names, "_type": "ClassLabel"}}
            columns = {"a": [0.1, 0.2, 0.3] * 2, "y": labels * 2, "client": ["u", "v"] * 3}
            saved(tmp_path / place / split, features, **columns)
        (tmp_path / place / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
        return Arrays(str(tmp_path / place), test_share=0)

    names = ["cat", "dog", "eel"]
    train = (names, [0, 1, 2])
    moved = write("moved", train=train, test=(["dog", "cat", "eel"], [0, 1, 2]))
    assert moved.federation().test_y.tolist() == [1, 0, 2] * 2
    with pytest.raises(ValueError, match=r"other'.*test_y must have names of the training data's, .*, got cow$"):
        write("other", train=train, test=(["cow", "cat", "eel"], [0, 1, 2])).federation()
    with pytest.raises(ValueError, match=r"some'.*test_y must be at least 0 and below 3, .*, got -1 in row 1"):
        write("some", train=train, test=(names, [0, -1, 2])).federation()
    secret = (names, [-1, -1, -1])
    validated = write("validated", train=train, test=secret, validation=(names, [2, 1, 0]))
    assert validated.federation().test_y.tolist() == [2, 1, 0] * 2
    assert "the labels of the split test are -1, so that it is not used; validation is the test set" in caplog.text
    assert not len(write("secret", train=train, test=secret).federation().test_y)


def test_a_data_set_for_each_client():
    parts = {name: [(np.full(3, n, np.float32), n % 2) for n in range(10)] for name in ("b", "a")}
    federation = from_datasets(parts, test_share=0)
    assert federation.names.clients == ("a", "b")
    assert federation.x.shape == (20, 3)
    listed = from_datasets([parts["a"][: 10 - n // 2] for n in range(12)], test_share=0)
    assert (listed.count.tolist(), listed.names.clients) == ([10 - n // 2 for n in range(12)], ())  # in their order
    with pytest.raises(ValueError, match=r"data set 1 must give pairs \(x, y\)"):
        from_datasets([parts["a"], [1, 2]])
    narrow = [(x[:2], y) for x, y in parts["a"]]
    with pytest.raises(ValueError, match=r"data set b must give x of the shape \(3,\), as data set a does, got \(2,\)"):
        from_datasets({"a": parts["a"], "b": narrow})


def test_arrays_in_python_take_what_files_take():
    federation = Federation.from_arrays(
        TABLE["rain"][:, None], TABLE["cover"].astype(object), TABLE["station"].astype(object), test_share=0.1
    )
    assert federation.names.clients == ("east", "north", "south")
    assert (federation.num_samples, len(federation.test_y)) == (54, 6)
    gaps = Federation.from_arrays(np.ones((3, 1)), [0.0, 1.0, 1.0], [7, 7, 1000])
    assert (gaps.num_clients, gaps.names.clients, gaps.classes) == (2, ("7", "1000"), 2)
    assert Federation.from_arrays(np.ones((3, 1)), [0, 1, 1], [1, 0, 1]).names.clients == ()


def test_names_are_kept_from_the_file_to_the_stored_result(csv, tmp_path):
    data = Arrays(str(csv), client="station", y="cover", x=("rain", "wind"))
    experiment = Experiment(data, Logistic(), Rand(m=2), Local(tau=1, b=2, eta=0.1), rounds=2)
    result = run(experiment, tmp_path / "out")[0]
    assert result.clients == ("east", "north", "south")
    assert result.client_name(2) == "south"
    assert load_results(experiment, RunStore(tmp_path / "out")).clients == result.clients


def test_which_client_is_which_in_a_list_is_said_where_clients_have_names(csv, capsys):
    data = Arrays(str(csv), client="station", y="cover", x=("rain", "wind"))
    slow = Devices(speed=np.array([1.0, 2.0, 3.0], np.float32))
    rest = Logistic(), Rand(m=2), Local(tau=1, b=2, eta=0.1)
    say_order(Experiment(data, *rest, rounds=2))
    assert capsys.readouterr().err == ""
    say_order(Experiment(data, *rest, rounds=2, devices=slow, failures=Failures(probability=[0.1, 0.2, 0.3])))
    said = "failures.probability and devices.speed: one number per client, in the order east, north, south\n"
    assert capsys.readouterr().err == f"note: {said}"


def test_clients_that_are_not_in_the_test_set_are_told_where_they_have_a_quarter_of_the_samples():
    def made(sizes):
        client = np.repeat(np.arange(len(sizes)), sizes)
        return Federation.from_arrays(np.eye(len(client), 3), client % 2, client, test_share=0.1, name="mine")

    made([9, 9, 100, 100])  # without a warning, which is an error here
    with pytest.warns(UserWarning, match="mine: 1 of 3 clients, with 31% of the samples, are not in the test set"):
        made([9, 10, 10])


class Halves:
    """A partitioner of Flower Datasets' interface, on a frame."""

    num_partitions = 2

    def load_partition(self, partition_id):
        self.partition_id_to_natural_id = {0: "left", 1: "right"}  # as NaturalIdPartitioner: known when it has dealt
        return frame()[30 * partition_id : 30 * partition_id + 30].drop("station")


def test_a_partitioner_of_flower_datasets():
    federation = from_partitioner(Halves(), test=frame()[:7], name="halves")
    assert federation.names.clients == ("left", "right")
    assert (federation.count.tolist(), len(federation.test_y)) == ([30, 30], 7)


def test_columns_of_a_frame_may_have_numbers():
    label = np.arange(ROWS) // 3 % 2
    array = np.stack([label, np.arange(ROWS) % 3, TABLE["rain"], TABLE["wind"], np.arange(ROWS) % 5], axis=1)
    numbered = pandas.DataFrame(array)
    one = from_frame(numbered, x=[2, 3], y=0, client=1)
    words = numbered.rename(columns=str)
    same(one, from_frame(words, x=["2", "3"], y="0", client="1"))
    assert (one.classes, one.num_clients, one.x.shape[1]) == (2, 3, 2)
    assert from_frame(numbered, x=2, y=0, client=1).x.shape[1] == 1
    assert from_frame(numbered, x=None, y=0, client=1).x.shape[1] == 3


class Lazy:
    columns = ("a", "label")


class Arrow(Lazy):
    column_names = ("a", "label")
    __len__ = None


@pytest.mark.parametrize("given", [{"a": [1.0], "label": [0]}, Lazy(), Arrow(), frame().lazy(), np.ones((2, 2))])
def test_what_is_no_frame_is_one_sentence(given):
    rule = r"from_frame: frame must be a frame of pandas or polars, or one data set .*'train'\], got "
    with pytest.raises(ValueError, match=rule + type(given).__name__):
        from_frame(given)


def test_a_partitioner_without_its_data_set_is_one_sentence():
    one, other = (from_partitioner(Halves(), x=x, y="cover") for x in ("rain", ["rain"]))
    assert one.x.shape[1] == 1
    same(one, other)
    for given in (object(), type("Empty", (), {"num_partitions": 2})()):
        with pytest.raises(ValueError, match=r"partitioner must be one that has its data set, such as .* no attribute"):
            from_partitioner(given)


@pytest.mark.filterwarnings("ignore")
def test_data_sets_of_hugging_face_and_flower(tmp_path):
    datasets = pytest.importorskip("datasets")
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    kinds = datasets.Features(
        {
            "image": datasets.Array2D((2, 2), "uint8"),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "writer": datasets.Value("string"),
        }
    )
    images = rng.integers(0, 255, (40, 2, 2)).astype(np.uint8)
    columns = {"image": images, "label": [0, 1] * 20, "writer": ["v", "v", "w", "w"] * 10}
    found = datasets.Dataset.from_dict(columns, features=kinds)
    found.save_to_disk(tmp_path / "hf")
    same(Arrays(str(tmp_path / "hf")).federation(), from_frame(found))
    partitioner = partitioners.NaturalIdPartitioner(partition_by="writer")
    partitioner.dataset = found
    federation = from_partitioner(partitioner)
    assert federation.names.clients == ("v", "w")
    assert federation.x.dtype == np.uint8


def npz(path, **arrays):
    np.savez(path, **arrays)
    return Arrays(str(path)).federation()


NUMBERS = {"x": np.ones((12, 2), np.float32), "y": np.arange(12) % 3, "client": np.arange(12) % 4}
DATES = np.array(["2020-01-01"] * 12, "M8[D]")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x": np.float32(3)}, "x must have a row per sample, got array"),
        ({"y": np.int64(3)}, "y must have a row per sample, got array"),
        ({"client": np.int64(3)}, "client must have one entry per sample"),
        ({"test_x": np.float32(3), "test_y": np.arange(1)}, "test x must be numbers, a row per sample"),
        ({"test_x": NUMBERS["x"], "test_y": DATES}, "y must be of the same kind in the training data and in the test"),
        ({"test_x": NUMBERS["x"], "test_y": np.array(["a"] * 12)}, "y must be of the same kind .* got int64 and <U1"),
        ({"y": np.zeros(12, [("a", "i4")])}, "y must be whole numbers or words, got dtype"),
        ({"x": DATES}, "x must be numbers, got"),
        (
            {"x": np.ones((12, 2), np.uint8), "test_x": NUMBERS["x"], "test_y": NUMBERS["y"]},
            r"x and test x must both be bytes \(uint8\), or neither, got uint8 and float32",
        ),
        (
            {"test_x": np.ones((12, 2), np.uint8), "test_y": NUMBERS["y"]},
            r"x and test x must both be bytes \(uint8\), or neither, got float32 and uint8",
        ),
    ],
)
def test_arrays_of_the_wrong_kind_get_one_sentence(changed, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence) as caught:
        npz(tmp_path / "own.npz", **{**NUMBERS, **changed})
    assert str(caught.value).startswith("Arrays: ")
    assert "\n" not in str(caught.value)


def test_arrays_that_nobody_asked_for_are_not_read(tmp_path, monkeypatch):
    read = []
    whole = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda file, name: read.append(name) or whole(file, name))
    more = {"huge": np.zeros(10), "test_huge": np.zeros(10), "test_x": np.ones((2, 2)), "test_y": np.arange(2)}
    with pytest.warns(UserWarning, match="own.npz: arrays that are not used: huge, test_huge"):
        federation = npz(tmp_path / "own.npz", **NUMBERS, **more)
    assert sorted(read) == ["client", "test_x", "test_y", "x", "y"]
    assert len(federation.test_y) == 2


def test_an_array_that_memory_cannot_hold_is_refused_before_it_is_read(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**13, 2)})
    arrays = {name: io.BytesIO() for name in ("y", "client")}
    for name, content in arrays.items():
        np.save(content, NUMBERS[name])
    for number, sentence in (
        (10**13, r"x in '.*' must fit into memory \(.*\), got about 80,000.0 GB"),
        (10**4, "bytes, and has 0"),
    ):
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (number, 2)})
        with zipfile.ZipFile(tmp_path / "own.npz", "w") as file:
            file.writestr("x.npy", head.getvalue())
            for name, content in arrays.items():
                file.writestr(f"{name}.npy", content.getvalue())
        with pytest.raises(ValueError, match=sentence):
            Arrays(str(tmp_path / "own.npz")).federation()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path):
    np.savez(tmp_path / "own.npz", **NUMBERS)
    with zipfile.ZipFile(tmp_path / "own.npz", "a") as file:
        file.writestr("y.npy", file.read("client.npy"))
    with pytest.raises(ValueError, match=r"must hold one array of each name, got several of y$"):
        Arrays(str(tmp_path / "own.npz")).federation()


def test_a_word_among_numbers_is_named(tmp_path, caplog):
    """Its column is left out of the inputs, which nobody would notice otherwise."""
    rows = [f"c{i % 3},{i},{'n/a?' if i == 4 else i},{i % 2}" for i in range(12)]
    file = tmp_path / "cell.csv"
    file.write_text("\n".join(["client,f1,f2,label", *rows]))
    with caplog.at_level("INFO", logger="fedpick"):
        Arrays(str(file)).federation()
    assert "f2 is left out because of 'n/a?' in line 6" in caplog.text
    with pytest.raises(ValueError, match=r"f2 must be numbers, got 'n/a\?'"):
        Arrays(str(file), x=("f2",)).federation()


@pytest.mark.parametrize("polars", [True, False])
@pytest.mark.parametrize("word", ["NA", "N/A", "n/a", "null", "None", "NaN", "-", "?", " ", ""])
def test_a_word_for_a_missing_number_is_an_empty_cell(word, polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "gap.csv"
    rows = [f"c{i % 3},{i},{word if i == 4 else i / 2},{i % 2}" for i in range(12)]
    file.write_text("\n".join(["client,f1,f2,label", *rows]))
    with pytest.raises(ValueError, match=r"got NaN or infinity in line 6, column f2$"):
        Arrays(str(file)).federation()
    file.write_text("\n".join(["f1,client,label", *(f"{i},{word if i == 4 else i % 3},a" for i in range(12))]))
    with pytest.raises(ValueError, match="client must be known for every sample, got none in line 6"):
        Arrays(str(file)).federation()


def test_among_words_such_a_word_is_a_name(tmp_path):
    file = tmp_path / "names.csv"
    file.write_text("f1,client,label\n1,NA,None\n2,EU,big\n3,NA,None\n")
    names = Arrays(str(file), test_share=0.0).federation().names
    assert (names.clients, names.labels) == (("EU", "NA"), ("None", "big"))


@pytest.mark.parametrize("polars", [True, False])
def test_blanks_around_names_and_commas_at_the_end_mean_nothing(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "blanks.csv"
    file.write_text(" a , b , client , y ,,\n1, 2,p,0,,\n3, 4,q,1,,\n")
    columns = files.read_table(str(file)).columns
    assert list(columns) == ["a", "b", "client", "y"]
    assert Arrays(str(file), test_share=0.0).federation().x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    file.write_text(" a ,a,client,y\n1,2,p,0\n")
    with pytest.raises(ValueError, match="must have a name for each column, got 'a' twice"):
        files.read_table(str(file))


def test_numbers_with_marks_between_thousands_are_named(tmp_path, caplog):
    file = tmp_path / "thousands.csv"
    file.write_text('f1,f2,note,client,label\n1,"1,000.5",fine,p,0\n2,"2,000.5",fine,q,1\n')
    Arrays(str(file)).federation()
    assert "f2 is left out because of '1,000.5'" in caplog.text
    assert "note is left out" not in caplog.text


def test_samples_of_different_lengths_are_told(tmp_path):
    file = tmp_path / "ragged.json"
    data = {"p": {"x": [[1, 2], [3, 4]], "y": [0, 1]}, "q": {"x": [[1, 2, 3]], "y": [1]}}
    file.write_text(json.dumps({"users": ["p", "q"], "user_data": data}))
    with pytest.raises(
        ValueError, match="x must have the same length in all samples, got 2 numbers in row 0 and 3 in row 2"
    ):
        Arrays(str(file)).federation()


def test_an_empty_name_of_inputs_gets_a_sentence(csv):
    with pytest.raises(ValueError, match=r"x must be names of columns, or patterns such as 'pixel\*', got ''"):
        Arrays(str(csv), x=("",), client="station").federation()


@pytest.mark.parametrize("polars", [True, False])
def test_blanks_in_cells_make_no_other_client_and_no_other_label(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "blanks.csv"
    file.write_text(
        'a,b,client,label\n1, True,A,x\n2,False ,"A ", x\n3,true,B\u00a0,y\n4,false,B,y\n', encoding="utf-8"
    )
    federation = Arrays(str(file), test_share=0.0).federation()
    assert (federation.names.clients, federation.names.labels) == (("A", "B"), ("x", "y"))
    assert federation.x.tolist() == [[1, 1], [2, 0], [3, 1], [4, 0]]
    file.write_text("a,client,label\n1, 007,x\n2,007 ,y\n3,7,x\n")
    assert Arrays(str(file), test_share=0.0).federation().names.clients == ("007", "7")


HEADLESS = ["1.5,2.5,0,7", "5.1,3.5,x,0", "5.1,3.5,x,north", "", " , ,"]


@pytest.mark.parametrize("polars", [True, False])
@pytest.mark.parametrize("first", HEADLESS)
def test_a_first_line_that_is_a_sample_is_refused(first, polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "headless.csv"
    others = HEADLESS[:1] if "7" in first else HEADLESS[1:3]
    file.write_text("\n".join([first, *others, *others]))
    with pytest.raises(ValueError, match=r"headless.csv' must name its columns in the first line, got '.*'; put a"):
        Arrays(str(file)).federation()


@pytest.mark.parametrize("first", [",0,1,client,label", "0,1,2,client,label", "400.5,401,402.5,client,label"])
def test_numbers_may_be_names_of_columns(first, tmp_path):
    file = tmp_path / "numbers.csv"
    file.write_text("\n".join([first, "0,2.5,1,a,p", "1,1.5,2,b,q"]))
    assert Arrays(str(file), test_share=0.0).federation().x.shape[0] == 2
    file.write_text("0,1,2,3\n5.5,1,7,1\n6.5,1,8,0\n")  # as pandas writes an array
    assert list(files.read_table(str(file)).columns) == ["0", "1", "2", "3"]


def test_codes_that_are_also_numbers_stay_apart(tmp_path):
    file = tmp_path / "codes.csv"
    file.write_text("a,client,label\n1,1_21,12e5\n2,12_1,1200000\n3,121,7\n")
    names = Arrays(str(file), test_share=0.0).federation().names
    assert (names.clients, names.labels) == (("121", "12_1", "1_21"), ("1200000", "12e5", "7"))
    for ids, found in (
        (("1.0e+3", "1000", "7"), ("1.0e+3", "1000", "7")),
        (("+1", "1", "-1"), ("+1", "-1", "1")),
        (("\uff11", "1", "2"), ("1", "2", "\uff11")),
        (("1.0", "1", "2."), ("1", "2")),
    ):
        rows = [f"{place},{client},{place % 2}" for place, client in enumerate(ids)]
        file.write_text("\n".join(["a,client,label", *rows]), encoding="utf-8")
        assert Arrays(str(file), test_share=0.0).federation().names.clients == found
    file.write_text("a;client;label\n1;1,0;u\n2;1;v\n3;2;v\n")
    assert Arrays(str(file), test_share=0.0).federation().names.clients == ("1", "2")
    file.write_text("a;client;label\n1,5;p;0_1.5\n2,5;q;1\n")  # which is no number with a point
    assert Arrays(str(file), test_share=0.0).federation().x.ravel().tolist() == [1.5, 2.5]
    file.write_text("a,client,label\n1,1.0e+00,0.0e+00\n2,1.0e+01,1.0e+00\n")  # as NumPy writes whole numbers
    assert Arrays(str(file), test_share=0.0).federation().names.clients == ("1", "10")


def test_an_input_that_is_the_label_in_another_code_is_named(recwarn):
    number = np.arange(40)
    table = {"a": number % 7, "label_id": number % 3 * 5.0, "label": np.array(["u", "w", "v"])[number % 3]}
    from_frame(pandas.DataFrame({**table, "client": number // 10}))
    (told,) = (str(each.message) for each in recwarn)
    assert told.startswith("own data: every value of label_id stands for one label of label, as if")
    recwarn.clear()
    table["label_id"][4] = 10
    from_frame(pandas.DataFrame({**table, "client": number // 10}))
    from_frame(pandas.DataFrame({**table, "label": "u", "one": 1, "client": number // 10}))
    assert not recwarn


def test_two_columns_of_a_frame_with_one_name_are_refused():
    frame = pandas.DataFrame([[1, 2, "p"], [3, 4, "q"]], columns=["a", "a", "client"])
    with pytest.raises(ValueError, match="from_frame: frame must have a name for each column, got 'a' twice"):
        from_frame(frame)


def test_coordinates_called_x_and_y_are_inputs_as_others_are(caplog):
    table = {"x": [0.5, 1.5], "y": [1, 2], "z": [2.5, 3.5], "label": [0, 1], "client": ["a", "b"]}
    with caplog.at_level("INFO", logger="fedpick"):
        assert from_frame(pandas.DataFrame(table)).x.shape == (2, 3)
        from_frame(pandas.DataFrame(table)[["x", "y", "client"]])
    assert caplog.messages == ["from_frame: frame: x = x, y, z; y = label"]


def test_of_coordinates_beside_an_activity_the_last_column_is_the_label(tmp_path):
    file = tmp_path / "walks.csv"
    file.write_text("x,y,z,user,activity\n0.5,1.5,2.5,a,run\n0.1,1.1,2.1,b,walk\n")
    for y in ("", "activity"):
        found = Arrays(str(file), y=y).federation()
        assert (found.x.shape, found.names.labels) == ((2, 3), ("run", "walk"))
    file.write_text("x,y,user\n5,1.5,1\n1,1.1,2\n")
    with pytest.raises(ValueError, match=r"y must be whole numbers or words .*, got 1.5 in line 2"):
        Arrays(str(file)).federation()


@pytest.mark.parametrize("vectors", [[[1, 2], None], [None, [1, 2]]])
def test_a_missing_vector_is_one_sentence(vectors):
    table = polars.DataFrame({"b": vectors, "client": ["a", "b"], "label": [0, 1]})
    with pytest.raises(ValueError, match="from_frame: frame: b must have the same length in all samples, got"):
        from_frame(table, x="b")


def test_two_data_sets_of_one_client_are_refused():
    with pytest.raises(ValueError, match="datasets must have a name for each client, got '1' twice"):
        from_datasets({1: [([0.5], 0)], "1": [([0.5], 1)]})


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas"])
def test_one_long_note_takes_no_room_in_every_row(kind, tmp_path, caplog):
    rows = np.arange(2000)
    notes = ["word " * 10_000 if row == 5 else "" if row == 1 else f"note {row}" for row in rows]
    table = polars.DataFrame({"age": rows / 2000, "site": rows % 5, "note": notes, "sick": rows % 2 == 0})
    file = tmp_path / f"notes.{kind}"
    if kind != "pandas":
        getattr(table, f"write_{kind}")(file)
    tracemalloc.start()
    frame = pandas.DataFrame(table.to_dict(as_series=False)) if kind == "pandas" else None
    found = Arrays(str(file)).federation() if frame is None else from_frame(frame)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.x.shape == (1800, 1)
    assert used < 50e6
    assert "note is left out because of 'note 0'" in caplog.text


def test_a_long_note_that_is_named_as_an_input_is_shown_in_short():
    with pytest.raises(ValueError, match=r"from_frame: frame: note must be numbers, got 'word") as error:
        from_frame(pandas.DataFrame({"note": ["word " * 1000, "b"], "site": ["p", "q"], "sick": [0, 1]}), x="note")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("polars", [True, False])
def test_cells_that_a_line_does_not_have_are_empty(polars, tmp_path, monkeypatch):
    if not polars:
        monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    file = tmp_path / "cells.csv"
    file.write_text("label,size,site,\n0,1.5,p\n1,2.5,q\n")  # a comma at the end of the line of names alone
    assert Arrays(str(file)).federation().x.tolist() == [[1.5], [2.5]]
    file.write_text("label,site,size\n0,p,1.5\n\n1,q\n")
    with pytest.raises(
        ValueError, match=r"finite in float32, got NaN or infinity in line 3|label must be known .* line 3"
    ):
        Arrays(str(file)).federation()


def test_bytes_that_are_no_pictures_are_told(tmp_path, recwarn):
    path = str(tmp_path / "flags.npz")
    flags = rng.integers(0, 2, (40, 3)).astype(np.uint8)
    for x in (flags, flags * 255):
        np.savez(path, x=x, y=np.arange(40) % 2, client=np.arange(40) % 4)
        Arrays(path).federation()
    Arrays(path, standardize=True).federation()
    assert [str(warning.message) for warning in recwarn] == [
        "flags.npz: bytes are taken for pixels from 0 to 255, and none is above 1, so that inputs hardly differ; save "
        "numbers as float32; standardize = true (--standardize) scales them, codes = true keeps codes"
    ]


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet"])
def test_decimals_are_numbers(kind, tmp_path):
    table = {"price": [Decimal("1.25"), None, Decimal("2.50")], "label": [Decimal(1), Decimal(2), Decimal(2)]}
    frame = (pandas if kind == "pandas" else polars).DataFrame({**table, "client": [1, 2, 2]})
    with pytest.raises(ValueError, match="x must be finite in float32, got NaN or infinity in row 1"):
        from_frame(frame)
    known = frame.iloc[::2] if kind == "pandas" else frame[::2]
    if kind == "parquet":
        known.write_parquet(tmp_path / "prices.parquet")
    found = Arrays(str(tmp_path / "prices.parquet")).federation() if kind == "parquet" else from_frame(known)
    assert (found.x.tolist(), found.names.labels) == ([[1.25], [2.5]], ("1", "2"))


def test_the_id_of_a_patient_with_several_visits_is_no_input(tmp_path, caplog):
    file = tmp_path / "visits.csv"
    rows = [f"{1000 + row // 3},{row % 5},{row % 7},h{row % 4},{row // 200}" for row in range(400)]
    file.write_text("\n".join(["patient_id,ward_id,age,hospital,sick", *rows]))
    found = Arrays(str(file), client="hospital").federation()
    assert found.x.shape[1] == 2
    assert "patient_id is left out because it is an id; x = ward_id, age (without patient_id)" in caplog.text
    assert Arrays(str(file), client="hospital", x=("*_id", "age"), standardize=True).federation().x.shape[1] == 3


def test_the_ids_of_a_partitioner_are_clients_and_no_input():
    table = pandas.DataFrame({"ward": np.arange(40) % 4 + 7, "age": np.arange(40) % 5, "sick": np.arange(40) // 20})
    partitioner = types.SimpleNamespace(
        num_partitions=4,
        load_partition=lambda k: table[table.ward == k + 7],
        partition_id_to_natural_id={k: k + 7 for k in range(4)},
    )
    found = from_partitioner(partitioner, y="sick")
    assert (found.x.shape, found.names.clients) == ((36, 1), ("7", "8", "9", "10"))
