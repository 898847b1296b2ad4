"""Sweeps: a list where one value belongs gives every combination."""

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

LISTS = ("seeds", "model.hidden", "local.decay_at")  # fields that are lists themselves; any other list is a sweep


def expanded(data: Any) -> list[dict[str, Any]]:
    """Plain data without sweeps, one for every combination; a list of tables is a choice of tables."""
    axes = list(_axes(data, ""))
    points: list[dict[str, Any]] = []
    for values in itertools.product(*(choices for _, choices in axes)):
        point = json.loads(json.dumps(data, default=str))
        for (path, _), value in zip(axes, values, strict=True):
            *parents, last = path.split(".")
            inner = point
            for parent in parents:
                inner = inner[parent]
            inner[last] = value
        # A table that was chosen may hold lists of its own.
        points += expanded(point) if any(isinstance(value, dict) for value in values) else [point]
    return points


def _axes(data: Mapping[str, Any], path: str) -> Iterable[tuple[str, list[Any]]]:
    for name, value in data.items():
        here = f"{path}{name}"
        if isinstance(value, Mapping):
            yield from _axes(value, f"{here}.")
        elif isinstance(value, list) and here not in LISTS:
            kinds = {"table" if isinstance(v, Mapping) else type(v).__name__ for v in value}
            if not value or not (kinds == {"table"} or kinds <= {"int", "float"}):
                raise ValueError(f"experiment: {here} must be one value, or several numbers or tables, got {value!r}")
            yield here, value
