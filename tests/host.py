"""One host of a simulation, as a process of its own; prints what it found as a line of JSON.

python host.py alone [CHECKPOINT]
python host.py PORT HOST HOSTS [CHECKPOINT [live|die]]
"""

import collections
import json
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np

from fedpick import PowerOfChoice
from fedpick.sim import Local, logistic, simulate, simulation, synthetic
from fedpick.sim import checkpoint as disk
from fedpick.sim.bundles import Bundles

port, *rest = sys.argv[1:]
if port != "alone":
    host, hosts, *rest = rest
    jax.distributed.initialize(f"127.0.0.1:{port}", int(hosts), int(host), heartbeat_timeout_seconds=10)
file, how = (rest[0] if rest else None), (rest[1] if len(rest) > 1 else "live")
simulation.CHUNK = 4
held, played, resumed_at = collections.Counter(), [], [0]
real_play, real_load = Bundles.play, disk.load


def play(self, first, *options):
    if how == "die" and first >= 8:
        os.kill(os.getpid(), signal.SIGKILL)
    found = real_play(self, first, *options)
    held.clear()
    for now, bundle in zip(self.now, self.bundles, strict=True):
        (where,) = jax.tree.leaves(now)[0].devices()
        assert all(leaf.devices() == {bundle.device} for leaf in jax.tree.leaves(now))
        held[where.id] += len(bundle.runs)
    played[:] = self.seed.tolist()
    return found


def load(*arguments, **options):
    done, saved = real_load(*arguments, **options)
    resumed_at[0] = done
    return done, saved


def listen(event, **rest):
    found_on_disk.append(event) if event == "/jax/compilation_cache/cache_hits" else None


Bundles.play, disk.load = play, load
found_on_disk = []
jax.monitoring.register_event_listener(listen)
local, options = Local(tau=2, b=4, eta=0.05), {"rounds": 12, "every": 4, "seeds": 8, "checkpoint": file}
result = simulate(
    synthetic(1, 1, K=8, seed=0), logistic(60, 10), PowerOfChoice(m=2, d=jnp.array([4])), local, **options
)
print(
    json.dumps(
        {
            "devices": jax.local_device_count(),
            "held": held,
            "played": played,
            "found_on_disk": len(found_on_disk),
            "resumed_at": resumed_at[0],
            "clients": result.records["clients"].tolist(),
            "loss": [number.hex() for number in np.ravel(result.metrics["loss"]).tolist()],
            "params": [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(result.params)],
        }
    )
)
