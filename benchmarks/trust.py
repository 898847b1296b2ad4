"""Liars against strategies and defences: what they capture, and what the honest clients lose.

    python benchmarks/trust.py [--strategies pow-d auto ...] [--draws 12] [--workers 8] [--json FILE]
    python benchmarks/trust.py --docs FILE [FILE ...]

Synthetic(1,1), K = 50, m = 5, d = 10; every run has a draw of the data of its own. A tenth of the clients lie, in
twelve ways: of their sizes (1e12 times), in five ways of their losses, and the same and the truth with updates of the
opposite sign, three times as long. For each strategy and defence: the loss over the honest clients' data in the last
20 rounds as a multiple of that of the same strategy on the same draw without liars and defences (the geometric mean
over the draws, with its standard error), and the part of all weight that the liars have. "all" is
Credits(Cooldown(RankClip(strategy, 0.25), 5)), updates bounded by the median norm and sizes by the largest that is
surely honest; it was chosen on the draws 10 to 33, and the draws here begin at 100. What is in FILE is not played
again. --docs adds such files to docs/trust-results.json.gz, and writes the tables of docs/trust-table.md and
docs/trust.md again, once they have every attack on each of their strategies with every defence that can be had.
"""

import argparse
import gzip
import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import machine
import numpy as np

import fedpick
from fedpick import Cooldown, Credits, Explore, RankClip, registry
from fedpick.experiment import end_with_parent
from fedpick.sim import Federation, Liars, Local, Logistic, RobustServer, Server, Synthetic, simulate
from fedpick.sim.liars import Attack

M, K, SHARE, FLIP, ROUNDS = 5, 50, 0.1, 3.0, 100
RESULTS = Path(__file__).parents[1] / "docs" / "trust-results.json.gz"
IN_DETAIL = ("pow-d", "auto")  # with every defence in docs/trust.md
WRAPPERS = {"cooldown", "explore", "rank-clip", "credits", "private", "mixture", "fedau"}
STRATEGIES = [name for name in fedpick.STRATEGIES if name not in WRAPPERS] + ["mixture(rand, pow-d)", "fedau(rand)"]
EVERY, LAST = 4, 6  # one evaluation jumps from round to round: the last six, over 20 rounds, are averaged
BOUND = RobustServer(norm_bound=1.0)
TWICE = 2.0  # times the largest size that is surely honest, as by default
DEFENCES: dict[str, tuple[Callable[[Any], Any], Server, float]] = {
    "none": (lambda selector: selector, Server(), TWICE),
    "rank-clip": (RankClip, Server(), TWICE),
    "cooldown": (lambda selector: Cooldown(selector, rounds=4), Server(), TWICE),
    "explore": (lambda selector: Explore(selector, share=0.4), Server(), TWICE),
    "credits": (Credits, Server(), TWICE),
    "norm bound": (lambda selector: selector, BOUND, TWICE),
    "all": (lambda selector: Credits(Cooldown(RankClip(selector, share=0.25), rounds=5)), BOUND, 1.0),
}
HONEST = "nobody lies"
TITLE = """# Trust: all attacks

[Trust](trust.md) says what it is. Rows are attacks, columns defences, with the number of draws of the data. Losses over
the honest clients' data as multiples of that of the same strategy, on the same draws, without liars and defence; in
brackets the liars' part of all weight. A defence that cannot be put around a strategy has no column. Made by
`python benchmarks/trust.py` from [what was played](trust-results.json.gz)."""
SAID: tuple[Attack, ...] = ("inflate", "max", "just-above", "deflate", "silent")
ATTACKS = {
    HONEST: Liars(SHARE),
    "size": Liars(SHARE, size=1e12),
    **{said: Liars(SHARE, said) for said in SAID},
    "flip": Liars(SHARE, "none", "flip", factor=FLIP),
    **{f"{said}, flip": Liars(SHARE, said, "flip", factor=FLIP) for said in SAID},
}


@cache
def federations(draws: range) -> tuple[Federation, ...]:
    return tuple(Synthetic(1, 1, K=K, seed=draw).federation() for draw in draws)


def measure(selector: Any, server: Server, liars: Liars, rounds: int, draws: range) -> dict[str, Any]:
    options: dict[str, Any] = {"rounds": rounds, "every": EVERY, "seeds": draws, "progress": False, "server": server}
    result = simulate(
        list(federations(draws)), Logistic(), selector, Local(tau=10, b=20, eta=0.1), liars=liars, **options
    )
    honest = ~liars.who(K) * np.asarray(result.shares)
    late = result.metrics["client_loss"][:, -LAST:]
    losses = np.exp(np.log((honest[:, None] * late).sum(axis=2) / honest.sum(axis=1)[:, None]).mean(axis=1))
    return {
        "loss": [float(f"{loss:.5g}") for loss in losses],
        "capture": float(liars.capture(result).mean()),
        "worst": float(liars.worst_honest_loss(result).mean()),
        "excluded": float(liars.excluded(result).mean()),
    }


def guarded(name: str, defence: str, rounds: int = ROUNDS) -> Any:
    """The defence around the strategy; it raises ValueError where it cannot be had."""
    wrap, _, _ = DEFENCES[defence]
    return wrap(registry.fitting_strategy(name, m=M, d=2 * M, rounds=rounds, classes=10))


def refusal(name: str, defence: str) -> str | None:
    """Why the defence cannot be put around the strategy; None where it can."""
    try:
        guarded(name, defence)
    except ValueError as error:
        return str(error)
    return None


def play(name: str, defence: str, attack: str, rounds: int, draws: range) -> dict[str, Any]:
    _, server, bound = DEFENCES[defence]
    return measure(guarded(name, defence, rounds), server, replace(ATTACKS[attack], bound=bound), rounds, draws)


def runs(name: str) -> list[tuple[str, str]]:
    """Every attack on a strategy, with every defence that can be had: what the tables say of it."""
    return [(defence, attack) for defence in DEFENCES if refusal(name, defence) is None for attack in ATTACKS]


def left(found: dict[str, Any]) -> dict[str, int]:
    """How many runs each strategy lacks, where it lacks some."""
    lacking = {
        name: sum(attack not in rows.get(defence, {}) for defence, attack in runs(name)) for name, rows in found.items()
    }
    return {name: number for name, number in lacking.items() if number}


def times(row: dict[str, Any], usual: list[float]) -> tuple[float, float]:
    """A loss as a multiple of the usual one: the geometric mean over the draws of both, and its standard error."""
    ratio = np.array([np.log(loss / other) for loss, other in zip(row["loss"], usual, strict=False)])
    mean = np.exp(ratio.mean())
    return float(mean), float(mean * ratio.std(ddof=1) / np.sqrt(len(ratio)))


def cell(row: dict[str, Any], usual: list[float]) -> str:
    mean, error = times(row, usual)
    return f"{mean:.3g} ± {error:.1g}" if mean < 10 else f"{mean:.0f} ± {error:.0f}"


def ordered(rows: dict[str, Any]) -> dict[str, Any]:
    """The defences of which every attack was played, both in their order here."""
    whole = [defence for defence in DEFENCES if rows.get(defence, {}).keys() == ATTACKS.keys()]
    return {defence: {attack: rows[defence][attack] for attack in ATTACKS} for defence in whole}


def worst(row: dict[str, Any], usual: list[float]) -> dict[str, Any]:
    """Of the twelve attacks on a strategy with a defence, the one that harms most."""
    return max((row[attack] for attack in row if attack != HONEST), key=lambda each: times(each, usual))


def summary(found: dict[str, Any]) -> str:
    """A line for each strategy and defence: without liars, the worst of the lies, the worst of those that flip, and
    what liars cost where the defence is on.
    """
    lines = [
        "| strategy | defence | draws | nobody lies | worst lie | worst with a flip | liars cost | most capture |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        usual = rows["none"][HONEST]["loss"]
        for defence, row in rows.items():
            said = {attack: row[attack] for attack in row if "flip" not in attack}
            flipped = {attack: row[attack] for attack in row if "flip" in attack}
            defended = row[HONEST]["loss"]
            cells = [cell(each, usual) for each in (row[HONEST], worst(said, usual), worst(flipped, usual))]
            cells.append(cell(worst(row, defended), defended))
            capture = max(each["capture"] for attack, each in row.items() if attack != HONEST)
            lines.append(f"| {name} | {defence} | {len(defended)} | {' | '.join(cells)} | {100 * capture:.0f} % |")
    return "\n".join(lines)


def overview(found: dict[str, Any]) -> str:
    """A line for each strategy: what the worst of the attacks does without a defence, and with all of them."""
    lines = [
        "| strategy | none: worst attack | capture | all: nobody lies | all: worst attack | liars cost | capture |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        usual, cells = rows["none"][HONEST]["loss"], []
        for defence in ("none", "all"):
            row = rows.get(defence)
            if row is None:
                cells += ["cannot be had"] + 3 * [""]
                continue
            defended = row[HONEST]["loss"]
            if defence == "all":
                cells.append(cell(row[HONEST], usual))
            cells.append(cell(worst(row, usual), usual))
            if defence == "all":
                cells.append(cell(worst(row, defended), defended))
            cells.append(f"{100 * max(each['capture'] for attack, each in row.items() if attack != HONEST):.0f} %")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(found: dict[str, Any]) -> str:
    """All that was found, as a page: a table for each strategy, a line for each attack."""
    lines = [TITLE]
    for name, rows in found.items():
        usual = rows["none"][HONEST]["loss"]
        heads = [f"{defence} ({len(row[HONEST]['loss'])})" for defence, row in rows.items()]
        lines += [f"\n## {name}\n", f"| | {' | '.join(heads)} |", "|---" * (len(rows) + 1) + "|"]
        for attack in ATTACKS:
            cells = [
                f"{times(row[attack], usual)[0]:.3g} ({100 * row[attack]['capture']:.0f} %)" for row in rows.values()
            ]
            lines.append(f"| {attack} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def read(file: Path) -> dict[str, Any]:
    """What --json has written; it ends the program where the file is something else."""
    try:
        kept: dict[str, Any] = json.loads(file.read_text())
        rows = [row for rows in kept["strategies"].values() for row in rows.values()]
        names = [*kept["strategies"], *(name for rows in kept["strategies"].values() for name in rows)]
        ours = {*names} <= {*STRATEGIES, *DEFENCES} and {attack for row in rows for attack in row} <= {*ATTACKS}
        ours = ours and bool(names and kept["versions"]) and all([*kept["strategies"].values(), *rows])
        ours = ours and all(one["loss"] for row in rows for one in row.values())
    except OSError as error:
        sys.exit(f"trust: {file} cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        ours = False
    if not ours:
        sys.exit(f"trust: {file} must be a file that --json of this program wrote, and is something else")
    return kept


def check_whole(parts: dict[Path, dict[str, Any]]) -> None:
    """End the program where files lack runs of their strategies: the tables would say that they cannot be had."""
    found: dict[str, Any] = {}
    for part in parts.values():
        for name, rows in part["strategies"].items():
            found.setdefault(name, {}).update(rows)
    if lacking := left(found):
        file = next(file for file, part in parts.items() if lacking.keys() & part["strategies"].keys())
        draws = min(len(row["loss"]) for name in lacking for rows in found[name].values() for row in rows.values())
        number = sum(len(runs(name)) for name in lacking)
        played = f"{number - sum(lacking.values())} of the {number} runs of {', '.join(lacking)} are played"
        options = shlex.join(["--strategies", *lacking, "--draws", str(draws), "--json", str(file)])
        goes_on = f"python benchmarks/trust.py {options} goes on"
        sys.exit(f"trust: {played}, and the docs need all of them; {goes_on}")
    for name, rows in found.items():
        if any(len(row["loss"]) < 2 for attacks in rows.values() for row in attacks.values()):
            sys.exit(f"trust: draws must be at least 2 for a standard error, got 1 of {name}")


def write_docs(parts: list[dict[str, Any]]) -> None:
    """Add what was found to what is published, and make the tables of the docs of all of it."""
    found: dict[str, Any] = {}
    parts = [json.loads(gzip.decompress(RESULTS.read_bytes())), *parts]
    for part in parts:
        for name, rows in part["strategies"].items():
            found.setdefault(name, {}).update(rows)
    found = {name: ordered(found[name]) for name in STRATEGIES if name in found}
    versions = {tuple(each.items()): each for part in parts for each in np.atleast_1d(part["versions"])}
    plain = json.dumps({"versions": list(versions.values()), "strategies": found}, separators=(",", ":"))
    RESULTS.write_bytes(gzip.compress(plain.encode(), mtime=0))
    RESULTS.with_name("trust-table.md").write_text(table(found))
    page = RESULTS.with_name("trust.md")
    text = page.read_text()
    for made in (overview(found), summary({name: found[name] for name in IN_DETAIL})):
        (old,) = re.finditer(rf"^{re.escape(made.splitlines()[0])}\n(\|.*\n)*", text, re.MULTILINE)
        text = f"{text[: old.start()]}{made}\n{text[old.end() :]}"
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES, metavar="NAME")
    parser.add_argument("--draws", type=int, default=12, help="of the data, each with a run of its own")
    parser.add_argument("--first", type=int, default=100, help="the first draw")
    parser.add_argument("--defences", nargs="+", choices=list(DEFENCES), default=list(DEFENCES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="what was found, which is not played again")
    parser.add_argument("--docs", nargs="+", type=Path, metavar="FILE", help="add these to the tables of the docs")
    arguments = parser.parse_args()
    if arguments.docs and arguments.json:
        sys.exit("trust: --json plays and --docs writes the docs of what was played; give one of them")
    if arguments.docs:
        parts = {file: read(file) for file in arguments.docs}
        check_whole(parts)
        write_docs(list(parts.values()))
        return
    for option in ("draws", "rounds", "workers"):
        if getattr(arguments, option) < 1:
            sys.exit(f"trust: {option} must be at least 1, got {getattr(arguments, option)}")
    found = read(arguments.json)["strategies"] if arguments.json and arguments.json.exists() else {}
    draws = range(arguments.first, arguments.first + arguments.draws)
    for name in arguments.strategies:
        for defence in arguments.defences:
            if why := refusal(name, defence):
                print(f"{name}, {defence}: {why}", file=sys.stderr)
    wanted = [
        (name, defence, attack)
        for name in arguments.strategies
        for defence, attack in runs(name)
        if defence in arguments.defences and attack not in found.get(name, {}).get(defence, {})
    ]
    print(f"{machine.versions()} on {machine.describe()}: {len(wanted)} to play", flush=True)
    count = 0
    # A process that compiles some thousand programs runs out of memory maps: there are new ones now and then.
    size = 150 * arguments.workers
    for part in (wanted[first : first + size] for first in range(0, len(wanted), size)):
        with ProcessPoolExecutor(arguments.workers, get_context("spawn"), end_with_parent) as pool:
            playing = {pool.submit(play, *each, arguments.rounds, draws): each for each in part}
            for done in as_completed(playing):
                name, defence, attack = playing[done]
                count += 1
                try:
                    row = done.result()
                except ValueError as error:
                    print(f"{name}, {defence}, {attack}: {error}", file=sys.stderr)
                    continue
                found.setdefault(name, {}).setdefault(defence, {})[attack] = row
                loss = np.exp(np.log(row["loss"]).mean())
                said = f"{count} of {len(wanted)}: {name}, {defence}, {attack}: {loss:.3g}"
                print(f"{time.strftime('%H:%M:%S')} {said}", flush=True)
                if arguments.json:
                    machine.write_json(arguments.json, {"versions": machine.versions(), "strategies": found})


if __name__ == "__main__":
    main()
