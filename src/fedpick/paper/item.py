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

OURS: dict[Verdict, str] = {
    "reproduced": "holds",
    "partly reproduced": "holds partly",
    "undecided": "undecided",
    "not reproduced": "does not hold",
}


@dataclass(frozen=True)
class Table:
    """A table of text.

    Args:
        title: Title.
        columns: Headings of the columns.
        rows: The cells, row by row.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of an item.

    Args:
        claims: Claims of the paper, with their checks.
        charts: Charts.
        tables: Tables.
        remarks: Sentences on what the numbers do not say.
    """

    claims: tuple[Claim, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    _: KW_ONLY
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict of all claims together."""
        return overall(check.met for claim in self.claims for check in claim.checks)


@dataclass(frozen=True)
class ItemRuns:
    """The runs of an item, by the keys of its experiments.

    Args:
        store: Where the runs are.
        size: How much was run.
        experiments: The experiments, by their keys.
    """

    store: RunStore
    size: Size
    experiments: Experiments
    _results: dict[Any, Result] = field(default_factory=dict, init=False)

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
        about: What is run, and the choices made here where the paper is silent; {fashion_rounds} and other fields of
            ``Size`` in braces are as many as are run.
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

    def setting(self, size: Size) -> str:
        """What is run in this size, in words."""
        text = self.about
        for name in ("fashion_rounds", "synthetic_rounds", "quadratic_rounds", "grid"):
            text = text.replace(f"{{{name}}}", f"{getattr(size, name)}")
        return text

    def wording(self, verdict: Verdict) -> str:
        """The verdict in words: what the paper does not have is not reproduced, it holds."""
        return OURS[verdict] if self.source == "ours" else verdict

    def needs_fashion_mnist(self, size: Size) -> bool:
        """Whether any of its runs uses that data set."""
        return any(isinstance(experiment.data, FashionMNIST) for experiment in self.experiments(size).values())
