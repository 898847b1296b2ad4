"""What a strategy learns from and no client reports is said; in a trial of an app it is an error."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from support.fake_grid import FakeGrid, only, plain_app, saying, zeros

from fedpick import AFL, Auto, Cooldown, Credits, LocalLoss, Mixture, PowerOfChoice, Private, Rand, RankClip, strategy
from fedpick.compare import load_report
from fedpick.flower import OutageError, Selecting
from fedpick.flower.evaluations import server_metrics
from fedpick.flower.history import History

BY_SIZE = LocalLoss(by_size=True)


def without(*names):
    """Honest, but these metrics are missing."""

    def fault(message, answer):
        reply = answer()
        for record in reply.content.metric_records.values():
            for name in names:
                record.pop(name, None)
        return reply

    return fault


def start(name, fault, strict=False, clients=6, options=None, **parameters):
    """Three rounds, in which all clients have this fault."""
    grid = FakeGrid(plain_app(), range(clients))
    grid.faults = dict.fromkeys(range(clients), fault)
    ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy(name, m=2, **parameters), wait=0.1, **(options or {}))
    ours.adapter.check_reports.strict = strict
    ours.start(grid, zeros(), num_rounds=3, timeout=0.5)
    return ours.history


@pytest.mark.parametrize(
    ("name", "missing", "parameters"),
    [
        ("rpow-d", "train_loss", {"d": 4}),
        ("afl", "train_loss", {}),
        ("ucb-cs", "square_loss", {}),
        ("oort", "square_loss", {}),
    ],
)
def test_a_strategy_that_hears_nothing_says_so_once_and_is_no_trial(name, missing, parameters, caplog):
    with caplog.at_level(logging.WARNING, "flwr"):
        history = start(name, without("train_loss"), **parameters)
    said = [line for line in caplog.messages if "it chooses without" in line]
    assert len(said) == 1
    assert f"learns from '{missing}' in the metrics of training replies" in said[0]
    assert f"learns from '{missing}'" in history.notes[1]
    with pytest.raises(ValueError, match=f"learns from '{missing}' .* report it from the app's train function"):
        start(name, without("train_loss"), strict=True, **parameters)


@pytest.mark.parametrize(("name", "parameters"), [("rand", {}), ("pow-d", {"d": 4}), ("uniform", {})])
def test_a_strategy_that_needs_no_training_losses_does_without_them(name, parameters, caplog):
    start(name, without("train_loss"), strict=True, **parameters)
    assert "it chooses without" not in caplog.text


def play(selector, fault, rounds, strict=False):
    """The strategy among eight clients that have this fault, and whose losses never fall."""

    def losses(message, answer):
        reply = fault(message, answer)
        for record in reply.content.metric_records.values():
            record.update({name: 2.0 for name in ("loss", "train_loss") if record.get(name, -1) >= 0})
        return reply

    grid = FakeGrid(plain_app(), range(8))
    grid.faults = dict.fromkeys(range(8), losses)
    ours = Selecting(FedAvg(fraction_evaluate=0.0), selector, seed=0, clients=8, wait=0.1)
    ours.adapter.check_reports.strict = strict
    ours.start(grid, zeros(), num_rounds=rounds, timeout=0.5)
    return ours.history


def test_auto_says_so_once_it_polls_no_more_and_hears_no_training_losses():
    said = "Auto learns from 'train_loss' in the metrics of training replies, and none of a round had it"
    notes = play(Auto(2, most=4), without("train_loss"), rounds=59).notes
    assert notes[57] == said  # the polls told it enough until then
    assert [t for t, note in notes.items() if said in note] == [57]
    assert notes[56] == "d 4 -> 2, no progress in 56 rounds"


def test_a_mixture_with_one_that_learns_from_training_says_so():
    power = PowerOfChoice(m=2, d=4)
    mixed = RankClip(Mixture((power, AFL(m=2))))
    assert "learns from 'train_loss'" in play(mixed, without("train_loss"), rounds=1).notes[1]
    with pytest.raises(ValueError, match="report it from the app's train function"):
        play(mixed, without("train_loss"), rounds=1, strict=True)
    assert play(mixed, honest, rounds=1).notes == {}
    for deaf in (RankClip(Mixture((power, Rand(m=2)), (0.0, 1.0))), Credits(power)):
        assert play(deaf, without("train_loss"), rounds=1, strict=True).notes == {}


def test_only_strategies_that_learn_from_training_mind_a_training_loss_that_is_none(caplog):
    broken = saying(train_loss=float("nan"))
    power = PowerOfChoice(m=2, d=4)
    for selector in (power, RankClip(power), Mixture((power, Rand(m=2))), Auto(2, most=4)):
        play(selector, broken, rounds=2)
    assert "no valid loss" not in caplog.text
    play(Mixture((power, AFL(m=2))), broken, rounds=1)
    assert "no valid loss" in caplog.text


def test_losses_that_are_reported_and_no_numbers_are_no_missing_ones(caplog):
    start("afl", saying(train_loss=float("nan")), strict=True)
    assert "it chooses without" not in caplog.text


@pytest.mark.parametrize(
    ("name", "parameters", "who"),
    [("oort", {}, "Oort"), ("afl-sqrt-size", {}, "AFL"), ("pow-d", {"d": 4, "score": BY_SIZE}, "PowerOfChoice")],
)
def test_a_strategy_for_losses_of_at_least_0_says_once_that_it_hears_another(name, parameters, who, caplog):
    history = start(name, saying(train_loss=-0.5, loss=-0.5), options={"loss_range": (-1, 10)}, **parameters)
    sentence = f"{who} is for losses of at least 0, and a client reported -0.5"
    said = [line for line in caplog.messages if "it may choose the wrong clients" in line]
    assert said == [f"fedpick: {sentence}: it may choose the wrong clients"]
    assert sentence in history.notes[1]


def test_other_strategies_hear_negative_losses_in_silence(caplog):
    start("rpow-d", saying(train_loss=-0.5), options={"loss_range": (-1, 10)}, d=4)
    assert "it may choose the wrong clients" not in caplog.text


def test_an_accuracy_in_per_cent_is_said_and_left_out_and_refused_in_a_trial(caplog):
    record, history = MetricRecord({"loss": 0.5, "accuracy": 70.4}), History()
    found = server_metrics(record, history)
    assert found["test_loss"] == 0.5
    assert found["test_accuracy"] != found["test_accuracy"]
    assert "accuracies are in per cent, and must be between 0 and 1 (losses are used)" in caplog.text
    with pytest.raises(ValueError, match=r"must be between 0 and 1, got 70\.4"):
        server_metrics(record, history, strict=True)
    exact = MetricRecord({"loss": 0.5, "accuracy": 1.0000001})
    assert server_metrics(exact, History(), strict=True)["test_accuracy"] == 1.0


def test_accuracies_in_per_cent_that_begin_at_1_or_below_are_forgotten_also_at_a_resume(tmp_path):
    def play(rounds):
        ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy("rand", m=2), clients=4, wait=0.1, folder=tmp_path)
        values = [0.97, 0.98, 4.0, 9.0, 0.5]
        ours.start(
            FakeGrid(plain_app(), range(4)), zeros(), rounds, timeout=0.5,
            evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": values[t]}),
        )  # fmt: skip
        return [ours.history.measured[t]["test_accuracy"] for t in range(rounds + 1)]

    assert play(1) == [0.97, 0.98]
    assert np.isnan(play(3)).all()
    assert np.isnan(play(4)).all()
    report = load_report(tmp_path)
    assert "evaluations on the server could not be used: accuracies are in per cent" in " ".join(report.remarks)
    assert "loss" not in report.comparison.answer


def test_one_client_without_an_accuracy_or_with_one_in_per_cent_does_not_take_that_of_all(caplog):
    grid = FakeGrid(plain_app(), range(4))
    accuracies = {0: 0.2, 1: 0.4, 2: 55.0}
    grid.faults = {k: only("evaluate", saying(eval_acc=value)) for k, value in accuracies.items()}
    ours = Selecting(FedAvg(), strategy("rand", m=2), clients=4, wait=0.1)
    ours.start(grid, zeros(), num_rounds=2, timeout=0.5)
    assert ours.history.measured[2]["mean_accuracy"] == pytest.approx(0.3)
    assert ours.history.measured[2]["worst_accuracy"] == 0.2
    counts = dict(ours.history.unusable)
    assert counts["clients", "without an accuracy, which others report"] == 2
    assert counts["clients", "the accuracy is not between 0 and 1: is it in per cent? (a loss is used)"] == 2


@pytest.mark.parametrize(
    ("record", "loss", "accuracy"),
    [
        ({"train_loss": 9.0, "test_loss": 1.0, "balanced_accuracy": 0.1, "accuracy": 0.5}, 1.0, 0.5),
        ({"top5_accuracy": 0.9, "eval_acc": 0.5, "aux_loss": 7.0, "loss": 1.0}, 1.0, 0.5),
        ({"train_acc": 0.99, "centralized_accuracy": 0.5, "val_loss": 1.0, "l2_loss": 3.0}, 1.0, 0.5),
        ({"f1": 0.2, "mse_loss": 1.0, "top1_acc": 0.5}, 1.0, 0.5),  # the only one
        ({"accuracy_std": 0.1, "loss_var": 3.0, "accuracy_mean": 0.5, "mean_loss": 1.0}, 1.0, 0.5),
        ({"inaccuracy": 0.3, "top5_accuracy": 0.9, "top1_accuracy": 0.5}, None, 0.5),
        ({"top-10-acc": 0.5}, None, 0.5),
        ({"train_loss": 9.0, "train_accuracy": 0.9}, None, None),  # of other data
    ],
)
def test_the_loss_and_the_accuracy_of_an_evaluation_are_those_of_the_test_data(record, loss, accuracy):
    found = server_metrics(MetricRecord(record), History())
    for name, value in (("test_loss", loss), ("test_accuracy", accuracy)):
        assert found[name] == value or (value is None and found[name] != found[name])


def test_a_server_that_measures_a_training_loss_alone_does_not_call_the_model_ruined(caplog):
    ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy("rand", m=2), wait=0.1)
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = {3: only("train", large)}
    ours.start(
        grid, zeros(), num_rounds=4, timeout=0.5, evaluate_fn=lambda t, arrays: MetricRecord({"train_loss": 1.0})
    )
    assert "the losses broke" not in caplog.text


def large(message, answer):
    reply = answer()
    w = reply.content["arrays"]["w"].numpy() * 100
    reply.content["arrays"] = ArrayRecord({"w": Array(w)})
    return reply


def test_the_accuracies_of_clients_too(caplog):
    grid = FakeGrid(plain_app(), range(4))
    grid.faults = dict.fromkeys(range(4), only("evaluate", saying(eval_acc=72.0)))
    ours = Selecting(FedAvg(), strategy("rand", m=2), wait=0.1)
    ours.start(grid, zeros(), num_rounds=1, timeout=0.5)
    assert ours.history.measured[1]["loss"] > 0
    assert ours.history.measured[1]["mean_accuracy"] != ours.history.measured[1]["mean_accuracy"]
    assert "accuracies are in per cent" in caplog.text
    ours.adapter.check_reports.strict = True
    with pytest.raises(ValueError, match="between 0 and 1, got 72"):
        ours.start(grid, zeros(), num_rounds=1, timeout=0.5)


def unheard(clients=8, *, fallback="rand", strict=False, faults=None, rounds=3, d=4, selector=None, **options):
    """A run of pow-d, or another strategy, in which polls have no valid loss."""
    grid = FakeGrid(plain_app(), range(clients))
    grid.faults = dict.fromkeys(range(clients), only("query.loss", saying(loss=float("nan"))))
    grid.faults |= faults or {}
    selector = selector or strategy("pow-d", m=2, d=d)
    ours = Selecting(FedAvg(fraction_evaluate=0.0), selector, wait=0.1, fallback=fallback, outage=30, **options)
    ours.adapter.check_reports.strict = strict
    try:
        ours.start(grid, zeros(), num_rounds=rounds, timeout=0.5)
    finally:
        unheard.grid = grid
    return ours.history


@pytest.mark.parametrize(
    ("fallback", "note"),
    [
        ("rand", "seats drawn by size, because no candidate answered the poll"),
        ("skip", "no client to train, because no candidate answered the poll; the model stays"),
    ],
)
def test_a_poll_in_vain_is_noted_in_its_round(fallback, note, caplog):
    with caplog.at_level(logging.INFO, "flwr"):
        history = unheard(fallback=fallback, faults={6: honest, 7: honest}, d=2)
    vain = [t for t, row in enumerate(history.rows, start=1) if row.asked and not set(row.asked) & {6, 7}]
    assert vain
    assert {t: why for t, why in history.notes.items() if "poll" in why} == dict.fromkeys(vain, note)
    assert f"fedpick round {vain[0]}: {note}" in caplog.text


def honest(message, answer):
    return answer()


@pytest.mark.parametrize("d", [4, 8])
def test_where_nobody_reports_a_valid_loss_the_strategy_chooses_without_in_every_round(d):
    history = unheard(d=d, rounds=6)
    assert [row.returned for row in history.rows] == [2] * 6
    assert [len(row.asked) for row in history.rows] == [d] * 6  # nobody is kept away for it


@pytest.mark.parametrize("fallback", ["rand", "skip"])
def test_polls_without_a_valid_loss_are_no_trial(fallback):
    sentence = r"'query\.loss' messages must be answered with a valid 'loss' for PowerOfChoice.*from the 4 clients"
    with pytest.raises(
        ValueError, match=f"{sentence}.*no valid loss.*see the app's 'query.loss' handler, and poll_loss"
    ):
        unheard(fallback=fallback, strict=True)
    assert "train" not in {message.metadata.message_type for _, message in unheard.grid.log}  # nobody trains in vain


def test_polls_without_a_norm_say_what_gives_it():
    sentence = r"'query\.loss' messages must be answered with a valid 'norm' for OptimalSampling"
    with pytest.raises(ValueError, match=rf"{sentence}.*\(no norm of an update, which answer\(train=\.\.\.\) gives\)"):
        unheard(selector=strategy("ocs", m=2), strict=True)


def test_few_in_vain_are_no_reason_to_end_a_trial_and_all_are_at_its_end():
    with pytest.raises(ValueError, match="got none from the 2 clients that were asked"):
        unheard(strict=True, d=2, rounds=1)  # who may be the ones that fail, but nobody else is asked
    with pytest.raises(ValueError, match="got none from the 4 clients that were asked"):
        unheard(strict=True, d=2)
    history = unheard(strict=True, d=2, faults=dict.fromkeys(range(4), honest), rounds=6)
    assert any(row.asked and all(loss != loss for loss in row.answers) for row in history.rows)


def test_a_spent_budget_is_no_missing_answer_in_a_trial():
    history = unheard(strict=True, faults=dict.fromkeys(range(8), only("query.loss", spent)))
    assert len(history.rows) == 3


def spent(message, answer):
    reply = without("loss")(message, answer)
    reply.content["metrics"]["budget-spent"] = 1
    return reply


def reporting(identity=True, size=True):
    """A client that reports who it is and how much data it has, or not; all that do not are named alike."""

    def fault(message, answer):
        reply = answer() if size else without("num-examples")(message, answer)
        if not identity and message.metadata.message_type == "query.loss":
            reply.content["metrics"]["partition-id"] = 0
        return reply

    return fault


def stored(folder, faults, strict=False, clients=6, evaluate=0.0, rounds=3, selector=None):
    """The report on a run of pow-d with these faults."""
    grid = FakeGrid(plain_app(), range(clients))
    grid.faults = faults
    ours = Selecting(
        FedAvg(fraction_evaluate=evaluate), selector or strategy("pow-d", m=2, d=4), folder=folder, wait=0.1, outage=0.5
    )
    ours.adapter.check_reports.strict = strict
    ours.start(grid, zeros(), num_rounds=rounds, timeout=0.5)
    return load_report(folder)


def test_clients_that_all_have_one_name_are_told_and_are_no_trial(tmp_path):
    faults = dict.fromkeys(range(6), reporting(identity=False))
    said = "5 nodes took no part, with a name or partition-id that another one has."
    assert stored(tmp_path / "told", faults).remarks[0] == said
    rule = "clients must each report a name or partition-id of their own, as context.node_config has it"
    with pytest.raises(ValueError, match=f"^Selecting: {rule}, got partition-id=0 from 5 more nodes than one$"):
        stored(tmp_path / "trial", faults, strict=True)
    assert not (tmp_path / "trial" / "runs").exists() or not list((tmp_path / "trial" / "runs").iterdir())


def test_clients_without_a_size_are_told(tmp_path, caplog):
    some = stored(tmp_path / "some", dict.fromkeys([1, 4], reporting(size=False)))
    assert some.remarks == (
        "2 of 6 clients report no num-examples: the median of the others counts instead, and 1 where nobody does.",
    )
    assert caplog.text.count("partition-id=4 reports no num-examples, and counts as 35") == 1
    assert stored(tmp_path / "all", dict.fromkeys(range(6), reporting(size=False))).remarks[0].startswith("6 of 6")
    assert stored(tmp_path / "none", {}).remarks == ()


def test_clients_that_report_no_examples_at_all_are_not_said_to_be_away(tmp_path):
    nothing = only("query.loss", saying(num_examples=0))
    with pytest.raises(OutageError, match="0 of at least 1 clients are here and 6 without examples, after"):
        stored(tmp_path, dict.fromkeys(range(6), nothing))


def test_polls_without_an_answer_are_told_and_spent_budgets_are_none(tmp_path):
    mute = only("query.loss", saying(loss=float("nan")))
    report = stored(tmp_path / "some", {5: mute})
    asked = sum(len(each.asked) for each in report.polls)
    assert report.remarks == (
        f"1 of {asked} polls had no valid answer: who does not answer is not trained in that round.",
    )
    whole = stored(tmp_path / "all", dict.fromkeys(range(6), mute), rounds=1).remarks
    assert whole[0].endswith("is not trained in that round. The strategy chose without losses.")
    assert stored(tmp_path / "spent", {5: only("query.loss", spent)}).remarks == ()


def test_evaluations_of_other_clients_in_equal_number_are_told(tmp_path):
    def away(number):
        return only("evaluate", lambda m, a: a() if m.content["config"]["server-round"] == number else without_all(a()))

    def without_all(reply):
        reply.content["metrics"] = MetricRecord({"num-examples": -1})
        return reply

    said = (
        "Evaluations on clients are of 3 clients, but not always of these: what they measure is not of the same "
        "clients in all rounds."
    )
    report = stored(tmp_path / "others", {0: away(1), 1: away(2)}, clients=4, evaluate=1.0, rounds=2)
    assert report.remarks == ("2 evaluations on clients could not be used: without a valid 'num-examples'.", said)
    assert stored(tmp_path / "same", {}, clients=4, evaluate=1.0, rounds=2).remarks == ()


def test_losses_that_clients_do_not_disguise_are_told_and_are_no_trial(tmp_path, caplog):
    private = Private(strategy("pow-d", m=2, d=4))
    heard = "Private is to hear no exact losses, and a client reported 3 undisguised"
    assert heard in stored(tmp_path / "bit", {}, rounds=2, selector=private).notes[0][1]
    assert caplog.text.count("undisguised: its clients need a fedpick.flower.client.Privacy") == 1
    laplace = Private(strategy("pow-d", m=2, d=4), mechanism="laplace", clip=7.0)
    assert "Private is to hear no exact losses" in stored(tmp_path / "laplace", {}, selector=laplace).notes[0][1]
    stale = Private(strategy("rpow-d", m=2, d=4))
    assert "Private is to hear no exact losses" in stored(tmp_path / "stale", {}, selector=stale).notes[0][1]
    with pytest.raises(ValueError, match=r"Selecting: Private is to hear no exact losses.* 'bit' and a clip of 10"):
        stored(tmp_path / "trial", {}, strict=True, selector=private)


def test_a_client_that_errs_in_the_roll_call_is_told_and_is_no_trial(tmp_path):
    faults = dict.fromkeys([4, 5], only("query.loss", index_error))
    told = "2 nodes took no part, without an answer to the roll call."
    assert stored(tmp_path / "told", faults, rounds=1).remarks == (told,)
    rule = "all clients must answer 'query.loss' messages, or fewer are compared, got errors from 2 of them"
    with pytest.raises(ValueError, match=rf"^Selecting: {rule} \(error: IndexError: no such part\)"):
        stored(tmp_path / "trial", faults, strict=True)


def index_error(message, answer):
    reply = Message(Error(code=2, reason="Traceback\nIndexError: no such part"), reply_to=message)
    return reply


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (None, "error: RuntimeError: no disk"),
        ({"eval_loss": 1.0}, "without a valid 'num-examples'"),
        ({"eval_loss": float("nan"), "num-examples": 5}, "with a number that is not finite"),
        ({"mse": 1.0, "rmse": 1.0, "num-examples": 5}, "without a loss or an accuracy among mse, rmse"),
    ],
)
def test_evaluations_that_cannot_be_used_are_told_with_the_reason(tmp_path, metrics, why, caplog):
    def evaluation(message, answer):
        if metrics is None:
            return Message(Error(code=2, reason="Traceback\nRuntimeError: no disk"), reply_to=message)
        reply = answer()
        reply.content["metrics"] = MetricRecord(metrics)
        return reply

    report = stored(tmp_path, dict.fromkeys(range(6), only("evaluate", evaluation)), evaluate=1.0, rounds=2)
    assert report.remarks == (f"12 evaluations on clients could not be used: {why}.",)
    assert caplog.text.count(f"cannot be used: {why}") == 1
    if "nan" in str(metrics):  # a model that has come to NaN is none that was not evaluated
        assert report.comparison.results[0].evaluated.tolist() == [0, 1, 2]


def test_a_federation_is_judged_by_its_accuracy_as_compare_app_has_it_or_else_by_its_loss(tmp_path):
    def evaluation(message, answer):
        reply = answer()
        reply.content["metrics"] = MetricRecord({"loss": 1.0, "accuracy": 0.5, "num-examples": 5})
        return reply

    known = dict.fromkeys(range(6), only("evaluate", evaluation))
    assert stored(tmp_path / "accuracy", known, evaluate=1.0).comparison.metric == "mean_accuracy"
    assert stored(tmp_path / "loss", {}, evaluate=1.0).comparison.metric == "loss"


def test_evaluations_that_could_not_be_used_before_a_server_resumed_are_told_with_those_since(tmp_path):
    faults = {2: only("evaluate", index_error)}
    for rounds in (2, 5):
        said = f"{rounds} evaluations on clients could not be used: error: IndexError: no such part."
        assert stored(tmp_path, faults, evaluate=1.0, rounds=rounds).remarks[0] == said


def test_what_the_server_measures_under_no_known_name_is_told(tmp_path):
    ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy("rand", m=2), wait=0.1, folder=tmp_path)
    grid = FakeGrid(plain_app(), range(4))
    ours.start(grid, zeros(), num_rounds=2, timeout=0.5, evaluate_fn=lambda t, arrays: MetricRecord({"mse": 1.0}))
    why = "without a loss or an accuracy among mse"
    assert load_report(tmp_path).remarks == (f"3 evaluations on the server could not be used: {why}.",)


def test_the_loss_is_the_servers_where_it_alone_measures_one_and_without_any_what_was_measured_is_named(tmp_path):
    for name, record in (("both", {"loss": 1.0, "accuracy": 0.5}), ("accuracy", {"accuracy": 0.5})):
        ours = Selecting(FedAvg(fraction_evaluate=0.0), strategy("rand", m=2), wait=0.1, folder=tmp_path / name)
        measured = MetricRecord(record)
        ours.start(
            FakeGrid(plain_app(), range(4)), zeros(), num_rounds=2, timeout=0.5, evaluate_fn=lambda *_, m=measured: m
        )
    assert load_report(tmp_path / "both", metric="loss").comparison.metric == "test_loss"
    with pytest.raises(
        ValueError, match=r"metric loss must have been measured, got none for rand.* \(but test_accuracy\)"
    ):
        load_report(tmp_path / "accuracy", metric="loss")


class FirstAlone(FedAvg):
    """A strategy that draws a node by itself."""

    def configure_train(self, server_round, arrays, config, grid):
        nodes, config["server-round"] = sorted(grid.get_node_ids())[:1], server_round
        return self._construct_messages(RecordDict({"arrays": arrays, "config": config}), nodes, "train")


def test_a_strategy_inside_that_trains_fewer_than_were_selected_is_told(caplog):
    ours = Selecting(FirstAlone(fraction_evaluate=0.0), strategy("pow-d", m=3, d=6), wait=0.1)
    ours.start(FakeGrid(plain_app(), range(6)), zeros(), num_rounds=2, timeout=0.5)
    said = "FirstAlone trains 1 of the 3 clients that were selected"
    assert ours.history.notes == {1: said}  # once
    assert said in caplog.text


def test_a_rest_after_which_losses_decide_nothing_is_told_once(caplog):
    resting = Cooldown(PowerOfChoice(m=2, d=4), rounds=5)
    ours = Selecting(FedAvg(fraction_evaluate=0.0), resting, wait=0.1)
    ours.start(FakeGrid(plain_app(), range(6)), zeros(), num_rounds=4, timeout=0.5)
    said = "Cooldown: K - m rounds = 6 - 10 rested clients must be more than m=2, or those that have rested longest"
    assert [said in note for note in ours.history.notes.values()] == [True]
    assert list(ours.history.notes) == [3]  # when four clients rest
    assert said in caplog.text


def test_a_model_that_was_rolled_back_is_noted(tmp_path):
    def ruin(message, answer):
        reply = answer()
        if message.content["config"]["server-round"] == 3:
            reply.content["arrays"] = ArrayRecord({"w": Array(np.full(3, 1e9, np.float32))})
        return reply

    for rounds in (3, 5):  # also where it is the last thing that happens
        folder = tmp_path / str(rounds)
        report = stored(folder, {5: only("train", ruin)}, evaluate=1.0, rounds=rounds)
        assert [why for _, why in report.notes if "back to the model after round 2, and quarantine" in why]
