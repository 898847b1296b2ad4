"""fedpick: which clients train in federated learning."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpick import (
        arena,
        checks,
        compare,
        config,
        experiment,
        paper,
        registry,
        report,
        results,
        sampling,
        selectors,
        sim,
        storage,
        theory,
    )
    from fedpick import flower as flower
    from fedpick.checks import LawBrokenError, check_selector
    from fedpick.ledger import Ledger
    from fedpick.protocol import (
        Clients,
        Picked,
        Report,
        RoundKeys,
        Selection,
        Selector,
        client_key,
        init_key,
        pick,
        round_keys,
        seat_key,
    )
    from fedpick.pytrees import pytree, static
    from fedpick.registry import STRATEGIES, strategy
    from fedpick.selectors import (
        AFL,
        REFL,
        UCBCS,
        Auto,
        ClippedLoss,
        ClusteredSimilarity,
        ClusteredSize,
        Cooldown,
        Credits,
        DivFL,
        Explore,
        FedCor,
        FedCS,
        Full,
        Halving,
        HiCS,
        KVib,
        LocalLoss,
        Mixture,
        Oort,
        OptimalSampling,
        OwnScore,
        PowerOfChoice,
        Private,
        QFairLoss,
        Rand,
        RankClip,
        Schedule,
        Score,
        Shrinking,
        Switch,
        TiFL,
        Unbiased,
        Uniform,
    )

__version__ = "0.1.0"

# Without flower, whose extra may be missing: a star takes what is here.
__all__ = [
    "AFL",
    "REFL",
    "STRATEGIES",
    "UCBCS",
    "Auto",
    "Clients",
    "ClippedLoss",
    "ClusteredSimilarity",
    "ClusteredSize",
    "Cooldown",
    "Credits",
    "DivFL",
    "Explore",
    "FedCS",
    "FedCor",
    "Full",
    "Halving",
    "HiCS",
    "KVib",
    "LawBrokenError",
    "Ledger",
    "LocalLoss",
    "Mixture",
    "Oort",
    "OptimalSampling",
    "OwnScore",
    "Picked",
    "PowerOfChoice",
    "Private",
    "QFairLoss",
    "Rand",
    "RankClip",
    "Report",
    "RoundKeys",
    "Schedule",
    "Score",
    "Selection",
    "Selector",
    "Shrinking",
    "Switch",
    "TiFL",
    "Unbiased",
    "Uniform",
    "arena",
    "check_selector",
    "checks",
    "client_key",
    "compare",
    "config",
    "experiment",
    "init_key",
    "paper",
    "pick",
    "pytree",
    "registry",
    "report",
    "results",
    "round_keys",
    "sampling",
    "seat_key",
    "selectors",
    "sim",
    "static",
    "storage",
    "strategy",
    "theory",
]

# Public name -> where it is, of those that are not in `selectors`; looked up when it is first asked for, so that
# `fedpick --help` need not wait for JAX.
_HOME = {
    "": "arena checks compare config experiment flower paper registry report results sampling selectors sim storage "
    "theory",
    "checks": "LawBrokenError check_selector",
    "ledger": "Ledger",
    "protocol": "Clients Picked Report RoundKeys Selection Selector client_key init_key pick round_keys seat_key",
    "pytrees": "pytree static",
    "registry": "STRATEGIES strategy",
}
_NAMES = {
    **dict.fromkeys(__all__, "selectors"),
    **{name: module for module, names in _HOME.items() for name in names.split()},
}
_ROOMS = [name for name, module in _NAMES.items() if not module]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'fedpick' has no attribute {name!r}")
    module = _NAMES[name]
    found = importlib.import_module(f"fedpick.{module or name}")
    value = globals()[name] = getattr(found, name) if module else found
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
