"""A federation goes on whatever its clients do: lies, errors, silence, joins and departures."""

import contextlib
import dataclasses
import inspect
import logging
import math
import re
import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, named_app, only, plain_app, raising, saying, silent, zeros

from fedpick import PowerOfChoice, Rand, Uniform, pytree, static, strategy
from fedpick.flower import OutageError, Selecting, SelectingMixin
from fedpick.flower.clients import ClientTable
from fedpick.flower.options import Options

POLL, TRAIN = "query.loss", "train"


def selecting(selector=PowerOfChoice(m=2, d=4), inner=None, **options):
    options = {"poll_timeout": 0.2, "wait": 0.0, "outage": 0.3, **options}
    return Selecting(inner or FedAvg(fraction_evaluate=0.0), selector, **options)


def play(strategy, grid, rounds=4, timeout=0.3):
    result = strategy.start(grid, zeros(), num_rounds=rounds, timeout=timeout)
    return result, strategy.history.rows


def with_arrays(**arrays):
    """Honest but for the update."""

    def fault(message, answer):
        reply = answer()
        reply.content["arrays"] = ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})
        return reply

    return fault


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, -5.0, 1e300, 10**400])
def test_a_poll_that_cannot_be_believed_is_no_answer(loss):
    grid = FakeGrid(plain_app(), range(4))
    if isinstance(loss, float):
        grid.faults[3] = only(POLL, saying(loss=loss))
    else:  # Flower itself refuses to send such a number
        grid.faults[3] = only(POLL, raising)
    _, rows = play(selecting(), grid)
    assert 3 not in grid.sent(TRAIN)  # honestly it would have the highest loss, always
    assert all(row.returned == 2 for row in rows)


@pytest.mark.parametrize("fault", [silent, raising, saying(loss=[1.0, 2.0])])
def test_silence_errors_and_lists_are_no_answer(fault):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only(POLL, fault)
    _, rows = play(selecting(), grid)
    assert 3 not in grid.sent(TRAIN)
    assert all(row.returned == 2 for row in rows)


@pytest.mark.parametrize("loss", [math.nan, -5.0])
def test_a_training_loss_that_is_none_does_not_take_the_seats_for_ever(loss, caplog):
    def trained(message, answer):
        reply = answer()
        reply.content["metrics"]["train_loss"] = loss
        return reply

    def play_with(selector):
        grid = FakeGrid(plain_app(), range(6))
        grid.faults = {k: only(TRAIN, trained) for k in (1, 3)}
        _, rows = play(selecting(selector, quarantine=4), grid, rounds=12)
        return [set(row.clients) for row in rows]

    picks = play_with(strategy("rpow-d", m=2, d=6))
    assert {1, 3} <= set.union(*picks)
    assert sum(bool({1, 3} & pick) for pick in picks) <= 6  # 9 or more, where they keep the rank of the unknown
    assert len(set.union(*picks[6:]) - {1, 3}) >= 2
    assert "no valid loss from partition-id=3" in caplog.text
    caplog.clear()
    play_with(Rand(2))  # does not learn from it
    assert "no valid loss" not in caplog.text


@pytree
class SlowToCompile:
    """rand, whose methods take a second to be traced."""

    m: int = static()
    poll = "none"

    def init(self, num_clients):
        return Rand(self.m).init(num_clients)

    def propose(self, key, state, clients):
        return Rand(self.m).propose(key, state, clients)

    def select(self, key, state, clients, candidates, losses):
        time.sleep(1)
        return Rand(self.m).select(key, state, clients, candidates, losses)

    def observe(self, state, selection, report):
        time.sleep(1)
        return Rand(self.m).observe(state, selection, report)


def test_compiling_the_strategy_is_no_part_of_the_first_round():
    rows = {}
    for selector in (Rand(2), SlowToCompile(2)):
        began = time.monotonic()
        strategy = selecting(selector)
        _, rows[type(selector)] = play(strategy, FakeGrid(plain_app(), range(4)), rounds=2)
    assert time.monotonic() - began > 2
    assert rows[SlowToCompile][0].seconds < 1
    assert [row.clients for row in rows[Rand]] == [row.clients for row in rows[SlowToCompile]]


def test_waiting_for_clients_to_connect_is_no_part_of_the_first_round():
    grid = FakeGrid(plain_app(), range(4))
    began = time.monotonic()
    _, rows = play(selecting(clients=5, wait=4.0), grid, rounds=2)  # the fifth does not come
    assert time.monotonic() - began - sum(row.seconds for row in rows) >= 4


def test_clients_that_answer_with_errors_are_not_waited_for():
    grid = FakeGrid(plain_app(), range(6))
    grid.faults = {k: only(POLL, raising) for k in (4, 5)}  # as where an app has data for four
    began = time.monotonic()
    _, rows = play(selecting(clients=6, wait=60.0), grid, rounds=2)
    assert time.monotonic() - began < 20
    assert [row.returned for row in rows] == [2, 2]
    assert not {4, 5} & set(grid.sent(TRAIN))


def test_a_loss_beyond_the_known_range_is_a_lie():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[0] = only(POLL, saying(loss=1e9))
    play(selecting(loss_range=(0.0, 1e3)), grid)
    assert 0 not in grid.sent(TRAIN)
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[0] = only(POLL, saying(loss=1e9))
    play(selecting(), grid)
    assert 0 in grid.sent(TRAIN)  # nobody could know


def test_losses_may_be_negative_where_the_objective_is():
    grid = FakeGrid(plain_app(), range(4))
    for k in range(4):
        grid.faults[k] = only(POLL, saying(loss=-1.0 + k / 10))
    _, rows = play(selecting(loss_range=(-1.0, 0.0)), grid)
    assert [sorted(row.clients) for row in rows] == [[2, 3]] * 4


def test_a_silent_client_costs_one_time_out_is_quarantined_and_comes_back():
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting(quarantine=2)
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)  # whatever has to be compiled is
    grid.faults[3] = only(POLL, silent)
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert 0.2 <= strategy.history.rows[-1].seconds < 0.7
    table = strategy.adapter.state.clients
    assert not table.available()[3]
    del grid.faults[3]
    seen = []
    for _ in range(5):
        strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
        seen.append(bool(table.available()[3]))
    assert seen == [False, False, True, True, True]
    assert table.failures[3] == 0


def test_who_fails_again_stays_away_longer():
    strategy = selecting(quarantine=1)
    table = strategy.adapter.state.clients
    table.join(5, "partition-id=0", 3.0)
    ends = []
    for _ in range(6):
        table.quarantine(0, t=0, rounds=1)
        ends.append(int(table.quarantine_end[0]))
    assert ends == [2, 3, 5, 9, 9, 9]


def test_a_client_that_does_not_answer_the_roll_call_again_stays_away():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = silent
    _, rows = play(selecting(quarantine=1), grid, rounds=3)
    assert all(3 not in row.clients for row in rows)
    assert [row.available for row in rows] == [3, 3, 3]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (silent, "no reply in time"),
        (raising, "the disk is full"),
        (with_arrays(w=np.full(3, np.nan, np.float32)), "not finite"),
        (with_arrays(w=np.array([1, np.inf, 1], np.float32)), "not finite"),
        (with_arrays(w=np.zeros((2, 2), np.float32)), r"shape \(2, 2\)"),
        (with_arrays(w=np.float32(1)), r"shape \(\)"),
        (with_arrays(v=np.zeros(3, np.float32)), "array names differ"),
    ],
)
def test_an_update_that_cannot_be_believed_never_reaches_the_average(fault, why, caplog):
    grid = FakeGrid(plain_app(pull=1.0), range(4))
    grid.faults[3] = only(TRAIN, fault)
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        result, rows = play(selecting(), grid, rounds=1)
    assert grid.sent(TRAIN).count(3) == 1
    assert sorted(rows[0].clients) == [-1, 2]
    assert sorted(rows[0].weights) == [0.0, 1.0]  # the rest counts for all
    np.testing.assert_array_equal(result.arrays["w"].numpy(), np.full(3, 3.0, np.float32))
    assert [message for message in caplog.messages if "partition-id=3" in message and "no update" in message]
    assert re.search(why, caplog.text)


def test_an_array_that_cannot_be_read_is_left_out():
    def garbage(message, answer):
        reply = answer()
        reply.content["arrays"]["w"] = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=b"no array")
        return reply

    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only(TRAIN, garbage)
    _, rows = play(selecting(), grid, rounds=1)
    assert rows[0].returned == 1


def test_all_updates_lost_leave_the_model_as_it_was():
    grid = FakeGrid(plain_app(), range(4))
    for k in range(4):
        grid.faults[k] = only(TRAIN, raising)
    strategy = selecting()
    fault = r"no client has returned an update in 3 rounds \(the last fault: error: .*\); start the run again"
    with pytest.raises(OutageError, match=fault):
        play(strategy, grid, rounds=3)
    assert [row.returned for row in strategy.history.rows] == [0, 0, 0]
    assert [row.trained for row in strategy.history.rows] == [2, 2, 2]  # all were called again
    np.testing.assert_array_equal(strategy.adapter.state.arrays["w"].numpy(), np.zeros(3))


def test_replies_to_older_messages_and_to_nobody_are_not_counted():
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    old = [grid._reply(message) for _, message in grid.log if message.metadata.message_type == TRAIN]
    sent = strategy.configure_train(1, zeros(), ConfigRecord(), grid)
    for message in sent:
        message.metadata.ttl = 60.0
    grid.push_messages(list(sent))
    arrays, _ = strategy.aggregate_train(1, old)
    assert arrays is None
    assert strategy.history.rows[-1].returned == 0


def test_metrics_that_only_some_clients_have_do_not_end_the_run():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only(TRAIN, saying(extra=1.0, curve=[1.0, 2.0]))
    result, rows = play(selecting(), grid)
    assert all(row.returned == 2 for row in rows)
    assert set(result.train_metrics_clientapp[1]) == {"train_loss"}


@pytest.mark.parametrize(("fallback", "trained"), [("rand", [2, 1]), ("skip", [0, 0])])
def test_nobody_answers_the_poll(fallback, trained, caplog):
    grid = FakeGrid(plain_app(), range(9))
    for k in range(9):
        grid.faults[k] = only(POLL, lambda message, answer: answer() if "arrays" not in message.content else None)
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        strategy = selecting(fallback=fallback)
        with pytest.raises(OutageError) if fallback == "skip" else contextlib.nullcontext():
            play(strategy, grid, rounds=2)
    rows = strategy.history.rows
    assert [row.trained for row in rows] == trained
    silent_so_far = set()
    for k, message in grid.log:  # who has not answered is not trained
        if message.metadata.message_type == POLL and "arrays" in message.content:
            silent_so_far.add(k)
        assert message.metadata.message_type != TRAIN or k not in silent_so_far
    assert ("drawn by size" if fallback == "rand" else "no client to train") in caplog.text


def test_the_fall_back_goes_by_size():
    def mute(size):
        """Says its size and nothing else."""
        return lambda message, answer: (
            None if "arrays" in message.content else saying(num_examples=size)(message, answer)
        )

    counts = np.zeros(4)
    for seed in range(60):
        grid = FakeGrid(plain_app(), range(4))
        grid.faults = {k: only(POLL, mute(size)) for k, size in enumerate([1e6, 3.0, 1.0, 0.0])}
        _, rows = play(selecting(PowerOfChoice(m=1, d=1), seed=seed, poll_timeout=0.02, size_cap=None), grid, rounds=1)
        counts[rows[0].clients] += 1
    assert counts.sum() == 60
    assert counts[0] == counts[3] == 0  # it was asked, by its size; it has nothing
    assert counts[1] > 1.8 * counts[2] > 0


def test_a_client_that_joins_late_is_asked_once_and_trains():
    grid = FakeGrid(plain_app(), range(3))
    strategy = selecting(PowerOfChoice(m=2, d=4))
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    grid.join(3)
    strategy.start(grid, zeros(), num_rounds=3, timeout=0.3)
    calls = [k for k, m in grid.log if m.metadata.message_type == POLL and "arrays" not in m.content]
    assert sorted(calls) == [0, 1, 2, 3]
    assert 3 in grid.sent(TRAIN)


def test_more_clients_than_were_expected_are_welcome():
    grid = FakeGrid(plain_app(), range(2))
    strategy = selecting(PowerOfChoice(m=2, d=2, loss="stale"), clients=2)
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    for k in range(2, 12):
        grid.join(k)
    strategy.start(grid, zeros(), num_rounds=20, timeout=0.3)
    table = strategy.adapter.state.clients
    assert sum(identity is not None for identity in table.identities) == 12
    assert len(set(grid.sent(TRAIN))) > 6  # who has never trained comes first in rpow-d
    assert strategy.adapter.state.memory.times.shape == (len(table),)
    assert int(strategy.adapter.state.memory.times.sum()) == 44


def test_a_client_that_starts_again_is_the_same_client_with_its_new_size():
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=2, timeout=0.3)
    grid.leave(3)
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert strategy.history.rows[-1].available == 3
    grid.join(3)
    grid.faults[3] = only(POLL, saying(num_examples=77))
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    table = strategy.adapter.state.clients
    assert len(table) == 4
    assert table.size.tolist() == [10.0, 20.0, 30.0, 77.0]


def test_a_client_that_starts_again_before_its_old_node_is_forgotten_is_at_the_new_one(caplog):
    grid = FakeGrid(plain_app(), range(4))
    strategy = selecting()
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    table = strategy.adapter.state.clients
    older, newer = table.node_of[3], grid.join(3)
    grid.faults[3] = lambda message, answer: None if message.metadata.dst_node_id == older else answer()
    strategy.start(grid, zeros(), num_rounds=1, timeout=0.3)
    assert table.node_of[3] == newer
    assert f"partition-id=3 is now node {newer}; node {older} does not answer" in caplog.text
    assert strategy.history.rows[-1].available == 4
    assert grid.sent("train").count(3) == 2  # of two rounds


def test_a_size_that_is_not_known_is_the_median_of_the_others():
    grid = FakeGrid(plain_app(), range(4))
    for k, said in enumerate([math.nan, -3.0, 8.0, 12.0]):
        grid.faults[k] = only(POLL, saying(num_examples=said))
    strategy = selecting()
    play(strategy, grid, rounds=1)
    assert strategy.adapter.state.clients.sizes().tolist() == [10.0, 10.0, 8.0, 12.0]


def test_clients_may_be_known_by_name_in_whatever_order_they_come():
    picks = []
    for shuffle in range(2):
        names = {0: "Oslo", 1: "Bergen", 2: "Arendal", 3: "Narvik"}
        grid = FakeGrid(named_app(names), range(4), seed=shuffle)
        strategy = selecting(PowerOfChoice(m=2, d=3))
        _, rows = play(strategy, grid, rounds=6)
        assert strategy.adapter.state.clients.identities == [f"name={n}" for n in sorted(names.values())]
        picks.append([row.clients for row in rows])
    assert picks[0] == picks[1]


def test_without_a_stable_id_it_goes_by_node_and_says_so(caplog):
    def nameless(message, answer):
        reply = answer()
        reply.content["metrics"].pop("partition-id", None)
        return reply

    grid = FakeGrid(plain_app(), range(3))
    grid.faults = {k: only(POLL, nameless) for k in range(3)}
    _, rows = play(selecting(PowerOfChoice(m=2, d=3)), grid, rounds=2)
    assert all(row.returned == 2 for row in rows)
    assert caplog.text.count("should report a partition-id or a name") == 1


def test_with_nobody_there_no_round_is_played_and_the_run_ends_with_an_error():
    strategy, began = selecting(outage=0.5), time.monotonic()
    with pytest.raises(OutageError, match=r"0 of at least 1 clients are here, after 0\.5 s; start the run again"):
        play(strategy, FakeGrid(plain_app(), []), rounds=2)
    assert 0.5 <= time.monotonic() - began < 5
    assert strategy.history.rows == []


def test_clients_without_a_query_handler_are_named_with_what_they_said(caplog):
    app = plain_app()
    del app._registered_funcs["query.loss"]
    began = time.monotonic()
    with pytest.raises(ValueError, match="all 2 clients that are here answered the roll call with an error") as error:
        play(selecting(wait=60.0), FakeGrid(app, range(2)), rounds=1)
    assert time.monotonic() - began < 5, "it does not wait"
    assert "No query function registered" in str(error.value)
    assert str(error.value).splitlines()[1] == '    @app.query("loss")'  # the lines that are missing
    assert "did not answer the roll call: error: ValueError: No query function registered" in caplog.text


def slow(seconds, fault):
    """Silent for some seconds from the first message on, as where a process starts and imports, and then at fault."""
    began = []

    def silent_at_first(message, answer):
        began.append(time.monotonic())
        return None if time.monotonic() - began[0] < seconds else fault(message, answer)

    return silent_at_first


def honest(message, answer):
    return answer()


def test_clients_that_are_slow_at_first_are_called_again_within_the_wait(caplog):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {k: slow(0.6, honest) for k in (1, 2, 3)}
    began = time.monotonic()
    with caplog.at_level(logging.INFO, "flwr.fedpick"):
        strategy = selecting(wait=60.0, clients=4)
        _, rows = play(strategy, grid, rounds=2)
    assert time.monotonic() - began < 15, "it does not wait to the end"
    assert [row.available for row in rows] == [4, 4]
    assert "1 of 4 clients have answered; waiting up to" in caplog.text
    assert caplog.text.count("did not answer the roll call") == 3, "once for each"
    assert not strategy.adapter.state.clients.failures.any()


def test_who_stays_silent_for_the_whole_wait_is_quarantined_once():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {3: silent}
    strategy = selecting(wait=1.5, clients=4)
    _, rows = play(strategy, grid, rounds=1)
    assert rows[0].available == 3
    ((failures, _),) = strategy.adapter.state.clients.unknown_nodes.values()
    assert failures == 1


@pytest.mark.parametrize("wait", [30.0, 0.0])
def test_a_missing_handler_is_told_also_where_the_first_roll_call_was_lost(wait):
    app = plain_app()
    del app._registered_funcs["query.loss"]
    grid, began = FakeGrid(app, range(3)), time.monotonic()
    grid.faults = {k: slow(0.5, honest) for k in range(3)}
    with pytest.raises(ValueError, match="all 3 clients that are here answered the roll call with an error") as error:
        play(selecting(wait=wait, clients=3, outage=30.0), grid, rounds=1)
    assert time.monotonic() - began < 15
    assert '    @app.query("loss")' in str(error.value)


def test_an_outage_names_the_fault_and_calls_those_who_fail_ever_less_often():
    grid = FakeGrid(plain_app(), range(3))
    strategy = selecting(outage=4.0)

    def breaks(message, answer):
        if message.content["config"]["server-round"] > 1:
            raise RuntimeError("the disk is full")
        return answer()

    grid.faults = {k: only(POLL, breaks) for k in range(3)}
    with pytest.raises(OutageError, match=r"\(the last fault: error: RuntimeError: the disk is full\); start the run"):
        play(strategy, grid, rounds=3)
    calls = grid.sent(POLL).count(0) - 3  # the first roll call, and two polls
    assert 3 <= calls <= 6, "after 0, 0.5, 1.5 and 3.5 s"


def test_one_client_that_fails_at_the_roll_call_does_not_end_the_run():
    grid = FakeGrid(plain_app(), range(3))
    grid.faults = {0: only(POLL, raising)}
    _, rows = play(selecting(PowerOfChoice(m=2, d=3)), grid, rounds=1)
    assert rows[0].returned > 0


def test_the_clients_evaluation_can_serve_as_the_poll():
    app = plain_app()
    del app._registered_funcs["query.loss"]
    grid = FakeGrid(app, range(4))
    _, rows = play(selecting(query="evaluate", poll_loss="eval_loss"), grid)
    assert all(row.returned == 2 for row in rows)
    assert grid.sent("evaluate").count(3) == 5  # the roll call, and four polls


def test_waits_for_the_clients_that_are_expected(monkeypatch):
    grid = FakeGrid(plain_app(), range(2))
    monkeypatch.setattr(time, "sleep", lambda seconds: grid.join(len(grid.nodes)) if len(grid.nodes) < 4 else None)
    _, rows = play(selecting(wait=60.0, clients=4), grid, rounds=1)
    assert rows[0].available == 4


def test_evaluation_is_among_those_who_are_there_and_does_not_wait_for_more():
    grid = FakeGrid(plain_app(), range(3))
    grid.faults[0] = only("evaluate", _own_error)
    grid.faults[1] = only("evaluate", saying(extra=1.0))
    strategy = selecting(
        PowerOfChoice(m=1, d=3), FedAvg(min_evaluate_nodes=5, min_available_nodes=5, fraction_train=0.1)
    )
    result, _ = play(strategy, grid, rounds=1)
    assert sorted(grid.sent("evaluate")) == [0, 1, 2]
    assert set(result.evaluate_metrics_clientapp[1]) == {"eval_loss"}
    assert strategy.strategy.min_evaluate_nodes == 5
    measured = strategy.history.measured[1]
    assert measured["worst_loss"] >= measured["mean_loss"] > 0
    assert math.isnan(measured["mean_accuracy"])


def test_silence_in_the_evaluation_is_silence_and_an_error_there_is_not():
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {0: only("evaluate", silent), 1: only("evaluate", _own_error)}
    strategy = selecting(PowerOfChoice(m=1, d=4), FedAvg())
    play(strategy, grid, rounds=1)
    assert strategy.adapter.state.clients.available().tolist() == [False, True, True, True]


@pytest.mark.parametrize("kind", [POLL, TRAIN])
def test_who_fails_and_answers_is_asked_to_evaluate_and_who_is_silent_is_not(kind):
    def failing(fault):
        return only(kind, lambda message, answer: fault(message, answer) if "arrays" in message.content else answer())

    grid = FakeGrid(plain_app(), range(5))
    grid.faults = {3: failing(silent), 4: failing(_own_error)}
    strategy = selecting(PowerOfChoice(m=5, d=5), FedAvg())
    play(strategy, grid, rounds=1)
    table = strategy.adapter.state.clients
    assert table.available().tolist() == [True, True, True, False, False]
    assert table.reachable().tolist() == [True, True, True, False, True]
    assert sorted(grid.sent("evaluate")) == [0, 1, 2, 4]
    assert strategy.history.measured[1]["eval_clients"] == 4
    assert "eval_clients" not in strategy.history.summary(1)["final"]
    before = {name: values for name, values in table.columns().items() if name != "silent"}  # a state of before
    assert not ClientTable.from_columns(table.identities, before).silent.any()


def test_an_error_that_the_superlink_makes_is_silence():
    gone = lambda message, answer: Message(Error(code=5, reason="gone"), reply_to=message)  # noqa: E731
    grid = FakeGrid(plain_app(), range(4))
    grid.faults[3] = only(TRAIN, gone)
    play(selecting(Uniform(4), FedAvg()), grid, rounds=1)
    assert sorted(grid.sent("evaluate")) == [0, 1, 2]


def _own_error(message, answer):
    return Message(Error(code=2, reason="no evaluate function"), reply_to=message)


def test_evaluations_of_nothing_do_not_divide_by_zero():
    grid = FakeGrid(plain_app(), range(3))
    grid.faults = {k: only("evaluate", saying(num_examples=0)) for k in range(3)}
    result, _ = play(selecting(PowerOfChoice(m=1, d=3), FedAvg()), grid, rounds=1)
    assert result.evaluate_metrics_clientapp == {}


def test_a_strategy_that_trains_nobody_is_left_to_it():
    grid = FakeGrid(plain_app(), range(3))
    _, rows = play(selecting(PowerOfChoice(m=1, d=3), FedAvg(fraction_train=0.0)), grid, rounds=1)
    assert [row.trained for row in rows] == [0]


def test_examples_that_nobody_has_count_the_same():
    grid = FakeGrid(plain_app(pull=1.0), range(3))
    grid.faults = {k: only(TRAIN, saying(num_examples=0)) for k in range(3)}
    result, _ = play(selecting(PowerOfChoice(m=3, d=3), weights="examples"), grid, rounds=1)
    np.testing.assert_allclose(result.arrays["w"].numpy(), 2.0, rtol=1e-6)


def test_weights_that_do_not_sum_to_1_move_the_model_as_in_the_simulator():
    grid = FakeGrid(plain_app(pull=1.0), range(3))
    strategy = selecting(Uniform(m=1))
    result, rows = play(strategy, grid, rounds=1)
    (k,) = rows[0].clients
    share = (k + 1) / 6
    np.testing.assert_allclose(result.arrays["w"].numpy(), share * 3 * (k + 1), rtol=1e-5)


def test_a_client_in_two_seats_trains_twice():
    grid = FakeGrid(plain_app(), range(2))
    _, rows = play(selecting(Rand(m=4)), grid, rounds=3)
    assert [row.trained for row in rows] == [4, 4, 4]
    seats = [
        message.content["config"]["fedpick-seat"] for _, message in grid.log if message.metadata.message_type == TRAIN
    ]
    assert sorted(seats) == sorted([0, 1, 2, 3] * 3)


@pytree
class EverybodyOnce:
    """A selector without a poll and with as many seats as clients."""

    m: int | None = static(default=None)
    poll = "none"

    def init(self, num_clients):
        return ()

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        from fedpick import Full

        return Full().select(key, state, clients, candidates, losses)

    def observe(self, state, selection, report):
        return state


def test_any_selector_will_do():
    grid = FakeGrid(plain_app(), range(3))
    _, rows = play(selecting(EverybodyOnce()), grid, rounds=2)
    assert [row.trained for row in rows] == [3, 3]


class OwnStart(FedAvg):
    """A strategy with rounds of its own."""

    def start(self, grid, initial_arrays, num_rounds=3, timeout=3600, **options):
        self.started = True
        return super().start(grid, initial_arrays, num_rounds, timeout, **options)


def test_a_strategy_with_a_start_of_its_own_takes_the_mixin():
    with pytest.raises(ValueError, match=r"SelectingMixin, OwnStart"):
        Selecting(OwnStart(), Rand(m=2))

    class Mine(SelectingMixin, OwnStart):
        pass

    with pytest.raises(ValueError, match="select_with"):
        Mine().start(FakeGrid(plain_app(), range(4)), zeros())
    mine = Mine(fraction_evaluate=0.0).select_with(PowerOfChoice(m=2, d=4), poll_timeout=0.2, wait=0.0)
    evaluate = lambda server_round, arrays: MetricRecord({"loss": float(server_round)})  # noqa: E731
    result = mine.start(FakeGrid(plain_app(), range(4)), zeros(), num_rounds=3, evaluate_fn=evaluate)
    assert mine.started
    assert [row.returned for row in mine.history.rows] == [2, 2, 2]
    assert [mine.history.measured[t]["test_loss"] for t in range(4)] == [0.0, 1.0, 2.0, 3.0]
    reference = selecting()
    same, _ = play(reference, FakeGrid(plain_app(), range(4)), rounds=3)
    np.testing.assert_array_equal(result.arrays["w"].numpy(), same.arrays["w"].numpy())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seed": -1}, "Selecting: seed must be at least 0, got -1"),
        ({"poll_timeout": 0}, "Selecting: poll_timeout must be finite and above 0, got 0"),
        ({"wait": math.inf}, "Selecting: wait must be finite and at least 0, got inf"),
        ({"quarantine": 0}, "Selecting: quarantine must be at least 1, got 0"),
        ({"clients": 0}, "Selecting: clients must be at least 1, got 0"),
        ({"clients": 2**31}, "Selecting: clients must be at most 10,000,000, got 2147483648"),
        ({"fallback": "all"}, "Selecting: fallback must be one of 'rand', 'skip', got 'all'"),
        ({"weights": "size"}, "Selecting: weights must be one of 'selection', 'examples', got 'size'"),
        ({"train_loss": ""}, "Selecting: train_loss must be a name, got ''"),
        ({"size_cap": 0.5}, "Selecting: size_cap must be finite and at least 1, got 0.5"),
        ({"sizes": {"name=Oslo": -1}}, "Selecting: sizes['name=Oslo'] must be finite and at least 0, got -1"),
        *(
            (
                {name: {who: 5}},
                f"Selecting: {name} must be by identity, such as 'partition-id=3' or 'name=Oslo', got {who!r}",
            )
            for name, who in (("sizes", "3"), ("sizes", 3), ("size_caps", "Oslo"))
        ),
        ({"identity": "key"}, "Selecting: identity must be one of 'reported', 'node', got 'key'"),
        ({"loss_range": (1.0, 0.0)}, "Selecting: loss_range must be (lowest, highest), got (1.0, 0.0)"),
    ],
)
def test_options_are_checked(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Selecting(FedAvg(), Rand(m=1), **options)


def test_the_options_are_those_of_the_signature():
    names = inspect.signature(Selecting).parameters
    fields = {field.name: (field.default, field.type) for field in dataclasses.fields(Options)}
    assert {n: (p.default, p.annotation) for n, p in names.items() if p.kind is p.KEYWORD_ONLY} == fields
    assert list(names)[:2] == ["strategy", "selector"]


def test_mistakes_are_named():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'pol_timeout'"):
        Selecting(FedAvg(), Rand(m=1), pol_timeout=3)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'pol_timeout'"):
        type("Mine", (SelectingMixin, FedAvg), {})().select_with(Rand(m=1), pol_timeout=3)
    with pytest.raises(ValueError, match=r"batch must be given.*Selecting\(..., batch=32\), got None"):
        Selecting(FedAvg(), PowerOfChoice(m=1, d=2, loss="batch"))
    with pytest.raises(ValueError, match="strategy must be a Strategy of flwr"):
        Selecting("FedAvg", Rand(m=1))
    with pytest.raises(ValueError, match="must be configured before"):
        selecting().aggregate_train(1, [])


def test_the_servers_own_evaluation_is_recorded():
    strategy = selecting()
    strategy.start(
        FakeGrid(plain_app(), range(4)),
        zeros(),
        num_rounds=2,
        timeout=0.3,
        evaluate_fn=lambda server_round, arrays: MetricRecord({"loss": 1.0 / (server_round + 1), "accuracy": 0.25}),
    )
    measured = strategy.history.measured
    assert [measured[t]["test_loss"] for t in (0, 1, 2)] == [1.0, 0.5, 1 / 3]
    assert measured[2]["test_accuracy"] == 0.25
