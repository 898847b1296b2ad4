"""What experiments differ in, and short names by it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedpick.config import Plain, leaves

LONGEST = 30  # characters of a list in a name
SHARED = ("seeds", "name", "metrics")  # no part of what an experiment is called


def differences(plains: Sequence[Plain], shared: Sequence[str] = SHARED) -> list[Plain]:
    """For each experiment, as plain data, the settings in which those that have them differ; "" where it has none.

    Args:
        plains: The experiments.
        shared: The parts that are not looked at.

    >>> rand, few, many = ({"kind": "rand", "m": 3}, *({"kind": "pow-d", "m": 3, "d": d} for d in (6, 9)))
    >>> differences([{"selector": few}, {"selector": many}])
    [{'selector.d': 6}, {'selector.d': 9}]
    >>> differences([{"selector": rand}, {"selector": few}])
    [{'selector.kind': 'rand'}, {'selector.kind': 'pow-d'}]
    """
    flat = [leaves({part: value for part, value in plain.items() if part not in shared}) for plain in plains]
    paths = list(dict.fromkeys(path for own in flat for path in own))
    varied = [path for path in paths if len({str(own[path]) for own in flat if path in own}) > 1]
    return [{path: own.get(path, "") for path in varied} for own in flat]


def names(plains: Sequence[Plain]) -> tuple[str, ...]:
    """A short name for each, all different: the strategy, and whatever else differs.

    >>> rand, few, many = ({"kind": "rand", "m": 3}, *({"kind": "pow-d", "m": 3, "d": d} for d in (6, 9)))
    >>> names([{"selector": rand}, {"selector": few}, {"selector": many}])
    ('rand', 'pow-d, d = 6', 'pow-d, d = 9')
    """
    for shared, kinds in ((SHARED, False), (("seeds", "name"), False), (("seeds", "name"), True)):
        found = [_name(plain, own, kinds) for plain, own in zip(plains, differences(plains, shared), strict=True)]
        if len(set(found)) == len(found):
            break
    else:
        found = [f"{name} ({place})" if found.count(name) > 1 else name for place, name in enumerate(found, 1)]
    return tuple(found)


def _name(plain: Plain, different: Plain, kinds: bool) -> str:
    """The strategy and what differs; the kinds of other parts, which their parameters mostly tell, where asked for."""
    hidden = [path for path in different if path.endswith(".kind") and not (kinds and not path.startswith("selector"))]
    shown = {path: value for path, value in different.items() if value != "" and path not in hidden}
    others = (f"{re.sub(r'^(selector[.])+', '', path)} = {_brief(value)}" for path, value in shown.items())
    return ", ".join([kind_of(plain.get("selector")), *others])


def _brief(value: Any) -> str:
    """A value as a name may hold it: of a list with a number for each client, the beginning."""
    text = str(value)
    return text if len(text) <= LONGEST or not isinstance(value, list | tuple) else f"{text[:LONGEST]}..."


def kind_of(selector: Any) -> str:
    """The kind of a strategy as plain data, with those that it holds.

    >>> kind_of({"kind": "cooldown", "rounds": 5, "selector": {"kind": "pow-d", "m": 3, "d": 6}})
    'cooldown(pow-d)'
    """
    if not isinstance(selector, Mapping):
        return str(selector)
    held = [selector["selector"]] if "selector" in selector else selector.get("selectors", [])
    return str(selector.get("kind")) + (f"({', '.join(map(kind_of, held))})" if held else "")
