"""The claims that a strategy may declare, each checked on many draws."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special  # type: ignore[import-untyped]

from fedpick.checks.harness import DRAWS, Scenario, Trial, need, same, seats_report
from fedpick.protocol import Selection

CLAIMS = {
    "unbiased": "the mean weight of a client is its share, whatever the losses",
    "candidates_by_share": "the candidates are drawn without replacement, by size",
    "highest_loss_first": "the seats go to the candidates of highest loss, ties broken at random",
}
SIGMAS = 5.5  # standard deviations of what chance alone explains
CHANCE = 1e-3  # that one of all clients is as far from its share, where few draws show it


def unbiased(trial: Trial) -> None:
    """The mean weights over many draws are the shares: before the first round with equal answers, and later."""
    _check_mean_weights(trial, trial.scenario(), trial.selector.init(trial.K))
    answers = np.random.default_rng(trial.seed).exponential(size=trial.K)
    _check_mean_weights(trial, trial.scenario(answers=answers), trial.rounds[-1].state)


def _check_mean_weights(trial: Trial, scenario: Scenario, state: Any) -> None:
    size = np.asarray(trial.size, float)
    selection = trial.draws(scenario, state).selection
    clients, weights = np.asarray(selection.clients), np.asarray(selection.weights, float)
    total = np.zeros((len(clients), trial.K))
    for seat in range(clients.shape[1]):
        filled = weights[:, seat] > 0
        total[filled, clients[filled, seat]] += weights[filled, seat]
    share = size / size.sum()
    off = np.abs(total.mean(axis=0) - share)
    far = off > SIGMAS * np.maximum(total.std(axis=0), 1 / DRAWS) / np.sqrt(DRAWS) + 1e-6
    # The draws do not show the spread of a client that they hardly show: its seats are counted as a Poisson number.
    seen, wanted = total.sum(axis=0) / weights.max(), DRAWS * share / weights.max()
    chance = np.minimum(special.gammaincc(seen + 1, wanted), special.gammainc(seen, wanted))
    far = np.where((total > 0).sum(axis=0) < 10, chance < CHANCE / trial.K, far)
    means = f"{np.round(total.mean(axis=0), 3)}, expected {np.round(share, 3)}"
    _need(not far.any(), "unbiased", f"mean weights, sizes {trial.size}: {means}")


def candidates_by_share(trial: Trial) -> None:
    """The candidates are those of NumPy's own draws without replacement."""
    scenario = trial.scenario(size=np.where(np.arange(trial.K) == 0, 0, trial.size))
    candidates = trial.draws(scenario, trial.selector.init(trial.K)).candidates
    numbers = candidates.sum(axis=1)
    p = np.asarray(scenario.clients.size) / np.asarray(scenario.clients.size).sum()
    d = int(numbers.max())
    _need(numbers.min() == d, "candidates_by_share", f"between {numbers.min()} and {d} candidates from the same state")
    _need(not candidates[:, 0].any(), "candidates_by_share", "client 0 of size 0 was a candidate")
    rng = np.random.default_rng(trial.seed)
    expected = np.zeros(trial.K)
    for _ in range(DRAWS):
        expected[rng.choice(trial.K, min(d, trial.K - 1), replace=False, p=p)] += 1 / DRAWS
    _compare(
        "candidates_by_share",
        candidates.mean(axis=0),
        expected,
        2 / DRAWS,
        f"how often each client is a candidate, sizes {trial.size}",
    )


def highest_loss_first(trial: Trial) -> None:
    """The seats are those of a sort; with all losses tied, every candidate wins equally often.

    Losses may be negative, as those of minus-probability are. A strategy that does not poll has heard them in earlier
    rounds: of the first clients, which leaves the others in front, and then of all.
    """
    selector = trial.selector
    values = np.random.default_rng(trial.seed).permutation(trial.K).astype(np.float32) - trial.K // 2
    if selector.poll == "none":
        for known in (trial.m, trial.K):
            heard = np.where(np.arange(trial.K) < known, values, np.inf)
            _check_highest(trial, _after_training(trial, values[:known]), heard, answers=0.0)
    else:
        for state in trial.states:
            _check_highest(trial, state, values, answers=values)
    _, candidates, selection = trial.draws(trial.scenario(), selector.init(trial.K))
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


def _after_training(trial: Trial, losses: Any) -> Any:
    """The state after rounds in which the first clients trained, each of them once, with these losses."""
    state, m = trial.selector.init(trial.K), trial.m
    for first in range(0, len(losses), m):
        there = np.arange(first, first + m) < len(losses)
        clients = np.where(there, np.arange(first, first + m), -1).astype(np.int32)
        weights = (there / there.sum()).astype(np.float32)
        said = np.where(there, np.resize(losses[first : first + m], m), np.nan)
        selection = Selection(jnp.asarray(clients), jnp.asarray(weights))
        report = seats_report(trial.selector, trial.scenario(), selection, jnp.full(trial.K, jnp.nan))
        report = report._replace(loss=jnp.asarray(said, jnp.float32))
        state = trial.selector.observe(state, selection, report)
    return state


def _check_highest(trial: Trial, state: Any, values: Any, answers: Any) -> None:
    _, candidates, selection = trial.draws(trial.scenario(answers=answers), state)
    for mask, clients in zip(candidates[:200], selection.clients[:200], strict=True):
        got, best = np.sort(values[clients]), np.sort(values[mask])[-trial.m :]
        _need(same(got, best), "highest_loss_first", f"seats have losses {got} of {values[mask]}, expected {best}")


def _compare(claim: str, seen: Any, expected: Any, per_draw: Any, what: str) -> None:
    sigma = np.sqrt(np.maximum(expected * (1 - expected), 1 / DRAWS) * per_draw)
    far = np.abs(seen - expected) > SIGMAS * sigma
    _need(not far.any(), claim, f"{what}: {np.round(seen, 3)}, expected {np.round(expected, 3)}")


def _need(holds: Any, claim: str, what: str) -> None:
    need(holds, f"{claim} ({CLAIMS[claim]})", what)
