"""auto against every fixed d and against other rules, on 136 problems in two halves.

    python benchmarks/auto.py report [--jobs 6] [--seeds 8] [--out FOLDER] [--families NAME ...]

The halves are split by family: auto was developed on "develop", and docs/auto.md has the table of "report". A problem
is a family with one of two draws of its data and one of four step sizes over one or two orders of magnitude. Every
strategy plays it with the same seeds. What is printed, as geometric means over the problems with the worst in brackets:
the speed-up over rand to 50, 80 and 95 % of rand's way down (a run that does not get there counts as if it did at its
end), and the final loss over rand's, both above the lowest value of the objective. "slower": problems and levels at
which it is surely (paired, 95 %) slower than 0.9 times rand. Problems on which rand does not get anywhere are left out.
Each family and draw is a process of its own, and what is finished in the folder is not played again.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from auto_rivals import Rival

import fedpick
from fedpick import Auto, PowerOfChoice, Rand
from fedpick.sim import (
    IID,
    MLP,
    AlternatingHalves,
    DayAndNight,
    Digits,
    Dirichlet,
    FashionMNIST,
    Local,
    Logistic,
    Quadratic,
    QuadraticModel,
    Synthetic,
    quadratic_optimum,
    simulate,
)
from fedpick.sim.availability import Always

LEVELS = (0.5, 0.8, 0.95)
STUDENT = {4: 2.35, 6: 2.02, 8: 1.895, 16: 1.753}  # one-sided 95 %, by seeds
MINUS: Literal["minus-probability"] = "minus-probability"


@dataclass(frozen=True)
class Family:
    """Problems of one kind: data by draw, a model, local training, and step sizes."""

    half: str
    data: Callable[[int], Any]
    model: Any
    m: int
    local: tuple[int, int]  # tau, b
    etas: tuple[float, ...]
    rounds: int = 300
    every: int = 3
    availability: Any = Always()
    decay: bool = False  # steps of eta / (1 + t / 30)


# fmt: off
FAMILIES = {
    "synthetic": Family("develop", lambda s: Synthetic(1, 1, seed=s), Logistic(), 3, (30, 50), (.005, .02, .05, .2)),
    "synthetic-tau1": Family("develop", lambda s: Synthetic(0, 0, K=100, seed=s), Logistic(), 10, (1, 20),
                             (.05, .2, .5, 2.)),
    "synthetic-halves": Family("develop", lambda s: Synthetic(1, 1, K=40, seed=10 + s), Logistic(), 2, (10, 20),
                               (.005, .02, .1, .5), availability=AlternatingHalves()),
    "quadratic": Family("develop", lambda s: Quadratic(seed=s), QuadraticModel(), 3, (2, 1), (.0003, .001, .005, .02)),
    "digits": Family("develop", lambda s: Digits(Dirichlet(60, .3, least=1, seed=s)), Logistic(), 3, (10, 16),
                     (.005, .02, .1, .5)),
    "digits-iid": Family("develop", lambda s: Digits(IID(50, seed=s)), MLP((32,), 0.), 5, (10, 10),
                         (.01, .03, .1, .5)),
    "digits-m1": Family("develop", lambda s: Digits(Dirichlet(40, 2., least=1, seed=s)), MLP((32,), 0.), 1, (100, 10),
                        (.002, .01, .05, .2)),
    "fashion-minus": Family("develop", lambda s: FashionMNIST(Dirichlet(100, .3, seed=s)), MLP(objective=MINUS), 3,
                            (30, 64), (.005, .02, .05, .2), rounds=200, every=4),
    "synthetic-300": Family("develop", lambda s: Synthetic(1, 1, K=300, seed=20 + s), Logistic(), 6, (5, 20),
                            (.01, .05, .2, 1.)),
    "synthetic-half": Family("report", lambda s: Synthetic(.5, .5, seed=s), Logistic(), 3, (30, 50),
                             (.005, .02, .05, .2)),
    "synthetic-500": Family("report", lambda s: Synthetic(1, 1, K=500, seed=s), Logistic(), 10, (10, 20),
                            (.01, .03, .1, .5), every=5),
    "synthetic-night": Family("report", lambda s: Synthetic(.5, .5, K=100, seed=10 + s), Logistic(), 5, (10, 20),
                              (.005, .02, .1, .5), availability=DayAndNight()),
    "quadratic-decay": Family("report", lambda s: Quadratic(K=100, seed=s), QuadraticModel(), 5, (2, 1),
                              (.001, .005, .02, .05), decay=True),
    "digits-minus": Family("report", lambda s: Digits(Dirichlet(50, .3, least=1, seed=s)),
                           MLP((32,), 0., objective=MINUS), 5, (10, 16), (.02, .05, .2, 1.)),
    "fashion-iid": Family("report", lambda s: FashionMNIST(IID(100, seed=s)), Logistic(), 5, (10, 32),
                          (.001, .003, .01, .1), rounds=200, every=4),
    "fashion": Family("report", lambda s: FashionMNIST(Dirichlet(100, 2., seed=s)), MLP(), 10, (30, 64),
                      (.002, .005, .02, .1), rounds=150),
    "digits-100": Family("report", lambda s: Digits(Dirichlet(100, 1., least=1, seed=s)), Logistic(), 1, (100, 5),
                         (.001, .005, .02, .1)),
    # Beside the halves: many rounds with decaying steps, for the floor that a fixed d leaves.
    "floor": Family("floor", lambda s: Quadratic(seed=50 + s), QuadraticModel(), 3, (2, 1), (.001, .005, .02),
                    rounds=1500, every=15, decay=True),
}
# fmt: on


def strategies(m: int, K: int) -> dict[str, Any]:
    """rand, the fixed d, auto, and the other rules."""
    two, five, ten = (min(n * m, K) for n in (2, 5, 10))
    fixed = {f"d = {name}": PowerOfChoice(m, d) for name, d in (("m", m), ("2m", two), ("5m", five), ("10m", ten))}
    return {
        "rand": Rand(m),
        **fixed,
        "auto": Auto(m),
        "auto, bytes": Auto(m, currency="bytes"),
        "halving": Rival(m, five, two, "halving"),
        "two-sided": Rival(m, five, m, "two-sided", wait=10),
        "gap": Rival(m, five, five, "gap"),
        "crossover": Rival(m, five, two, "crossover", wait=10),
        "guided, fixed d": Rival(m, five, five, guided=True),
        "guided, two-sided": Rival(m, five, five, "two-sided", guided=True),
        "guided, corrected": Rival(m, five, five, guided=True, correction=1.0),
    }


def play(name: str, draw: int, seeds: int, path: Path) -> None:
    """All strategies on the problems of a family and draw: losses, and bytes so far, by eta, seed and evaluation."""
    family = FAMILIES[name]
    federation = family.data(draw).federation()
    tau, b = family.local
    more: dict[str, Any] = {"schedule": lambda t: 1 / (1 + t / 30)} if family.decay else {}
    local = Local(tau=tau, b=b, eta=jnp.asarray(family.etas, jnp.float32), **more)
    # What is there already is not played again: remove a file, or an entry of it, to play that anew.
    found: dict[str, Any] = dict(np.load(path)) if path.exists() else {}
    for label, selector in strategies(family.m, federation.num_clients).items():
        if f"{label}/loss" in found:
            continue
        options: dict[str, Any] = {"rounds": family.rounds, "seeds": seeds, "every": family.every, "progress": False}
        result = simulate(federation, family.model, selector, local, availability=family.availability, **options)
        shape = (len(family.etas), seeds, -1)
        spent = (result.costs["bytes_down"] + result.costs["bytes_up"]).cumsum(axis=1)
        spent = np.concatenate([np.zeros((len(spent), 1)), spent], axis=1)[:, result.evaluated]
        found[f"{label}/loss"], found[f"{label}/bytes"] = result.metrics["loss"].reshape(shape), spent.reshape(shape)
        found[f"{label}/polled"] = result.records["polled"].mean(axis=1).reshape(shape[:2])
        found["evaluated"] = result.evaluated
    found["best"] = quadratic_optimum(federation)[1] if isinstance(family.model, QuadraticModel) else np.nan
    with path.with_suffix(".part").open("wb") as file:
        np.savez(file, **found)
    path.with_suffix(".part").rename(path)


def complete(path: Path) -> bool:
    """Whether every strategy has been played there."""
    return path.exists() and {f"{label}/loss" for label in strategies(1, 30)} <= set(np.load(path).files)


def crossing(loss: Any, axis: Any, target: float) -> float:
    """Where on the axis (rounds or bytes) a run first reaches the target, by linear interpolation."""
    hit = np.flatnonzero(np.isfinite(loss) & (loss <= target))
    if not len(hit):
        return float(axis[-1])
    i = hit[0]
    if i == 0:
        return float(axis[1]) / 10
    part = (loss[i - 1] - target) / max(loss[i - 1] - loss[i], 1e-12)
    return float(axis[i - 1] + part * (axis[i] - axis[i - 1]))


def measure(name: str, path: Path, currency: str) -> dict[str, list[tuple[Any, ...]]]:
    """For each strategy a row per problem: log speed-ups, their upper ends, the log of the final loss ratio, polls."""
    table = np.load(path)
    rows: dict[str, list[tuple[Any, ...]]] = {}
    lowest = -1.0 if MINUS in str(FAMILIES[name].model) else 0.0
    labels = [key.removesuffix("/loss") for key in table.files if key.endswith("/loss")]
    for e in range(len(FAMILIES[name].etas)):
        rand = table["rand/loss"][e]
        mean, last = rand.mean(axis=0), max(1, rand.shape[1] // 20)
        end = mean[-last:].mean()
        if not np.isfinite(end) or end > mean[0] - 0.02 * abs(mean[0]):
            continue
        for label in labels:
            loss, gains, uppers = table[f"{label}/loss"][e], [], []
            axes = [
                np.broadcast_to(table["evaluated"] if currency == "rounds" else table[f"{each}/bytes"][e], loss.shape)
                for each in ("rand", label)
            ]
            for level in LEVELS:
                target = mean[0] - level * (mean[0] - end)
                slow, fast = (
                    np.array([crossing(*pair, target) for pair in zip(losses, axis, strict=True)])
                    for losses, axis in zip((rand, loss), axes, strict=True)
                )
                ratio = np.log(slow / fast)
                gains.append(ratio.mean())
                spread = ratio.std(ddof=1) / np.sqrt(len(ratio))
                uppers.append(ratio.mean() + STUDENT.get(len(ratio), 2.35) * spread)
            final = np.nan_to_num(loss[:, -last:].mean(), nan=1e3, posinf=1e3)
            ratio = np.log(max(final - lowest, 1e-9) / (end - lowest))
            rows.setdefault(label, []).append((*gains, *uppers, ratio, table[f"{label}/polled"][e].mean()))
    return rows


def show(title: str, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    """A table, a line per strategy."""
    number = len(next(iter(rows.values()), []))
    print(f"\n{title}, {number} problems\n\n| | 50 % | 80 % | 95 % | final loss | slower | polled a round |")
    print("|---|---|---|---|---|---|---|")
    for label, lines in rows.items():
        values = np.array(lines)
        ups = [f"{np.exp(values[:, i].mean()):.2f} ({np.exp(values[:, i].min()):.2f})" for i in range(3)]
        final = f"{np.exp(values[:, 6].mean()):.3f} ({np.exp(values[:, 6].max()):.2f})"
        slower = int((values[:, 3:6] < np.log(0.9)).sum())
        print(f"| {label} | {' | '.join(ups)} | {final} | {slower} | {values[:, 7].mean():.1f} |")


def show_floor(paths: list[Path]) -> None:
    """F - F* at the end over rand's, with decaying steps."""
    print("\nF - F* after 1,500 rounds of decaying steps, over rand's\n\n| | by eta and draw |\n|---|---|")
    tables = [np.load(path) for path in paths]
    for key in [key for key in tables[0].files if key.endswith("/loss")]:
        ends = [(t[key][:, :, -10:] - t["best"]).mean((1, 2)) / (t["rand/loss"][:, :, -10:] - t["best"]).mean((1, 2))
                for t in tables]  # fmt: skip
        print(f"| {key.removesuffix('/loss')} | {', '.join(f'{x:.3g}' for x in np.concatenate(ends))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=("develop", "report", "floor"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("build/auto"))
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--play", nargs=2, metavar=("FAMILY", "DRAW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.play:
        name, draw = options.play
        play(name, int(draw), options.seeds, options.out / f"{name}_{draw}.npz")
        return
    chosen = [name for name in FAMILIES if FAMILIES[name].half == options.half]
    chosen = [name for name in chosen if not options.families or name in options.families]
    jobs = {(name, draw): options.out / f"{name}_{draw}.npz" for name in chosen for draw in range(2)}
    print(f"fedpick {fedpick.__version__}: {len(jobs)} families and draws, {options.seeds} seeds", flush=True)

    def run(job: tuple[str, int]) -> None:
        began = time.monotonic()
        command = [sys.executable, __file__, options.half, "--out", str(options.out), "--seeds", str(options.seeds)]
        shared = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        done = subprocess.run(
            [*command, "--play", job[0], str(job[1])], env=shared, capture_output=True, text=True, check=False
        )
        why = "" if done.returncode == 0 else f" FAILED: {done.stderr[-800:]}"
        print(f"{job[0]} {job[1]}: {time.monotonic() - began:.0f} s{why}", file=sys.stderr, flush=True)

    todo = [job for job, path in jobs.items() if not complete(path)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, sorted(todo, key=lambda job: "fashion" not in job[0])))
    if options.half == "floor":
        show_floor([path for path in jobs.values() if path.exists()])
        return
    for currency in ("rounds", "bytes"):
        merged: dict[str, list[tuple[Any, ...]]] = {}
        for name in chosen:
            rows: dict[str, list[tuple[Any, ...]]] = {}
            for path in (path for job, path in jobs.items() if job[0] == name and path.exists()):
                for label, lines in measure(name, path, currency).items():
                    rows.setdefault(label, []).extend(lines)
                    merged.setdefault(label, []).extend(lines)
            if currency == "rounds" and rows:
                show(name, rows)
        show(f"All of {options.half}, in {currency}", merged)


if __name__ == "__main__":
    main()
