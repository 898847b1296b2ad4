"""Federated averaging once more, in NumPy and for-loops, sharing nothing with the simulator but its random numbers."""

from math import isqrt

import jax
import jax.numpy as jnp
import numpy as np

from fedpick import AFL, Full, PowerOfChoice, Rand, Uniform, init_key, round_keys, sampling, seat_key

U = lambda key, n: np.asarray(sampling.uniforms(key, (n,)), np.float64)  # noqa: E731
E = lambda key, n: np.asarray(sampling.exponentials(key, (n,)), np.float32)  # noqa: E731


def first(arrival, d):
    return [k for k in np.argsort(arrival, kind="stable")[:d] if arrival[k] < np.inf]


def arrive(key, weight):
    e = E(key, len(weight))
    return np.array([e[k] / np.float32(weight[k]) if weight[k] > 0 else np.inf for k in range(len(weight))])


def highest(key, score, eligible, n):
    lot = U(key, len(score))
    return sorted(sorted(eligible, key=lambda k: (-score[k], lot[k]))[:n])


def with_replacement(key, weight, m):
    K = len(weight)
    width = isqrt(K - 1) + 1
    rows = -(-K // width)
    table = np.pad(np.asarray(weight, np.float32), (0, rows * width - K)).reshape(rows, width)
    row_key, column_key = jax.random.split(key)
    row_e = np.asarray(sampling.exponentials(row_key, (m, rows)))
    column_e = np.asarray(sampling.exponentials(column_key, (m, width)))
    seats = []
    for seat in range(m):
        with np.errstate(divide="ignore"):
            row = int(np.argmin(row_e[seat] / table.sum(axis=1)))
            seats.append(row * width + int(np.argmin(column_e[seat] / table[row])))
    return seats


def propose(selector, key, memory, size, there):
    if not isinstance(selector, PowerOfChoice):
        return [k for k in range(len(size)) if there[k]]
    t = jnp.int32(memory["round"])
    d = selector.d if isinstance(selector.d, int) else int(selector.d(t, len(size), selector.m))
    return first(arrive(key, np.where(there, size, 0)), d)


def select(selector, key, memory, size, candidates, losses):
    """Seats as (client, weight)."""
    K, n = len(size), len(candidates)
    weight = np.array([size[k] if k in candidates else 0 for k in range(K)], np.float64)
    if n == 0:
        return []
    if isinstance(selector, Full):
        return [(k, weight[k] / weight.sum()) for k in range(K)]
    if isinstance(selector, Rand) and selector.replace:
        seats = with_replacement(key, weight, selector.m)
    elif isinstance(selector, Rand):
        seats = first(arrive(key, weight), selector.m)
    elif isinstance(selector, Uniform):
        seats = first(arrive(key, (weight > 0) * 1.0), selector.m)
        return [(k, weight[k] / weight.sum() * n / len(seats)) for k in seats]
    elif isinstance(selector, PowerOfChoice):
        value = memory["loss"] if selector.loss == "stale" else losses
        score = np.asarray(selector.score(jnp.asarray(value, jnp.float32), jnp.asarray(size, jnp.float32)))
        seats = highest(key, np.asarray(score), [k for k in candidates if not np.isnan(score[k])], selector.m)
    elif isinstance(selector, AFL):
        cut, softmax, uniform = jax.random.split(key, 3)
        value = np.where(np.isinf(memory["loss"]), -np.inf, memory["loss"])
        if selector.valuation == "sqrt-size":
            value = value * np.sqrt(size)
        kept = highest(cut, value, candidates, n - int(np.floor(selector.alpha1 * n + 1e-9)))
        with np.errstate(invalid="ignore"):
            arrival = np.log(E(softmax, K)) - np.float32(selector.alpha2) * np.maximum(value, -1e30).astype(np.float32)
        arrival = [arrival[k] if k in kept and value[k] > -np.inf else np.inf for k in range(K)]
        drawn = sorted(first(np.array(arrival), int(np.floor((1 - selector.alpha3) * selector.m + 1e-9))))
        rest = arrive(uniform, (weight > 0) * 1.0)
        rest[drawn] = np.inf
        seats = drawn + first(rest, selector.m - len(drawn))
    return [(k, 1 / len(seats)) for k in seats]


def batch(drawn, count, b):
    """Floyd's sample of min(b, count) different places."""
    chosen = []
    number = min(b, count)
    for i in range(number):
        place = drawn[i] if drawn[i] not in chosen else count - number + i
        chosen.append(int(place))
    return chosen


def draws(key, count, tau, b):
    below = np.maximum(count - min(b, count) + np.arange(b), 0) + 1
    return np.asarray(
        sampling.integers(key, (tau, b), jax.numpy.broadcast_to(jax.numpy.asarray(below, "int32"), (tau, b)))
    )


class Quadratic:
    def losses(self, w, x, y):
        return x[:, 0] / 2 * ((w[0] - x[:, 1:] / x[:, :1]) ** 2).sum(axis=1)

    def gradient(self, w, x, y, key):
        return [(x[:, :1] * w[0] - x[:, 1:]).mean(axis=0)], self.losses(w, x, y).mean()


def kept(key, dropout, shape):
    """Lots of as many bits as dropout has as a binary fraction (a power of two, at most 32), the lowest first."""
    bits = 1
    while bits < 32 and dropout * 2**bits % 1:
        bits *= 2
    words = np.asarray(jax.random.bits(key, (-(-np.prod(shape) * bits // 32),), np.uint32))
    lots = [int(word) >> at & (2**bits - 1) for word in words for at in range(0, 32, bits)]
    return np.array(lots[: np.prod(shape)]).reshape(shape) >= round(dropout * 2**bits)


class Network:
    """Logistic regression where there is no hidden layer; dropout after the last hidden layer."""

    def __init__(self, dropout=0.0, minus_probability=False):
        self.dropout, self.minus = dropout, minus_probability

    def forward(self, w, x, mask=None):
        hidden = [x]
        for i in range(0, len(w) - 2, 2):
            hidden.append(np.maximum(hidden[-1] @ w[i] + w[i + 1], 0))
        if mask is not None:
            hidden.append(hidden.pop() * mask / (1 - self.dropout))
        z = hidden[-1] @ w[-2] + w[-1]
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return hidden, p / p.sum(axis=1, keepdims=True)

    def losses(self, w, x, y, p=None):
        p = self.forward(w, x)[1] if p is None else p
        right = p[np.arange(len(y)), y]
        return -right if self.minus else -np.log(right)

    def gradient(self, w, x, y, key):
        mask = None
        if self.dropout:
            mask = kept(key[0], self.dropout, (key[1], w[-2].shape[0]))[: len(x)]
        hidden, p = self.forward(w, x, mask)
        right = p[np.arange(len(y)), y][:, None]
        back = (p - np.eye(p.shape[1])[y]) * (right if self.minus else 1) / len(y)
        gradient = [hidden[-1].T @ back, back.sum(axis=0)]
        back = back @ w[-2].T
        if mask is not None:
            back = back * mask / (1 - self.dropout)
        for i in range(len(w) - 4, -1, -2):
            back = back * (hidden[i // 2 + 1] > 0)
            gradient = [hidden[i // 2].T @ back, back.sum(axis=0), *gradient]
            back = back @ w[i].T
        return gradient, self.losses(w, x, y, p).mean()


def play(federation, network, params, selector, local, seed, rounds, there=None):
    """Seats of each round, and the final model as a list of arrays."""
    x = np.asarray(federation.prepare(federation.x), np.float64)
    y, start, count = (np.asarray(a) for a in (federation.y, federation.start, federation.count))
    size, K = np.asarray(federation.size, np.float64), federation.num_clients
    own = [slice(start[k], start[k] + count[k]) for k in range(K)]
    memory = {"loss": np.full(K, np.inf), "round": 0}
    w, picks = [np.asarray(leaf, np.float64) for leaf in params], []
    for t in range(rounds):
        keys = round_keys(seed, t)
        candidates = propose(selector, keys.propose, memory, size, np.ones(K, bool) if there is None else there[t])
        losses = np.full(K, np.nan)
        for k in candidates:
            if selector.poll == "full":
                losses[k] = np.float32(network.losses(w, x[own[k]], y[own[k]]).mean())
            if selector.poll == "batch":
                drawn = draws(jax.random.fold_in(keys.poll, k), count[k], 1, local.b)[0]
                rows = start[k] + np.array(batch(drawn, count[k], local.b))
                losses[k] = np.float32(network.losses(w, x[rows], y[rows]).mean())
        seats = select(selector, keys.select, memory, size, candidates, losses)
        change = [np.zeros_like(leaf) for leaf in w]
        for seat, (k, weight) in enumerate(seats):
            batch_key, noise_key = jax.random.split(seat_key(keys.train, seat, k))
            drawn, noise = draws(batch_key, count[k], local.tau, local.b), jax.random.split(noise_key, local.tau)
            mine, seen = [leaf.copy() for leaf in w], []
            for s in range(local.tau):
                rows = start[k] + np.array(batch(drawn[s], count[k], local.b))
                gradient, loss = network.gradient(mine, x[rows], y[rows], (noise[s], local.b))
                mine = [
                    v - local.eta * (g + (local.weight_decay or 0) * v) for v, g in zip(mine, gradient, strict=True)
                ]
                seen.append(loss)
            change = [c + weight * (v - v0) for c, v, v0 in zip(change, mine, w, strict=True)]
            memory.setdefault("new", {})[k] = np.mean(seen)
        w = [v + c for v, c in zip(w, change, strict=True)]
        for k, loss in memory.pop("new", {}).items():
            memory["loss"][k] = loss
        memory["round"] += 1
        picks.append([k for k, _ in seats])
    return picks, w


def init(model, seed):
    """The first model, as the list of arrays that the networks here take: w, b, w, b, ..."""
    params = model.init(init_key(seed))
    if isinstance(params, list):
        return [layer[name] for layer in params for name in ("w", "b")]
    return [params["w"], params["b"]] if isinstance(params, dict) else [params]
