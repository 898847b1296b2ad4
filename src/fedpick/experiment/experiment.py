"""An experiment: everything that decides a result, as frozen plain data with an identity."""

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from fedpick.experiment.data import Arrays, Data, Partition
from fedpick.experiment.parts import AvailabilityPart, LocalPart, Metrics, ModelPart, ServerPart
from fedpick.protocol import Selector
from fedpick.sim import Always, Federation, Model, check_selectors
from fedpick.sim.models import Objective
from fedpick.validation import one_of, require

FORMAT = 1  # of the identity: raised when the same settings come to give other results


@dataclass(frozen=True)
class Experiment:
    """Federated averaging with one strategy on one problem, for each of the seeds.

    With ``redraw`` every seed draws the data and the partition anew, by that seed; otherwise they are the same for all,
    drawn by their own ``seed``. ``name`` is for people.

    >>> from fedpick import PowerOfChoice
    >>> from fedpick.experiment import LocalPart, Logistic, Synthetic
    >>> local = LocalPart(tau=30, b=50, eta=0.05)
    >>> experiment = Experiment(Synthetic(), Logistic(), PowerOfChoice(m=3, d=6), local, rounds=100, seeds=(0, 1, 2))
    >>> experiment.identity(seed=0)
    'ef3eb92d4c69a57c'
    """

    data: Data
    model: ModelPart
    selector: Selector[Any]
    local: LocalPart
    rounds: int
    seeds: tuple[int, ...] = (0,)
    redraw: bool = False
    partition: Partition | None = None
    objective: Objective = "cross-entropy"
    server: ServerPart = ServerPart()
    availability: AvailabilityPart = Always()
    metrics: Metrics = Metrics()
    name: str = ""

    def __post_init__(self) -> None:
        require("experiment", "rounds", self.rounds, "at least 1", lambda n: n >= 1, whole=True)
        one_of("experiment", "objective", self.objective, ("cross-entropy", "minus-probability"))
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0 or max(self.seeds) >= 2**31:
            rule = "one or more different numbers, at least 0 and below 2**31"
            raise ValueError(f"experiment: seeds must be {rule}, got {list(self.seeds)}")

    def for_seed(self, seed: int) -> "Experiment":
        """The run of this seed alone, with the data that it draws."""
        if not self.redraw:
            return dataclasses.replace(self, seeds=(seed,))
        data, partition = (_by_seed(part, seed) for part in (self.data, self.partition))
        return dataclasses.replace(self, seeds=(seed,), data=data, partition=partition, redraw=False)

    def canonical(self, seed: int) -> dict[str, Any]:
        """All that decides the run of this seed as plain data, defaults included; data files by their content."""
        from fedpick.config import to_dict  # which reads and writes experiments, so it comes after

        run = self.for_seed(seed)
        plain = to_dict(run)
        for word in ("name", "redraw"):
            del plain[word]
        if isinstance(run.data, Arrays):
            plain["data"]["sha256"] = run.data.sha256
            del plain["data"]["path"]
        return plain

    def identity(self, seed: int) -> str:
        """A hash of the canonical form: two runs are the same exactly if this is the same."""
        text = json.dumps([FORMAT, self.canonical(seed)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check(self) -> None:
        """Raise where the model, the data and the strategy do not go together; nothing is trained."""
        federation = _made(self.for_seed(self.seeds[0]).data, self.for_seed(self.seeds[0]).partition)
        self.built(federation)
        check_selectors(federation, self.selector, self.availability)

    def federation(self) -> Federation:
        """The clients and their data, where all seeds share them."""
        return self.data.federation(self.partition)

    def built(self, federation: Federation) -> Model:
        """The model for these data."""
        return self.model.build(federation, self.objective)


@functools.lru_cache(maxsize=2)  # every point of a sweep is checked
def _made(data: Any, partition: Any) -> Federation:
    federation: Federation = data.federation(partition)
    return federation


def _by_seed(part: Any, seed: int) -> Any:
    has_seed = part is not None and any(field.name == "seed" for field in dataclasses.fields(part))
    return dataclasses.replace(part, seed=seed) if has_seed else part
