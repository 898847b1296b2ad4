"""The strategies of a comparison, with the parameters that the command line gives them."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from fedpick import config, registry
from fedpick.config import Plain
from fedpick.experiment import Experiment, kind_of
from fedpick.protocol import Selector
from fedpick.text import shown
from fedpick.validation import require

HOLDS = ("selector", "selectors")  # fields of a wrapper


def make_selectors(
    names: Sequence[str], given: Plain, base: Experiment, seats: Any, own: Any = ()
) -> Iterator[Selector[Any]]:
    """The strategies of these names, one for each m and d; those that a file has with the parameters that it gives.

    Args:
        names: As ``fitting_strategy`` takes them.
        given: Parameters of strategies: each is for those that take it, and refused where none does.
        base: The experiment, which knows the clients.
        seats: m where it is not given, or several.
        own: The strategies of a file, as plain data: one table or several.

    >>> from fedpick.compare import Choices, make_experiments
    >>> base = make_experiments("synthetic", Choices(strategies=("rand",)))[0]
    >>> [config.describe(each) for each in make_selectors(("rand", "pow-d"), {"d": [6, 9]}, base, 3)]
    ['rand, m = 3', 'pow-d, m = 3, d = 6', 'pow-d, m = 3, d = 9']
    """
    K, classes = base.federation().num_clients, base.federation().classes
    others = {name: value for name, value in given.items() if name not in ("m", "d")}
    taken = {name: _taken(name) for name in names}
    _check_taken(given, {parameter for known in taken.values() for parameter in known})
    several = _several(given.get("m", seats))
    for m in several:
        _check_range("m", m, f"at least 1 and at most the {K} clients", 1, K)
    for name in names:
        tables = [table for table in _tables(own) if kind_of(table).replace(" ", "") == name.replace(" ", "")]
        for table in tables:
            yield from _expanded(copy.deepcopy(table), given)
        for m in () if tables else several:
            for d in _several(given.get("d", min(2 * m, K))) if "d" in taken[name] else (None,):
                if d is not None:
                    _check_range("d", d, f"at least m={m} and at most the {K} clients", m, K)
                selector = registry.fitting_strategy(name, m=m, d=d, rounds=base.rounds, classes=classes)
                yield from _expanded(config.unstructure(selector, "Selector"), others) if others else (selector,)


def _check_range(name: str, value: Any, rule: str, low: int, high: int) -> None:
    require("compare", name, value, rule, lambda n: (n >= low) & (n <= high), whole=True)


def set_parameters(selector: Any, given: Plain) -> Any:
    """The strategies of a file, one table or several, with these parameters instead of theirs.

    Args:
        selector: The plain data, changed in place.
        given: Parameters: each is for those that take it, and refused where none does.

    >>> set_parameters([{"kind": "rand", "m": 3}, {"kind": "pow-d", "m": 3, "d": 6}], {"d": 9})
    [{'kind': 'rand', 'm': 3}, {'kind': 'pow-d', 'm': 3, 'd': 9}]
    """
    tables = _tables(selector)
    for name, value in given.items():
        found = [_set(table, name, value) for table in tables]
        if tables and not any(found):
            _check_taken({name: value}, set())
    return selector


def shared_seats(selector: Any) -> Any:
    """The m that all strategies of a file have in common, or several; None where there is none.

    >>> shared_seats([{"kind": "rand", "m": 3}, {"kind": "pow-d", "m": 3, "d": 6}]), shared_seats({"m": [2, 3]})
    (3, [2, 3])
    """
    found = [table.get("m") for table in _tables(selector)]
    return found[0] if found and all(m == found[0] for m in found) and found[0] != [] else None


def _tables(selector: Any) -> list[Plain]:
    """The strategies of a file; what is no table is refused where it is read."""
    return [table for table in _several(selector) if isinstance(table, dict)]


def _taken(name: str) -> set[str]:
    """The parameters of a strategy and of those that it holds."""
    try:
        outer, inner = registry.parse_name(name)
        own = registry.fitting_parameters(name) | set(registry.parameters_of("Selector", outer))
    except ValueError as error:
        raise ValueError(f"compare: strategies: {error}") from None
    return set(own).union(*map(_taken, inner))


def _check_taken(given: Plain, known: set[str]) -> None:
    for name, value in given.items():
        if name not in known:
            called = f"-{name} (selector.{name})" if name in ("m", "d") else f"selector.{name}"
            rule = "must be a parameter of one of the strategies"
            raise ValueError(f"compare: {called} {rule}, got {shown(value)}{registry.nearest(name, known)}")


def _expanded(plain: Plain, given: Plain) -> Iterator[Selector[Any]]:
    """The strategy with those of the parameters that it takes; a list is a sweep."""
    for name, value in given.items():
        _set(plain, name, value)
    for point in config.expand({"selector": plain}, Experiment, "compare"):
        yield config.structure(point["selector"], Selector, "compare")


def _set(table: Plain, name: str, value: Any) -> bool:
    """Set a parameter of a strategy, or else of those that it holds; whether one takes it."""
    kind = table.get("kind")
    known = registry.parameters_of("Selector", kind) if isinstance(kind, str) and _is_known(kind) else {name: None}
    if name in known or name == "kind":
        both = isinstance(value, dict) and isinstance(table.get(name), dict)
        table[name] = {**table[name], **value} if both else value
        return True
    held = [part for field in HOLDS for part in _several(table.get(field, [])) if isinstance(part, dict)]
    found = [_set(part, name, value) for part in held]
    return any(found)


def _is_known(kind: str) -> bool:
    return kind in registry.STRATEGIES or registry.is_address(kind)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)
