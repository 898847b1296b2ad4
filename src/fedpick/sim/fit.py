"""Whether a strategy and a world go with a federation: both are traced once, before the first round."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.protocol import Selector, check_mask, round_keys
from fedpick.purity import is_own, trace_again
from fedpick.pytrees import leaves_by_name, whole_fields
from fedpick.sim.availability import Availability, Failures
from fedpick.sim.federation import Federation
from fedpick.tracing import check_methods
from fedpick.validation import owner_name

QUICK = 5.0  # seconds, with imports and JAX's start the first time: what takes longer to make is not made twice


def make_federation(data: Any) -> Federation:
    """The federation of a description; that of a user's own class is made twice, and must be the same.

    Runs of other strategies, and other processes, make it again. What takes long is made once, and not compared.

    Args:
        data: The description, such as ``Synthetic(1, 1)``.

    >>> from fedpick.sim import Quadratic
    >>> make_federation(Quadratic(K=3)).num_clients
    3
    """
    began = time.monotonic()
    made: Federation = data.federation()
    if isinstance(made, Federation) and is_own(data) and time.monotonic() - began < QUICK:
        one, other = (jax.tree.leaves(each) for each in (made, data.federation()))
        if len(one) != len(other) or not all(_same(*pair) for pair in zip(one, other, strict=True)):
            why = "it gave other data when called again (NumPy's random numbers, the clock or a global variable?)"
            how = "draw with numpy.random.default_rng of a seed that is a field"
            raise ValueError(f"{owner_name(data)}.federation must be a pure function: {why}; {how}")
    return made


def _same(one: Any, other: Any) -> bool:
    ones, others = np.asarray(one), np.asarray(other)
    return ones.shape == others.shape and ones.tobytes() == others.tobytes()


def check_fit(
    federation: Federation, selector: Selector[Any], *worlds: Availability | Failures, compiled: bool = True
) -> None:
    """Trace each swept selector, so that a d above K is an error here and not clipped in the program.

    Args:
        federation: The clients.
        selector: The strategy; an array in a field is one selector per value.
        worlds: Availability and failures, whose own numbers of clients must agree with the federation's.
        compiled: Whether the rounds are compiled, and what is traced must be pure.

    >>> from fedpick import Rand
    >>> from fedpick.sim import Quadratic
    >>> check_fit(Quadratic(K=3).federation(), Rand(m=2))
    """
    K = federation.num_clients
    whole, named = whole_fields(selector), leaves_by_name(selector)
    swept = {name: np.asarray(leaf).tolist() for name, leaf in named if np.ndim(leaf) == 1 and name not in whole}
    for row in {values: row for row, values in enumerate(zip(*swept.values(), strict=True))}.values() or (0,):
        leaves = [leaf[row] if name in swept else leaf for name, leaf in named]
        one = jax.tree.unflatten(jax.tree.structure(selector), leaves)
        if compiled:
            check_methods(one, K)
        else:
            one.init(K)
    for world in worlds:
        fitted = for_clients(world, federation)
        check_world(fitted, K)


def check_world(world: Availability | Failures, K: int) -> None:
    """Raise where a world gives no mask of the clients, or is no pure function.

    Args:
        world: Who is there, or who fails.
        K: The number of clients.
    """
    name, key, t = owner_name(world), round_keys(0, 0).world, jnp.int32(0)

    def play(key: Any, t: Any) -> Any:
        return check_mask(name, world(key, t, K), K)

    if is_own(world):
        trace_again(name, ValueError, play, key, t)
    else:
        jax.eval_shape(play, key, t)


def for_clients(world: Any, federation: Federation) -> Any:
    """A world that is read from a file, such as a trace with the names of clients, for those of a federation.

    Clients without names are called by their numbers.
    """
    if not hasattr(world, "for_clients"):
        return world
    K = federation.num_clients
    return world.for_clients(federation.names.clients or tuple(map(str, range(K))), K)
