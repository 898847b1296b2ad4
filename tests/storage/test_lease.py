"""Leases: one process at a time on each thing, and a dead one holds nothing."""

import logging
import subprocess
import sys
import threading
import time

import pytest

from fedpick.storage import RunStore

HOLD = """
import sys, time
from fedpick.storage import RunStore
with RunStore(sys.argv[1]).lease("piece") as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


@pytest.mark.no_cover
def test_a_lease_is_given_once_and_freed_when_its_process_is_killed(tmp_path):
    store = RunStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "True\n"
        with store.lease("piece") as mine, store.lease("another") as other:
            assert (mine, other) == (False, True)
        holder.kill()
        holder.wait()
    with store.lease("piece") as mine:
        assert mine


def test_who_wants_the_store_alone_waits_for_leases(tmp_path, caplog):
    store, order = RunStore(tmp_path), []

    def alone():
        with RunStore(tmp_path).locked():
            order.append("alone")

    with caplog.at_level(logging.WARNING, "fedpick"), store.lease("piece"):
        waiting = threading.Thread(target=alone)
        waiting.start()
        while not caplog.records:
            time.sleep(0.01)
        order.append("leased")
    waiting.join(30)
    assert order == ["leased", "alone"]
    assert "another fedpick is at work" in caplog.text
    assert not list((tmp_path / "leases").iterdir())
    assert not store.unknown_files()
