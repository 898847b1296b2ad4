"""Runs that are played side by side, in threads of one process, have the numbers of each alone."""

import jax
import numpy as np
import pytest

from fedpick import Rand
from fedpick.sim import IID, Federation, Local, Logistic, simulate
from fedpick.sim.evaluation import evaluate_clients
from fedpick.sim.federation import pixels


@pytest.mark.slow
def test_an_evaluation_beside_another_run_is_that_of_the_model():
    """Large matrix products in two threads at once: with some options of XLA a part of each block was wrong."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60_000, 28, 28), np.uint8), rng.integers(0, 10, 60_000)
    federation = Federation.from_partition(x, y, IID(100), test=(x[:10_000], y[:10_000]), prepare=pixels)
    model = Logistic().build(federation)
    local = Local(tau=10, b=32, eta=0.003)
    result = simulate(federation, Logistic(), Rand(5), local, rounds=20, seeds=4, every=1, progress=False)
    for row in range(4):
        params = jax.tree.map(lambda leaf, row=row: leaf[row], result.params)
        expected = evaluate_clients(federation, model, params)[0]
        np.testing.assert_allclose(result.metrics["client_loss"][row, -1], expected, rtol=1e-4)
