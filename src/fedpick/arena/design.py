"""The design of the map: federations drawn at random, in cells that are one compiled program for each strategy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick import sim
from fedpick.metrics import Numbers

VERSION = 1  # another design is another version, and its cells are played anew
DRAWS = 8  # federations of a cell, each with data of its own
CELLS = 12  # of a family
HELD = 100  # samples of a client at most, evenly spaced; what it weighs stays in proportion to all that it had
WORK = 3_000  # samples that the seats of a round pass through at most: m tau b
Draw = Callable[[int, np.random.Generator], Any]


@dataclass(frozen=True)
class Source:
    """Federations of one kind, left out together when advice is tested.

    Args:
        name: What it is called.
        draw: ``draw(K, rng)`` gives data, or a federation, of K clients.
        model: The model.
        K: The fewest and the most clients.
        b: Samples per step at most.
    """

    name: str
    draw: Draw
    model: Any
    K: tuple[int, int] = (10, 300)
    b: int = 32


@dataclass(frozen=True)
class Cell:
    """Federations with the same clients, seats, steps and rounds, each with data of its own.

    Args:
        source: Where the data come from.
        number: Which cell of the source it is.
        K: Clients.
        m: Clients per round.
        tau: Local steps.
        b: Samples per step.
        rounds: Rounds.
        step: The step size, as a part of the largest stable one of the median federation.
    """

    source: Source
    number: int
    K: int
    m: int
    tau: int
    b: int
    rounds: int
    step: float

    @property
    def name(self) -> str:
        """The source and the number."""
        return f"{self.source.name} {self.number}"

    def federations(self, draws: int = DRAWS) -> sim.Federation:
        """The data of the cell: a federation for each draw, as one value, without a test set.

        Args:
            draws: The number of them.
        """
        data = [self.source.draw(self.K, _rng(self.name, draw)) for draw in range(draws)]
        return sim.federations_of([_some(one, np.arange(self.K)) for one in data])


def make_cells(sources: Sequence[Source] | None = None, number: int = CELLS) -> list[Cell]:
    """The cells of the map: for each source a Latin hypercube over K, C, tau, b, rounds and the step size.

    Args:
        sources: Where the data come from; all of ``SOURCES`` unless given.
        number: How many cells each source has.
    """
    found = []
    for source in SOURCES.values() if sources is None else sources:
        rng = _rng(source.name)
        clients, seats, tau, rounds, size, step = _spread(rng, number, 6)
        for i in range(number):
            K = _between(*source.K, clients[i])
            m = min(max(1, round(K * 0.02 * 25 ** seats[i])), K // 2)
            tau_i = _between(1, 50, tau[i])
            b = _between(4, source.b, size[i]) if source.b > 4 else source.b
            while m * tau_i * b > WORK and max(tau_i, b) > 4:  # the larger of the two gives way
                tau_i, b = (tau_i, b // 2) if b > tau_i else (tau_i // 2, b)
            m = min(m, max(1, WORK // (tau_i * b)))
            part = float(f"{0.01 * 50 ** step[i]:.3g}")
            found.append(Cell(source, i, K, m, tau_i, b, 100 + 25 * int(3 * rounds[i]), part))
    return found


def _spread(rng: np.random.Generator, number: int, dimensions: int) -> Numbers:
    """A Latin hypercube: in each dimension one point in each of ``number`` equal parts of [0, 1)."""
    order = np.stack([rng.permutation(number) for _ in range(dimensions)])
    found: Numbers = (order + rng.uniform(size=order.shape)) / number
    return found


def _between(low: int, high: int, part: float) -> int:
    return round(float(low * (high / low) ** part))


def _rng(*names: Any) -> np.random.Generator:
    """A generator that depends on these names and on nothing else."""
    text = "/".join(map(str, (VERSION, *names)))
    return np.random.default_rng(list(text.encode()))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _synthetic(K: int, rng: np.random.Generator) -> Any:
    alpha, beta = rng.uniform(0, 2, 2)
    return sim.Synthetic(float(alpha), float(beta), K, seed=_seed(rng))


def _quadratic(K: int, rng: np.random.Generator) -> Any:
    return sim.Quadratic(K, seed=_seed(rng))


def _dirichlet(K: int, rng: np.random.Generator) -> Any:
    least = 0.05 * max(1.0, K / 15)  # below, a client would have nothing
    partition = sim.Dirichlet(K, least * (5 / least) ** rng.uniform(), bool(rng.integers(2)), least=1, seed=_seed(rng))
    return sim.Digits(partition)


def _shards(K: int, rng: np.random.Generator) -> Any:
    return sim.Digits(sim.Shards(K, int(rng.integers(1, 5)), seed=_seed(rng)))


def _sizes(K: int, rng: np.random.Generator) -> Any:
    seed = _seed(rng)
    equal = rng.uniform() < 0.25
    return sim.Digits(sim.IID(K, seed) if equal else sim.PowerLaw(K, float(0.2 * 25 ** rng.uniform()), seed))


def _natural(whole: Any) -> Draw:
    """Federations of some of the clients of naturally federated data."""
    kept: dict[str, Any] = {}

    def draw(K: int, rng: np.random.Generator) -> Any:
        if "all" not in kept:
            kept["all"] = whole.federation()
        return _some(kept["all"], np.sort(rng.choice(kept["all"].num_clients, K, replace=False)))

    return draw


def _some(data: Any, clients: Numbers) -> sim.Federation:
    """The federation of some of the clients, without a test set; of those who hold much, a part of it."""
    whole: sim.Federation = data if isinstance(data, sim.Federation) else data.federation()
    count, start, size = (np.asarray(each)[clients] for each in (whole.count, whole.start, whole.size))
    held = np.minimum(count, HELD)
    rows = np.concatenate([s + np.arange(h) * n // h for s, h, n in zip(start, held, count, strict=True)])
    return sim.Federation.from_arrays(
        np.asarray(whole.x)[rows],
        np.asarray(whole.y)[rows],
        np.repeat(np.arange(len(clients)), held),
        num_clients=len(clients),
        classes=whole.classes,
        size=size,
        name=whole.name,
    )


_LOGISTIC, _MLP = sim.Logistic(), sim.MLP((32,), 0.0)
SOURCES = {
    source.name: source
    for source in (
        Source("synthetic", _synthetic, _LOGISTIC, (10, 150)),
        Source("synthetic, MLP", _synthetic, _MLP, (10, 60)),
        Source("quadratic", _quadratic, sim.QuadraticModel(spread=10.0), b=1),
        Source("digits, Dirichlet", _dirichlet, _LOGISTIC, (10, 100)),
        Source("digits, shards", _shards, _LOGISTIC),
        Source("digits, sizes", _sizes, _LOGISTIC),
        Source("digits, Dirichlet, MLP", _dirichlet, _MLP, (10, 100)),
        Source("digits, shards, MLP", _shards, _MLP),
        Source("chem97", _natural(sim.Chem97(least=10)), _LOGISTIC),
        Source("insteval", _natural(sim.InstEval(least=20)), _LOGISTIC),
        Source("movielens", _natural(sim.MovieLens()), _MLP, (10, 200)),
        Source("nycflights", _natural(sim.NYCFlights(least=50)), _LOGISTIC, (10, 200)),
        Source("watch", _natural(sim.Watch()), _MLP, (5, 8)),
    )
}
