"""The Flower strategy inside ``Selecting``: its settings, lifted for a call, and what it remembers between rounds."""

import contextlib
import copy
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

LOG = logging.getLogger("flwr.fedpick")
OURS = "adapter"  # what a ``SelectingMixin`` has beside what the strategy remembers


class Wrapped:
    """A Flower strategy and those that it is wrapped around, as the differential-privacy wrappers are."""

    def __init__(self, strategy: Strategy) -> None:
        self.layers: list[Any] = []  # the strategy, the one inside it, and so on
        inner: Any = strategy
        while isinstance(inner, Strategy) and all(inner is not other for other in self.layers):
            self.layers.append(inner)
            inner = getattr(inner, "strategy", None)
        self.given = [
            {name: copy.deepcopy(value) if _is_plain(value) else value for name, value in vars(layer).items()}
            for layer in self.layers
        ]
        self.told: set[str] = set()  # what is known not to be saved

    def setting(self, name: str, default: Any) -> Any:
        """A setting of the outermost layer that has it."""
        return next((getattr(layer, name) for layer in self.layers if hasattr(layer, name)), default)

    @property
    def weight_key(self) -> str:
        """The metric by which the strategy weighs updates."""
        return str(self.setting("weighted_by_key", "num-examples"))

    @property
    def arrays_key(self) -> str:
        """The name of the record with the model in the strategy's messages."""
        return str(self.setting("arrayrecord_key", "arrays"))

    def check_folder(self, folder: str | Path | None) -> None:
        """Raise where a folder is given and the strategy has a privacy accountant, which cannot be saved."""
        if folder is not None and any(getattr(layer, "accountant", None) is not None for layer in self.layers):
            rule = "folder must be None for a strategy with a privacy accountant, which cannot be saved"
            raise ValueError(f"Selecting: {rule}, got {str(folder)!r}")

    @contextlib.contextmanager
    def override(self, **values: Any) -> Iterator[None]:
        """Within this context the strategy has these settings, where it has such settings at all."""
        changed = [(layer, name, getattr(layer, name)) for layer in self.layers for name in values.keys() & vars(layer)]
        try:
            for layer, name, _ in changed:
                setattr(layer, name, values[name])
            yield
        finally:
            for layer, name, old in changed:
                setattr(layer, name, old)

    def memory(self) -> dict[str, NDArray[Any]]:
        """What the strategy came to remember (moments, a clipping norm, losses so far), as layer/attribute/kind/key.

        Settings that were given and never changed are left out, so that a run can be continued with others.
        """
        found: dict[str, NDArray[Any]] = {}
        for i, (layer, given) in enumerate(zip(self.layers, self.given, strict=True)):
            for name, value in vars(layer).items():
                kind, parts = _flatten(value)
                if kind not in ("number", "plain", "bytes") or name not in given or value != given[name]:
                    found |= {f"{i}/{name}/{kind}/{key}": part for key, part in parts.items()}
        return found

    def warn_of_unsaved(self) -> None:
        """Say once what the strategy has come to remember that is none of what is saved."""
        for layer, given in zip(self.layers, self.given, strict=True):
            for name, value in vars(layer).items():
                unsaved = value is not None and _flatten(value)[0] == "none" and value is not given.get(name)
                said = f"{name!r} of {type(layer).__name__} (of type {type(value).__name__})"
                if unsaved and name != OURS and said not in self.told:
                    self.told.add(said)
                    LOG.warning("fedpick: %s is not saved: a run that resumes begins without it", said)

    def memory_copy(self) -> dict[str, NDArray[Any]]:
        """The same in arrays of its own, which the strategy cannot change in place."""
        return {name: part.copy() for name, part in self.memory().items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Give the strategy back what ``memory`` returned."""
        whole: dict[tuple[int, str, str], dict[str, NDArray[Any]]] = {}
        for path, part in arrays.items():
            layer, name, kind, key = path.split("/", 3)
            whole.setdefault((int(layer), name, kind), {})[key] = part
        for (i, name, kind), parts in whole.items():
            setattr(self.layers[i], name, _unflatten(kind, parts))

    def roll_back(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Have the strategy remember what ``memory`` returned, and nothing that came since."""
        for path in self.memory().keys() - arrays.keys():
            layer, name, _, _ = path.split("/", 3)
            value = self.given[int(layer)].get(name)
            setattr(self.layers[int(layer)], name, copy.deepcopy(value) if _is_plain(value) else value)
        self.restore(arrays)


def _flatten(value: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    if isinstance(value, ArrayRecord):
        return "record", {key: array.numpy() for key, array in value.items()}
    if isinstance(value, np.ndarray):
        return "array", {"": value}
    if isinstance(value, dict) and value and all(isinstance(part, np.ndarray | np.generic) for part in value.values()):
        return "dict", {str(key): np.asarray(part) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, np.ndarray | np.generic) for part in value):
        return "list", {str(i): np.asarray(part) for i, part in enumerate(value)}
    if isinstance(value, bool | int | float | np.generic):
        return "number", {"": np.asarray(value)}
    if isinstance(value, bytes):
        return "bytes", {"": np.frombuffer(value, np.uint8)}
    if value is not None and _is_plain(value):
        return "plain", {"": np.frombuffer(json.dumps(_to_json(value)).encode(), np.uint8)}
    return "none", {}


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or None, or a list, tuple or dictionary of such."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, (*value, *value.values())))
    return value is None or isinstance(value, bool | int | float | str)


def _to_json(value: Any) -> Any:
    """Lists, tuples and dictionaries, whose keys may be numbers, each with its kind before it."""
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_to_json, value)]
    return ["dict", *([_to_json(k), _to_json(v)] for k, v in value.items())] if isinstance(value, dict) else value


def _from_json(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    if kind == "dict":
        return {_from_json(k): _from_json(v) for k, v in parts}
    return {"list": list, "tuple": tuple}[kind](map(_from_json, parts))


def _unflatten(kind: str, parts: dict[str, NDArray[Any]]) -> Any:
    if kind == "record":
        return ArrayRecord({key: Array(part) for key, part in parts.items()})
    if kind == "dict":
        return parts
    if kind == "list":
        return list(parts.values())
    if kind in ("bytes", "plain"):
        content = parts[""].tobytes()
        return content if kind == "bytes" else _from_json(json.loads(content))
    return parts[""].item() if kind == "number" else parts[""]
