"""The constants of losses, computed at given models: curvature (mu, L) and gradient noise (sigma, G)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedpick.validation import natural

DENSE = 300  # dimensions, up to which a Hessian is small
Losses = Callable[[Any], Any]


def curvature(losses: Losses, points: ArrayLike, *, steps: int = 300) -> tuple[float, float]:
    """The least and the greatest eigenvalue of any client's Hessian.

    Args:
        losses: A JAX function that gives F_k(w) [K] for w [v].
        points: Where the Hessians are taken [n, v].
        steps: Beyond 300 dimensions, steps of power iteration, after which the greatest eigenvalue may still be too
            small and the least too large where others are close to them.

    >>> least, most = curvature(lambda w: jnp.stack([jnp.sum(w**2), 3 * w[0] ** 2 + w[1] ** 2]), np.ones((1, 2)))
    >>> round(least, 6), round(most, 6)
    (2.0, 6.0)
    """
    natural("curvature", "steps", steps)
    with jax.enable_x64(True):
        at = jnp.atleast_2d(jnp.asarray(np.asarray(points, np.float64)))
        K = jax.eval_shape(losses, at[0]).shape[0]

        def extreme(w: Any, k: Any) -> tuple[Any, Any]:
            def times(u: Any) -> Any:
                return jax.jvp(jax.grad(lambda w: losses(w)[k]), (w,), (u,))[1]

            def largest(apply: Any) -> Any:
                u = jax.random.normal(jax.random.key(0), w.shape, w.dtype)

                def step(_: Any, u: Any) -> Any:
                    new = apply(u / jnp.linalg.norm(u))
                    return jnp.where(jnp.linalg.norm(new) > 0, new, u)

                u = jax.lax.fori_loop(0, steps, step, u)
                u = u / jnp.linalg.norm(u)
                return u @ apply(u)

            most = largest(times)
            return most - largest(lambda u: most * u - times(u)), most

        if at.shape[1] <= DENSE:
            every = jnp.linalg.eigvalsh(jax.lax.map(jax.hessian(losses), at))
            return float(every.min()), float(every.max())
        each = jax.vmap(jax.vmap(extreme, (None, 0)), (0, None))
        least, most = jax.jit(each)(at, jnp.arange(K))
        return float(least.min()), float(most.max())


def noise(sample_losses: Losses, client: ArrayLike, points: ArrayLike, *, b: int) -> tuple[float, float]:
    """sigma and G, the greatest over clients and models.

    The gradient of a mini-batch of b samples has at most the variance of one sample over b; its mean square is that
    plus |grad F_k|^2.

    Args:
        sample_losses: A JAX function that gives the loss of every sample [N] for w [v].
        client: The client of each sample [N].
        points: Models w, such as those of a run [n, v].
        b: Mini-batch size.

    >>> sigma, G = noise(lambda w: (w[0] - jnp.array([0.0, 2.0])) ** 2 / 2, [0, 0], [[0.0], [3.0]], b=1)
    >>> round(sigma, 6), round(G**2, 6)
    (1.0, 5.0)
    """
    natural("noise", "b", b)
    with jax.enable_x64(True):
        owner = np.asarray(client, int)
        mean = np.zeros((owner.max() + 1, len(owner)))
        mean[owner, np.arange(len(owner))] = 1 / np.bincount(owner)[owner]

        def at(w: Any) -> tuple[Any, Any]:
            gradients = jax.jacrev(sample_losses)(w)
            center = jnp.asarray(mean) @ gradients
            spread = jnp.asarray(mean) @ jnp.sum((gradients - center[owner]) ** 2, axis=1) / b
            return spread.max(), (spread + jnp.sum(center**2, axis=1)).max()

        spread, square = jax.lax.map(jax.jit(at), jnp.atleast_2d(jnp.asarray(np.asarray(points, np.float64))))
        return float(jnp.sqrt(spread.max())), float(jnp.sqrt(square.max()))
