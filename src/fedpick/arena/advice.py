"""Advice: which strategy to use on a federation, and what to expect of it, from the nearest problems of the map."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedpick.arena.features import AXES, Features
from fedpick.arena.map import GAINS, Map
from fedpick.metrics import Numbers
from fedpick.results import Interval
from fedpick.text import listed

NEAREST = (20, 40, 80, 160)  # problems that an answer is taken from: as many as foretell other families best
LEVEL = 0.8  # of the intervals
FAR = 0.95  # of the problems, each seen from other families, are nearer than what nothing is known of
FLOOR = 0.05  # of a spread: neighbours that agree by chance are not certain
MOST = 5  # candidates per seat with which auto begins
WORTH = 0.0  # the predicted gain from which on rand is left


class Expected(NamedTuple):
    """What a strategy is expected to gain: times as fast as rand, and its last loss as a part of rand's (80 %)."""

    speed: Interval
    final: Interval


class Advice(NamedTuple):
    """Which strategy to use: its name, or "" where nothing is known.

    ``d`` is its number of candidates, if it has one; ``expected`` is what each strategy is expected to gain.
    ``families`` counts the nearest problems by family, ``distance`` is the mean distance to them, in standard
    deviations, and ``limit`` that beyond which nothing is known; ``unlike`` is the feature that is farthest out.
    """

    strategy: str
    d: int | None
    expected: dict[str, Expected]
    families: dict[str, int]
    distance: float
    limit: float
    unlike: str

    @property
    def known(self) -> bool:
        """Whether there are problems near enough."""
        return self.distance <= self.limit

    @property
    def surely_faster(self) -> tuple[str, ...]:
        """The strategies whose whole interval is faster than rand; none where nothing is sure."""
        return tuple(name for name, one in self.expected.items() if self.known and one.speed.low > 1)


class Trial(NamedTuple):
    """How advice does on families that it has not seen: one entry for each problem [n], gains as logarithms.

    ``covered`` says of each strategy [n, strategies] whether the interval of its speed-up holds the truth; ``chosen``
    is the place of the recommended one in ``Map.strategies``, -1 for rand, and ``speed`` and ``final`` are its gains;
    ``known`` says where advice is given.
    """

    covered: Numbers
    chosen: Numbers
    speed: Numbers
    final: Numbers
    known: Numbers


class _Calibration(NamedTuple):
    """How many neighbours to take, the quantiles of the errors in spreads [gains], and how far away is too far."""

    nearest: int
    low: Numbers
    high: Numbers
    limit: float


class _Prediction(NamedTuple):
    """Mean and spread of the neighbours' gains [n, gains], and the mean distance to them [n]."""

    mean: Numbers
    spread: Numbers
    distance: Numbers


def advise(where: Map, features: Features) -> Advice:
    """What to use on a federation.

    Args:
        where: The map.
        features: The federation in numbers; by those that are known it is compared.
    """
    _check_families(where, 2)
    query = features.vector()
    known = np.isfinite(query)
    points, scale = _standard(where)
    gains = np.concatenate([where.speed, where.final], axis=1)
    points, query = points[:, known], ((query - scale[0]) / scale[1])[known]
    fit = _calibration(points, gains, where.families)
    away = np.sqrt(((points - query) ** 2).mean(axis=1))[None, :]
    found = _predict(away, gains, fit.nearest)
    ends = [found.mean[0] + found.spread[0] * quantile for quantile in (fit.low, fit.high)]
    times = np.exp([found.mean[0], *ends])  # [3, gains]
    number = len(where.strategies)
    asked = [candidates(name, features) for name in where.strategies]
    kept = [i for i, d in enumerate(asked) if d is None or d not in asked[:i]]  # with few clients d = 2m and 5m are one
    expected = {}
    for i in kept:
        name = where.strategies[i]
        middle, least, most = times[:, i]
        final = 1 / times[:, number + i]
        ranges = Interval(middle, least, most), Interval(final[0], final[2], final[1])
        expected[name] = Expected(*(Interval(*map(float, each)) for each in ranges))
    distance = float(found.distance[0])
    best = _choose(found.mean[:, kept])[0]
    strategy = "" if distance > fit.limit else "rand" if best < 0 else where.strategies[kept[best]]
    nearest = where.families[np.argsort(away[0], kind="stable")[: fit.nearest]]
    names, counts = np.unique(nearest, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return Advice(
        strategy,
        candidates(strategy, features),
        expected,
        {str(names[i]): int(counts[i]) for i in order},
        distance,
        fit.limit,
        np.array(AXES)[known][int(np.argmax(np.abs(query)))],
    )


def candidates(strategy: str, features: Features) -> int | None:
    """d of a strategy of the map on a federation, if it has one.

    Args:
        strategy: Its name on the map.
        features: The federation.

    >>> candidates("pow-d, d = 2m", Features(K=100, m=5))
    10
    """
    times = {GAINS[0]: 2, GAINS[1]: 5}.get(strategy)
    return None if times is None else min(times * features.m, features.K)


def round_traffic(strategy: str, features: Features) -> float:
    """How many times the bytes of a round of rand a round of a strategy of the map moves; auto's first rounds.

    rand sends the model to m clients and hears m models; a poll sends it once more to each of d candidates.

    Args:
        strategy: Its name on the map.
        features: The federation.

    >>> [round_traffic(name, Features(K=100, m=5)) for name in ("rand", "pow-d, d = 2m", "auto")]
    [1.0, 2.0, 3.5]
    """
    m = features.m
    d = min(MOST * m, features.K) if strategy == GAINS[2] else candidates(strategy, features)
    return 1.0 if d is None or d <= m else 1 + d / (2 * m)


def leave_families_out(where: Map) -> Trial:
    """Advice on each family from all others, its intervals calibrated on these alone.

    Args:
        where: The map.
    """
    _check_families(where, 3)
    points, _ = _standard(where)
    gains = np.concatenate([where.speed, where.final], axis=1)
    n, number = len(points), len(where.strategies)
    covered, chosen, known = np.zeros((n, number), bool), np.zeros(n, int), np.zeros(n, bool)
    for family in np.unique(where.families):
        out = where.families == family
        fit = _calibration(points[~out], gains[~out], where.families[~out])
        found = _predict(_distances(points[out], points[~out]), gains[~out], fit.nearest)
        ends = [found.mean + found.spread * quantile for quantile in (fit.low, fit.high)]
        inside = (ends[0] <= gains[out]) & (gains[out] <= ends[1])
        covered[out], known[out] = inside[:, :number], found.distance <= fit.limit
        chosen[out] = _choose(found.mean[:, :number])
    rows = np.arange(n)
    speed, final = (np.where(chosen < 0, 0.0, each[rows, chosen]) for each in (where.speed, where.final))
    return Trial(covered, chosen, speed, final, known)


def _check_families(where: Map, least: int) -> None:
    """Raise where a map has too few families: how sure advice is, is known from families that it was not taken from."""
    names = np.unique(where.families)
    if len(names) < least:
        rule = f"must have problems of at least {least} families, as each is foretold from others"
        raise ValueError(f"advise: the map {rule}, got {listed(names.tolist())} alone")


def _standard(where: Map) -> tuple[Numbers, tuple[Numbers, Numbers]]:
    """The problems in units of standard deviations [n, axes], and the mean and the unit of each axis."""
    points = np.stack([one.vector() for one in where.features])
    mean, unit = points.mean(axis=0), points.std(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    return (points - mean) / unit, (mean, unit)


def _distances(points: Numbers, others: Numbers) -> Numbers:
    """Root mean squared differences, [n, others]."""
    squares = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2 * points @ others.T
    found: Numbers = np.sqrt(np.maximum(squares, 0) / points.shape[1])
    return found


def _predict(distances: Numbers, gains: Numbers, number: int) -> _Prediction:
    """From the nearest problems, the nearer the more; a problem at an infinite distance does not count."""
    number = min(number, int(np.isfinite(distances).sum(axis=1).min()))
    nearest = np.argpartition(distances, number - 1, axis=1)[:, :number]
    away = np.take_along_axis(distances, nearest, axis=1)
    width = np.maximum(away.max(axis=1, keepdims=True), 1e-9)
    weight = np.maximum(1 - (away / width) ** 2, 0) + 1e-3
    weight = (weight / weight.sum(axis=1, keepdims=True))[:, :, None]
    near = gains[nearest]  # [n, nearest, gains]
    mean = (weight * near).sum(axis=1)
    spread = np.sqrt((weight * (near - mean[:, None]) ** 2).sum(axis=1) + FLOOR**2)
    return _Prediction(mean, spread, away.mean(axis=1))


def _choose(speed: Numbers) -> Numbers:
    """The place of the strategy with the largest predicted gain; -1, rand, where none gains."""
    best = speed.argmax(axis=1)
    return np.where(speed.max(axis=1) > WORTH, best, -1)


def _calibration(points: Numbers, gains: Numbers, families: Numbers) -> _Calibration:
    """How predictions from other families do: every family counts alike, so that a large one does not decide."""
    away = _distances(points, points)
    away[families[:, None] == families[None, :]] = np.inf
    names, place, counts = np.unique(families, return_inverse=True, return_counts=True)
    weight = 1 / (len(names) * counts[place])
    tried = {number: _predict(away, gains, number) for number in NEAREST}
    unit = gains.std(axis=0) + FLOOR
    errors = {number: weight @ (((gains - one.mean) / unit) ** 2).sum(axis=1) for number, one in tried.items()}
    nearest = min(errors, key=lambda number: errors[number])
    found = tried[nearest]
    off = (gains - found.mean) / found.spread
    low, high = (
        np.array([_quantile(column, weight, level) for column in off.T]) for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    return _Calibration(nearest, low, high, _quantile(found.distance, weight, FAR))


def _quantile(values: Numbers, weight: Numbers, level: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(total, level * total[-1])), len(values) - 1)])


def to_plain_advice(advice: Advice, features: Features) -> dict[str, Any]:
    """Advice as plain data, with what it was asked for.

    Args:
        advice: The advice.
        features: The federation.
    """
    expected: Mapping[str, Any] = {
        name: {what: dict(zip(("mean", "low", "high"), each, strict=True)) for what, each in one._asdict().items()}
        for name, one in advice.expected.items()
    }
    more = {"known": advice.known, "surely_faster": list(advice.surely_faster), "features": features.plain()}
    plain = {**advice._asdict(), **more, "expected": expected}
    traffic = {name: round_traffic(name, features) for name in advice.expected}
    return {**plain, "strategy": advice.strategy or None, "level": LEVEL, "round_traffic": traffic}
