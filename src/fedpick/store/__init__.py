"""Results on disk: run an experiment once, read it for ever."""

from fedpick.store.folder import Made, Store, Stored, device, joined, versions
from fedpick.store.running import fulfil, missing, results, run

__all__ = ["Made", "Store", "Stored", "device", "fulfil", "joined", "missing", "results", "run", "versions"]
