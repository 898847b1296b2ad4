"""The colours, dashes and shapes of strategies: the same for a name on every page, and never colour alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Okabe and Ito's colour-blind safe palette (grey for their black), then Paul Tol's muted one.
COLOURS = (
    "#777777", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C510A",
    "#882255", "#44AA99", "#999933", "#332288",
)  # fmt: skip
# The same on a dark page, where a pure blue or a wine would drown.
DARK = (
    "#A6A6A6", "#4DA9E8", "#FF8A45", "#2CC79B", "#E59AC6", "#F2B632", "#8CCBF2", "#CF9455",
    "#D5709C", "#6ECDBB", "#C3C35C", "#9C8FE8",
)  # fmt: skip
DASHES = (
    [1, 0], [6, 2], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3], [10, 2], [3, 1], [8, 2, 2, 2, 2, 2], [5, 1], [12, 4], [2, 5],
)  # fmt: skip
SOLID = 6  # places on a page whose lines are labelled and need no dashes
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


@dataclass(frozen=True)
class Palette:
    """What each name is drawn with: a place in ``COLOURS`` and in ``DASHES``.

    Args:
        names: The names, in the order of the legend.
        places: The place of each.

    >>> Palette.of(["rand", "pow-d"], {"rand": 0, "pow-d": 1}).colours
    ['#777777', '#0072B2']
    """

    names: tuple[str, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, names: Sequence[str], fixed: Mapping[str, int]) -> "Palette":
        """A palette in which a name begins at its fixed place and goes on to the next one that is free.

        Place 0, the grey of the baseline, is taken only by a name that is fixed there.

        Args:
            names: The names, in the order of the legend.
            fixed: Places of names; any number, of which the palette's length is taken off.
        """
        taken: list[int] = []
        for order, name in enumerate(names):
            wanted = fixed.get(name, order + 1)
            place = 0 if wanted == 0 else 1 + (wanted - 1) % (len(COLOURS) - 1)
            if place in taken:
                place = next((each for each in range(1, len(COLOURS)) if each not in taken), place)
            taken.append(place)
        return cls(tuple(names), tuple(taken))

    @property
    def colours(self) -> list[str]:
        """The colour of each name on a light page."""
        return [COLOURS[place] for place in self.places]

    @property
    def dashes(self) -> list[list[int]]:
        """The dashes of each name's line."""
        return [DASHES[0] if place < SOLID else DASHES[place] for place in self.places]

    def number(self, name: str) -> int:
        """The place of a name, 0 where it has none."""
        return self.places[self.names.index(name)] if name in self.names else 0


def dark_style() -> str:
    """CSS that gives the marks of charts the colours of a dark page; saved pictures keep those of a light one."""
    rules = [
        f'.chart svg [{what}="{light}"] {{ {what}: {dark}; }}'
        for light, dark in zip(COLOURS, DARK, strict=True)
        for what in ("stroke", "fill")
    ]
    return "\n".join(rules)


def colour_style(dark: bool = False) -> str:
    """CSS variables --c0, --c1, ... for the legend and the table."""
    return " ".join(f"--c{place}: {colour};" for place, colour in enumerate(DARK if dark else COLOURS))
