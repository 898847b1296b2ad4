"""``fedpick compare --app``: strategies on a Flower app, here without Ray but for the slow test."""

import contextlib
import html
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, only, plain_app, raising, silent, zeros
from support.made_up import made_up
from typer.testing import CliRunner

from fedpick import Cooldown, PowerOfChoice, Rand, strategy
from fedpick.cli import app as command
from fedpick.compare import load_report, render_page
from fedpick.flower import Selecting, Trial
from fedpick.flower.simulation import Machine, make_runs, play_missing, processes, read_app
from fedpick.flower.simulation.play import SeededClient, load, reason
from fedpick.storage import RunStore

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-numpy"
K = ("--federation-config", "num-supernodes=8")


def compare(*arguments):
    return CliRunner().invoke(command, ["compare", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    """A copy of the app, which a test may change."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__")))


class PlayedHere:
    """A process that is none: the app is played at once, on a grid without a network."""

    played: ClassVar[list[str]] = []
    fail: ClassVar[dict[str, str]] = {}

    def __init__(self, run, store, backend):
        self.pid, self.returncode, self.stdin = os.getpid(), 0, None
        PlayedHere.played.append(run.label)
        path = store.folder / "under-way" / f"app-{run.identity}"
        path.mkdir(parents=True)
        if run.label in self.fail:
            (path / "log.txt").write_text(f"noise\n{processes.FAILED}{json.dumps(self.fail[run.label])}\n")
            self.returncode = 1
            return
        client, server = (importlib.import_module(f"numpy_app.{kind}_app") for kind in ("client", "server"))
        grid = FakeGrid(client.app, range(run.trial.clients))
        trial = Trial(**{**vars(run.trial), "folder": str(path)})
        with trial.under_way():
            server.app(grid, Context(1, 1, {}, RecordDict(), run.settings))

    def poll(self):
        return self.returncode


@pytest.fixture
def here(monkeypatch):
    """The runs are played in this process."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setattr(processes, "_start", PlayedHere)
    monkeypatch.setattr(PlayedHere, "played", [])
    monkeypatch.setattr(PlayedHere, "fail", {})
    monkeypatch.setattr(processes, "has_ray", lambda: True)
    return PlayedHere


@pytest.mark.no_cover
def test_an_app_is_compared_and_what_is_stored_is_not_played_again(here, folder, tmp_path):
    arguments = ("--app", folder, *K, "--strategies", "rand,pow-d", "--rounds", 3, "-o", tmp_path / "out")
    answer = compare(*arguments, "--seeds", 1)
    assert answer.exit_code == 0, answer.output
    assert here.played == ["rand, seed 0", "pow-d, seed 0"]
    assert "which every run of rand reaches" in answer.output
    assert (tmp_path / "out" / "report.html").is_file()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    rand, power = (one["selector"] for one in summary["experiments"])
    assert (rand["kind"], rand["m"]) == ("rand", 2)  # the app's own seats and candidates
    assert (power["kind"], power["m"], power["d"]) == ("pow-d", 2, 4)
    assert summary["experiments"][0]["app"]["clients"] == 8
    assert not list((tmp_path / "out" / "under-way").iterdir())
    more = compare(*arguments, "--seeds", 2)
    assert more.exit_code == 0, more.output
    assert "2 paired seeds" in more.output
    assert here.played[2:] == ["rand, seed 1", "pow-d, seed 1"]
    report = load_report(tmp_path / "out")  # what fedpick report draws
    assert len(report.identities) == 4
    assert report.comparison.names == ("rand", "pow-d")
    assert [len(result.runs) for result in report.comparison.results] == [2, 2]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "flower-numpy, in Flower's simulation" in html.unescape(page)
    assert "shared the cores of this machine, and their first rounds hold" in page


def test_runs_of_an_app_that_was_changed_are_not_taken_for_its_own(here, folder, tmp_path):
    arguments = ("--app", folder, *K, "--strategies", "rand", "--seeds", 1, "--rounds", 2, "-o", tmp_path / "out")
    assert compare(*arguments).exit_code == 0
    (folder / "numpy_app" / "client_app.py").write_text((folder / "numpy_app" / "client_app.py").read_text() + "\n")
    assert compare(*arguments).exit_code == 0
    assert len(here.played) == 2
    assert len(json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]) == 1


def test_an_app_that_writes_into_its_own_folder_is_told_that_it_will_be_played_again(
    here, folder, tmp_path, monkeypatch
):
    arguments = ("--app", folder, *K, "--strategies", "rand", "--seeds", 1, "--rounds", 1, "-o", tmp_path / "out", "-q")
    assert "changed" not in compare(*arguments).output

    def writing(*request):
        (folder / "results.json").write_text("{}")
        return PlayedHere(*request)

    monkeypatch.setattr(processes, "_start", writing)
    (folder / "more.csv").write_text("1")
    said = "changed while it was played (results.json): the same command will play all runs again"
    assert said in " ".join(compare(*arguments).stderr.split())


def test_a_target_in_per_cent_is_of_an_accuracy_alone(here, folder, tmp_path):
    arguments = ("--app", folder, *K, "--strategies", "rand", "--seeds", 1, "--rounds", 1, "-o", tmp_path / "out")
    said = "compare: target must be a number where the metric is {} (percentages are of accuracies, "
    answer = compare(*arguments, "--target", "80%", "--metric", "test_loss")
    assert (answer.exit_code, here.played) == (1, [])
    assert said.format("test_loss") in " ".join(answer.output.split())
    answer = compare(*arguments, "--target", "80%")  # that this app measures losses alone is known when it has run
    assert (answer.exit_code, here.played) == (1, ["rand, seed 0"])
    assert said.format("loss") in " ".join(answer.output.split())


def test_one_client_leaves_nothing_to_choose(here, folder, tmp_path):
    one = ("--app", folder, "--federation-config", "num-supernodes=1", "-o", tmp_path / "out")
    answer = compare(*one, "--strategies", "rand,pow-d")
    assert answer.exit_code == 1
    assert "compare: there must be at least 2 clients to choose from (num-supernodes), got 1" in answer.output
    assert not here.played


def test_a_run_that_fails_is_named_with_its_reason_and_its_log_and_the_others_stay(here, folder, tmp_path):
    here.fail["pow-d, seed 0"] = "no data here; add:\n    data = 3"
    arguments = ("--app", folder, *K, "--strategies", "rand,pow-d", "--seeds", 1, "--rounds", 2, "-o", tmp_path / "out")
    answer = compare(*arguments, "--workers", 1)
    assert answer.exit_code == 1
    assert "compare: the run of pow-d, seed 0 failed (its log is " in answer.output
    assert "): no data here; add:\n    data = 3\n" in answer.output
    assert Path(answer.output.split("its log is ")[1].split(")")[0]).is_file()
    here.fail.clear()
    shutil.rmtree(tmp_path / "out" / "under-way")
    assert compare(*arguments).exit_code == 0
    assert here.played == ["rand, seed 0", "pow-d, seed 0", "pow-d, seed 0"]


def test_the_strategies_that_do_not_fail_are_compared(here, folder, tmp_path):
    here.fail = {"pow-d, seed 0": "no data here", "afl, seed 1": "no memory"}
    arguments = ("--app", folder, *K, "--seeds", 2, "--rounds", 2, "-o", tmp_path / "out", "--workers", 1)
    answer = compare(*arguments, "--strategies", "rand,pow-d,uniform,afl")
    assert answer.exit_code == 1
    first = ["rand, seed 0", "pow-d, seed 0", "uniform, seed 0", "afl, seed 0"]
    assert here.played == [*first, "rand, seed 1", "uniform, seed 1", "afl, seed 1"]  # pow-d would fail again
    assert "report.html has the charts" in answer.output
    first, last = answer.stderr.strip().splitlines()[-2:]
    assert re.fullmatch(r"compare: the run of pow-d, seed 0 failed \(its log is .*\): no data here", first)
    assert re.fullmatch(r"compare: the run of afl, seed 1 failed \(its log is .*\): no memory", last)
    assert load_report(tmp_path / "out").comparison.names == ("rand", "uniform")
    here.fail = {"rand, seed 0": "no data here"}  # the baseline
    answer = compare(*arguments, "--strategies", "rand,uniform,full", "--set", "d=5")
    assert answer.exit_code == 1
    assert "the run of rand, seed 0 failed" in answer.output
    assert "has the charts" not in answer.output


def test_the_strategy_must_be_wrapped(monkeypatch, tmp_path):
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    monkeypatch.syspath_prepend(EXAMPLE)
    grid = FakeGrid(importlib.import_module("numpy_app.client_app").app, range(4))
    trial = Trial(strategy="rand", seed=0, clients=4, folder=str(tmp_path))
    start = FedAvg.start
    with trial.under_way(), pytest.raises(ValueError, match=r"wrapped before start\(\), as in Selecting\(FedAvg"):
        FedAvg().start(grid, ArrayRecord({"w": Array(np.zeros(3))}), num_rounds=1)
    assert FedAvg.start is start


def test_an_app_that_plays_no_round_is_told_what_is_missing(tmp_path):
    trial = Trial(strategy="rand", seed=0, clients=4, folder=str(tmp_path))
    said = r"as in Selecting\(FedAvg.*; got an app that ended without a round"
    with pytest.raises(ValueError, match=said):
        trial.check_played()
    with trial.under_way():
        Selecting(FedAvg(), Rand(m=2)).start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=1)
    trial.check_played()


def played(tmp_path, code, strategy="rand"):
    """The log of a run of an app with this code, in a process of its own, without Ray."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "an_app.py").write_text(code)
    trial = {"strategy": strategy, "seed": 0, "clients": 4, "folder": str(tmp_path)}
    request = {"folder": str(tmp_path / "app"), "server": "an_app:app", "client": "an_app:client", "settings": {}}
    request |= {"trial": trial, "backend": {}, "beside": str(tmp_path)}
    code = (
        "import contextlib, json, sys, types\n"
        "from fedpick.flower.simulation import play\n"
        "def run(server, *others, **more):\n"
        "    with contextlib.suppress(SystemExit):  # as a thread of Flower's does\n"
        "        server(None, types.SimpleNamespace())\n"
        "play.run_simulation = run\n"
        "play.play(json.loads(sys.argv[1]))\n"
    )
    line = [sys.executable, "-c", code, json.dumps(request)]
    return subprocess.run(line, cwd=tmp_path / "app", capture_output=True, text=True, check=False).stderr


def test_a_strategy_of_ones_own_is_found_from_where_the_command_was_given(tmp_path):
    code = "from fedpick import pytree, PowerOfChoice\n\n@pytree\nclass Mine(PowerOfChoice):\n    'Mine.'\n"
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "of_the_command.py").write_text(code)
    code = (
        "from fedpick.flower.trial import TRIAL\n"
        "client = None\n"
        "def app(grid, context):\n"
        "    raise ValueError(TRIAL.get().selector(None, 3))\n"
    )
    log = played(tmp_path, code, "strategies/of_the_command.py:Mine")
    assert "ValueError: Mine(m=1, d=2" in json.loads(log.split(processes.FAILED)[1]), log


def test_the_line_of_an_app_that_fails_is_said_and_the_log_has_the_traceback(tmp_path):
    log = played(tmp_path, "import json\nclient = None\ndef app(grid, context):\n    json.loads('1,')\n")
    trace, said = log.split(processes.FAILED)
    raised = "JSONDecodeError: Extra data: line 1 column 2 (char 1)"
    file = tmp_path / "app" / "an_app.py"
    assert json.loads(said) == f"{file}, line 4: {raised}", log  # and not that of the library
    assert "Traceback (most recent call last):" in trace
    assert f'File "{file}", line 4' in trace
    assert trace.strip().endswith(raised)


@pytest.mark.slow
def test_an_app_that_ends_its_process_has_failed(tmp_path):
    code = "import sys\nclient = None\ndef app(grid, context):\n    sys.exit('no data here')\n"
    said = played(tmp_path, code).split(processes.FAILED)[1]
    assert json.loads(said) == f"{tmp_path / 'app' / 'an_app.py'}, line 4: SystemExit: no data here"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print({}[12])", "{file}, line 1: KeyError: 12"),
        ("\nimport of_nobody", "{file}, line 2: ModuleNotFoundError: No module named 'of_nobody'"),
        ("x = = 1", "{file}, line 1: SyntaxError: invalid syntax"),
        (
            "from fedpick import PowerOfChoice\nPowerOfChoice(m=3, d=2)",
            "PowerOfChoice: d must be at least m=3, got 2",
        ),
    ],
)
def test_the_reason_of_a_failure_has_the_line_of_the_app_unless_fedpick_says_it(tmp_path, monkeypatch, code, said):
    file = tmp_path / "failing_app.py"
    file.write_text(code)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises((KeyError, ImportError, SyntaxError, ValueError)) as error:
        load(str(tmp_path), "failing_app:app")
    assert reason(error.value, str(tmp_path)) == said.format(file=file)


def test_an_error_without_a_line_of_the_app_is_said_as_it_is():
    assert reason(RuntimeError("no Ray"), "app") == "RuntimeError: no Ray"


def test_a_trial_has_the_seats_of_the_app_unless_they_are_given():
    def selector(own, **given):
        return Trial(strategy="pow-d", seed=0, clients=10, folder="", **given).selector(own, rounds=5)

    assert (selector(PowerOfChoice(m=3, d=6)).m, selector(PowerOfChoice(m=3, d=6)).d) == (3, 6)
    assert selector(Rand(m=3)).d == 6
    assert (selector(PowerOfChoice(m=3, d=6), m=2).m, selector(PowerOfChoice(m=3, d=6), m=2).d) == (2, 6)
    assert selector(PowerOfChoice(m=2, d=3), m=4).d == 8  # where the app's own are too few
    assert selector(PowerOfChoice(m=3, d=6), d=9).d == 9
    assert selector(Rand(m=30)).d == 10  # an app for more clients than there are
    cooldown = Trial(strategy="cooldown(rand)", seed=0, clients=10, folder="", parameters={"rounds": 2})
    assert cooldown.selector(Rand(m=3), rounds=5).rounds == 2
    assert selector(Cooldown(PowerOfChoice(m=3, d=9))).d == 9  # of the strategy that a wrapper holds


def test_a_setting_of_a_strategy_is_that_of_the_one_which_a_wrapper_holds():
    given = {"rounds": 4, "d": 8, "m": 4}
    trial = Trial(strategy="cooldown(pow-d)", seed=0, clients=10, folder="", parameters=given)
    assert trial.selector(PowerOfChoice(m=3, d=6), rounds=5) == Cooldown(PowerOfChoice(m=4, d=8), rounds=4)
    plain = Trial(strategy="pow-d", seed=0, clients=10, folder="", parameters={"d": 8, "m": 4})
    assert plain.selector(PowerOfChoice(m=3, d=6), rounds=5) == PowerOfChoice(m=4, d=8)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"settings": ["selector.m=3"]}, {"m": 3}),
        ({"settings": ["selector.m=3", "selector.d=6"]}, {"m": 3, "d": [6]}),
        ({"settings": ["selector.d=[4, 6]"]}, {"d": [4, 6]}),
        ({"d": [4, 4]}, {"d": [4]}),
    ],
)
def test_seats_and_candidates_are_the_same_as_options_and_as_settings(given, same):
    one, other = (make_runs(read_app(EXAMPLE), ["rand", "pow-d"], clients=8, seeds=1, **each) for each in (given, same))
    assert one == other


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "with the pyproject.toml of a Flower app"),
        ("[project", "must be TOML"),
        ("[project]\nname = 'x'", r"must have serverapp = .package.module:app. in \[tool.flwr.app.components\]"),
    ],
)
def test_what_is_no_app_gets_one_sentence(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_app(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("digits",), "TASK must not be given with --app"),
        (("synthetic",), "TASK must not be given with --app"),
        (("--model", "mlp"), "--model must not be given with --app"),
        (("--set", "round=3"), "must be in the app's run config"),
        (("--set", "rounds=few"), "must be of the type of the app's own, 10, got 'few'"),
        (("--set", "selector.beta=1"), "must be a parameter of one of the strategies"),
        (("--strategies", "powd"), "did you mean 'pow-d'"),
        (("-m", "9"), "at most the 8 clients, got 9"),
        (("-m", "3", "-d", "2"), "d must be at least 3"),
        (("--set", "selector.m=9"), "at most the 8 clients, got 9"),
        (("-m", "4", "--set", "selector.m=3"), "selector.m must be given once, got -m and --set selector.m=3"),
        (("-d", "4", "--set", "selector.d=6"), "selector.d must be given once, got -d and --set selector.d=6"),
        (("--set", "rounds=4", "--set", "rounds=6"), "rounds must be given once, got --set rounds and --set rounds=6"),
        (("--set", "seed=5"), "seed must be left to --seeds, which begin at 0, got --set seed=5"),
        (
            ("--strategies", "rand", "-d", "3"),
            "compare: -d (selector.d) must be a parameter of one of the strategies, got 3",
        ),
        (("--seeds", "0"), "seeds must be at least 1"),
        (("--target", "101%"), "target of test_accuracy must be a part, such as 0.8 or 80%"),
        (("--federation-config", "supernodes=3"), "did you mean 'num-supernodes'"),
    ],
)
def test_wrong_usage_gets_one_sentence(tmp_path, arguments, sentence):
    answer = compare("--app", EXAMPLE, *K, *arguments, "-o", tmp_path / "out")
    assert answer.exit_code == 1
    assert sentence in " ".join(answer.output.split())
    assert not (tmp_path / "out" / "runs").exists()


def test_options_of_an_app_need_one(tmp_path):
    assert "must come with --app" in compare("--workers", 2, "-o", tmp_path).output


def test_ray_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "has_ray", lambda: False)
    answer = compare("--app", EXAMPLE, *K, "--seeds", 1, "-o", tmp_path)
    assert "pip install 'flwr[simulation]'" in answer.output


def test_the_machine_is_shared_by_as_many_runs_as_it_has_cores(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("fedpick.flower.simulation.machine.usable_cores", lambda: 8)
    plain = Machine.of([])
    assert [plain.at_once(runs) for runs in (0, 3, 100)] == [1, 3, 8]
    assert plain.backend(3)["init_args"] == {"address": "local", "num_cpus": 2}
    assert Machine.of(["client-resources-num-cpus=4"]).at_once(9) == 2
    assert Machine.of(["options.backend.client-resources.num-gpus=0.5"]).at_once(9) == 1
    assert Machine.of([], workers=3).at_once(9) == 3
    cluster = Machine.of(["init-args-address=10.0.0.1:6379"])
    assert cluster.at_once(9) == 1
    assert cluster.backend(1)["init_args"] == {"address": "10.0.0.1:6379"}
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert plain.backend(1)["init_args"] == {}


def test_the_number_of_clients_is_the_apps_own_where_it_says(folder):
    assert Machine.of([]).clients(read_app(folder)) == 10
    text = (folder / "pyproject.toml").read_text()
    federations = "\n[tool.flwr.federations]\ndefault = 'far'\n[tool.flwr.federations.far]\naddress = 'x'\n"
    federations += "[tool.flwr.federations.local-simulation]\noptions.num-supernodes = 6\n"
    (folder / "pyproject.toml").write_text(text + federations)
    assert Machine.of([]).clients(read_app(folder)) == 6
    assert Machine.of(["num-supernodes=5"]).clients(read_app(folder)) == 5


def test_what_a_client_draws_is_decided_by_run_round_and_client_alone(tmp_path, monkeypatch):
    (tmp_path / "drawing.py").write_text(
        "import numpy as np\n"
        "def app(message, context):\n"
        "    context.state = np.random.random()\n"
        "    return context.run_config['scale']\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))

    class Told:
        class metadata:  # noqa: N801
            message_type = "train"

        def __init__(self, **config):
            self.content = self
            self.config_records = {"config": config}

    def draw(seed, client, t):
        context = Context(1, 1, {"partition-id": client}, None, {})
        app = SeededClient(str(tmp_path), "drawing:app", {"scale": 3}, seed)
        assert app(Told(**{"server-round": t}), context) == 3
        assert context.run_config == {}  # Flower refuses it otherwise
        return context.state

    first = draw(0, 1, 2)
    np.random.seed(5)
    assert draw(0, 1, 2) == first
    assert len({first, draw(1, 1, 2), draw(0, 2, 2), draw(0, 1, 3)}) == 4


def test_what_an_app_draws_when_it_is_imported_is_decided_by_the_seed(tmp_path, monkeypatch):
    (tmp_path / "at_import.py").write_text(
        "import numpy as np\nDRAWN = np.random.random()\ndef app(message, context):\n    return DRAWN\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    told = SimpleNamespace(content=SimpleNamespace(config_records={}), metadata=SimpleNamespace(message_type="train"))

    def draw(seed):
        np.random.seed(None)
        sys.modules.pop("at_import", None)
        return SeededClient(str(tmp_path), "at_import:app", {}, seed)(told, Context(1, 1, {}, None, {}))

    assert draw(0) == draw(0) != draw(1)


def test_a_trial_that_was_interrupted_goes_on_with_the_same_evaluation_clients(tmp_path):
    def play(folder, *rounds):
        for number in rounds:
            random.seed(number)
            trial = Trial(strategy="rand", seed=0, clients=8, folder=str(tmp_path / folder), rounds=number)
            ours = Selecting(FedAvg(fraction_evaluate=0.25), Rand(m=2))
            with trial.under_way():
                ours.start(FakeGrid(plain_app(), range(8), seed=number), zeros())
        return [values["eval_clients_checksum"] for values in ours.history.measured.values()]

    whole = play("whole", 6)
    assert len(set(whole)) > 1
    assert play("interrupted", 2, 6) == whole


def test_runs_of_one_seed_that_began_with_different_models_are_told(tmp_path):
    ones = ArrayRecord({"w": Array(np.ones(3, np.float32))})
    for name, first in {"rand": zeros(), "pow-d": ones}.items():
        ours = Selecting(
            FedAvg(),
            strategy(name, m=2, **({"d": 4} if name == "pow-d" else {})),
            clients=4,
            wait=0.1,
            folder=tmp_path / name,
        )
        ours.start(FakeGrid(plain_app(), range(4)), first, num_rounds=2, timeout=0.5)
    store, other = RunStore(tmp_path / "rand"), RunStore(tmp_path / "pow-d")
    assert load_report(tmp_path / "rand").remarks == ()
    store.add(other.load(next(iter(other.identities()))))
    assert "Runs of seed 0 began with different models" in " ".join(load_report(tmp_path / "rand").remarks)


def test_progress_is_read_from_the_log(tmp_path):
    store = RunStore(tmp_path)
    (run,) = make_runs(read_app(EXAMPLE), ["pow-d"], clients=8, seeds=1, d=[6])
    assert processes._progress(run, store) == ("pow-d, d = 6, seed 0", 0, None)
    path = processes._log(run, store)
    path.parent.mkdir(parents=True)
    path.write_text("INFO: [ROUND 1/10]\nmore\nINFO: [ROUND 2/10]\n")
    assert processes._progress(run, store) == ("pow-d, d = 6, seed 0", 2, 10)


def test_a_run_that_fails_without_a_word_is_not_said_to_have_failed_as_the_time_before(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "has_ray", lambda: True)
    store = RunStore(tmp_path)
    (run,) = make_runs(read_app(EXAMPLE), ["rand"], clients=8, seeds=1)
    for code, why in (
        (f"import sys; sys.stderr.write({processes.FAILED + chr(34) + 'no data' + chr(34)!r}); sys.exit(1)", "no data"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with -9 and no round"),  # as where there is no memory left
    ):
        monkeypatch.setattr(processes, "COMMAND", code)
        failed = play_missing([run], store, Machine.of([]), lambda done, under_way: None)
        assert failed[run.identity].endswith(f"): {why}")


def test_a_run_that_waits_for_replies_ends_with_its_parent():
    code = (
        "import threading, time\n"
        "from fedpick.flower.simulation import play\n"
        "play.GRACE = 0.5\n"
        "def wait(request):\n"  # as Flower does: the server is a thread, for which Python waits
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    print('playing', flush=True)\n"
        "    time.sleep(60)\n"
        "play.play = wait\n"
        "play.main()\n"
    )
    line, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"playing\n"
        process.stdin.close()
        try:
            assert process.wait(timeout=20) == -signal.SIGKILL
        finally:
            process.kill()


def test_a_federation_says_whom_it_asked_what_they_answered_and_who_trained(monkeypatch, tmp_path, caplog):
    monkeypatch.syspath_prepend(EXAMPLE)
    client, server = (importlib.import_module(f"numpy_app.{kind}_app") for kind in ("client", "server"))
    settings = {**read_app(EXAMPLE).settings, "clients": 8, "d": 8, "rounds": 2, "folder": str(tmp_path)}
    grid = FakeGrid(client.app, range(8))

    def failing(message, answer):
        if message.metadata.message_type == "query.loss" and "arrays" in message.content:
            raise RuntimeError("no data today")
        return answer()

    caplog.set_level("INFO", logger="flwr")
    grid.faults[3] = failing
    server.app(grid, Context(1, 1, {}, RecordDict(), settings))
    report = load_report(tmp_path)
    assert [(each.number, len(each.asked)) for each in report.polls] == [(1, 8), (2, 7)]  # one is in quarantine
    for polled in report.polls:
        known = {k: loss for k, loss in zip(polled.asked, polled.answers, strict=True) if np.isfinite(loss)}
        assert sorted(polled.trained) == sorted(sorted(known, key=known.get)[-2:])  # the two highest losses
        for k, loss in known.items():
            if polled.number == 1:
                _, _, y = client.load(Context(1, 1, {"partition-id": k}, RecordDict(), {}))
                assert loss == pytest.approx(np.mean(y**2), rel=1e-5)
    page = render_page(report)
    assert "Why these clients" in page
    assert "partition-id=3: silent" in page
    assert "the fraction and minimum of nodes to train, and their weights, below do not count" in caplog.text


def test_a_page_tells_of_those_whose_update_does_not_count(tmp_path):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only("train", raising)  # whose loss is the highest
    Selecting(
        FedAvg(fraction_evaluate=0.0), PowerOfChoice(m=2, d=4), folder=tmp_path, poll_timeout=0.2, wait=0.0
    ).start(grid, zeros(), num_rounds=1, timeout=0.3)
    report = load_report(tmp_path)
    assert [(each.trained, each.lost) for each in report.polls] == [((2,), 1)]
    assert ">2, 1 more, without an update that counts<" in render_page(report).replace("partition-id=", "")


def federation(folder, faults, rounds=2, **options):
    """A federation of four clients, stored in a folder."""
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = faults
    Selecting(FedAvg(), PowerOfChoice(m=2, d=4), folder=folder, poll_timeout=0.2, wait=0.0, outage=30, **options).start(
        grid, zeros(), num_rounds=rounds, timeout=0.3
    )
    return grid


def test_a_page_and_the_terminal_tell_of_lost_updates_and_of_evaluations_by_different_numbers(tmp_path):
    federation(tmp_path / "good", {})
    assert load_report(tmp_path / "good").remarks == ()
    said = ["1 of 4 updates did not come back, or could not be used."]
    federation(tmp_path / "error", {3: only("train", own_error)})  # who answers, and evaluates
    assert list(load_report(tmp_path / "error").remarks) == said
    federation(tmp_path / "gone", {3: only("train", silent), 2: mute_in_round_2})
    said += [
        "Evaluations on clients are of 2 to 3 clients: what they measure is not of the same clients in all rounds."
    ]
    report = load_report(tmp_path / "gone")
    assert list(report.remarks) == said == report.summary()["remarks"]
    page = html.unescape(render_page(report))
    answer = CliRunner().invoke(command, ["report", str(tmp_path / "gone")])
    for sentence in said:
        assert sentence in page
        assert f"note: {sentence}\n" in answer.output


def test_a_page_tells_who_trained_in_which_rounds_nobody_did_and_who_never_came(tmp_path):
    def mute(message, answer):
        asked = "arrays" in message.content and message.content["config"]["server-round"] == 2
        return None if asked else answer()

    faults = dict.fromkeys(range(4), only("query.loss", mute))
    federation(tmp_path, faults, fallback="skip", clients=5)
    report = load_report(tmp_path)
    assert report.notes == ((2, "no client to train, because no candidate answered the poll; the model stays"),)
    assert report.client_names[4] == "client 4, never here"
    page = html.unescape(render_page(report))
    assert report.notes[0][1] in page
    assert "Who trained, against who holds the data" in page
    assert "of all updates that came back, the part that it sent" in page
    assert "None" not in page.split("Details")[0].split("<script")[0]
    federation(tmp_path / "more", faults, fallback="skip", clients=5, seed=1)
    more = RunStore(tmp_path / "more")
    RunStore(tmp_path).add(more.load(next(iter(more.identities()))))
    whose = [why.split(":")[0] for _, why in load_report(tmp_path).notes]
    assert whose == ["pow-d, seed 0", "pow-d, seed 1"]


def own_error(message, answer):
    return Message(Error(code=2, reason="no memory"), reply_to=message)


def mute_in_round_2(message, answer):
    late = message.metadata.message_type == "evaluate" and message.content["config"]["server-round"] == 2
    return None if late else answer()


@pytest.mark.slow
def test_flowers_simulation_plays_the_app_and_ends_with_its_parent(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="the simulation needs pip install 'flwr[simulation]'")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    arguments = ["--app", EXAMPLE, *K, "--strategies", "rand,pow-d", "--seeds", 1, "-o", tmp_path / "out"]
    line = [sys.executable, "-m", "fedpick", "compare", *map(str, arguments)]
    begun = subprocess.Popen([*line, "--rounds", "200"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 200
    while time.monotonic() < end and not list(tmp_path.glob("out/under-way/*/state/round-00000003.state")):
        time.sleep(0.2)
    children = _children(begun.pid)
    begun.kill()
    begun.wait()
    assert len(children) == 2
    while time.monotonic() < end and any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.2)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    done = subprocess.run([*line, "--rounds", "4"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "rounds to" in done.stdout
    store = RunStore(tmp_path / "out")
    (run,) = make_runs(read_app(EXAMPLE), ["pow-d"], clients=8, seeds=1, rounds=4)
    before = store.load(run.identity)
    shutil.rmtree(store.folder / "runs" / run.identity)
    play_missing([run], store, Machine.of([]), lambda done, under_way: None)
    again = store.load(run.identity)
    for name in before.arrays.keys() - {"records/seconds"}:  # the same, bit for bit, also on the whole machine
        np.testing.assert_array_equal(before.arrays[name], again.arrays[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_an_interrupted_comparison_of_an_app_goes_on_to_the_same_table(end, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="the simulation needs pip install 'flwr[simulation]'")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    fixed = ["--app", EXAMPLE, *K, "--strategies", "rand,pow-d", "--seeds", 1, "--rounds", 12]

    def begin(folder):
        line = [sys.executable, "-m", "fedpick", "compare", *map(str, fixed), "-o", str(tmp_path / folder)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole, error = begin("whole").communicate(timeout=300)
    assert "report.html has the charts" in whole, error
    broken = begin("broken")
    limit = time.monotonic() + 200
    while time.monotonic() < limit and not list(tmp_path.glob("broken/under-way/*/state/round-0000000[3-9].state")):
        time.sleep(0.1)
    broken.send_signal(end)
    _, error = broken.communicate(timeout=60)
    assert broken.returncode == (-end if end == signal.SIGKILL else 128 + end), error
    assert ("the same command resumes from there" in error) == (end == signal.SIGINT)
    assert not list(tmp_path.glob("broken/runs/*"))  # it was in the middle

    again, logs = begin("broken"), {}
    while again.poll() is None:
        for log in tmp_path.glob("broken/under-way/*/log.txt"):
            with contextlib.suppress(OSError):  # a run that has just ended
                logs[log.parent.name] = log.read_text()
        time.sleep(0.1)
    table, error = again.communicate()
    resumed = [int(rounds) for log in logs.values() for rounds in re.findall(r"resuming after (\d+) rounds", log)]
    assert max(resumed) >= 3
    for log in logs.values():
        played = re.findall(r"fedpick round (\d+): .* train loss", log)
        assert len(played) == len(set(played)), "a round was played twice"
    lines = [text.splitlines()[:-1] for text in (whole, table)]  # the last says the folder and the seconds
    assert lines[0] == lines[1], error
    one, other = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "broken"))
    for row in (*one["strategies"], *other["strategies"]):
        del row["seconds_to_target"]  # of a clock
    same = ("answer", "target", "strategies", "experiments", "runs")
    assert {name: one[name] for name in same} == {name: other[name] for name in same}


def _children(pid):
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listing.splitlines() if int(line.split()[1]) == pid]


def test_data_beside_the_code_of_an_app_are_a_part_of_it(tmp_path):
    folder = tmp_path / "app"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    plain = read_app(folder).digest
    (folder / "data.csv").write_text("a,b\n1,2\n")
    first = read_app(folder).digest
    (folder / "data.csv").write_text("a,b\n1,3\n")
    assert len({plain, first, read_app(folder).digest}) == 3
    (folder / "data.csv").unlink()
    made_up([3, 4]).to_csv(folder / "runs.csv")  # what --csv writes is none
    assert read_app(folder).digest == plain


def test_code_beside_a_folder_called_runs_is_a_part_of_the_app_and_stored_runs_are_not(folder):
    package = folder / "numpy_app"
    (package / "runs").mkdir()  # as TensorBoard makes one
    before = read_app(folder).digest
    (package / "client_app.py").write_text("# edited")
    after = read_app(folder).digest
    assert before != after
    for place in (folder, package, folder / "comparison"):  # -o . and the like
        RunStore(place).save("a1", {}, {"x": np.zeros(1)}, {})
        (place / "comparisons").mkdir()
        (place / "comparisons" / "first.json").write_text("{}")
    assert read_app(folder).digest == after
    (package / "client_app.py").write_text("# edited again")
    assert read_app(folder).digest not in (before, after)


def test_a_strategy_of_ones_own_that_was_edited_is_another_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "from fedpick import pytree, PowerOfChoice\n\n@pytree\nclass Mine(PowerOfChoice):\n    'Mine.'\n"

    def identities(text):
        (tmp_path / "edited_strategy.py").write_text(text)
        sys.modules.pop("edited_strategy", None)  # as in another process
        importlib.invalidate_caches()
        names = ["rand", "edited_strategy:Mine", "cooldown(edited_strategy:Mine)"]
        return [run.identity for run in make_runs(read_app(EXAMPLE), names, clients=8, seeds=1)]

    first = identities(code)
    assert identities(code) == first
    assert [one == other for one, other in zip(first, identities(f"{code}\n# 2"), strict=True)] == [True, False, False]


def test_a_strategy_of_ones_own_without_its_form_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    head = "from dataclasses import dataclass\nfrom fedpick import Rand\n\n"
    code = f"{head}@dataclass(frozen=True)\nclass Plain(Rand):\n    pass\n"
    (tmp_path / "plain_strategy.py").write_text(code)
    with pytest.raises(
        ValueError, match=r"^compare: plain_strategy:Plain must be .* decorate its class with fedpick.pyt"
    ):
        make_runs(read_app(EXAMPLE), ["rand", "plain_strategy:Plain"], clients=8, seeds=1)


def test_in_a_trial_clients_are_known_by_what_they_report_as_node_ids_are_random(tmp_path):
    ours = Selecting(FedAvg(), Rand(m=2), identity="node")
    trial = Trial(strategy="rand", seed=0, clients=4, folder=str(tmp_path))
    assert trial.take_over(ours.adapter, 2).options.identity == "reported"


def test_in_a_trial_training_does_not_time_out_because_clients_wait_for_their_turn(tmp_path):
    for i, given in enumerate([{"timeout": 2.0}, {}]):
        grid = FakeGrid(plain_app(), range(4))
        trial = Trial(strategy="rand", seed=0, clients=4, folder=str(tmp_path / str(i)))
        with trial.under_way():
            Selecting(FedAvg(), Rand(m=2)).start(grid, zeros(), num_rounds=1, **given)
        assert {message.metadata.ttl for _, message in grid.log if message.metadata.message_type == "train"} == {3600.0}


def test_an_app_may_start_its_strategy_again_and_again(tmp_path):
    def play(starts, folder, trial):
        ours, arrays = Selecting(FedAvg(), Rand(m=2), folder=folder), zeros()
        with trial.under_way() if trial is not None else contextlib.nullcontext():
            for _ in range(starts):
                arrays = ours.start(FakeGrid(plain_app(), range(4)), arrays, num_rounds=1).arrays
        return len(ours.history.rows), arrays["w"].numpy().tolist()

    plain = play(3, tmp_path / "plain", None)
    assert plain[0] == 3
    assert play(2, tmp_path / "folder", None)[0] == 2
    assert play(3, tmp_path / "folder", None) == plain  # it resumes
    trial = Trial(strategy="rand", seed=0, clients=4, folder=str(tmp_path / "trial"))
    assert play(2, None, trial)[0] == 2
    assert play(3, None, trial) == plain
