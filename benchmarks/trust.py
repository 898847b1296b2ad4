"""Liars against strategies and defences: what they capture, and what the honest clients lose.

    python benchmarks/trust.py [--strategies rand pow-d ...] [--seeds 4] [--rounds 150] [--json FILE]

Synthetic(1,1), K = 30, m = 3, a tenth of the clients lie, in twelve ways: six of what they say of their losses, each with
honest updates and with updates of the opposite sign. For each strategy and defence: the loss over the honest clients'
data after the last round as a multiple of that of the same strategy where nobody lies, and the part of all weight that
the liars have. The first line of each is what the defence costs where nobody lies.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import machine
import numpy as np

import fedpick
from fedpick import Cooldown, Credits, Explore, RankClip
from fedpick.sim import Liars, Local, Logistic, Synthetic, simulate
from fedpick.sim.liars import Attack

M, K, SHARE, FLIP = 3, 30, 0.1, 3.0
STRATEGIES = {"rand": {}, "pow-d": {"d": 6}, "rpow-d": {"d": 6}, "afl": {}, "auto": {}}
DEFENCES: dict[str, Callable[[Any], Any]] = {
    "none": lambda selector: selector,
    "rank-clip": RankClip,
    "cooldown": lambda selector: Cooldown(selector, rounds=4),
    "explore": lambda selector: Explore(selector, share=0.34),
    "credits": Credits,
    "cooldown(rank-clip)": lambda selector: Cooldown(RankClip(selector), rounds=4),
}
ATTACKS = [(loss, model) for model in ("none", "flip") for loss in get_args(Attack)]


def measure(selector: Any, liars: Liars, rounds: int, seeds: int) -> dict[str, float]:
    local = Local(tau=30, b=50, eta=0.05)
    data = Synthetic(1, 1, K=K, seed=0).federation()
    options: dict[str, Any] = {"rounds": rounds, "every": rounds, "seeds": seeds, "progress": False}
    result = simulate(data, Logistic(), selector, local, liars=liars, **options)
    who = Liars(SHARE) if liars.share == 0 else liars
    return {
        "loss": float(np.exp(np.log(who.honest_loss(result)).mean())),
        "capture": float(who.capture(result).mean()),
        "worst": float(who.worst_honest_loss(result).mean()),
        "excluded": float(who.excluded(result).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    size = (arguments.rounds, arguments.seeds)
    print(f"{machine.versions()} on {machine.describe()}")
    print(f"K = {K}, m = {M}, {SHARE:.0%} liars, {size[0]} rounds, {size[1]} seeds; loss of the honest / capture in %")
    everything: dict[str, Any] = {}
    for name in arguments.strategies:
        plain = fedpick.strategy(name, m=M, **STRATEGIES[name])
        honest = measure(plain, Liars(), *size)["loss"]
        found = everything[name] = {"honest loss": honest}
        print(f"\n{name:28s}" + "".join(f"{defence:>22s}" for defence in DEFENCES))
        for loss, model in [("nobody lies", "none"), *ATTACKS]:
            cells = []
            for defence, wrap in DEFENCES.items():
                lies = Liars() if loss == "nobody lies" else Liars(SHARE, loss, model, factor=FLIP)
                row = found[f"{loss}, {model}, {defence}"] = measure(wrap(plain), lies, *size)
                cells.append(f"{row['loss'] / honest:14.2f} / {100 * row['capture']:3.0f}")
                print(f"{time.strftime('%H:%M:%S')} {name} {defence} {loss} {model}", file=sys.stderr, flush=True)
            print(
                f"{loss + (', flip' if model == 'flip' else ''):28s}" + "".join(f"{cell:>22s}" for cell in cells),
                flush=True,
            )
        if arguments.json:
            machine.write_json(arguments.json, {"versions": machine.versions(), "strategies": everything})


if __name__ == "__main__":
    main()
