"""The table of all strategies: their short names, what they cost, where they come from; and their form on file."""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedpick.protocol import Selector
from fedpick.selectors.afl import AFL
from fedpick.selectors.power import PowerOfChoice
from fedpick.selectors.rand import Full, Rand, Uniform
from fedpick.selectors.schedule import Schedule, Shrinking
from fedpick.selectors.score import ClippedLoss, LocalLoss, OwnScore, QFairLoss, Score
from fedpick.validation import known


class Entry(NamedTuple):
    """A row of the table. Costs are per round: K clients, m seats, d candidates, w the bytes of a model."""

    build: Callable[..., Selector[Any]]
    picks: str
    polled: str
    messages: str
    traffic: str
    reference: str


def _rand_distinct(m: int) -> Rand:
    return Rand(m, replace=False)


def _cpow(m: int, d: Any, score: Any = LocalLoss()) -> PowerOfChoice:
    return PowerOfChoice(m, d, "batch", score)


def _rpow(m: int, d: Any, score: Any = LocalLoss()) -> PowerOfChoice:
    return PowerOfChoice(m, d, "stale", score)


def _pow(m: int, d: Any, score: Any = LocalLoss()) -> PowerOfChoice:
    return PowerOfChoice(m, d, "full", score)


def _adapow(m: int, rounds: int, steps: int = 10, score: Any = LocalLoss()) -> PowerOfChoice:
    return PowerOfChoice(m, Shrinking(rounds, steps), "full", score)


def _afl(m: int, alpha1: float = 0.75, alpha2: float = 0.01, alpha3: float = 0.1) -> AFL:
    return AFL(m, alpha1, alpha2, alpha3, "loss")


def _afl_sqrt_size(m: int, alpha1: float = 0.75, alpha2: float = 0.01, alpha3: float = 0.1) -> AFL:
    return AFL(m, alpha1, alpha2, alpha3, "sqrt-size")


_CHO = "Cho, Wang, Joshi 2020"
_PLAIN = ("nothing", "2m", "2m w")
_POLLED = ("2d + 2m", "(d + 2m) w + d scalars")

STRATEGIES: dict[str, Entry] = {
    "rand": Entry(Rand, "m seats by data share, with replacement", *_PLAIN, "McMahan et al. 2017; " + _CHO),
    "rand-distinct": Entry(_rand_distinct, "m distinct clients by data share", *_PLAIN, _CHO),
    "uniform": Entry(Uniform, "m distinct clients uniformly, weights p_k K / m", *_PLAIN, "Li et al. 2020"),
    "full": Entry(Full, "everybody, weights p_k", "nothing", "2K", "2K w", "McMahan et al. 2017"),
    "pow-d": Entry(_pow, "the m highest losses of d candidates", "full local loss", *_POLLED, _CHO),
    "cpow-d": Entry(_cpow, "the same by a mini-batch estimate", "mini-batch loss", *_POLLED, _CHO),
    "rpow-d": Entry(_rpow, "the same by the last training loss", "nothing", "2m", "2m w + m scalars", _CHO),
    "adapow-d": Entry(
        _adapow, "pow-d with d shrinking from K to m", "full local loss", *_POLLED, "Cho, Wang, Joshi 2022"
    ),
    "afl": Entry(
        _afl, "softmax over last training losses", "nothing", "2m", "2m w + m scalars", "Goetz et al. 2019; " + _CHO
    ),
    "afl-sqrt-size": Entry(
        _afl_sqrt_size, "the same with sqrt(D_k) times the loss", "nothing", "2m", "2m w + m scalars",
        "Goetz et al. 2019",
    ),
}  # fmt: skip


def strategy(name: str, **parameters: Any) -> Selector[Any]:
    """The strategy of this short name; ``STRATEGIES`` is the table of all of them.

    >>> strategy("rpow-d", m=3, d=50)
    PowerOfChoice(m=3, d=50, loss='stale', score=LocalLoss(by_size=False))
    """
    build = STRATEGIES[_nearest("strategy", "name", name, STRATEGIES)].build
    signature = inspect.signature(build)
    for parameter in parameters:
        _nearest(name, "parameter", parameter, signature.parameters)
    for parameter, spec in signature.parameters.items():
        if parameter not in parameters and spec.default is inspect.Parameter.empty:
            raise ValueError(f"{name}: {parameter} is missing; {name} takes {', '.join(signature.parameters)}")
    return build(**parameters)


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Rand, Uniform, Full, PowerOfChoice, AFL, LocalLoss, ClippedLoss, QFairLoss, Shrinking)
}


def short_name(selector: Any) -> str:
    """A strategy in a few words: its short name and its parameters, less those that are as usual.

    >>> short_name(strategy("rpow-d", m=3, d=50))
    'rpow-d, m = 3, d = 50'
    """
    plain = to_dict(selector)
    kind = plain.pop("kind")
    if kind == "PowerOfChoice":
        name = {"full": "pow-d", "batch": "cpow-d", "stale": "rpow-d"}[plain.pop("loss")]
        if isinstance(plain["d"], dict):
            name, rounds = f"ada{name}", plain.pop("d")["rounds"]
            plain["rounds"] = rounds
    elif kind == "Rand":
        name = "rand" if plain.pop("replace") else "rand-distinct"
    else:
        name = kind.lower()
    usual = {field.name: field.default for field in dataclasses.fields(selector)}
    given = [f"{key} = {value}" for key, value in plain.items() if getattr(selector, key, value) != usual.get(key)]
    return ", ".join([name, *given])


def to_dict(selector: Any) -> dict[str, Any]:
    """A strategy as plain data for JSON or TOML; ``from_dict`` turns it back.

    >>> to_dict(strategy("rand", m=3))
    {'kind': 'Rand', 'm': 3, 'replace': True}
    """
    kind = type(selector).__name__
    if _KINDS.get(kind) is not type(selector):
        raise ValueError(f"to_dict: selector must be made of {', '.join(_KINDS)}, got {selector!r}")

    def plain(value: Any) -> Any:
        if isinstance(value, bool | str):
            return value
        numbers = known(value)
        return to_dict(value) if numbers is None else numbers.tolist()

    fields = {field.name: plain(getattr(selector, field.name)) for field in dataclasses.fields(selector)}
    return {"kind": kind, **fields}


def from_dict(data: Mapping[str, Any]) -> Any:
    """The strategy that ``to_dict`` described; unknown or missing fields are named.

    >>> from_dict({"kind": "PowerOfChoice", "m": 2, "d": {"kind": "Shrinking", "rounds": 500}}).d
    Shrinking(rounds=500, steps=10)
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"from_dict: data must be a mapping, got {data!r}")
    if "kind" not in data:
        raise ValueError(f"from_dict: kind is missing in {dict(data)!r}")
    kind = _KINDS[_nearest("from_dict", "kind", data["kind"], _KINDS)]
    known_fields = {field.name: field for field in dataclasses.fields(kind)}
    values = {name: value for name, value in data.items() if name != "kind"}
    for name in values:
        _nearest(kind.__name__, "field", name, known_fields)
    for name, field in known_fields.items():
        if name not in values and field.default is dataclasses.MISSING:
            raise ValueError(f"{kind.__name__}: {name} is missing; it takes {', '.join(known_fields)}")
    return kind(**{name: from_dict(value) if isinstance(value, Mapping) else value for name, value in values.items()})


def _nearest(owner: str, role: str, name: Any, choices: Mapping[str, Any]) -> str:
    """The name itself if it is among the choices; otherwise an error that lists them and suggests the nearest."""
    if isinstance(name, str) and name in choices:
        return name
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{owner}: {role} must be one of {', '.join(choices)}, got {name!r}{hint}")


__all__ = [
    "AFL",
    "STRATEGIES",
    "ClippedLoss",
    "Entry",
    "Full",
    "LocalLoss",
    "OwnScore",
    "PowerOfChoice",
    "QFairLoss",
    "Rand",
    "Schedule",
    "Score",
    "Shrinking",
    "Uniform",
    "from_dict",
    "short_name",
    "strategy",
    "to_dict",
]
