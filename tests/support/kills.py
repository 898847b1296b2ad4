"""A program that starts some work again and again and kills it at random moments, until it is left to end.

    python kills.py federation|compare FOLDER KILLS SEED LONGEST

All is imported once; each attempt is a fork, which is killed by SIGKILL within LONGEST seconds. It prints how many
attempts were struck down while they were at work.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from flwr.serverapp.strategy import FedAvg

import fedpick.compare
import fedpick.experiment  # noqa: F401
from fedpick import PowerOfChoice
from fedpick.cli import app
from fedpick.flower import Selecting

sys.path.insert(0, str(Path(__file__).parents[1]))
ROUNDS = 250
COMPARE = [
    "compare",
    "quadratic",
    "--strategies",
    "rand,pow-d,rpow-d",
    "--rounds",
    "300",
    "--seeds",
    "6",
    "-q",
    "--set",
    "metrics.every=20",
]


def federate(folder, rounds=ROUNDS):
    """A federation on the fake grid; the model after its last round, and who trained."""
    from support.fake_grid import FakeGrid, plain_app, zeros

    ours = Selecting(FedAvg(fraction_evaluate=1.0), PowerOfChoice(m=2, d=4), wait=0.0, clients=6, folder=folder)
    ours.start(FakeGrid(plain_app(pull=0.05), range(6)), zeros(), num_rounds=rounds, timeout=5)


def compare(folder):
    """A comparison, with checkpoints of every batch."""
    import fedpick.experiment.runner as runner

    runner.LONG = 0.0
    sys.argv = ["fedpick", *COMPARE]  # which the summary quotes
    app([*COMPARE, "-o", str(folder)], standalone_mode=False)


def attempt(work, folder, longest, chance):
    """Whether it was struck down; None where it came to its end before, or with an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(folder)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + chance.uniform(0, longest) if longest else float("inf")
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if status:
                sys.exit(f"it ended with status {status}")
            return False
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main():
    what, folder, kills, seed, longest = sys.argv[1:]
    work = {"federation": federate, "compare": compare}[what]
    chance = random.Random(int(seed))
    struck = sum(attempt(work, folder, float(longest), chance) for _ in range(int(kills)))
    attempt(work, folder, 0.0, chance)
    print("struck", struck)


if __name__ == "__main__":
    main()
