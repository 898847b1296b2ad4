"""FedCor (Tang et al. 2022): a Gaussian process of the clients' loss changes, and the clients that lower the loss most.

With embeddings x_k in R^n, the covariance of the loss changes of all clients is X X^T + noise^2 I, so nothing here is
K by K: determinants and inverses are those of n by n matrices.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick import sampling
from fedpick.ledger import fits
from fedpick.protocol import Clients, Losses, Mask, Poll, Report, Selection, polled
from fedpick.pytrees import pytree, static
from fedpick.validation import at_most_clients, natural, require

Real = float | Float[Array, ""]
Carry = tuple[Array, Array, Array, Array]
Whole = int | Int[Array, ""]


class Process(NamedTuple):
    """The Gaussian process: embeddings x_k, the last changes of loss and their rounds, and what is pending.

    A change is NaN where one of its two polls was not answered, and its round is -1 until there is one. ``loss`` holds
    the answers of this round's poll if the next one completes a change, else NaN. ``alpha`` discounts the selected.
    """

    embedding: Float[Array, "K n"]
    change: Float[Array, "K h"]
    at: Int[Array, " h"]
    changes: Int[Array, ""]
    loss: Float[Array, " K"]
    alpha: Float[Array, " K"]
    round: Int[Array, ""]


@pytree
class FedCor:
    """Correlation-based selection: the m clients whose training is expected to lower the loss of all the most.

    The changes of the clients' losses in a round are Gaussian with covariance S = X X^T + noise^2 I. m times, the seat
    goes to argmax_k alpha_k sum_i p_i S_ik / sqrt(S_kk), and S is conditioned on that client. alpha_k is multiplied by
    beta whenever k is selected. The average is plain, 1/m each.

    Rounds 0 to ``warmup`` select uniformly and poll everybody; the difference of two polls in sequence is a change. At
    the end of the warm-up, X maximises the likelihood of the changes, each discounted by gamma^age, around the
    discounted mean of every client. Every ``interval`` rounds there is one more change, of a round that selects
    uniformly, X is fitted again from where it was, and alpha is reset to 1. In all other rounds nobody is polled.

    Args:
        m: Seats; static.
        warmup: Last round of the warm-up, at least 1.
        interval: Rounds from one fit to the next, at least 2.
        beta: Factor of alpha_k for each time that k is selected.
        gamma: Discount of a change for each round of its age.
        noise: Standard deviation of a client's own noise.
        learning_rate: Learning rate of Adam.
        first_steps: Steps of the fit at the end of the warm-up.
        steps: Steps of every later fit.
        dimension: n, the length of an embedding; static.
        history: Number of changes that are kept; static.

    >>> FedCor(m=3).poll
    'full'
    """

    m: int = static()
    warmup: Whole = 15
    interval: Whole = 10
    beta: Real = 0.95
    gamma: Real = 0.95
    noise: Real = 0.01
    learning_rate: Real = 0.01
    first_steps: Whole = 1000
    steps: Whole = 100
    dimension: int = static(default=15)
    history: int = static(default=16)

    poll: ClassVar[Poll] = "full"
    needs: ClassVar[frozenset[str]] = frozenset({"polled"})
    work: ClassVar[str] = "K s"
    skips_poll: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("m", "dimension", "history"):
            object.__setattr__(self, name, natural(self, name, getattr(self, name)))
        require(self, "warmup", self.warmup, "at least 1", lambda n: n >= 1, whole=True)
        require(self, "interval", self.interval, "at least 2", lambda n: n >= 2, whole=True)
        for name in ("first_steps", "steps"):
            require(self, name, getattr(self, name), "at least 0", lambda n: n >= 0, whole=True)
        for name in ("beta", "gamma"):
            require(self, name, getattr(self, name), "above 0 and at most 1", lambda x: (x > 0) & (x <= 1))
        for name in ("noise", "learning_rate"):
            require(self, name, getattr(self, name), "finite and above 0", lambda x: (x > 0) & (x < float("inf")))

    def init(self, num_clients: int) -> Process:
        at_most_clients(self, "m", self.m, num_clients)
        normal = jax.random.normal(jax.random.key(0), (num_clients, self.dimension), jnp.float32)
        return Process(
            embedding=normal / jnp.sqrt(jnp.float32(self.dimension)),
            change=jnp.full((num_clients, self.history), jnp.nan, jnp.float32),
            at=jnp.full(self.history, -1, jnp.int32),
            changes=jnp.int32(0),
            loss=jnp.full(num_clients, jnp.nan, jnp.float32),
            alpha=jnp.ones(num_clients, jnp.float32),
            round=jnp.int32(0),
        )

    def propose(self, key: PRNGKeyArray, state: Process, clients: Clients) -> Mask:
        fits(self, state.loss, clients)
        mask: Mask = _propose(self, state, clients)
        return mask

    def select(
        self, key: PRNGKeyArray, state: Process, clients: Clients, candidates: Mask, losses: Losses
    ) -> Selection:
        fits(self, state.loss, clients)
        selection: Selection = _select(self, key, state, clients, candidates, losses)
        return selection

    def observe(self, state: Process, selection: Selection, report: Report) -> Process:
        after: Process = _observe(self, state, selection, report.polled)
        return after


# One program each, in a plain Python loop over rounds, too.
@jax.jit
def _propose(selector: FedCor, state: Process, clients: Clients) -> Mask:
    able = clients.available & (clients.size > 0)
    uniform, fit = _plan(selector, state.round)

    def best_mask() -> Mask:
        chosen, filled = _best(selector, state, clients, able)
        return jnp.zeros_like(able).at[jnp.where(filled, chosen, able.shape[0])].set(True, mode="drop")

    mask: Mask = lax.cond(uniform | fit, lambda: able, best_mask)
    return mask


@jax.jit
def _select(
    selector: FedCor, key: PRNGKeyArray, state: Process, clients: Clients, candidates: Mask, losses: Losses
) -> Selection:
    eligible = candidates & ~(polled(selector, candidates) & jnp.isnan(losses))
    uniform, fit = _plan(selector, state.round)
    chosen, filled = lax.cond(
        fit & ~uniform,
        lambda: _best(selector, state, clients, eligible),
        lambda: sampling.first_k(sampling.uniform_keys(key, eligible), selector.m),  # all of them, without a poll
    )
    return sampling.seat(chosen, filled)


@jax.jit
def _observe(selector: FedCor, state: Process, selection: Selection, answers: Losses) -> Process:
    uniform, fit = _plan(selector, state.round)
    answers = jnp.asarray(answers, jnp.float32)
    change = answers - state.loss
    change = jnp.where(jnp.isfinite(change), change, jnp.nan)
    new = ~jnp.isnan(change).all()
    slot = state.changes % selector.history
    changes = state.change.at[:, slot].set(jnp.where(new, change, state.change[:, slot]))
    at = state.at.at[slot].set(jnp.where(new, state.round - 1, state.at[slot]))
    steps = jnp.where(state.round == selector.warmup, selector.first_steps, selector.steps).astype(jnp.int32)
    line = jnp.where((selection.weights > 0) & ~uniform, selection.clients, state.alpha.shape[0])
    discounted = state.alpha.at[line].multiply(jnp.asarray(selector.beta, jnp.float32), mode="drop")
    return Process(
        embedding=_fitted(selector, state.embedding, changes, state.round - at, jnp.where(fit & new, steps, 0)),
        change=changes,
        at=at,
        changes=state.changes + new.astype(jnp.int32),
        loss=jnp.where(uniform, answers, jnp.nan),
        alpha=jnp.where(fit, jnp.float32(1), discounted),
        round=state.round + 1,
    )


def _plan(selector: FedCor, t: Int[Array, ""]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether round t selects uniformly, and whether X is fitted after it; in both everybody is polled."""
    later = t - jnp.asarray(selector.warmup, jnp.int32)
    interval = jnp.maximum(jnp.asarray(selector.interval, jnp.int32), 2)
    return (later <= 0) | ((later + 1) % interval == 0), (later >= 0) & (later % interval == 0)


def _best(
    selector: FedCor, state: Process, clients: Clients, eligible: Mask
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    share = sampling.shares(jnp.where(eligible, clients.size, jnp.float32(0)))
    noise = jnp.asarray(selector.noise, jnp.float32)
    return best(state.embedding, state.alpha, share, eligible, noise, m=selector.m)


def _fitted(
    selector: FedCor,
    embedding: Float[Array, "K n"],
    change: Float[Array, "K h"],
    age: Int[Array, " h"],
    steps: Int[Array, ""],
) -> Float[Array, "K n"]:
    """X after so many steps of Adam: a loop of a traced length, which costs a batch of runs nothing where it is 0."""
    weight, centred = centre(change, age, jnp.asarray(selector.gamma, jnp.float32))
    optimizer = optax.adam(jnp.asarray(selector.learning_rate, jnp.float32))
    noise = jnp.asarray(selector.noise, jnp.float32)

    def step(_: Int[Array, ""], carry: tuple[Array, optax.OptState]) -> tuple[Array, optax.OptState]:
        embedding, memory = carry
        slope = gradient(embedding, centred, weight, noise)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            update, memory = optimizer.update(slope, memory)
        return embedding + jnp.asarray(update, jnp.float32), memory

    start = (embedding, optimizer.init(embedding))
    fitted: Float[Array, "K n"] = lax.fori_loop(jnp.int32(0), steps, step, start)[0]
    return jnp.where(jnp.isfinite(fitted).all(), fitted, embedding)


def centre(
    change: Float[Array, "K h"], age: Int[Array, " h"], gamma: Float[Array, ""]
) -> tuple[Float[Array, " h"], Float[Array, "K h"]]:
    """The weight gamma^age of each change, and the changes less the weighted mean of each client, 0 where missing."""
    there = ~jnp.isnan(change)
    weight = jnp.where(there.any(axis=0), gamma ** age.astype(jnp.float32), jnp.float32(0))
    part = jnp.where(there, weight[None, :], jnp.float32(0))
    mean = jnp.sum(jnp.where(there, part * change, jnp.float32(0)), axis=1, keepdims=True)
    mean = mean / jnp.maximum(part.sum(axis=1, keepdims=True), 1e-30)
    return weight, jnp.where(there, change - mean, jnp.float32(0))


def gradient(
    embedding: Float[Array, "K n"], change: Float[Array, "K h"], weight: Float[Array, " h"], noise: Float[Array, ""]
) -> Float[Array, "K n"]:
    """The gradient of the weighted negative log-likelihood of the changes under N(0, X X^T + noise^2 I).

    With S = X X^T + noise^2 I and z_e = S^-1 y_e it is sum_e w_e (S^-1 X - z_e z_e^T X). With A = X^T X + noise^2 I,
    S^-1 X = X A^-1, z^T X = y^T X A^-1 and z = (y - X A^-1 X^T y) / noise^2.
    """
    X, variance = embedding, jnp.square(noise)
    A = _product(X.T, X) + variance * jnp.eye(X.shape[1], dtype=X.dtype)
    inverse = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(A), jnp.eye(X.shape[1], dtype=X.dtype))
    within = _product(inverse, _product(X.T, change))  # A^-1 X^T Y
    rest = (change - _product(X, within)) / variance  # S^-1 Y
    return weight.sum() * _product(X, inverse) - _product(rest, weight[:, None] * within.T)


def _product(one: Float[Array, "a b"], other: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(one, other, precision=lax.Precision.HIGHEST)


def best(
    embedding: Float[Array, "K n"],
    alpha: Float[Array, " K"],
    share: Float[Array, " K"],
    eligible: Mask,
    noise: Float[Array, ""],
    *,
    m: int,
) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
    """The m clients of the greedy search, in order, and which of the m seats they fill.

    Conditioned on selected clients, the covariance of the others is X B X^T + noise^2 I, with B = I at first and then
    B - B x x^T B / (x^T B x + noise^2) for each x selected.
    """
    X, variance = embedding, jnp.square(noise)
    clients = jnp.arange(X.shape[0], dtype=jnp.int32)

    def step(carry: Carry, _: None) -> tuple[Carry, tuple[Array, Array]]:
        B, own, centre, left = carry
        total = X @ (B @ centre) + share * variance
        score = jnp.where(left, alpha * total / jnp.sqrt(own + variance), -jnp.inf)
        k = lax.argmax(score, 0, jnp.int32)
        b = B @ X[k]
        scale = jnp.maximum(X[k] @ b, 0) + variance
        own = jnp.maximum(own - jnp.square(X @ b) / scale, 0)
        carry = B - jnp.outer(b, b) / scale, own, centre - share[k] * X[k], left & (clients != k)
        return carry, (k, left.any())

    start = (jnp.eye(X.shape[1], dtype=X.dtype), jnp.sum(X * X, axis=1), X.T @ share, eligible)
    seats: tuple[Int[Array, " m"], Bool[Array, " m"]] = lax.scan(step, start, None, length=m)[1]
    return seats
