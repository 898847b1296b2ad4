"""A host that plays runs together with others, as a process of its own; prints the picks and losses as JSON.

python spread.py PORT HOST HOSTS
python spread.py alone
"""

import json
import sys

import jax

from fedpick import PowerOfChoice
from fedpick.sim import MLP, Digits, Dirichlet, Local, simulate


def main(port, *rest):
    if port != "alone":
        host, hosts = map(int, rest)
        jax.distributed.initialize(f"127.0.0.1:{port}", hosts, host, heartbeat_timeout_seconds=100)
    problem = (Digits(Dirichlet(K=12, alpha=0.5)), MLP((8,)), PowerOfChoice(m=3, d=7), Local(tau=2, b=8, eta=0.05))
    found = {"devices": len(jax.devices())}
    for spread in (False, True) if port == "alone" else (True,):
        result = simulate(*problem, rounds=4, every=2, seeds=2, spread_seats=spread)
        found["spread" if spread else "one device each"] = {
            "clients": result.records["clients"].tolist(),
            "losses": result.metrics["client_loss"].tolist(),
            "test": result.metrics["test_loss"].tolist(),
            "model": [leaf.tolist() for leaf in jax.tree.leaves(result.params)],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
