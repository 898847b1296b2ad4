"""Programs compiled ahead: nothing is compiled twice, and the runs are those of one batch after the other."""

import threading

import numpy as np
import pytest
from support.rounds import compilations

from fedpick.experiment import ahead, from_plain, run

PLAIN = {
    "data": {"kind": "synthetic", "K": 14},
    "model": {"kind": "logistic"},
    "local": {"tau": 2, "b": 4, "eta": 0.05},
    "selector": [{"kind": name, "m": 2} for name in ("rand", "rpow-d", "afl")],
    "rounds": 4,
    "seeds": 2,
}


def plain(K):
    selectors = [{**one, "d": 4} if one["kind"] == "rpow-d" else one for one in PLAIN["selector"]]
    return {**PLAIN, "selector": selectors, "data": {"kind": "synthetic", "K": K}}


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:simulate. b=")
def test_batches_to_come_are_compiled_in_a_thread_and_their_runs_are_the_same(tmp_path, monkeypatch):
    seen, threads = [], []
    with compilations() as programs:
        beside = run(
            from_plain(plain(14)), tmp_path / "beside", lambda *now: threads.append(threading.current_thread())
        )
        seen = list(programs)
    assert seen.count("choices") == 3
    assert seen.count("outcomes") == seen.count("evaluation") == 1
    assert set(threads) == {threading.main_thread()}
    monkeypatch.setattr(ahead.Ahead, "start", lambda self: None)
    for one, other in zip(beside, run(from_plain(plain(14)), tmp_path / "alone"), strict=True):
        for name in one.metrics:
            np.testing.assert_array_equal(one.metrics[name], other.metrics[name])
        for name in one.records:
            np.testing.assert_array_equal(one.records[name], other.records[name])


class Batch:
    def __init__(self, error=None):
        self.error, self.watched = error, 0

    def simulate(self, checkpoint=None, watch=None):
        if self.error is not None:
            raise self.error
        self.watched += 1
        watch(None)
        raise AssertionError("it went on to the first round")


def test_what_goes_wrong_ahead_is_left_to_the_batch_itself():
    batches = [Batch(), Batch(ValueError("no")), Batch()]
    with ahead.Ahead(batches) as compiled:
        compiled.start()
        compiled.start()
        for batch in batches:
            compiled.wait(batch)
    assert [batch.watched for batch in batches] == [0, 0, 1]
