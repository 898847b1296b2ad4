"""Experiments to and from plain data: TOML for people, JSON on disk, strict about every name and kind."""

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import cattrs

from fedpick import selectors
from fedpick.experiment.data import Arrays, Data, Digits, FashionMNIST, Partition, Quadratic, Synthetic
from fedpick.experiment.experiment import Experiment
from fedpick.experiment.parts import MLP, AvailabilityPart, Logistic, ModelPart, QuadraticModel
from fedpick.experiment.sweeps import expanded
from fedpick.protocol import Selector
from fedpick.sim import IID, AlternatingHalves, Always, Bernoulli, DayAndNight, Dirichlet, PowerLaw, Shards

# What is a choice of kinds in a file, and the kinds' names there.
KINDS: dict[Any, dict[str, type[Any]]] = {
    Data: {
        "synthetic": Synthetic,
        "quadratic": Quadratic,
        "digits": Digits,
        "fashion-mnist": FashionMNIST,
        "arrays": Arrays,
    },
    Partition: {"iid": IID, "dirichlet": Dirichlet, "shards": Shards, "power-law": PowerLaw},
    ModelPart: {"logistic": Logistic, "mlp": MLP, "quadratic": QuadraticModel},
    AvailabilityPart: {
        "always": Always,
        "alternating-halves": AlternatingHalves,
        "bernoulli": Bernoulli,
        "day-and-night": DayAndNight,
    },
}
MOST_SEEDS = 100_000


def read(path: str | Path, settings: Iterable[str] = ()) -> list[Experiment]:
    """The experiments of a TOML or JSON file; ``settings`` such as "selector.d=12" go before what it says.

    A list of numbers where one number belongs is a sweep, and so is a list of tables where one table belongs: every
    combination is an experiment. Paths to data are relative to the file.
    """
    data = plain(path)
    for setting in settings:
        override(data, setting)
    return from_dict(data, Path(path).parent)


def plain(path: str | Path) -> dict[str, Any]:
    """What a TOML or JSON file says, as it stands there."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"experiment: the file {str(path)!r} cannot be read ({error})") from None
    try:
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"experiment: {path} must be {path.suffix[1:].upper() or 'TOML'}, got an error: {error}"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"experiment: {path} must hold a table, got {type(found).__name__}")
    return found


def override(data: dict[str, Any], setting: str) -> None:
    """Set "selector.d=12" in the plain data; the value is written as in TOML, and a bare word is a string.

    >>> data = {"selector": {"kind": "pow-d", "d": 6}}
    >>> override(data, "selector.d=12")
    >>> data
    {'selector': {'kind': 'pow-d', 'd': 12}}
    """
    name, equals, value = setting.partition("=")
    *parents, last = name.strip().split(".")
    if not equals or not last or not all(parents):
        raise ValueError(f"experiment: a setting must look like selector.d=12, got {setting!r}")
    for parent in parents:
        inner = data.setdefault(parent, {})
        if not isinstance(inner, dict):
            found = f"a list of {len(inner)}" if isinstance(inner, list) else repr(inner)
            raise ValueError(
                f"experiment: {name.strip()} must lie in a table, and {parent} is {found}, got {setting!r}"
            )
        data = inner
    try:
        data[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        data[last] = value.strip()


def from_dict(data: Mapping[str, Any], folder: Path = Path()) -> list[Experiment]:
    """The experiments that plain data describe; more than one where there are sweeps. Paths are relative to the folder.

    >>> data = {"data": {"kind": "synthetic"}, "model": {"kind": "logistic"}, "rounds": 5, "seeds": 2}
    >>> local = {"tau": 2, "b": 5, "eta": [0.1, 0.2]}
    >>> [e.local.eta for e in from_dict({**data, "local": local, "selector": {"kind": "rand", "m": 3}})]
    [0.1, 0.2]
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"experiment: must be a table, got {data!r}")
    return [_beside(_one(point), folder) for point in expanded(data)]


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain data, defaults included: what JSON holds and ``from_dict`` reads."""
    plain: dict[str, Any] = _CONVERTER.unstructure(experiment)
    plain["seeds"], plain["model"] = list(plain["seeds"]), _lists(plain["model"])
    plain["local"] = _lists(plain["local"])
    return plain


def _one(point: dict[str, Any]) -> Experiment:
    count = point.get("seeds")
    if isinstance(count, int) and not isinstance(count, bool):
        if not 1 <= count <= MOST_SEEDS:
            raise ValueError(
                f"experiment: seeds must be 1 to {MOST_SEEDS:,} runs, or the seeds themselves, got {count}"
            )
        point = {**point, "seeds": list(range(count))}
    try:
        return _CONVERTER.structure(point, Experiment)
    except cattrs.BaseValidationError as error:
        raise ValueError("\n".join(f"experiment: {sentence}" for sentence in _sentences(error, ""))) from None


def _beside(experiment: Experiment, folder: Path) -> Experiment:
    if not isinstance(experiment.data, Arrays):
        return experiment
    data = dataclasses.replace(experiment.data, path=str(folder / experiment.data.path))
    return dataclasses.replace(experiment, data=data)


def _lists(table: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in table.items()}


def nearest(name: Any, choices: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence; empty where nothing is near."""
    near = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


class _WrongValueError(ValueError):
    """A sentence about a value, to be put behind its path."""


def _sentences(error: BaseException, path: str) -> Iterable[str]:
    """What is wrong in words, each with the path of the field."""
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        fields = [field.name for field in dataclasses.fields(error.cl)]
        for extra in sorted(error.extra_fields):
            known = f"{path or 'an experiment'} takes {', '.join(fields) or 'nothing'}"
            yield f"{_join(path, extra)} is unknown{nearest(extra, fields)}; {known}"
    elif isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        noted, others = error.group_exceptions()
        for inner, note in noted:
            part = note.name if hasattr(note, "name") else note.index
            yield from _sentences(inner, _join(path, part))
        for inner in others:
            yield from _sentences(inner, path)
    elif isinstance(error, KeyError):
        yield f"{path} is missing"
    elif isinstance(error, _WrongValueError):
        yield f"{path} {error}"
    elif isinstance(error, TypeError):
        yield f"{path} must be a list"
    else:
        yield f"{error} (in {path})" if path else str(error).removeprefix("experiment: ")


def _join(path: str, part: Any) -> str:
    return f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}" if path else str(part)


def _strict(kind: type[Any], words: str, accepted: tuple[type[Any], ...]) -> Any:
    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise _WrongValueError(f"must be {words}, got {value!r}")
        if kind is int and not -(2**31) < value < 2**31:
            raise _WrongValueError(f"must be below 2**31, got {value}")
        return kind(value)

    return structure


def _word(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if value not in choices:
        raise _WrongValueError(
            f"must be one of {', '.join(map(repr, choices))}, got {value!r}{nearest(value, choices)}"
        )
    return value


def _choice(kinds: dict[str, type[Any]]) -> tuple[Any, Any]:
    """How to read and write a table whose ``kind`` says which class it is."""
    names = {kind: name for name, kind in kinds.items()}

    def structure(value: Any, _: Any) -> Any:
        fields = _table(value)
        kind = fields.pop("kind")
        if kind not in kinds:
            raise _WrongValueError(f"must have a kind among {', '.join(kinds)}, got {kind!r}{nearest(kind, kinds)}")
        return _CONVERTER.structure(fields, kinds[kind])

    def unstructure(value: Any) -> Any:
        return {"kind": names[type(value)], **_CONVERTER.unstructure(value, type(value))}

    return structure, unstructure


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _WrongValueError(f"must be a table with a kind, got {value!r}")
    if "kind" not in value:
        raise _WrongValueError(f"must have a kind, got {dict(value)!r}")
    return dict(value)


def _read_selector(value: Any, _: Any) -> Selector[Any]:
    fields = _table(value)
    if fields["kind"] in _CLASSES:
        made: Selector[Any] = selectors.from_dict(fields)
        return made
    named = {name: selectors.from_dict(part) if isinstance(part, Mapping) else part for name, part in fields.items()}
    return selectors.strategy(named.pop("kind"), **named)


_CLASSES = ("Rand", "Uniform", "Full", "PowerOfChoice", "AFL")


def _maybe(structure: Any, unstructure: Any) -> tuple[Any, Any]:
    """The same for a table that may be left out."""

    def read_or_none(value: Any, kind: Any) -> Any:
        return None if value is None else structure(value, kind)

    def write_or_none(value: Any) -> Any:
        return None if value is None else unstructure(value)

    return read_or_none, write_or_none


def _is(origin: Any) -> Any:
    def matches(kind: Any) -> bool:
        found: Any = get_origin(kind)
        return found is origin

    return matches


def _is_number(kind: Any) -> bool:
    """float | Float[Array, ""]: a number that may also be traced, which no file holds."""
    return float in get_args(kind) and type(None) not in get_args(kind)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    number = _strict(float, "a number", (int, float))
    converter.register_structure_hook(int, _strict(int, "a whole number", (int,)))
    converter.register_structure_hook(float, number)
    converter.register_structure_hook(bool, _strict(bool, "true or false", (bool,)))
    converter.register_structure_hook(str, _strict(str, "a text", (str,)))
    converter.register_structure_hook_func(_is(Literal), _word)
    converter.register_structure_hook_func(_is_number, number)
    for union, kinds in KINDS.items():
        hooks = _choice(kinds)
        for kind, (structure, unstructure) in ((union, hooks), (union | None, _maybe(*hooks))):
            converter.register_structure_hook(kind, structure)
            converter.register_unstructure_hook(kind, unstructure)
    converter.register_structure_hook_func(_is(Selector), _read_selector)
    converter.register_unstructure_hook_func(_is(Selector), selectors.to_dict)
    return converter


_CONVERTER = _converter()
