"""fedpick: which clients train in federated learning."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpick import (
        checks,
        compare,
        config,
        experiment,
        flower,
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
        UCBCS,
        ClippedLoss,
        Full,
        Halving,
        LocalLoss,
        Oort,
        PowerOfChoice,
        QFairLoss,
        Rand,
        Schedule,
        Score,
        Shrinking,
        Switch,
        Uniform,
    )

__version__ = "0.1.0"

# Public name -> where it is; looked up when it is first asked for, so that `fedpick --help` need not wait for JAX.
_HOME = {
    "checks": "LawBrokenError check_selector",
    "ledger": "Ledger",
    "protocol": "Clients Picked Report RoundKeys Selection Selector client_key init_key pick round_keys seat_key",
    "pytrees": "pytree static",
    "registry": "STRATEGIES strategy",
    "selectors": "AFL ClippedLoss Full Halving LocalLoss Oort PowerOfChoice QFairLoss Rand Schedule Score Shrinking "
    "Switch UCBCS Uniform",
}
_NAMES = {name: module for module, names in _HOME.items() for name in names.split()}
_ROOMS = (
    "checks",
    "compare",
    "config",
    "experiment",
    "flower",
    "paper",
    "registry",
    "report",
    "results",
    "sampling",
    "selectors",
    "sim",
    "storage",
    "theory",
)

__all__ = [
    "AFL",
    "STRATEGIES",
    "UCBCS",
    "Clients",
    "ClippedLoss",
    "Full",
    "Halving",
    "LawBrokenError",
    "Ledger",
    "LocalLoss",
    "Oort",
    "Picked",
    "PowerOfChoice",
    "QFairLoss",
    "Rand",
    "Report",
    "RoundKeys",
    "Schedule",
    "Score",
    "Selection",
    "Selector",
    "Shrinking",
    "Switch",
    "Uniform",
    "check_selector",
    "checks",
    "client_key",
    "compare",
    "config",
    "experiment",
    "flower",
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


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"fedpick.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"fedpick.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fedpick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
