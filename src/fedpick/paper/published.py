"""The numbers that the paper prints: its Tables 1 and 2. (Its figures come without their data.)"""

from typing import NamedTuple


class Column(NamedTuple):
    """A column of Table 1 or 2: rounds to 60 % accuracy, seconds per round, test accuracy in percent and its spread.

    The ratios are those to rand with C = 0.1, as the paper prints them.
    """

    r60: int
    r60_ratio: float
    t_comp: float
    t_comp_ratio: float
    accuracy: float
    spread: float


TABLES: dict[float, dict[str, Column]] = {
    0.3: {
        "rand, C = 0.1": Column(172, 1.0, 0.43, 1.0, 71.21, 2.41),
        "rand": Column(234, 1.36, 0.36, 0.85, 64.87, 1.97),
        "pow-d, d = 6": Column(89, 0.52, 0.48, 1.13, 76.47, 0.87),
        "cpow-d, d = 6": Column(80, 0.47, 0.37, 0.88, 76.63, 0.79),
        "rpow-d, d = 50": Column(98, 0.57, 0.37, 0.85, 76.56, 1.00),
        "afl": Column(121, 0.70, 0.36, 0.84, 73.28, 1.05),
    },
    2.0: {
        "rand, C = 0.1": Column(135, 1.0, 0.42, 1.0, 63.50, 2.74),
        "rand": Column(136, 1.01, 0.36, 0.85, 66.03, 1.47),
        "pow-d, d = 6": Column(82, 0.61, 0.46, 1.08, 73.81, 1.14),
        "cpow-d, d = 6": Column(89, 0.66, 0.38, 0.88, 73.36, 1.17),
        "rpow-d, d = 50": Column(99, 0.73, 0.36, 0.86, 72.52, 0.89),
        "afl": Column(131, 0.97, 0.36, 0.85, 70.64, 1.99),  # printed as "(085)"
    },
}
SEEDS = 3  # of the partition, whose mean the paper reports
