"""The skews of pow-d at 1,000 points: a loop in NumPy, 10,000 draws each in one compiled program, and exactly.

    python benchmarks/theory.py [--json FILE]

K = 30, the paper's quadratic problem, m = 3. NumPy draws with ``Generator.choice`` and sorts, as one writes it by
hand; it plays fewer points, and its time is scaled up. The floor is the time of drawing the random numbers alone.
"""

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import machine
import numpy as np

from fedpick import PowerOfChoice
from fedpick.sim import Quadratic
from fedpick.theory import federation_problem, mean_weights, random_points

K, M, POINTS, DRAWS, LOOPED = 30, 3, 1_000, 10_000, 3
REPEATS = 3


def by_hand(share: Any, losses: Any, d: int) -> Any:
    rng = np.random.default_rng(0)
    counts = np.zeros(losses.shape)
    for point, F in enumerate(losses):
        for _ in range(DRAWS):
            candidates = rng.choice(K, d, replace=False, p=share)
            counts[point, candidates[np.argsort(-F[candidates])[:M]]] += 1
    return counts / DRAWS / M


@jax.jit
def only_random_numbers() -> Any:
    def point(total: Any, i: Any) -> Any:
        return total + jax.random.exponential(jax.random.fold_in(jax.random.key(0), i), (DRAWS, K)).sum(), None

    return jax.lax.scan(point, jnp.float32(0), jnp.arange(POINTS))[0]


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(work())  # type: ignore[no-untyped-call]
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    problem = federation_problem(Quadratic(K=K).federation())
    points = random_points(problem, POINTS, 150.0)
    losses = problem.values(points)
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"mean weights at {POINTS} points, K = {K}, m = {M}; seconds, medians of {REPEATS} in turn")
    print("       d   NumPy loop   compiled draws   exact   random numbers alone   NumPy / compiled   NumPy / exact")
    found = {}
    for d in (6, 9, 15, 30):
        selector = PowerOfChoice(m=M, d=jnp.int32(d))  # one program for every d
        simulated = functools.partial(mean_weights, selector, problem, points, method="monte-carlo", draws=DRAWS)
        exact = functools.partial(mean_weights, selector, problem, points, method="exact")
        off = float(np.abs(simulated().weight - exact().weight).max())
        assert off < 6 / np.sqrt(DRAWS), f"the two methods differ by {off}"
        work: list[Callable[[], Any]] = [
            functools.partial(by_hand, problem.share, losses[:LOOPED], d),
            simulated,
            exact,
            only_random_numbers,
        ]
        times = np.array([[seconds(one) for one in work] for _ in range(REPEATS)]) * [POINTS / LOOPED, 1, 1, 1]
        looped, compiled, exactly, floor = np.median(times, axis=0)
        numbers = f"{looped:10.0f}   {compiled:14.2f}   {exactly:5.2f}   {floor:20.2f}"
        print(f"{d:8d}   {numbers}   {looped / compiled:16.0f}   {looped / exactly:13.0f}", flush=True)
        found[d] = {"seconds": times.tolist(), "difference": off}
    if arguments.json:
        machine.write_json(arguments.json, {"versions": machine.versions(), "machine": machine.describe(), "d": found})


if __name__ == "__main__":
    main()
