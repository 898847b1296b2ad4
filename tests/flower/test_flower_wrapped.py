"""The strategy inside is untouched: handed the same clients, it gives exactly what it gives without us."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import PowerOfChoice, strategy
from fedpick.flower import Selecting

NODES = {"min_train_nodes": 3, "min_available_nodes": 3, "fraction_evaluate": 0.0}
STRATEGIES = {
    "FedAvg": lambda: flower.FedAvg(**NODES),
    "FedProx": lambda: flower.FedProx(**NODES, proximal_mu=0.1),
    "FedAdam": lambda: flower.FedAdam(**NODES, eta=0.5),
    "FedYogi": lambda: flower.FedYogi(**NODES, eta=0.5),
    "FedAdagrad": lambda: flower.FedAdagrad(**NODES, eta=0.5),
    "FedAvgM": lambda: flower.FedAvgM(**NODES, server_learning_rate=0.7, server_momentum=0.9),
    "FedMedian": lambda: flower.FedMedian(**NODES),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(**NODES, beta=0.34),
    "Krum": lambda: flower.Krum(**NODES),
    "MultiKrum": lambda: flower.MultiKrum(**NODES, num_nodes_to_select=2),
    "Bulyan": lambda: flower.Bulyan(**NODES, num_malicious_nodes=0),
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.5, q=0.2, **NODES),
    "DP server, fixed": lambda: flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(**NODES), 0.0, 1.0, 3),
    "DP server, adaptive": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedAvg(**NODES), noise_multiplier=0.0, num_sampled_clients=3, initial_clipping_norm=0.3
    ),
    "DP client, fixed": lambda: flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(**NODES), 0.0, 1.0, 3),
    "DP client, adaptive": lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(
        flower.FedAvg(**NODES), noise_multiplier=0.0, num_sampled_clients=3, initial_clipping_norm=0.3
    ),
    "DP around FedAdam": lambda: flower.DifferentialPrivacyServerSideFixedClipping(
        flower.FedAdam(**NODES), 0.0, 1.0, 3
    ),
}
MODS = {"DP client, fixed": [fixedclipping_mod], "DP client, adaptive": [adaptiveclipping_mod]}


def client(name):
    """The app of these clients, which clips by itself where the strategy relies on that."""
    app = plain_app()
    for mod in MODS.get(name, ()):
        inner = app._registered_funcs["train.default"]
        app._registered_funcs["train.default"] = lambda m, c, mod=mod, inner=inner: mod(m, c, inner)
    return app


class InOrder(FakeGrid):
    """Replies in the order of the seats that these rows have: the last bits of a sum depend on it."""

    def __init__(self, app, partitions, rows):
        super().__init__(app, partitions)
        self.rows = rows

    def pull_messages(self, message_ids):
        def place(reply):
            seats = self.rows[message_of[reply.metadata.reply_to_message_id].content["config"]["server-round"] - 1]
            return seats.clients.index(self.partition(reply.metadata.src_node_id))

        message_of = {message.metadata.message_id: message for _, message in self.log}
        return sorted(super().pull_messages(message_ids), key=place)

    def push_messages(self, messages):
        for message in messages:
            message.metadata.ttl = 60.0
        return super().push_messages(messages)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("weights", ["examples", "selection"])
def test_each_strategy_gives_what_it_gives_without_us(name, weights):
    alone, inside = STRATEGIES[name](), STRATEGIES[name]()
    config = {"lr": 0.1}

    # Three among eight: those with the highest loss, as their answers say.
    grid = FakeGrid(client(name), range(8))
    grid.faults = {k: only("query.loss", saying(loss=99.0 if k in (1, 4, 5) else 1.0)) for k in range(8)}
    ours = Selecting(inside, PowerOfChoice(m=3, d=8), weights=weights, poll_timeout=1.0, wait=0.0)
    found = ours.start(grid, zeros(), num_rounds=4, timeout=60, train_config=ConfigRecord(config))
    assert set(grid.sent("train")) == {1, 4, 5}
    sent = [message.content["config"] for _, message in grid.log if message.metadata.message_type == "train"]
    assert all(each["lr"] == 0.1 for each in sent)

    # The same three and nobody else, without us.
    grid = InOrder(client(name), [1, 4, 5], ours.history.rows)
    if weights == "selection":  # the plain mean is asked for: everybody's number of examples is the seat's weight
        weight = float(np.float32(1 / 3))
        grid.faults = {k: only("train", saying(num_examples=weight)) for k in (1, 4, 5)}
    expected = alone.start(grid, zeros(), num_rounds=4, timeout=60, train_config=ConfigRecord(config))

    for key, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[key].numpy(), array.numpy())
    assert {t: dict(m) for t, m in found.train_metrics_clientapp.items()} == {
        t: dict(m) for t, m in expected.train_metrics_clientapp.items()
    }
    settings = {key: value for key, value in vars(inside).items() if isinstance(value, int | float | str)}
    assert settings == {key: value for key, value in vars(alone).items() if isinstance(value, int | float | str)}


def test_a_proximal_term_reaches_the_clients():
    grid = FakeGrid(plain_app(), range(4))
    inner = flower.FedProx(fraction_evaluate=0.0, proximal_mu=0.3)
    Selecting(inner, PowerOfChoice(m=2, d=4), wait=0.0).start(grid, zeros(), num_rounds=1, timeout=60)
    assert [m.content["config"]["proximal-mu"] for _, m in grid.log if m.metadata.message_type == "train"] == [0.3, 0.3]


def test_differential_privacy_loses_a_client_and_goes_on():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only("train", lambda message, answer: None)
    inner = flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(fraction_evaluate=0.0), 0.0, 1.0, 2)
    ours = Selecting(inner, PowerOfChoice(m=2, d=4), wait=0.0)
    result = ours.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert ours.history.rows[0].returned == 1


def test_an_attribute_that_is_called_strategy_and_is_none_is_no_layer():
    class Mine(flower.FedAvg):
        strategy = "mean"

    assert len(Selecting(Mine(), PowerOfChoice(m=3, d=6)).adapter.wrapped.layers) == 1


class Odd(flower.FedAvgM):
    """Makes a model that is not finite in the third round, as an average by a metric that is not would be."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round == 3:
            arrays = ArrayRecord({"w": Array(arrays["w"].numpy() * np.float32("nan"))})
            self.momentum_vector = [part * np.float32("nan") for part in self.momentum_vector]
        return arrays, metrics


def test_a_model_of_the_strategy_that_is_not_finite_is_not_taken(tmp_path):
    grid = FakeGrid(plain_app(), range(4))
    broken = saying(other=math.nan)
    grid.faults = {3: only("train", lambda m, a: broken(m, a) if m.content["config"]["server-round"] == 3 else a())}
    inner = Odd(server_momentum=0.5, fraction_evaluate=0.0)
    ours = Selecting(inner, strategy("full"), clients=4, wait=0.0, folder=tmp_path)
    model = ours.start(grid, zeros(), num_rounds=5, timeout=1).arrays["w"].numpy()
    assert np.isfinite(model).all()
    assert (
        "what Odd made of the updates is not finite: the model stays as it was, and quarantine" in ours.history.notes[3]
    )
    assert [row.clients for row in ours.history.rows][3] == [0, 1, 2, -1]
    assert np.isfinite(inner.momentum_vector).all()


@pytest.mark.parametrize("loss", [math.nan, None])
def test_a_client_without_a_loss_is_left_out_where_the_strategy_averages_by_it(loss):
    def without_loss(message, answer):
        reply = answer()
        if loss is None:
            del reply.content["metrics"]["train_loss"]
        else:
            reply.content["metrics"]["train_loss"] = loss
        return reply

    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {3: only("train", without_loss)}
    inner = flower.QFedAvg(client_learning_rate=0.1, fraction_evaluate=0.0)
    ours = Selecting(inner, strategy("full"), clients=4, wait=0.0)
    model = ours.start(grid, zeros(), num_rounds=2, timeout=1).arrays["w"].numpy()
    assert np.isfinite(model).all()
    assert ours.history.rows[0].clients == [0, 1, 2, -1]


def test_the_history_has_the_weights_of_the_clients_own_examples():
    ours = Selecting(
        flower.FedAvg(fraction_evaluate=0.0), PowerOfChoice(m=4, d=4), weights="examples", clients=4, wait=0.0
    )
    model = ours.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=1, timeout=1).arrays["w"].numpy()
    row = ours.history.rows[0]
    wanted = np.array(row.clients) + 1.0
    np.testing.assert_allclose(row.weights, wanted / 10, rtol=1e-6)
    np.testing.assert_allclose(model, 0.5 * np.dot(row.weights, wanted), rtol=1e-6)
    assert row.train_loss == pytest.approx(np.dot(row.weights, wanted))
