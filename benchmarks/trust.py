"""Liars against strategies and defences: what they capture, and what the honest clients lose.

    python benchmarks/trust.py [--strategies pow-d auto ...] [--seeds 6] [--rounds 100] [--json FILE] [--table]

Synthetic(1,1), K = 50, m = 5, d = 10; a tenth of the clients lie, in twelve ways: of their sizes (1e12 times), in five
ways of their losses, and the same and the truth with updates of the opposite sign, three times as long. For each
strategy and defence: the loss over the honest clients' data after the last round as a multiple of that of the same
strategy without liars and defences, and the part of all weight that the liars have. The first line of each is what the
defence costs where nobody lies. "all" is Credits(Cooldown(strategy)) with updates bounded by the median norm. What is
in FILE is not played again; --table prints all of it as Markdown.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np

import fedpick
from fedpick import Cooldown, Credits, Explore, RankClip, registry
from fedpick.sim import Liars, Local, Logistic, RobustServer, Server, Synthetic, simulate
from fedpick.sim.liars import Attack

M, K, SHARE, FLIP, ROUNDS = 5, 50, 0.1, 3.0, 100
WRAPPERS = {"cooldown", "explore", "rank-clip", "credits", "private", "mixture", "fedau"}
STRATEGIES = [name for name in fedpick.STRATEGIES if name not in WRAPPERS]
BOUND = RobustServer(norm_bound=1.0)
DEFENCES: dict[str, tuple[Callable[[Any], Any], Server]] = {
    "none": (lambda selector: selector, Server()),
    "rank-clip": (RankClip, Server()),
    "cooldown": (lambda selector: Cooldown(selector, rounds=4), Server()),
    "explore": (lambda selector: Explore(selector, share=0.4), Server()),
    "credits": (Credits, Server()),
    "norm bound": (lambda selector: selector, BOUND),
    "all": (lambda selector: Credits(Cooldown(selector, rounds=4)), BOUND),
}
HONEST = "nobody lies"
SAID: tuple[Attack, ...] = ("inflate", "max", "just-above", "deflate", "silent")
ATTACKS = {
    HONEST: Liars(SHARE),
    "size": Liars(SHARE, size=1e12),
    **{said: Liars(SHARE, said) for said in SAID},
    "flip": Liars(SHARE, "none", "flip", factor=FLIP),
    **{f"{said}, flip": Liars(SHARE, said, "flip", factor=FLIP) for said in SAID},
}


def measure(selector: Any, server: Server, liars: Liars, rounds: int, draw: int, seeds: int) -> dict[str, float]:
    data = Synthetic(1, 1, K=K, seed=draw).federation()
    own = range(100 * draw, 100 * draw + seeds)
    options: dict[str, Any] = {"rounds": rounds, "every": rounds, "seeds": own, "progress": False, "server": server}
    result = simulate(data, Logistic(), selector, Local(tau=10, b=20, eta=0.1), liars=liars, **options)
    return {
        "loss": float(np.exp(np.log(liars.honest_loss(result)).mean())),
        "capture": float(liars.capture(result).mean()),
        "worst": float(liars.worst_honest_loss(result).mean()),
        "excluded": float(liars.excluded(result).mean()),
    }


def summary(found: dict[str, Any]) -> str:
    """A line for each strategy and defence: without liars, the worst of the lies, and the worst of those that flip."""
    lines = [
        "| strategy | defence | nobody lies | worst lie | worst with flipped updates | most capture |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        usual = rows["none"][HONEST]["loss"]
        for defence, row in rows.items():
            said = [each["loss"] / usual for attack, each in row.items() if "flip" not in attack and attack != HONEST]
            flipped = [each["loss"] / usual for attack, each in row.items() if "flip" in attack]
            capture = max(each["capture"] for attack, each in row.items() if attack != HONEST)
            cells = (f"{x:.3g}" for x in (row[HONEST]["loss"] / usual, max(said), max(flipped)))
            lines.append(f"| {name} | {defence} | {' | '.join(cells)} | {100 * capture:.0f} % |")
    return "\n".join(lines)


def table(found: dict[str, Any]) -> str:
    """All that was found, as Markdown: a table for each strategy, a line for each attack."""
    lines: list[str] = []
    for name, rows in found.items():
        usual = rows["none"][HONEST]["loss"]
        lines += [f"\n### {name}\n", f"| | {' | '.join(rows)} |", "|---" * (len(rows) + 1) + "|"]
        for attack in next(iter(rows.values())):
            cells = [
                f"{row[attack]['loss'] / usual:.3g} ({100 * row[attack]['capture']:.0f} %)" for row in rows.values()
            ]
            lines.append(f"| {attack} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--draw", type=int, default=0, help="of the data; it has seeds of its own")
    parser.add_argument("--defences", nargs="+", choices=list(DEFENCES), default=list(DEFENCES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="what was found, which is not played again")
    parser.add_argument("--table", action="store_true", help="print what is in the file, and play nothing")
    arguments = parser.parse_args()
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    found: dict[str, Any] = kept.get("strategies", {})
    if arguments.table:
        print(f"{summary(found)}\n{table(found)}")
        return
    print(f"{machine.versions()} on {machine.describe()}", flush=True)
    for name in arguments.strategies:
        plain = registry.fitting_strategy(name, m=M, d=2 * M, rounds=arguments.rounds, classes=10)
        for defence, (wrap, server) in DEFENCES.items():
            if defence in found.get(name, {}) or defence not in arguments.defences:
                continue
            rows = {}
            for attack, liars in ATTACKS.items():
                try:
                    rows[attack] = measure(
                        wrap(plain), server, liars, arguments.rounds, arguments.draw, arguments.seeds
                    )
                except ValueError as error:  # a wrapper that cannot hold this strategy
                    print(f"{name}, {defence}: {error}", file=sys.stderr)
                    break
            else:
                found.setdefault(name, {})[defence] = rows
                cells = " ".join(f"{row['loss']:.3f}/{100 * row['capture']:.0f}" for row in rows.values())
                print(f"{time.strftime('%H:%M:%S')} {name}, {defence}: {cells}", flush=True)
            if arguments.json:
                machine.write_json(arguments.json, {"versions": machine.versions(), "strategies": found})


if __name__ == "__main__":
    main()
