"""Private losses on Flower: clients add the noise and keep their budget, and the server decodes."""

import math

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


@pytest.mark.parametrize("inner", [PowerOfChoice(2, 4), PowerOfChoice(2, 4, "stale")])
@pytest.mark.parametrize("theirs", [2.0, 1.0])  # a client may have less to spend than the server thinks
def test_a_federation_goes_on_when_the_budgets_are_spent(inner, theirs):
    grid = FakeGrid(private_app(Privacy(epsilon=0.5, budget=theirs)), range(6))
    private = Private(inner, epsilon=0.5, budget=2.0)
    strategy = Selecting(FedAvg(fraction_evaluate=0.0), private, poll_timeout=0.2, wait=0.0, outage=0.3)
    strategy.start(grid, zeros(), num_rounds=30, timeout=0.3)
    rows = strategy.history.rows
    assert len(rows) == 30
    trained = np.array([len(row.clients) for row in rows])
    assert (trained[:4] == 2).all()
    assert (trained == 2).all() if theirs == 2.0 else (trained >= 1).mean() > 0.6
    told = [message.content["config"]["fedpick-threshold"] for _, message in grid.log if "arrays" in message.content]
    assert told
    assert all(math.isfinite(value) for value in told)
    spent = [context.state.metric_records["fedpick-privacy"]["spent"] for context in grid.nodes.values()]
    assert max(spent) <= theirs + 1e-6
