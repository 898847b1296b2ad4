"""The strategy inside: what must be lifted so that it takes the clients it is given, and what it remembers."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

Numbers = np.ndarray[Any, Any]


def layers(strategy: Strategy) -> list[Any]:
    """The strategy and those that it is wrapped around, as the differential-privacy wrappers are."""
    found: list[Any] = []
    inner: Any = strategy
    while inner is not None and all(inner is not other for other in found):
        found.append(inner)
        inner = getattr(inner, "strategy", None)
    return found


def setting(strategy: Strategy, name: str, usual: Any) -> Any:
    """A setting of the strategy, wherever it is wrapped."""
    return next((getattr(layer, name) for layer in layers(strategy) if hasattr(layer, name)), usual)


@contextlib.contextmanager
def everybody_in_sight(strategy: Strategy, nodes: int) -> Iterator[None]:
    """While it lasts, the strategy trains all the nodes that it sees, and neither waits for more nor takes a part."""
    with _lifted(strategy, {"fraction_train": 1.0, "min_train_nodes": nodes, "min_available_nodes": nodes}):
        yield


@contextlib.contextmanager
def no_more_than(strategy: Strategy, nodes: int) -> Iterator[None]:
    """While it lasts, the strategy asks for no more nodes than there are, for which it would wait for ever."""
    limits = {
        name: min(nodes, setting(strategy, name, nodes)) for name in ("min_evaluate_nodes", "min_available_nodes")
    }
    with _lifted(strategy, limits):
        yield


@contextlib.contextmanager
def _lifted(strategy: Strategy, values: Mapping[str, Any]) -> Iterator[None]:
    changed = [
        (layer, name, getattr(layer, name)) for layer in layers(strategy) for name in values if name in vars(layer)
    ]
    try:
        for layer, name, _ in changed:
            setattr(layer, name, values[name])
        yield
    finally:
        for layer, name, old in changed:
            setattr(layer, name, old)


class Memory:
    """What a strategy has come to remember since it was made: moments, momentum, an adapted clipping norm.

    Settings that were given and never changed are not part of it, so that a run can be continued with others.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.given = [dict(vars(layer)) for layer in layers(strategy)]
        if any(getattr(layer, "accountant", None) is not None for layer in layers(strategy)):
            raise ValueError(
                "Selecting: folder must be None for a strategy with a privacy accountant, whose spending it cannot keep"
            )

    def to_arrays(self) -> dict[str, Numbers]:
        """The memory as named arrays: layer/attribute/kind/key."""
        found: dict[str, Numbers] = {}
        for i, (layer, given) in enumerate(zip(layers(self.strategy), self.given, strict=True)):
            for name, value in vars(layer).items():
                kind, parts = _taken_apart(value)
                if kind != "number" or name not in given or value != given[name]:
                    found |= {f"{i}/{name}/{kind}/{key}": part for key, part in parts.items()}
        return found

    def restore(self, arrays: Mapping[str, Numbers]) -> None:
        """Give the strategy back what it remembered."""
        whole: dict[tuple[int, str, str], dict[str, Numbers]] = {}
        for path, part in arrays.items():
            layer, name, kind, key = path.split("/", 3)
            whole.setdefault((int(layer), name, kind), {})[key] = part
        for (i, name, kind), parts in whole.items():
            setattr(layers(self.strategy)[i], name, _put_together(kind, parts))


def _taken_apart(value: Any) -> tuple[str, dict[str, Numbers]]:
    if isinstance(value, ArrayRecord):
        return "record", {key: array.numpy() for key, array in value.items()}
    if isinstance(value, np.ndarray):
        return "array", {"": value}
    if isinstance(value, dict) and value and all(isinstance(part, np.ndarray | np.generic) for part in value.values()):
        return "dict", {str(key): np.asarray(part) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, np.ndarray | np.generic) for part in value):
        return "list", {f"{i:06d}": np.asarray(part) for i, part in enumerate(value)}
    if isinstance(value, bool | int | float | np.generic):
        return "number", {"": np.asarray(value)}
    return "nothing", {}


def _put_together(kind: str, parts: dict[str, Numbers]) -> Any:
    if kind == "record":
        return ArrayRecord({key: Array(part) for key, part in parts.items()})
    if kind == "dict":
        return parts
    if kind == "list":
        return [parts[key] for key in sorted(parts)]
    return parts[""].item() if kind == "number" else parts[""]
