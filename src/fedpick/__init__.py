"""fedpick: which clients train in federated learning."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from fedpick.selectors import (
        AFL,
        STRATEGIES,
        ClippedLoss,
        Full,
        LocalLoss,
        PowerOfChoice,
        QFairLoss,
        Rand,
        Schedule,
        Score,
        Shrinking,
        Uniform,
        from_dict,
        strategy,
        to_dict,
    )

__version__ = "0.1.0"

__all__ = [
    "AFL",
    "STRATEGIES",
    "Clients",
    "ClippedLoss",
    "Full",
    "LawBrokenError",
    "Ledger",
    "LocalLoss",
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
    "Uniform",
    "check_selector",
    "client_key",
    "from_dict",
    "init_key",
    "pick",
    "pytree",
    "round_keys",
    "seat_key",
    "static",
    "strategy",
    "to_dict",
]


def __getattr__(name: str) -> Any:
    """A public name, looked up when it is first asked for: ``fedpick --help`` need not wait for JAX."""
    if name in __all__:
        for room in ("selectors", "protocol", "pytrees", "ledger", "checks"):
            found = getattr(importlib.import_module(f"fedpick.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'fedpick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
