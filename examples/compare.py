"""Compare the strategies on Synthetic(1,1): rounds to a target, final loss and accuracy, fairness, costs.

    python examples/compare.py

The paper's second experiment, shortened: K = 30 clients with heavy-tailed sizes, logistic regression, m = 3 seats.
"""

import warnings

import numpy as np

import fedpick
from fedpick.sim import Local, confidence, logistic, simulate, synthetic

TARGET, ROUNDS, SEEDS = 0.7, 150, 5
STRATEGIES: dict[str, dict[str, int]] = {
    "rand": {"m": 3},
    "pow-d": {"m": 3, "d": 6},
    "cpow-d": {"m": 3, "d": 6},
    "rpow-d": {"m": 3, "d": 6},
    "afl": {"m": 3},
}


def main() -> None:
    warnings.filterwarnings("ignore", message="simulate: b=50")  # three clients hold fewer than 50 samples
    federation = synthetic(alpha=1, beta=1, seed=0)
    print(federation.summary())
    print(f"\n{SEEDS} seeds, {ROUNDS} rounds, m = 3; the target is a global loss of {TARGET}\n")
    print("strategy   rounds to target [95 %]   final loss   test accuracy   worst client's loss   MB to target")
    for name, parameters in STRATEGIES.items():
        selector = fedpick.strategy(name, **parameters)
        local = Local(tau=30, b=50, eta=0.05)
        result = simulate(federation, logistic(60, 10), selector, local, rounds=ROUNDS, seeds=SEEDS, every=2)
        rounds = result.rounds_to("loss", TARGET)
        middle, low, high = confidence(rounds)
        traffic = (result.costs["bytes_down"] + result.costs["bytes_up"]).cumsum(axis=1) / 1e6
        spent = [traffic[run, int(n) - 1] if np.isfinite(n) else np.inf for run, n in enumerate(rounds)]
        print(
            f"{name:10s} {f'{middle:.0f} [{low:.0f}, {high:.0f}]':>23s}"
            f" {result.metrics['loss'][:, -1].mean():12.3f} {result.metrics['test_accuracy'][:, -1].mean():15.1%}"
            f" {result.metric('worst_loss')[:, -1].mean():21.2f} {np.median(spent):14.2f}",
            flush=True,
        )
    print("\ninf: not reached by then. Your own data, model and strategy: docs/simulator.md and README.md.")


if __name__ == "__main__":
    main()
