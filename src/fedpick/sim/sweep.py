"""Many runs from one call: every value of the swept numbers with every seed."""

import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.sim._engine.runner import Runs
from fedpick.sim.preflight import is_number
from fedpick.sim.round import Setup


def sweep(setup: Setup, seeds: int | Iterable[int]) -> tuple[Runs, list[dict[str, Any]]]:
    """The runs of a setup whose swept numbers are arrays, and the seed and values of each run by name.

    Args:
        setup: Its selector, local and server may have fields that are arrays of values, all of one length.
        seeds: A number of seeds, or the seeds.
    """
    try:
        chosen: Any = range(operator.index(seeds)) if is_number(seeds) else seeds  # type: ignore[arg-type]
        numbers = [operator.index(seed) for seed in chosen]
    except TypeError:
        raise ValueError(f"simulate: seeds must be a whole number or whole numbers, got {seeds!r}") from None
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**31:
        raise ValueError(f"simulate: seeds must be one or more numbers, at least 0 and below 2**31, got {seeds!r}")
    # Both a client and a server have an eta.
    parts = (("", setup.selector), ("", setup.local), ("server.", setup.server))
    named = [
        (prefix + jax.tree_util.keystr(path, simple=True, separator="."), np.asarray(leaf))
        for prefix, part in parts
        for path, leaf in jax.tree_util.tree_leaves_with_path(part)
    ]
    swept = {name: leaf for name, leaf in named if leaf.ndim == 1}
    lengths = {len(leaf) for leaf in swept.values()}
    if len(lengths) > 1 or any(leaf.ndim > 1 for _, leaf in named):
        got = {name: leaf.shape for name, leaf in named if leaf.ndim}
        raise ValueError(f"simulate: swept fields must be arrays of one length, got {got}")
    points = [{name: _plain(leaf[v]) for name, leaf in swept.items()} for v in range(max(lengths, default=1))]
    seed = np.asarray(numbers * len(points), np.int32)
    whole = Runs(setup.map_own(lambda leaf: _per_run(leaf, len(numbers))), seed)
    return whole, [{"seed": seed, **point} for point in points for seed in numbers]


def _per_run(leaf: Any, seeds: int) -> Any:
    leaf = jnp.asarray(leaf)
    return jnp.repeat(leaf, seeds) if leaf.ndim else leaf


def _plain(number: Any) -> int | float:
    """A Python number; 0.1 and not 0.10000000149 for a float32."""
    return int(number) if number.dtype.kind in "iu" else float(str(number))
