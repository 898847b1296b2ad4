"""``fedpick run``, and its bar."""

import csv
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.cli._progress import ProgressBar
from fedpick.storage import RunStore

TOML = """
rounds = 6
seeds = 2
data = { kind = "quadratic", K = 6 }
model = { kind = "quadratic" }
local = { tau = 2, b = 1, eta = 1e-4 }
metrics = { target = "loss", value = 1e9 }
[[selector]]
kind = "rand"
m = 2
[[selector]]
kind = "pow-d"
m = 2
d = 3
"""


def command(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


@pytest.fixture
def toml(tmp_path):
    (tmp_path / "experiment.toml").write_text(TOML)
    return tmp_path / "experiment.toml"


def test_from_the_command_line(toml, tmp_path):
    answer = command(toml, "-o", tmp_path / "runs", "--csv", tmp_path / "all.csv", "--tensorboard", tmp_path / "board")
    assert answer.exit_code == 0, answer.output
    assert "4 runs to do" in answer.output
    assert "pow-d" in answer.output
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["seed"], row["selector.kind"]) for row in rows} == {
        (seed, name) for seed in "01" for name in ("rand", "pow-d")
    }
    assert len(list((tmp_path / "board").iterdir())) == 4  # a folder for each run, strategies apart
    log = ["--csv", tmp_path / "all.csv", "--tensorboard", tmp_path / "board"]
    again = command(toml, "-o", tmp_path / "runs", "--set", "seeds=3", "--quiet", *log)
    assert again.exit_code == 0, again.output
    assert "to do" not in again.output
    assert "run: 4 runs are stored and not logged again; fedpick report " in again.output
    assert len(list(RunStore(tmp_path / "runs").identities())) == 6


def test_a_target_that_is_not_reached_reads_as_in_a_comparison(toml, tmp_path):
    answer = command(toml, "-o", tmp_path / "runs", "--set", "metrics.value=-1e9", "--quiet")
    assert answer.exit_code == 0, answer.output
    assert "inf" not in answer.output
    assert " > 6" in answer.output
    assert "nan" not in answer.output


def test_each_experiment_has_its_own_target(toml, tmp_path):
    answer = command(toml, "-o", tmp_path / "runs", "--set", "metrics.value=[1e9, 1e-9]")
    assert answer.exit_code == 0, answer.output
    assert "to its target" in answer.output
    ends = [line.split(": ")[-1].strip() for line in answer.output.splitlines() if ": " in line and "09: " in line]
    assert ends.count("0 [0, 0]") == ends.count("> 6") == 2, answer.output


@pytest.mark.parametrize(("sweep", "most"), [("rounds=[6, 8]", 8), ("metrics.every=[2, 3]", 6)])
def test_runs_of_other_lengths_go_into_one_table(toml, tmp_path, sweep, most):
    answer = command(toml, "-o", tmp_path / "runs", "--csv", tmp_path / "all.csv", "--set", sweep, "--set", "seeds=1")
    assert answer.exit_code == 0, answer.output
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    ends = [row["round"] for row, after in zip(rows, [*rows[1:], {"round": "0"}], strict=True) if after["round"] == "0"]
    assert len(ends) == 4
    assert {ends[0], ends[-1]} == {"6", str(most)}


def test_the_table_is_shown_where_its_file_cannot_be_written(toml, tmp_path):
    answer = command(toml, "-o", tmp_path / "runs", "--csv", "/proc/none/all.csv")  # no folder can be made there
    assert answer.exit_code == 1
    assert "1e+09" in answer.output
    assert answer.output.splitlines()[-1].startswith("Result: ")


def test_where_to_log_is_checked_where_all_runs_are_stored_too(toml, tmp_path):
    assert command(toml, "-o", tmp_path / "runs", "-q").exit_code == 0
    for option, place in (("--tensorboard", toml), ("--mlflow", "nonsense://x")):
        for name in (("run", toml, "-q", "-o"), ("report",)):
            answer = CliRunner().invoke(app, [*map(str, name), str(tmp_path / "runs"), option, str(place)])
            assert (answer.exit_code, answer.output.count("\n")) == (1, 1), answer.output
            assert "folder must be" in answer.output or "tracking_uri must be" in answer.output
    assert not (tmp_path / "runs" / "report.html").exists()


@pytest.mark.parametrize("name", ["run", "compare"])
def test_the_csv_file_is_no_file_of_the_user_s(name, toml, tmp_path):
    (tmp_path / "mine.csv").write_text("a,b,y,client\n1,2,0,0\n")
    for file in (tmp_path / "mine.csv", toml):  # it may be the input itself, by mistake
        before = file.read_bytes()
        wrong = CliRunner().invoke(app, [name, str(toml), "-o", str(tmp_path / "out"), "--csv", str(file)])
        assert wrong.exit_code == 1
        assert f"csv must be a new file, or one that --csv wrote before, got {str(file)!r}" in wrong.output
        assert file.read_bytes() == before


def test_a_csv_file_is_written_again_whatever_its_name_and_is_known_in_the_folder(toml, tmp_path):
    for table in (tmp_path / "table.txt", tmp_path / "runs" / "table"):
        for _ in range(2):
            again = command(toml, "-o", tmp_path / "runs", "-q", "--csv", table)
            assert again.exit_code == 0, again.output
            assert "not written by fedpick" not in again.output
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    assert "notes.txt: not written by fedpick" in command(toml, "-o", tmp_path / "runs", "-q").output


BROKEN = """
from dataclasses import dataclass
from fedpick import Rand

@dataclass(frozen=True)
class Attribute(Rand):
    def __post_init__(self):
        self.nothere.x

@dataclass(frozen=True)
class Key(Rand):
    def __post_init__(self):
        {}["lost"]
"""


@pytest.mark.parametrize(
    ("kind", "line", "said"), [("Attribute", 8, "AttributeError: "), ("Key", 13, "KeyError: 'lost'")]
)
def test_a_mistake_in_the_code_of_a_class_is_named_with_its_line(kind, line, said, toml, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"broken_{kind.lower()}.py"  # a module is imported once
    file.write_text(BROKEN)
    toml.write_text(TOML.replace('kind = "rand"', f'kind = "{file.stem}:{kind}"'))
    wrong = command(toml, "-o", tmp_path / "out")
    assert wrong.exit_code == 1
    assert f"selector cannot be made: {file}, line {line}: {said}" in wrong.output
    with pytest.raises(ValueError, match="cannot be made") as error:
        CliRunner().invoke(app, ["run", str(toml), "--debug"], catch_exceptions=False)
    assert isinstance(error.value.__cause__, AttributeError | KeyError)


@pytest.mark.slow
def test_two_processes_show_what_one_shows(toml, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    alone = command(toml, "-o", tmp_path / "one", "--quiet")
    shared = command(toml, "-o", tmp_path / "two", "--quiet", "--workers", "2")
    assert shared.exit_code == 0, shared.output
    assert shared.stdout == alone.stdout
    assert list(RunStore(tmp_path / "two").identities()) == list(RunStore(tmp_path / "one").identities())


@pytest.mark.slow
def test_an_array_is_submitted_and_waited_for(toml, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    submitted = command(toml, "-o", tmp_path / "array", "--workers", "2", "--slurm", "cluster=local,timeout_min=5")
    assert submitted.exit_code == 0, submitted.output
    assert "submitted" in submitted.output
    assert command(toml, "-o", tmp_path / "array", "--quiet").stdout == command(toml, "--quiet", "-o", tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "selector.d=1"], "must lie in a table, and selector is a list of 2"),
        (["--workers", "2", "--tensorboard", "board"], "workers must be 1 with --tensorboard or --mlflow, got 2"),
        (["--slurm", "partition"], "slurm must be settings such as partition=gpu,timeout_min=60, got 'partition'"),
        (["--set", "local.tau=x"], "local.tau must be a whole number, got 'x'"),
        (["--set", 'data={kind="arrays", path="none.npz"}'], "path must be an .npz file"),
        (["--set", 'selector={kind="pow-d", m=2, d=60}'], "d must be at most K=6, got 60"),
        (["--mlflow", "nonsense://x"], "tracking_uri must be a store of MLflow's, such as sqlite:///mlflow.db or a s"),
        (["--mlflow", ""], "or a server, got ''\n"),
        (["--tensorboard", "experiment.toml"], "folder must be a folder, got 'experiment.toml', and experiment.toml "),
        (["--tensorboard", "experiment.toml/logs"], "folder must be a folder, got 'experiment.toml/logs', and "),
    ],
)
def test_wrong_uses_are_one_sentence(arguments, sentence, toml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = command(toml, "-o", tmp_path / "runs", "--quiet", *arguments)
    assert answer.exit_code == 1
    assert sentence in answer.output
    assert answer.output.count("\n") == 1
    assert not (tmp_path / "all.csv").exists()
    assert not list((tmp_path / "runs").glob("under-way/*"))
    with pytest.raises((ValueError, OSError)):
        CliRunner().invoke(app, ["run", str(toml), "-o", "r", "-q", "--debug", *arguments], catch_exceptions=False)


def test_a_machine_without_slurm_is_told_so(toml, tmp_path, monkeypatch):
    def none(**options):
        raise RuntimeError("Could not detect srun\nsee the log")

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=none))
    answer = command(toml, "-o", tmp_path / "runs", "-q", "--slurm", "partition=x")
    assert answer.exit_code == 1
    assert answer.output.endswith("run: slurm must be at hand to submit to, got an error: Could not detect srun\n")


def test_ctrl_c_says_what_is_kept(toml, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedpick.experiment.batches.simulate", interrupted)
    answer = command(toml, "-o", tmp_path / "runs")
    assert answer.exit_code == 130
    assert f"finished work is stored in {tmp_path / 'runs'}; the same command resumes from there" in answer.output


def test_the_bar_over_everything(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fedpick.cli._progress.time.monotonic", lambda: now[0])
    with ProgressBar(100.0) as whole:  # no terminal: a line every ten seconds
        for part in (0.0, 0.5, 1.0):
            now[0] += 11
            whole.at("loss 1", 50.0, part)
        whole.note("an item")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "  0%: loss 1", " 25%, about 66 s left: loss 1", " 50%, about 33 s left: loss 1", "an item"
    ]  # fmt: skip
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with ProgressBar(100.0) as whole:
        whole.at("loss 2", 100.0, 1.0)
        whole.note("an item")
    assert "an item" in capsys.readouterr().err
    with ProgressBar(0.0) as whole:
        whole.at("nothing to do", 1.0, 1.0)
    assert capsys.readouterr().err == ""


def test_it_says_where_nobody_trained(toml, tmp_path):
    toml.write_text(
        TOML.replace("[[selector]]", 'availability = { kind = "bernoulli", probability = 0.0 }\n[[selector]]', 1)
    )
    for _ in range(2):  # played, and read from the store
        answer = command(toml, "-o", tmp_path / "runs", "--quiet")
        assert answer.exit_code == 0, answer.output
        for name in ("rand", "pow-d"):
            assert f"No client was available in any round of {name}" in answer.output
