"""Problems: the objectives of all clients, with their optima and constants."""

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray

from fedpick.theory.curvature import Losses, curvature
from fedpick.theory.selection_probability import check_share
from fedpick.validation import natural, require

Formula = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Problem:
    """F_k for every client, F = sum p_k F_k, their optima and constants.

    Usually made by ``quadratic_problem``, ``logistic_problem`` or ``numerical_problem``.

    Args:
        share: p_k [K], summing to 1.
        formula: A JAX function ``formula(data, w)`` that gives F_k(w) [K] for w [v]; problems of the same formula and
            shape share their compiled programs.
        data: The first argument of ``formula``.
        optimum: w* [v].
        lowest: F_k* [K].
        mu: The least strong convexity of any F_k.
        L: The greatest smoothness of any F_k.
        residual: The largest gradient norm that a numerical minimisation left; 0 for closed forms.
    """

    share: NDArray[Any] = field(repr=False)
    formula: Formula = field(repr=False)
    data: Any = field(repr=False)
    _: KW_ONLY
    optimum: NDArray[Any]
    lowest: NDArray[Any] = field(repr=False)
    mu: float
    L: float
    residual: float = 0.0

    def values(self, w: ArrayLike) -> NDArray[Any]:
        """F_k(w) of every client, in float64; w may be [v] or [n, v]."""
        points = np.asarray(w, np.float64)
        v = len(self.optimum)
        if points.ndim not in (1, 2) or points.shape[-1] != v:
            raise ValueError(f"Problem: w must have shape ({v},) or (n, {v}), got shape {points.shape}")
        with jax.enable_x64(True):
            values = np.asarray(_values(self.formula, self.data, np.atleast_2d(points)))
        return values if points.ndim > 1 else values[0]

    def excess(self, w: ArrayLike) -> NDArray[Any]:
        """F(w) - F*."""
        return np.asarray((self.values(w) - self.values(self.optimum)) @ self.share)

    @property
    def gamma(self) -> float:
        """The local-global objective gap F* - sum p_k F_k*: 0 where all clients agree."""
        values = self.values(self.optimum)
        gap = self.share @ (values - self.lowest)
        return 0.0 if gap <= rounding_error(values) else float(gap)


def rounding_error(values: NDArray[Any]) -> float:
    """The size of a gap F - sum p_k F_k* that rounding alone may make, where the clients' losses have these values.

    Args:
        values: F_k(w), at one model or at many.
    """
    return 1e-12 * max(1.0, float(np.abs(values).max()))


def quadratic_problem(share: ArrayLike, h: ArrayLike, e: ArrayLike) -> Problem:
    """F_k(w) = 1/2 w' H_k w - e_k' w + 1/2 e_k' H_k^-1 e_k: everything in closed form.

    Args:
        share: p_k [K], up to a factor.
        h: H_k: a number per client [K] (H_k = h_k I, as in the paper), diagonals [K, v], or matrices [K, v, v].
        e: e_k [K, v].

    >>> problem = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]])
    >>> problem.optimum, problem.gamma, problem.mu, problem.L
    (array([0.]), 0.5, 1.0, 1.0)
    """
    p, e = check_share("quadratic_problem", share), np.asarray(e, float)
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
    return Problem(p, _quadratic, (H, center), optimum=optimum, lowest=np.zeros(K), mu=least, L=most)


def _quadratic(data: Any, w: Any) -> Any:
    H, center = (jnp.asarray(x, w.dtype) for x in data)
    off = w[None, :] - center
    return jnp.einsum("kv,kvu,ku->k", off, H, off) / 2


def logistic_problem(
    x: ArrayLike, y: ArrayLike, client: ArrayLike, *, ridge: float, classes: int | None = None
) -> Problem:
    """Multinomial logistic regression with a ridge: F_k(w) = mean cross-entropy of k's samples + ridge/2 |w|^2.

    ``w`` is the flattened matrix [dim, classes]. mu = ridge, and L = ridge + 1/2 max_k lambda_max(X_k' X_k / D_k),
    since the Hessian of a softmax is at most 1/2.

    Args:
        x: Samples [N, dim]; append a column of ones for a bias.
        y: Labels [N].
        client: The client of each sample [N], from 0.
        ridge: The factor of |w|^2 / 2.
        classes: Number of classes; by default the largest label + 1.

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
    share, L = count / count.sum(), float(ridge + smooth)
    return _minimise(share, _logistic, data, start, mu=float(ridge), L=L, tolerance=1e-9)


def _logistic(data: Any, w: Any) -> Any:
    x, y, onto, ridge = data
    x, onto, ridge = (jnp.asarray(part, w.dtype) for part in (x, onto, ridge))
    scores = x @ w.reshape(x.shape[1], -1)
    right = jnp.take_along_axis(scores, jnp.asarray(y)[:, None], axis=1)[:, 0]
    return onto @ (jax.nn.logsumexp(scores, axis=1) - right) + ridge / 2 * jnp.sum(w * w)


def numerical_problem(
    share: ArrayLike,
    losses: Losses,
    start: ArrayLike,
    *,
    mu: float | None = None,
    L: float | None = None,
    tolerance: float = 1e-9,
) -> Problem:
    """A problem from convex losses: F and every F_k are minimised together, by L-BFGS in float64.

    Args:
        share: p_k [K], up to a factor.
        losses: A JAX function that gives F_k(w) [K] for w [v].
        start: Where the minimisation begins [v].
        mu: Strong convexity; by default that of the Hessians at the optima (``curvature``).
        L: Smoothness; by default as for ``mu``.
        tolerance: The gradient norm at which the minimisation stops; ``residual`` is the one that it reached.

    Raises:
        ValueError: No minimum was found.

    >>> problem = numerical_problem([0.5, 0.5], lambda w: jnp.stack([jnp.cosh(w[0] - 1), jnp.cosh(w[0] + 1)]), [0.3])
    >>> problem.optimum.round(6) + 0, problem.lowest, problem.residual < 1e-8
    (array([0.]), array([1., 1.]), True)
    """
    return _minimise(share, lambda data, w: losses(w), (), start, mu=mu, L=L, tolerance=tolerance)


def _minimise(
    share: Any, formula: Formula, data: Any, start: Any, *, mu: float | None, L: float | None, tolerance: float
) -> Problem:
    p, start = check_share("numerical_problem", share), np.asarray(start, np.float64)
    if start.ndim != 1:
        raise ValueError(f"numerical_problem: start must have shape (v,), got shape {start.shape}")
    shape = jax.eval_shape(formula, data, start).shape
    if shape != p.shape:
        raise ValueError(
            f"numerical_problem: losses must give one number for each of K={len(p)} clients, got shape {shape}"
        )
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # L-BFGS mixes integers of 32 and 64 bits
        which = np.concatenate([p[None], np.eye(len(p))])
        minima, norms = _minima(formula, data, which, start, tolerance)
        points, residual = np.asarray(minima), float(np.asarray(norms).max())
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
    return Problem(p, formula, data, optimum=points[0], lowest=lowest, mu=mu, L=L, residual=residual)


@functools.partial(jax.jit, static_argnames=("formula",))
def _values(formula: Formula, data: Any, w: Any) -> Any:
    return jax.lax.map(lambda one: formula(data, one), w, batch_size=4096)


@functools.partial(jax.jit, static_argnames=("formula", "most"))
def _minima(formula: Formula, data: Any, which: Any, start: Any, tolerance: Any, most: int = 5_000) -> tuple[Any, Any]:
    """The minimum of each weighted sum of the losses, and its gradient norm there."""

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

        def unfinished(carry: Any) -> Any:
            return (carry[3] > tolerance) & (carry[2] < most)

        w, *_ = jax.lax.while_loop(unfinished, step, (start, solver.init(start), 0, jnp.inf))
        return w, jnp.linalg.norm(jax.grad(objective)(w))

    minima: tuple[Any, Any] = jax.vmap(one)(which)
    return minima
