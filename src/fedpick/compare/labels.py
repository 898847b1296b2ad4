"""What to call each of several experiments: the strategy, and whatever else differs between them."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedpick import selectors
from fedpick.experiment import leaves

Plain = dict[str, Any]  # an experiment as plain data


def names(plains: Sequence[Plain]) -> tuple[str, ...]:
    """A short name for each, all different.

    >>> rand, few, many = ({"kind": "Rand", "m": 3}, *({"kind": "PowerOfChoice", "m": 3, "d": d} for d in (6, 9)))
    >>> names([{"selector": rand}, {"selector": few}])
    ('rand', 'pow-d')
    >>> names([{"selector": rand}, {"selector": few}, {"selector": many}])
    ('rand', 'pow-d, d = 6', 'pow-d, d = 9')
    """
    others = [leaves({part: value for part, value in plain.items() if part not in APART}) for plain in plains]
    paths = list(dict.fromkeys(path for each in others for path in each))
    varied = [path for path in paths if len({str(each.get(path)) for each in others}) > 1]
    pieces = [strategy(plain).split(", ") for plain in plains]
    settled = {piece for piece in _all(pieces) if _same_for_all(piece, pieces)}
    found = []
    for own, each in zip(pieces, others, strict=True):
        words = [own[0], *(piece for piece in own[1:] if piece not in settled)]
        found.append(", ".join([*words, *(f"{path} = {each[path]}" for path in varied if path in each)]))
    if len(set(found)) < len(found):
        found = [f"{name} ({place})" if found.count(name) > 1 else name for place, name in enumerate(found, 1)]
    return tuple(found)


APART = ("selector", "seeds", "name", "metrics")


def strategy(plain: Plain) -> str:
    """The strategy in a few words; as it stands where it is none of ours."""
    part = plain.get("selector")
    try:
        return selectors.short_name(selectors.from_dict(part))  # type: ignore[arg-type]
    except ValueError:
        return str(part)


def _all(pieces: Iterable[list[str]]) -> Iterable[str]:
    return (piece for own in pieces for piece in own[1:])


def _same_for_all(piece: str, pieces: Iterable[list[str]]) -> bool:
    """Whether everybody who has this parameter has this value."""
    parameter = piece.split(" = ")[0] + " = "
    return all(other == piece for other in _all(pieces) if other.startswith(parameter))
