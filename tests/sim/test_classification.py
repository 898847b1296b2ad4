"""F1, AUC, calibration and metrics of a user's: as scikit-learn has them, and alike however runs are played."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from support import metrics as own

from fedpick import PowerOfChoice, Rand
from fedpick.registry import ROLES
from fedpick.results import Result
from fedpick.sim import (
    Federation,
    Local,
    Logistic,
    Quadratic,
    QuadraticModel,
    auc,
    calibration,
    f1,
    preflight,
    resolve_metrics,
    simulate,
    simulation,
)
from fedpick.sim._engine import batching

LOCAL = Local(tau=2, b=5, eta=0.1)
ALL = ["f1", "auc", "calibration", own.brier, "support.metrics:samples"]


def drawn(n, classes, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) + 0.8 * (labels[:, None] == np.arange(classes))
    logits = logits[rng.integers(0, 20, n)] if ties else logits  # the same rows again and again
    return logits.astype(np.float32), labels.astype(np.int32)


def number(metric, logits, labels):
    return float(metric(jnp.asarray(logits), jnp.asarray(labels)))


def probabilities(logits):
    shifted = np.exp(np.float64(logits) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_f1_and_auc_are_scikit_learns(classes, ties):
    logits, labels = drawn(301, classes, ties=ties)
    predicted = logits.argmax(axis=1)
    assert number(f1, logits, labels) == pytest.approx(f1_score(labels, predicted, average="macro"), abs=1e-6)
    binary = logits[:, 1] - logits[:, 0]
    expected = roc_auc_score(labels, binary if classes == 2 else probabilities(logits), multi_class="ovr")
    assert number(auc, logits, labels) == pytest.approx(expected, abs=1e-6)


def test_classes_that_nobody_has():
    logits, labels = drawn(120, 6)
    labels = labels % 4  # 4 and 5 are predicted, and never right
    expected = f1_score(labels, logits.argmax(axis=1), average="macro", zero_division=0)
    assert number(f1, logits, labels) == pytest.approx(expected, abs=1e-6)
    p = probabilities(logits)
    each = [roc_auc_score(labels == k, p[:, k]) for k in range(4)]
    assert number(auc, logits, labels) == pytest.approx(np.mean(each), abs=1e-6)
    never = logits - 100.0 * (np.arange(6) >= 4)  # nor predicted: scikit-learn does not count them, either
    expected = f1_score(labels, never.argmax(axis=1), average="macro")
    assert number(f1, never, labels) == pytest.approx(expected, abs=1e-6)
    assert np.isnan(number(auc, logits, np.zeros(120, np.int32)))  # one class: there is nothing to tell apart
    assert np.isnan(number(auc, logits[:, :2], np.ones(120, np.int32)))


def test_all_level_is_half_and_sure_logits_are_not_level():
    labels = np.array([0, 1, 0, 1], np.int32)
    assert number(auc, np.zeros((4, 2), np.float32), labels) == 0.5
    sure = np.stack([np.zeros(4), np.array([40.0, 41.0, 42.0, 43.0])], axis=1).astype(np.float32)
    assert number(auc, sure, labels) == 0.75  # as probabilities in float32, all would be 1


def test_many_samples_of_few_positives_keep_their_digits():
    rng = np.random.default_rng(3)
    labels = (rng.random(200_000) < 0.001).astype(np.int32)
    ranked = (rng.normal(size=200_000) + labels).astype(np.float32)
    logits = np.stack([np.zeros_like(ranked), ranked], axis=1)
    assert number(auc, logits, labels) == pytest.approx(roc_auc_score(labels, ranked), abs=2e-6)
    assert number(auc, logits, 1 - labels) == pytest.approx(roc_auc_score(1 - labels, ranked), abs=2e-6)


def test_calibration_is_that_of_fifteen_bins():
    logits, labels = drawn(400, 4)
    p = probabilities(logits)
    sure, right = p.max(axis=1), p.argmax(axis=1) == labels
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (sure > low) & (sure <= low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    assert number(calibration, logits, labels) == pytest.approx(error, abs=1e-6)
    surest = np.where(np.arange(3) == np.array([[0], [1]]), 100.0, 0.0).astype(np.float32)
    assert number(calibration, surest, np.array([0, 1], np.int32)) == 0
    assert number(calibration, surest, np.array([1, 2], np.int32)) == 1


@pytest.mark.parametrize("metric", [f1, auc, calibration])
def test_a_model_that_came_to_nan_has_no_number(metric):
    logits, labels = drawn(30, 3)
    logits[7, 1] = np.nan
    assert np.isnan(number(metric, logits, labels))


def federation(tests=40, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, 60 + tests)
    x = (rng.normal(size=(60 + tests, 4)) + y[:, None]).astype(np.float32)
    return Federation.from_arrays(x[:60], y[:60], np.arange(60) % 6, test=(x[60:], y[60:]), classes=classes)


def play(data=None, metrics=ALL, **options) -> Result:
    options = {"rounds": 4, "every": 2, "seeds": 2, **options}
    return simulate(data or federation(), Logistic(), PowerOfChoice(m=2, d=4), LOCAL, metrics=metrics, **options)


@pytest.fixture(scope="module")
def result():
    return play()


def test_the_result_has_them_beside_the_others_which_do_not_change(result):
    assert result.metric_names[-5:] == ("test_f1", "test_auc", "test_calibration", "test_brier", "test_samples")
    plain = play(metrics=())
    assert not plain.better
    for name, values in plain.metrics.items():
        np.testing.assert_array_equal(result.metrics[name], values, err_msg=name)
    data = federation()
    for run in range(2):
        logits = np.asarray(data.test_x) @ result.params["w"][run] + result.params["b"][run]
        labels = np.asarray(data.test_y)
        for function in (f1, auc, calibration, own.brier):
            found = result.metric(f"test_{function.__name__}")[run, -1]
            assert found == pytest.approx(float(function(jnp.asarray(logits), jnp.asarray(labels))), abs=1e-5)
        assert (result.metric("test_samples")[run] == 40).all()
    assert "test_f1" in result.columns()


def test_the_target_goes_the_way_that_the_metric_says(result):
    last = result.metric("test_brier")[:, -1].max()
    assert (result.metric("test_brier")[:, 0] > last).all()
    assert (result.rounds_to("test_brier", last) > 0).all()  # lower is better: it is not there from the start
    assert (result.rounds_to("test_f1", 0.0) == 0).all()
    with pytest.raises(ValueError, match="Result: metric test_samples must say whether higher is better"):
        result.rounds_to("test_samples", 3)
    stopped = play(until=("test_f1", 0.0))
    assert stopped.rounds == 0


@pytest.mark.parametrize("jit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_alone_they_are_as_in_a_batch_also_where_test_sets_differ_in_size(jit):
    data = [federation(40, seed=1), federation(23, seed=2)]
    short = {"rounds": 1, "every": 1, "jit": jit}
    together = play(data, **short)
    for seed, one in enumerate(data):
        alone = play(one, seeds=[seed], **short)
        for name in together.better:
            np.testing.assert_array_equal(together.metric(name)[seed], alone.metric(name)[0], err_msg=name)
    assert together.metric("test_samples")[:, 0].tolist() == [40, 23]


@pytest.mark.slow
def test_under_vmap_they_are_as_alone(result, monkeypatch):
    monkeypatch.setattr(batching, "ON_CPU", 2)
    together = play()
    for name in result.better:
        np.testing.assert_allclose(together.metric(name), result.metric(name), atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [batching.compile_chunk, batching.SplitPrograms])
def test_every_form_of_program_gives_the_same(result, kind, monkeypatch):
    monkeypatch.setattr(batching.Bundles, "_kind", lambda self, *more: kind)
    for name, values in play().metrics.items():
        np.testing.assert_array_equal(values, result.metrics[name], err_msg=name)


@pytest.mark.slow
def test_large_test_sets_are_gathered_in_blocks(result, monkeypatch):
    monkeypatch.setattr("fedpick.sim.evaluation.EVALUATION_BLOCK", 16)
    jax.clear_caches()
    for name in result.better:
        np.testing.assert_allclose(play().metric(name), result.metric(name), atol=1e-6, err_msg=name)
    jax.clear_caches()


def test_an_interrupted_simulation_goes_on_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "CHUNK", 2)
    whole = play(rounds=6, checkpoint=tmp_path / "whole.npz")

    def interrupt(so_far):
        if so_far.rounds == 4:
            raise KeyboardInterrupt

    part = play(rounds=6, checkpoint=tmp_path / "part.npz", watch=interrupt)
    assert part.rounds == 4
    assert part.metric("test_auc").shape == (2, 3)
    again = play(rounds=6, checkpoint=tmp_path / "part.npz")
    for name, values in whole.metrics.items():
        np.testing.assert_array_equal(again.metrics[name], values, err_msg=name)


def test_they_are_stored_and_read_back(result):
    back = Result.from_arrays(1, result.model_bytes, result.to_arrays(1))
    way = {"test_f1": True, "test_auc": True, "test_calibration": False, "test_brier": False, "test_samples": None}
    assert back.better == result.better == way
    np.testing.assert_array_equal(back.metric("test_auc")[0], result.metric("test_auc")[1])


WRONG = {
    "a name": ("f1", "simulate: metrics must be a list, such as"),
    "unknown": (
        ["f2"],
        f"simulate: metrics must be among {', '.join(ROLES['Metric'])}, or my.module:metric, got 'f2'; did you",
    ),
    "no module": (["no.such:metric"], "registry: 'no.such:metric' must be an importable"),
    "twice": (["f1", f1], "simulate: metrics must have different names, got test_f1, which is given twice"),
    "taken": (["support.metrics:wide", lambda x, y: 0], "simulate: metrics must be names, addresses or functions with"),
    "no function": ([3], "simulate: metrics must be names, addresses or functions with a name"),
    "shape": ([own.wide], r"simulate: metric test_wide must give one number, got shape \(3,\) of float32"),
    "numpy": ([own.of_numpy], "simulate: metric test_of_numpy must be a JAX function of the logits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_metrics_are_one_sentence(case):
    metrics, sentence = WRONG[case]
    with pytest.raises(ValueError, match=sentence) as error:
        play(metrics=metrics)
    assert "\n" not in str(error.value)


def test_the_names_of_every_result_are_taken():
    def accuracy(logits, labels):
        return 0.0

    with pytest.raises(ValueError, match="got test_accuracy, which every result has"):
        resolve_metrics("simulate", [accuracy])

    def balanced_accuracy(logits, labels):
        return 0.0

    assert resolve_metrics("simulate", [balanced_accuracy])[0].higher is True  # an accuracy, by its name
    balanced_accuracy.higher_is_better = "yes"
    with pytest.raises(ValueError, match="higher_is_better of metric balanced_accuracy must be True or False"):
        resolve_metrics("simulate", [balanced_accuracy])


def test_a_test_set_a_classifier_and_a_direction_are_needed():
    with pytest.raises(ValueError, match=r"simulate: metrics \(test_f1\) need a test set; own data has none"):
        play(federation(tests=0), metrics=["f1"])
    with pytest.raises(ValueError, match="need a test set"):
        play([federation(), federation(tests=0)], metrics=["f1"])
    quadratic = Quadratic(K=3).federation()
    with pytest.raises(ValueError, match=r"need a test set"):
        simulate(quadratic, QuadraticModel(), Rand(2), LOCAL, rounds=1, metrics=["f1"])
    with pytest.raises(ValueError, match="simulate: metric test_mute must say whether higher is better to be a target"):
        play(metrics=[own.mute], until=("test_mute", 1.0))
    with pytest.raises(ValueError, match=r"simulate: until must be a pair of one of loss.*, test_f1 and a number"):
        play(metrics=["f1"], until=("test_auc", 1.0))


def test_a_model_without_logits_cannot_be_measured():
    data = federation()
    model = Logistic().build(data)
    model = type(model)(model.init, *model.functions)
    with pytest.raises(ValueError, match=r"metrics \(test_f1\) need a classifier"):
        simulate(data, model, Rand(2), LOCAL, rounds=1, metrics=["f1"])


def test_logits_that_do_not_fit_into_memory_are_told_before_anything_is_played(monkeypatch):
    monkeypatch.setattr(preflight, "COPIES", 1e13)
    with pytest.raises(ValueError, match="simulate: the logits of 40 test samples must fit into memory"):
        play(metrics=["auc"])
