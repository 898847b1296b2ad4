"""Who a client is: the first that claims a name keeps it while it lives."""

import pytest
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, plain_app, zeros

from fedpick import PowerOfChoice
from fedpick.flower import Selecting


def selecting(**options):
    options = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3, **options}
    return Selecting(FedAvg(fraction_evaluate=0.0), PowerOfChoice(m=2, d=4), **options)


def trained_nodes(grid):
    return {message.metadata.dst_node_id for _, message in grid.log if message.metadata.message_type == "train"}


def twin_that(does, node):
    """What a node of two with one name does; the other is honest."""
    return lambda message, answer: does(message, answer) if message.metadata.dst_node_id == node else answer()


def failing(message, answer):
    return None if "arrays" in message.content else answer()


def boasting(message, answer):
    reply = answer()
    reply.content["metrics"]["num-examples"] = 1e12
    reply.content["metrics"]["loss"] = 1e6
    return reply


@pytest.mark.parametrize("does", [failing, boasting])
def test_a_twin_does_not_get_the_name_of_a_client_that_lives(does, caplog):
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    table = strategy.adapter.state.clients
    honest = table.node_of[3]
    twin = grid.join(3)
    grid.faults[3] = twin_that(does, twin)
    strategy.start(grid, zeros(), num_rounds=8, timeout=0.3)
    assert table.node_of[3] == honest
    assert twin not in trained_nodes(grid)
    assert table.size[3] == 40.0
    assert not table.quarantined.any()
    assert f"node {twin} reports partition-id=3, which is node {honest}; refused" in caplog.text
    calls = [m for _, m in grid.log if m.metadata.dst_node_id == twin]
    assert len(calls) == 2  # in rounds 2 and 5, and then not before round 10


def test_of_two_that_claim_a_name_at_once_one_has_it_and_after_a_restart_the_same(tmp_path):
    grid = FakeGrid(plain_app(), [0, 1, 2, 3, 3])
    first = selecting(folder=tmp_path)
    first.start(grid, zeros(), num_rounds=2, timeout=0.3)
    table = first.adapter.state.clients
    nodes = [node for node in grid.nodes if grid.partition(node) == 3]
    assert table.node_of[3] == min(nodes)
    grid.leave(3)
    for node in (min(nodes) - 1, min(nodes), min(nodes) + 1):  # the first had a smaller number
        grid.nodes[node] = FakeGrid(plain_app(), [3]).nodes.popitem()[1]
    again = selecting(folder=tmp_path)
    again.start(grid, zeros(), num_rounds=4, timeout=0.3)
    assert again.adapter.state.clients.node_of[3] == min(nodes)
    assert len(again.adapter.state.clients) == 4


def test_a_node_does_not_change_its_name(caplog):
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting(quarantine=1)

    def fickle(message, answer):
        if "arrays" in message.content:
            return None
        reply = answer()
        reply.content["metrics"]["partition-id"] = 3 - 3 * bool(strategy.history.rows)
        return reply

    grid.faults[3] = fickle
    strategy.start(grid, zeros(), num_rounds=4, timeout=0.3)
    assert "was partition-id=3 and now reports partition-id=0; refused" in caplog.text
    assert strategy.adapter.state.clients.identities == [f"partition-id={k}" for k in range(4)]
    assert strategy.adapter.state.clients.available().tolist() == [True, True, True, False]


def test_a_client_may_be_known_by_its_node_which_authentication_ties_to_its_key(caplog):
    grid = FakeGrid(plain_app(), [0, 1, 1])
    strategy = selecting(identity="node")
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    identities = strategy.adapter.state.clients.identities
    assert identities[:3] == [f"node={node}" for node in sorted(grid.nodes, key=str)]
    assert not [record for record in caplog.records if record.name == "flwr.fedpick" and record.levelname == "WARNING"]
