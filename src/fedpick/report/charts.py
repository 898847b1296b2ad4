"""Charts as data: rows and words, so that they can be made, tested and written to a file without drawing anything."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Row = dict[str, Any]
POINTS = 80  # of a curve, at most: more cannot be seen, and make pages large


@dataclass(frozen=True)
class Chart:
    """What is drawn: rows with ``name`` (whose they are), ``panel``, ``x``, ``y``, and ``low``, ``high`` of a spread.

    ``lines`` are curves with bands; ``dots`` are values of categories ``x`` side by side; ``strip`` has a mark for
    every value of a category, with a ``mark`` that says what it is; ``heat`` has cells (``cell``). ``text`` says in
    words what there is to see, for those who do not see it.
    """

    name: str
    kind: Literal["lines", "dots", "strip", "heat"]
    title: str
    text: str
    x: str
    y: str
    rows: tuple[Row, ...]
    log_x: bool = False
    log_y: bool = False
    columns: int = 2

    @property
    def names(self) -> list[str]:
        """Whose curves or dots there are, in their order."""
        return list(dict.fromkeys(row["name"] for row in self.rows))

    @property
    def panels(self) -> list[str]:
        """The titles of the panels, in their order."""
        return list(dict.fromkeys(row["panel"] for row in self.rows))


def curve(name: str, panel: str, x: Any, values: Any) -> list[Row]:
    """The mean of values [seeds, points] by x, with one standard deviation to either side; thinned to what can be seen.

    >>> curve("rand", "loss", [0, 1], [[1.0, 0.5], [1.0, 0.7]])[1]["y"]
    0.6
    """
    x, values = np.asarray(x), np.atleast_2d(np.asarray(values, float))
    keep = thinned(len(x))
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(x))
    return [_row(name, panel, float(x[i]), mean[i], mean[i] - spread[i], mean[i] + spread[i]) for i in keep]


def thinned(number: int) -> Any:
    """Which of so many points are drawn.

    >>> len(thinned(1000))
    80
    """
    return np.unique(np.linspace(0, number - 1, min(number, POINTS)).round().astype(int))


def cell(label: str, client: int, samples: int, size: int) -> Row:
    """So many samples of a label at a client that has ``size`` in all.

    >>> cell("7", 3, 12, 40)["y"]
    3
    """
    return {"name": "", "panel": "", "x": label, "y": client, "samples": samples, "size": size}


def dot(name: str, panel: str, x: Any, value: float, low: float, high: float) -> Row:
    """One value of a category with its spread.

    >>> dot("ours", "", "rand", 1.0, 0.5, 1.5)["y"]
    1.0
    """
    return _row(name, panel, x, value, low, high)


def _row(name: str, panel: str, x: Any, y: float, low: float, high: float) -> Row:
    # Six digits: nobody sees more, and the file is half as large.
    y, low, high = (float(f"{number:.6g}") for number in (y, low, high))
    return {"name": name, "panel": panel, "x": x, "y": y, "low": low, "high": high}
