"""The objectives of all clients, with their optima and constants: what the theory is about."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from fedpick.theory.selection_probability import shares
from fedpick.validation import natural, require

Numbers = np.ndarray[Any, Any]
DENSE = 300  # dimensions, up to which a Hessian is small
Losses = Callable[[Any], Any]
Formula = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Problem:
    """F_k for every client, F = sum p_k F_k, and what the theorems need to know of them.

    ``formula(data, w)`` is a JAX function that gives F_k(w) [K] for w [v]; problems of one formula and one shape share
    their compiled programs. ``optimum`` is w*, ``lowest`` F_k* [K]. ``mu`` and ``L`` are the least convexity and the
    greatest smoothness of any F_k. ``residual`` is the largest gradient norm at which a numerical minimisation
    stopped, 0 for closed forms.
    """

    share: Numbers = field(repr=False)
    formula: Formula = field(repr=False)
    data: Any = field(repr=False)
    optimum: Numbers
    lowest: Numbers = field(repr=False)
    mu: float
    L: float
    residual: float = 0.0

    def values(self, w: Any) -> Numbers:
        """F_k(w) of every client, in float64; w may be [v] or [n, v]."""
        points = np.asarray(w, np.float64)
        v = len(self.optimum)
        if points.ndim not in (1, 2) or points.shape[-1] != v:
            raise ValueError(f"Problem: w must have shape ({v},) or (n, {v}), got shape {points.shape}")
        with jax.enable_x64(True):
            found = np.asarray(_values(self.formula, self.data, np.atleast_2d(points)))
        return found if points.ndim > 1 else found[0]

    def excess(self, w: Any) -> Numbers:
        """F(w) - F*."""
        return np.asarray((self.values(w) - self.values(self.optimum)) @ self.share)

    @property
    def gamma(self) -> float:
        """The local-global objective gap F* - sum p_k F_k*: 0 where all clients agree."""
        values = self.values(self.optimum)
        gap = self.share @ (values - self.lowest)
        return 0.0 if gap <= 1e-12 * max(1.0, np.abs(values).max()) else float(gap)


def quadratic_problem(share: Any, h: Any, e: Any) -> Problem:
    """F_k(w) = 1/2 w' H_k w - e_k' w + 1/2 e_k' H_k^-1 e_k: everything in closed form.

    ``h`` holds a number for each client (H_k = h_k I, as in the paper), a diagonal [K, v], or matrices [K, v, v].

    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> problem.optimum, problem.gamma, problem.mu, problem.L
    (array([0.]), 0.5, 1.0, 1.0)
    """
    p, e = shares("quadratic_problem", share), np.asarray(e, float)
    if e.ndim != 2 or len(e) != len(p):
        raise ValueError(f"quadratic_problem: e must have shape (K, v) with K = {len(p)}, got shape {e.shape}")
    K, v = e.shape
    H = np.asarray(h, float)
    if H.shape not in ((K,), (K, v), (K, v, v)):
        shapes = f"({K},), ({K}, {v}) or ({K}, {v}, {v})"
        raise ValueError(f"quadratic_problem: h must have shape {shapes}, got shape {H.shape}")
    require("quadratic_problem", "e", e, "finite", np.isfinite)
    require("quadratic_problem", "h", H, "finite", np.isfinite)
    H = H if H.ndim == 3 else np.broadcast_to(H.reshape(K, -1, 1), (K, v, 1)) * np.eye(v)
    if not np.allclose(H, H.transpose(0, 2, 1)):
        raise ValueError("quadratic_problem: h must be symmetric for every client, got a matrix that is not")
    curvature = np.linalg.eigvalsh(H)
    require("quadratic_problem", "h", curvature, "positive definite for every client", lambda x: x > 0)
    center = np.linalg.solve(H, e[:, :, None])[:, :, 0]
    optimum = np.linalg.solve(np.tensordot(p, H, 1), p @ e)

    least, most = float(curvature.min()), float(curvature.max())
    return Problem(p, _quadratic, (H, center), optimum, np.zeros(K), least, most)


def _quadratic(data: Any, w: Any) -> Any:
    H, center = (jnp.asarray(x, w.dtype) for x in data)
    off = w[None, :] - center
    return jnp.einsum("kv,kvu,ku->k", off, H, off) / 2


def logistic_problem(x: Any, y: Any, client: Any, ridge: float, classes: int | None = None) -> Problem:
    """Multinomial logistic regression with a ridge: F_k(w) = mean cross-entropy of k's samples + ridge/2 |w|^2.

    ``w`` is the matrix [dim, classes] in a row; append a column of ones to ``x`` for a bias. mu = ridge, and
    L = ridge + 1/2 max_k lambda_max(X_k' X_k / D_k), since a softmax has a Hessian of at most 1/2.

    >>> x, y = np.eye(2).repeat(4, axis=0), np.arange(8) % 2
    >>> problem = logistic_problem(x, y, client=np.arange(8) // 4, ridge=0.1)
    >>> problem.optimum.shape, problem.residual < 1e-8
    ((4,), True)
    """
    require("logistic_problem", "ridge", ridge, "finite and above 0", lambda value: (value > 0) & (value < np.inf))
    x, y, client = np.asarray(x, float), np.asarray(y), np.asarray(client)
    if x.ndim != 2 or x.size == 0 or y.shape != (len(x),) or client.shape != (len(x),):
        got = f"{x.shape}, {y.shape} and {client.shape}"
        raise ValueError(f"logistic_problem: x, y and client must have shapes (N, dim), (N,) and (N,), got {got}")
    require("logistic_problem", "x", x, "finite and below 1e100", lambda x: np.abs(x) < 1e100)
    require("logistic_problem", "client", client, "at least 0", lambda k: k >= 0, whole=True)
    C = int(y.max()) + 1 if classes is None else natural("logistic_problem", "classes", classes)
    require("logistic_problem", "y", y, f"at least 0 and below classes={C}", lambda y: (y >= 0) & (y < C), whole=True)
    K = int(client.max()) + 1
    count = np.bincount(client, minlength=K)
    require("logistic_problem", "samples of each client", count, "at least 1", lambda n: n >= 1)
    onto = np.zeros((K, len(x)))
    onto[client, np.arange(len(x))] = 1 / count[client]
    smooth = max(np.linalg.eigvalsh(x[client == k].T @ x[client == k] / count[k])[-1] for k in range(K)) / 2

    start, data = np.zeros(x.shape[1] * C), (x, y, onto, np.asarray(ridge, float))
    return _minimised(count / count.sum(), _logistic, data, start, float(ridge), float(ridge + smooth), 1e-9)


def _logistic(data: Any, w: Any) -> Any:
    x, y, onto, ridge = data
    x, onto, ridge = (jnp.asarray(part, w.dtype) for part in (x, onto, ridge))
    scores = x @ w.reshape(x.shape[1], -1)
    right = jnp.take_along_axis(scores, jnp.asarray(y)[:, None], axis=1)[:, 0]
    return onto @ (jax.nn.logsumexp(scores, axis=1) - right) + ridge / 2 * jnp.sum(w * w)


def numerical_problem(
    share: Any, losses: Losses, start: Any, mu: float | None = None, L: float | None = None, tolerance: float = 1e-9
) -> Problem:
    """A problem from its convex losses alone: F and every F_k are numerical_problem together, by L-BFGS in float64.

    ``residual`` of the result is the largest gradient norm that was left; where it is not small, there is no minimum
    and an error. Without ``mu`` and ``L``, they are those of the Hessians at the optima (``curvature``).

    >>> problem = numerical_problem([0.5, 0.5], lambda w: jnp.stack([jnp.cosh(w[0] - 1), jnp.cosh(w[0] + 1)]), [0.3])
    >>> problem.optimum.round(6) + 0, problem.lowest, problem.residual < 1e-8
    (array([0.]), array([1., 1.]), True)
    """
    return _minimised(share, lambda data, w: losses(w), (), start, mu, L, tolerance)


def _minimised(
    share: Any, formula: Formula, data: Any, start: Any, mu: float | None, L: float | None, tolerance: float
) -> Problem:
    p, start = shares("numerical_problem", share), np.asarray(start, np.float64)
    if start.ndim != 1:
        raise ValueError(f"numerical_problem: start must have shape (v,), got shape {start.shape}")
    shape = jax.eval_shape(formula, data, start).shape
    if shape != p.shape:
        raise ValueError(
            f"numerical_problem: losses must give one number for each of K={len(p)} clients, got shape {shape}"
        )
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # L-BFGS mixes integers of 32 and 64 bits
        which = np.concatenate([p[None], np.eye(len(p))])
        found, norms = _minima(formula, data, which, start, tolerance)
        points, residual = np.asarray(found), float(np.asarray(norms).max())
        lowest = np.asarray(_values(formula, data, points))[1:].diagonal()
        steepest = float(np.abs(np.asarray(jax.jacrev(formula, argnums=1)(data, jnp.asarray(start)))).max())
    if not residual <= 1e-4 * max(1.0, steepest):
        raise ValueError(
            f"numerical_problem: losses must have a minimum that L-BFGS finds, got a gradient of {residual:.3g} left"
        )
    if mu is None or L is None:
        least, most = curvature(lambda w: formula(data, w), points)
        mu, L = least if mu is None else mu, most if L is None else L
    require("numerical_problem", "mu", mu, f"at least 0 and at most L={L:.6g}", lambda mu: (mu >= 0) & (mu <= L))
    return Problem(p, formula, data, points[0], lowest, mu, L, residual)


@functools.partial(jax.jit, static_argnames=("formula",))
def _values(formula: Formula, data: Any, w: Any) -> Any:
    return jax.lax.map(lambda one: formula(data, one), w, batch_size=4096)


@functools.partial(jax.jit, static_argnames=("formula", "most"))
def _minima(formula: Formula, data: Any, which: Any, start: Any, tolerance: Any, most: int = 5_000) -> tuple[Any, Any]:
    """The minimum of each weighted sum of the losses, and the norm of its gradient there."""

    def one(weights: Any) -> tuple[Any, Any]:
        def objective(w: Any) -> Any:
            return weights @ formula(data, w)

        solver = optax.lbfgs()
        value_and_grad = optax.value_and_grad_from_state(objective)

        def step(carry: Any) -> Any:
            w, state, number, _ = carry
            value, gradient = value_and_grad(w, state=state)
            change, state = solver.update(gradient, state, w, value=value, grad=gradient, value_fn=objective)
            return optax.apply_updates(w, change), state, number + 1, jnp.linalg.norm(gradient)

        def goes_on(carry: Any) -> Any:
            return (carry[3] > tolerance) & (carry[2] < most)

        w, *_ = jax.lax.while_loop(goes_on, step, (start, solver.init(start), 0, jnp.inf))
        return w, jnp.linalg.norm(jax.grad(objective)(w))

    found: tuple[Any, Any] = jax.vmap(one)(which)
    return found


def curvature(losses: Losses, points: Any, steps: int = 300) -> tuple[float, float]:
    """The least and the greatest eigenvalue of any client's Hessian at these points [n, v].

    Up to 300 dimensions all eigenvalues are computed; beyond, power iteration takes ``steps`` steps, after which the
    greatest may still be too small and the least too large where others are close to them.

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


def noise(sample_losses: Losses, client: Any, points: Any, b: int) -> tuple[float, float]:
    """sigma and G along a run: the greatest over clients and the points w [n, v] that it went through.

    ``sample_losses`` maps w to the loss of every sample [N]. A mini-batch of b samples has a gradient of variance at
    most that of one sample over b; its mean square is that plus |grad F_k|^2.

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
