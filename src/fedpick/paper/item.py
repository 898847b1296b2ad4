"""What an item is, and what comes out of it: tables, charts and claims, as data for the page and the docs alike."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fedpick.experiment import load_results
from fedpick.paper.claims import Claim, Verdict, overall
from fedpick.paper.settings import Experiments, Size
from fedpick.report import Chart
from fedpick.results import Result
from fedpick.sim import FashionMNIST
from fedpick.storage import RunStore


@dataclass(frozen=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """What an item found."""

    claims: tuple[Claim, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Of all claims together."""
        return overall(check.met for claim in self.claims for check in claim.checks)


@dataclass(frozen=True)
class ItemRuns:
    """The runs of an item, by the names that it gave them."""

    store: RunStore
    size: Size
    experiments: Experiments
    _results: dict[str, Result] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Result:
        if name not in self._results:
            self._results[name] = load_results(self.experiments[name], self.store)
        return self._results[name]


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper: what is run, and what decides.

    ``title`` says what it is about; ``about`` what is run, and what the paper leaves unsaid and was chosen here.
    """

    name: str
    source: str
    title: str
    about: str
    conclude: Callable[[ItemRuns], Outcome]
    experiments: Callable[[Size], Experiments] = lambda size: {}

    def needs_fashion_mnist(self, size: Size) -> bool:
        """Whether it cannot be done without that data set."""
        return any(isinstance(experiment.data, FashionMNIST) for experiment in self.experiments(size).values())
