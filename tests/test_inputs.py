"""What a user can get wrong ends in one sentence: sizes, sweeps, nesting, objects that are none, folders, terminals."""

import errno
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from typer.testing import CliRunner

from fedpick import Clients, PowerOfChoice, Rand, check_selector, pick, round_keys
from fedpick.cli import app
from fedpick.cli._common import command_line, console
from fedpick.compare import Choices
from fedpick.experiment import Experiment, Metrics, from_plain, load_results, missing, read, run
from fedpick.flower import Selecting
from fedpick.results import TensorBoard, concatenate, interval, median_interval, sign_test
from fedpick.sim import (
    CNN,
    MLP,
    Bernoulli,
    Devices,
    Failures,
    Federation,
    Local,
    PowerLaw,
    Quadratic,
    QuadraticModel,
    ResNet,
    Synthetic,
    TraceFile,
    read_devices,
    simulate,
)
from fedpick.storage import RunStore
from fedpick.theory import random_logistic

PLAIN = {
    "rounds": 2,
    "data": {"kind": "quadratic", "K": 6},
    "model": {"kind": "quadratic"},
    "local": {"tau": 2, "b": 1, "eta": 1e-4},
    "selector": {"kind": "rand", "m": 2},
}


SEEDS = "1 to 100,000 runs, or the seeds themselves, such as [20240101]"
PROJECT = Path(__file__).parents[1]
PER_SEED = "one number per seed, inf where a target was not reached"


def experiment(**changes):
    return Experiment(Quadratic(K=3), QuadraticModel(), Rand(2), Local(1, 1, 1e-3), rounds=1, **changes)


X, Y, CLIENT = np.ones((6, 2), np.float32), np.arange(6) % 2, np.arange(6) % 3


def arrays(x=X, y=Y, client=CLIENT, **options):
    return Federation.from_arrays(x, y, client, **options)


def played(**options):
    given = {"federation": Quadratic(K=4), "model": QuadraticModel(), "selector": Rand(2), "local": Local(1, 1, 1e-3)}
    return simulate(**{**given, "rounds": 1, **options})


def decided(**changes):
    given = {"keys": round_keys(0, 0), "state": (), "clients": Clients(np.ones(3), np.ones(3, bool)), "poll": None}
    return pick(PowerOfChoice(m=1, d=2), **{**given, **changes})


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: arrays(x=3), "Federation: x must have a row per sample, got 3"),
        (lambda: arrays(y=3), "Federation: y must have a row per sample, got 3"),
        (lambda: arrays(client=None), "Federation: client must have a row per sample, got None"),
        (lambda: arrays(x=[[1], [1, 2]]), "Federation: x must be an array with a row per sample, got [[1], [1, 2]]"),
        (lambda: arrays(test=3), "Federation: test must be a pair of inputs and labels, got 3"),
        (lambda: arrays(test=(X, Y, CLIENT)), "Federation: test must be a pair of inputs and labels"),
        (
            lambda: arrays(test=(X.astype(np.uint8), Y)),
            "Federation: x and test x must both be bytes (uint8), or neither",
        ),
        (lambda: arrays(test_share=2), "Federation: test_share must be at least 0 and below 1, got 2"),
        (lambda: arrays(test=(X, Y), test_share=0.1), "Federation: test_share must be 0 where test is given, got 0.1"),
        (lambda: arrays(y=Y[:3], test_share=0.5), "Federation: y must have one entry per sample (6), got shape (3,)"),
        (lambda: arrays(prepare=3), "Federation: prepare must be one such as fedpick.sim.pixels, got 3"),
        (
            lambda: Federation.from_partition(X, Y, []),
            "Federation: partition must be one such as Dirichlet(K=30, alpha=0",
        ),
        (lambda: arrays(names=3), "Federation: names must be a Names, got 3"),
        (lambda: arrays(num_clients=2**31), "Federation: num_clients must be at most the 6 samples, got 2147483648"),
        (
            lambda: arrays(y=Y * 2_000_000_000, classes=2_000_000_001),
            "Federation: classes must be at most 1,000,000, got 2000000001",
        ),
        *(
            (
                lambda values=values: median_interval(values),
                f"median_interval: values must be {PER_SEED}, got {values!r}",
            )
            for values in ([], "abc", None, 3.0, [[1.0, 2.0]])
        ),
        *(
            (lambda options=options: median_interval([1.0, 2.0], **options), f"median_interval: {sentence}")
            for options, sentence in (
                ({"level": -1}, "level must be above 0 and below 1, got -1"),
                ({"level": 95}, "level must be above 0 and below 1, got 95"),
                ({"draws": 0}, "draws must be at least 1, got 0"),
                ({"seed": -1}, "seed must be at least 0, got -1"),
            )
        ),
        (lambda: interval([1, 2, 3], level=95), "interval: level must be above 0 and below 1, got 95"),
        (lambda: interval([1], level=0), "interval: level must be above 0 and below 1, got 0"),
        (lambda: sign_test([1, 2], [1]), "sign_test: gained must be a whole number, got [1, 2]"),
        (lambda: sign_test(1, -1), "sign_test: lost must be at least 0, got -1"),
        (lambda: concatenate([]), "concatenate: results must be a list of one Result or more, got []"),
        (lambda: played().plot(["loss"]), "Result: metric must be one of 'loss', "),
        (lambda: played().plot(3), "Result: metric must be one of 'loss', "),
        (lambda: played().rounds_to("loss", 2.0, where=3), "Result: where must be True or False for each of the 2 ev"),
        (lambda: TensorBoard(3), "TensorBoard: folder must be a path, got 3"),
        (lambda: random_logistic(K=-1), "random_logistic: K must be at least 1, got -1"),
        (lambda: random_logistic(K=2, seed=-1), "random_logistic: seed must be at least 0, got -1"),
        (lambda: CNN(channels=8), "CNN: channels must be a tuple of widths, got 8"),
        (lambda: ResNet(channels=8), "ResNet: channels must be a tuple of widths, got 8"),
        (
            lambda: run(experiment(), "never", watch=3),
            "run: watch must be something to call with a batch and a Result, got 3",
        ),
        (lambda: read(PROJECT / "pyproject.toml", [3]), "experiment: settings must be a text, got 3"),
        *(
            (
                lambda static=static: check_selector(Rand(2), static=static),
                "check_selector: static must be a tuple of f",
            )
            for static in (("dd",), "m", 3)
        ),
        (lambda: decided(keys=7), "pick: keys must be a RoundKeys, such as round_keys(seed, t), got 7"),
        (lambda: decided(clients=None), "pick: clients must be a Clients, got None"),
        (lambda: decided(poll=3), "pick: poll must be one such as lambda key, asked: losses, got 3"),
        (lambda: run(3, "x"), "run: experiments must be an Experiment, or several, got 3"),
        (lambda: run({}, "x"), "run: experiments must be an Experiment, or several, got {}"),
        (lambda: run([3], "x"), "run: experiments must be an Experiment, got 3"),
        (lambda: run([], 0), "run: folder must be a path, got 0"),
        (lambda: played(availability=1), "simulate: availability must be one, such as Always(), got 1"),
        (lambda: played(checkpoint=0), "simulate: checkpoint must be a path, got 0"),
        (lambda: played(checkpoint_after=5), "simulate: checkpoint_after must come with checkpoint, got 5 without one"),
        (lambda: played(progress="yes"), "simulate: progress must be True or False, got 'yes'"),
        (lambda: played(until=("loss", float("nan"))), "simulate: until must be a pair of one of loss, test_loss, "),
        (lambda: played().to_csv(3), "Result: path must be a path, got 3"),
        (lambda: played().to_parquet(None), "Result: path must be a path, got None"),
        (lambda: read(3), "experiment: path must be a path, got 3"),
        (
            lambda: read("experiment.toml", "local.tau=3"),
            "experiment: settings must be a list, such as ['selector.d=12'], got 'local.tau=3'",
        ),
        (lambda: read("experiment.toml", 3), "experiment: settings must be a list, such as ['selector.d=12'], got 3"),
        *(
            (lambda seeds=seeds: played(seeds=seeds), f"simulate: seeds must be {SEEDS}, got {seeds}")
            for seeds in (10**9, 2**70, 20240101, float("inf"))
        ),
        (lambda: played(jit=3), "simulate: jit must be True or False, got 3"),
        (
            lambda: played(selector=None),
            "simulate: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got None",
        ),
        (
            lambda: played(rounds=2**40),
            "simulate: the records of 1,099,511,627,776 rounds in 1 runs must fit into memory",
        ),
        (lambda: Synthetic(dim=10**8).federation(), "Synthetic: the data of K=30 clients must fit into memory"),
        (lambda: Synthetic(seed=-1), "Synthetic: seed must be at least 0, got -1"),
        (
            lambda: simulate(arrays(), MLP((10**9, 10**6)), Rand(2), Local(1, 1, 1e-3), rounds=1),
            "simulate: the models of 1 runs must fit into memory",
        ),
        (lambda: Selecting(FedAvg(), None), "Selecting: selector must be a strategy, such as PowerOfChoice(m=3, d=6)"),
        (lambda: Selecting(FedAvg(), Rand), "Selecting: selector must be a strategy, such as PowerOfChoice(m=3, d=6)"),
        (lambda: Selecting(FedAvg(), Rand(2), loss_range=0), "Selecting: loss_range must be (lowest, highest), got 0"),
        (lambda: Selecting(FedAvg(), Rand(2), folder=0), "Selecting: folder must be a path, got 0"),
        (lambda: Selecting(FedAvg(), Rand(2), sizes=3), "Selecting: sizes must be a Mapping of identities and numbers"),
        (
            lambda: Devices.lognormal(3, spread=float("nan")),
            "Devices: spread must be at least 0 and at most 10, got nan",
        ),
        (
            lambda: Devices(latency=np.array([0.1, np.inf])),
            "Devices: latency must be finite where there is one for each",
        ),
        (lambda: Bernoulli([0.5, 2.0]), "Bernoulli: probability must be at least 0 and at most 1, got "),
        (lambda: Failures(["a"]), "Failures: probability must be a number, got ['a']"),
        (lambda: Metrics(target="loss", value=float("nan")), "metrics: value must be finite, got nan"),
        (
            lambda: from_plain({**PLAIN, "data": nested(3000, lambda v: {"a": v})}),
            "must be at most 30 deep in each other",
        ),
        (lambda: from_plain({**PLAIN, "rounds": nested(3000, lambda v: [v])}), "must be at most 30 deep in each other"),
        (lambda: from_plain({**PLAIN, "a.b": [4]}), "experiment: a.b is unknown"),
        (lambda: experiment(metrics=["f1"]), "experiment: metrics must be a Metrics, got ['f1']"),
        (lambda: load_results(experiment(), "results"), "load_results: store must be a RunStore, such as fedpick.stor"),
        (
            lambda: missing([experiment()], "results"),
            "missing: store must be a RunStore, such as fedpick.storage.RunSt",
        ),
        (lambda: Choices(d=6), "compare: d must be a list or a tuple, got 6"),
        (lambda: Choices(strategies="rand"), "compare: strategies must be a list or a tuple, got 'rand'"),
        (lambda: TraceFile("a.json", seed=-1), "TraceFile: seed must be at least 0, got -1"),
        (lambda: read_devices("a.json", 3, seed="a"), "Devices: seed must be a whole number, got 'a'"),
        (lambda: read_devices("a.json", 3, seed=-1), "Devices: seed must be at least 0, got -1"),
        (lambda: read_devices("a.json", 0), "Devices: num_clients must be at least 1, got 0"),
        (lambda: from_plain({**PLAIN, "seed.s": [4, 5]}), "experiment: seed.s is unknown"),
        (
            lambda: from_plain({**PLAIN, "local": {name: list(range(1, 61)) for name in ("tau", "b", "eta")}}),
            "experiment: sweeps must give at most 10,000 experiments, got 216,000",
        ),
        (
            lambda: from_plain({**PLAIN, "seeds": 90_000, "rounds": list(range(1, 61))}),
            "experiment: seeds and sweeps must give at most 1,000,000 runs, got 5,400,000",
        ),
    ],
)
def test_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", "[" * 100_000),
        ("deep.toml", "a = " + "[" * 5000),
        ("deep.toml", f"{'a.' * 5000}a = 1"),
        ("deep.json", '{"a":' * 900 + "1" + "}" * 900),
        ("long.toml", f"rounds = {'1' * 5000}"),
    ],
)
def test_files_that_nest_deeply_are_refused(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"experiment: .*(must be (TOML|JSON)|at most 30 deep)") as caught:
        read(tmp_path / name)
    assert len(str(caught.value)) < 600


def test_settings_that_nest_deeply_are_refused(tmp_path):
    (tmp_path / "e.toml").write_text("rounds = 2")
    for setting in (f"rounds={'[' * 5000}", f"{'a.' * 5000}a=1", f"rounds={'[' * 50}{']' * 50}"):
        with pytest.raises(ValueError, match="experiment: "):
            read(tmp_path / "e.toml", [setting])


def test_a_power_law_that_underflows_still_deals_everything_out():
    assert np.bincount(PowerLaw(3, 1e-6)(np.zeros(20, int)), minlength=3).sum() == 20


def test_clients_of_ten_digits_are_names():
    federation = arrays(client=[0, 1, 9_000_000_000] * 2)
    assert federation.num_clients == 3
    assert federation.names.clients == ("0", "1", "9000000000")


def test_a_table_shows_names_that_look_like_markup(capsys):
    from rich.table import Table

    table = Table(title="lr [/x]")
    table.add_column("[bold]")
    table.add_row("[/x] [red]")
    console().print(table)
    shown = capsys.readouterr().out
    for text in ("lr [/x]", "[bold]", "[/x] [red]"):
        assert text in shown


def test_run_shows_what_looks_like_markup(tmp_path):
    lines = ['name = "lr [/x]"', "rounds = 2", 'data = { kind = "quadratic", K = 4 }', 'model = { kind = "quadratic" }']
    lines += [
        "local = { tau = 1, b = 1, eta = 1e-4 }",
        'selector = [{ kind = "rand", m = 1 }, { kind = "uniform", m = 1 }]',
    ]
    (tmp_path / "e.toml").write_text("\n".join(lines))
    answer = CliRunner().invoke(app, ["run", str(tmp_path / "e.toml"), "-o", str(tmp_path / "out")])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    "given",
    ["-o /secret", "-o/secret", "--output=/secret", "--output /secret", "-q -o /secret", "-qo/secret", "-qo /secret"],
)
def test_paths_of_this_machine_are_no_part_of_the_command(given, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fedpick", "compare", "digits", *given.split(), "-d", "6"])
    assert command_line() == "fedpick compare digits -d 6"


@pytest.fixture
def no_space(monkeypatch):
    def begin():
        def refuse(*arguments, **options):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
        monkeypatch.setattr(tempfile, "mkdtemp", refuse)

    return begin


def test_a_folder_that_cannot_be_written_is_named_and_its_runs_are_shown(tmp_path, no_space):
    experiments = from_plain(PLAIN)
    run(experiments, tmp_path)
    no_space()
    answer = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert answer.exit_code == 1
    assert "rand" in answer.output
    assert f"report: '{tmp_path}/report.html' cannot be written (No space left on device)" in answer.output
    with pytest.raises(OSError, match=r"store: '.*' cannot be written \(No space left on device\)"):
        run(from_plain({**PLAIN, "rounds": 3}), tmp_path)


def test_a_lock_that_cannot_be_had_names_its_file(tmp_path, monkeypatch):
    store = RunStore(tmp_path)

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with pytest.raises(OSError, match=r"store: '.*lock' cannot be locked \(Read-only file system\)"), store.locked():
        pass
    with pytest.raises(OSError, match=r"store: '.*lock' cannot be locked \(Read-only file system\)"):
        store.occupy(owner="test")


def test_a_long_value_is_shortened_and_in_one_line():
    with pytest.raises(ValueError, match=r"Rand: m must be a whole number, got array") as caught:
        Rand(np.ones((300, 300)) * 0.123456)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
    assert PowerOfChoice(2, 3).m == 2
