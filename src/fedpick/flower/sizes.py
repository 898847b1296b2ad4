"""How large clients count: what they claim, bounded by what the others claim or by what the operator knows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedpick.sampling import size_bound


class SizeLimits(NamedTuple):
    """What bounds the sizes that clients claim; ``known`` and ``caps`` go by identity.

    >>> SizeLimits(factor=2.0).apply(["a", "b", "c"], np.array([1e12, 30.0, 20.0]))
    array([60., 30., 20.])
    >>> SizeLimits(known={"a": 50.0}, caps={"b": 25.0}).apply(["a", "b", "c"], np.array([1e12, 30.0, 20.0]))
    array([50., 25., 20.])
    """

    factor: float | None = None  # times the largest that is surely honest
    known: Mapping[str, float] = {}
    caps: Mapping[str, float] = {}

    def apply(self, identities: Sequence[str | None], claimed: NDArray[Any]) -> NDArray[np.float64]:
        """How large each client counts, NaN where it claims nothing."""
        size = claimed
        if self.known:
            size = np.array([self.known.get(name or "", size) for name, size in zip(identities, claimed, strict=True)])
        caps = np.full(len(size), np.inf)
        if self.factor is not None:
            bound = float(size_bound(jnp.asarray(np.nan_to_num(size), jnp.float32), self.factor))
            caps[size > bound] = bound  # an honest size stays as it is, to the last bit
        for i, name in enumerate(identities if self.known or self.caps else ()):
            caps[i] = self.caps.get(name or "", np.inf if name in self.known else caps[i])
        return np.asarray(np.minimum(size, caps), np.float64)


def bound_claims(claims: Sequence[float], limits: SizeLimits, identities: Sequence[str | None]) -> NDArray[np.float64]:
    """The examples that clients claim to have evaluated on, each bounded by what the others claim.

    Where the server knows a client's size, or caps it, that is the bound instead.

    >>> bound_claims([30.0, 1e12, 20.0], SizeLimits(factor=2.0, caps={"c": 10.0}), ["a", "b", "c"])
    array([30., 60., 10.])
    """
    most = np.inf
    if limits.factor is not None:
        padded = np.zeros(1 << len(claims).bit_length(), np.float32)  # few lengths, each of which is compiled
        padded[: len(claims)] = claims
        most = float(size_bound(jnp.asarray(padded), limits.factor))
    own = {**limits.known, **limits.caps}
    found: NDArray[np.float64] = np.minimum(claims, [own.get(name or "", most) for name in identities])
    return found


def bound_weights(
    claims: Sequence[float], sizes: Sequence[float] | NDArray[Any], factor: float, most: float
) -> NDArray[np.float64]:
    """The examples that clients claim to have trained on, bounded by how large they count.

    An honest client trains on its examples once, or as often as all: nobody counts more than ``factor`` times what the
    lower median of the others' ratios gives it, nor more than the largest client ``most``.

    >>> bound_weights([30.0, 1e12], [10.0, 20.0], factor=2.0, most=50.0)
    array([ 30., 120.])
    """
    claimed, size = np.asarray(claims, np.float64), np.maximum(np.asarray(sizes, np.float64), 1e-30)
    usual = np.sort(claimed / size)[(len(claimed) - 1) // 2]
    found: NDArray[np.float64] = np.minimum(claimed, usual * np.minimum(factor * size, most))
    return found
