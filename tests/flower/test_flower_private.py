"""Private losses on Flower: clients add the noise and keep their budget, and the server decodes."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, zeros

from fedpick import PowerOfChoice, Private
from fedpick.flower import Selecting
from fedpick.flower.client import Privacy, answer


def poll(threshold=None):
    settings = {} if threshold is None else {"fedpick-threshold": threshold}
    content = RecordDict({"arrays": zeros(), "config": ConfigRecord({"server-round": 1, **settings})})
    return Message(content, dst_node_id=7, message_type="query.loss")


def context():
    return Context(1, 7, {"partition-id": 3}, RecordDict(), {})


def metrics(reply):
    return dict(reply.content.metric_records["metrics"])


def test_bits_are_true_with_their_probability_and_nothing_is_said_without_a_threshold():
    privacy, here = Privacy(epsilon=1.0), context()
    bits = [privacy.disguise(2.0, poll(1.0), here) for _ in range(4000)]
    truth = math.e / (1 + math.e)
    assert abs(np.mean(bits) - truth) < 4 * np.sqrt(truth * (1 - truth) / 4000)
    assert privacy.disguise(2.0, poll(), here) is None


def test_laplace_answers_are_on_a_grid_and_around_the_loss():
    privacy, here = Privacy(epsilon=20.0, mechanism="laplace", clip=8.0), context()
    said = np.array([privacy.disguise(100.0, poll(), here) for _ in range(2000)])
    assert abs(said.mean() - 8) < 4 * np.sqrt(2) * 0.4 / np.sqrt(2000)
    assert abs(said.std() - np.sqrt(2) * 0.4) < 0.1
    assert (said * 128 == np.round(said * 128)).all()


def test_a_spent_budget_says_so_and_is_never_exceeded():
    privacy, here = Privacy(epsilon=0.4, budget=1.2), context()
    replies = [metrics(answer(poll(1.0), here, 10, lambda arrays, b: 5.0, privacy=privacy)) for _ in range(5)]
    assert ["loss" in reply for reply in replies] == [True, True, True, False, False]
    assert replies[4]["budget-spent"] == 1


def said_to(privacy, number):
    """Whether a client, in a run of Flower that has just begun, answers each of so many polls."""
    here = context()
    return [privacy.disguise(2.0, poll(1.0), here) is not None for _ in range(number)]


def test_a_budget_with_a_file_is_one_for_all_runs_and_without_it_begins_anew(tmp_path, caplog):
    assert [said_to(Privacy(epsilon=0.5, budget=1.0), 3) for _ in range(2)] == [[True, True, False]] * 2
    file = tmp_path / "spent.json"
    assert said_to(Privacy(epsilon=0.5, budget=1.0, file=file), 1) == [True]
    assert f"Privacy: file {str(file)!r} is new: nothing was spent before" in caplog.text
    assert said_to(Privacy(epsilon=0.5, budget=1.0, file=file), 3) == [True, False, False]
    assert said_to(Privacy(epsilon=0.5, budget=1.0, file=file), 1) == [False]
    assert said_to(Privacy(epsilon=0.5, budget=2.0, file=file), 3) == [True, True, False]
    reply = metrics(answer(poll(1.0), context(), 10, lambda arrays, b: 5.0, privacy=Privacy(budget=2.0, file=file)))
    assert reply["budget-spent"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"format": "fedpick-spending", "spe',
        "[1]",
        '{"format": "other", "spent": 0}',
        '{"format": "fedpick-spending", "spent": NaN}',
        '{"spent": -1}',
        None,  # a folder
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_no_fresh_budget(tmp_path, content):
    file = tmp_path / "spent.json"
    file.mkdir() if content is None else file.write_text(content)
    with pytest.raises(
        ValueError, match=r"^Privacy: file must say what was spent, and it cannot be read \(.*\), got '.*"
    ):
        said_to(Privacy(file=file), 1)
    assert content is None or file.read_text() == content
    with pytest.raises(ValueError, match=r"Privacy: file must be in a folder that is there, got '.*gone/spent\.json'"):
        said_to(Privacy(file=tmp_path / "gone" / "spent.json"), 1)


def test_answers_at_once_do_not_spend_more_than_there_is(tmp_path):
    privacy = Privacy(epsilon=1.0, budget=10.0, file=tmp_path / "spent.json")
    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(lambda _: said_to(privacy, 3), range(8)))
    assert np.sum(said) == 10


def test_a_client_that_answers_in_bits_tells_a_server_that_announces_no_threshold(caplog):
    grid = FakeGrid(private_app(Privacy(budget=2.0)), range(4))
    ours = Selecting(FedAvg(fraction_evaluate=0.0), PowerOfChoice(2, 4), poll_timeout=0.2, wait=0.0, outage=0.3)
    ours.adapter.check_reports.strict = True
    with pytest.raises(ValueError, match=r"the server's strategy must be a fedpick.Private with the mechanism 'bit'"):
        ours.start(grid, zeros(), num_rounds=2, timeout=0.3)
    assert "got a poll without a threshold" in caplog.text


def private_app(privacy):
    app = ClientApp()

    @app.train()
    def train(message, context):
        update = ArrayRecord(dict(message.content["arrays"].items()))
        said = privacy.disguise(1.0, message, context)
        content = {"num-examples": 10} | ({} if said is None else {"train_loss": said})
        return Message(RecordDict({"arrays": update, "metrics": MetricRecord(content)}), reply_to=message)

    @app.query("loss")
    def loss(message, context):
        return answer(message, context, 10, lambda arrays, b: 1.0, privacy=privacy)

    return app


class Heard(Privacy):
    """Notes what each client says: the round, who, and whether it is a poll."""

    notes: ClassVar[list[tuple[int, int, bool, float | None]]] = []

    def disguise(self, loss, message, context):
        said = super().disguise(loss, message, context)
        number, poll = message.content["config"]["server-round"], message.metadata.message_type == "query.loss"
        Heard.notes.append((number, context.node_config["partition-id"], poll, said))
        return said


def play_private(inner, theirs, monkeypatch, mechanism="bit"):
    """Thirty rounds of six clients that can answer twice for each unit of their budget."""
    monkeypatch.setattr(Heard, "notes", [])
    grid = FakeGrid(private_app(Heard(epsilon=0.5, budget=theirs, mechanism=mechanism)), range(6))
    private = Private(inner, epsilon=0.5, budget=2.0, mechanism=mechanism)
    strategy = Selecting(FedAvg(fraction_evaluate=0.0), private, poll_timeout=0.2, wait=0.0, outage=0.3)
    strategy.start(grid, zeros(), num_rounds=30, timeout=0.3)
    assert len(strategy.history.rows) == 30
    spent = {c.node_config["partition-id"]: c.state.metric_records["fedpick-privacy"]["spent"] for c in
             grid.nodes.values()}  # fmt: skip
    for client in range(6):  # what a client says is what it pays for, never more than it has, and then no more
        said = [note[3] is not None for note in Heard.notes if note[1] == client and not unheard(inner, note)]
        assert spent[client] == pytest.approx(0.5 * sum(said))
        assert spent[client] <= theirs + 1e-6
        assert said == sorted(said, reverse=True)
    return grid, strategy.history.rows, spent


def unheard(inner, note):
    """Whether it is of a training reply to a strategy that polls, which does not hear it."""
    return inner.poll != "none" and not note[2]


@pytest.mark.parametrize("mechanism", ["bit", "laplace"])
@pytest.mark.parametrize("theirs", [2.0, 1.0])  # a client may have less to spend than the server thinks
def test_who_is_polled_answers_while_its_own_budget_lasts(theirs, mechanism, monkeypatch):
    inner = PowerOfChoice(2, 4)
    _, rows, spent = play_private(inner, theirs, monkeypatch, mechanism)
    assert set(spent.values()) == {theirs}  # all of it, and no more
    assert not [note for note in Heard.notes if unheard(inner, note) and note[3] is not None]
    refused = [note for note in Heard.notes if note[2] and note[3] is None]
    assert bool(refused) == (theirs < 2.0)  # the server asks nobody whose budget it knows to be spent
    for number, row in enumerate(rows, start=1):
        polled = {note[1]: note[3] for note in Heard.notes if note[0] == number and note[2]}
        answered = {client for client, said in polled.items() if said is not None}
        assert set(row.asked) == set(polled)
        assert {k for k, loss in zip(row.asked, row.answers, strict=True) if not math.isnan(loss)} == answered
        trained = {client for client in row.clients if client >= 0}
        if theirs < 2.0 and answered:  # a candidate that was asked and is silent has no seat
            assert trained <= answered
            assert len(trained) == min(2, len(answered))
        else:
            assert len(trained) == 2
    assert not np.isfinite([loss for row in rows[20:] for loss in row.answers]).any()  # the answers have stopped
    assert len({client for row in rows[20:] for client in row.clients}) == 6  # and chance decides


@pytest.mark.no_cover
@pytest.mark.parametrize("theirs", [2.0, 1.0])
def test_who_trains_says_its_loss_while_its_own_budget_lasts(theirs, monkeypatch):
    grid, rows, spent = play_private(PowerOfChoice(2, 4, "stale"), theirs, monkeypatch)
    assert all(len(row.clients) == 2 and min(row.clients) >= 0 for row in rows)
    for number, row in enumerate(rows, start=1):
        assert {note[1] for note in Heard.notes if note[0] == number} == set(row.clients)
    if theirs == 2.0:  # the server knows who can say no more, and goes on without their last answers
        assert len({client for row in rows[20:] for client in row.clients}) == 6
    often = [client for client in range(6) if sum(client in row.clients for row in rows) >= theirs / 0.5]
    assert often
    assert {spent[client] for client in often} == {theirs}
    told = [message.content["config"]["fedpick-threshold"] for _, message in grid.log if "arrays" in message.content]
    assert len(told) == 60
    assert all(math.isfinite(value) for value in told)


def test_chance_decides_where_all_are_asked_and_all_budgets_are_spent():
    grid = FakeGrid(private_app(Privacy(epsilon=0.5, budget=1.0)), range(6))
    private = Private(PowerOfChoice(2, 6), epsilon=0.5)  # the server does not know of the budget
    ours = Selecting(FedAvg(fraction_evaluate=0.0), private, poll_timeout=0.2, wait=0.0, clients=6)
    ours.start(grid, zeros(), num_rounds=12, timeout=0.3)
    late = ours.history.rows[2:]
    assert not np.isfinite([loss for row in late for loss in row.answers]).any()
    assert all(len(set(row.clients)) == 2 and min(row.clients) >= 0 for row in late)
    assert {client for row in late for client in row.clients} == set(range(6))
