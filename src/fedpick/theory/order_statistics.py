"""The exact mean weights of pow-d: by order statistics of a race by share, or by enumerating every draw.

**Order statistics.** In a race by share, P(at least a of the j clients of highest loss are among the first d) is the
probability that the a-th of them arrives before the (d-a+1)-th of the others, an integral over one time. Of the seats,
E[min(R_j, m)] go to those j clients if R_j of them are candidates, so the j-th has the difference to j-1. Counts of
arrivals are sums of independent indicators, whose laws are built up client by client in O(K d).
"""

import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.validation import require

NODES, MOST_NODES = 48, 3072  # of the integral
TOLERANCE = 1e-9
FEW = 20_000  # ordered candidate sets that are enumerated


def exact_weights(share: NDArray[Any], losses: NDArray[Any], m: int, d: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean weights of pow-d at many loss vectors [n, K], and bounds on their numerical errors."""
    n, K = losses.shape
    weight, error = np.empty((n, K)), np.zeros((n, K))
    ranked = np.sort(losses, axis=1)
    tied = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    if d >= K:
        weight[:] = _all_are_candidates(losses, m)
        return weight, error
    if not tied.all():
        weight[~tied], error[~tied] = _integrate(functools.partial(_ranked_seats, share, losses[~tied], m, d))
    for row in np.flatnonzero(tied):
        weight[row], error[row] = _integrate(functools.partial(_tied_seats, share, losses[row], m, d))
    return weight, error


def _all_are_candidates(losses: NDArray[Any], m: int) -> NDArray[Any]:
    """Mean weights where all clients are candidates (d = K): the m highest losses, ties shared evenly."""
    cut = -np.sort(-losses, axis=1)[:, m - 1 : m]
    above, at = losses > cut, losses == cut
    part = (m - above.sum(axis=1, keepdims=True)) / at.sum(axis=1, keepdims=True)
    return np.asarray((above + at * part) / m)


def _integrate(integral: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The integral, with twice the nodes until it converges, and a bound on its error from the last change."""
    nodes, value = NODES, integral(NODES)
    while True:
        nodes *= 2
        finer = integral(nodes)
        change = np.abs(finer - value)
        if change.max() < TOLERANCE or nodes >= MOST_NODES:
            return finer, 10 * change + 1e-12
        value = finer


def _times(share: NDArray[Any], d: int, nodes: int) -> tuple[NDArray[Any], NDArray[Any]]:
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


def _ranked_seats(share: NDArray[Any], losses: NDArray[Any], m: int, d: int, nodes: int) -> NDArray[Any]:
    """Mean weights at many loss vectors without ties."""
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
            after = _add_client(after, stay[rank[:, j]])
        before = np.zeros((len(rows), nodes, m))
        before[:, :, 0] = 1
        moving = np.zeros_like(before)  # its derivative in time
        seats = np.zeros(len(rows))
        for j in range(K):
            client = rank[:, j]
            moving = _add_client(moving, stay[client])
            moving -= rate[client][:, :, None] * before
            moving[:, :, 1:] += rate[client][:, :, None] * before[:, :, :-1]
            before = _add_client(before, stay[client])
            density = -np.cumsum(moving, axis=2)  # of the a-th arrival among those ranked up to j, a = 1..m
            now = np.einsum("rta,rta,t->r", density, late[j], dt)
            weight[rows, client] = (now - seats) / m
            seats = now
    return weight


def _add_client(law: NDArray[Any], stay: NDArray[Any]) -> NDArray[Any]:
    """The distribution of the number of arrivals with one more client, not yet there with probability ``stay``."""
    stay = stay[..., None]
    more: NDArray[Any] = law * stay
    more[..., 1:] += law[..., :-1] * (1 - stay)
    return more


def _tied_seats(share: NDArray[Any], losses: NDArray[Any], m: int, d: int, nodes: int) -> NDArray[Any]:
    """Mean weights at one loss vector with ties: b + 1 tied candidates share the m - a seats left by a higher ones."""
    K = len(losses)
    t, dt = _times(share, d, nodes)
    stay = np.exp(-share[:, None] * t)
    rate = share[:, None] * stay

    none = np.zeros((2, nodes, d))  # P(n have arrived) for n < d, and its derivative in time
    none[0, :, 0] = 1

    def with_clients(known: NDArray[Any], clients: NDArray[Any]) -> NDArray[Any]:
        """The same for these clients as well."""
        law, moving = known
        for k in clients:
            moving = _add_client(moving, stay[k])
            moving -= rate[k][:, None] * law
            moving[:, 1:] += rate[k][:, None] * law[:, :-1]
            law = _add_client(law, stay[k])
        return np.stack([law, moving])

    def arrivals(known: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """P(n have arrived), and the density in time of the n-th arrival, [nodes, d]."""
        density = np.zeros((nodes, d))
        density[:, 1:] = -np.cumsum(known[1], axis=1)[:, :-1]
        return known[0], density

    # Groups of equal loss from the highest down: all of a group have the same clients above and below them.
    groups = [np.flatnonzero(losses == value) for value in np.unique(losses)[::-1]]
    lowers = list(itertools.accumulate(reversed(groups), with_clients, initial=none))[::-1]
    chance, above = np.zeros(K), none
    for group, below in zip(groups, lowers[1:], strict=True):
        (higher, to_higher), (lower, to_lower) = arrivals(above), arrivals(below)
        for k in group:
            equal, to_equal = arrivals(with_clients(none, group[group != k]))
            for a, b in itertools.product(range(min(m, d)), range(min(d, len(group)))):
                c = d - 1 - a - b
                if c < 0:
                    continue
                last = to_higher[:, a] * equal[:, b] * lower[:, c] + higher[:, a] * to_equal[:, b] * lower[:, c]
                last += higher[:, a] * equal[:, b] * to_lower[:, c]
                first = rate[k] * higher[:, a] * equal[:, b] * lower[:, c]
                chance[k] += min(1, (m - a) / (b + 1)) * (dt @ (first + (1 - stay[k]) * last))
        above = with_clients(above, group)
    return chance / m


def enumerated_weights(share: NDArray[Any], losses: NDArray[Any], m: int, d: int) -> NDArray[Any]:
    """The mean weights of pow-d at one loss vector [K], as a sum over all ordered draws of d candidates."""
    K = len(share)
    number = np.prod([float(K - i) for i in range(d)])
    require("expected_seats", "ordered candidate sets", number, f"at most {FEW} to be enumerated", lambda x: x <= FEW)
    weight = np.zeros(K)
    for draw in map(list, itertools.permutations(range(K), d)):
        left = np.delete(share, draw).sum() + np.cumsum(share[draw][::-1])[::-1]  # of the shares before each draw
        weight[draw] += np.prod(share[draw] / left) * _all_are_candidates(losses[draw][None], m)[0]
    return weight
