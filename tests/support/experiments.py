"""A small experiment, as plain data and as an object."""

import dataclasses
import json

from fedpick import PowerOfChoice
from fedpick.config import override
from fedpick.experiment import Experiment
from fedpick.sim import Local, Quadratic, QuadraticModel

PLAIN = {
    "data": {"kind": "quadratic", "K": 6},
    "model": {"kind": "quadratic"},
    "selector": {"kind": "pow-d", "m": 2, "d": 3},
    "local": {"tau": 2, "b": 1, "eta": 1e-4},
    "rounds": 6,
    "seeds": 2,
}


def plain(*settings):
    data = json.loads(json.dumps(PLAIN))
    for setting in settings:
        override(data, setting)
    return data


def small(**changes):
    base = Experiment(
        Quadratic(K=6), QuadraticModel(), PowerOfChoice(m=2, d=3), Local(2, 1, 1e-4), rounds=6, seeds=(0, 1)
    )
    return dataclasses.replace(base, **changes)
