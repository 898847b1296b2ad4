"""Who wins a race by share: the exact mean weights of pow-d, by order statistics or by going through every draw.

**Order statistics.** In a race by share, P(at least a of the j clients of highest loss are among the first d) is the
probability that the a-th of them arrives before the (d-a+1)-th of the others, an integral over one time. Of the seats,
E[min(R_j, m)] go to those j clients if R_j of them are candidates, so the j-th has the difference to j-1. Counts of
arrivals are sums of independent indicators, whose laws are built up client by client in O(K d).
"""

import functools
import itertools
from typing import Any

import numpy as np

from fedpick.validation import require

Numbers = np.ndarray[Any, Any]
NODES, MOST_NODES = 48, 3072  # of the integral
TOLERANCE = 1e-9
FEW = 20_000  # ordered candidate sets that are enumerated


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


def every_draw(share: Numbers, losses: Numbers, m: int, d: int) -> Numbers:
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
