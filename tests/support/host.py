"""One host of a simulation, as a process of its own; prints what it found as a line of JSON.

    python host.py alone [CHECKPOINT]
    python host.py detect                                     a task of a cluster that JAX finds by itself
    python host.py PORT HOST HOSTS [CHECKPOINT [live|die]]

With ``DEVICE`` in the environment it is then played again on the device of that number, chosen as users do.
"""

import collections
import functools
import json
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np

from fedpick import PowerOfChoice
from fedpick.sim import Local, Logistic, Synthetic, simulate, simulation
from fedpick.sim._engine.batching import Bundles
from fedpick.sim._engine.checkpoint import Checkpoint


def main(port, *rest):
    if port == "detect":
        jax.distributed.initialize()
    elif port != "alone":
        host, hosts, *rest = rest
        jax.distributed.initialize(f"127.0.0.1:{port}", int(hosts), int(host), heartbeat_timeout_seconds=10)
    file = rest[0] if rest else None
    how = rest[1] if len(rest) > 1 else "live"
    simulation.CHUNK = 4
    held, seen = collections.Counter(), {"found_on_disk": 0}
    real_play, real_load = Bundles.play, Checkpoint.load

    def play(self, first, *options):
        if how == "die" and first >= 8:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real_play(self, first, *options)
        held.clear()
        for progress, bundle in zip(self.progress, self.bundles, strict=True):
            assert all(leaf.devices() == {bundle.place} for leaf in jax.tree.leaves(progress))
            held[bundle.place.id] += len(bundle.runs)
        seen["played"] = self.runs.seeds.tolist()
        return found

    def load(*arguments, **options):
        saved = real_load(*arguments, **options)
        seen["resumed_at"] = 0 if saved is None else saved[1].rounds
        return saved

    def listen(event, **rest):
        seen["found_on_disk"] += event == "/jax/compilation_cache/cache_hits"

    Bundles.play, Checkpoint.load = play, load
    jax.monitoring.register_event_listener(listen)
    federation, selector = Synthetic(1, 1, K=8, seed=0).federation(), PowerOfChoice(m=2, d=jnp.array([4]))
    options = {"rounds": 12, "every": 4, "seeds": 8, "checkpoint": file}
    play_all = functools.partial(simulate, federation, Logistic(), selector, Local(tau=2, b=4, eta=0.05), **options)
    result = play_all()
    found = {
        "devices": jax.local_device_count(),
        "held": dict(held),
        "clients": result.records["clients"].tolist(),
        "loss": [number.hex() for number in np.ravel(result.metrics["loss"]).tolist()],
        "params": [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(result.params)],
    }
    if "DEVICE" in os.environ:
        jax.config.update("jax_default_device", jax.devices()[int(os.environ["DEVICE"])])
        play_all()
        found["held_by_choice"] = dict(held)
    print(json.dumps(seen | found))


if __name__ == "__main__":
    main(*sys.argv[1:])
