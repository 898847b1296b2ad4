"""The paper's experiments as data, with what it leaves unsaid filled in (each choice is named where it is made)."""

from typing import Any, NamedTuple

from fedpick.experiment import Experiment, Metrics
from fedpick.registry import strategy
from fedpick.sim import (
    MLP,
    AlternatingHalves,
    Always,
    Dirichlet,
    FashionMNIST,
    Local,
    Logistic,
    Quadratic,
    QuadraticModel,
    StepDecay,
    Synthetic,
)

Experiments = dict[str, Experiment]


class Size(NamedTuple):
    """How much is run: seeds of Fashion-MNIST partitions, draws of the other problems, and rounds of each."""

    name: str
    seeds: int
    draws: int
    fashion_rounds: int
    quadratic_rounds: int
    synthetic_rounds: int
    etas: tuple[float, ...]
    timed_rounds: int
    grid: int

    @property
    def whole(self) -> bool:
        """Whether it is what the paper did, and not less."""
        return self.name == "full"


FULL = Size("full", 10, 20, 500, 15_000, 800, (0.0005, 0.0015, 0.005, 0.015, 0.05), 60, 3)
QUICK = Size("quick", 2, 2, 30, 15_000, 300, (0.0005, 0.005, 0.05), 5, 2)
TINY = Size("tiny", 2, 2, 4, 200, 8, (0.0005, 0.005), 2, 2)

# The paper's rows of Tables 1 and 2, and of its figures on Fashion-MNIST. With C = 0.1 it does not say d: twice m, as
# with C = 0.03, and 50 for rpow-d as there.
FEW: dict[str, Any] = {
    "rand": strategy("rand", m=3),
    "pow-d, d = 6": strategy("pow-d", m=3, d=6),
    "pow-d, d = 9": strategy("pow-d", m=3, d=9),
    "pow-d, d = 15": strategy("pow-d", m=3, d=15),
    "cpow-d, d = 6": strategy("cpow-d", m=3, d=6),
    "rpow-d, d = 50": strategy("rpow-d", m=3, d=50),
    "afl": strategy("afl", m=3),
}
MANY: dict[str, Any] = {
    "rand": strategy("rand", m=10),
    "pow-d, d = 20": strategy("pow-d", m=10, d=20),
    "cpow-d, d = 20": strategy("cpow-d", m=10, d=20),
    "rpow-d, d = 50": strategy("rpow-d", m=10, d=50),
    "afl": strategy("afl", m=10),
}
# With half of the clients away, d = 50 candidates are more than are there: rpow-d then looks at all of them.
INTERMITTENT = {name: FEW[name] for name in ("rand", "pow-d, d = 6", "rpow-d, d = 50")}
ALPHAS = (0.3, 2.0)


def fashion(
    size: Size,
    selector: Any,
    alpha: float,
    objective: Any = "minus-probability",
    eta: float = 0.005,
    halves: bool = False,
) -> Experiment:
    """Fashion-MNIST as the paper states it and its released code completes it; a partition for every seed."""
    return Experiment(
        FashionMNIST(Dirichlet(K=100, alpha=alpha)),
        MLP(objective=objective),
        selector,
        Local(tau=30, b=64, eta=eta, schedule=StepDecay((150, 300)), weight_decay=1e-4),
        rounds=size.fashion_rounds,
        seeds=tuple(range(size.seeds)),
        redraw=True,
        availability=AlternatingHalves(away=0.1) if halves else Always(),
        metrics=Metrics(every=2 if size.whole else max(1, size.fashion_rounds // 10), clients=False),
    )


def synthetic(size: Size, selector: Any) -> Experiment:
    """Synthetic(1,1), drawn anew for every seed."""
    return Experiment(
        Synthetic(),
        Logistic(),
        selector,
        Local(tau=30, b=50, eta=0.05, schedule=StepDecay((300, 600))),
        rounds=size.synthetic_rounds,
        seeds=tuple(range(size.draws)),
        redraw=True,
        metrics=Metrics(every=2, target="loss", value=0.5, clients=False),
    )


def quadratic(size: Size, selector: Any, K: int) -> Experiment:
    """The quadratic problem, drawn anew for every seed: tau = 2 full-gradient steps."""
    return Experiment(
        Quadratic(K=K),
        QuadraticModel(),
        selector,
        Local(tau=2, b=1, eta=2e-5),
        rounds=size.quadratic_rounds,
        seeds=tuple(range(size.draws)),
        redraw=True,
        metrics=Metrics(every=max(1, size.quadratic_rounds // 150), clients=False),
    )


def quadratic_selectors(K: int) -> dict[str, Any]:
    """rand, and pow-d over d; for K = 100 the paper names d = 15 alone, the others here span up to K."""
    m = K // 10
    choices = (6, 9, 15, 30) if K == 30 else (15, 30, 60, 100)
    return {"rand": strategy("rand", m=m), **{f"pow-d, d = {d}": strategy("pow-d", m=m, d=d) for d in choices}}
