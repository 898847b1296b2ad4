"""Items: the figures and tables of the paper, and their outcome as plain data for the page and the docs."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fedpick.experiment import load_results
from fedpick.paper.claims import Claim, Verdict, overall
from fedpick.paper.settings import Experiments, Size
from fedpick.report import Chart
from fedpick.results import Result
from fedpick.sim import FashionMNIST
from fedpick.storage import RunStore


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of an item: claims with their verdicts, charts, tables and remarks."""

    claims: tuple[Claim, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of all claims together."""
        return overall(check.met for claim in self.claims for check in claim.checks)


@dataclass(frozen=True)
class ItemRuns:
    """The runs of an item, by the keys of its experiments."""

    store: RunStore
    size: Size
    experiments: Experiments
    _results: dict[Any, Result] = field(default_factory=dict)

    def __getitem__(self, key: Any) -> Result:
        if key not in self._results:
            self._results[key] = load_results(self.experiments[key], self.store)
        return self._results[key]


@dataclass(frozen=True)
class Item:
    """A figure or table of the paper.

    Args:
        name: Name on the command line.
        source: Name in the paper; "ours" for what it does not have.
        title: What it is about.
        about: What is run, and the choices made here where the paper is silent.
        conclude: The outcome, from the runs.
        experiments: What is run.
    """

    name: str
    source: str
    _: KW_ONLY
    title: str
    about: str
    conclude: Callable[[ItemRuns], Outcome]
    experiments: Callable[[Size], Experiments] = lambda size: {}

    def needs_fashion_mnist(self, size: Size) -> bool:
        """Whether any of its runs uses that data set."""
        return any(isinstance(experiment.data, FashionMNIST) for experiment in self.experiments(size).values())
