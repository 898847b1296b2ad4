"""Settings of files and of the command line: TOML and JSON, ``--set``, and sweeps."""

import dataclasses
import functools
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from fedpick import registry
from fedpick.config.converter import Plain, list_depth, role_of, types_of
from fedpick.text import brief, shown
from fedpick.validation import check_path

DEEPEST = 30  # tables and lists in each other
MOST_POINTS = 10_000  # experiments of one file


def is_plain(path: str | Path) -> bool:
    """Whether a file is TOML or JSON by its name, in capital letters, too.

    Args:
        path: The file.

    >>> is_plain("folder/EXPERIMENT.TOML"), is_plain("mine.csv")
    (True, False)
    """
    return Path(path).suffix.lower() in (".toml", ".json")


def read_plain(path: str | Path, owner: str = "experiment") -> Plain:
    """The content of a TOML or JSON file.

    Args:
        path: The file; JSON if it ends in .json, otherwise TOML.
        owner: What error messages begin with.
    """
    check_path(owner, "path", path)
    path = Path(path)
    suffix = path.suffix.lower()
    try:
        text = path.read_text(encoding="utf-8-sig")  # with or without the mark that Windows puts first
    except OSError as error:
        raise ValueError(f"{owner}: the file {str(path)!r} cannot be read ({brief(error)})") from None
    except UnicodeDecodeError as error:
        if is_plain(path):
            rule = "must be UTF-8 text; save it as such"
            raise ValueError(f"{owner}: {path} {rule}, got another byte in place {error.start + 1}") from None
        rule = "must be a TOML or JSON file that describes an experiment; data of your own go to fedpick compare"
        raise ValueError(f"{owner}: {rule}, got {str(path)!r}") from None
    try:
        found = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # what the parsers raise, and a number of 5,000 digits
        kind = "JSON" if suffix == ".json" else "TOML"
        why = "it is nested too deeply" if isinstance(error, RecursionError) else shown(str(error))[1:-1]
        cure = "; data of your own go to fedpick compare" if suffix in (".csv", ".tsv") else ""
        raise ValueError(f"{owner}: {path} must be {kind}, got an error: {why}{cure}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{owner}: {path} must hold a table, got {type(found).__name__}")
    check_depth(found, owner)
    return found


def check_depth(plain: Any, owner: str) -> None:
    """Raise where tables and lists lie in each other more than ``DEEPEST`` deep: everything else may then recurse.

    Args:
        plain: Plain data.
        owner: What the error message begins with.
    """
    level = [plain]
    for _ in range(DEEPEST):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, Mapping) else each)
            if isinstance(part, Mapping | list | tuple)
        ]
        if not level:
            return
    raise ValueError(f"{owner}: tables and lists must be at most {DEEPEST} deep in each other, got more")


def override(plain: Plain, setting: str, owner: str = "experiment") -> None:
    """Change one setting of plain data.

    Args:
        plain: Plain data, changed in place.
        setting: Path and value, such as "selector.d=12"; the value is written as in TOML, and a bare word is a string.
        owner: What error messages begin with.

    >>> plain = {"selector": {"kind": "pow-d", "d": 6}}
    >>> override(plain, "selector.d=12")
    >>> plain
    {'selector': {'kind': 'pow-d', 'd': 12}}
    """
    name, equals, value = setting.partition("=")
    path = name.strip()
    if not equals or not all(path.split(".")):
        raise ValueError(f"{owner}: a setting must look like selector.d=12, got {shown(setting)}")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        read = value.strip()
    table_at(plain, path, owner=owner, setting=setting)[path.rpartition(".")[2]] = read
    check_depth(plain, owner)


def table_at(plain: Plain, path: str, *, owner: str = "experiment", setting: Any = None) -> Plain:
    """The table that a setting lies in, made where it is not there.

    Args:
        plain: Plain data, changed in place.
        path: The setting's path, such as "selector.d".
        owner: What error messages begin with.
        setting: What error messages say was given.

    >>> plain = {}
    >>> table_at(plain, "selector.d")["d"] = 12
    >>> plain
    {'selector': {'d': 12}}
    """
    for parent in path.split(".")[:-1]:
        inner = plain.setdefault(parent, {})
        if not isinstance(inner, dict):
            found = f"a list of {len(inner)}" if isinstance(inner, list) else repr(inner)
            raise ValueError(f"{owner}: {path} must lie in a table, and {parent} is {found}, got {shown(setting)}")
        plain = inner
    return plain


def expand(plain: Mapping[str, Any], kind: type[Any], owner: str = "experiment") -> list[Plain]:
    """Plain data without sweeps: a list where one value belongs gives every combination, a list of tables a choice.

    A sweep over a field that holds a list is a list of lists.

    Args:
        plain: Plain data.
        kind: The class that they describe; its types tell a sweep from a field that holds a list itself.
        owner: What error messages begin with.
    """
    check_depth(plain, owner)
    axes = list(_axes(plain, kind, (), owner))
    _check_number(math.prod(len(choices) for _, choices in axes), owner)
    points: list[Plain] = []
    for values in itertools.product(*(choices for _, choices in axes)):
        point = json.loads(json.dumps(plain, default=str))
        for ((*parents, last), _), value in zip(axes, values, strict=True):
            functools.reduce(lambda table, parent: table[parent], parents, point)[last] = value
        # A table that was chosen may hold lists of its own.
        points += expand(point, kind, owner) if any(isinstance(value, Mapping) for value in values) else [point]
        _check_number(len(points), owner)
    return points


def _check_number(points: int, owner: str) -> None:
    if points > MOST_POINTS:
        raise ValueError(f"{owner}: sweeps must give at most {MOST_POINTS:,} experiments, got {points:,}")


def _axes(
    plain: Mapping[str, Any], kind: Any, path: tuple[str | int, ...], owner: str
) -> Iterator[tuple[tuple[str | int, ...], list[Any]]]:
    fields = types_of(kind) if dataclasses.is_dataclass(kind) else {}
    for name, value in plain.items():
        annotation, here = fields.get(name), (*path, name)
        if isinstance(value, Mapping):
            if "kind" in value or not role_of(annotation):  # without a kind it is refused where it is read
                yield from _axes(value, _class(annotation, value), here, owner)
        elif _depth(value) > list_depth(annotation):
            kinds = {type(item) for item in value}
            one_kind = all(isinstance(item, Mapping) for item in value) or kinds <= {int, float} or kinds == {list}
            same = one_kind and kinds <= {int, float} and len(set(value)) < len(value)
            if value and one_kind and not same:
                yield here, value
            elif name in fields or not fields:  # others are unknown, which is said where they are read
                rule = "different values" if same else "one value, or several numbers or tables"
                raise ValueError(f"{owner}: {'.'.join(map(str, here))} must be {rule}, got {shown(value)}")
        elif isinstance(value, list) and list_depth(annotation):  # of tables, which may hold sweeps of their own
            for place, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _axes(item, _class(get_args(annotation)[0], item), (*here, place), owner)


def _class(annotation: Any, value: Mapping[str, Any]) -> Any:
    """The dataclass that a table describes; None where that cannot be known."""
    role = role_of(annotation)
    if not role:
        return annotation
    try:
        return registry.load(registry.find(role, value.get("kind")).address)
    except ValueError:
        return None


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
