"""The tables of everything that has a name, one per role: a new strategy, data set or model is its file plus one row.

A row says where the class is, as "package.module:Class", which is imported when it is used. Wherever a name is taken,
such an address is taken too, so that a class of your own needs no row.
"""

import contextlib
import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """The address of a class and the parameters that the name fixes.

    A fixed parameter that is an address itself is an object of that class; its fields are given beside the others.
    """

    address: str
    fixed: Mapping[str, Any] = {}


class Strategy(NamedTuple):
    """A row of a strategy, with costs per round: K clients, m seats, d candidates, w the bytes of a model."""

    address: str
    fixed: Mapping[str, Any]
    picks: str
    polled: str
    messages: str
    traffic: str
    reference: str


_CHO = "Cho, Wang, Joshi 2020"
_NO_POLL = ("nothing", "2m", "2m w")
_REPORTED = ("nothing", "2m", "2m w + m scalars")
_POLLED = ("2d + 2m", "(d + 2m) w + d scalars")
_POW = "fedpick.selectors:PowerOfChoice"
_SHRINKING = {"loss": "full", "d": "fedpick.selectors:Shrinking"}

# fmt: off
STRATEGIES: dict[str, Strategy] = {
    "rand": Strategy("fedpick.selectors:Rand", {"replace": True},
                     "m seats by data share, with replacement", *_NO_POLL, "McMahan et al. 2017; " + _CHO),
    "rand-distinct": Strategy("fedpick.selectors:Rand", {"replace": False},
                              "m distinct clients by data share", *_NO_POLL, _CHO),
    "uniform": Strategy("fedpick.selectors:Uniform", {},
                        "m distinct clients uniformly, weights p_k K / m", *_NO_POLL, "Li et al. 2020"),
    "full": Strategy("fedpick.selectors:Full", {},
                     "everybody, weights p_k", "nothing", "2K", "2K w", "McMahan et al. 2017"),
    "pow-d": Strategy(_POW, {"loss": "full"},
                      "the m highest losses of d candidates", "full local loss", *_POLLED, _CHO),
    "cpow-d": Strategy(_POW, {"loss": "batch"},
                       "the same by a mini-batch estimate", "mini-batch loss", *_POLLED, _CHO),
    "rpow-d": Strategy(_POW, {"loss": "stale"},
                       "the same by the last training loss", *_REPORTED, _CHO),
    "adapow-d": Strategy(_POW, _SHRINKING,
                         "pow-d with d shrinking from K to m", "full local loss", *_POLLED, "Cho, Wang, Joshi 2022"),
    "afl": Strategy("fedpick.selectors:AFL", {"valuation": "loss"},
                    "softmax over last training losses", *_REPORTED, "Goetz et al. 2019; " + _CHO),
    "afl-sqrt-size": Strategy("fedpick.selectors:AFL", {"valuation": "sqrt-size"},
                              "the same with sqrt(D_k) times the loss", *_REPORTED, "Goetz et al. 2019"),
}
# fmt: on

# By the protocol that a field is annotated with.
ROLES: dict[str, Mapping[str, Row | Strategy]] = {
    "Selector": STRATEGIES,
    "Schedule": {"shrinking": Row("fedpick.selectors:Shrinking")},
    "Score": {
        "local-loss": Row("fedpick.selectors:LocalLoss"),
        "clipped-loss": Row("fedpick.selectors:ClippedLoss"),
        "q-fair-loss": Row("fedpick.selectors:QFairLoss"),
    },
    "Data": {
        "synthetic": Row("fedpick.sim:Synthetic"),
        "quadratic": Row("fedpick.sim:Quadratic"),
        "digits": Row("fedpick.sim:Digits"),
        "fashion-mnist": Row("fedpick.sim:FashionMNIST"),
        "arrays": Row("fedpick.sim:Arrays"),
    },
    "Partition": {
        "iid": Row("fedpick.sim:IID"),
        "dirichlet": Row("fedpick.sim:Dirichlet"),
        "shards": Row("fedpick.sim:Shards"),
        "power-law": Row("fedpick.sim:PowerLaw"),
    },
    "ModelSpec": {
        "logistic": Row("fedpick.sim:Logistic"),
        "mlp": Row("fedpick.sim:MLP"),
        "quadratic": Row("fedpick.sim:QuadraticModel"),
    },
    "Availability": {
        "always": Row("fedpick.sim:Always"),
        "alternating-halves": Row("fedpick.sim:AlternatingHalves"),
        "bernoulli": Row("fedpick.sim:Bernoulli"),
        "day-and-night": Row("fedpick.sim:DayAndNight"),
        "trace": Row("fedpick.sim:Trace"),
    },
    "RateSchedule": {
        "step-decay": Row("fedpick.sim:StepDecay"),
        "optax": Row("fedpick.sim:OptaxSchedule"),
    },
    "Optimizer": {
        "sgd": Row("optax:sgd"),
        "momentum": Row("optax:sgd", {"momentum": 0.9}),
        "adam": Row("optax:adam"),
        "adagrad": Row("optax:adagrad"),
        "yogi": Row("optax:yogi"),
    },
}


def strategy(name: str, **parameters: Any) -> Any:
    """The strategy of this name.

    Args:
        name: A name of ``STRATEGIES``, or an address such as "my.module:Mine".
        **parameters: Its parameters, less those that the name fixes.

    >>> strategy("rpow-d", m=3, d=50)
    PowerOfChoice(m=3, d=50, loss='stale', score=LocalLoss(by_size=False))
    """
    return build("Selector", name, parameters)


def build(role: str, name: str, parameters: Mapping[str, Any]) -> Any:
    """An object of a role by its name.

    Args:
        role: A key of ``ROLES``, such as "Partition".
        name: A name of this role, or an address.
        parameters: What the object is made with, less what the name fixes; an error names an unknown or missing one.

    >>> build("Partition", "iid", {"K": 3})
    IID(K=3, seed=0)
    """
    row, known = find(role, name), parameters_of(role, name)
    for parameter in parameters:
        if parameter not in known:
            took = f"{name} takes {', '.join(known) or 'nothing'}"
            raise ValueError(f"{name}: {parameter} is unknown{nearest(parameter, known)}; {took}")
    for parameter, spec in known.items():
        if parameter not in parameters and spec.default is inspect.Parameter.empty:
            raise ValueError(f"{name}: {parameter} is missing; {name} takes {', '.join(known)}")
    given = dict(parameters)
    for field, value in row.fixed.items():
        if is_address(value):
            kind = load(value)
            value = kind(**{part: given.pop(part) for part in inspect.signature(kind).parameters if part in given})
        given[field] = value
    return load(row.address)(**given)


def build_fitting(role: str, name: str, offered: Mapping[str, Any]) -> Any:
    """``build`` with parameters that need not all fit.

    Args:
        role, name: As for ``build``.
        offered: Parameters, of which those that the object takes are used.

    >>> build_fitting("Selector", "full", {"m": 3, "d": 6})
    Full()
    """
    taken = parameters_of(role, name)
    return build(role, name, {key: value for key, value in offered.items() if key in taken})


def find(role: str, name: Any) -> Row | Strategy:
    """The row of a name; for an address, a row of its own.

    Args:
        role: A key of ``ROLES``.
        name: A name of this role, or an address.
    """
    rows = ROLES[role]
    if isinstance(name, str) and (name in rows or is_address(name)):
        return rows[name] if name in rows else Row(name)
    choices = f"one of {', '.join(rows)}, or package.module:Class"
    raise ValueError(f"{role.lower()} must be {choices}, got {name!r}{nearest(name, rows)}")


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
    raise ValueError(f"registry: {getattr(kind, '__qualname__', kind)} {rule}, got {kind!r}")


def load(address: str) -> Any:
    """The class or function at "package.module:Class".

    >>> load("optax:sgd").__name__
    'sgd'
    """
    module, _, path = address.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"registry: {address!r} must be an importable package.module:Class ({error})") from None
    return found


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


def is_address(value: Any) -> bool:
    """Whether it is a "package.module:Class"."""
    return isinstance(value, str) and ":" in value
