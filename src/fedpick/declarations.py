"""What a strategy declares beside its methods: its seats, its poll, what it needs, and what may be relied upon."""

import inspect
from typing import Any, Literal, get_args

import jax
import numpy as np

from fedpick.form import FormError
from fedpick.metrics import Payload
from fedpick.text import listed, shown
from fedpick.validation import flag, known, natural, one_of, owner_name

Poll = Literal["none", "full", "batch", "norm"]
FACTS = ("expected_duration", "upload_duration", "leaving")
OF_SEATS = ("duration", "norm", "square_loss", "sketch", "head")  # what a report may hold of each seat
OF_ROUND = ("polled", "poll_duration", "size")  # and of the round
MEASURED = OF_SEATS + OF_ROUND
LENGTHS = {"sketch": "sketch_size", "head": "classes"}  # of what is a vector
WORK = ("K", "K s", "K^2")
PARAMETERS = {
    "init": ("num_clients",),
    "propose": ("key", "state", "clients"),
    "select": ("key", "state", "clients", "candidates", "losses"),
    "observe": ("state", "selection", "report"),
}
FLAGS = (
    "skips_poll", "one_key", "weights_sum_to_1", "fills_seats", "unbiased", "candidates_by_share", "highest_loss_first",
    "nonnegative_losses",
)  # fmt: skip
MORE = ("asks", "disguise", "encode", "question", "explain", "status")  # methods that a strategy may have


def check_strategy(owner: object, selector: Any, name: str = "selector") -> None:
    """Raise unless it has the form of a strategy: its attributes, its methods with their parameters, its flags.

    Args:
        owner: What the error begins with.
        selector: The strategy.
        name: The parameter that it was given as.
    """
    parts = ("m", "poll", *PARAMETERS)
    missing = [part for part in parts if not hasattr(selector, part)]
    if isinstance(selector, type) or "propose" in missing or "poll" in missing:
        rule = "a strategy, such as PowerOfChoice(m=3, d=6)"
        raise FormError(f"{owner_name(owner)}: {name} must be {rule}, got {shown(selector)}")
    kind = owner_name(selector)
    if missing:
        raise FormError(f"{owner_name(owner)}: {kind} must have {listed(missing)}, as fedpick.Selector says")
    if jax.tree_util.all_leaves([selector]):  # JAX cannot take it apart
        rule = "a frozen dataclass registered as a pytree: decorate its class with fedpick.pytree"
        raise FormError(f"{owner_name(owner)}: {name} must be {rule}, got {shown(selector)}")
    try:
        check_declarations(selector)
    except FormError:
        raise
    except ValueError as error:
        raise FormError(str(error)) from None


def check_declarations(selector: Any) -> None:
    """Raise unless every attribute and method of a strategy is of its kind."""
    kind = owner_name(selector)
    if selector.m is not None:
        if isinstance(selector.m, np.ndarray | jax.Array):
            raise FormError(f"{kind}: m must be a whole number of Python's, got {shown(selector.m)}")
        natural(selector, "m", selector.m)
    one_of(selector, "poll", selector.poll, get_args(Poll))
    for part in ("m", "poll"):
        if _is_data(selector, part):
            raise FormError(f"{kind}: {part} must be static, as in `{part} = fedpick.static()`, and is a data field")
    check_fields(selector)
    for method, parameters in PARAMETERS.items():
        _check_method(selector, method, parameters)
    for method in MORE:
        if getattr(selector, method, None) is not None and not callable(getattr(selector, method)):
            raise FormError(f"{kind}: {method} must be a method, got {shown(getattr(selector, method))}")
    for name in FLAGS:
        flag(selector, name, getattr(selector, name, False))
    one_of(selector, "work", getattr(selector, "work", "K"), WORK)
    for name in sorted({*LENGTHS} & needs(selector)):
        natural(selector, LENGTHS[name], getattr(selector, LENGTHS[name], None))


def check_fields(value: Any) -> None:
    """Raise unless what JAX takes for data, in the fields of an object, is numbers.

    Args:
        value: A strategy, or an availability.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(value):
        if not isinstance(leaf, bool | int | float | np.generic | np.ndarray | jax.Array):
            field, rule = jax.tree_util.keystr(path, simple=True, separator="."), "a field of fedpick.static()"
            raise FormError(f"{owner_name(value)}: {field} must be a number, or {rule}, got {shown(leaf)}")


def _is_data(selector: Any, part: str) -> bool:
    """Whether JAX takes an attribute for data, so that it is no plain value in a compiled program."""
    mark = object()
    try:
        return getattr(jax.tree.map(lambda leaf: mark, selector), part) is mark
    except Exception:  # a class of the user's that checks its values when JAX rebuilds it
        return False


def _check_method(selector: Any, method: str, parameters: tuple[str, ...]) -> None:
    function = getattr(selector, method)
    rule = f"{owner_name(selector)}.{method} must be a method of ({', '.join(parameters)})"
    if not callable(function):
        raise FormError(f"{rule}, got {shown(function)}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        raise FormError(f"{rule}, got {signature}") from None


def needs(selector: Any) -> frozenset[str]:
    """The optional fields of ``Clients`` and ``Report`` that a strategy uses.

    Args:
        selector: The strategy.

    >>> from fedpick import Rand
    >>> needs(Rand(m=3))
    frozenset()
    """
    declared = getattr(selector, "needs", ())
    if not isinstance(declared, set | frozenset | tuple | list):
        rule = "must be a set of names, such as {'duration'}"
        raise FormError(f"{owner_name(selector)}: needs {rule}, got {shown(declared)}")
    found = frozenset(declared)
    for name in sorted(found - {*FACTS, *MEASURED}, key=str):
        words = ", ".join((*FACTS, *MEASURED))
        raise FormError(f"{owner_name(selector)}: needs must be among {words}, got {shown(name)}")
    return found


def payload(selector: Any) -> Payload:
    """What a strategy's messages carry, for counting traffic: a squared loss is a second scalar in a reply.

    A client that was polled by training has the model. What the server measures of updates costs nothing.
    """
    asked = getattr(selector, "enquires", 0)
    return Payload(1 + ("square_loss" in needs(selector)), int(selector.poll != "norm"), int(not asked), asked or 1)


def least_clients(selector: Any) -> int:
    """The fewest clients that a strategy is made for: its m, its d where that is a number, and those of what it holds.

    >>> from fedpick import Cooldown, PowerOfChoice
    >>> least_clients(Cooldown(PowerOfChoice(m=3, d=6)))
    6
    """
    d = known(getattr(selector, "d", None))
    held = [*getattr(selector, "selectors", ()), *([selector.selector] if hasattr(selector, "selector") else ())]
    return max(selector.m or 1, 1 if d is None else int(d.max()), *map(least_clients, held))


def too_few_rested(selector: Any, K: int, played: int) -> str | None:
    """The sentence that a strategy has fewer clients to choose among than it means to, because others rest; or None.

    Args:
        selector: The strategy, or one that holds such a ``Cooldown``.
        K: The number of clients.
        played: How many rounds are played before the last one.

    >>> from fedpick import Cooldown, PowerOfChoice
    >>> too_few_rested(Cooldown(PowerOfChoice(m=3, d=12), rounds=5), K=20, played=100)
    'Cooldown: K - m rounds = 20 - 15 rested clients must be at least d=12, or all of them are candidates'
    """
    resting = known(getattr(selector, "resting", None))
    if resting is None:
        held = (*getattr(selector, "selectors", ()), getattr(selector, "selector", None))
        return next(filter(None, (too_few_rested(each, K, played) for each in held if each is not None)), None)
    m, d, most = selector.m, least_clients(selector), int(resting.max())
    rested = K - min(most, m * played)
    rule = f"{owner_name(selector)}: K - m rounds = {K} - {most} rested clients must be"
    if rested <= m < K:
        return f"{rule} more than m={m}, or those that have rested longest have the seats, whatever their losses"
    return f"{rule} at least d={d}, or all of them are candidates" if rested < d < K else None


def of_nonnegative_losses(selector: Any) -> str | None:
    """The name of a strategy whose choice means something for losses of at least 0 alone, itself or held; or None.

    Args:
        selector: The strategy; a wrapper passes on what the strategy that it holds declares.
    """
    if not getattr(selector, "nonnegative_losses", False):
        return None
    held = (*getattr(selector, "selectors", ()), getattr(selector, "selector", None))
    return next(filter(None, map(of_nonnegative_losses, held)), owner_name(selector))
