"""A headline claim of FedCS: more updates before a deadline, and less time."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpick.paper.claims import Check, claims_of
from fedpick.paper.comparisons import accuracy, less_time, positive
from fedpick.paper.digits_by_time import SETTING, TARGET, by_time, digits, partitions, seconds_text
from fedpick.paper.item import Item, ItemRuns, Outcome, Table
from fedpick.paper.settings import Experiments, Size
from fedpick.protocol import Clients, pick, round_keys
from fedpick.registry import strategy
from fedpick.report import Chart, ChartRow
from fedpick.results import Spread, interval
from fedpick.sim import Devices

K, POOL, SEATS = 100, 30, 10
DEADLINES = (5.0, 10.0, 20.0)
# Seats of both strategies: as many as candidates, since FedCS has no limit in its paper, and a third of that.
LIMITS = {"no limit": POOL, f"{SEATS} seats": SEATS}
TRIALS = 500  # rounds over which updates on one uplink are counted


def _devices() -> Devices:
    return Devices.lognormal(K, speed=30.0, bandwidth=1e4)


def _experiments(size: Size) -> Experiments:
    return {
        (label, limit, deadline, name): digits(
            size, selector, partition, devices=replace(_devices(), deadline=deadline)
        )
        for label, partition in partitions(K).items()
        for limit, m in LIMITS.items()
        for deadline in DEADLINES
        for name, selector in {
            "rand-distinct": strategy("rand-distinct", m=m),
            "fedcs": strategy("fedcs", m=m, d=POOL, deadline=deadline),
        }.items()
    }


def in_time(ready: NDArray[Any], upload: NDArray[Any], deadline: float) -> int:
    """How many updates arrive before the deadline over one uplink, sent in the order in which they are ready.

    >>> in_time(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 4.0]), 6.5)
    2
    """
    order = np.argsort(ready, kind="stable")
    clock, number = 0.0, 0
    for k in order:
        clock = max(clock, float(ready[k])) + float(upload[k])
        number += clock < deadline
    return number


def _on_one_uplink(runs: ItemRuns, key: Any) -> NDArray[Any]:
    """Updates a round of FedCS and of as many random clients, over one uplink; a row per trial."""
    experiment, model_bytes = runs.experiments[key], runs[key].model_bytes
    federation, devices = experiment.data.federation(), experiment.devices
    total = devices.train_seconds(experiment.local.samples(federation.count), model_bytes)
    upload = devices.upload_seconds(model_bytes, K)
    clients = Clients(federation.size, jnp.ones(K, bool), total, upload)

    @jax.jit
    @jax.vmap
    def seats(t: Any) -> Any:
        return pick(experiment.selector, round_keys(0, t), (), clients, lambda key, asked: asked).selection.clients

    chosen = np.asarray(seats(jnp.arange(TRIALS, dtype=jnp.int32)))
    ready, send = np.asarray(total - upload, float), np.asarray(upload, float)
    rng = np.random.default_rng(0)
    numbers = []
    for row in chosen:
        ours, theirs = row[row >= 0], rng.choice(K, chosen.shape[1], replace=False)
        numbers.append([in_time(ready[some], send[some], experiment.devices.deadline) for some in (ours, theirs)])
    return np.asarray(numbers)


def _conclude(runs: ItemRuns) -> Outcome:
    rows: list[ChartRow] = []
    table, uplink = [], []
    more: list[Check] = []
    planned: list[Check] = []
    faster: list[Check] = []
    for limit in LIMITS:
        for deadline in DEADLINES:
            counted = _on_one_uplink(runs, ("IID", limit, deadline, "fedcs"))
            what = f"{limit}, deadline {deadline:g} s"
            planned.append(positive(what, counted[:, 0] - counted[:, 1], "updates a round"))
            uplink.append((limit, f"{deadline:g}", *(f"{mean:.1f}" for mean in counted.mean(axis=0))))
            for label in partitions(K):
                base, result = (runs[label, limit, deadline, name] for name in ("rand-distinct", "fedcs"))
                setting = f"{label}, {what}"
                extra = (result.records["returned"] - base.records["returned"]).mean(axis=1)
                more.append(positive(setting, extra, "updates a round"))
                faster.append(less_time(setting, result, base, TARGET))
                for name, one in (("rand-distinct", base), ("fedcs", result)):
                    rows += by_time(name, setting, one)
                    never = f"{(one.counts == 0).sum(axis=1).mean():.0f}"
                    last, updates = f"{Spread.of(accuracy(one)):.1f}", f"{one.records['returned'].mean():.1f}"
                    behind = "-" if one is base else str(interval(accuracy(one) - accuracy(base)))
                    texts = (updates, seconds_text(one), last, behind, never)
                    table.append((label, limit, f"{deadline:g}", name, *texts))
    paper = "Nishio, Yonetani 2019, abstract"
    claims = (
        *claims_of(paper, {"More client updates are aggregated in a round, over one uplink.": planned}),
        *claims_of("ours", {"So it is where updates are sent at once.": more}),
        *claims_of(paper, {f"Training takes less time (here: to {TARGET:.0%}, updates sent at once).": faster}),
    )
    title = "FedCS: test accuracy by simulated time, under a deadline"
    text = "Test accuracy by simulated seconds for FedCS and for random clients that drop out at the deadline."
    chart = Chart("fedcs", "lines", title=title, text=text, x="seconds", y="test accuracy", rows=tuple(rows), columns=3)
    columns = (
        "partition",
        "seats",
        "deadline, s",
        "strategy",
        "updates a round",
        f"seconds to {TARGET:.0%}, median",
        "last accuracy, %",
        "above rand-distinct [95 %]",
        f"clients of {K} that never trained",
    )
    tables = (
        Table("Updates a round over one uplink", ("seats", "deadline, s", "fedcs", "random clients"), tuple(uplink)),
        Table("Updates sent at once: updates, simulated time and accuracy", columns, tuple(table)),
    )
    return Outcome(claims, (chart,), tables)


FEDCS = Item(
    "fedcs",
    "FedCS",
    title="As many clients as keep a deadline",
    about=SETTING + f"{K} clients of equal size, {POOL} candidates, speed and bandwidth log-normal. FedCS is compared "
    "with random clients, as many as it has seats, of which those that miss the deadline drop out; with no limit these "
    f"are all candidates. FedCS plans for one uplink. Updates over one are counted over {TRIALS} rounds without "
    "training, random clients sending in the order in which they are ready; in the simulation, which has no shared "
    "uplink, all send at once. Expected durations are exact.",
    conclude=_conclude,
    experiments=_experiments,
)
