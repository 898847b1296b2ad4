"""The federation that ``fedpick federate`` runs: its client, its server, and the processes that they run in."""

from fedpick.flower.demo.processes import Network, write_app
from fedpick.flower.demo.server import build_selector

__all__ = ["Network", "build_selector", "write_app"]
