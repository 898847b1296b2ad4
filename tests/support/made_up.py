"""Results that no simulation made, with numbers that are easy to check."""

import numpy as np

from fedpick.results import Result


def made_up(rounds_to, total=100, last=0.2, accuracy=np.nan):
    """A result whose runs reach loss 0.5 at these rounds (None: never), two clients and a seat."""
    seeds = len(rounds_to)
    loss = np.ones((seeds, total + 1))
    for run, at in enumerate(rounds_to):
        if at is not None:
            loss[run, at:] = last
    client_loss = np.stack([loss, 2 * loss], axis=-1)
    metrics = {"loss": loss, "test_loss": loss, "test_accuracy": np.full(loss.shape, accuracy), "skew": loss}
    metrics |= {"client_loss": client_loss, "client_accuracy": client_loss}
    names = ("polled", "trained", "returned", "poll_samples", "train_samples")
    records = {name: np.ones((seeds, total), np.int32) for name in names}
    records |= {"seconds": np.ones((seeds, total)), "train_loss": np.ones((seeds, total))}
    records |= {"clients": np.zeros((seeds, total, 1), np.int32), "weights": np.ones((seeds, total, 1))}
    runs = [{"seed": seed} for seed in range(seeds)]
    return Result(runs, np.array([0.5, 0.5]), 1000, evaluated=np.arange(total + 1), metrics=metrics, records=records)
