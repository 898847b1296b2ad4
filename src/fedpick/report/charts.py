"""Charts as plain data, which can be built, tested and stored without drawing anything."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Row = dict[str, Any]
POINTS = 80  # of a curve, at most: more are invisible and make pages large


@dataclass(frozen=True)
class Chart:
    """The description of a chart.

    Each row has a ``name`` (its legend entry), a ``panel``, ``x``, ``y``, and ``low`` and ``high`` for its spread.

    Args:
        name: Identifier, used for file names and anchors.
        kind: "lines" (curves with bands), "dots" (values by category), "strip" (a mark for every value of a category;
            rows also have ``mark``) or "heat" (rows from ``cell``).
        title: Title.
        text: Description in words, for readers who do not see the chart.
        rows: The data, from ``curve``, ``dot`` or ``cell``.
        x: Title of the x axis.
        y: Title of the y axis.
        log_x: Whether the x axis is logarithmic.
        log_y: Whether the y axis is logarithmic.
        columns: Panels per row.

    >>> Chart("one", "dots", title="One", text="", rows=(dot("ours", "", "rand", value=1, low=0, high=2),)).names
    ['ours']
    """

    name: str
    kind: Literal["lines", "dots", "strip", "heat"]
    _: KW_ONLY
    title: str
    text: str
    rows: tuple[Row, ...]
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    columns: int = 2

    @property
    def names(self) -> list[str]:
        """The legend entries, in order."""
        return list(dict.fromkeys(row["name"] for row in self.rows))

    @property
    def panels(self) -> list[str]:
        """The titles of the panels, in order."""
        return list(dict.fromkeys(row["panel"] for row in self.rows))


def curve(name: str, panel: str, x: ArrayLike, *, values: ArrayLike) -> list[Row]:
    """Rows of a curve: the mean over seeds, plus and minus one standard deviation, thinned.

    Args:
        name: Legend entry.
        panel: Title of the panel.
        x: The points on the x axis.
        values: A row of values for each seed.

    >>> curve("rand", "loss", [0, 1], values=[[1.0, 0.5], [1.0, 0.7]])[1]["y"]
    0.6
    """
    at, runs = np.asarray(x), np.atleast_2d(np.asarray(values, float))
    mean = runs.mean(axis=0)
    spread = runs.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(at))
    low, high = mean - spread, mean + spread
    return [_row(name, panel, float(at[i]), mean[i], low[i], high[i]) for i in thin_indices(len(at))]


def thin_indices(number: int) -> NDArray[np.int64]:
    """Indices of the points that are drawn, at most 80, evenly spaced.

    >>> len(thin_indices(1000))
    80
    """
    return np.unique(np.linspace(0, number - 1, min(number, POINTS)).round().astype(int))


def cell(label: str, client: int, *, samples: int, size: int) -> Row:
    """A row of a heat map.

    Args:
        label: The label, on the x axis.
        client: The client, on the y axis.
        samples: Number of samples with this label at this client.
        size: Number of all samples of the client.

    >>> cell("7", 3, samples=12, size=40)["y"]
    3
    """
    return {"name": "", "panel": "", "x": label, "y": client, "samples": samples, "size": size}


def dot(name: str, panel: str, x: Any, *, value: float, low: float, high: float) -> Row:
    """A row of a dot chart: one value with its spread.

    Args:
        name: Legend entry.
        panel: Title of the panel.
        x: Category on the x axis.
        value: The value.
        low: Lower end of its spread.
        high: Upper end.

    >>> dot("ours", "", "rand", value=1.0, low=0.5, high=1.5)["y"]
    1.0
    """
    return _row(name, panel, x, value, low, high)


def _row(name: str, panel: str, x: Any, y: float, low: float, high: float) -> Row:
    # Six digits are enough for a picture and halve the file.
    y, low, high = (float(f"{number:.6g}") for number in (y, low, high))
    return {"name": name, "panel": panel, "x": x, "y": y, "low": low, "high": high}
