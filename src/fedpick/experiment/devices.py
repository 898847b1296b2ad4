"""Devices that a file draws for the clients of an experiment."""

import dataclasses
from pathlib import Path

from fedpick import config, registry, sim
from fedpick.config import Plain
from fedpick.validation import one_of

MOST_DRAWN = 1_000_000  # clients whose devices are drawn


def make_devices(plain: Plain, K: int, folder: Path) -> sim.Devices:
    """Devices that are drawn for the clients: "lognormal", or "fedscale" from a file; stored as numbers.

    Args:
        plain: Their kind and its parameters.
        K: The number of clients.
        folder: Where paths begin.
    """
    kind, fields = plain["kind"], tuple(field.name for field in dataclasses.fields(sim.Devices))
    takes = {"lognormal": ("spread", "seed", *fields), "fedscale": ("path", "seed", "latency", "deadline")}
    one_of("experiment", "devices.kind", kind, tuple(takes))
    for name in plain:
        if name not in ("kind", *takes[kind]):
            wrong = f"devices.{name} is unknown{registry.nearest(name, takes[kind])}"
            raise ValueError(f"experiment: {wrong}; {kind} takes {', '.join(takes[kind])}")
    given = {name: value for name, value in plain.items() if name not in ("kind", *fields)}
    options = {name: value for name, value in plain.items() if name in fields}
    options = {name: getattr(config.structure(options, sim.Devices, "experiment: devices"), name) for name in options}
    if K > MOST_DRAWN:
        rule = (
            f"one for all clients where these are more than {MOST_DRAWN:,} (those that are drawn are stored one by one)"
        )
        raise ValueError(f"experiment: devices must be {rule}, got {kind} for {K:,}")
    if kind == "lognormal":
        return sim.Devices.lognormal(K, **given, **options)
    if not isinstance(given.get("path"), str):
        raise ValueError("experiment: devices.path must be FedScale's client_device_capacity, got none")
    return sim.read_devices(str(folder / given.pop("path")), K, **given, **options)
