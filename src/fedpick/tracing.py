"""A strategy traced before the first round, on clients of no federation: mistakes of form, one sentence each."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.form import FormError, check_mask, check_selection, form_of
from fedpick.protocol import FACTS, OF_SEATS, Clients, Report, Selector, needs, round_keys, select_key
from fedpick.purity import is_own, trace_again
from fedpick.text import shown
from fedpick.updates import lengths
from fedpick.validation import owner_name


def example_clients(selector: Selector[Any], K: int) -> Clients:
    """The shapes of the facts about K clients, with those that a strategy needs.

    Args:
        selector: The strategy.
        K: The number of clients.

    >>> from fedpick import Rand
    >>> example_clients(Rand(m=3), 10).size
    ShapeDtypeStruct(shape=(10,), dtype=float32)
    """
    kinds = {fact: bool if fact == "leaving" else jnp.float32 for fact in FACTS if fact in needs(selector)}
    facts = {fact: _shaped((K,), kind) for fact, kind in kinds.items()}
    size, available = (_shaped((K,), kind) for kind in (jnp.float32, bool))
    return Clients(size, available, **facts)


def example_report(selector: Selector[Any], K: int) -> Report:
    """The shapes of what is learnt in a round of K clients, with what a strategy needs.

    Args:
        selector: The strategy.
        K: The number of clients.

    >>> from fedpick import Rand
    >>> example_report(Rand(m=3), 10).loss
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """
    m, wide, wanted = K if selector.m is None else selector.m, lengths(selector), needs(selector)
    shapes = {"loss": (m,), "polled": (K,), "poll_duration": (), "size": (K,)}
    shapes |= {name: (m, wide[name]) if name in wide else (m,) for name in OF_SEATS}
    asked = {name: shape for name, shape in shapes.items() if name == "loss" or name in wanted}
    return Report(**{name: _shaped(shape, jnp.float32) for name, shape in asked.items()})


def _shaped(shape: tuple[int, ...], kind: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, kind)  # type: ignore[no-untyped-call]


def check_methods(selector: Selector[Any], K: int, *, compiled: bool = True) -> None:
    """Trace the methods of a strategy, and raise where they give what those of a strategy do not give.

    Of fedpick's own strategies only ``init`` and ``propose`` are traced, which see a d above K; those of a user's own
    are traced again, and must be pure.

    Args:
        selector: The strategy.
        K: The number of clients.
        compiled: Whether it is for a compiled loop of rounds, in which the numbers of a strategy are traced, too, and
            ``observe`` keeps the shapes and dtypes of the state.
    """
    name, own = owner_name(selector), is_own(selector)

    def trace(method: str, check: Callable[[Any], Any], *arguments: Any, fixed: tuple[Any, ...] = ()) -> Any:
        def play(selector: Any, *arguments: Any) -> Any:
            return check(getattr(selector, method)(*fixed, *arguments))

        if not own:
            return jax.eval_shape(lambda *given: play(selector, *given), *arguments)
        if compiled:
            return trace_again(f"{name}.{method}", FormError, play, selector, *arguments)
        return trace_again(f"{name}.{method}", FormError, lambda *given: play(selector, *given), *arguments)

    def is_mask(mask: Any) -> Any:
        return check_mask(f"{name}.propose", mask, K)

    first = jax.eval_shape(lambda: _check_state(name, "init", selector.init(K)))  # a d above K is an error here
    keys, clients = round_keys(0, 0), example_clients(selector, K)
    if not own:
        trace("propose", is_mask, keys.propose, first, clients)
        return
    first = trace("init", lambda state: _check_state(name, "init", state), fixed=(K,))
    if compiled and any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(first)):
        rule = "must give a state of arrays and numbers"
        raise FormError(f"{name}.init {rule}, got a random key; draw from the key of the round")
    mask = trace("propose", is_mask, keys.propose, first, clients)
    key, losses = select_key(selector, keys), _shaped((K,), jnp.float32)
    selection = trace("select", lambda found: check_selection(selector, found, K), key, first, clients, mask, losses)
    report = example_report(selector, K)
    after = trace("observe", lambda state: _check_state(name, "observe", state), first, selection, report)
    _check_kept(name, first, after, compiled)


def _check_state(name: str, method: str, state: Any) -> Any:
    """A state, which must be a tree of arrays and numbers."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if not isinstance(leaf, bool | int | float | np.generic | np.ndarray | jax.Array):
            where = jax.tree_util.keystr(path)
            rule = "must give a state of arrays and numbers"
            raise FormError(f"{name}.{method} {rule}, got {shown(leaf)}{f' at {where}' if where else ''}")
    return state


def _check_kept(name: str, first: Any, after: Any, compiled: bool) -> None:
    rule = f"{name}.observe must return a state of the form that init gives"
    structures: list[Any] = [jax.tree.structure(first), jax.tree.structure(after)]
    if structures[0] != structures[1]:
        raise FormError(f"{rule}, {form_of(first)}, got {form_of(after)}")
    for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(after), strict=True):
        if compiled and (one.shape, one.dtype) != (other.shape, other.dtype):
            where = jax.tree_util.keystr(path)
            raise FormError(f"{rule}, {form_of(one)}{f' at {where}' if where else ''}, got {form_of(other)}")
