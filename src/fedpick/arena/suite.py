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
STEPS = ("best", "small", "own")
SMALL = 0.2  # of rand's best step
STRATEGIES = (
    *("rand", "uniform", "pow-d", "cpow-d", "rpow-d", "adapow-d-halving", "auto", "afl", "ucb-cs", "oort"),
    *("clustered-size", "k-vib", "refl", "tifl"),
)
Step = Literal["best", "small", "own"]


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

    def experiment(self, seeds: Sequence[int]) -> Experiment:
        """rand on this family, with the step size at which the search begins.

        Args:
            seeds: The seeds, each of which draws its own federation.
        """
        K = getattr(self.data, "K", None) or self.data.partition.K
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


def entries(family: Family, base: Experiment, strategies: Sequence[str]) -> dict[str, Experiment]:
    """The experiment of each strategy on a family: its authors' defaults, with d = 2m.

    Args:
        family: The family.
        base: rand's experiment.
        strategies: Names of strategies, or addresses of one's own.
    """
    found = {}
    for name in strategies:
        fitted = registry.fitting_strategy(name, m=family.m, d=2 * family.m, rounds=family.rounds, classes=10)
        found[name] = replace(base, selector=fitted)
    return found


def make_problems(
    families: Sequence[Family],
    strategies: Sequence[str],
    store: RunStore,
    *,
    seeds: int,
    steps: Sequence[Step] = STEPS,  # type: ignore[assignment]
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
        watch: Called with each batch under way and its result so far.
    """
    natural("arena", "seeds", seeds)
    for step in steps:
        one_of("arena", "step", step, STEPS)
    plain = [family.experiment(range(seeds)) for family in families]
    tuned = tune_rates(plain, store, watch, seeds=1)
    problems = []
    for family, best in zip(families, tuned, strict=True):
        own = entries(family, best, strategies)
        if "best" in steps:
            problems.append(Problem(family, "best", own))
        if "small" in steps:
            slow = replace(best.local, eta=float(f"{SMALL * float(best.local.eta):.4g}"))
            problems.append(Problem(family, "small", {name: replace(one, local=slow) for name, one in own.items()}))
        if "own" in steps:
            each = dict(zip(own, tune_rates(list(own.values()), store, watch, seeds=1), strict=True))
            problems.append(Problem(family, "own", each))
    return problems
