"""Where the runs of an app are played: Flower's settings for its simulation, and how many runs at once."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpick import config
from fedpick.flower.simulation.app import CLIENTS, App
from fedpick.registry import nearest
from fedpick.storage import usable_cores
from fedpick.validation import natural


@dataclass(frozen=True)
class Machine:
    """Flower's settings for its simulation, and how many runs are played at once.

    Args:
        federation: Flower's own settings as ``flwr run --federation-config`` takes them: num-supernodes,
            client-resources-num-cpus, client-resources-num-gpus, init-args-num-cpus, init-args-address, ...
        workers: Runs at once; by default as many as there are cores for their clients. One on GPUs and on a Ray
            cluster, which all clients of a run can fill.
    """

    federation: Mapping[str, Any]
    workers: int | None = None

    @classmethod
    def of(cls, texts: Sequence[str], workers: int | None = None) -> "Machine":
        """From what was typed, such as "num-supernodes=10 client-resources-num-cpus=1".

        Args:
            texts: Settings with blanks between them.
            workers: Runs at once.

        >>> Machine.of(["num-supernodes=8 client-resources-num-gpus=0.5"]).federation
        {'num-supernodes': 8, 'client-resources-num-gpus': 0.5}
        """
        found: dict[str, Any] = {}
        for setting in (each for text in texts for each in shlex.split(text)):
            given: dict[str, Any] = {}
            config.override(given, setting, "compare: --federation-config")
            for path, value in config.leaves(given).items():
                name = path.replace(".", "-").removeprefix("options-").removeprefix("backend-").replace("_", "-")
                if name != "num-supernodes" and not name.startswith(("client-resources-", "init-args-")):
                    known = ("num-supernodes", "client-resources-num-cpus", "client-resources-num-gpus", "init-args-*")
                    rule = f"must be one of {', '.join(known)}"
                    raise ValueError(f"compare: --federation-config {path} {rule}{nearest(name, known)}")
                found[name] = value
        if "num-supernodes" in found:
            natural("compare", "num-supernodes", found["num-supernodes"])
        return cls(found, workers)

    def clients(self, app: App) -> int:
        """K: as it is given, or as the app says, or ten."""
        return int(self.federation.get("num-supernodes") or app.clients or CLIENTS)

    def at_once(self, runs: int) -> int:
        """How many of the runs are played at once."""
        if self.workers is not None or self._cluster or self._client.get("num_gpus"):
            return max(1, min(self.workers or 1, runs))
        return max(1, min(runs, int(usable_cores() // max(self._client["num_cpus"], 1e-3))))

    def backend(self, at_once: int) -> dict[str, Any]:
        """The config of Flower's backend for one of so many runs."""
        given, client = self._part("init-args-"), self._client
        if not self._cluster:  # a Ray of its own, with a share of the cores
            share = max(usable_cores() / at_once, client["num_cpus"])
            given = {"address": "local", "num_cpus": max(1, int(share)), **given}
        return {"client_resources": client, "init_args": given}

    @property
    def _client(self) -> dict[str, Any]:
        return {"num_cpus": 1, "num_gpus": 0.0, **self._part("client-resources-")}

    @property
    def _cluster(self) -> bool:
        return "RAY_ADDRESS" in os.environ or self._part("init-args-").get("address", "local") != "local"

    def _part(self, start: str) -> dict[str, Any]:
        named = {name: value for name, value in self.federation.items() if name.startswith(start)}
        return {name.removeprefix(start).replace("-", "_"): value for name, value in named.items()}
