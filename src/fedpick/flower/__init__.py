"""Real federations: Power-of-Choice, or any other selector, around any strategy of Flower."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "fedpick.flower: needs flwr; install it with pip install 'fedpick[flower]', or '.[flower]' in a clone"
    ) from None

from fedpick.flower.history import History
from fedpick.flower.options import OutageError
from fedpick.flower.selecting import Selecting, SelectingMixin
from fedpick.flower.trial import Trial, seed_everything

__all__ = ["History", "OutageError", "Selecting", "SelectingMixin", "Trial", "seed_everything"]
