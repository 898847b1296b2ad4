"""A result as a table holds the same numbers in pandas, polars, CSV and Parquet; a file is whole or not there."""

import csv
import dataclasses
import errno
import stat
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import PowerOfChoice, strategy
from fedpick.metrics import METRICS
from fedpick.results import concatenate, stack_columns
from fedpick.sim import Local, Quadratic, QuadraticModel, simulate

COSTS = ["messages", "bytes_down", "bytes_up", "poll_samples", "train_samples", "seconds"]
BY_EVALUATION = ["seed", "d", "round", *METRICS]
BY_ROUND = ["seed", "d", "round", *COSTS, "train_loss", "polled", "trained", "returned"]
BOTH = pytest.mark.parametrize(("by", "names"), [("evaluation", BY_EVALUATION), ("round", BY_ROUND)])


@pytest.fixture(scope="module")
def result():
    selector, local = PowerOfChoice(1, jnp.array([2, 3])), Local(1, 1, 1e-3)
    return simulate(Quadratic(K=4, v=2), QuadraticModel(), selector, local, rounds=6, every=3, seeds=2)


def tables(frame, runs, times):
    """The columns as the result has them: a row per run."""
    return {name: frame[name].to_numpy().reshape(runs, times) for name in frame.columns}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_a_row_per_run_and_evaluation(result, library):
    frame = result.to_frame(library)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == BY_EVALUATION
    found = tables(frame, 4, 3)
    assert found["seed"].tolist() == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]
    assert found["d"].tolist() == [[2] * 3, [2] * 3, [3] * 3, [3] * 3]
    assert found["round"].tolist() == [[0, 3, 6]] * 4
    for name in METRICS:
        np.testing.assert_array_equal(found[name], result.metric(name))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_by_round_has_the_costs(result, library):
    frame = result.to_frame(library, by="round")
    assert list(frame.columns) == BY_ROUND
    found = tables(frame, 4, 6)
    assert found["round"].tolist() == [[1, 2, 3, 4, 5, 6]] * 4
    for name, table in result.costs.items():
        np.testing.assert_array_equal(found[name], table)
    for name in ("train_loss", "polled", "trained", "returned"):
        np.testing.assert_array_equal(found[name], result.records[name])


@BOTH
def test_csv_and_parquet_lose_nothing(result, tmp_path, by, names):
    import pandas
    import polars

    frame = result.to_frame("polars", by)
    result.to_parquet(tmp_path / "new folder" / "table.parquet", by)
    assert polars.read_parquet(tmp_path / "new folder" / "table.parquet").equals(frame)
    result.to_csv(tmp_path / "table.csv", by)
    with (tmp_path / "table.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == names
    for column, name in zip(zip(*lines, strict=True), names, strict=True):
        np.testing.assert_array_equal([float(cell) for cell in column], frame[name].to_numpy())
    pandas.testing.assert_frame_equal(
        pandas.read_csv(tmp_path / "table.csv"), result.to_frame(by=by), check_dtype=False
    )


def test_results_that_differ_in_length_and_metrics_are_one_table(result):
    more = dataclasses.replace(
        result, metrics=result.metrics | {"test_f1": result.metric("loss")}, better={"test_f1": True}
    )
    found = stack_columns([result, more.rows([0])])
    assert list(found) == [*BY_EVALUATION, "test_f1"]
    assert found["loss"].tolist() == [*result.metric("loss").ravel(), *result.metric("loss")[0]]
    assert found["test_f1"].tolist() == [""] * 12 + result.metric("loss")[0].tolist()


def test_a_float_is_written_with_all_its_digits(result, tmp_path):
    third = np.full_like(result.metrics["loss"], 1 / 3)
    dataclasses.replace(result, metrics=result.metrics | {"loss": third}).to_csv(tmp_path / "table.csv")
    cell = (tmp_path / "table.csv").read_text().splitlines()[1].split(",")[3]
    assert cell == repr(float(np.float32(1 / 3)))


def test_a_file_is_replaced_whole_or_not_at_all(result, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("what was there")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for write in (result.to_csv, result.to_parquet):
        with pytest.raises(OSError, match="No space left"):
            write(path)
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "what was there"
    monkeypatch.undo()
    result.to_csv(path)
    assert path.read_text().startswith("seed,d,round,loss")
    (tmp_path / "like any other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "like any other").stat().st_mode)


def test_a_swept_field_with_the_name_of_a_metric_keeps_both(result):
    named = dataclasses.replace(result, runs=[{"seed": r, "skew": 7.0, "round": 1} for r in range(4)])
    frame = named.to_frame()
    assert list(frame.columns) == ["seed", "run.skew", "run.round", "round", *METRICS]
    assert (frame["run.skew"] == 7).all()
    np.testing.assert_array_equal(frame["skew"], result.metrics["skew"].ravel())


def test_mistakes_are_one_sentence(result, tmp_path, monkeypatch):
    for call in (result.to_frame, lambda by: result.to_csv(tmp_path / "x", by)):
        with pytest.raises(ValueError, match=r"^Result: by must be one of 'evaluation', 'round', got 'seed'$"):
            call(by="seed")
    with pytest.raises(ValueError, match=r"^Result: library must be one of 'pandas', 'polars', got 'dask'$"):
        result.to_frame("dask")
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
        sentence = (
            rf"^Result: needs {library}; install it with pip install 'fedpick\[frames\]', or '.\[frames\]' in a clone$"
        )
        with pytest.raises(ModuleNotFoundError, match=sentence):
            result.to_frame(library)
    with pytest.raises(ModuleNotFoundError, match="polars"):
        result.to_parquet(tmp_path / "x")
    result.to_csv(tmp_path / "needs neither.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["needs neither.csv"]


def test_lists_that_differ_are_texts(result, tmp_path):
    runs = [{**run, "at": [1, 2] if row else []} for row, run in enumerate(result.runs)]
    listed = dataclasses.replace(result, runs=runs)
    assert listed.to_frame()["at"].unique().tolist() == ["[]", "[1, 2]"]
    listed.to_csv(tmp_path / "t.csv")
    assert "[1, 2]" in (tmp_path / "t.csv").read_text()


def test_runs_are_found_by_their_exact_values(result):
    values = [{"seed": 20240101, "eta": 1e-9}, {"seed": 20240102, "eta": 5e-9}]
    values += [{"seed": 7, "eta": 0.1, "kind": "rand"}, {"seed": 8, "eta": 0.1, "kind": 6}]
    many = dataclasses.replace(result, runs=values)
    assert many.where(seed=20240101).runs == values[:1]
    assert many.where(eta=1e-9).runs == values[:1]
    assert many.where(eta=np.float32(0.1)).runs == values[2:]
    assert many.where(kind="rand").runs == [values[2]]
    assert many.where(kind=6.0).runs == [values[3]]
    with pytest.raises(ValueError, match="must match a run, got none"):
        many.where(kind=0.5)


def test_costs_of_results_put_together_are_those_of_each():
    problem, local = (Quadratic(K=4, v=2), QuadraticModel()), Local(1, 1, 1e-3)
    ocs, pow_d = (simulate(*problem, strategy(name, m=1, d=2), local, rounds=2) for name in ("ocs", "pow-d"))
    large = simulate(Quadratic(K=4, v=3), QuadraticModel(), strategy("pow-d", m=1, d=2), local, rounds=2)
    both = concatenate([ocs, pow_d, large])
    for row, one in enumerate((ocs, pow_d, large)):
        for name, values in one.costs.items():
            np.testing.assert_array_equal(both.costs[name][row], values[0], err_msg=name)
        alone = both.rows([row])
        assert (alone.payload, alone.model_bytes) == (one.payload, one.model_bytes)
        assert alone.to_arrays(0).keys() == one.to_arrays(0).keys()
    assert concatenate([pow_d, pow_d]).model_bytes == pow_d.model_bytes
