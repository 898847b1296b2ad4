"""One federation over several devices: its seats, candidates and blocks of an evaluation are divided among them.

The devices are those of the mesh in which a program is traced (``over``). Without one, everything here is the plain
computation. What is not divided, selection above all, is done on every device alike.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float

from fedpick.sim.parts import so_far

AXIS = "seats"
EVERYWHERE = PartitionSpec()  # type: ignore[no-untyped-call]
SHARES = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]
Tree = TypeVar("Tree")
_MESH: contextvars.ContextVar[Mesh | None] = contextvars.ContextVar("mesh", default=None)


@contextlib.contextmanager
def over(mesh: Mesh | None) -> Iterator[None]:
    """Divide what is traced inside among the devices of a mesh.

    Args:
        mesh: One with an axis ``AXIS``; None does not divide.
    """
    token = _MESH.set(mesh)
    try:
        yield
    finally:
        _MESH.reset(token)


def spread_rows(function: Callable[..., Tree], shared: Any, *arrays: Array) -> Tree:
    """``function(shared, *arrays)``, with the rows of the arrays divided among the devices, whole on each of them.

    Args:
        function: Gives arrays [n, ...], row by row; what it needs and is traced comes in its arguments.
        shared: A pytree of arrays that each device has.
        *arrays: Arrays [n, ...].

    >>> spread_rows(lambda factor, x: factor * x, 2, jnp.arange(3)).tolist()
    [0, 2, 4]
    """
    mesh = _MESH.get()
    if mesh is None:
        return function(shared, *arrays)
    rows = arrays[0].shape[0]
    spare = -rows % mesh.size  # the last row again, on devices that would have none
    filled = [jnp.concatenate([array, jnp.repeat(array[-1:], spare, axis=0)]) for array in arrays]
    specs: Any = (EVERYWHERE, *[SHARES] * len(arrays))
    own = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=SHARES, check_vma=False)(shared, *filled)
    # Gathered before anything is added up: a sum has the order that it has on one device.
    whole: Any = lax.with_sharding_constraint(own, NamedSharding(mesh, EVERYWHERE))  # type: ignore[no-untyped-call]
    found: Tree = jax.tree.map(lambda leaf: leaf[:rows], whole)
    return found


def spread_candidates(
    answer: Callable[[Any, Bool[Array, " K"]], Float[Array, " K"]], shared: Any, asked: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """``answer(shared, asked)``, with the candidates divided among the devices.

    Args:
        answer: The answers of the clients asked, NaN for the others.
        shared: As for ``spread_rows``.
        asked: The clients that are polled.

    >>> spread_candidates(lambda loss, asked: jnp.where(asked, loss, jnp.nan), 1.0, jnp.array([True, False])).tolist()
    [1.0, nan]
    """
    mesh = _MESH.get()
    if mesh is None:
        return answer(shared, asked)

    def own(shared: Any, asked: Bool[Array, " K"]) -> Any:
        mine = asked & (so_far(asked.astype(jnp.int32)) % mesh.size == lax.axis_index(AXIS))
        return lax.psum(jnp.where(mine, answer(shared, mine), jnp.float32(0)), AXIS)  # type: ignore[no-untyped-call]

    everywhere: Any = (EVERYWHERE, EVERYWHERE)
    answers = jax.shard_map(own, mesh=mesh, in_specs=everywhere, out_specs=EVERYWHERE, check_vma=False)(shared, asked)
    return jnp.where(asked, answers, jnp.nan)
