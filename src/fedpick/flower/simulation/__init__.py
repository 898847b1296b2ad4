"""A Flower app in Flower's own simulation, with one strategy after the other: what ``fedpick compare --app`` runs."""

from fedpick.flower.simulation.app import App, changed_files, read_app
from fedpick.flower.simulation.machine import Machine
from fedpick.flower.simulation.processes import Progress, play_missing
from fedpick.flower.simulation.runs import AppRun, make_runs

__all__ = ["App", "AppRun", "Machine", "Progress", "changed_files", "make_runs", "play_missing", "read_app"]
