"""``check_selector``: the laws that every strategy keeps, checked on any strategy."""

import dataclasses
from typing import Any

import jax

from fedpick.checks.claims import CLAIMS, candidates_by_share, highest_loss_first, unbiased
from fedpick.checks.harness import LawBrokenError, Trial
from fedpick.checks.laws import (
    LAWS,
    check_available,
    check_dtypes,
    check_linear,
    check_pure,
    check_reproducible,
    check_seats,
    check_silence,
    check_traceable,
)
from fedpick.protocol import FormError, Selector, check_strategy, least_clients
from fedpick.text import shown
from fedpick.tracing import check_methods
from fedpick.validation import natural, require

MOST = 10_000  # clients of the trials


def check_selector(
    selector: Selector[Any], num_clients: int | None = None, *, static: tuple[str, ...] = (), seed: int = 0
) -> list[str]:
    """Check a strategy against every law of the protocol and every claim it declares; return the list of them.

    A check by trial can miss a rare fault.

    Args:
        selector: The strategy.
        num_clients: K of the trials; by default a little more than m and d need.
        static: Names of numeric fields, besides m, that may cause a recompilation.
        seed: Seed of the trials.

    Raises:
        LawBrokenError: A law or a claim does not hold; the message names it and the inputs.

    >>> from fedpick import PowerOfChoice
    >>> check_selector(PowerOfChoice(m=2, d=4))[-1]
    'highest_loss_first: the seats go to the candidates of highest loss, ties broken at random'
    """
    _check_form(selector)
    few = max(10, 2 * (selector.m or 1), least_clients(selector) + 2)
    K = few if num_clients is None else natural("check_selector", "num_clients", num_clients)
    if K > MOST:
        rule = f"num_clients must be at most {MOST:,}, or as many fewer seats (law 8 is checked with a million)"
        raise ValueError(f"check_selector: {rule}, got {K:,} for m={selector.m}")
    fields = [field.name for field in dataclasses.fields(selector)]  # type: ignore[arg-type]
    if not isinstance(static, tuple) or not all(name in fields for name in static):
        rule = f"a tuple of fields of {type(selector).__name__} ({', '.join(fields)})"
        raise ValueError(f"check_selector: static must be {rule}, got {shown(static)}")
    require(
        "check_selector", "seed", seed, "at least 0 and below 2**31 - 1", lambda s: (s >= 0) & (s < 2**31 - 1), True
    )
    try:
        check_strategy("check_selector", selector)
        check_methods(selector, K, compiled=False)  # what observe makes of the state's dtypes is law 5
    except FormError as error:
        raise LawBrokenError(str(error)) from None
    trial = Trial(selector, K, int(seed))
    # Law 3 before those that trace the strategy, and what compiles more of it last.
    check_pure(trial)
    check_traceable(trial, static)
    check_available(trial)
    check_linear(selector, K)
    check_silence(trial)
    check_seats(trial)
    check_dtypes(trial)
    check_reproducible(trial)
    held = [f"law {number}: {law}" for number, law in LAWS.items()]
    for holds in (unbiased, candidates_by_share, highest_loss_first):
        claim = holds.__name__
        if getattr(selector, claim, False):
            holds(trial)
            held.append(f"{claim}: {CLAIMS[claim]}")
    return held


def _check_form(selector: Any) -> None:
    """It is a frozen dataclass, a pytree, and has the fields and methods of a ``Selector``."""
    if isinstance(selector, type):
        raise LawBrokenError(f"{selector.__name__} must be an instance, such as {selector.__name__}(m=3), not a class")
    kind = type(selector).__name__
    if not getattr(getattr(selector, "__dataclass_params__", None), "frozen", False):
        raise LawBrokenError(f"{kind} must be a frozen dataclass")
    if any(leaf is selector for leaf in jax.tree.leaves(selector)):
        raise LawBrokenError(f"{kind} must be a pytree: decorate it with fedpick.pytree")
    twin = dataclasses.make_dataclass(kind, [(f.name, f.type, f) for f in dataclasses.fields(selector)], frozen=True)
    jax.tree_util.register_dataclass(twin)
    values = {f.name: getattr(selector, f.name) for f in dataclasses.fields(selector)}
    structures: list[Any] = [jax.tree.structure(selector), jax.tree.structure(twin(**values))]
    if structures[0] == structures[1]:
        raise LawBrokenError(
            f"{kind}: jit may confuse it with another class of the same fields; decorate it with fedpick.pytree"
        )
    for part in ("m", "poll", "init", "propose", "select", "observe"):
        if not hasattr(selector, part):
            raise LawBrokenError(f"{kind} must have {part}, as fedpick.Selector says")


__all__ = ["CLAIMS", "LAWS", "LawBrokenError", "check_selector"]
