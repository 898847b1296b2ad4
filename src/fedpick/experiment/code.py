"""Code of one's own that an experiment names by address, and the files that it is given, by their content."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from fedpick import registry
from fedpick.storage import sources_of, sum_of_code, sums_of_files


def own_code(plain: Any) -> dict[str, str]:
    """The addresses in plain data that lead to code of one's own, and the SHA-256 sums of the files that have it.

    Installed packages do not count; modules of one's own that such a file imports do, and so do the files that the
    fields of such a class name.

    >>> own_code({"server": {"optimizer": "optax:sgd"}, "name": "a: b"})
    {}
    """
    if isinstance(plain, Mapping):
        found = {address: code for part in plain.values() for address, code in own_code(part).items()}
        return found | (sums_of_files(plain.values()) if plain.get("kind") in found else {})
    if isinstance(plain, list | tuple):
        return {address: code for part in plain for address, code in own_code(part).items()}
    if not registry.is_address(plain):
        return {}
    module = plain.partition(":")[0]
    try:
        loaded = registry.load(plain, objects=True)
    except ValueError:
        if module.endswith(".py") and sums_of_files([module]):
            raise  # of a file that is there, and would not count
        return {}
    # "mynet.py:net" may be an object of a class of a package.
    code = sum_of_code(loaded, registry.module_of(plain))
    return {plain: code} if code else {}


def content_of(data: Any) -> tuple[Any, ...]:
    """What a description of data leads to beside its fields: the file that it reads, one's own code and its files."""
    return getattr(data, "sha256", ""), sources_of(data)


def check_current(name: str, value: Any) -> None:
    """Raise where an object, or a part of it, is of a class that was defined again since: its address is the new one's.

    Args:
        name: What the object is called in an error.
        value: The object.
    """
    if isinstance(value, list | tuple):
        for part in value:
            check_current(name, part)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind, now = type(value), sys.modules.get(type(value).__module__)
        for part in kind.__qualname__.split("."):
            now = getattr(now, part, None)
        if now is not None and now is not kind:  # type: ignore[comparison-overlap]
            rule = f"of the {kind.__qualname__} that was defined last: make it again"
            raise ValueError(f"experiment: {name} must be {rule}, got one of an earlier definition")
        for field in dataclasses.fields(value):
            check_current(f"{name}.{field.name}", getattr(value, field.name))
