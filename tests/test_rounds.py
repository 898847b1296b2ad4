"""One implementation, however it is run: a plain loop, scan and vmap(scan) pick the same clients; a golden file too."""

import json
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.rounds import ALIKE, EVERY, compilations, every, loop, one_round, scan, world

import fedpick

pytestmark = pytest.mark.no_cover
GOLDEN = Path(__file__).parent / "support" / "golden_picks.json"


run = jax.jit(scan)
run_seeds = jax.jit(jax.vmap(scan, in_axes=(None, 0, None)))


FIRST = ("rand", "full", "pow-d", "rpow-d", "oort", "mixture")  # the others in make test-all
SCANNED_ALIKE = ALIKE | {
    "auto",
    "auto-c",
    "clustered-similarity",
    "mixture",
    "uniform",
    "cpow-d",
    "rpow-d",
    "adapow-d",
    "afl",
    "k-vib",
    "cooldown",
    "oort",
}  # all are in the golden file
SEEDLESS = {"full"}  # that draw nothing, as who has no ties to break


@pytest.mark.parametrize(
    ("name", "partial"),
    [
        *(pytest.param(name, True, marks=[pytest.mark.slow] * (name in SCANNED_ALIKE)) for name in EVERY),
        *(pytest.param(name, False, marks=() if name in FIRST[1:3] else pytest.mark.slow) for name in EVERY),
    ],
)
def test_loop_scan_and_vmapped_scan_pick_the_same_clients(name, partial):
    selector, worlds = every()[name], world(80, partial)
    state, (candidates, selection) = loop(selector, 5, worlds)
    seeds = jnp.array([4, 5, 6], jnp.int32)
    alone = run(selector, 5, worlds)
    batch = run_seeds(selector, seeds, worlds)
    for final, (candidates_too, selection_too) in (alone, jax.tree.map(lambda x: x[1], batch)):
        np.testing.assert_array_equal(candidates, candidates_too)
        np.testing.assert_array_equal(selection.clients, selection_too.clients)
        np.testing.assert_allclose(selection.weights, selection_too.weights, rtol=1e-6)
        jax.tree.map(np.testing.assert_array_equal, state, final)
    if partial:
        nobody = ~np.asarray(worlds[0].available).any(axis=1)
        assert nobody.any(), "the world should have a round with nobody"
        assert not np.asarray(selection.weights)[nobody].any()
    if name not in SEEDLESS:
        said = "another seed, other picks; a strategy that draws nothing here goes into SEEDLESS"
        assert (np.asarray(batch[1][1].clients[0]) != np.asarray(selection.clients)).any(), said


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FIRST)) for n in EVERY])
def test_a_plain_loop_compiles_nothing_after_its_first_rounds(name):
    """A server plays thousands of rounds: one that compiled something in each would be slow, and in the end crash."""
    selector = every()[name]
    loop(selector, 0, world(3, partial=True))
    state, (clients, answers, training) = selector.init(12), world(6, partial=True, seed=1)
    with compilations() as programs:
        for t in range(6):
            if t == 3:
                programs.clear()
            now = (t, *jax.tree.map(lambda x, t=t: x[t], (clients, answers, training)))
            state, _ = one_round(selector, 0, state, now)
    assert not programs


def test_every_strategy_is_here():
    assert set(EVERY) == set(fedpick.STRATEGIES)


def golden():
    picks = {}
    for name, selector in every().items():
        played = jax.jit(partial(scan, selector, 2**40 + 7))(world(30, partial=True))
        clients = played[1][1].clients
        picks[name] = np.asarray(clients).tolist()
    return picks


def test_the_picks_are_those_of_the_golden_file():
    """If this fails, the same seed gives other clients than before: every published run changes. Meant? Then run
    ``python tests/test_rounds.py`` and say so in the change log."""
    assert golden() == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(picks)}" for name, picks in golden().items())
    GOLDEN.write_text("{\n" + rows + "\n}\n")
    sys.stdout.write(f"wrote {GOLDEN.name}\n")
