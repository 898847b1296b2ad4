"""A server that is killed goes on where it was, with the picks that it would have made; and it keeps a record."""

import json
import logging
import math
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from support.fake_grid import FakeGrid, only, plain_app, silent, zeros

from fedpick import PowerOfChoice, Rand, pytree, static, strategy
from fedpick.flower import Selecting, SelectingMixin
from fedpick.flower.clients import ClientTable
from fedpick.results import Result
from fedpick.storage import RunStore

INNER = {
    "FedAvg": lambda: flower.FedAvg(fraction_evaluate=0.0),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0, eta=0.3),
    "FedAvgM": lambda: flower.FedAvgM(fraction_evaluate=0.0, server_momentum=0.9),
    "DP": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedAdam(fraction_evaluate=0.0), noise_multiplier=0.0, num_sampled_clients=2, initial_clipping_norm=0.3
    ),
}
SELECTORS = ["rand", "pow-d", "rpow-d", "afl"]


class KilledError(Exception):
    """The server dies."""


def started(
    folder, rounds, inner="FedAvg", selector=PowerOfChoice(m=2, d=4), grid_seed=0, dies_in=None, clients=8, app=("", "")
):
    """A server and its federation; it may die while round ``dies_in`` is being trained."""
    grid = FakeGrid(plain_app(), range(clients), seed=grid_seed)
    grid.app_run.fab_id, grid.app_run.fab_hash = app
    ours = Selecting(INNER[inner](), selector, seed=4, wait=0.0, poll_timeout=0.2, folder=folder)
    if dies_in is not None:
        honest = ours.aggregate_train

        def aggregate_train(server_round, replies):
            if server_round == dies_in:
                raise KilledError
            return honest(server_round, replies)

        ours.aggregate_train = aggregate_train
    try:
        result = ours.start(grid, zeros(), num_rounds=rounds, timeout=0.5)
    except KilledError:
        result = None
    return ours, grid, result


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        pytest.param(name, inner, marks=() if name == "pow-d" or inner == "FedAvg" else pytest.mark.slow)
        for name in SELECTORS
        for inner in INNER
    ],
)
def test_a_killed_server_goes_on_with_the_picks_that_it_would_have_made(tmp_path, name, inner):
    selector = strategy(name, m=2, **({"d": 4} if "pow" in name else {}))
    whole, _, expected = started(tmp_path / "whole", 8, inner, selector)
    started(tmp_path / "killed", 8, inner, selector, dies_in=4)
    again, grid, found = started(tmp_path / "killed", 8, inner, selector, grid_seed=9)
    assert [row.clients for row in again.history.rows] == [row.clients for row in whole.history.rows]
    assert len(grid.sent("train")) == 2 * 5  # rounds 4 to 8 and no others
    np.testing.assert_array_equal(found.arrays["w"].numpy(), expected.arrays["w"].numpy())


def test_a_run_that_is_done_is_not_done_again_and_can_be_made_longer(tmp_path):
    _, _, first = started(tmp_path, 3)
    _, grid, again = started(tmp_path, 3)
    assert grid.log == []
    np.testing.assert_array_equal(first.arrays["w"].numpy(), again.arrays["w"].numpy())
    longer, grid, _ = started(tmp_path, 5)
    assert len(grid.sent("train")) == 4
    assert len(longer.history.rows) == 5


def test_quarantine_and_sizes_survive_and_are_kept_by_stable_id(tmp_path):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only("query.loss", lambda m, answer: None if "arrays" in m.content else answer())
    options = {"seed": 4, "wait": 0.0, "poll_timeout": 0.2, "folder": tmp_path, "quarantine": 5}
    Selecting(INNER["FedAvg"](), PowerOfChoice(m=2, d=4), **options).start(grid, zeros(), num_rounds=1, timeout=0.5)
    again = Selecting(INNER["FedAvg"](), PowerOfChoice(m=2, d=4), **options)
    other = FakeGrid(plain_app(), range(4), seed=7)
    again.start(other, zeros(), num_rounds=3, timeout=0.5)
    table = again.adapter.state.clients
    assert table.size.tolist() == [10.0, 20.0, 30.0, 40.0]
    assert 3 not in other.sent("train")
    assert not table.available()[3]


def damaged(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "one bit":
        path.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    elif how == "other format":
        path.write_bytes(b'{"format": "cooking recipes"}\n')
    else:
        head, _, payload = content.partition(b"\n")
        plain = json.loads(head)
        plain[how] = 99 if how == "version" else "somebody else"
        path.write_bytes(json.dumps(plain).encode() + b"\n" + payload)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("truncated", "is not a complete fedpick file (its checksum is wrong)"),
        ("empty", "is not a complete fedpick file"),
        ("one bit", "is not a complete fedpick file (its checksum is wrong)"),
        ("other format", "is not a complete fedpick file (its format is 'cooking recipes')"),
        ("version", "must be of version 2, got 99"),
        ("owner", "belongs to another run: its settings differ from these"),
    ],
)
def test_a_state_that_is_not_whole_or_foreign_is_refused_and_the_one_before_is_used(tmp_path, how, sentence, caplog):
    whole, _, expected = started(tmp_path / "whole", 6)
    started(tmp_path / "other", 4)
    states = sorted((tmp_path / "other" / "state").glob("*.state"))
    assert [path.name for path in states] == ["round-00000003.state", "round-00000004.state"]
    damaged(states[-1], how)
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        again, grid, found = started(tmp_path / "other", 6)
    assert sentence in caplog.text
    assert "resuming after 3 rounds" in caplog.text
    assert len(grid.sent("train")) == 2 * 3
    np.testing.assert_array_equal(found.arrays["w"].numpy(), expected.arrays["w"].numpy())
    assert [row.clients for row in again.history.rows] == [row.clients for row in whole.history.rows]


def test_a_folder_of_another_federation_is_not_overwritten(tmp_path):
    started(tmp_path, 3)
    which = r"selector was PowerOfChoice\(m=2, d=4, .*\), and is now PowerOfChoice\(m=2, d=5, .*\)"
    with pytest.raises(ValueError, match=rf"differ from these \({which}\); give this federation a folder of its own"):
        started(tmp_path, 3, selector=PowerOfChoice(m=2, d=5))


def test_a_folder_of_another_app_is_refused_and_an_app_that_has_changed_is_told(tmp_path, caplog):
    started(tmp_path, 2, app=("@me/clinic", "f1"))
    folder = re.escape(repr(str(tmp_path)))
    which = f"folder {folder} is of the app @me/clinic, and this is @me/variant; give this one a folder of its own"
    with pytest.raises(ValueError, match=which):
        started(tmp_path, 4, app=("@me/variant", "f2"))
    same, *_ = started(tmp_path, 3, app=("@me/clinic", "f1"))
    said = "resumed after the app had changed, in its code or its settings"
    assert said not in caplog.text
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        edited, *_ = started(tmp_path, 4, app=("@me/clinic", "f2"))
    assert f"resuming after 3 rounds, in {str(tmp_path)!r}" in caplog.text
    assert said in caplog.text
    assert (same.history.notes, edited.history.notes) == ({}, {4: said})
    unknown, *_ = started(tmp_path, 5)  # from a Python session
    assert len(unknown.history.rows) == 5


def test_rounds_that_were_all_played_before_are_told(tmp_path, caplog):
    started(tmp_path, 2)
    assert "nobody trains" not in caplog.text
    _, grid, _ = started(tmp_path, 2)
    assert not grid.sent("train")
    assert "num_rounds is 2, all of which were played before: nobody trains" in caplog.text


def test_a_folder_of_broken_states_alone_begins_anew(tmp_path, caplog):
    started(tmp_path, 1)
    (state,) = (tmp_path / "state").glob("*.state")
    damaged(state, "truncated")
    _, grid, _ = started(tmp_path, 2)
    assert len(grid.sent("train")) == 4
    assert "; skipped" in caplog.text


def test_a_disk_that_cannot_be_written_to_is_said(tmp_path):
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(OSError, match=r"Selecting: state.* cannot be written"):
        started(tmp_path, 1)


def test_the_record_is_read_by_the_store_as_a_simulation_is(tmp_path):
    grid = FakeGrid(plain_app(), range(4))
    ours = Selecting(flower.FedAvg(), PowerOfChoice(m=2, d=4), seed=4, wait=0.0, poll_timeout=0.2, folder=tmp_path)
    grid.faults[3] = only("train", silent)
    evaluate = lambda server_round, arrays: MetricRecord({"loss": 3.0 - server_round, "accuracy": 0.5})  # noqa: E731
    ours.start(grid, zeros(), num_rounds=3, timeout=0.3, evaluate_fn=evaluate)
    store = RunStore(tmp_path)
    (identity,) = store.identities()
    stored = store.load(identity)
    result = Result.from_arrays(stored.about["seed"], stored.about["model_bytes"], stored.arrays)
    assert result.rounds == 3
    assert result.evaluated.tolist() == [0, 1, 2, 3]
    assert result.metric("test_loss")[0].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert np.isnan(result.metric("loss")[0, 0])
    assert np.isfinite(result.metric("loss")[0, 1:]).all()
    assert np.isnan(result.metric("skew")).all()
    np.testing.assert_allclose(result.share, [0.1, 0.2, 0.3, 0.4])
    assert result.records["clients"][0].tolist() == [row.clients for row in ours.history.rows]
    assert result.records["returned"][0].tolist() == [1, 2, 2]
    assert result.costs["messages"][0].tolist() == [2 * 4 + 2 + 1, 2 * 3 + 4, 2 * 3 + 4]
    assert result.costs["bytes_up"][0, 0] == 4 * 4 + (12 + 4)
    assert result.rounds_to("test_loss", 1.0).tolist() == [2.0]
    assert stored.summary["final"]["test_loss"] == 0.0
    assert stored.summary["final"]["skew"] is None
    assert stored.about["experiment"]["selector"]["kind"] == "pow-d"
    assert stored.about["clients"] == [f"partition-id={k}" for k in range(4)]
    assert store.unknown_files(["state"]) == []


def test_an_accountant_of_privacy_cannot_be_kept_and_that_is_said(tmp_path):
    inner = INNER["DP"]()
    inner.accountant = object()
    with pytest.raises(ValueError, match="folder must be None for a strategy with a privacy accountant"):
        Selecting(inner, Rand(m=1), folder=tmp_path)


def test_evaluation_of_a_round_that_was_interrupted_is_made_up_for(tmp_path):
    seen = []

    def evaluate(server_round, arrays):
        seen.append((server_round, float(arrays["w"].numpy()[0])))
        return MetricRecord({"loss": 1.0})

    for rounds in (2, 4):
        ours = Selecting(INNER["FedAvg"](), Rand(m=1), wait=0.0, folder=tmp_path)
        ours.start(FakeGrid(plain_app(), range(3)), zeros(), num_rounds=rounds, timeout=1, evaluate_fn=evaluate)
    assert [server_round for server_round, _ in seen] == [0, 1, 2, 2, 3, 4]
    assert seen[2] == seen[3]


def test_names_of_arrays_keep_their_order(tmp_path):
    arrays = ArrayRecord({f"layer.{i}": Array(np.full(2, i, np.float32)) for i in (2, 10, 1)})
    layers = plain_app()

    def train(message, context):
        content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    layers._registered_funcs["train.default"] = train
    for _ in range(2):
        ours = Selecting(INNER["FedAvg"](), Rand(m=1), wait=0.0, folder=tmp_path)
        ours.start(FakeGrid(layers, range(2)), arrays, num_rounds=1, timeout=1)
    assert list(ours.adapter.state.arrays) == list(arrays)


def test_a_strategy_with_the_mixin_goes_on_as_well(tmp_path):
    class Mine(SelectingMixin, flower.FedAvgM):
        def start(self, grid, initial_arrays, num_rounds=3, **options):
            return super().start(grid, initial_arrays, num_rounds, 0.5, None, None, options["evaluate_fn"])

    def evaluate(server_round, arrays):
        return MetricRecord({"loss": float(server_round)})

    def play(folder, rounds):
        mine = Mine(fraction_evaluate=0.0, server_momentum=0.9)
        mine.select_with(PowerOfChoice(m=2, d=4), seed=4, wait=0.0, folder=folder)
        return mine, mine.start(FakeGrid(plain_app(), range(8)), zeros(), num_rounds=rounds, evaluate_fn=evaluate)

    whole, expected = play(tmp_path / "whole", 6)
    play(tmp_path / "parts", 2)
    again, found = play(tmp_path / "parts", 6)
    assert [row.clients for row in again.history.rows] == [row.clients for row in whole.history.rows]
    np.testing.assert_array_equal(found.arrays["w"].numpy(), expected.arrays["w"].numpy())
    (stored,) = (RunStore(tmp_path / "parts").load(run) for run in RunStore(tmp_path / "parts").identities())
    assert stored.arrays["metrics/test_loss"].tolist() == [float(t) for t in range(7)]  # the last one, too


def test_a_state_of_version_1_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "state").mkdir()
    head = json.dumps({"format": "fedpick-flower", "version": 1, "owner": "me", "sha256": "0"})
    (tmp_path / "state" / "round-00000003.state").write_text(f"{head}\nrest")
    sentence = "is a state of version 1, and this fedpick reads version 2; give this federation a folder of its own"
    with pytest.raises(ValueError, match=f"^Selecting: state '.*round-00000003.state' {sentence}$"):
        started(tmp_path, 3)


@pytree
class Newest:
    """A strategy of the user's own."""

    m: int = static(default=1)
    bonus: float = 0.5
    poll = "none"

    def init(self, num_clients):
        return ()

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        return Rand(m=self.m).select(key, state, clients, candidates, losses)

    def observe(self, state, selection, report):
        return state


def test_a_strategy_of_the_users_own_is_described_by_its_module(tmp_path):
    for rounds in (1, 2):
        ours, _, _ = started(tmp_path, rounds, selector=Newest(m=2))
    assert len(ours.history.rows) == 2
    (stored,) = (RunStore(tmp_path).load(run) for run in RunStore(tmp_path).identities())
    assert stored.about["experiment"]["selector"] == {"kind": f"{__name__}:Newest", "m": 2, "bonus": 0.5}


def test_a_strategy_that_cannot_be_imported_is_described_by_its_text(tmp_path):
    @pytree
    class Local(Newest):
        m: int = static(default=1)

    started(tmp_path, 1, selector=Local(m=2))
    (stored,) = (RunStore(tmp_path).load(run) for run in RunStore(tmp_path).identities())
    assert stored.about["experiment"]["selector"]["kind"].endswith("<locals>.Local")


def test_the_run_folder_has_the_true_device_and_the_versions(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpick.storage.run_store.device", lambda: "8 x NVIDIA H200")
    started(tmp_path, 1)
    (stored,) = (RunStore(tmp_path).load(run) for run in RunStore(tmp_path).identities())
    assert stored.about["device"] == "8 x NVIDIA H200"
    assert {"python", "fedpick", "flwr", "jax"} <= set(stored.about["versions"])


def test_a_table_of_clients_from_before_durations_were_kept_is_read():
    table = ClientTable(2)
    table.join(node=5, identity="partition-id=1", size=30.0)
    older = {name: table.columns()[name] for name in ("size", "failures", "quarantine_end", "quarantined")}
    read = ClientTable.from_columns(table.identities, older)
    np.testing.assert_array_equal(read.sizes(), table.sizes())
    assert np.isnan(read.expected_duration).all()
    assert not read.leaving.any()


class Decaying(flower.FedAvg):
    """Flower's own example of a strategy: it halves the learning rate as it goes."""

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = float(config["lr"]) / 2
        return super().configure_train(server_round, arrays, config, grid)


def test_what_a_strategy_makes_of_the_training_config_survives(tmp_path):
    def play(rounds, **more):
        grid = FakeGrid(plain_app(), range(4))
        ours = Selecting(Decaying(fraction_evaluate=0.0), Rand(m=1), wait=0.0, folder=tmp_path)
        config = ConfigRecord({"lr": 1.0, "epochs": 2, **more})
        ours.start(grid, zeros(), num_rounds=rounds, timeout=0.5, train_config=config)
        sent = [m.content["config"] for _, m in grid.log if m.metadata.message_type == "train"]
        return [(config["lr"], config["epochs"]) for config in sent]

    assert play(2) == [(0.5, 2), (0.25, 2)]
    assert play(4, epochs=3) == [(0.125, 3), (0.0625, 3)]  # what the strategy does not touch is as it is given now


class Plateau(flower.FedAvg):
    """Remembers its losses in a list, its rounds in a dictionary, what it does in a text, and what cannot be saved."""

    def __init__(self):
        super().__init__(fraction_evaluate=0.0)
        self.losses, self.seen, self.phase, self.best, self.steps = [], {}, "falling", (math.inf, None), iter(())

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.losses.append(metrics["train_loss"])
        self.seen[server_round] = {"loss": self.losses[-1], "tags": ["late"] * (server_round > 1)}
        self.phase, self.best = f"round {server_round}", min(self.best, (self.losses[-1], server_round))
        self.steps = iter(self.losses)
        return arrays, metrics


def test_lists_dictionaries_and_texts_of_a_strategy_survive_and_what_does_not_is_said(tmp_path, caplog):
    def play(folder, *rounds):
        for number in rounds:
            inner = Plateau()
            ours = Selecting(inner, strategy("rand", m=2), clients=4, wait=0.0, folder=tmp_path / folder)
            ours.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=number, timeout=0.5)
        return inner.losses, inner.seen, inner.phase, inner.best

    whole = play("whole", 4)
    assert [line for line in caplog.messages if "is not saved" in line] == [
        "fedpick: 'steps' of Plateau (of type list_iterator) is not saved: a run that resumes begins without it"
    ]
    assert len(whole[0]) == 4
    assert play("interrupted", 2, 4) == whole
