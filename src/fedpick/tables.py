"""The tables of names, one per role: a new strategy, data set or model is its file plus one row here.

A row says where the class is, as "package.module:Class", which is imported when it is used.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """The address of a class and the parameters that the name fixes.

    A fixed parameter that is an address itself is an object of that class; its fields are given beside the others.
    """

    address: str
    fixed: Mapping[str, Any] = {}


class Strategy(NamedTuple):
    """A row of a strategy, with costs per round: K clients, m seats, d candidates, w the bytes of a model."""

    address: str
    fixed: Mapping[str, Any]
    picks: str
    polled: str
    messages: str
    traffic: str
    reference: str


_CHO = "Cho, Wang, Joshi 2020"
_NO_POLL = ("nothing", "2m", "2m w")
_REPORTED = ("nothing", "2m", "2m w + m scalars")
_POLLED = ("2d + 2m", "(d + 2m) w + d scalars")
_INNER = ("as the other", "as the other", "as the other")
_EXPLORED = (
    "as the other, and who may get a seat by rand",
    "with a poll 2⌈share m⌉ more",
    "with a poll ⌈share m⌉ (w + scalar) more",
)
_TRAINED = ("norm of the update", "2d + 2m", "(d + m) w + d scalars")
_AUTO = "fedpick.selectors:Auto"
_OPTIMAL = "fedpick.selectors:OptimalSampling"
_POW = "fedpick.selectors:PowerOfChoice"
_SHRINKING = {"loss": "full", "d": "fedpick.selectors:Shrinking"}
_SWITCH = {"loss": "full", "d": "fedpick.selectors:Switch"}
_HALVING = {"loss": "full", "d": "fedpick.selectors:Halving"}

# fmt: off
STRATEGIES: dict[str, Strategy] = {
    "rand": Strategy("fedpick.selectors:Rand", {"replace": True},
                     "m seats by data share, with replacement", *_NO_POLL, "McMahan et al. 2017; " + _CHO),
    "rand-distinct": Strategy("fedpick.selectors:Rand", {"replace": False},
                              "m distinct clients by data share", *_NO_POLL, _CHO),
    "uniform": Strategy("fedpick.selectors:Uniform", {},
                        "m distinct clients uniformly, weights p_k K / m", *_NO_POLL, "Li et al. 2020"),
    "full": Strategy("fedpick.selectors:Full", {},
                     "everybody, weights p_k", "nothing", "2K", "2K w", "McMahan et al. 2017"),
    "pow-d": Strategy(_POW, {"loss": "full"},
                      "the m highest losses of d candidates", "full local loss", *_POLLED, _CHO),
    "cpow-d": Strategy(_POW, {"loss": "batch"},
                       "the same by a mini-batch estimate", "mini-batch loss", *_POLLED, _CHO),
    "rpow-d": Strategy(_POW, {"loss": "stale"},
                       "the same by the last training loss", *_REPORTED, _CHO),
    "adapow-d": Strategy(_POW, _SHRINKING,
                         "pow-d with d shrinking from K to m", "full local loss", *_POLLED, "Cho, Wang, Joshi 2022"),
    "adapow-d-switch": Strategy(_POW, _SWITCH,
                                "pow-d with d = K at first, then m", "full local loss", *_POLLED,
                                "Cho, Wang, Joshi 2022"),
    "adapow-d-halving": Strategy(_POW, _HALVING,
                                 "pow-d with d = K, K/2, K/4, K/8, m", "full local loss", *_POLLED,
                                 "Cho, Wang, Joshi 2022"),
    "auto": Strategy(_AUTO, {"loss": "full"},
                     "by loss among d candidates, with d found on the way", "full local loss, none once d = m",
                     *_POLLED, "fedpick"),
    "auto-c": Strategy(_AUTO, {"loss": "batch"},
                       "the same by a mini-batch estimate", "mini-batch loss, none once d = m", *_POLLED, "fedpick"),
    "afl": Strategy("fedpick.selectors:AFL", {"valuation": "loss"},
                    "softmax over last training losses", *_REPORTED, "Goetz et al. 2019; " + _CHO),
    "afl-sqrt-size": Strategy("fedpick.selectors:AFL", {"valuation": "sqrt-size"},
                              "the same with sqrt(D_k) times the loss", *_REPORTED, "Goetz et al. 2019"),
    "ucb-cs": Strategy("fedpick.selectors:UCBCS", {},
                       "the highest discounted losses, with a bonus for the unseen", "nothing", "2m",
                       "2m w + 2m scalars", "Cho, Gupta, Joshi, Yagan 2020"),
    "oort": Strategy("fedpick.selectors:Oort", {},
                     "by squared loss and speed, some seats for the unseen", "nothing", "2m", "2m w + 2m scalars",
                     "Lai et al. 2021"),
    "clustered-size": Strategy("fedpick.selectors:ClusteredSize", {},
                               "one client of each of m groups of like size, by data share", *_NO_POLL,
                               "Fraboni et al. 2021"),
    "ocs": Strategy(_OPTIMAL, {"exact": True},
                    "m of d updates by their norms, weights p_k / pi_k", *_TRAINED, "Chen et al. 2022"),
    "aocs": Strategy(_OPTIMAL, {"exact": False},
                     "the same approximately, by sums alone", *_TRAINED, "Chen et al. 2022"),
    "k-vib": Strategy("fedpick.selectors:KVib", {},
                      "m clients by their past norms, weights p_k / pi_k", *_NO_POLL, "Zeng et al. 2023"),
    "tifl": Strategy("fedpick.selectors:TiFL", {},
                     "m of one tier of like speed, tiers of high loss more often", *_REPORTED, "Chai et al. 2020"),
    "fedcs": Strategy("fedpick.selectors:FedCS", {},
                      "of d candidates, at most m that keep the deadline", "durations", "2d + 2m", "2m w + 2d scalars",
                      "Nishio, Yonetani 2019"),
    "refl": Strategy("fedpick.selectors:REFL", {},
                     "m uniformly, those about to leave first", *_NO_POLL, "Abdelmoniem et al. 2023"),
    "clustered-similarity": Strategy("fedpick.selectors:ClusteredSimilarity", {},
                                     "a client from each of m clusters of similar updates", *_NO_POLL,
                                     "Fraboni et al. 2021"),
    "divfl": Strategy("fedpick.selectors:DivFL", {},
                      "m clients whose updates stand for those of all", *_NO_POLL, "Balakrishnan et al. 2022"),
    "hics-fl": Strategy("fedpick.selectors:HiCS", {},
                        "m of clusters by output bias, balanced labels first", *_NO_POLL, "Chen, Vikalo 2024"),
    "fedcor": Strategy("fedpick.selectors:FedCor", {},
                       "m whose losses fall with those of all, by a Gaussian process",
                       "full local loss of all, in some rounds", "2m, 2K + 2m with a poll",
                       "2m w, (K + 2m) w + K scalars with a poll", "Tang et al. 2022"),
    "cooldown": Strategy("fedpick.selectors:Cooldown", {},
                         "those of another strategy, then a rest", *_INNER, "Sun et al. 2025"),
    "explore": Strategy("fedpick.selectors:Explore", {},
                        "those of another strategy, some seats by rand", *_EXPLORED, "Goetz et al. 2019"),
    "rank-clip": Strategy("fedpick.selectors:RankClip", {},
                          "those of another strategy, high losses count as the j-th highest", *_INNER, "fedpick"),
    "credits": Strategy("fedpick.selectors:Credits", {},
                        "those of another strategy, without whom training does not help", *_INNER, "fedpick"),
    "private": Strategy("fedpick.selectors:Private", {},
                        "those of another strategy, which hears no exact losses", *_INNER, "fedpick"),
    "mixture": Strategy("fedpick.selectors:Mixture", {},
                        "those of one of several strategies, drawn each round", *_INNER, "fedpick"),
    "fedau": Strategy("fedpick.selectors:Unbiased", {},
                      "those of another strategy, weights p_k / pi_k", *_INNER, "Wang, Ji 2024 (FedAU)"),
}
# fmt: on

# By the protocol that a field is annotated with.
ROLES: dict[str, Mapping[str, Row | Strategy]] = {
    "Selector": STRATEGIES,
    "Schedule": {
        "shrinking": Row("fedpick.selectors:Shrinking"),
        "switch": Row("fedpick.selectors:Switch"),
        "halving": Row("fedpick.selectors:Halving"),
    },
    "Score": {
        "local-loss": Row("fedpick.selectors:LocalLoss"),
        "clipped-loss": Row("fedpick.selectors:ClippedLoss"),
        "q-fair-loss": Row("fedpick.selectors:QFairLoss"),
    },
    "Data": {
        "synthetic": Row("fedpick.sim:Synthetic"),
        "quadratic": Row("fedpick.sim:Quadratic"),
        "digits": Row("fedpick.sim:Digits"),
        "fashion-mnist": Row("fedpick.sim:FashionMNIST"),
        "shakespeare": Row("fedpick.sim:Shakespeare"),
        "chem97": Row("fedpick.sim:Chem97"),
        "insteval": Row("fedpick.sim:InstEval"),
        "movielens": Row("fedpick.sim:MovieLens"),
        "nycflights": Row("fedpick.sim:NYCFlights"),
        "watch": Row("fedpick.sim:Watch"),
        "arrays": Row("fedpick.sim:Arrays"),
    },
    "Partition": {
        "iid": Row("fedpick.sim:IID"),
        "dirichlet": Row("fedpick.sim:Dirichlet"),
        "shards": Row("fedpick.sim:Shards"),
        "power-law": Row("fedpick.sim:PowerLaw"),
    },
    "ModelSpec": {
        "logistic": Row("fedpick.sim:Logistic"),
        "mlp": Row("fedpick.sim:MLP"),
        "cnn": Row("fedpick.sim:CNN"),
        "resnet": Row("fedpick.sim:ResNet"),
        "char-lstm": Row("fedpick.sim:CharLSTM"),
        "transformer": Row("fedpick.sim:Transformer"),
        "network": Row("fedpick.sim:Network"),
        "quadratic": Row("fedpick.sim:QuadraticModel"),
    },
    "Availability": {
        "always": Row("fedpick.sim:Always"),
        "alternating-halves": Row("fedpick.sim:AlternatingHalves"),
        "bernoulli": Row("fedpick.sim:Bernoulli"),
        "day-and-night": Row("fedpick.sim:DayAndNight"),
        "trace": Row("fedpick.sim:Trace"),
        "trace-file": Row("fedpick.sim:TraceFile"),
    },
    "Metric": {
        "f1": Row("fedpick.sim:f1"),
        "auc": Row("fedpick.sim:auc"),
        "calibration": Row("fedpick.sim:calibration"),
    },
    "RateSchedule": {
        "step-decay": Row("fedpick.sim:StepDecay"),
        "optax": Row("fedpick.sim:OptaxSchedule"),
    },
    "Optimizer": {
        "sgd": Row("optax:sgd"),
        "momentum": Row("optax:sgd", {"momentum": 0.9}),
        "adam": Row("optax:adam"),
        "adagrad": Row("optax:adagrad"),
        "yogi": Row("optax:yogi"),
    },
}
