"""Who is selected how often, given everybody's loss: the mean weight of each client in the average of a round.

**Order statistics.** In a race by share, P(at least a of the j clients of highest loss are among the first d) is the
probability that the a-th of them arrives before the (d-a+1)-th of the others, an integral over one time. Of the seats,
E[min(R_j, m)] go to those j clients if R_j of them are candidates, so the j-th has the difference to j-1. Counts of
arrivals are sums of independent indicators, whose laws are built up client by client in O(K d).
"""

import functools
import itertools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.arguments import known, natural, one_of, require
from fedpick.protocol import Clients, round_keys

Numbers = np.ndarray[Any, Any]
Method = Literal["best", "exact", "enumeration", "monte-carlo"]
NODES, MOST_NODES = 48, 3072  # of the integral
TOLERANCE = 1e-9
SMALLEST = 1e-8  # share for which the integral is known to be right
FEW = 20_000  # ordered candidate sets that are enumerated


class Seats(NamedTuple):
    """The mean weight of each client in a round's average, [K], and its error by client.

    The error is a bound on the numerical one for an exact method, and a standard error for Monte-Carlo.
    """

    weight: Numbers
    error: Numbers
    method: str


def expected_seats(
    selector: Any,
    share: Any,
    losses: Any,
    method: Method = "best",
    draws: int = 10_000,
    seed: int = 0,
    state: Any = None,
) -> Seats:
    """E[sum of the weights of k's seats] for every client k, when their losses are these.

    ``"exact"`` knows the strategies that draw by share and look at no loss (rand, uniform with its q_k, full), and
    those that seat the highest losses among d candidates drawn by share (pow-d), for shares of at least 1e-8.
    ``"enumeration"`` goes through all candidate sets of a tiny federation. ``"monte-carlo"`` plays any strategy
    ``draws`` times in float32, from ``state``, or as it is in its first round: a strategy that remembers (AFL, rpow-d)
    does not look at the losses then. ``"best"`` is exact where that is known.

    >>> from fedpick import PowerOfChoice
    >>> expected_seats(PowerOfChoice(m=1, d=2), [0.5, 0.25, 0.25], [3.0, 2.0, 1.0]).weight.round(6)
    array([0.833333, 0.166667, 0.      ])
    """
    one_of("expected_seats", "method", method, ("best", "exact", "enumeration", "monte-carlo"))
    p = shares("expected_seats", share)
    F = np.asarray(losses, float)
    if F.shape != p.shape or np.isnan(F).any():
        rule = f"must be {len(p)} numbers, one for each client, and not NaN"
        raise ValueError(f"expected_seats: losses {rule}, got {losses!r}")
    law = known_law(selector, p, method) if state is None else None
    if method == "monte-carlo" or (method == "best" and law is None):
        weight, error = played(selector, p, F[None], draws, seed, state=state)
        return Seats(weight[0], error[0], f"Monte-Carlo, {draws} draws")
    if law is None:
        raise ValueError(f"expected_seats: selector must have a known law for method {method!r}, got {selector!r}")
    m, d = law
    if d == 0:
        return Seats(p, np.zeros_like(p), "by share")
    if method == "enumeration":
        return Seats(_enumerated(p, F, m, d), np.full(len(p), 1e-12), "enumeration")
    weight, error = top_of_race(p, F[None], m, d)
    return Seats(weight[0], error[0], "order statistics")


def shares(owner: str, share: Any) -> Numbers:
    """p_k, checked, as float64 that sums to 1."""
    p = np.asarray(share, float)
    if p.ndim != 1 or len(p) == 0:
        raise ValueError(f"{owner}: share must have shape (K,) with K at least 1, got shape {p.shape}")
    require(owner, "share", p, "between 1e-30 and 1e30 for every client", lambda x: (x >= 1e-30) & (x <= 1e30))
    whole: Numbers = p / p.sum()
    return whole


def top_of_race(share: Numbers, losses: Numbers, m: int, d: int) -> tuple[Numbers, Numbers]:
    """The exact mean weights of pow-d at many loss vectors [n, K], and how well the integral is known."""
    n, K = losses.shape
    weight, error = np.empty((n, K)), np.zeros((n, K))
    ranked = np.sort(losses, axis=1)
    tied = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    if d >= K:
        weight[:] = _all_are_candidates(losses, m)
        return weight, error
    if not tied.all():
        weight[~tied], error[~tied] = _converged(functools.partial(_ranked_seats, share, losses[~tied], m, d))
    for row in np.flatnonzero(tied):
        weight[row], error[row] = _converged(functools.partial(_tied_seats, share, losses[row], m, d))
    return weight, error


def known_law(selector: Any, share: Numbers, method: str) -> tuple[int, int] | None:
    """(m, d) of a strategy whose law is known, d = 0 for one that goes by share alone; None for the others."""
    if isinstance(selector, type) or not hasattr(selector, "propose"):
        raise ValueError(
            f"expected_seats: selector must be a strategy, such as PowerOfChoice(m=3, d=6), got {selector!r}"
        )
    K = len(share)
    if getattr(selector, "unbiased", False):
        return selector.m or K, 0
    if selector.m is not None and selector.m > K:
        raise ValueError(f"expected_seats: m must be at most K={K}, got {selector.m}")
    by_loss = getattr(selector, "candidates_by_share", False) and getattr(selector, "highest_loss_first", False)
    d = known(getattr(selector, "d", None))
    if not by_loss or selector.poll != "full" or d is None:
        return None
    require("expected_seats", "d", d, f"a single number and at most K={K}", lambda d: (d.ndim == 0) & (d <= K).all())
    if share.min() < SMALLEST:
        if method == "exact":
            rule = f"at least {SMALLEST:g} of the whole for the exact method"
            raise ValueError(f"expected_seats: share must be {rule}, got {share.min():.3g}")
        return (selector.m, int(d)) if method == "enumeration" else None
    return selector.m, int(d)


def _all_are_candidates(losses: Numbers, m: int) -> Numbers:
    """d = K: the m highest, ties shared evenly."""
    cut = -np.sort(-losses, axis=1)[:, m - 1 : m]
    above, at = losses > cut, losses == cut
    part = (m - above.sum(axis=1, keepdims=True)) / at.sum(axis=1, keepdims=True)
    return np.asarray((above + at * part) / m)


def _converged(integral: Any) -> tuple[Numbers, Numbers]:
    """The integral with twice the nodes until nothing moves; the last move bounds what is left."""
    nodes, value = NODES, integral(NODES)
    while True:
        nodes *= 2
        finer = integral(nodes)
        moved = np.abs(finer - value)
        if moved.max() < TOLERANCE or nodes >= MOST_NODES:
            return finer, 10 * moved + 1e-12
        value = finer


def _times(share: Numbers, d: int, nodes: int) -> tuple[Numbers, Numbers]:
    """Nodes and weights of the double-exponential rule on (0, inf): t = scale exp(x - exp(-x))."""
    low, high = 0.0, 1e300
    for _ in range(2000):  # when d clients have arrived, about
        middle = np.sqrt(low * high) if low > 0 else min(1.0, high / 2)
        low, high = (middle, high) if -np.expm1(-share * middle).sum() < d else (low, middle)
        if low > 0 and high / low < 1.01:
            break
    # No time counts at which hardly ever as few as d have arrived: the last of the K - d + 1 rarest decide.
    end = np.log(60 / np.sort(share)[: len(share) - d + 1].sum() / high)
    x = np.linspace(-3.7, max(end, 1.0) + 1.5, nodes)
    t = high * np.exp(x - np.exp(-x))
    return t, t * (1 + np.exp(-x)) * (x[1] - x[0])


def _ranked_seats(share: Numbers, losses: Numbers, m: int, d: int, nodes: int) -> Numbers:
    """Many loss vectors at once, none with ties."""
    n, K = losses.shape
    t, dt = _times(share, d, nodes)
    order = np.argsort(-losses, axis=1)
    stay = np.exp(-share[:, None] * t)  # not yet arrived, [K, nodes]
    rate = share[:, None] * stay
    weight = np.empty((n, K))
    for rows in np.array_split(np.arange(n), max(1, n * nodes * K * m // 8_000_000)):
        rank = order[rows]
        # cumulative[j]: P(at most c of the clients ranked after j have arrived), for c = d-1 down to d-m
        after = np.zeros((len(rows), nodes, d))
        after[:, :, 0] = 1
        late = np.empty((K, len(rows), nodes, m))
        for j in reversed(range(K)):
            late[j] = np.cumsum(after, axis=2)[:, :, d - m : d][:, :, ::-1]
            after = _with(after, stay[rank[:, j]])
        before = np.zeros((len(rows), nodes, m))
        before[:, :, 0] = 1
        moving = np.zeros_like(before)  # its derivative in time
        seats = np.zeros(len(rows))
        for j in range(K):
            client = rank[:, j]
            moving = _with(moving, stay[client])
            moving -= rate[client][:, :, None] * before
            moving[:, :, 1:] += rate[client][:, :, None] * before[:, :, :-1]
            before = _with(before, stay[client])
            density = -np.cumsum(moving, axis=2)  # of the a-th arrival among those ranked up to j, a = 1..m
            now = np.einsum("rta,rta,t->r", density, late[j], dt)
            weight[rows, client] = (now - seats) / m
            seats = now
    return weight


def _with(law: Numbers, stay: Numbers) -> Numbers:
    """The law of a count of arrivals with one more client, who has not arrived with probability ``stay``."""
    stay = stay[..., None]
    more: Numbers = law * stay
    more[..., 1:] += law[..., :-1] * (1 - stay)
    return more


def _tied_seats(share: Numbers, losses: Numbers, m: int, d: int, nodes: int) -> Numbers:
    """One loss vector with ties: of the b+1 tied candidates, (m - a) / (b + 1) find a seat behind a higher ones."""
    K = len(losses)
    t, dt = _times(share, d, nodes)
    stay = np.exp(-share[:, None] * t)
    rate = share[:, None] * stay

    none = np.zeros((2, nodes, d))  # P(n have arrived) for n < d, and its derivative in time
    none[0, :, 0] = 1

    def counted(known: Numbers, clients: Numbers) -> Numbers:
        """The same with these clients too."""
        law, moving = known
        for k in clients:
            moving = _with(moving, stay[k])
            moving -= rate[k][:, None] * law
            moving[:, 1:] += rate[k][:, None] * law[:, :-1]
            law = _with(law, stay[k])
        return np.stack([law, moving])

    def arrivals(known: Numbers) -> tuple[Numbers, Numbers]:
        """P(n have arrived), and the density in time of the n-th arrival, [nodes, d]."""
        density = np.zeros((nodes, d))
        density[:, 1:] = -np.cumsum(known[1], axis=1)[:, :-1]
        return known[0], density

    # Groups of equal loss from the highest down: who is higher and who is lower is the same for all of a group.
    groups = [np.flatnonzero(losses == value) for value in np.unique(losses)[::-1]]
    lowers = list(itertools.accumulate(reversed(groups), lambda known, group: counted(known, group), initial=none))[
        ::-1
    ]
    chance, above = np.zeros(K), none
    for group, below in zip(groups, lowers[1:], strict=True):
        (higher, to_higher), (lower, to_lower) = arrivals(above), arrivals(below)
        for k in group:
            equal, to_equal = arrivals(counted(none, group[group != k]))
            for a, b in itertools.product(range(min(m, d)), range(min(d, len(group)))):
                c = d - 1 - a - b
                if c < 0:
                    continue
                last = to_higher[:, a] * equal[:, b] * lower[:, c] + higher[:, a] * to_equal[:, b] * lower[:, c]
                last += higher[:, a] * equal[:, b] * to_lower[:, c]
                first = rate[k] * higher[:, a] * equal[:, b] * lower[:, c]
                chance[k] += min(1, (m - a) / (b + 1)) * (dt @ (first + (1 - stay[k]) * last))
        above = counted(above, group)
    return chance / m


def _enumerated(share: Numbers, losses: Numbers, m: int, d: int) -> Numbers:
    """Every ordered draw of d candidates, with its probability."""
    K = len(share)
    number = np.prod([float(K - i) for i in range(d)])
    require("expected_seats", "ordered candidate sets", number, f"at most {FEW} to be enumerated", lambda x: x <= FEW)
    weight = np.zeros(K)
    for drawn in itertools.permutations(range(K), d):
        rest = np.delete(share, drawn).sum()
        left = rest + np.cumsum(share[list(drawn)][::-1])[::-1]  # of the shares before each draw
        chance = np.prod(share[list(drawn)] / left)
        found = np.zeros(K)
        found[list(drawn)] = _all_are_candidates(losses[list(drawn)][None], m)[0]
        weight += chance * found
    return weight


def played(
    selector: Any, share: Numbers, losses: Numbers, draws: int, seed: int, gap: Numbers | None = None, state: Any = None
) -> tuple[Numbers, Numbers]:
    """Mean weights by Monte-Carlo at many loss vectors [n, K], and their standard errors.

    With a ``gap`` [K] the standard errors are those of the sums over a draw of its weights times the gap, [n].
    """
    natural("expected_seats", "draws", draws)
    state = selector.init(len(share)) if state is None else state
    value = np.eye(len(share)) if gap is None else np.asarray(gap)[None]
    p, F, values = (jnp.asarray(x, jnp.float32) for x in (share, losses, value))
    mean, spread = (np.asarray(x, float) for x in _play(selector, p, F, values, state, seed, draws))
    error = np.sqrt(np.maximum(spread, 0) / draws)
    return mean, error if gap is None else error[:, 0]


@functools.partial(jax.jit, static_argnames=("draws",))
def _play(selector: Any, share: Any, losses: Any, values: Any, state: Any, seed: Any, draws: int) -> Any:
    """By loss vector: the mean weight of each client, and the variance over the draws of each value's sum."""
    at_once = max(1, min(draws, 500_000 // share.shape[0]))
    number = -(-draws // at_once)
    middle = (values @ share)[None, :]  # or the difference of two large sums would be their rounding

    def at(F: Any) -> Any:
        def block(total: Any, first: Any) -> Any:
            t = first + jnp.arange(at_once, dtype=jnp.int32)
            drawn = jax.vmap(lambda t: _weights_of_a_draw(selector, share, F, state, seed, t))(t)
            drawn = jnp.where((t < draws)[:, None], drawn, jnp.float32(0))
            sums = jnp.where((t < draws)[:, None], drawn @ values.T - middle, jnp.float32(0))
            return (total[0] + drawn.sum(axis=0), total[1] + sums.sum(axis=0), total[2] + (sums**2).sum(axis=0)), None

        zeros = jnp.zeros(values.shape[0], jnp.float32)
        first = at_once * jnp.arange(number, dtype=jnp.int32)
        weight, total, square = jax.lax.scan(block, (jnp.zeros_like(share), zeros, zeros), first)[0]
        return weight / draws, square / draws - (total / draws) ** 2

    return jax.lax.map(at, losses)


def _weights_of_a_draw(selector: Any, share: Any, losses: Any, state: Any, seed: Any, t: Any) -> Any:
    """The weight that each client gets in one round, [K]."""
    keys, clients = round_keys(seed, t), Clients(share, jnp.ones(share.shape, bool))
    candidates = selector.propose(keys.propose, state, clients)
    asked = jnp.where(candidates, losses, jnp.nan) if selector.poll != "none" else jnp.full_like(losses, jnp.nan)
    selection = selector.select(keys.select, state, clients, candidates, asked)
    place = jnp.where(selection.weights > 0, selection.clients, share.shape[0])
    return jnp.zeros(share.shape, jnp.float32).at[place].add(selection.weights, mode="drop")
