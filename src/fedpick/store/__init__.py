"""Results on disk: run an experiment once, read it for ever."""

from fedpick.store.folder import Store, Stored, device, joined, versions
from fedpick.store.running import fulfil, missing, results, run

__all__ = ["Store", "Stored", "device", "fulfil", "joined", "missing", "results", "run", "versions"]
