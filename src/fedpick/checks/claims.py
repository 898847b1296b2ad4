"""What a strategy may declare of itself, held against many draws."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedpick.checks.harness import DRAWS, Trial, need, same
from fedpick.protocol import Report, Selection

CLAIMS = {
    "unbiased": "the mean weight of a client is its share, whatever the losses",
    "candidates_by_share": "the candidates are drawn without replacement, by size",
    "highest_loss_first": "the seats go to the candidates of highest loss, ties broken at random",
}
SIGMAS = 5.5  # of the spread that chance alone gives


def unbiased(trial: Trial) -> None:
    """Compare with the shares."""
    selector, size = trial.selector, np.asarray(trial.size, float)
    selection = trial.draws(trial.world(), selector.init(trial.K)).selection
    clients, weights = np.asarray(selection.clients), np.asarray(selection.weights, float)
    given = np.zeros((len(clients), trial.K))
    for seat in range(clients.shape[1]):
        filled = weights[:, seat] > 0
        given[filled, clients[filled, seat]] += weights[filled, seat]
    off = np.abs(given.mean(axis=0) - size / size.sum())
    far = off > SIGMAS * np.maximum(given.std(axis=0), 1 / DRAWS) / np.sqrt(DRAWS) + 1e-6
    seen = f"{np.round(given.mean(axis=0), 3)}, expected {np.round(size / size.sum(), 3)}"
    _need(not far.any(), "unbiased", f"mean weights, sizes {trial.size}: {seen}")


def candidates_by_share(trial: Trial) -> None:
    """Compare with NumPy's own draws without replacement."""
    world = trial.world(size=np.where(np.arange(trial.K) == 0, 0, trial.size))
    picked = trial.draws(world, trial.selector.init(trial.K)).candidates
    numbers = picked.sum(axis=1)
    p = np.asarray(world.clients.size) / np.asarray(world.clients.size).sum()
    d = int(numbers.max())
    _need(
        numbers.min() == d,
        "candidates_by_share",
        f"between {numbers.min()} and {d} candidates in rounds of the same state",
    )
    _need(not picked[:, 0].any(), "candidates_by_share", "client 0 of size 0 was a candidate")
    rng = np.random.default_rng(trial.seed)
    expected = np.zeros(trial.K)
    for _ in range(DRAWS):
        expected[rng.choice(trial.K, min(d, trial.K - 1), replace=False, p=p)] += 1 / DRAWS
    _compare(
        "candidates_by_share",
        picked.mean(axis=0),
        expected,
        2 / DRAWS,
        f"how often each client is a candidate, sizes {trial.size}",
    )


def highest_loss_first(trial: Trial) -> None:
    """Compare with a sort; and with every loss tied, every candidate must win equally often."""
    selector, stale = trial.selector, trial.selector.poll == "none"
    state, values = selector.init(trial.K), np.random.default_rng(trial.seed).permutation(trial.K).astype(np.float32)
    known = np.arange(trial.K) < (trial.m if stale else trial.K)
    if stale:  # a round in which the first m clients trained
        everyone = Selection(jnp.arange(trial.m, dtype=jnp.int32), jnp.full(trial.m, 1 / trial.m, jnp.float32))
        state = selector.observe(state, everyone, Report(jnp.asarray(values[: trial.m])))
    values = np.where(known, values, np.inf)
    world = trial.world(answers=values)
    _, candidates, selection = trial.draws(world, state)
    for mask, clients in zip(candidates[:200], selection.clients[:200], strict=True):
        got, best = np.sort(values[clients]), np.sort(values[mask])[-trial.m :]
        _need(
            same(got, best),
            "highest_loss_first",
            f"losses {got} seated of {values[mask]}, where the highest are {best}",
        )
    _, candidates, selection = trial.draws(trial.world(), selector.init(trial.K))
    seated = np.zeros_like(candidates)
    np.put_along_axis(seated, np.asarray(selection.clients), True, axis=1)
    times = candidates.sum(axis=0)
    d = candidates.sum(axis=1).mean()
    rate = np.where(times > 20, seated.sum(axis=0) / np.maximum(times, 1), trial.m / d)
    _compare(
        "highest_loss_first",
        rate,
        np.full(trial.K, trial.m / d),
        1 / np.maximum(times, 20),
        "how often a candidate wins when all are tied",
    )


def _compare(claim: str, seen: Any, expected: Any, per_draw: Any, what: str) -> None:
    sigma = np.sqrt(np.maximum(expected * (1 - expected), 1 / DRAWS) * per_draw)
    far = np.abs(seen - expected) > SIGMAS * sigma
    _need(not far.any(), claim, f"{what}: {np.round(seen, 3)}, expected {np.round(expected, 3)}")


def _need(holds: Any, claim: str, what: str) -> None:
    need(holds, f"{claim} ({CLAIMS[claim]})", what)
