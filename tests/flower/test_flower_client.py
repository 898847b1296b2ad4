"""The client's side: mean losses by hand, the reply to a poll, and the app of ``fedpick federate`` as a whole."""

import contextlib
import sys
import types

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from support.fake_grid import FakeGrid

from fedpick.flower.client import answer, jax_loss, numpy_loss, torch_loss

BATCHES = [(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 0.0])), (np.array([5.0]), np.array([1.0]))]


def squares(x, y):
    return (x - y) ** 2


def test_the_mean_is_over_samples_and_not_over_batches():
    assert numpy_loss(squares, BATCHES) == (1 + 4 + 9 + 16) / 4
    assert jax_loss(lambda w, x, y: w * squares(x, y), np.float32(2.0), _float32()) == 2 * (1 + 4 + 9 + 16) / 4


def _float32():
    return [(x.astype(np.float32), y.astype(np.float32)) for x, y in BATCHES]


@pytest.mark.parametrize(("batch", "mean"), [(1, 1.0), (2, 2.5), (4, 7.5), (100, 7.5)])
def test_a_mini_batch_is_the_first_samples_of_the_loader(batch, mean):
    seen = []

    def loader():
        for x, y in BATCHES:
            seen.append(len(y))
            yield x, y

    assert numpy_loss(squares, loader(), batch) == mean
    assert seen == ([3] if batch <= 3 else [3, 1])  # nothing is loaded that is not needed


def test_no_data_is_an_error():
    with pytest.raises(ValueError, match="client: loader must give at least 1 sample, got none"):
        numpy_loss(squares, [])
    with pytest.raises(ValueError, match="client: batch must be at least 1, got 0"):
        numpy_loss(squares, BATCHES, 0)


class Module:
    """What torch_loss needs of a PyTorch module."""

    training = True

    def __init__(self):
        self.modes = []

    def eval(self):
        self.train(False)

    def train(self, mode):
        self.training = mode
        self.modes.append(mode)

    def __call__(self, x):
        assert not self.training
        if x[0] == 666:
            raise RuntimeError("out of memory")
        return x


def test_a_module_is_evaluated_without_gradients_and_left_as_it_was(monkeypatch):
    depth = []

    @contextlib.contextmanager
    def no_grad():
        depth.append(1)
        yield

    functional = types.SimpleNamespace(cross_entropy=lambda output, y: np.mean(squares(output, y)))
    torch = types.ModuleType("torch")
    torch.no_grad, torch.nn = no_grad, types.SimpleNamespace(functional=functional)
    monkeypatch.setitem(sys.modules, "torch", torch)
    model = Module()
    assert torch_loss(model, BATCHES) == 7.5
    assert torch_loss(model, BATCHES, batch=2) == 2.5
    assert torch_loss(model, BATCHES, criterion=lambda output, y: 3.0) == 3.0
    assert model.modes == [False, True] * 3
    assert depth == [1, 1, 1]
    with pytest.raises(RuntimeError, match="out of memory"):
        torch_loss(model, [(np.array([666.0]), np.array([0.0]))])
    assert model.training


def test_a_module_on_a_device_gets_its_data_there(monkeypatch):
    torch = types.ModuleType("torch")
    torch.no_grad = contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "torch", torch)

    class Tensor(list):
        def to(self, device):
            return Tensor(value + 100 for value in self) if device == "gpu" else self

    seen = []
    note = lambda out, y: seen.append((out, y)) or 1.0  # noqa: E731
    torch_loss(Module(), [(Tensor([1.0]), Tensor([2.0]))], criterion=note, device="gpu")
    assert seen == [([101.0], [102.0])]


def asked(config, arrays=None, **node):
    content = RecordDict({"config": ConfigRecord(config)})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, dst_node_id=5, message_type="query.loss"), Context(1, 5, node, RecordDict(), {})


def test_the_reply_says_who_how_much_and_the_loss_if_a_model_was_sent():
    arrays = ArrayRecord({"w": Array(np.ones(2))})
    called = []

    def loss(model, batch):
        called.append((list(model), batch))
        return np.float32(0.5)

    message, context = asked({"server-round": 1}, **{"partition-id": 3})
    reply = answer(message, context, 7, loss)
    assert dict(reply.content["metrics"]) == {"num-examples": 7, "partition-id": 3}
    assert called == []
    message, context = asked({"server-round": 1, "batch-size": 16}, arrays, **{"partition-id": 3})
    reply = answer(message, context, 7, loss)
    assert dict(reply.content["metrics"]) == {"num-examples": 7, "partition-id": 3, "loss": 0.5}
    message, context = asked({"server-round": 1}, arrays)
    reply = answer(message, context, 7, loss, name="Oslo")
    assert reply.content["client"]["name"] == "Oslo"
    assert called == [(["w"], 16), (["w"], None)]


@pytest.mark.parametrize("name", ["pow-d", "cpow-d", "rand", "adapow-d", "full"])
def test_the_app_of_federate_learns(tmp_path, name):
    from fedpick.flower.demo import client, server
    from fedpick.results import Result
    from fedpick.storage import RunStore

    config = {
        **{"clients": 4, "seed": 0, "strategy": name, "m": 2, "d": 4, "wait": 0.0, "rounds": 4},
        **{"poll-timeout": 5.0, "train-timeout": 5.0, "folder": str(tmp_path)},
    }
    grid = FakeGrid(client.app, range(4))
    for context in grid.nodes.values():
        context.run_config = config
    server.main(grid, Context(1, 1, {}, RecordDict(), config))
    store = RunStore(tmp_path)
    (identity,) = store.identities()
    stored = store.load(identity)
    result = Result.from_arrays(stored.about["seed"], stored.about["model_bytes"], stored.arrays)
    assert result.metric("test_loss")[0, -1] < 0.95 * result.metric("test_loss")[0, 0]
    assert np.isfinite(result.metric("loss")[0, 1:]).all()
    assert result.metric("worst_loss")[0, -1] >= result.metric("mean_loss")[0, -1]


def test_whole_numbers_and_truth_values_are_no_part_of_the_norm_as_on_the_server():
    def model(w, batches):
        arrays = {"w": np.full(4, w, np.float32), "batches": np.asarray(batches), "mask": np.ones(2, bool)}
        return ArrayRecord({name: Array(values) for name, values in arrays.items()})

    message, context = asked({"server-round": 1, "fedpick-poll": "norm"}, model(0.0, 0))
    reply = answer(message, context, 7, None, train=lambda arrays, config: (model(0.5, 50), {"num-examples": 7}))
    assert reply.content["metrics"]["norm"] == 1.0
