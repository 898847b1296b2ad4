"""Everything that has a name, by role: found, built and named again; ``fedpick.tables`` has the rows.

Wherever a name is taken, an address "package.module:Class" is taken too, so that a class of your own needs no row.
"""

import contextlib
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fedpick.addresses import is_address as is_address
from fedpick.addresses import load as load
from fedpick.addresses import look_in as look_in
from fedpick.addresses import module_of as module_of
from fedpick.tables import ROLES as ROLES
from fedpick.tables import STRATEGIES as STRATEGIES
from fedpick.tables import Row as Row
from fedpick.tables import Strategy as Strategy
from fedpick.text import shown


def strategy(name: str, **parameters: Any) -> Any:
    """The strategy of this name.

    Args:
        name: A name of ``STRATEGIES``, or an address such as "my.module:Mine".
        **parameters: Its parameters, less those that the name fixes.

    >>> strategy("rpow-d", m=3, d=50)
    PowerOfChoice(m=3, d=50, loss='stale', score=LocalLoss(by_size=False))
    """
    return build("Selector", name, parameters)


def fitting_strategy(name: str, *, m: int, d: int | None, rounds: int, **offered: Any) -> Any:
    """The strategy of this name with those of the parameters that it takes: what a command line has to offer.

    Args:
        name: A name of ``STRATEGIES`` or an address; "cooldown(pow-d)" is a wrapper around the strategy that fits.
        m: Clients per round.
        d: Candidates per round.
        rounds: Rounds, in which adapow-d shrinks d.
        **offered: Other parameters that a strategy may take, such as ``classes``, the number of labels.

    >>> fitting_strategy("full", m=3, d=6, rounds=100)
    Full()
    >>> fitting_strategy("cooldown(rand)", m=3, d=6, rounds=100)
    Cooldown(selector=Rand(m=3, replace=True), rounds=5)
    """
    offered |= {"m": m, "d": d, "rounds": rounds, "steps": min(10, rounds)}

    def fit(name: str) -> Any:
        outer, held, inner = _holds(name)
        taken = parameters_of("Selector", outer)
        if not held:
            return build("Selector", outer, {key: value for key, value in offered.items() if key in taken})
        selectors = tuple(map(fit, inner))  # a wrapper itself has its defaults
        return build("Selector", outer, {held: selectors if held == "selectors" else selectors[0]})

    return fit(name)


def fitting_parameters(name: str) -> frozenset[str]:
    """The parameters that ``fitting_strategy`` can fill in: those of the strategy, or of the strategies that it holds.

    Args:
        name: A name as ``fitting_strategy`` takes it.

    >>> "d" in fitting_parameters("cooldown(pow-d)"), "d" in fitting_parameters("cooldown(afl)")
    (True, False)
    """
    outer, held, inner = _holds(name)
    return frozenset().union(*map(fitting_parameters, inner)) if held else frozenset(parameters_of("Selector", outer))


def _holds(name: str) -> tuple[str, str, list[str]]:
    """A strategy's own name, the field in which it holds others ("" where it holds none), and their names."""
    outer, inner = parse_name(name)
    held = next((field for field in ("selector", "selectors") if field in parameters_of("Selector", outer)), "")
    if inner and not held:
        raise ValueError(f"registry: {outer} must stand alone, as it holds no other strategy, got {shown(name)}")
    if held and (not all(inner) or len(inner) < 1 or (held == "selector" and len(inner) > 1)):
        example = f"{outer}(pow-d)" if held == "selector" else f"{outer}(rand, pow-d)"
        rule = f"the {'one strategy' if held == 'selector' else 'strategies'} that it holds, as in {example}"
        raise ValueError(f"registry: {outer} must be given {rule}, got {shown(name)}")
    return outer, held, inner


class Demands(NamedTuple):
    """The optional fields that a strategy needs, and what a round costs the server; None: as the strategy it holds."""

    needs: tuple[str, ...] | None
    work: str | None

    @property
    def texts(self) -> tuple[str, str]:
        """Both as a table shows them."""
        needs = "as the other" if self.needs is None else ", ".join(self.needs) or "nothing"
        return needs, self.work or "as the other"


def demands(name: str) -> Demands:
    """What a strategy declares to need and the server's work, read from its class.

    Args:
        name: A name of ``STRATEGIES``, or an address.

    >>> demands("fedcs")
    Demands(needs=('expected_duration', 'upload_duration'), work='K')
    """
    kind = load(find("Selector", name).address)
    needs, work = getattr(kind, "needs", ()), getattr(kind, "work", "K")
    own = None if isinstance(needs, property) else tuple(sorted(needs))
    return Demands(own, None if isinstance(work, property) else work)


class ParameterError(ValueError):
    """A parameter that is unknown or missing."""

    def __init__(self, name: str, parameter: str, fault: str) -> None:
        super().__init__(f"{name}: {parameter} {fault}")
        self.parameter, self.fault = parameter, fault


def build(
    role: str,
    name: str,
    parameters: Mapping[str, Any],
    make: Callable[[type[Any], dict[str, Any]], Any] = lambda kind, fields: kind(**fields),
) -> Any:
    """An object of a role by its name; unknown and missing parameters are named.

    Args:
        role: A role of ``ROLES``.
        name: A name of that role, or an address.
        parameters: The parameters; those of an inner object that the name fixes are given beside the others.
        make: How an object is made of its class and fields.

    >>> build("Partition", "iid", {"K": 3})
    IID(K=3, seed=0)
    """
    row, known = find(role, name), parameters_of(role, name)
    takes = f"{name} takes {', '.join(known) or 'nothing'}"
    for parameter in parameters:
        if parameter not in known:
            raise ParameterError(name, parameter, f"is unknown{nearest(parameter, known)}; {takes}")
    for parameter, spec in known.items():
        if parameter not in parameters and spec.default is inspect.Parameter.empty:
            raise ParameterError(name, parameter, f"is missing; {takes}")
    given = dict(parameters)
    for field, value in row.fixed.items():
        if is_address(value):
            kind = load(value)
            own = inspect.signature(kind).parameters
            value = make(kind, {part: given.pop(part) for part in own if part in given})
        given[field] = value
    return make(load(row.address), given)


def find(role: str, name: Any) -> Row | Strategy:
    """The row of a name; for an address, a row of its own.

    Args:
        role: A key of ``ROLES``.
        name: A name of this role, or an address.
    """
    rows = ROLES[role]
    if isinstance(name, str) and (name in rows or is_address(name)):
        return rows[name] if name in rows else Row(name)
    alone = "one name: cooldown(pow-d) is for command lines, and here a wrapper takes a strategy, such as selector=..."
    choices = alone if "(" in str(name) else f"one of {', '.join(rows)}, or package.module:Class"
    raise ValueError(f"{role.lower()} must be {choices}, got {shown(name)}{nearest(name, rows)}")


def parameters_of(role: str, name: str) -> dict[str, inspect.Parameter]:
    """What an object of this name is made with, less what the name fixes.

    Args:
        role: A key of ``ROLES``.
        name: A name of this role, or an address.

    >>> list(parameters_of("Selector", "adapow-d"))
    ['m', 'score', 'rounds', 'steps']
    """
    row = find(role, name)
    found = {key: spec for key, spec in inspect.signature(load(row.address)).parameters.items() if key not in row.fixed}
    for value in row.fixed.values():
        if is_address(value):
            found |= inspect.signature(load(value)).parameters
    return found


def name_of(role: str, value: Any) -> str:
    """The name of an object: the row whose class and fixed parameters it has, else the address of its class.

    Args:
        role: A key of ``ROLES``.
        value: The object.

    >>> name_of("Selector", strategy("adapow-d", m=3, rounds=500))
    'adapow-d'
    """
    matching = [(len(row.fixed), name) for name, row in ROLES[role].items() if _matches(row, value)]
    return max(matching)[1] if matching else address_of(type(value))


def address_of(kind: Any) -> str:
    """ "package.module:Class", where that leads back to the class.

    >>> address_of(difflib.SequenceMatcher)
    'difflib:SequenceMatcher'
    """
    address = f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', '')}"
    with contextlib.suppress(ValueError):
        if load(address) is kind:
            return address
    rule = "must be importable as package.module:Class to be stored"
    raise ValueError(f"registry: {getattr(kind, '__qualname__', kind)} {rule}, got {shown(kind)}")


def split_names(text: str) -> list[str]:
    """Names between commas; a comma inside parentheses belongs to a name.

    >>> split_names("rand, mixture(rand, pow-d), afl")
    ['rand', 'mixture(rand, pow-d)', 'afl']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return [name.strip() for name in found]


def parse_name(name: str) -> tuple[str, list[str]]:
    """The name of a wrapper and those of the strategies that it holds; none for a strategy that holds none.

    >>> parse_name("cooldown(explore(pow-d))")
    ('cooldown', ['explore(pow-d)'])
    """
    outer, opened, inner = name.partition("(")
    if not opened:
        return name.strip(), []
    if not inner.rstrip().endswith(")") or inner.count("(") + 1 != inner.count(")"):
        raise ValueError(f"registry: a name must close its parentheses, as in cooldown(pow-d), got {shown(name)}")
    return outer.strip(), split_names(inner.rstrip()[:-1])


def nearest(name: Any, choices: Iterable[str]) -> str:
    """A "did you mean ...?" suffix, or "".

    Args:
        name: What was given.
        choices: What is known.

    >>> nearest("powd", STRATEGIES)
    "; did you mean 'pow-d'?"
    """
    near = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _matches(row: Row | Strategy, value: Any) -> bool:
    module, _, name = row.address.partition(":")
    kind = type(value)
    if kind.__name__ != name or not kind.__module__.startswith(module) or not dataclasses.is_dataclass(value):
        return False
    return all(
        type(getattr(value, field)) is load(fixed) if is_address(fixed) else getattr(value, field) == fixed
        for field, fixed in row.fixed.items()
    )
