"""Scores of an arena that nobody played."""

import numpy as np

from fedpick.arena import Scores


def made_up(gains, seeds=10, problems=30, noise=0.1, seed=0, names=None):
    """Scores of strategies with these mean logarithms of speed-ups; rand is the first."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(problems):
        speed = np.array(gains)[:, None] + noise * rng.normal(size=(len(gains), seeds))
        speed[0] = 0
        names = names or ("rand", *(f"s{i}" for i in range(1, len(gains))))
        found[f"problem {number}"] = Scores(
            names, dict.fromkeys(("rounds", "bytes", "seconds"), speed), speed, speed, speed, speed
        )
    return found
