"""Real SuperNodes that lie: what each lie is worth is what the documentation says, and no more."""

import re

import numpy as np
import pytest
from support.processes import Network, Run, guarded_app, kept

from fedpick.flower.demo import client as demo

pytestmark = pytest.mark.slow

START = 240.0  # seconds until all processes are up on two busy cores
K, ROUNDS, LIAR = 5, 5, 4
OPTIONS = {"norm_bound": 2.0, "loss_range": (0.0, 20.0)}


def play(tmp_path, network, strategy, kind, m=3, rounds=ROUNDS, timeout=60.0, **options):
    folder = tmp_path / f"{strategy}-{kind}"
    folder.mkdir()
    settings = {
        **{"clients": K, "m": m, "d": K, "rounds": rounds, "wait": START, "strategy": strategy},
        **{"poll-timeout": 60.0, "train-timeout": timeout, "folder": str(folder / "kept"), "faults": f"liar={kind}"},
    }
    run = Run(network, guarded_app(folder, **OPTIONS, **options), settings)
    assert run.end(START + rounds * (120 + 2 * timeout)) == 0, run.text
    arrays, about = kept(folder / "kept")
    return run.text, arrays, about


def weight_of(arrays, client):
    """The client's part of the average, over all rounds."""
    mine = arrays["records/clients"] == client
    return float(np.where(mine, arrays["records/weights"], 0).sum() / arrays["records/weights"].sum())


def last_loss(arrays):
    return float(arrays["metrics/test_loss"][-1])


@pytest.fixture
def federation(tmp_path):
    """Four honest SuperNodes, and one that lies as each run says."""
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(K - 1):
            network.supernode(k)
        network.supernode(LIAR, role="liar")
        yield network


def test_sizes_losses_poison_and_late_replies_are_bounded(tmp_path, federation):
    _, honest, about = play(tmp_path, federation, "pow-d", "none")
    assert about["clients"] == [f"partition-id={k}" for k in range(K)]
    best = last_loss(honest)
    start = float(np.log(demo.CLASSES))
    assert best < start
    # A size of 1e12 counts for no more than twice the largest of the others: at most 2/5 of what is drawn by size.
    text, arrays, _ = play(tmp_path, federation, "full", "size")
    sizes = [len(demo.data(k, 0)[1]) for k in range(K - 1)]
    largest = 2 * max(sizes) / (sum(sizes) + 2 * max(sizes))
    assert weight_of(arrays, LIAR) <= largest + 1e-6
    assert re.search("partition-id=4 .*(claims|counts as)", text), text
    # A high loss takes one seat of three in each round, and with it a third of the average; so does it with a size.
    for kind in ("loss", "both"):
        _, arrays, _ = play(tmp_path, federation, "pow-d", kind)
        assert weight_of(arrays, LIAR) <= 1 / 3 + 1e-6
        assert last_loss(arrays) < start
    # A poisoned update, a hundred times as long and backwards, is shortened to twice the median.
    text, arrays, _ = play(tmp_path, federation, "pow-d", "poison")
    assert "the update of partition-id=4, of norm" in text
    assert np.isfinite(last_loss(arrays))
    assert last_loss(arrays) < 2 * start
    # An update that comes when its round is over counts in no round.
    text, arrays, _ = play(tmp_path, federation, "pow-d", "late", timeout=25.0, rounds=4)
    assert not (arrays["records/clients"] == LIAR).any()
    assert re.search("no update from partition-id=4", text), text


def test_two_with_one_name_are_the_first(tmp_path):
    with Network(tmp_path) as network:
        network.superlink()
        for k in range(K):
            network.supernode(k)
        folder = tmp_path / "twins"
        folder.mkdir()
        settings = {
            **{"clients": K, "m": 3, "d": K, "rounds": 6, "wait": START, "strategy": "pow-d"},
            **{"poll-timeout": 60.0, "train-timeout": 60.0, "folder": str(folder / "kept"), "faults": "liar=poison"},
        }
        run = Run(network, guarded_app(folder, **OPTIONS), settings)
        run.until("round 1: .* returned", START + 240)
        network.supernode(1, name="twin", role="liar")
        assert run.end(START + 6 * 240) == 0, run.text
        arrays, about = kept(folder / "kept")
    assert about["clients"] == [f"partition-id={k}" for k in range(K)]
    assert re.search(r"reports partition-id=1, which is node \d+; refused", run.text), run.text
    assert "is shortened to" not in run.text  # it never trained
    assert last_loss(arrays) < np.log(demo.CLASSES)
